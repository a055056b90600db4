"""Times to an event, some of them cut short: predictors, their scores, and bounds that hold."""

from importlib import import_module
from typing import Any

_WHERE = {
    "CalibrateSurvival": "calibrate_survival",
    "CensoredCoverageBounds": "survival_bounds",
    "Concordance": "concordance",
    "ConformalSurvival": "calibrate_survival",
    "KaplanMeier": "kaplan_meier",
    "RightCensoredSynthetic": "right_censored_synthetic",
    "Survival": "survival",
    "SurvivalBounds": "survival_bounds",
    "SurvivalLearner": "survival_model",
    "SurvivalModel": "survival_model",
    "survival_scores": "survival",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
