r"""Likelihood ratios of covariates by kernel densities, and quantiles with such weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from equipoise.core import UsageError

BANDWIDTHS = tuple(np.logspace(-1, 0.7, 20).tolist())
MOST_FEATURES = 6  # beyond, kernel densities need more rows than anybody has
_BLOCK = 2**22  # distances at a time: 32 MB


def select_bandwidth(
    inputs: ArrayLike, *, bandwidths: Sequence[float] = BANDWIDTHS, folds: int = 5
) -> float:
    r"""Return the bandwidth of a Gaussian kernel density that foretells rows left out best.

    The largest sum over folds of $\sum_i \log p_h(x_i)$. Fold $k$ has rows $k$, $k + $ ``folds``,
    ..., because rows often come domain by domain. Features that are constant count for nothing:
    their density has no bound as $h$ shrinks.

    Parameters
    ----------
    inputs
        Rows, ``(n, features)``, on scales that compare.
    bandwidths
        To choose from, above 0.
    folds
        At least 2 and at most n.

    Raises
    ------
    UsageError
        If there are fewer rows than folds, or they are not finite.

    Examples
    --------
    >>> rows = np.random.default_rng(1).normal(size=(200, 1))
    >>> 0.2 < select_bandwidth(rows) < 0.7
    True
    """
    x = _rows("inputs", inputs)
    if not 2 <= folds <= len(x):
        raise UsageError(
            f"select_bandwidth: {len(x)} rows are too few for {folds} folds; give more rows."
        )
    x = x[:, np.ptp(x, axis=0) > 0]
    if not x.shape[1]:
        return float(max(bandwidths))
    fold = np.arange(len(x)) % folds
    likelihood = np.zeros(len(bandwidths))
    for each in range(folds):
        kept, left_out = x[fold != each], x[fold == each]
        likelihood += [kernel_log_density(kept, left_out, h).sum() for h in bandwidths]
    return float(bandwidths[int(likelihood.argmax())])


def kernel_log_density(sample: ArrayLike, at: ArrayLike, bandwidth: float) -> np.ndarray:
    r"""Return the logarithm of a Gaussian kernel density.

    With $d$ features and $n$ sample rows $c_i$,

    $$\log p_h(x) = \log \frac{1}{n} \sum_i
    \frac{\exp(-\lVert x - c_i \rVert^2 / 2h^2)}{(2 \pi h^2)^{d/2}}.$$

    Parameters
    ----------
    sample
        Rows ``(n, features)`` that the density is of.
    at
        Rows ``(m, features)`` to tell it at.
    bandwidth
        $h$, above 0.

    Returns
    -------
    ndarray
        ``(m,)``.

    Raises
    ------
    UsageError
        If rows are not finite or of different width, or the bandwidth is not above 0.

    Examples
    --------
    >>> kernel_log_density([[0.0]], [[0.0]], 1.0).round(4)
    array([-0.9189])
    """
    c, x = _rows("sample", sample), _rows("at", at)
    if c.shape[1] != x.shape[1]:
        raise UsageError(f"kernel_log_density: {c.shape[1]} features against {x.shape[1]}.")
    if not bandwidth > 0:
        raise UsageError(f"kernel_log_density: bandwidth must be above 0, got {bandwidth}.")
    own = (c**2).sum(1)
    found = np.empty(len(x))
    step = max(1, _BLOCK // len(c))
    for start in range(0, len(x), step):
        block = x[start : start + step]
        square = np.maximum((block**2).sum(1)[:, None] + own - 2 * block @ c.T, 0.0)
        square *= -0.5 / bandwidth**2
        most = square.max(1)  # taken out, so that far rows keep a logarithm
        found[start : start + step] = most + np.log(np.exp(square - most[:, None]).sum(1))
    found -= np.log(len(c)) + 0.5 * c.shape[1] * np.log(2 * np.pi * bandwidth**2)
    return found


def kernel_density_weights(
    calibration: ArrayLike,
    target: ArrayLike,
    *,
    bandwidth: float | None = None,
    at: ArrayLike | None = None,
    cap: float = np.inf,
) -> np.ndarray:
    r"""Return how much likelier rows are among target covariates than among calibration ones.

    $w(x) = p_{\text{target}}(x) / p_{\text{calibration}}(x)$, both by `kernel_log_density` with one
    bandwidth, scaled to a mean of 1 over the calibration rows and then cut off at ``cap``. In more
    than about 6 dimensions few rows carry all weight: look at `effective_sample_size`.

    Parameters
    ----------
    calibration, target
        Covariates ``(n, features)`` and ``(m, features)``, on scales that compare.
    bandwidth
        Of both densities; None for `select_bandwidth` of the calibration rows.
    at
        Rows to weigh; None for the calibration rows.
    cap
        Largest weight, at least 1.

    Returns
    -------
    ndarray
        One weight for each row of ``at``, from 0 to ``cap``.

    Raises
    ------
    UsageError
        If rows are not finite or too few, or ``cap`` is below 1.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> kernel_density_weights(rows, rows, bandwidth=0.5)
    array([1., 1., 1., 1.])
    >>> kernel_density_weights(rows, rows[2:], bandwidth=0.5).round(2)
    array([0.  , 0.21, 1.79, 2.  ])
    """
    if not cap >= 1:
        raise UsageError(f"kernel_density_weights: cap must be at least 1, got {cap}.")
    c = _rows("calibration", calibration)
    h = select_bandwidth(c) if bandwidth is None else bandwidth
    ratio = kernel_log_density(target, c, h) - kernel_log_density(c, c, h)
    mean = logsumexp(ratio) - np.log(len(c))
    if at is not None:
        ratio = kernel_log_density(target, at, h) - kernel_log_density(c, at, h)
    # Where the target is far from all calibration rows, logarithms keep the ratios apart.
    with np.errstate(over="ignore"):
        found: np.ndarray = np.minimum(np.exp(ratio - mean), cap)
    return found


def effective_sample_size(weights: ArrayLike) -> float:
    r"""Return how many rows of equal weight tell as much: $(\sum_i w_i)^2 / \sum_i w_i^2$.

    Parameters
    ----------
    weights
        At least 0 and not all 0.

    Raises
    ------
    UsageError
        If weights are negative, not finite, or all 0.

    Examples
    --------
    >>> effective_sample_size([1.0, 1.0, 0.0, 0.0])
    2.0
    """
    w = _weights(weights)
    return float(w.sum() ** 2 / (w**2).sum())


def interpolated_weighted_quantile(
    values: ArrayLike, level: float | Sequence[float], weights: ArrayLike | None = None
) -> float | np.ndarray:
    r"""Return a weighted quantile, interpolated between the middles of the weights.

    Sorted value $k$ stands at $(\sum_{j \le k} w_j - w_k/2) / \sum_j w_j$; between these places
    the quantile is linear, and constant outside. It gives a new row no mass of its own, so it
    promises no coverage in small samples;
    `equipoise.kit.arrays.conformal.weighted_conformal_quantile` does.

    Parameters
    ----------
    values
        One or more finite numbers.
    level
        One or several, from 0 to 1.
    weights
        At least 0 and not all 0; None for equal ones.

    Raises
    ------
    UsageError
        If values are not finite, a level is outside [0, 1], or weights are not as said.

    Examples
    --------
    >>> interpolated_weighted_quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    >>> interpolated_weighted_quantile([3.0, 1.0, 2.0], 0.5, weights=[2.0, 1.0, 1.0])
    2.333...
    """
    v = np.asarray(values, float)
    if v.ndim != 1 or not v.size or not np.isfinite(v).all():
        raise UsageError("interpolated_weighted_quantile: values must be finite numbers, in a row.")
    w = np.ones_like(v) if weights is None else _weights(weights)
    asked = np.asarray(level, float)
    if w.shape != v.shape:
        raise UsageError(f"interpolated_weighted_quantile: {w.size} weights for {v.size} values.")
    if not ((asked >= 0) & (asked <= 1)).all():
        raise UsageError(
            f"interpolated_weighted_quantile: level must be from 0 to 1, got {level!r}."
        )
    order = np.argsort(v)
    w = w[order]
    found = np.interp(asked, (np.cumsum(w) - 0.5 * w) / w.sum(), v[order])
    return found if asked.ndim else float(found)


def _rows(name: str, values: ArrayLike) -> np.ndarray:
    found = np.asarray(values, float)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise UsageError(f"{name} must be finite rows (n, features), got shape {found.shape}.")
    return found


def _weights(weights: ArrayLike) -> np.ndarray:
    w = np.asarray(weights, float)
    if w.ndim != 1 or not (np.isfinite(w).all() and (w >= 0).all() and w.sum() > 0):
        raise UsageError("Weights must be finite, at least 0, and not all 0.")
    return w
