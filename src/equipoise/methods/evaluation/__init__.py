"""Measures, and the plain functions behind them, loaded on first use.

>>> from equipoise.methods.evaluation import pass_hat_k
>>> pass_hat_k([[1, 1, 0, 1], [1, 1, 1, 1]], k=2).value
0.75
"""

from equipoise.core.lazy import lazily

_WHERE = {
    "BestFound": "_adaptive_search",
    "JudgeRates": "_judges",
    "ScoreMatrix": "_score_matrices",
    "accuracy_by_stratum": "means",
    "affinity_entropy": "_equilibrium_target",
    "auroc": "discrimination",
    "bits_per_byte": "token_perplexity",
    "bradley_terry": "pairwise_ratings",
    "brier": "calibration",
    "budget_to_find": "recovery_budgets",
    "difference_game": "_equilibrium_game",
    "elo": "pairwise_ratings",
    "equilibrium_ratings": "_equilibrium",
    "expected_calibration_error": "calibration",
    "f1": "discrimination",
    "filled_subset": "adaptive_evaluation",
    "hardness": "_adaptive_search",
    "judge_report": "_judge_worth",
    "king_of_the_hill_game": "_equilibrium_game",
    "log_likelihood_per_token": "token_perplexity",
    "log_odds": "effects",
    "low_rank_imputation": "adaptive_evaluation",
    "max_affinity_entropy": "_equilibrium_target",
    "mean": "means",
    "paired_difference": "effects",
    "pass_at_k": "attempts",
    "pass_hat_curve": "attempts",
    "pass_hat_k": "attempts",
    "perplexity": "token_perplexity",
    "prediction_powered_mean": "_judges",
    "quantile": "means",
    "ratio": "effects",
    "read_score_matrix": "_score_matrices",
    "recalibrate": "_judge_worth",
    "row_mean_imputation": "adaptive_evaluation",
    "sample_efficiency_factor": "_judge_worth",
    "ucb_e": "adaptive_evaluation",
    "ucb_e_lrf": "adaptive_evaluation",
    "win_rate_game": "_equilibrium_game",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
