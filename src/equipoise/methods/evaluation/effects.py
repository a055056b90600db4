"""Effects of one arm against another, paired on units: difference, ratio, log odds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between
from equipoise.kit.statistics import effects, ratios
from equipoise.kit.statistics.columns import (
    builds_of,
    clusters_of,
    first_score,
    in_order,
    noted,
    repeated,
    rows_of,
)
from equipoise.kit.statistics.effects import paired_difference
from equipoise.kit.statistics.ratios import log_odds_ratio, ratio

__all__ = ["LogOdds", "PairedDifference", "Ratio", "log_odds", "paired_difference", "ratio"]

log_odds = log_odds_ratio

Pair = tuple[Outcomes, Outcomes]


@dataclass(frozen=True)
class PairedDifference(Measure):
    """How much better an arm's mean is than the other's, in units of the score.

    Positive is better: for a score where less is better, the other arm's mean
    less this one's. The plain function is `paired_difference`, which takes
    ``a - b`` as it is.

    Parameters
    ----------
    score
        Name of the score; None is the task's first.
    level
        Coverage the interval aims for.
    draws
        Sign patterns of the permutation test.

    Examples
    --------
    >>> a, b = Outcomes.of(correct=[1, 1, 1, 0]), Outcomes.of(correct=[1, 0, 0, 0])
    >>> PairedDifference().measure((a, b), Rng(0)).value
    0.5
    """

    scope = "pair"

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 1_000_000, default=10_000)

    @classmethod
    def tiny(cls) -> PairedDifference:
        """Return few resamples."""
        return cls(draws=100)

    def simulate(self, rng: Rng) -> tuple[Pair, float]:
        """Return 60 pairs of normal scores that differ by 0.3."""
        generator, name = rng.numpy(), self.score or "x"
        b = generator.normal(size=60)
        a = b + generator.normal(0.3, 0.5, 60)
        return (rows_of({name: a}), rows_of({name: b})), 0.3

    def measure(self, outcomes: Pair, rng: Rng) -> Estimate:
        """Return the difference with its interval and p-value."""
        a, x, y, note = _columns("PairedDifference", outcomes, self.score)
        better, worse = (y, x) if _less_is_better(a, self.score) else (x, y)
        found = effects.paired_difference(
            better,
            worse,
            units=a.unit if repeated(a) else None,
            clusters=a.cluster,
            builds=builds_of(a),
            level=self.level,
            rng=rng,
            draws=self.draws,
        )
        return noted(found, note)


@dataclass(frozen=True)
class Ratio(Measure):
    """How many times better an arm's mean is than the other's.

    More than 1 is better: for a score where less is better, the other arm's
    mean over this one's. The plain function is `ratio`, which takes ``a / b``
    as it is.

    Parameters
    ----------
    score
        Name of a score whose means are above zero; None is the task's first.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> a, b = Outcomes.of(seconds=[2, 4, 6]), Outcomes.of(seconds=[1, 2, 3])
    >>> Ratio().measure((a, b), Rng(0)).value
    2.0
    """

    scope = "pair"
    null = 1.0
    """The ratio of arms that do not differ."""

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 1_000_000, default=10_000)

    @classmethod
    def tiny(cls) -> Ratio:
        """Return few resamples."""
        return cls(draws=500)

    def simulate(self, rng: Rng) -> tuple[Pair, float]:
        """Return 80 pairs of gamma scores with means 5 and 4."""
        generator, name = rng.numpy(), self.score or "x"
        b = generator.gamma(4, 1, 80)
        a = b + generator.gamma(2, 0.5, 80)
        return (rows_of({name: a}), rows_of({name: b})), 1.25

    def measure(self, outcomes: Pair, rng: Rng) -> Estimate:
        """Return the ratio with its interval and p-value."""
        a, x, y, note = _columns("Ratio", outcomes, self.score)
        better, worse = (y, x) if _less_is_better(a, self.score) else (x, y)
        found = ratios.ratio(
            better, worse, clusters=clusters_of(a), level=self.level, rng=rng, draws=self.draws
        )
        return noted(found, note)


@dataclass(frozen=True)
class LogOdds(Measure):
    """How much larger an arm's log odds of success are than the other's.

    Positive is better. The plain function is `log_odds`, which takes the arms
    as they are.

    Parameters
    ----------
    score
        Name of a score of zeros and ones; None is the task's first.
    level
        Coverage the interval aims for.
    draws
        Sign patterns of the permutation test.

    Examples
    --------
    >>> a = Outcomes.of(correct=[1] * 60 + [0] * 40)
    >>> b = Outcomes.of(correct=[1] * 50 + [0] * 50)
    >>> round(LogOdds().measure((a, b), Rng(0)).value, 3)
    0.405
    """

    scope = "pair"

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 1_000_000, default=10_000)

    @classmethod
    def tiny(cls) -> LogOdds:
        """Return few resamples."""
        return cls(draws=100)

    def simulate(self, rng: Rng) -> tuple[Pair, float]:
        """Return 200 pairs that pass with chances 0.7 and 0.5, and depend on each other."""
        generator, name = rng.numpy(), self.score or "x"
        luck = generator.random(200)
        b = np.where(generator.random(200) < 0.5, luck, generator.random(200)) < 0.5
        return (rows_of({name: luck < 0.7}), rows_of({name: b})), math.log(7 / 3)

    def measure(self, outcomes: Pair, rng: Rng) -> Estimate:
        """Return the log odds ratio with its interval and p-value."""
        a, x, y, note = _columns("LogOdds", outcomes, self.score)
        better, worse = (y, x) if _less_is_better(a, self.score) else (x, y)
        found = ratios.log_odds_ratio(
            better, worse, clusters=clusters_of(a), level=self.level, rng=rng, draws=self.draws
        )
        return noted(found, note)


def _columns(
    part: str, outcomes: Pair, score: str | None
) -> tuple[Outcomes, np.ndarray, np.ndarray, str]:
    """Return the rows that have the score in both arms, in one order, and both columns."""
    first, second = outcomes
    keys = [np.stack([each.unit, each.build, each.repeat]) for each in (first, second)]
    if keys[0].shape != keys[1].shape or not np.array_equal(keys[0], keys[1]):
        raise UsageError(f"{part}: both arms must have the same units, in the same order.")
    name = first_score(first, score)
    both = ~(np.isnan(first.score(name)) | np.isnan(second.score(name)))
    missing = int((~both).sum())
    if missing == len(both):
        raise UsageError(f"{part}: no pair of rows has a value for {name}.")
    a, b = in_order(first.take(both)), in_order(second.take(both))
    note = f"{missing} of {len(both)} pairs lack a score and are left out." if missing else ""
    return a, a.score(name), b.score(name), note


def _less_is_better(outcomes: Outcomes, score: str | None) -> bool:
    return outcomes.spec(first_score(outcomes, score)).higher_is_better is False
