"""Predictors of labels and values from tables, and the tasks that score them.

>>> from equipoise.methods.tables import regression_scores
>>> regression_scores([1.0, 2.0], [1.5, 2.0])["absolute_error"]
array([0.5, 0. ])
"""

from equipoise.core.lazy import lazily

_WHERE = {
    "Classification": "classification",
    "Estimator": "estimator",
    "Regression": "regression",
    "TorchModule": "torch_module",
    "Train": "train",
    "classification_scores": "classification",
    "module_from": "torch_module",
    "regression_scores": "regression",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
