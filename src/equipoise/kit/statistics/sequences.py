r"""Confidence sequences: intervals that hold at all times at once, so that one may look and stop.

`BettingSequence` is the hedged capital of Waudby-Smith & Ramdas (2023, JRSS B) for bounded
observations, exact at every sample size; `AsymptoticSequence` the Gaussian mixture of
Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas (2024, Annals of Statistics) for any others.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics._common import Array, check_level, column, join, size_note

_SHARE = 0.5
"""Most that a bet may lose of the capital, as in the paper's experiments."""


class BettingSequence:
    r"""Confidence sequence of the mean of bounded observations, by betting.

    For each candidate mean $m$ (scaled to [0, 1]) two gamblers bet, one that
    the mean is higher, one that it is lower:

    .. math::
        K^+_t(m) = \prod_{i \le t} (1 + \lambda^+_i(m) (x_i - m)), \quad
        K^-_t(m) = \prod_{i \le t} (1 - \lambda^-_i(m) (x_i - m)),

    with predictable plug-in bets
    $\lambda_i = \sqrt{2 \log(2/\alpha) / (\hat\sigma^2_{i-1}\, i \log(1 + i))}$,
    cut at $\tfrac12/m$ and $\tfrac12/(1 - m)$. The interval holds the means against
    which neither has ever reached $2/\alpha$; $P(\exists t: \mu \notin C_t) \le \alpha$ at
    every sample size, when observations are independent, or have mean $\mu$ given the past.
    Units of one cluster are not: give cluster means, one observation a cluster.

    $K^+$ falls and $K^-$ rises in $m$, so ends taken at rejected points of the
    grid are valid between points as well; they are at most one step too wide.

    Parameters
    ----------
    low, high
        Bounds of the observations. Differences of scores in [l, h] lie in
        [l - h, h - l].
    level
        Coverage over all times, in (0, 1).
    points
        Candidate means, evenly spaced; an update costs this many steps, however
        many observations came before.

    Attributes
    ----------
    n
        Observations so far.
    note
        Empty, or what went wrong.

    Raises
    ------
    UsageError
        On bounds out of order, or an observation that is NaN or outside them.

    Examples
    --------
    >>> sequence = BettingSequence(0, 1)
    >>> sequence.update_many([1, 1, 1, 0] * 50)
    >>> low, high = sequence.interval
    >>> f"{sequence.value} [{low:.3f}, {high:.3f}]"
    '0.75 [0.651, 0.854]'
    """

    def __init__(self, low: float, high: float, level: float = 0.95, points: int = 1001) -> None:
        check_level(level, "BettingSequence")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(
                f"BettingSequence: low must be below high and both finite, got {low} and {high}."
            )
        if points < 3:
            raise UsageError(f"BettingSequence: points must be at least 3, got {points}.")
        self.low, self.high, self.level = float(low), float(high), level
        self.n = 0
        self.note = ""
        self._grid: Array = np.linspace(0.0, 1.0, points)
        with np.errstate(divide="ignore"):
            self._most_up: Array = _SHARE / self._grid
            self._most_down: Array = _SHARE / (1 - self._grid)
        self._log_up: Array = np.zeros(points)
        self._log_down: Array = np.zeros(points)
        self._best_up: Array = np.zeros(points)
        self._best_down: Array = np.zeros(points)
        self._sum = 0.0
        self._squares = 0.25  # the prior guess of the variance counts as one observation
        self._ends = (0.0, 1.0)

    def update(self, x: float) -> None:
        """Take one observation."""
        self.update_many([x])

    def update_many(self, xs: npt.ArrayLike) -> None:
        """Take observations in order; the interval is what one at a time would give."""
        if np.size(xs) == 0:
            return
        x = column(xs, "BettingSequence", "xs")
        if (x < self.low).any() or (x > self.high).any():
            raise UsageError(
                f"BettingSequence: observations must be from {self.low:g} to {self.high:g}, got "
                f"{x.min():g} to {x.max():g}."
            )
        scaled = (x - self.low) / (self.high - self.low)
        for start in range(0, x.size, 64):
            self._take(scaled[start : start + 64])
        self._narrow()

    def _take(self, x: Array) -> None:
        time = self.n + np.arange(1, x.size + 1)
        sums = self._sum + np.cumsum(x)
        middle = (0.5 + sums) / (time + 1)
        squares = self._squares + np.cumsum((x - middle) ** 2)
        variance = np.concatenate([[self._squares], squares[:-1]]) / time  # of the past only
        bet = np.sqrt(2 * math.log(2 / (1 - self.level)) / (variance * time * np.log1p(time)))
        gap = x[:, None] - self._grid
        up = np.log1p(np.minimum(bet[:, None], self._most_up) * gap)
        down = np.log1p(-np.minimum(bet[:, None], self._most_down) * gap)
        for path, total, best in (
            (up, self._log_up, self._best_up),
            (down, self._log_down, self._best_down),
        ):
            path[0] += total
            np.cumsum(path, axis=0, out=path)
            total[:] = path[-1]
            np.maximum(best, path.max(axis=0), out=best)
        self.n += x.size
        self._sum, self._squares = float(sums[-1]), float(squares[-1])

    def _narrow(self) -> None:
        bar = math.log(2 / (1 - self.level))
        too_low = np.flatnonzero(self._best_up >= bar)
        too_high = np.flatnonzero(self._best_down >= bar)
        low = float(self._grid[too_low[-1]]) if too_low.size else 0.0
        high = float(self._grid[too_high[0]]) if too_high.size else 1.0
        if low < high:
            self._ends = (low, high)
        elif not self.note:
            self.note = (
                "Every mean was ruled out at some time: the mean moved while it was watched, or "
                "chance did what it may at this level. The last interval is kept."
            )

    @property
    def interval(self) -> tuple[float, float]:
        """The running intersection of all intervals so far."""
        width = self.high - self.low
        return self.low + width * self._ends[0], self.low + width * self._ends[1]

    @property
    def value(self) -> float:
        """The mean so far; NaN before the first observation."""
        if self.n == 0:
            return math.nan
        return self.low + (self.high - self.low) * self._sum / self.n

    def e_value(self, against: float = 0.0) -> float:
        r"""Return the evidence against a mean: $(K^+ + K^-)/2$, expected to be at most 1 if true.

        Between points of the grid it is a lower bound.
        """
        return math.exp(min(self._evidence(against, self._log_up, self._log_down), 700.0))

    def _evidence(self, against: float, up: Array, down: Array) -> float:
        """Return the log of the mean of both capitals, at the grid points that bound them."""
        at = (against - self.low) / (self.high - self.low)
        if not 0 <= at <= 1:
            return math.inf if self.n else 0.0
        place = at * (self._grid.size - 1)
        near = round(place)
        exact = abs(place - near) < 1e-9
        above, below = (near, near) if exact else (math.ceil(place), math.floor(place))
        return float(np.logaddexp(up[above], down[below])) - math.log(2)

    def estimate(self, against: float = 0.0) -> Estimate:
        """Return the state as an estimate, with the anytime-valid p-value against a mean.

        The p-value rests on the most that either gambler has ever had, as the
        interval does, so that it falls below 1 - level when the interval leaves
        the mean out.
        """
        low, high = self.interval
        best = max(
            self._evidence(against, self._best_up, np.full_like(self._best_up, -np.inf)),
            self._evidence(against, np.full_like(self._best_up, -np.inf), self._best_down),
        )
        return Estimate(
            min(max(self.value, low), high), low, high, self.level, self.n, method="betting",
            p_value=math.exp(-max(best, 0.0)), note=join([size_note(self.n), self.note]),
            details={"e_value": self.e_value(against)},
        )  # fmt: skip


