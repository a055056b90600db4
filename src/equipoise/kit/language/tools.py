"""Tools for agents: typed Python functions, described to models and called with what they say.

>>> def add(a: int, b: int) -> int:
...     '''Add two numbers.'''
...     return a + b
>>> box = Toolbox([add])
>>> box.call({"function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}).content
'5'
>>> box.call({"function": {"name": "add", "arguments": '{"a": "two"}'}}).content
'Error: add: a: Input should be a valid integer; b: Field required.'
"""

from __future__ import annotations

import copy
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.core import UsageError, nearest

MOST_ARGUMENTS = 64 * 1024
"""Bytes of arguments that a call may have."""


@dataclass(frozen=True, slots=True)
class Called:
    """What came of a tool call.

    Parameters
    ----------
    name
        Of the tool, as the model wrote it.
    arguments
        As the model wrote them, read as JSON where they could be; else empty.
    content
        What the model is told: the result, or ``Error: ...``.
    fault
        Empty when the tool ran; else ``malformed``, ``unknown``, ``arguments``, ``too_large``
        or ``refused`` (the tool raised).
    """

    name: str
    arguments: Mapping[str, Any]
    content: str
    fault: str = ""


class ToolError(Exception):
    """What a tool raises to refuse a call; the model reads its text."""


class Tool:
    """A typed function with its description.

    Parameters
    ----------
    function
        Every parameter has a type that pydantic knows; what it returns is told to the model, text
        as it is and all else as JSON. Its docstring describes it, with a NumPy-style section
        ``Parameters`` where parameters need words.
    name
        By default the function's.

    Raises
    ------
    UsageError
        If a parameter has no type, or takes any number of arguments.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        from pydantic import ConfigDict, Field, create_model

        self.function, self.name = function, name or function.__name__
        hints = typing.get_type_hints(function, include_extras=True)
        summary, words = _documented(inspect.getdoc(function) or "")
        fields: dict[str, Any] = {}
        for each in inspect.signature(function).parameters.values():
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.name not in hints:
                raise UsageError(
                    f"The tool {self.name} needs a type for its parameter {each.name}."
                )
            default = ... if each.default is each.empty else each.default
            told = Field(default, description=words.get(each.name))
            fields[each.name] = (hints[each.name], told)
        self._model = create_model(
            self.name, __config__=ConfigDict(extra="forbid", strict=True), **fields
        )
        schema = self._model.model_json_schema()
        for part in (schema, *schema.get("properties", {}).values()):
            part.pop("title", None)
        schema.pop("additionalProperties", None)
        self.schema: dict[str, Any] = {
            "type": "function",
            "function": {"name": self.name, "description": summary, "parameters": schema},
        }

    def of(self, function: Callable[..., Any]) -> Tool:
        """Return the same tool for another function of the same parameters, made at once."""
        found = copy.copy(self)
        found.function = function
        return found

    def __call__(self, arguments: str) -> Any:
        """Call the function with arguments as JSON; pydantic's ValidationError tells of faults."""
        found = self._model.model_validate_json(arguments)
        return self.function(**{name: getattr(found, name) for name in type(found).model_fields})


class Toolbox:
    """Tools by name.

    Parameters
    ----------
    functions
        Functions or `Tool` objects; names differ.

    Examples
    --------
    >>> def look(order: str) -> dict[str, str]:
    ...     '''Show an order.
    ...
    ...     Parameters
    ...     ----------
    ...     order
    ...         Its number, such as ``W1``.
    ...     '''
    ...     return {"order": order, "status": "pending"}
    >>> box = Toolbox([look])
    >>> box.schemas[0]["function"]["parameters"]["properties"]["order"]
    {'description': 'Its number, such as ``W1``.', 'type': 'string'}
    >>> box.use("look", {"order": "W1"}).content
    '{"order": "W1", "status": "pending"}'
    >>> box.use("lock", {}).content
    'Error: there is no tool "lock". Nearest: look. There are: look.'
    """

    def __init__(self, functions: Sequence[Callable[..., Any] | Tool]) -> None:
        tools = [each if isinstance(each, Tool) else Tool(each) for each in functions]
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise UsageError("Two tools have one name.")

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Descriptions in OpenAI's shape, for `Request`."""
        return tuple(tool.schema for tool in self.tools.values())

    def call(self, call: Mapping[str, Any]) -> Called:
        """Do what a model's tool call in OpenAI's shape says; nothing that it says can raise."""
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            return Called(str(name), {}, "Error: the tool call is malformed.", "malformed")
        return self.use(name, function.get("arguments"))

    def use(self, name: str, arguments: Any) -> Called:
        """Call a tool by name, with arguments as JSON text or as a mapping."""
        if arguments is None or arguments == "":
            arguments = "{}"
        try:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        except (TypeError, ValueError):
            return Called(name, {}, "Error: the arguments are not JSON.", "malformed")
        if len(text) > MOST_ARGUMENTS:
            return Called(name, {}, "Error: the arguments are too large.", "too_large")
        if name not in self.tools:
            there = ", ".join(self.tools) or "none"
            said = f'Error: there is no tool "{_short(name)}".{nearest(name, self.tools)}'
            return Called(name, _read(text), f"{said} There are: {there}.", "unknown")
        from pydantic import ValidationError

        try:
            found = self.tools[name](text)
        except ValidationError as error:
            fault = "malformed" if error.errors()[0]["type"] == "json_invalid" else "arguments"
            return Called(name, _read(text), f"Error: {name}: {_faults(error)}.", fault)
        except ToolError as error:
            return Called(name, _read(text), f"Error: {error}", "refused")
        content = found if isinstance(found, str) else json.dumps(found, default=str)
        return Called(name, _read(text), content)


def calls_in(text: str) -> tuple[Mapping[str, Any], ...]:
    """Return the calls that models write as JSON between ``<tool_call>`` tags, in OpenAI's shape.

    Other text, and what cannot be read, is no call.

    Examples
    --------
    >>> calls_in('<tool_call>{"name": "look", "arguments": {"order": "W1"}}</tool_call>')[0]["id"]
    'call_0'
    """
    found: list[Mapping[str, Any]] = []
    for block in text.split("<tool_call>")[1:]:
        try:
            written = json.loads(block.split("</tool_call>")[0])
        except json.JSONDecodeError:
            continue
        for call in written if isinstance(written, list) else [written]:
            if isinstance(call, dict) and isinstance(call.get("name"), str):
                arguments = json.dumps(call.get("arguments", {}), ensure_ascii=False)
                function = {"name": call["name"], "arguments": arguments}
                number = f"call_{len(found)}"
                found.append({"id": number, "type": "function", "function": function})
    return tuple(found)


def _read(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"


def _faults(error: Any) -> str:
    found = []
    for each in error.errors(include_url=False, include_input=False)[:5]:
        place = ".".join(map(str, each["loc"]))
        said = each["msg"].rstrip(".")
        found.append(f"{place}: {said}" if place else said)
    return "; ".join(found)


def _documented(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's text before its first section, and its words on parameters."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", doc, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    words: dict[str, str] = {}
    names: list[str] = []
    for line in sections.get("Parameters", "").splitlines():
        if line and not line[0].isspace():
            names = [each.strip() for each in line.split(":")[0].split(",")]
        elif line.strip():
            for name in names:
                words[name] = f"{words.get(name, '')} {line.strip()}".strip()
    return parts[0].strip(), words
