"""Reasoning: problems with known proofs, and how accuracy falls as they get harder.

The plain functions load on first use.

>>> from equipoise.core import Rng
>>> from equipoise.methods.reasoning import generate
>>> generate(depth=1, rng=Rng(3)).answer
10
"""

from equipoise.core.lazy import lazily

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

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
