"""Times to an event, some of them cut short: predictors, their scores, and bounds that hold."""

from equipoise.core.lazy import lazily

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

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
