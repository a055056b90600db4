"""From a trial to a verdict: plan, run, compare.

The public names load on first use; planning a trial loads neither torch nor polars.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Arm": "trial",
    "Claim": "trial",
    "Mistake": "file",
    "Plan": "planning",
    "Result": "result",
    "Trial": "trial",
    "TrialFileError": "file",
    "load": "file",
    "loads": "file",
    "plan": "planning",
    "run": "engine",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"equipoise.trial.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'equipoise.trial' has no attribute {name!r}")
