"""GOOD curves as plain functions: train and test at growing thresholds, weigh, compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import Rng, UsageError
from equipoise.methods.shift._curves import SCORERS, Metric
from equipoise.methods.shift.similarity_split import Partition


def good_curve(
    estimator: Any,
    inputs: npt.ArrayLike,
    targets: npt.ArrayLike,
    partitions: Sequence[Partition],
    *,
    metric: Metric = "spearman",
    rng: Rng | None = None,
) -> dict[float, float]:
    r"""Train and test at every threshold: :math:`G(\lambda)`.

    Parameters
    ----------
    estimator
        Anything with scikit-learn's ``get_params``, ``fit`` and ``predict``; it stays as it is.
    inputs, targets
        ``(n, features)`` and ``(n,)``.
    partitions
        As of `usable_partitions`.
    metric
        ``spearman`` (0 where nothing varies), ``pearson``, ``r2``, ``mcc``, ``accuracy``,
        ``rmse`` or ``mae``.
    rng
        Seeds the estimator; ``Rng(0)`` if absent.

    Returns
    -------
    dict
        Threshold to performance.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from equipoise.methods.shift import similarity_partition
    >>> x = np.arange(10.0)[:, None]
    >>> alone = similarity_partition(np.eye(10), 0.5, test_size=0.4)
    >>> curve = good_curve(LinearRegression(), x, 2 * x[:, 0], [alone])
    >>> round(curve[0.5], 6)
    1.0
    """
    from equipoise.kit.arrays.learners import fit_estimator

    x, y = np.asarray(inputs, float), np.asarray(targets)
    found = {}
    for each in partitions:
        stream = (rng or Rng(0)).child("good_curve", each.threshold)
        model = fit_estimator(estimator, x[each.train], y[each.train], stream)
        answer, truth = np.asarray(model.predict(x[each.test])), y[each.test]
        if metric in ("mcc", "accuracy"):
            codes = np.unique(np.concatenate([truth, answer]), return_inverse=True)[1]
            truth, answer = codes[: len(truth)], codes[len(truth) :]
        found[each.threshold] = float(SCORERS[metric](truth, answer, np.ones((1, len(truth))))[0])
    return found


def deployment_weights(
    max_similarities: npt.ArrayLike, thresholds: Sequence[float] | np.ndarray
) -> np.ndarray:
    r"""Return how much each threshold counts for a deployment.

    With :math:`m_t` how alike deployment item t is to the nearest training item,

    .. math:: w_1 \propto \#\{m_t \le \lambda_1\}, \quad
              w_i \propto \#\{\lambda_{i-1} < m_t \le \lambda_i\} .

    Items nearer than the last threshold count nowhere.

    Parameters
    ----------
    max_similarities
        :math:`m_t` in [0, 1]; `kit.arrays.similarity.nearest` gives them.
    thresholds
        Rising.

    Raises
    ------
    UsageError
        If no item is as far away as the last threshold, or thresholds do not rise.

    Examples
    --------
    >>> deployment_weights([0.2, 0.35, 0.45, 0.6], [0.3, 0.5, 0.7])
    array([0.25, 0.5 , 0.25])
    """
    m, grid = np.asarray(max_similarities, float).ravel(), np.asarray(thresholds, float)
    if not grid.size or (np.diff(grid) <= 0).any():
        raise UsageError("deployment_weights: thresholds must rise, and there must be one.")
    if not np.isfinite(m).all() or (m < 0).any() or (m > 1 + 1e-6).any():
        raise UsageError("deployment_weights: similarities must be finite and from 0 to 1.")
    # Similarities may come as 32-bit floats, which hold 0.7 a little above or below.
    place = np.searchsorted(np.round(grid, 6), np.round(m, 6), side="left")
    counts = np.bincount(place, minlength=len(grid) + 1)[: len(grid)]
    if not counts.sum():
        raise UsageError(
            f"deployment_weights: none of {len(m)} deployment items is as far from training as "
            f"the last threshold, {grid[-1]:g}; the performance on a random split holds for them."
        )
    return np.asarray(counts / counts.sum())


def au_good(
    curve: Mapping[float, float], weights: Sequence[float] | np.ndarray | None = None
) -> float:
    r"""Return :math:`\sum_i w_i G(\lambda_i)`; without weights the mean of the curve.

    Parameters
    ----------
    curve
        Threshold to performance, as of `good_curve`.
    weights
        One a threshold, by rising threshold; not negative, of any positive sum.

    Examples
    --------
    >>> round(au_good({0.3: 0.4, 0.5: 0.6, 0.7: 0.8}, [1, 2, 1]), 6)
    0.6
    """
    values = np.array([curve[each] for each in sorted(curve)], float)
    w = np.ones(len(values)) if weights is None else np.asarray(weights, float)
    if w.shape != values.shape or not len(w):
        raise UsageError(
            f"au_good: give one weight a threshold, got {len(w)} for {len(values)} thresholds."
        )
    if (w < 0).any() or not 0 < w.sum() < np.inf:
        raise UsageError("au_good: weights must not be negative, and one must be positive.")
    used = w > 0
    return float(values[used] @ w[used] / w.sum())


def compare_curves(
    curves: Mapping[str, Mapping[float, float]], *, higher_is_better: bool = True
) -> np.ndarray:
    """Return how likely each curve's lead over each other is by chance, as in the paper.

    Wilcoxon's signed-rank test, one-sided, on the thresholds all curves have. Neighbouring
    thresholds test nearly the same rows, so the p-values are too small: they describe, and do
    not decide. `PairedCurveTest` resamples rows.

    Returns
    -------
    ndarray
        ``[i, j]`` is the p-value of curve i being better than curve j; 1 on the diagonal and
        where two curves are equal.

    Examples
    --------
    >>> low = {0.3: 0.1, 0.4: 0.2, 0.5: 0.3, 0.6: 0.5}
    >>> compare_curves({"a": {t: g + t for t, g in low.items()}, "b": low})
    array([[1.    , 0.0625],
           [1.    , 1.    ]])
    """
    from scipy.stats import wilcoxon

    common = sorted(set.intersection(*(set(each) for each in curves.values())))
    if not common:
        raise UsageError("compare_curves: the curves have no threshold in common.")
    table = np.array([[curve[t] for t in common] for curve in curves.values()], float)
    if not higher_is_better:
        table = -table
    found = np.ones((len(table), len(table)))
    for i, a in enumerate(table):
        for j, b in enumerate(table):
            if (a != b).any():
                found[i, j] = float(wilcoxon(a, b, alternative="greater").pvalue)
    return found


def similarity_quality(curve: Mapping[float, float]) -> tuple[float, float]:
    """Return how well a similarity orders what is hard: Spearman's correlation and the range.

    The first is between threshold and performance (errors count as they are); 1 says that the
    nearer test rows are, the better they are predicted. The second is the largest less the
    smallest threshold that is usable.

    Examples
    --------
    >>> rho, reach = similarity_quality({0.3: 0.4, 0.5: 0.6, 0.7: 0.8})
    >>> round(rho, 6), round(reach, 6)
    (1.0, 0.4)
    """
    thresholds = np.array(sorted(curve))
    if len(thresholds) < 2:
        raise UsageError("similarity_quality: a curve needs at least two thresholds.")
    values = np.array([curve[each] for each in thresholds], float)
    rho = SCORERS["spearman"](thresholds, values, np.ones((1, len(values))))[0]
    return float(rho), float(thresholds[-1] - thresholds[0])
