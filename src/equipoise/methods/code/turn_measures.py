r"""MRR and Recall of conversations by turn, and whether static scores rank models as live ones do.

With :math:`k_i` the first turn that passes, counted from 1 for turn 0, and :math:`N` problems,

.. math:: MRR_n = \frac1N \sum_{k_i \le n+1} \frac1{k_i}, \qquad
          Recall_n = \frac1N \sum 1[k_i \le n+1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from equipoise.core import Estimate, Figure, Measure, Outcomes, Rng, Series, UsageError, between
from equipoise.kit.statistics import single

__all__ = [
    "StaticLiveRankCorrelation",
    "TurnMRR",
    "TurnRecall",
    "expected_mrr",
    "expected_recall",
    "mrr",
    "recall",
    "static_live_rank_correlation",
]

Ranks = Sequence[float | None] | np.ndarray


def mrr(first: Ranks, *, turns: int | None = None) -> float:
    """Return the mean reciprocal rank of conversations.

    Parameters
    ----------
    first
        First turn that passed, counted from 1 for turn 0; None, NaN or infinity for never.
    turns
        Count no turn after this one; None counts all.

    Raises
    ------
    UsageError
        If there is no conversation, or a turn is below 1.

    Examples
    --------
    >>> mrr([1, 2, None])
    0.5
    >>> mrr([1, 2, None], turns=0)
    0.3333333333333333
    """
    k = _ranks(first, turns, "mrr")
    return float(np.mean(1 / k))


def recall(first: Ranks, *, turns: int | None = None) -> float:
    """Return the share of conversations that passed at some turn; parameters are those of `mrr`.

    Examples
    --------
    >>> recall([1, 2, None])
    0.6666666666666666
    """
    return float(np.mean(np.isfinite(_ranks(first, turns, "recall"))))


def _ranks(first: Ranks, turns: int | None, who: str) -> np.ndarray:
    k = np.array([np.inf if each is None else float(each) for each in first])
    k[np.isnan(k)] = np.inf
    if not len(k):
        raise UsageError(f"{who}: there is no conversation; at least one is needed.")
    if (k < 1).any():
        raise UsageError(f"{who}: turns count from 1 for turn 0, got {k.min():g}.")
    return k if turns is None else np.where(k <= turns + 1, k, np.inf)


def expected_recall(hazard: float, turns: int) -> float:
    r"""Return the expected Recall where every turn passes with the same chance.

    .. math:: 1 - (1 - h)^{n+1}

    Parameters
    ----------
    hazard
        Chance :math:`h` that a program passes which has not before, in [0, 1].
    turns
        Turns :math:`n` after turn 0.

    Examples
    --------
    >>> expected_recall(0.5, 1)
    0.75
    """
    _check_hazard(hazard, turns, "expected_recall")
    return 1 - (1 - hazard) ** (turns + 1)


def expected_mrr(hazard: float, turns: int) -> float:
    r"""Return the expected MRR where every turn passes with the same chance.

    .. math:: \sum_{k=1}^{n+1} \frac{h (1 - h)^{k-1}}{k},

    which tends to :math:`h \ln(1/h) / (1 - h)` with the turns. Parameters are those of
    `expected_recall`.

    Examples
    --------
    >>> expected_mrr(0.5, 1)
    0.625
    """
    _check_hazard(hazard, turns, "expected_mrr")
    k = np.arange(1, turns + 2)
    return float(np.sum(hazard * (1 - hazard) ** (k - 1) / k))


def _check_hazard(hazard: float, turns: int, who: str) -> None:
    if not 0 <= hazard <= 1:
        raise UsageError(f"{who}: hazard must be from 0 to 1, got {hazard:g}.")
    if turns < 0:
        raise UsageError(f"{who}: turns must be at least 0, got {turns}.")


@dataclass(frozen=True)
class _ByTurn(Measure):
    """A table by turn, from reciprocal ranks."""

    turns: int = between(0, 100, default=10)
    score: str = "reciprocal_rank"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 200 conversations with a constant chance to pass, for which all is known."""
        k = rng.numpy().geometric(_HAZARD, 200)
        ranks = np.where(k <= self.turns + 1, 1 / k, 0.0)
        truth = {str(t): self._expected(t) for t in range(self.turns + 1)}
        return _columns({self.score: ranks}), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return one estimate a turn; ``rng`` is not used."""
        return {str(turn): each for turn, each in enumerate(self._table(outcomes))}

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return all arms by turn, an arm a line."""
        series = []
        for arm, rows in outcomes.items():
            found = self._table(rows)
            y, low, high = zip(*((e.value, e.low, e.high) for e in found), strict=True)
            series.append(Series(arm, tuple(range(len(found))), y, low, high, look="step"))
        title, what = self._title()
        return Figure(
            title,
            "turn",
            what,
            series,
            f"Turn 0 is the first program; bands are intervals at {self.level:g}.",
        )

    def _table(self, outcomes: Outcomes) -> list[Estimate]:
        x = outcomes.score(self.score)
        whole = ~np.isnan(x)
        if not whole.any():
            raise UsageError(f"{type(self).__name__}: no row has a value for {self.score}.")
        rows = outcomes.take(whole)
        x = rows.score(self.score)
        if ((x < 0) | (x > 1)).any():
            raise UsageError(f"{type(self).__name__}: {self.score} must be from 0 to 1.")
        lost = int((~whole).sum())
        note = f"{lost} of {len(outcomes)} rows have no score and are left out." if lost else ""
        return [replace(self._at(x, rows, turn), note=note) for turn in range(self.turns + 1)]

    def _at(self, x: np.ndarray, rows: Outcomes, turn: int) -> Estimate:
        raise NotImplementedError

    def _expected(self, turn: int) -> float:
        raise NotImplementedError

    def _title(self) -> tuple[str, str]:
        raise NotImplementedError


