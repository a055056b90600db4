"""Intervals, sets and tests with guarantees that do not rest on a model being right."""

from equipoise.core.lazy import lazily

_WHERE: dict[str, str] = {
    "ClassifierTwoSampleTest": "two_sample",
    "ConditionalTwoSampleTest": "two_sample",
    "DensityRatioTwoSampleTest": "two_sample",
    "LabelScenario": "conditional_scenarios",
    "LabelScreen": "localized_conformal_p",
    "LocalizedLabelScreen": "localized_conformal_p",
    "LocalizedLabelScreener": "_localized_detectors",
    "LocalizedOutlierDetector": "_localized_detectors",
    "LocalizedOutlierTest": "localized_conformal_p",
    "OutlierScenario": "conditional_scenarios",
    "OutlierTest": "localized_conformal_p",
    "ScenarioMean": "conditional_scenarios",
    "ScreenRows": "screen_rows",
    "TwoSampleScenario": "conditional_scenarios",
    "TwoSampleTest": "two_sample",
    "classifier_test": "two_sample",
    "density_ratio_test": "two_sample",
    "label_screen": "localized_conformal_p",
    "localized_p_values": "localized_conformal_p",
    "outlier_test": "localized_conformal_p",
    "two_sample_conditional_test": "two_sample",
    "ImportanceWeightedInterval": "wasserstein_regularized",
    "MultiSourceMLP": "wasserstein_regularized",
    "MultiSourceRegression": "multi_source_regression",
    "WassersteinRegularizedTraining": "wasserstein_regularized",
    "WorstCaseInterval": "wasserstein_regularized",
    "coverage_gap_bound": "wasserstein_regularized",
    "domain_weights": "_wr_network",
    "effective_sample_size": "wasserstein_regularized",
    "interpolated_weighted_quantile": "wasserstein_regularized",
    "kernel_density_weights": "wasserstein_regularized",
    "kernel_log_density": "wasserstein_regularized",
    "kl_divergence": "wasserstein_regularized",
    "mean_difference": "wasserstein_regularized",
    "select_bandwidth": "wasserstein_regularized",
    "total_variation": "wasserstein_regularized",
    "train_on_domains": "_wr_network",
    "wasserstein_1": "wasserstein_regularized",
    "wasserstein_1_torch": "wasserstein_regularized",
    "worst_case_quantile": "wasserstein_regularized",
    "ConformalInterval": "conformal_interval",
    "ConformalRegressor": "conformal_interval",
    "ConformalSet": "conformal_set",
    "CoverageCurve": "coverage",
    "CoverageGap": "coverage",
    "IntervalPrediction": "interval_prediction",
    "IntervalSize": "sizes",
    "SetPrediction": "set_prediction",
    "SetSizes": "sizes",
    "coverage_curve": "coverage",
    "coverage_gap": "coverage",
    "interval_scores": "interval_prediction",
    "interval_size": "sizes",
    "set_scores": "set_prediction",
    "set_sizes": "sizes",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
