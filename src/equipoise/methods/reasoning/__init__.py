"""Reasoning: problems with known proofs, and how accuracy falls as they get harder.

The plain functions load on first use.

>>> from equipoise.core import Rng
>>> from equipoise.methods.reasoning import generate
>>> generate(depth=1, rng=Rng(3)).answer
10
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Problem": "mathgap",
    "Thing": "mathgap",
    "accuracy_slope": "complexity",
    "generate": "mathgap",
    "infer": "mathgap",
    "movement_effect": "complexity",
    "slope_difference": "complexity",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
