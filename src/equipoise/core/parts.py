"""Parts: frozen dataclasses whose fields are their parameters, checked when built."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, ClassVar, Self

from equipoise.core.errors import UsageError


def between(low: float, high: float, *, default: Any = MISSING) -> Any:
    """Declare a numeric parameter with an inclusive range.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Round(Part):
    ...     bits: int = between(2, 16, default=8)
    >>> Round(bits=1)
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: Round: bits must be an integer from 2 to 16, got 1.
    """
    return dataclasses.field(default=default, metadata={"low": low, "high": high})


def one_of(*choices: Any, default: Any = MISSING) -> Any:
    """Declare a parameter that takes one of a few values."""
    return dataclasses.field(default=default, metadata={"choices": choices})


def setting(default: Any = MISSING, **metadata: Any) -> Any:
    """Declare a parameter that cannot move results, so it stays out of the identity.

    Devices, batch sizes, addresses and time limits are settings.
    """
    return dataclasses.field(default=default, metadata={"identity": False, **metadata})


class Part(ABC):
    """What a trial is made of: a frozen dataclass, abstract or final.

    Building a part checks every field against its annotation and declared
    range, then calls `check` for what only several fields together can tell.
    A wrong value raises `UsageError` with one sentence.
    """

    exempt: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for field in parameters(type(self)):
            complaint = _complaint(field, getattr(self, field.name))
            if complaint:
                raise UsageError(f"{type(self).__name__}: {field.name} {complaint}.")
        self.check()

    def check(self) -> None:  # noqa: B027 - a hook, empty where one field tells enough
        """Raise `UsageError` when the parameters do not fit each other."""

    def content(self) -> Any:
        """Return what outside the parameters makes the part, as JSON; it enters the identity.

        A part that reads a file declares the path with `setting` and returns
        the hash of the file here, so that results follow the content and not
        the place.
        """
        return None

    @classmethod
    def tiny(cls) -> Self:
        """Return the smallest sensible instance, used by the conformance checks."""
        return cls()


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a part, as `parameters` reads it from the class."""

    name: str
    type: Any
    default: Any
    metadata: Mapping[str, Any]

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def in_identity(self) -> bool:
        return bool(self.metadata.get("identity", True))

    def expected(self) -> str:
        """Say what the parameter must be, as in "an integer from 2 to 16"."""
        if "choices" in self.metadata:
            return "one of " + ", ".join(map(repr, self.metadata["choices"]))
        text = _type_name(self.type)
        if "low" in self.metadata:
            low, high = self.metadata["low"], self.metadata["high"]
            if math.isinf(high):
                return f"{text} of at least {_number(low)}"
            return f"{text} from {_number(low)} to {_number(high)}"
        return text


@functools.cache
def parameters(cls: type) -> tuple[Parameter, ...]:
    """Return the parameters of a part class, in order."""
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        default = field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        found.append(Parameter(field.name, hints[field.name], default, field.metadata))
    return tuple(found)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _complaint(parameter: Parameter, value: Any) -> str | None:
    wrong = f"must be {parameter.expected()}, got {value!r}"
    if "choices" in parameter.metadata:
        return None if value in parameter.metadata["choices"] else wrong
    if not _fits(value, parameter.type):
        return wrong
    if "low" in parameter.metadata and value is not None:
        numbers = value if isinstance(value, tuple) else (value,)
        low, high = parameter.metadata["low"], parameter.metadata["high"]
        if not all(low <= number <= high for number in numbers):
            return wrong
    return None


def _fits(value: Any, annotation: Any) -> bool:
    """Say whether a value fits an annotation; what it does not know it lets through."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(_fits(each, arguments[0]) for each in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin is not None:
        return isinstance(value, origin)
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation) if isinstance(annotation, type) else True


_NAMES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    type(None): "nothing",
}


def _type_name(annotation: Any) -> str:
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(each) for each in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in (tuple, list, Sequence):
        return f"a list of {_type_name(arguments[0]).removeprefix('a ').removeprefix('an ')}s"
    if origin is dict or origin is Mapping:
        return "a mapping"
    name = getattr(annotation, "__name__", str(annotation))
    return f"a {name.lower()}" if isinstance(annotation, type) else name