_HAZARD = 0.2


def _columns(found: dict[str, Any]) -> Outcomes:
    return Outcomes.of(**found)


def _clusters(rows: Outcomes) -> np.ndarray | None:
    if rows.cluster is not None:
        return rows.cluster
    return rows.unit if len(np.unique(rows.unit)) < len(rows) else None


def _by(x: np.ndarray, turn: int) -> np.ndarray:
    """Say which conversations passed by a turn; ranks are floats."""
    return x >= 1 / (turn + 1) - 1e-9


@dataclass(frozen=True)
class TurnRecall(_ByTurn):
    r"""Share of problems solved by each turn, cumulative.

    The plain function is `recall`. It never falls from turn to turn, unlike pass@1 by turn, which
    counts who passes at that very turn.

    Parameters
    ----------
    turns
        The last turn of the table.
    score
        The reciprocal ranks.
    level
        Coverage that each interval aims for, by itself: Wilson's, or one for clusters.

    Examples
    --------
    >>> rows = Outcomes.of(reciprocal_rank=[1, 0.5, 0])
    >>> [round(e.value, 3) for e in TurnRecall(turns=2).measure(rows, Rng(0)).values()]
    [0.333, 0.667, 0.667]
    """

    @classmethod
    def tiny(cls) -> TurnRecall:
        return cls(turns=2)

    def _at(self, x: np.ndarray, rows: Outcomes, turn: int) -> Estimate:
        solved = _by(x, turn).astype(float)
        return single.proportion(solved, clusters=_clusters(rows), level=self.level)

    def _expected(self, turn: int) -> float:
        return expected_recall(_HAZARD, turn)

    def _title(self) -> tuple[str, str]:
        return "Recall by turn", "problems solved"


@dataclass(frozen=True)
class TurnMRR(_ByTurn):
    r"""Mean reciprocal rank, with no turn after each counted.

    The plain function is `mrr`.

    Parameters
    ----------
    turns
        The last turn of the table.
    score
        The reciprocal ranks.
    level
        Coverage that each interval aims for, by itself.

    Examples
    --------
    >>> rows = Outcomes.of(reciprocal_rank=[1, 0.5, 0])
    >>> [round(e.value, 3) for e in TurnMRR(turns=2).measure(rows, Rng(0)).values()]
    [0.333, 0.5, 0.5]
    """

    @classmethod
    def tiny(cls) -> TurnMRR:
        return cls(turns=2)

    def _at(self, x: np.ndarray, rows: Outcomes, turn: int) -> Estimate:
        ranks = np.where(_by(x, turn), x, 0.0)
        if set(np.unique(ranks)) <= {0.0, 1.0}:  # a proportion, at turn 0 at the latest
            return single.proportion(ranks, clusters=_clusters(rows), level=self.level)
        return single.mean(ranks, clusters=_clusters(rows), level=self.level)

    def _expected(self, turn: int) -> float:
        return expected_mrr(_HAZARD, turn)

    def _title(self) -> tuple[str, str]:
        return "MRR by turn", "mean reciprocal rank"


