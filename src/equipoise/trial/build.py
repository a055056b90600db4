"""Builds parts from what a file says: ``id``, ``id:value``, ``{id: {parameters}}``."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from equipoise.catalog import catalog
from equipoise.core import Measure, Part, Subject, Task, Treatment, UsageError, nearest, parameters
from equipoise.core.parts import Parameter

_KINDS: dict[type, str] = {
    Subject: "subject", Treatment: "treatment", Task: "task", Measure: "measure",
}  # fmt: skip


class BuildFault(Exception):
    """What is wrong with a part, as pairs of place inside it and sentence."""

    def __init__(self, faults: list[tuple[tuple[str | int, ...], str]]) -> None:
        self.faults = faults
        super().__init__("; ".join(message for _, message in faults))


def build(spec: Any, kind: type[Part], *, folder: Path | None = None) -> Part:
    """Build the part that ``spec`` names, with its parameters checked.

    Parameters
    ----------
    spec
        ``"id"``, ``"id:value"`` or ``{id: value}`` (the value of the first
        parameter), or ``{id: {parameter: value}}``.
    kind
        Subject, Treatment, Task or Measure.
    folder
        Relative paths in parameters named ``data``, ``file`` or ``model`` that
        exist there are taken from it.

    Raises
    ------
    BuildFault
        With every fault found.
    """
    word = _KINDS[kind]
    name, given = _split(spec, word)
    try:
        entry = catalog().find(name, word)
        cls = entry.load()
    except UsageError as error:
        raise BuildFault([((), str(error))]) from error
    known = {each.name: each for each in parameters(cls)}
    if isinstance(given, _First):
        if not known:
            raise BuildFault([((), f"{name} takes no parameters, got {given.value!r}.")])
        given = {next(iter(known)): given.value}
    faults: list[tuple[tuple[str | int, ...], str]] = []
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            listing = ", ".join(known) or "none"
            message = f'{name} has no parameter "{key}".{nearest(str(key), known)}'
            faults.append(((name, key), f"{message} There are: {listing}."))
            continue
        try:
            values[key] = _value(known[key], value, folder)
        except BuildFault as fault:
            faults += [((name, key, *inner), message) for inner, message in fault.faults]
        except ValidationError:
            wanted = known[key].expected()
            faults.append(((name, key), f"{name}: {key} must be {wanted}, got {value!r}."))
    missing = [key for key, each in known.items() if each.required and key not in given]
    faults += [((name,), f'{name} needs the parameter "{key}".') for key in missing]
    if faults:
        raise BuildFault(faults)
    try:
        return cls(**values)
    except UsageError as error:
        key = next((k for k in values if f": {k} " in str(error)), None)
        raise BuildFault([((name, key) if key else (name,), str(error))]) from error


class _First:
    """The value of the first parameter, from ``id:value`` or ``{id: value}``."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _split(spec: Any, word: str) -> tuple[str, Any]:
    if isinstance(spec, str):
        name, colon, value = spec.partition(":")
        return name, _First(value) if colon else {}
    if isinstance(spec, Mapping) and len(spec) == 1:
        ((name, given),) = spec.items()
        if given is None:
            return str(name), {}
        return str(name), dict(given) if isinstance(given, Mapping) else _First(given)
    raise BuildFault(
        [((), f"a {word} is written `id` or `{{id: {{parameter: value}}}}`, got {spec!r}.")]
    )


_PATHS = ("data", "file", "human", "model", "prompt", "weights")
"""Parameters that may name a file: one beside the trial file is meant first."""


def _value(parameter: Parameter, value: Any, folder: Path | None) -> Any:
    kind = part_kind(parameter.type)
    if kind is not None:
        wrapped, base = kind
        if value is None:
            return None
        if wrapped:
            items = value if isinstance(value, list) else [value]
            return tuple(build(each, base, folder=folder) for each in items)
        return build(value, base, folder=folder)
    if folder and parameter.name in _PATHS and isinstance(value, str):
        beside = folder / value
        if not Path(value).is_absolute() and beside.exists():
            value = str(beside)
    if value is None:
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(
        parameter.type, config=ConfigDict(arbitrary_types_allowed=True)
    )
    return adapter.validate_python(value)


def part_kind(annotation: Any) -> tuple[bool, type[Part]] | None:
    """Return (is a tuple of parts, kind) when a parameter takes parts."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return next((found for each in arguments if (found := part_kind(each))), None)
    if origin is tuple and arguments:
        inner = part_kind(arguments[0])
        return (True, inner[1]) if inner else None
    if isinstance(annotation, type):
        return next(((False, k) for k in _KINDS if issubclass(annotation, k)), None)
    return None
