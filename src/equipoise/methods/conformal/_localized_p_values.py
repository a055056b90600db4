r"""Localised p-values and the two tests on them, over plain arrays.

Sections and symbols are the paper's, see the card. Calibration rows are :math:`i = 1..n`, test
rows :math:`j = 1..m`; a score :math:`V` is larger where a row is stranger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import false_discovery_control

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.conformal import checked_alphas
from equipoise.methods.conformal._localized_weights import BLOCK, Localised, enough, numbers, xi


def localized_p_values(
    calibration_scores: ArrayLike,
    calibration_x: ArrayLike,
    test_scores: ArrayLike,
    test_x: ArrayLike,
    *,
    bandwidth: float | None = None,
    rng: Rng,
) -> np.ndarray:
    r"""Return how unusual each test score is among calibration scores of rows near it.

    Each test row draws one anchor :math:`s_j \sim N(X_{n+j}, h^2 I)`. With
    :math:`H(x, s) = \exp(-|x - s|^2 / 2h^2)`, :math:`w_{ij} = H(X_i, s_j)`,
    :math:`w_{*j} = H(X_{n+j}, s_j)` and :math:`\xi_j` uniform,

    .. math:: p_j = \frac{\sum_i w_{ij} 1\{V_i > V_{n+j}\}
        + \xi_j (w_{*j} + \sum_i w_{ij} 1\{V_i = V_{n+j}\})}{\sum_i w_{ij} + w_{*j}}.

    It is exactly uniform for a row that is exchangeable with the calibration rows, because
    the anchor is drawn and not the row itself, and nearly uniform given :math:`X_{n+j}`.

    Parameters
    ----------
    calibration_scores
        :math:`V_i`, ``(n,)``, finite.
    calibration_x
        Covariates to localise on, ``(n, d)`` or ``(n,)``; one to four columns work.
    test_scores, test_x
        The same of the test rows, ``(m,)`` and ``(m, d)``.
    bandwidth
        :math:`h`, in the units of the covariates; infinite for the ordinary randomised
        conformal p-value; by default :math:`n^{-1/(2+d)}`, made for columns whose spread is
        about 1.
    rng
        Stream of the anchors and of :math:`\xi`.

    Returns
    -------
    ndarray
        ``(m,)``, in (0, 1).

    Raises
    ------
    UsageError
        If arrays do not fit each other, hold what is not finite, or the bandwidth is not
        positive.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> near, far = np.full(50, 0.0), np.full(50, 9.0)
    >>> scores = np.concatenate([np.arange(50.0), 100 + np.arange(50.0)])
    >>> x = np.concatenate([near, far])
    >>> localized_p_values(scores, x, [60.0, 60.0], [0.0, 9.0], rng=Rng(0)).round(2)
    array([0.02, 1.  ])
    """
    world = Localised.of(calibration_scores, calibration_x, test_scores, test_x, bandwidth, rng)
    return world.p_values(xi(world.m, rng))


@dataclass(frozen=True)
class OutlierTest:
    """What `outlier_test` finds, one entry a test row.

    Parameters
    ----------
    p_values
        ``(m,)``.
    flagged
        ``(m,)``, true where a row is called an outlier.
    rejections
        :math:`R_j`, ``(m,)``: how many rows would be flagged were row j surely an outlier;
        all alike without pruning.
    """

    p_values: np.ndarray
    flagged: np.ndarray
    rejections: np.ndarray


def outlier_test(
    calibration_scores: ArrayLike,
    calibration_x: ArrayLike,
    test_scores: ArrayLike,
    test_x: ArrayLike,
    *,
    alpha: float,
    bandwidth: float | None = None,
    pruning: bool = True,
    rng: Rng,
) -> OutlierTest:
    r"""Flag test rows that are outliers given their covariates, with FDR at most ``alpha``.

    With :math:`p_j` from `localized_p_values`, the auxiliary p-values of row j are
    :math:`p_j^{(j)} = 0` and, for :math:`l \neq j`,

    .. math:: p_l^{(j)} = \frac{\sum_i w_{il} 1\{V_i \ge V_{n+l}\}
        + w_{*l} 1\{V_{n+j} \ge V_{n+l}\}}{\sum_i w_{il} + w_{*l}},

    :math:`R_j` is how many of them the Benjamini-Hochberg procedure rejects, and rows with
    :math:`p_j \le \alpha R_j / m` are candidates. With :math:`u_j` uniform,
    :math:`r^*` is the largest r with at least r candidates that have :math:`u_j R_j \le r`;
    these are flagged. The false discovery rate is at most alpha at any sample size.

    Only :math:`1\{V_{n+j} \ge V_{n+l}\}` depends on j, so each auxiliary p-value has two
    values, and going through j in the order of the scores moves each row once from the lower to
    the higher: all :math:`R_j` take :math:`O(m^2)` additions.

    Parameters
    ----------
    calibration_scores, calibration_x, test_scores, test_x, bandwidth, rng
        As in `localized_p_values`. The calibration rows must be free of outliers.
    alpha
        Share of the flagged rows that may be flagged wrongly, on average, in (0, 1).
    pruning
        False applies the Benjamini-Hochberg procedure to :math:`p_j` directly. Without
        localisation (an infinite bandwidth) that controls the rate too; with it, nothing is
        proved.

    Returns
    -------
    OutlierTest
        p-values and flags.

    Raises
    ------
    UsageError
        As `localized_p_values`, or if alpha is not in (0, 1) or there are fewer calibration
        rows than it needs.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> x, test_x = generator.random(500), generator.random(40)
    >>> scores = np.abs(generator.normal(size=500)) * (1 + 9 * x)
    >>> test_scores = np.abs(generator.normal(size=40)) * (1 + 9 * test_x)
    >>> test_scores[:10] = 6 * (1 + 9 * test_x[:10])
    >>> found = outlier_test(scores, x, test_scores, test_x, alpha=0.1, rng=Rng(0))
    >>> found.flagged[:10].sum(), found.flagged[10:].sum()
    (np.int64(10), np.int64(4))
    """
    (level,) = checked_alphas(alpha)
    world = Localised.of(calibration_scores, calibration_x, test_scores, test_x, bandwidth, rng)
    enough(world.n, float(level), "outlier_test")
    p = world.p_values(xi(world.m, rng))
    if not world.m or not pruning:
        flagged = false_discovery_control(p) <= level if world.m else np.zeros(0, bool)
        return OutlierTest(p, flagged, np.full(world.m, flagged.sum()))
    rejections = auxiliary_rejections(world, float(level))
    candidate = p <= level * rejections / world.m
    pruned = rng.child("pruning").numpy().random(world.m) * rejections
    # The r-th smallest is at most r exactly when at least r of them are.
    ranked = np.sort(pruned[candidate])
    inside = np.flatnonzero(ranked <= np.arange(1, len(ranked) + 1))
    largest = inside[-1] + 1 if len(inside) else 0
    return OutlierTest(p, candidate & (pruned <= largest), rejections)


def auxiliary_rejections(world: Localised, alpha: float) -> np.ndarray:
    """Return R_j of every test row."""
    m, scores = world.m, world.test_scores
    low, high = world.auxiliary()
    thresholds = alpha * np.arange(1, m + 1) / m
    # A p-value counts from this rank of the Benjamini-Hochberg line on; m: never.
    late, early = (np.searchsorted(thresholds, p, side="left") for p in (high, low))
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    switch = np.searchsorted(ranked, ranked, side="left")  # the j from which row l is "higher"
    running = np.bincount(early, minlength=m + 1)
    found = np.empty(m, int)
    rows = max(1, BLOCK // (m + 1))
    ranks = np.arange(1, m + 1)
    for start in range(0, m, rows):
        stop = min(start + rows, m)
        change = np.zeros((stop - start, m + 1), np.int64)
        first, last = np.searchsorted(switch, [start, stop])
        moved = order[first:last]
        np.add.at(change, (switch[first:last] - start, early[moved]), -1)
        np.add.at(change, (switch[first:last] - start, late[moved]), 1)
        counts = np.cumsum(change, axis=0, out=change)
        counts += running
        running = counts[-1].copy()
        own = np.arange(stop - start)
        counts[own, late[order[start:stop]]] -= 1
        counts[:, 0] += 1  # its own auxiliary p-value is 0
        below = np.cumsum(counts, axis=1, out=counts)[:, :m] >= ranks
        found[order[start:stop]] = m - np.argmax(below[:, ::-1], axis=1)
    return found


@dataclass(frozen=True)
class LabelScreen:
    """What `label_screen` finds, one row a test row and one column a label.

    Parameters
    ----------
    p_values
        ``(m, K)``.
    declared
        ``(m, K)``, true where a label is declared.
    """

    p_values: np.ndarray
    declared: np.ndarray


def label_screen(
    calibration_probabilities: ArrayLike,
    calibration_labels: ArrayLike,
    calibration_x: ArrayLike,
    test_probabilities: ArrayLike,
    test_x: ArrayLike,
    *,
    alpha: float,
    bandwidth: float | None = None,
    rng: Rng,
) -> LabelScreen:
    r"""Declare labels of test rows; a row gets any false one with probability at most ``alpha``.

    With :math:`g_k(x)` the probability of label k that a classifier gives, a calibration row's
    score is :math:`V_i = \max_{k: Y_i^k = 0} g_k(X_i)`, or 0 where all its labels are true. Label
    k of test row j is declared when :math:`p_{jk} < \alpha`, with

    .. math:: p_{jk} = \frac{\sum_i w_{ij} 1\{V_i \ge g_k(X_{n+j})\} + \xi_j w_{*j}}
        {\sum_i w_{ij} + w_{*j}},

    the same anchor and the same :math:`\xi_j` for all labels. A bounded or ordinal response is
    screened by labels that say "outside the null region".

    Parameters
    ----------
    calibration_probabilities
        :math:`g_k(X_i)`, ``(n, K)``, in [0, 1].
    calibration_labels
        ``(n, K)``, true or 1 where the label holds.
    calibration_x
        Covariates to localise on, ``(n, d)`` or ``(n,)``.
    test_probabilities, test_x
        Of the test rows, ``(m, K)`` and ``(m, d)``.
    alpha
        Probability that a row may have a false declaration, in (0, 1).
    bandwidth, rng
        As in `localized_p_values`. An infinite bandwidth is the plain threshold: a label is
        declared where its probability is above about the :math:`1 - \alpha` quantile of
        :math:`V`.

    Returns
    -------
    LabelScreen
        p-values and declarations.

    Raises
    ------
    UsageError
        As `outlier_test`, or if what should be probabilities or labels are none.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> x = generator.random(400)
    >>> g = generator.random((400, 2))
    >>> labels = generator.random((400, 2)) < g
    >>> found = label_screen(g, labels, x, [[0.99, 0.5]], [0.5], alpha=0.1, rng=Rng(0))
    >>> found.declared
    array([[ True, False]])
    """
    (level,) = checked_alphas(alpha)
    g, asked = _probabilities(calibration_probabilities), _probabilities(test_probabilities)
    labels = np.asarray(calibration_labels)
    if labels.shape != g.shape or asked.shape[1] != g.shape[1]:
        raise UsageError(
            f"label_screen: probabilities and labels must be (rows, labels) with one column a "
            f"label, got {g.shape}, {labels.shape} and {asked.shape}."
        )
    if not np.isin(labels, (0, 1)).all():
        raise UsageError("label_screen: labels must be true or false, or 1 or 0.")
    scores = np.where(labels.astype(bool), 0.0, g).max(axis=1)
    world = Localised.of(scores, calibration_x, asked.max(axis=1), test_x, bandwidth, rng)
    enough(world.n, float(level), "label_screen")
    chance = xi(world.m, rng)
    p = np.empty(asked.shape)
    for rows, weights, own in world.blocks():
        total = weights.sum(axis=1) + own
        for k in range(asked.shape[1]):
            reached = np.einsum("ji,ji->j", weights, scores >= asked[rows, k, None])
            p[rows, k] = (reached + chance[rows] * own) / total
    return LabelScreen(p, p < level)


def _probabilities(values: Any) -> np.ndarray:
    found = numbers(values, "probabilities")
    if found.ndim != 2 or ((found < 0) | (found > 1)).any():
        raise UsageError("label_screen: probabilities must be (rows, labels), each in [0, 1].")
    return found
