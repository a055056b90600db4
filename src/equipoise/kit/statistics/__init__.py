"""Estimates with intervals, tests and sequences over plain arrays: the statistics of verdicts.

The names load on first use, so that importing the package loads no SciPy.
"""

from equipoise.core.lazy import lazily

_WHERE = {
    "AsymptoticSequence": "sequences",
    "BettingSequence": "sequences",
    "CrossedVariance": "robust",
    "PairedDesign": "power",
    "UCBE": "allocation",
    "UCBELowRank": "allocation",
    "benjamini_hochberg": "corrections",
    "bonferroni_level": "corrections",
    "bootstrap": "resampling",
    "bootstrap_difference": "resampling",
    "bootstrap_mean": "resampling",
    "bradley_terry": "ratings",
    "bradley_terry_draws": "ratings",
    "crossed_variance": "robust",
    "detectable": "planning",
    "discordance": "power",
    "elo": "elo_ratings",
    "elo_passes": "elo_ratings",
    "holm": "corrections",
    "log_odds_ratio": "ratios",
    "macro_mean": "effects",
    "mcnemar": "permutation",
    "mean": "single",
    "minimum_detectable_effect": "planning",
    "paired_difference": "effects",
    "permutation_two_sample": "permutation",
    "proportion": "single",
    "quantile": "single",
    "rank_ranges": "ratings",
    "ratio": "ratios",
    "sign_flip": "permutation",
    "units_to_settle": "planning",
    "unpaired_difference": "effects",
    "wilson": "single",
}

__all__ = [
    "UCBE",
    "AsymptoticSequence",
    "BettingSequence",
    "CrossedVariance",
    "PairedDesign",
    "UCBELowRank",
    "benjamini_hochberg",
    "bonferroni_level",
    "bootstrap",
    "bootstrap_difference",
    "bootstrap_mean",
    "bradley_terry",
    "bradley_terry_draws",
    "crossed_variance",
    "detectable",
    "discordance",
    "elo",
    "elo_passes",
    "holm",
    "log_odds_ratio",
    "macro_mean",
    "mcnemar",
    "mean",
    "minimum_detectable_effect",
    "paired_difference",
    "permutation_two_sample",
    "proportion",
    "quantile",
    "rank_ranges",
    "ratio",
    "sign_flip",
    "units_to_settle",
    "unpaired_difference",
    "wilson",
]

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return sorted(__all__)
