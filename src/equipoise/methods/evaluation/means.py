"""Mean, quantile, and the mean within each stratum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from equipoise.core import Estimate, Measure, Outcomes, Rng, ScoreSpec, UsageError, between
from equipoise.kit.statistics import corrections, single
from equipoise.kit.statistics.columns import (
    builds_of,
    clusters_of,
    complete,
    first_score,
    noted,
    repeated,
    rows_of,
)
from equipoise.kit.statistics.single import quantile

__all__ = ["AccuracyByStratum", "Mean", "Quantile", "accuracy_by_stratum", "mean", "quantile"]

Column = np.ndarray | Sequence[float]


def mean(
    x: Column,
    *,
    units: Column | None = None,
    clusters: Column | None = None,
    builds: Column | None = None,
    level: float = 0.95,
) -> Estimate:
    """Mean with its interval: Wilson's for zeros and ones, Student's otherwise.

    Parameters
    ----------
    x
        Scores, shape ``(n,)``.
    units
        Unit of each row; repeats of a unit are averaged first.
    clusters
        Cluster of each row, where units are not independent.
    builds
        Build of each row; units and builds count as crossed.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> print(mean([1, 1, 1, 0]))
    0.750 [0.301, 0.954]
    >>> print(mean([1.5, 2.5, 3.5]))
    2.500 [0.016, 4.984]
    """
    x = np.asarray(x, float)
    if units is None and builds is None and np.isin(x, (0, 1)).all():
        return single.proportion(x, clusters=clusters, level=level)
    return single.mean(x, units=units, clusters=clusters, builds=builds, level=level)


def accuracy_by_stratum(
    x: Column,
    strata: Sequence[object] | np.ndarray,
    *,
    clusters: Column | None = None,
    level: float = 0.95,
) -> dict[str, Estimate]:
    r"""Mean within each stratum, with intervals that hold for all strata at once.

    Each of :math:`k` intervals is at level :math:`1 - (1 - level)/k`
    (Bonferroni).

    Parameters
    ----------
    x
        Scores, shape ``(n,)``.
    strata
        Stratum of each row.
    clusters
        Cluster of each row, where units are not independent.
    level
        Coverage that all intervals together aim for.

    Examples
    --------
    >>> table = accuracy_by_stratum([1, 1, 0, 1] * 10, ["easy", "easy", "hard", "hard"] * 10)
    >>> print(table["hard"])
    0.500 [0.276, 0.724]
    """
    x, names = np.asarray(x, float), np.asarray([str(each) for each in strata])
    if len(x) != len(names):
        raise UsageError(
            f"accuracy_by_stratum: give one stratum a row, got {len(names)} for {len(x)} rows."
        )
    found = np.unique(names)
    each = corrections.bonferroni_level(level, len(found))
    binary = bool(np.isin(x, (0, 1)).all())
    table = {}
    for name in found:
        here = names == name
        inside = None if clusters is None else np.asarray(clusters)[here]
        table[str(name)] = _within(x[here], inside, binary, each, level)
    return table


def _within(
    x: np.ndarray, clusters: np.ndarray | None, binary: bool, each: float, level: float
) -> Estimate:
    method = single.proportion if binary else single.mean
    try:
        found = method(x, clusters=clusters, level=each)
    except UsageError as error:  # one unit or cluster: the value stands, without an interval
        return Estimate(float(x.mean()), math.nan, math.nan, each, len(x), note=str(error))
    return noted(found, f"Intervals of all strata hold together at {level:g}.")


@dataclass(frozen=True)
class Mean(Measure):
    """Mean of a score, with an interval that respects repeats, clusters and builds.

    Parameters
    ----------
    score
        Name of the score; None is the task's first.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> print(Mean().measure(Outcomes.of(points=[1.5, 2.5, 3.5]), Rng(0)))
    2.500 [0.016, 4.984]
    """

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 units that pass with chance 0.7."""
        x = rng.numpy().random(80) < 0.7
        name = self.score or "correct"
        return Outcomes.of(specs=[ScoreSpec(name, low=0.0, high=1.0)], **{name: x}), 0.7

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the mean; ``rng`` is not used."""
        name = first_score(outcomes, self.score)
        rows, note = complete("Mean", outcomes, name)
        x, once = rows.score(name), not repeated(rows)
        if once and rows.spec(name).binary and np.isin(x, (0, 1)).all():
            found = single.proportion(x, clusters=rows.cluster, level=self.level)
        else:
            found = single.mean(
                x,
                units=None if once else rows.unit,
                clusters=rows.cluster,
                builds=builds_of(rows),
                level=self.level,
            )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the mean alone."""
        return float(np.nanmean(outcomes.score(first_score(outcomes, self.score))))

    def better(self, outcomes: Outcomes) -> bool | None:
        """Follow the score."""
        return outcomes.spec(first_score(outcomes, self.score)).higher_is_better