class AsymptoticSequence:
    r"""Asymptotic confidence sequence of a mean, for observations without known bounds.

    .. math::
        \hat\mu_t \pm \hat\sigma_t \sqrt{\frac{2 (t \rho^2 + 1)}{t^2 \rho^2}
        \log \frac{\sqrt{t \rho^2 + 1}}{\alpha}}, \qquad
        \rho^2 = \frac{-2 \log\alpha + \log(1 - 2 \log\alpha)}{t_\star}.

    Coverage at all times holds in the limit of a late start only, as Student's
    does at one time; it is narrowest near $t_\star$. It says nothing before
    ``start`` observations.

    Parameters
    ----------
    level
        Coverage over all times, in (0, 1).
    tuned_for
        Number of observations $t_\star$ at which to be narrowest.
    start
        Observations before the first interval, at least 2.

    Attributes
    ----------
    n
        Observations so far.

    Raises
    ------
    UsageError
        On a parameter out of range or an observation that is NaN or infinite.

    Examples
    --------
    >>> sequence = AsymptoticSequence(tuned_for=200)
    >>> sequence.update_many([1, 2, 3, 4] * 50)
    >>> low, high = sequence.interval
    >>> f"{sequence.value} [{low:.3f}, {high:.3f}]"
    '2.5 [2.260, 2.740]'
    """

    note = ""

    def __init__(self, level: float = 0.95, tuned_for: int = 500, start: int = 30) -> None:
        check_level(level, "AsymptoticSequence")
        if tuned_for < 1 or start < 2:
            raise UsageError(
                "AsymptoticSequence: tuned_for must be at least 1 and start at least 2, got "
                f"{tuned_for} and {start}."
            )
        self.level, self.tuned_for, self.start = level, tuned_for, start
        self.n = 0
        self._mean = 0.0
        self._squares = 0.0
        alpha = math.log(1 - level)
        self._rho2 = (-2 * alpha + math.log(1 - 2 * alpha)) / tuned_for

    def update(self, x: float) -> None:
        """Take one observation."""
        self.update_many([x])

    def update_many(self, xs: npt.ArrayLike) -> None:
        """Take observations; only their count, mean and squares are kept."""
        if np.size(xs) == 0:
            return
        x = column(xs, "AsymptoticSequence", "xs")
        mean, total = float(x.mean()), self.n + x.size
        gap = mean - self._mean
        self._squares += float(((x - mean) ** 2).sum()) + gap**2 * self.n * x.size / total
        self._mean += gap * x.size / total
        self.n = total

    @property
    def interval(self) -> tuple[float, float]:
        """The interval now; unlike betting's it is not intersected with earlier ones."""
        if self.n < self.start:
            return -math.inf, math.inf
        grown = self.n * self._rho2 + 1
        reach = math.sqrt(
            2 * grown / (self.n**2 * self._rho2) * math.log(math.sqrt(grown) / (1 - self.level))
        ) * math.sqrt(self._squares / self.n)
        return self._mean - reach, self._mean + reach

    @property
    def value(self) -> float:
        """The mean so far; NaN before the first observation."""
        return self._mean if self.n else math.nan

    def e_value(self, against: float = 0.0) -> float:
        r"""Return the (asymptotic) evidence against a mean.

        $\exp(\rho^2 S^2 / (2 (t\rho^2 + 1))) / \sqrt{t\rho^2 + 1}$ with
        $S = t (\hat\mu_t - m)/\hat\sigma_t$; it reaches $1/\alpha$ where the interval
        leaves the mean out. It is 1 before ``start`` observations.
        """
        if self.n < self.start:
            return 1.0
        spread = math.sqrt(self._squares / self.n)
        if spread == 0:
            return 1.0 if self._mean == against else math.inf
        s = self.n * (self._mean - against) / spread
        grown = self.n * self._rho2 + 1
        exponent = self._rho2 * s * s / (2 * grown) - math.log(grown) / 2
        return math.exp(exponent) if exponent < 700 else math.inf

    def estimate(self, against: float = 0.0) -> Estimate:
        """Return the state as an estimate, with the anytime-valid p-value against a mean."""
        low, high = self.interval
        evidence = self.e_value(against)
        early = "" if self.n >= self.start else f"No interval before {self.start} units."
        return Estimate(
            self.value, low, high, self.level, self.n, method="asymptotic",
            p_value=min(1.0, 1 / evidence), note=join([early or size_note(self.n)]),
            details={"e_value": evidence},
        )  # fmt: skip
