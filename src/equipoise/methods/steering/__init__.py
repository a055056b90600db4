"""Steering: vectors added to a model while it runs, and what each dose of them does.

The plain functions load on first use.

>>> import numpy as np
>>> from equipoise.methods.steering import control_direction
>>> control_direction("reading_contrast", np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]))
array([2., 0.])
"""

from importlib import import_module
from typing import Any

_HERE = "equipoise.methods.steering"
_KIT = "equipoise.kit.language.distributions"
_WHERE = {
    "add_vectors": f"{_HERE}.control_vector",
    "answer_probability_mass": _KIT,
    "control_direction": f"{_HERE}.control_vector",
    "dose_response": f"{_HERE}.dose_effects",
    "intervention_kl": _KIT,
    "next_token_entropy": _KIT,
    "read_vectors": f"{_HERE}.control_vector",
    "vectors_of": f"{_HERE}.control_vector",
    "write_vectors": f"{_HERE}.control_vector",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
