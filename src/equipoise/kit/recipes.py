"""Parts as JSON that needs no catalogue to be read back: class and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from equipoise.core import Part, UsageError, parameters

_OURS = "equipoise.methods"


def as_recipe(part: Part) -> dict[str, Any]:
    """Return a part as JSON: the name of its class and its parameters.

    Examples
    --------
    >>> from equipoise.methods.quantization.round_to_nearest import RoundToNearest
    >>> found = as_recipe(RoundToNearest(weights=4))
    >>> found["class"], found["parameters"]["weights"]
    ('equipoise.methods.quantization.round_to_nearest:RoundToNearest', 4)
    """
    cls = type(part)
    return {
        "class": f"{cls.__module__}:{cls.__name__}",
        "parameters": {each.name: _plain(getattr(part, each.name)) for each in parameters(cls)},
    }


def from_recipe(recipe: Any) -> Part:
    """Return the part that `as_recipe` described.

    Only classes of equipoise, and of packages that add parts to it, are looked
    for: a recipe may come from anyone.

    Raises
    ------
    UsageError
        If it is no recipe, or its class is not there or not allowed.

    Examples
    --------
    >>> from equipoise.methods.quantization.round_to_nearest import RoundToNearest
    >>> from_recipe(as_recipe(RoundToNearest(weights=4))).weights
    4
    """
    if not _is_recipe(recipe):
        raise UsageError("A recipe holds a class and parameters, and this does not.")
    module, _, name = str(recipe["class"]).partition(":")
    packages = {_OURS, *(point.value for point in entry_points(group="equipoise.parts"))}
    if not any(module.startswith(f"{package}.") for package in packages):
        raise UsageError(
            f"{recipe['class']} is no part of equipoise nor of a package that adds to it."
        )
    try:
        cls = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{recipe['class']} cannot be found: the package {error.name} is not installed."
        ) from error
    except AttributeError as error:
        raise UsageError(f"{recipe['class']} is not in this version of equipoise.") from error
    if not (isinstance(cls, type) and issubclass(cls, Part)):
        raise UsageError(f"{recipe['class']} is no part.")
    given = {str(key): _value(value) for key, value in recipe["parameters"].items()}
    unknown = given.keys() - {each.name for each in parameters(cls)}
    if unknown:
        raise UsageError(f"{name} has no parameter {min(unknown)} in this version of equipoise.")
    return cls(**given)


def _is_recipe(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and set(value) == {"class", "parameters"}
        and isinstance(value["parameters"], Mapping)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return as_recipe(value)
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _value(value: Any) -> Any:
    if _is_recipe(value):
        return from_recipe(value)
    return tuple(_value(each) for each in value) if isinstance(value, list) else value
