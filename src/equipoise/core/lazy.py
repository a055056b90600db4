"""Names of a package that load on first use, so that importing it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Parameters
    ----------
    package
        Its ``__name__``.
    where
        Public name to the module of the package that has it.

    Examples
    --------
    >>> lazily("equipoise.core", {"Rng": "rng"})("Rng").__name__
    'Rng'
    """

    def get(name: str) -> Any:
        if name in where:
            return getattr(import_module(f"{package}.{where[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