@dataclass(frozen=True)
class Quantile(Measure):
    """Quantile of a score, such as the latency that 95 of 100 units stay below.

    Parameters
    ----------
    q
        Which quantile.
    score
        Name of the score; None is the task's first.
    level
        Coverage the interval aims for.
    draws
        Bootstrap resamples, where there are clusters or repeats.

    Examples
    --------
    >>> print(Quantile(0.5).measure(Outcomes.of(seconds=range(1, 101)), Rng(0)))
    50.500 [40.000, 61.000]
    """

    q: float = between(0.001, 0.999, default=0.5)
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 120 normal scores."""
        rows = rows_of({self.score or "x": rng.numpy().normal(size=120)})
        return rows, float(ndtri(self.q))

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the quantile with its interval."""
        name = first_score(outcomes, self.score)
        rows, note = complete("Quantile", outcomes, name)
        found = quantile(
            rows.score(name),
            self.q,
            clusters=clusters_of(rows),
            level=self.level,
            rng=rng,
            draws=self.draws,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the quantile alone."""
        name = first_score(outcomes, self.score)
        return float(np.nanquantile(outcomes.score(name), self.q))

    def better(self, outcomes: Outcomes) -> bool | None:
        """Follow the score."""
        return outcomes.spec(first_score(outcomes, self.score)).higher_is_better


@dataclass(frozen=True)
class AccuracyByStratum(Measure):
    """Mean of a score within each stratum, with intervals that hold together.

    Parameters
    ----------
    score
        Name of the score; None is the task's first.
    level
        Coverage that all intervals together aim for.

    Examples
    --------
    >>> from dataclasses import replace
    >>> outcomes = Outcomes.of(correct=[1, 1, 0, 1])
    >>> outcomes = replace(outcomes, stratum=np.array([0, 0, 1, 1]), strata=("easy", "hard"))
    >>> AccuracyByStratum().measure(outcomes, Rng(0))["hard"].value
    0.5
    """

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return an easy and a hard stratum of 80 units each."""
        code = np.repeat([0, 1], 80)
        x = rng.numpy().random(160) < np.array([0.8, 0.4])[code]
        rows = rows_of({self.score or "correct": x})
        return replace(rows, stratum=code, strata=("easy", "hard")), {"easy": 0.8, "hard": 0.4}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return one estimate a stratum; ``rng`` is not used."""
        name = first_score(outcomes, self.score)
        rows, note = complete("AccuracyByStratum", outcomes, name)
        if rows.stratum is None:
            where = f"task {rows.task}" if rows.task else "these outcomes"
            raise UsageError(f"AccuracyByStratum: the units of {where} have no strata.")
        labels = [rows.strata[code] if code >= 0 else "none" for code in rows.stratum]
        table = accuracy_by_stratum(
            rows.score(name), labels, clusters=clusters_of(rows), level=self.level
        )
        return {stratum: noted(found, note) for stratum, found in table.items()}

    def better(self, outcomes: Outcomes) -> bool | None:
        """Follow the score."""
        return outcomes.spec(first_score(outcomes, self.score)).higher_is_better
