"""The web page: look at a store's trials, their units and their verdicts.

`serve` starts it; `create_app` gives the ASGI application alone. Both read and never write.
"""

from importlib import import_module
from typing import Any

_WHERE = {"create_app": "app", "serve": "server"}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
