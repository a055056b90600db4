r"""pass@k, the chance that one of k attempts succeeds, and pass^k, that all do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from equipoise.core import Estimate, Figure, Measure, Outcomes, Rng, Series, UsageError, between
from equipoise.kit.statistics import resampling, single
from equipoise.kit.statistics.columns import complete, enclosing, first_score, noted, rows_of

Table = np.ndarray | Sequence[Sequence[float]]


def pass_at_k(
    passed: Table,
    k: int,
    *,
    clusters: np.ndarray | Sequence[int] | Sequence[str] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""Chance that at least one of ``k`` attempts at a unit succeeds.

    With :math:`c` successes in :math:`n` attempts at a unit, unbiased,

    .. math:: 1 - \binom{n-c}{k} \Big/ \binom{n}{k},

    averaged over units. The interval is a bootstrap over units; the attempts
    at a unit stay together.

    Parameters
    ----------
    passed
        Zeros and ones, shape ``(units, attempts)``; NaN for an attempt that
        was not made.
    k
        Attempts allowed.
    clusters
        Cluster of each unit, where units are not independent.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    Raises
    ------
    UsageError
        If a unit has fewer than ``k`` attempts.

    References
    ----------
    Chen et al.: Evaluating large language models trained on code, 2021.

    Examples
    --------
    >>> round(pass_at_k([[1, 0, 0, 0], [0, 0, 0, 0]], k=2).value, 6)
    0.25
    """
    n, c = _counts("pass_at_k", passed, k)
    return _average("pass@k", 1 - _none_of(n - c, n, k), clusters, level, draws, rng)


