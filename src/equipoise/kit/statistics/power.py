"""Planning a trial: the power of paired comparisons, and what a pilot says about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import special

from equipoise.core import UsageError
from equipoise.kit.statistics._common import check_level, critical
from equipoise.kit.statistics.planning import check_power

MOST_UNITS = 10**9
"""Units beyond which no plan is made."""


@dataclass(frozen=True)
class PairedDesign:
    r"""What the paired differences of a pilot say about a trial of another size.

    A trial of $n$ units has the standard error $\sigma / \sqrt n$. Its power is that of the
    t interval, with the noncentral t law; for independent binary pairs, that of Tango's score
    interval, which at a bound of 0 is Connor's (1987) formula:

    .. math::
        P = \Phi\Bigl( \frac{\sqrt n\, (\delta - \delta_0) - z \sigma_0}{\sigma_1} \Bigr),
        \quad \sigma_1^2 = \psi - \delta^2, \quad \sigma_0^2 = \psi \text{ at } \delta_0 = 0.

    Parameters
    ----------
    sd
        $\sigma$, at least 0: the standard deviation of a unit's difference, clusters allowed
        for. Unused for binary pairs.
    discordant
        $\psi$: share of independent binary pairs that differ, in [0, 1].
    clusters_per_unit
        Clusters that a unit brings, 1 at most; degrees of freedom grow with them.
    floor
        Variance of the effect that no number of units lowers: that of builds.

    Examples
    --------
    >>> PairedDesign(sd=1.0).units(0.3)
    90
    >>> PairedDesign(discordant=0.2).units(0.05)
    626
    """

    sd: float = 0.0
    discordant: float | None = None
    clusters_per_unit: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        fine = self.discordant is None or 0 <= self.discordant <= 1
        if not (self.sd >= 0 <= self.floor and fine and 0 < self.clusters_per_unit <= 1):
            raise UsageError(
                "PairedDesign: sd and floor must be at least 0, discordant from 0 to 1, and"
                " clusters_per_unit above 0 and at most 1."
            )

    def power(
        self, n: float, effect: float, *, above: float = 0.0, within: float | None = None,
        level: float = 0.95,
    ) -> float:  # fmt: skip
        """Return the probability that ``n`` units support a claim, if the effect is ``effect``.

        Parameters
        ----------
        n
            Units, above 0.
        effect
            The true effect.
        above
            What the whole interval must lie above.
        within
            If given, the interval must lie between this and its negative instead.
        level
            Level of the two-sided interval.
        """
        check_level(level, "PairedDesign")
        if within is not None:
            missed = [
                1 - self.power(n, way * effect, above=-within, level=level) for way in (1, -1)
            ]
            return max(0.0, 1 - sum(missed))
        if self.discordant is None:
            df = max(1.0, n * self.clusters_per_unit - 1)
            reach = critical(level, df)
            se = math.sqrt(self.sd**2 / n + self.floor)
            if se == 0:
                return float(effect > above)
            shift = (effect - above) / se
            if df > 1e5 or abs(shift) > 30:  # where the noncentral t is normal
                return float(special.ndtr(shift - reach))
            return float(1 - special.nctdtr(df, shift, reach))
        one = max(self.discordant - effect**2, 0.0)
        gap = math.sqrt(n) * (effect - above) - critical(level) * math.sqrt(self._null(above))
        return float(special.ndtr(gap / math.sqrt(one))) if one > 0 else float(gap > 0)

    def _null(self, bound: float) -> float:
        """Return the variance of a pair's difference that Tango's interval reckons with."""
        assert self.discordant is not None
        psi = self.discordant
        mean = min(max(bound, -psi), psi)
        wins, losses = (psi + mean) / 2, (psi - mean) / 2
        linear = -wins - losses + (2 - wins + losses) * bound
        constant = -losses * bound * (1 - bound)
        q = (math.sqrt(max(linear**2 - 8 * constant, 0.0)) - linear) / 4
        return max(2 * q + bound * (1 - bound), 0.0)

    def units(
        self, effect: float, *, above: float = 0.0, within: float | None = None,
        level: float = 0.95, power: float = 0.8,
    ) -> int | None:  # fmt: skip
        """Return the fewest units that support a claim with this power; None if none would do."""
        check_power("PairedDesign", power)
        inside = effect > above if within is None else abs(effect) < within
        if not inside:
            return None

        def enough(n: int) -> bool:
            return self.power(n, effect, above=above, within=within, level=level) >= power

        return _smallest(enough)

    def detectable(
        self, n: float, *, above: float = 0.0, level: float = 0.95, power: float = 0.8
    ) -> float:
        """Return the smallest effect beyond ``above`` that ``n`` units show with this power."""
        check_power("PairedDesign", power)
        high = 1.0
        if self.discordant is not None:
            high = self.discordant - above
        else:
            while self.sd and self.power(n, above + high, above=above, level=level) < power:
                high *= 2
        low = 0.0
        for _ in range(60):
            middle = (low + high) / 2
            if self.power(n, above + middle, above=above, level=level) < power:
                low = middle
            else:
                high = middle
        reached = self.power(n, above + high, above=above, level=level) >= power
        return high if reached else math.inf

    def scaled(self, factor: float) -> Self:
        """Return the design with another variance of differences."""
        psi = None if self.discordant is None else min(1.0, self.discordant * factor)
        return replace(self, sd=self.sd * math.sqrt(factor), discordant=psi)


def discordance(rate: float, effect: float, correlation: float) -> float:
    r"""Return the share of pairs in which exactly one of two arms is right.

    $\psi = p_a + p_b - 2 \bigl(p_a p_b + \rho \sqrt{p_a q_a p_b q_b}\bigr)$.

    Parameters
    ----------
    rate
        $p_a$, how often the first arm is right, in (0, 1).
    effect
        $p_b - p_a$.
    correlation
        $\rho$ of the two arms' answers over units.

    Raises
    ------
    UsageError
        If no two arms can have these rates and this correlation.

    Examples
    --------
    >>> round(discordance(0.7, 0.03, 0.5), 4)
    0.2046
    """
    other = rate + effect
    if not (0 < rate < 1 and 0 < other < 1):
        raise UsageError(f"discordance: rates must be between 0 and 1, got {rate:g} and {other:g}.")
    spread = math.sqrt(rate * (1 - rate) * other * (1 - other))
    both = rate * other + correlation * spread
    low, high = max(0.0, rate + other - 1), min(rate, other)
    if not low - 1e-12 <= both <= high + 1e-12:
        most, least = ((end - rate * other) / spread for end in (high, low))
        raise UsageError(
            f"discordance: at rates {rate:g} and {other:g} the correlation must be from"
            f" {least:.2f} to {most:.2f}, got {correlation:g}."
        )
    return rate + other - 2 * both


def variance_range(df: float, level: float = 0.95) -> tuple[float, float]:
    """Return by what factors a true variance may be below and above a pilot's.

    From the chi-squared law of the variance of a normal sample.

    Parameters
    ----------
    df
        Degrees of freedom of the pilot's variance, above 0.
    level
        Coverage of the range.

    Examples
    --------
    >>> [round(each, 2) for each in variance_range(29)]
    [0.63, 1.81]
    """
    check_level(level, "variance_range")
    tail = (1 - level) / 2
    low, high = (float(df / special.chdtri(df, p)) for p in (tail, 1 - tail))
    return low, high


@dataclass(frozen=True)
class Repeats:
    """How the variance of a difference divides between units and repeats of one unit.

    Parameters
    ----------
    between
        Variance between units, at least 0.
    within
        Variance of one repeat's difference within its unit.
    repeats
        Mean repeats a unit in the pilot.
    """

    between: float
    within: float
    repeats: float

    @property
    def share(self) -> float:
        """Share of a single answer's variance that repeats would average away."""
        total = self.between + self.within
        return self.within / total if total else 0.0

    def factor(self, repeats: float) -> float:
        """Return the variance with so many repeats over the pilot's."""
        now = self.between + self.within / self.repeats
        return (self.between + self.within / repeats) / now if now else 1.0


