r"""Coverage of intervals and sets: is the promise kept, and for whom?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    Series,
    UsageError,
    between,
    one_of,
)
from equipoise.kit.arrays.conformal import checked_alphas
from equipoise.kit.statistics import bonferroni_level, single
from equipoise.kit.statistics.columns import clusters_of, complete, noted
from equipoise.methods.conformal._columns import share_outcomes, strata_of
from equipoise.methods.conformal._levels import level_of, level_score

__all__ = ["CoverageCurve", "CoverageGap", "coverage_curve", "coverage_gap"]

Column = np.ndarray | Sequence[float]


def coverage_gap(
    covered: Column,
    alpha: float,
    *,
    strata: Sequence[object] | np.ndarray | None = None,
    clusters: Column | None = None,
    over: Literal["worst", "mean"] = "worst",
    level: float = 0.95,
) -> Estimate:
    r"""How far coverage is from what was promised, :math:`|c_s - (1 - \alpha)|` over strata.

    Each stratum's coverage has an interval at :math:`1 - (1 - level)/k` (Bonferroni), Wilson's or
    with clusters. All :math:`k` hold at once, so the gaps that they allow bound the worst and the
    mean one. Noise alone makes the value larger than zero; where the lower end is 0, the promise
    may well be kept.

    Parameters
    ----------
    covered
        Zeros and ones, ``(n,)``.
    alpha
        Share of rows that may lie outside, in (0, 1).
    strata
        Stratum of each row; None for one.
    clusters
        Cluster of each row, where rows are not independent.
    over
        The ``worst`` stratum, or the ``mean`` over strata.
    level
        Coverage the interval aims for.

    Returns
    -------
    Estimate
        ``details`` has ``worst``, ``mean`` and how many ``strata``.

    Raises
    ------
    UsageError
        If ``alpha`` is outside (0, 1), columns do not fit, or a stratum has one cluster only.

    Examples
    --------
    >>> print(coverage_gap([1] * 80 + [0] * 20, 0.1))
    0.100 [0.033, 0.189]
    """
    (error,) = checked_alphas(alpha)
    x = np.asarray(covered, float)
    names = np.zeros(len(x), int) if strata is None else np.asarray([str(s) for s in strata])
    if len(names) != len(x):
        raise UsageError(
            f"coverage_gap: give one stratum a row, got {len(names)} for {len(x)} rows."
        )
    found = np.unique(names)
    each = bonferroni_level(level, len(found))
    promised, gaps = 1 - error, []
    for name in found:
        here = names == name
        inside = None if clusters is None else np.asarray(clusters)[here]
        one = single.proportion(x[here], clusters=inside, level=each)
        reach = abs(one.low - promised), abs(one.high - promised)
        nearest = 0.0 if one.low <= promised <= one.high else min(reach)
        gaps.append((abs(one.value - promised), nearest, max(reach)))
    table = np.array(gaps)
    worst, mean = table.max(axis=0), table.mean(axis=0)
    value, low, high = (worst if over == "worst" else mean).tolist()
    return Estimate(
        value, low, high, level, len(x), method="simultaneous",
        details={"worst": float(worst[0]), "mean": float(mean[0]), "strata": len(found)},
    )  # fmt: skip


def coverage_curve(
    covered: Mapping[float, Column], *, clusters: Column | None = None, level: float = 0.95
) -> dict[float, Estimate]:
    """Coverage at each error rate, with Wilson's intervals or those for clusters.

    Parameters
    ----------
    covered
        Error rate in (0, 1) to zeros and ones, each ``(n,)``.
    clusters
        Cluster of each row, where rows are not independent.
    level
        Coverage that each interval aims for, by itself.

    Returns
    -------
    dict
        Estimates by error rate, rising.

    Examples
    --------
    >>> curve = coverage_curve({0.5: [1, 0, 1, 0], 0.2: [1, 1, 1, 0]})
    >>> [(alpha, found.value) for alpha, found in curve.items()]
    [(0.2, 0.75), (0.5, 0.5)]
    """
    if covered:
        checked_alphas(list(covered))
    return {
        alpha: single.proportion(np.asarray(covered[alpha], float), clusters=clusters, level=level)
        for alpha in sorted(covered)
    }


@dataclass(frozen=True)
class CoverageGap(Measure):
    r"""How far coverage is from :math:`1 - \alpha`, in the worst stratum or on average over strata.

    Split conformal prediction keeps its promise on average over calibration sets. One set of
    :math:`n` rows has a gap of its own, of about :math:`\sqrt{\alpha (1 - \alpha) / n}`, which more
    test rows do not take away; more calibration rows do.

    Parameters
    ----------
    alpha
        Error rate that the task asks for; must be the task's.
    over
        ``worst`` stratum, or ``mean`` over strata. Units without strata are one.
    score
        Score that says whether a row is covered.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> print(CoverageGap().measure(Outcomes.of(covered=[1] * 80 + [0] * 20), Rng(0)))
    0.100 [0.033, 0.189]
    """

    alpha: float = between(0.0001, 0.9999, default=0.1)
    over: Literal["worst", "mean"] = one_of("worst", "mean", default="worst")
    score: str = "covered"
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better = False

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return an easy and a hard stratum of 150 units, over- and undercovered."""
        promised = 1 - self.alpha
        shares = np.array([(1 + promised) / 2, 0.8 * promised])
        code = np.repeat([0, 1], 150)
        x = rng.numpy().random(300) < shares[code]
        gaps = np.abs(shares - promised)
        rows = replace(share_outcomes({self.score: x}), stratum=code, strata=("easy", "hard"))
        return rows, float(gaps.max() if self.over == "worst" else gaps.mean())

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the gap; ``rng`` is not used."""
        rows, note = complete("CoverageGap", outcomes, self.score)
        found = coverage_gap(
            rows.score(self.score), self.alpha, strata=strata_of(rows), clusters=clusters_of(rows),
            over=self.over, level=self.level,
        )  # fmt: skip
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the gap alone."""
        rows, _ = complete("CoverageGap", outcomes, self.score)
        x, names = rows.score(self.score), strata_of(rows)
        codes = np.zeros(len(x), int) if names is None else np.unique(names, return_inverse=True)[1]
        shares = np.bincount(codes, x) / np.bincount(codes)
        gaps = np.abs(shares - (1 - self.alpha))
        return float(gaps.max() if self.over == "worst" else gaps.mean())


