"""Performance to expect away from the training data."""

from equipoise.core.lazy import lazily

_WHERE: dict[str, str] = {
    "AUGOOD": "good_curves",
    "DeploymentForecast": "evaluation_protocols",
    "EvaluationProtocol": "evaluation_protocols",
    "MoleculeFeatures": "molecule_features",
    "PairedCurveTest": "good_curves",
    "Partition": "similarity_split",
    "SimilarityQuality": "good_curves",
    "SimilarityShift": "similarity_shift",
    "SimilaritySplit": "similarity_split",
    "au_good": "_good",
    "compare_curves": "_good",
    "deployment_weights": "_good",
    "good_curve": "_good",
    "similarity_partition": "similarity_split",
    "similarity_quality": "_good",
    "threshold_grid": "similarity_split",
    "usable_partitions": "similarity_split",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
