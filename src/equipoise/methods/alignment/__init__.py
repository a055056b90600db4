"""What people prefer, and what models of it are worth: rewards and preferences."""

from equipoise.core.lazy import lazily

_WHERE: dict[str, str] = {
    "CharacteristicCorrelation": "reward_measures",
    "DPOOnFixedPreferences": "dpo_on_fixed_preferences",
    "FragileTriple": "preference_sensitivity",
    "FragileTriples": "preference_sensitivity",
    "Gameability": "reward_measures",
    "GivesRewards": "post_hoc_reward_calibration",
    "ImpliedPreferences": "implied_preferences",
    "JudgeRewards": "stored_pair_scores",
    "LengthBiasedRewards": "length_biased_rewards",
    "LengthControlledWinRate": "reward_measures",
    "LikelihoodRewards": "stored_pair_scores",
    "PaddedAnswers": "length_biased_rewards",
    "PostHocRewardCalibration": "post_hoc_reward_calibration",
    "PreferencePairs": "preference_pairs",
    "PreferenceSensitivity": "preference_sensitivity",
    "RankedTuples": "implied_preferences",
    "RecordedPreferences": "preference_pairs",
    "RecordedScores": "stored_pair_scores",
    "Responses": "post_hoc_reward_calibration",
    "RewardCalibration": "post_hoc_reward_calibration",
    "SectionedPairAccuracy": "reward_measures",
    "SensitiveRegion": "implied_preferences",
    "SpreadRatio": "amplified_noise",
    "StoredPairScores": "stored_pair_scores",
    "UnseenPreference": "dpo_on_fixed_preferences",
    "characteristic_correlation": "reward_measures",
    "dpo_loss": "dpo_on_fixed_preferences",
    "fit_rankings": "preference_sensitivity",
    "fragile_triples": "preference_sensitivity",
    "gameability": "reward_measures",
    "implied_preference": "preference_sensitivity",
    "length_controlled_win_rate": "reward_measures",
    "local_mean": "post_hoc_reward_calibration",
    "lowess": "post_hoc_reward_calibration",
    "markdown_count": "post_hoc_reward_calibration",
    "ranking_gradients": "preference_sensitivity",
    "ranking_probabilities": "preference_sensitivity",
    "ranking_sensitivity": "preference_sensitivity",
    "sectioned_accuracy": "reward_measures",
    "sensitive_bound": "preference_sensitivity",
    "sensitive_region_area": "preference_sensitivity",
    "sensitivity": "preference_sensitivity",
    "spread_ratio": "amplified_noise",
    "tuple_region_areas": "preference_sensitivity",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
