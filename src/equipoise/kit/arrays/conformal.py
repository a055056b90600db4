r"""Quantiles and p-values of conformal prediction, over plain arrays.

Let :math:`s_1, \dots, s_n` be the scores of calibration rows and :math:`s_{n+1}` that of a new row,
all exchangeable. Then :math:`s_{n+1}` is at most the :math:`\lceil (n+1)(1-\alpha) \rceil`-th
smallest of the first :math:`n` with probability at least :math:`1-\alpha`, whatever the model
(Vovk et al., Algorithmic Learning in a Random World, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from equipoise.core import Rng, UsageError

__all__ = [
    "calibration_needed",
    "checked_alphas",
    "conformal_p_values",
    "conformal_quantile",
    "weighted_conformal_quantile",
]

Alpha = float | Sequence[float] | np.ndarray

# 20 * 0.05 or 1 / (1 - 0.9) may miss the whole number it means by rounding. A product this close to
# one counts as it; coverage gives way by 1e-10 at most.
_SLACK = 1e-10


def checked_alphas(alpha: Alpha) -> np.ndarray:
    """Return error rates as a flat array, or refuse those outside (0, 1).

    Parameters
    ----------
    alpha
        One or several, each the share of values that may lie outside.

    Raises
    ------
    UsageError
        If there is none, or one is no number strictly between 0 and 1.

    Examples
    --------
    >>> checked_alphas(0.1)
    array([0.1])
    >>> checked_alphas(90)
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: alpha must lie strictly between 0 and 1 ..., got 90.
    """
    try:
        found = np.atleast_1d(np.asarray(alpha, np.float64))
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 1 or not found.size or not ((found > 0) & (found < 1)).all():
        raise UsageError(
            f"alpha must lie strictly between 0 and 1 (0.1 asks for 90 % coverage), got {alpha!r}."
        )
    return found


def calibration_needed(alpha: float) -> int:
    r"""Return how many calibration rows make the conformal quantile finite.

    That is the least :math:`n` with :math:`\lceil (n+1)(1-\alpha) \rceil \le n`, which is
    :math:`\lceil 1/\alpha \rceil - 1`.

    Parameters
    ----------
    alpha
        Share of values that may lie outside, in (0, 1).

    Examples
    --------
    >>> [calibration_needed(alpha) for alpha in (0.5, 0.1, 0.05, 0.01)]
    [1, 9, 19, 99]
    """
    (level,) = checked_alphas(alpha)
    return math.ceil(1 / float(level) * (1 - _SLACK)) - 1


def conformal_quantile(
    scores: ArrayLike, alpha: Alpha, *, too_small: Literal["infinite", "refuse"] = "infinite"
) -> float | np.ndarray:
    r"""Return the :math:`\lceil (n+1)(1-\alpha) \rceil`-th smallest of :math:`n` scores.

    It takes partitions, no sort: the first of all scores, each further one of the part that the
    one before left below.

    Parameters
    ----------
    scores
        Of the calibration rows, ``(n,)``, larger where the model is further off. One may be
        minus infinity, as of a row that any interval covers; NaN and infinity are refused.
    alpha
        Share of values that may lie outside, in (0, 1); one or several.
    too_small
        What to do where :math:`\lceil (n+1)(1-\alpha) \rceil > n`: give infinity, which
        always covers, or refuse.

    Returns
    -------
    float or ndarray
        A number for one error rate, else one entry for each.

    Raises
    ------
    UsageError
        If an error rate is outside (0, 1), a score is NaN or infinite, or there are too few
        of them and ``too_small`` is ``"refuse"``; the message says how many would do.

    Examples
    --------
    >>> conformal_quantile([3.0, 1.0, 2.0, 4.0], 0.2)
    4.0
    >>> conformal_quantile(range(1, 20), [0.05, 0.5, 0.01])
    array([19., 10., inf])
    >>> conformal_quantile([1.0, 2.0], 0.1, too_small="refuse")
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: 2 calibration rows are too few for alpha 0.1: ... 9 ...
    """
    levels = checked_alphas(alpha).tolist()
    values = _column(scores, "calibration")
    n = values.size
    ranks = [n + 1 - math.floor((n + 1) * level * (1 + _SLACK)) for level in levels]
    if too_small == "refuse" and max(ranks) > n:
        strictest = min(levels)
        raise UsageError(
            f"{n:,} calibration rows are too few for alpha {strictest:g}: at least "
            f"{calibration_needed(strictest):,} are needed."
        )
    # A quantile below the first score is the first score: the interval must not be empty.
    places = [min(max(rank, 1), n) - 1 for rank in ranks]
    at: dict[int, float] = {}
    left = values
    # One place at a time, from the top, is what NumPy has a fast path for.
    for place in sorted(set(places), reverse=True):
        split = np.partition(left, place)
        # NaN and infinity went to the upper end; to look through all would cost a fifth more.
        if left is values and not split[place:].max() < np.inf:
            _refuse_infinite(values, "calibration")
        left = split[: place + 1]
        at[place] = float(left[-1])
    found = [
        at[place] if rank <= n else math.inf for place, rank in zip(places, ranks, strict=True)
    ]
    return found[0] if np.ndim(alpha) == 0 else np.array(found)


def weighted_conformal_quantile(
    scores: ArrayLike, weights: ArrayLike, test_weights: ArrayLike, alpha: Alpha
) -> np.ndarray:
    r"""Return the conformal quantile for test rows that come from another distribution.

    With :math:`w` the likelihood ratio of test to calibration covariates, the calibration scores
    have mass :math:`w_i / (\sum_j w_j + w_{n+1})` and infinity has the test row's own,
    :math:`w_{n+1} / (\sum_j w_j + w_{n+1})`. The quantile at :math:`1-\alpha` of that law covers
    (Tibshirani et al., Conformal Prediction Under Covariate Shift, NeurIPS 2019). It is infinite
    where :math:`w_{n+1}` alone is more than :math:`\alpha` of all.

    Parameters
    ----------
    scores
        Of the calibration rows, ``(n,)``, finite.
    weights
        Of the calibration rows, ``(n,)``, positive; they need not sum to anything.
    test_weights
        Of the test rows, ``(m,)``, positive, on the scale of ``weights``.
    alpha
        Share of values that may lie outside, in (0, 1); one or several.

    Returns
    -------
    ndarray
        ``(m,)`` for one error rate, else ``(m, levels)``.

    Raises
    ------
    UsageError
        If an error rate is outside (0, 1), scores are not finite, or weights are not
        positive and finite.

    Examples
    --------
    >>> weighted_conformal_quantile([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1], [1, 2], 0.2)
    array([ 4., inf])
    >>> weighted_conformal_quantile([1.0, 2.0, 3.0, 4.0], [5, 3, 1, 1], [1], 0.3)
    array([2.])
    """
    levels = checked_alphas(alpha)
    values = _scores(scores, "calibration")
    own, asked = _weights(weights, "calibration"), _weights(test_weights, "test")
    if own.size != values.size:
        raise UsageError(
            f"There must be one weight for each calibration row, got {own.size:,} for "
            f"{values.size:,}."
        )
    falling = np.argsort(values)[::-1]
    # Mass of the j largest scores. Summing from this end keeps small error rates exact.
    largest = np.concatenate([[0.0], np.cumsum(own[falling])])
    total = largest[-1] + asked
    room = total[:, None] * levels * (1 + _SLACK) - asked[:, None]
    left_out = np.searchsorted(largest, room, side="right") - 1
    ranked = values[falling]
    found = np.where(room < 0, np.inf, ranked[np.clip(left_out, 0, values.size - 1)])
    return found[:, 0] if np.ndim(alpha) == 0 else found


def conformal_p_values(
    calibration_scores: ArrayLike, test_scores: ArrayLike, rng: Rng | None = None
) -> np.ndarray:
    r"""Return how unusual each test score is among the calibration scores.

    The p-value of a test score :math:`s` is :math:`(1 + \#\{i: s_i \ge s\})/(n+1)`. With ``rng``,
    ties are broken at random: :math:`(\#\{i: s_i > s\} + U (1 + \#\{i: s_i = s\}))/(n+1)` with
    :math:`U` uniform, which makes it exactly uniform for an exchangeable row.

    Parameters
    ----------
    calibration_scores
        ``(n,)``, finite, larger where a row is less usual.
    test_scores
        ``(m,)``, finite.
    rng
        Breaks ties at random; without it p-values are never below the exact ones.

    Returns
    -------
    ndarray
        ``(m,)``, in (0, 1].

    Raises
    ------
    UsageError
        If scores are not finite or there are none to compare with.

    Examples
    --------
    >>> conformal_p_values([1.0, 2.0, 3.0], [0.0, 2.0, 9.0])
    array([1.  , 0.75, 0.25])
    """
    ranked = np.sort(_scores(calibration_scores, "calibration"))
    asked = _scores(test_scores, "test")
    at_least = ranked.size - np.searchsorted(ranked, asked, side="left")
    if rng is None:
        return (1 + at_least) / (ranked.size + 1)
    above = ranked.size - np.searchsorted(ranked, asked, side="right")
    chance = 1 - rng.numpy().random(asked.size)  # in (0, 1]: a p-value is never 0
    return (above + chance * (1 + at_least - above)) / (ranked.size + 1)


def _column(scores: ArrayLike, which: str) -> np.ndarray:
    values = np.asarray(scores, np.float64)
    if values.ndim != 1:
        raise UsageError(f"The {which} scores must be one list, got shape {values.shape}.")
    if which == "calibration" and not values.size:
        raise UsageError("There are no calibration rows; give the task a calibration split.")
    return values


def _scores(scores: ArrayLike, which: str) -> np.ndarray:
    values = _column(scores, which)
    if not np.isfinite(values).all():
        _refuse_infinite(values, which)
    return values


def _refuse_infinite(values: np.ndarray, which: str) -> None:
    bad = int(np.count_nonzero(~np.isfinite(values)))
    raise UsageError(
        f"{bad:,} of {values.size:,} {which} scores are not finite; look at the predictions they "
        f"come from."
    )


def _weights(weights: ArrayLike, which: str) -> np.ndarray:
    values = np.atleast_1d(np.asarray(weights, np.float64))
    if values.ndim != 1 or not (np.isfinite(values) & (values > 0)).all():
        raise UsageError(
            f"The {which} weights must be one list of positive finite numbers; leave out rows of "
            f"weight 0."
        )
    return values
