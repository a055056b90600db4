"""Controlled trials of models: from a short file to a verdict with a stated uncertainty.

The public names load on first use, so that ``import equipoise`` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Estimate": "equipoise.core",
    "EquipoiseError": "equipoise.core",
    "Measure": "equipoise.core",
    "Outcome": "equipoise.core",
    "Outcomes": "equipoise.core",
    "Rng": "equipoise.core",
    "ScoreSpec": "equipoise.core",
    "Store": "equipoise.store",
    "Subject": "equipoise.core",
    "Task": "equipoise.core",
    "Treatment": "equipoise.core",
    "Trial": "equipoise.trial",
    "Unit": "equipoise.core",
    "UsageError": "equipoise.core",
    "between": "equipoise.core",
    "load": "equipoise.trial",
    "one_of": "equipoise.core",
    "part": "equipoise.catalog",
    "run": "equipoise.trial",
    "setting": "equipoise.core",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'equipoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