def pass_hat_k(
    passed: Table,
    k: int,
    *,
    clusters: np.ndarray | Sequence[int] | Sequence[str] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""Chance that all of ``k`` attempts at a unit succeed, pass^k.

    Unbiased per unit, :math:`\binom{c}{k} / \binom{n}{k}`, averaged over
    units. Parameters and errors are those of `pass_at_k`.

    References
    ----------
    Yao et al.: tau-bench, 2024.

    Examples
    --------
    >>> pass_hat_k([[1, 1, 0, 1], [1, 1, 1, 1]], k=2).value
    0.75
    """
    n, c = _counts("pass_hat_k", passed, k)
    return _average("pass^k", _none_of(c, n, k), clusters, level, draws, rng)


def pass_hat_curve(
    passed: Table,
    most: int,
    *,
    clusters: np.ndarray | Sequence[int] | Sequence[str] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> dict[int, Estimate]:
    """Return pass^k for k from 1 to ``most``; the rest is as for `pass_hat_k`.

    Examples
    --------
    >>> {k: found.value for k, found in pass_hat_curve([[1, 1], [0, 1]], 2).items()}
    {1: 0.75, 2: 0.5}
    """
    return {
        k: pass_hat_k(passed, k, clusters=clusters, level=level, draws=draws, rng=rng)
        for k in range(1, most + 1)
    }


def _none_of(some: np.ndarray, n: np.ndarray, k: int) -> np.ndarray:
    """Return the chance that k draws without replacement from n all fall among ``some``."""
    enough = some >= k
    held = np.where(enough, some, k)  # keeps the logarithm defined where the chance is zero
    logs = gammaln(held + 1) - gammaln(held - k + 1) - gammaln(n + 1) + gammaln(n - k + 1)
    found = np.where(enough, np.exp(logs), 0.0)
    return np.where(some == n, 1.0, found)  # exactly, so that sure units read as such


def _counts(part: str, passed: Table, k: int) -> tuple[np.ndarray, np.ndarray]:
    table = np.asarray(passed, float)
    if table.ndim != 2:
        raise UsageError(f"{part}: passed must have shape (units, attempts), got {table.shape}.")
    made = ~np.isnan(table)
    strange = table[made & ~np.isin(table, (0, 1))]
    if strange.size:
        raise UsageError(f"{part}: attempts must be 0 or 1, got {strange[0]:g}.")
    n = made.sum(axis=1)
    if len(n) == 0 or k < 1 or n.min() < k:
        least = int(n.min()) if len(n) else 0
        raise UsageError(
            f"{part}: k must be from 1 to the attempts at a unit, at least {least} here, got {k}."
        )
    return n, np.nansum(table, axis=1)


def _average(
    name: str,
    values: np.ndarray,
    clusters: np.ndarray | Sequence[int] | Sequence[str] | None,
    level: float,
    draws: int,
    rng: Rng | None,
) -> Estimate:
    if len(values) < 2:
        raise UsageError(f"{name}: one unit gives no interval; at least two are needed.")
    if np.ptp(values) == 0 and values[0] in (0.0, 1.0):
        found = single.proportion(values, clusters=clusters, level=level)
        return replace(found, method="wilson", note="All units agree: Wilson's interval.")
    found = resampling.bootstrap(
        _mean,
        (values,),
        clusters=clusters,
        level=level,
        draws=draws,
        rng=Rng(0) if rng is None else rng,
    )
    return enclosing(found)


def _mean(values: np.ndarray) -> float:
    return float(values.mean())


def _by_unit(outcomes: Outcomes, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return attempts as (units, attempts), and each unit's cluster.

    A unit that a bootstrap drew twice has each attempt twice and counts as two.
    """
    # Whole numbers in place of tuples: bootstraps come here many thousand times.
    subject = outcomes.unit * (int(outcomes.build.max(initial=0)) + 1) + outcomes.build
    attempt = subject * (int(outcomes.repeat.max(initial=0)) + 1) + outcomes.repeat
    order = np.argsort(attempt, kind="stable")
    same = attempt[order[1:]] == attempt[order[:-1]]
    copy = np.zeros(len(order), int)
    place = np.arange(len(order))
    starts = np.concatenate([[True], ~same])
    copy[order] = place - np.maximum.accumulate(np.where(starts, place, 0))
    # Attempts with different builds are attempts by different subjects: a unit each.
    group_keys = subject * (int(copy.max(initial=0)) + 1) + copy
    _, first, group = np.unique(group_keys, return_index=True, return_inverse=True)
    row_order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    column = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = np.full((len(sizes), int(sizes.max())), np.nan)
    table[group[row_order], column] = outcomes.score(name)[row_order]
    several_builds = len(np.unique(outcomes.build)) > 1
    codes = outcomes.cluster if outcomes.cluster is not None else outcomes.unit
    clustered = outcomes.cluster is not None or several_builds
    return table, codes[first] if clustered else None


def _attempts(name: str, attempts: int, rng: Rng) -> Outcomes:
    generator = rng.numpy()
    chance = np.repeat(generator.beta(2, 1, 80), attempts)
    rows = rows_of({name: generator.random(len(chance)) < chance})
    repeat = np.tile(np.arange(attempts), 80)
    return replace(rows, unit=np.repeat(np.arange(80), attempts), repeat=repeat)


@dataclass(frozen=True)
class PassAtK(Measure):
    """Chance that one of k attempts succeeds, from a trial's repeats.

    The plain function is `pass_at_k`.

    Parameters
    ----------
    k
        Attempts allowed; the trial needs at least as many repeats.
    score
        A score of zeros and ones; None is the task's first.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> from dataclasses import replace
    >>> outcomes = Outcomes.of(correct=[1, 0, 0, 0])
    >>> outcomes = replace(outcomes, unit=np.array([0, 0, 1, 1]), repeat=np.array([0, 1, 0, 1]))
    >>> PassAtK(k=2).statistic(outcomes)
    0.5
    """

    k: int = between(1, 100_000, default=1)
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> PassAtK:
        """Return few resamples."""
        return cls(k=2, draws=300)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 units whose chances are Beta(2, 1), for which 1 - E (1-p)^k is known."""
        truth = 1 - 2 / ((self.k + 1) * (self.k + 2))
        return _attempts(self.score or "correct", self.k + 3, rng), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the chance with its interval."""
        name = first_score(outcomes, self.score)
        rows, note = complete("PassAtK", outcomes, name)
        passed, clusters = _by_unit(rows, name)
        found = pass_at_k(
            passed, self.k, clusters=clusters, level=self.level, draws=self.draws, rng=rng
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the chance alone."""
        name = first_score(outcomes, self.score)
        n, c = _counts("PassAtK", _by_unit(complete("PassAtK", outcomes, name)[0], name)[0], self.k)
        return float((1 - _none_of(n - c, n, self.k)).mean())


@dataclass(frozen=True)
class PassHatK(Measure):
    """Chance that all of k attempts succeed, from a trial's repeats: reliability.

    The plain function is `pass_hat_k`. Parameters are those of `PassAtK`.

    Parameters
    ----------
    k
        Attempts that must all succeed; the trial needs at least as many repeats.
    score
        A score of zeros and ones; None is the task's first.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> from dataclasses import replace
    >>> outcomes = Outcomes.of(correct=[1, 1, 0, 1])
    >>> outcomes = replace(outcomes, unit=np.array([0, 0, 1, 1]), repeat=np.array([0, 1, 0, 1]))
    >>> PassHatK(k=2).statistic(outcomes)
    0.5
    """

    k: int = between(1, 100_000, default=1)
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> PassHatK:
        """Return few resamples."""
        return cls(k=2, draws=300)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 units whose chances are Beta(2, 1), for which E p^k is known."""
        return _attempts(self.score or "correct", self.k + 3, rng), 2 / (self.k + 2)

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the chance with its interval."""
        name = first_score(outcomes, self.score)
        rows, note = complete("PassHatK", outcomes, name)
        passed, clusters = _by_unit(rows, name)
        found = pass_hat_k(
            passed, self.k, clusters=clusters, level=self.level, draws=self.draws, rng=rng
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the chance alone."""
        name = first_score(outcomes, self.score)
        n, c = _counts(
            "PassHatK", _by_unit(complete("PassHatK", outcomes, name)[0], name)[0], self.k
        )
        return float(_none_of(c, n, self.k).mean())


@dataclass(frozen=True)
class PassHatCurve(Measure):
    r"""How pass^k falls as k grows, from a trial's repeats.

    Were every unit alike, pass^k would be :math:`p^k` with :math:`p` = pass^1; units that differ
    let it fall more slowly, because :math:`E p_i^k \geq (E p_i)^k`. Rows of the table are named
    by k. The plain function is `pass_hat_curve`.

    Parameters
    ----------
    most
        Largest k; the trial needs at least as many repeats.
    score
        A score of zeros and ones; None is the task's first.
    level, draws
        Coverage of each interval, by itself, and bootstrap resamples.

    Examples
    --------
    >>> from dataclasses import replace
    >>> outcomes = Outcomes.of(correct=[1, 1, 0, 1])
    >>> outcomes = replace(outcomes, unit=np.array([0, 0, 1, 1]), repeat=np.array([0, 1, 0, 1]))
    >>> {k: found.value for k, found in PassHatCurve(most=2).measure(outcomes, Rng(0)).items()}
    {'1': 0.75, '2': 0.5}
    """

    most: int = between(1, 1000, default=8)
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    higher_is_better = None

    @classmethod
    def tiny(cls) -> PassHatCurve:
        """Return a short curve with few resamples."""
        return cls(most=3, draws=300)

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 80 units whose chances are Beta(2, 1), for which E p^k is known."""
        truth = {str(k): 2 / (k + 2) for k in range(1, self.most + 1)}
        return _attempts(self.score or "correct", self.most + 3, rng), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return pass^k with its interval for every k."""
        name = first_score(outcomes, self.score)
        rows, note = complete("PassHatCurve", outcomes, name)
        passed, clusters = _by_unit(rows, name)
        found = pass_hat_curve(
            passed, self.most, clusters=clusters, level=self.level, draws=self.draws, rng=rng
        )
        return {str(k): noted(each, note) for k, each in found.items()}

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return pass^k against k, an arm a line, beside p^k."""
        series, guides = [], []
        for arm, rows in outcomes.items():
            curve = self.measure(rows, rng)
            x, found = list(map(int, curve)), list(curve.values())
            series.append(
                Series(
                    arm, x, [e.value for e in found], [e.low for e in found],
                    [e.high for e in found],
                )
            )  # fmt: skip
            alike = [found[0].value ** k for k in x]
            guides.append(Series(f"{arm}, were all units alike", x, alike, look="guide"))
        return Figure(
            "Reliability",
            "attempts k",
            "chance that all k succeed",
            [*series, *guides],
            f"Bands are intervals at {self.level:g}; dashed lines are pass^1 to the power of k.",
        )
