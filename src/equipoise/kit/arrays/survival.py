r"""Workings on times that may be cut short: Kaplan-Meier, quantiles of curves, Brier scores.

A row has the time $\tilde T = \min(T, C)$ and the event $e = 1(T \le C)$: when both come at
one time it counts as an event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from equipoise.core import Estimate, UsageError

_NEAR = 1e-12  # 1 - 0.1 and a curve's 0.9 differ by rounding


def times_and_events(targets: npt.ArrayLike, who: str) -> tuple[np.ndarray, np.ndarray]:
    """Return times as floats and events as truth values from targets ``(n, 2)``.

    Parameters
    ----------
    targets
        A row for each subject: time, and 1 for an event or 0 where it was cut short.
    who
        Name for messages.

    Raises
    ------
    UsageError
        If they have another shape, a time is negative or not finite, or an event is
        neither 0 nor 1.

    Examples
    --------
    >>> times_and_events([[2.0, 1], [3.0, 0]], "example")
    (array([2., 3.]), array([ True, False]))
    """
    try:
        found = np.asarray(targets, float)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 2 or found.shape[1] != 2:
        raise UsageError(
            f"{who}: targets must be pairs of time and event, as the task survival gives them."
        )
    times, events = found[:, 0], found[:, 1]
    _check_times(times, who)
    if not np.isin(events, (0, 1)).all():
        odd = events[~np.isin(events, (0, 1))][0]
        raise UsageError(
            f"{who}: an event must be 1, or 0 where the time was cut short, got {odd:g}."
        )
    return times, events.astype(bool)


def _check_times(times: np.ndarray, who: str) -> None:
    wrong = ~(np.isfinite(times) & (times >= 0))
    if wrong.any():
        raise UsageError(
            f"{who}: times must be finite and not negative, got {times[wrong][0]:g} in row "
            f"{int(wrong.argmax())}."
        )


def check_grid(at: npt.ArrayLike, who: str) -> np.ndarray:
    """Return times to ask about, refusing those that are negative or do not rise.

    Examples
    --------
    >>> check_grid([1, 2], "example")
    array([1., 2.])
    """
    grid = np.asarray(at, float)
    if grid.ndim != 1 or not len(grid):
        raise UsageError(f"{who}: give a list of times, got shape {grid.shape}.")
    _check_times(grid, who)
    if (np.diff(grid) <= 0).any():
        raise UsageError(f"{who}: times must rise; sort them and leave out repeats.")
    return grid


@dataclass(frozen=True, slots=True)
class StepCurve:
    """A survival curve that is constant between its times, 1 before the first.

    Parameters
    ----------
    times
        ``(k,)``, rising.
    survival
        ``(k,)``: value from each time on.
    low, high
        Ends of the pointwise interval, or empty.
    at_risk
        ``(k,)``: rows still there just before each time.
    """

    times: np.ndarray
    survival: np.ndarray
    low: np.ndarray
    high: np.ndarray
    at_risk: np.ndarray

    def at(self, times: npt.ArrayLike, *, before: bool = False) -> np.ndarray:
        """Return the value at each time, or just before it."""
        place = np.searchsorted(self.times, times, side="left" if before else "right")
        return np.concatenate([[1.0], self.survival])[place]


def kaplan_meier(times: npt.ArrayLike, events: npt.ArrayLike, *, level: float = 0.95) -> StepCurve:
    r"""Kaplan and Meier's estimate of $P(T > t)$ with pointwise intervals.

    $\hat S(t) = \prod_{t_j \le t} (1 - d_j / n_j)$ with $d_j$ events and $n_j$ rows at risk.
    The interval is Greenwood's on the scale of $\ln(-\ln \hat S)$, so it stays in [0, 1];
    while the curve is at 1 or 0 it has no width.

    Parameters
    ----------
    times, events
        ``(n,)``: times from 0, and truth values.
    level
        Coverage at each time.

    Examples
    --------
    >>> kaplan_meier([1, 2, 3, 4], [1, 0, 1, 0]).survival
    array([0.75 , 0.75 , 0.375, 0.375])
    """
    t, e = times_with_events(times, events, "kaplan_meier")
    where, died, _, at_risk = _counts(t, e)
    survival = np.cumprod(1 - died / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = np.cumsum(died / (at_risk * (at_risk - died)))
        log = np.log(survival)
        reach = float(ndtri((1 + level) / 2)) * np.sqrt(greenwood) / log
        ends = np.exp(log * np.exp(np.stack([-reach, reach])))
    flat = (survival <= 0) | (survival >= 1)
    low, high = (np.where(flat, survival, end) for end in ends)
    return StepCurve(where, survival, np.minimum(low, high), np.maximum(low, high), at_risk)


def survival_at(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    at: float,
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Kaplan-Meier estimate of $P(T > t)$ at one time, for clustered rows too.

    The variance of $\ln \hat S$ is the sum of squared influences
    $u_i = \sum_{t_j \le \min(t, \tilde T_i)} \frac{d_j}{n_j (n_j - d_j)}
    - \frac{1(\tilde T_i \le t,\, e_i = 1)}{n_i - d_i}$, added up within clusters; the interval
    is made on the scale of $\ln(-\ln \hat S)$. At 1 or 0 it has Clopper and Pearson's end of
    the rows at risk.

    Parameters
    ----------
    times, events
        ``(n,)``.
    at
        The time asked about; not beyond the last.
    clusters
        Cluster of each row, where rows are not independent.
    level
        Coverage the interval aims for.

    Raises
    ------
    UsageError
        If no row is followed so far, or there is one cluster.

    Examples
    --------
    >>> print(survival_at(range(1, 41), [1, 0] * 20, 20))
    0.712 [0.525, 0.836]
    """
    t, e = times_with_events(times, events, "survival_at")
    if not 0 <= at <= t.max():
        raise UsageError(
            f"survival_at: rows are followed up to {t.max():g}; nothing can be said about {at:g}."
        )
    where, died, _, at_risk = _counts(t, e)
    value = float(kaplan_meier(t, e).at([at])[0])
    codes = np.arange(len(t)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    groups = int(codes.max()) + 1
    if groups < 2:
        raise UsageError("survival_at: an interval needs at least 2 rows or clusters.")
    tail, se, note = (1 - level) / 2, math.nan, ""
    if 0 < value < 1:
        with np.errstate(divide="ignore"):
            sums = np.cumsum(died / (at_risk * (at_risk - died)))
            own = 1 / (at_risk - died)
        place = np.searchsorted(where, np.minimum(t, at), side="right") - 1
        gone = e & (t <= at)
        influence = np.where(place >= 0, sums[place], 0) - np.where(gone, own[place], 0)
        total = np.bincount(codes, weights=influence)
        se = math.sqrt(groups / (groups - 1) * float(total @ total))
        reach = float(ndtri(1 - tail)) * se / math.log(value)
        ends = [value ** math.exp(side * reach) for side in (-1, 1)]
        low, high, se = min(ends), max(ends), se * value
    else:
        left = int((t >= at).sum()) if value == 1 else int(at_risk[where <= at][-1])
        end = tail ** (1 / left)
        low, high = (end, 1.0) if value == 1 else (0.0, 1 - end)
        note = "No event came before." if value == 1 else "The last row at risk had the event."
    return Estimate(
        value, low, high, level=level, n=len(t), method="kaplan-meier", note=note,
        clusters=None if clusters is None else groups,
        details={"at": float(at), "se": se, "events": float((e & (t <= at)).sum())},
    )  # fmt: skip


def censoring_curve(times: npt.ArrayLike, events: npt.ArrayLike) -> StepCurve:
    r"""Kaplan-Meier curve of the censoring time, $P(C > t)$.

    At a time with events and censored rows the events come first.

    Examples
    --------
    >>> censoring_curve([1, 2, 2, 4], [1, 1, 0, 1]).survival
    array([1. , 0.5, 0.5])
    """
    t, e = times_with_events(times, events, "censoring_curve")
    where, died, left, at_risk = _counts(t, e)
    still = at_risk - died
    survival = np.cumprod(1 - left / np.maximum(still, 1))
    none = np.empty(0)
    return StepCurve(where, survival, none, none, still)


def times_with_events(
    times: npt.ArrayLike, events: npt.ArrayLike, who: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of times and events, checked as `times_and_events` does."""
    t, e = np.asarray(times, float), np.asarray(events, float)
    if t.ndim != 1 or t.shape != e.shape or not len(t):
        raise UsageError(f"{who}: give one event a time, got {e.shape} for {t.shape}.")
    return times_and_events(np.stack([t, e], axis=1), who)


def _counts(t: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, ...]:
    where, code = np.unique(t, return_inverse=True)
    died = np.bincount(code, weights=e, minlength=len(where))
    every = np.bincount(code, minlength=len(where))
    at_risk = len(t) - np.concatenate([[0], np.cumsum(every)[:-1]])
    return where, died, every - died, at_risk


def quantiles_of_curves(
    times: npt.ArrayLike, survival: npt.ArrayLike, levels: npt.ArrayLike
) -> np.ndarray:
    r"""Return $\inf\{t : S(t) \le 1 - \tau\}$ of step curves, infinite where a curve stays above.

    Parameters
    ----------
    times
        ``(k,)``, rising.
    survival
        ``(n, k)``, not rising along a row.
    levels
        ``(m,)``, each $\tau$ in (0, 1).

    Returns
    -------
    ndarray
        ``(n, m)``.

    Examples
    --------
    >>> quantiles_of_curves([1, 2, 3], [[0.9, 0.5, 0.4]], [0.1, 0.3, 0.7])
    array([[ 1.,  2., inf]])
    """
    grid, curves = check_grid(times, "quantiles_of_curves"), np.asarray(survival, float)
    tau = check_levels(levels, "quantiles_of_curves")
    if curves.ndim != 2 or curves.shape[1] != len(grid):
        raise UsageError(
            f"quantiles_of_curves: survival must be (n, {len(grid)}), got {curves.shape}."
        )
    ends = np.append(grid, np.inf)
    # Searched in the risen 1 - S, so that a plateau gives its first time.
    place = np.empty((len(curves), len(tau)), np.intp)
    for row, curve in enumerate(curves):
        place[row] = np.searchsorted(np.maximum.accumulate(1 - curve), tau - _NEAR, side="left")
    return ends[place]


def check_levels(levels: npt.ArrayLike, who: str) -> np.ndarray:
    """Return quantile levels, refusing those outside (0, 1)."""
    tau = np.atleast_1d(np.asarray(levels, float))
    if not ((tau > 0) & (tau < 1)).all():
        raise UsageError(f"{who}: levels must lie between 0 and 1.")
    return tau


def brier_scores(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    survival: npt.ArrayLike,
    at: npt.ArrayLike,
    censoring: StepCurve,
) -> np.ndarray:
    r"""Brier scores with inverse weights for censoring, a row each unit and a column each time.

    With $G(t) = P(C > t)$ and $\hat S$ the predicted curve

    $$B_i(t) = \frac{1(\tilde T_i \le t,\, e_i = 1)\, \hat S_i(t)^2}{G(\tilde T_i-)}
    + \frac{1(\tilde T_i > t)\, (1 - \hat S_i(t))^2}{G(t)}.$$

    Its mean is that of $(1(T > t) - \hat S(t))^2$ where censoring does not hang on the features
    (Graf et al., 1999).

    Parameters
    ----------
    times, events
        ``(n,)``.
    survival
        ``(n, k)``, in [0, 1].
    at
        ``(k,)``: times the columns are about.
    censoring
        As `censoring_curve` gives it; above 0 up to the last of ``at``.

    Examples
    --------
    >>> weights = censoring_curve([1, 2, 3], [1, 0, 1])
    >>> brier_scores([1, 2, 3], [1, 0, 1], [[0.5], [0.5], [0.5]], [1.5], weights)[:, 0]
    array([0.25, 0.25, 0.25])
    """
    t, e = times_with_events(times, events, "brier_scores")
    grid, curves = check_grid(at, "brier_scores"), np.asarray(survival, float)
    if curves.shape != (len(t), len(grid)):
        raise UsageError(
            f"brier_scores: survival must be {(len(t), len(grid))}, got {curves.shape}."
        )
    still = censoring.at(grid)
    if not (still > 0).all():
        raise UsageError(
            f"brier_scores: no row is followed beyond {grid[still > 0].max(initial=0):g}; "
            f"ask about earlier times."
        )
    gone = (t[:, None] <= grid) & e[:, None]
    before = censoring.at(t, before=True)[:, None]
    weights = np.where(gone, 1 / np.where(gone, before, 1), (t[:, None] > grid) / still)
    miss: np.ndarray = weights * ((t[:, None] > grid) - curves) ** 2
    return miss
