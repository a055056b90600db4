"""Measures, and the plain functions behind them, loaded on first use.

>>> from equipoise.methods.evaluation import pass_hat_k
>>> pass_hat_k([[1, 1, 0, 1], [1, 1, 1, 1]], k=2).value
0.75
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "JudgeRates": "_judges",
    "accuracy_by_stratum": "means",
    "auroc": "discrimination",
    "bits_per_byte": "token_perplexity",
    "brier": "calibration",
    "expected_calibration_error": "calibration",
    "f1": "discrimination",
    "judge_report": "_judge_worth",
    "log_likelihood_per_token": "token_perplexity",
    "log_odds": "effects",
    "mean": "means",
    "paired_difference": "effects",
    "pass_at_k": "attempts",
    "pass_hat_curve": "attempts",
    "pass_hat_k": "attempts",
    "perplexity": "token_perplexity",
    "prediction_powered_mean": "_judges",
    "quantile": "means",
    "ratio": "effects",
    "recalibrate": "_judge_worth",
    "sample_efficiency_factor": "_judge_worth",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