def static_live_rank_correlation(
    static: Sequence[float] | np.ndarray,
    live: Sequence[float] | np.ndarray,
    *,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    """Spearman's correlation of static and live scores over models.

    The interval is a percentile bootstrap over models: it tells how much the choice of models
    matters, not how few problems there were. With a dozen models it is wider than it need be.

    Parameters
    ----------
    static, live
        A score of each model, ``(models,)``.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    Raises
    ------
    UsageError
        If there are fewer than four models, or all have one score.

    Examples
    --------
    >>> static_live_rank_correlation([1, 2, 3, 4], [2, 3, 5, 9]).value
    1.0
    """
    who = "static_live_rank_correlation"
    x, y = np.asarray(static, float), np.asarray(live, float)
    if x.shape != y.shape or x.ndim != 1:
        raise UsageError(f"{who}: give one static and one live score a model.")
    if len(x) < 4:
        raise UsageError(f"{who}: {len(x)} models say nothing about ranks; at least 4 are needed.")
    if np.isnan(x).any() or np.isnan(y).any():
        raise UsageError(f"{who}: every model needs both scores.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise UsageError(f"{who}: all models have one score, so there is no ranking.")
    order = np.lexsort((y, x))  # resampling ignores the order of models
    x, y = x[order], y[order]
    generator = (Rng(0) if rng is None else rng).numpy()
    star = np.empty(0)
    while len(star) < draws:
        pick = generator.integers(len(x), size=(draws, len(x)))
        spread = (np.ptp(x[pick], axis=1) > 0) & (np.ptp(y[pick], axis=1) > 0)
        pick = pick[spread]  # ranks need two different scores
        star = np.concatenate([star, _spearman(x[pick], y[pick])])
    star = star[:draws]
    value = float(_spearman(x, y))
    low, high = np.quantile(star, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(
        value, min(float(low), value), max(float(high), value), level, len(x),
        method="percentile bootstrap",
    )  # fmt: skip


def _spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation along the last axis."""
    a, b = (stats.rankdata(each, axis=-1) for each in (x, y))
    a, b = (each - each.mean(axis=-1, keepdims=True) for each in (a, b))
    return np.asarray((a * b).sum(axis=-1) / np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1)))


@dataclass(frozen=True)
class StaticLiveRankCorrelation(Measure):
    """Whether a frozen benchmark ranks models as the live one does.

    Every unit is a model, as `BenchmarkAgreement` has them. The plain function is
    `static_live_rank_correlation`.

    Parameters
    ----------
    static, live
        Names of the two scores.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> rows = Outcomes.of(static_reciprocal_rank=[0.1, 0.2, 0.3, 0.4],
    ...                    live_reciprocal_rank=[0.2, 0.1, 0.5, 0.6])
    >>> round(StaticLiveRankCorrelation().statistic(rows), 6)
    0.8
    """

    static: str = "static_reciprocal_rank"
    live: str = "live_reciprocal_rank"
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> StaticLiveRankCorrelation:
        return cls(draws=300)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        r"""Return 40 models of a normal law, for which :math:`6/\pi\,\arcsin(\rho/2)` is known."""
        rho = 0.8
        x, noise = rng.numpy().normal(size=(2, 40))
        rows = {self.static: x, self.live: rho * x + np.sqrt(1 - rho**2) * noise}
        return _columns(rows), float(6 / np.pi * np.arcsin(rho / 2))

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the correlation over models with its interval."""
        x, y, note = self._columns(outcomes)
        found = static_live_rank_correlation(x, y, level=self.level, draws=self.draws, rng=rng)
        return replace(found, note=note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the correlation alone."""
        x, y, _ = self._columns(outcomes)
        return float(_spearman(x, y))

    def _columns(self, outcomes: Outcomes) -> tuple[np.ndarray, np.ndarray, str]:
        x, y = outcomes.score(self.static), outcomes.score(self.live)
        whole = ~(np.isnan(x) | np.isnan(y))
        lost = int((~whole).sum())
        note = f"{lost} of {len(x)} models have no score and are left out." if lost else ""
        return x[whole], y[whole], note