def split_repeats(d: np.ndarray, units: np.ndarray) -> Repeats | None:
    """Split differences into between and within units, by the mean squares of one-way ANOVA.

    Parameters
    ----------
    d
        Paired differences, a row a unit and repeat.
    units
        Unit of each row.

    Returns
    -------
    Repeats or None
        None where no unit has two rows, or there is one unit.

    Examples
    --------
    >>> found = split_repeats(np.array([0.0, 2.0, 4.0, 6.0]), np.array([0, 0, 1, 1]))
    >>> found.between, found.within
    (7.0, 2.0)
    """
    _, place, times = np.unique(units, return_inverse=True, return_counts=True)
    n, count = len(d), len(times)
    if count < 2 or n == count:
        return None
    means = np.bincount(place, d) / times
    within = float(((d - means[place]) ** 2).sum()) / (n - count)
    spread = float((times * (means - d.mean()) ** 2).sum()) / (count - 1)
    size = (n - float((times**2).sum()) / n) / (count - 1)
    return Repeats(max(0.0, (spread - within) / size), within, n / count)


def _smallest(enough: Callable[[int], bool]) -> int | None:
    high = 2
    while not enough(high):
        high *= 2
        if high > MOST_UNITS:
            return None
    low = high // 2 if high > 2 else 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
