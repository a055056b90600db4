"""The JSON Schema of trial files: pydantic's, with every part and its parameters filled in."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from equipoise.catalog import KINDS, Entry, catalog
from equipoise.core import UsageError, parameters
from equipoise.core.parts import Parameter
from equipoise.trial.build import part_kind
from equipoise.trial.schema import TrialFile

_KIND_OF_KEY = {"subject": "subject", "treatments": "treatment", "tasks": "task"}


def trial_schema() -> dict[str, Any]:
    """Return the schema, for editors to complete and check trial files with.

    A part whose packages are not installed is listed without its parameters.
    """
    schema = TrialFile.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "equipoise trial"
    definitions = schema["$defs"]
    for kind in KINDS:
        definitions[kind] = _kind_schema(kind)
    properties = schema["properties"]
    properties["subject"] = _described(properties["subject"], _ref("subject"))
    properties["tasks"]["additionalProperties"] = _ref("task")
    properties["measures"]["additionalProperties"]["items"] = _ref("measure")
    treatments = {"type": "array", "items": _ref("treatment")}
    properties["arms"]["additionalProperties"] = {
        "anyOf": [treatments, {"$ref": "#/$defs/ArmFile"}, {"type": "null"}]
    }
    arm = definitions["ArmFile"]["properties"]
    arm["subject"] = _described(arm["subject"], _ref("subject"))
    arm["treatments"]["items"] = _ref("treatment")
    claim = definitions["ClaimFile"]["properties"]
    claim["measure"] = _described(claim["measure"], _ref("measure"))
    return schema


def _ref(kind: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{kind}"}


def _described(old: dict[str, Any], new: dict[str, str]) -> dict[str, Any]:
    return {"description": old.get("description", ""), "anyOf": [new, {"type": "null"}]}


def _kind_schema(kind: str) -> dict[str, Any]:
    entries = [entry for entry in catalog() if entry.kind == kind]
    names = [entry.id for entry in entries]
    return {
        "anyOf": [
            {"type": "string", "enum": names},
            {"type": "string", "pattern": f"^({'|'.join(names)}):.+$"},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": False,
                "properties": {entry.id: _part_schema(entry) for entry in entries},
            },
        ]
    }


def _part_schema(entry: Entry) -> dict[str, Any]:
    described: dict[str, Any] = {"type": ["object", "null"], "description": entry.card.summary}
    try:
        found = parameters(entry.load())
    except UsageError:
        return described
    return described | {
        "additionalProperties": False,
        "properties": {each.name: _parameter_schema(each) for each in found},
        "required": [each.name for each in found if each.required],
    }


def _parameter_schema(parameter: Parameter) -> dict[str, Any]:
    each = {"type": "object", "required": ["each"], "properties": {"each": {"type": "array"}}}
    kind = part_kind(parameter.type)
    if kind is not None:
        one = _ref(kind[1].__name__.lower())
        choices: list[Any] = [one, {"type": "null"}]
        if kind[0]:
            choices.append({"type": "array", "items": one})
        return {"anyOf": [*choices, each]}
    if "choices" in parameter.metadata:
        return {"anyOf": [{"enum": list(parameter.metadata["choices"])}, each]}
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(
            parameter.type, config=ConfigDict(arbitrary_types_allowed=True)
        )
        own = adapter.json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return {}
    for ours, theirs in (("low", "minimum"), ("high", "maximum")):
        bound = parameter.metadata.get(ours)
        if bound is not None and abs(bound) != float("inf"):
            own[theirs] = bound
    return {"anyOf": [own, each]}