@dataclass(frozen=True)
class CoverageCurve(Measure):
    """Coverage at every error rate that the task asks for, beside what was promised.

    The task needs ``alphas``; rows of the table are named by the promised coverage.

    Parameters
    ----------
    level
        Coverage that each interval aims for, by itself.

    Examples
    --------
    >>> rows = Outcomes.of(**{"covered_at_0.5": [1, 0, 1, 0], "covered_at_0.2": [1, 1, 1, 0]})
    >>> {name: found.value for name, found in CoverageCurve().measure(rows, Rng(0)).items()}
    {'0.8': 0.75, '0.5': 0.5}
    """

    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better = None

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 100 rows that are covered as often as promised at two error rates."""
        chance = rng.numpy().random(100)
        columns = {level_score(alpha): chance < 1 - alpha for alpha in (0.1, 0.3)}
        return share_outcomes(columns), {"0.9": 0.9, "0.7": 0.7}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return one estimate for each error rate; ``rng`` is not used."""
        return {f"{1 - alpha:g}": found for alpha, found in self._curve(outcomes).items()}

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return coverage against promised coverage, an arm a line."""
        series, promised = [], set()
        for arm, rows in outcomes.items():
            curve = list(reversed(self._curve(rows).items()))
            x = [1 - alpha for alpha, _ in curve]
            promised |= set(x)
            series.append(
                Series(
                    arm, x, [e.value for _, e in curve], [e.low for _, e in curve],
                    [e.high for _, e in curve],
                )
            )  # fmt: skip
        ends = sorted(promised)
        return Figure(
            "Coverage",
            "promised coverage",
            "coverage",
            [*series, Series("as promised", ends, ends, look="guide")],
            f"On the dashed line the promise is kept; bands are intervals at {self.level:g}.",
        )

    def _curve(self, outcomes: Outcomes) -> dict[float, Estimate]:
        names = {level_of(name): name for name in outcomes.scores}
        names.pop(None, None)
        if not names:
            where = f"task {outcomes.task}" if outcomes.task else "these outcomes"
            raise UsageError(
                f"CoverageCurve: {where} was asked for one error rate only; give the task alphas, "
                f"such as [0.05, 0.1, 0.2, 0.5]."
            )
        rows, note = complete("CoverageCurve", outcomes, *names.values())
        columns = {alpha: rows.score(name) for alpha, name in names.items() if alpha is not None}
        found = coverage_curve(columns, clusters=clusters_of(rows), level=self.level)
        return {alpha: noted(each, note) for alpha, each in found.items()}
