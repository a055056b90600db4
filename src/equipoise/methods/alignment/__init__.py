"""What people prefer, and what models of it are worth: rewards and preferences."""

from importlib import import_module
from typing import Any

_WHERE: dict[str, str] = {}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
