r"""Ratings of models from how pairs of them compare: Bradley-Terry and Elo, with intervals.

Both put models on a scale where a difference is odds of winning, 400 points of Elo for ten to
one, and only differences mean anything: the mean of all models is put at 1000. Bradley-Terry
takes all comparisons at once; Elo goes through them one at a time, and depends on their order.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    between,
    one_of,
)
from equipoise.kit.statistics._common import critical, join, size_note
from equipoise.kit.statistics.columns import enclosing, rows_of
from equipoise.kit.statistics.comparisons import Comparisons
from equipoise.kit.statistics.elo_ratings import elo, elo_passes
from equipoise.kit.statistics.ratings import (
    ELO,
    bradley_terry,
    bradley_terry_draws,
    rank_ranges,
)
from equipoise.methods.evaluation._rated_arms import compared, ladder

__all__ = ["BradleyTerryRatings", "EloRatings", "bradley_terry", "elo"]

CIRCLING, MISFIT = 0.2, 2.0
"""Share of pairs' differences in circles, and misfit, from which an estimate says so."""

_STRENGTHS = (0.6, 0.0, -0.6)
"""True log strengths in simulation."""


class _Ratings(Measure):
    """What both share: arms compared on the units they have in common."""

    scope = "arms"

    relative: ClassVar[bool] = True
    """Only differences of ratings mean anything, so that all may be moved together."""

    score: Any
    level: Any

    @abstractmethod
    def rate(self, comparisons: Comparisons, rng: Rng) -> Mapping[str, Estimate]:
        """Return each model's rating with its interval, by name."""

    def measure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Mapping[str, Estimate]:
        """Return each arm's rating: the better score on a unit, build and repeat wins."""
        return self.rate(compared(type(self).__name__, outcomes, self.score), rng)

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the ratings in order, with their intervals."""
        axis, meaning = "points", "400 points are odds of ten to one"
        if getattr(self, "scale", "elo") == "log":
            axis, meaning = "log odds", "A difference is the logarithm of odds"
        return ladder(
            self.measure(outcomes, rng),
            f"Ratings, {self._name()}",
            axis,
            f"Each rating with its {100 * self.level:.9g}% interval. {meaning}.",
        )

    @abstractmethod
    def _name(self) -> str:
        """Return what the method is called."""


@dataclass(frozen=True)
class BradleyTerryRatings(_Ratings):
    r"""Bradley-Terry ratings of models, with ties, intervals and the ranks each may have.

    The plain function is `equipoise.kit.statistics.bradley_terry`. Intervals are of the distance
    from the mean of all models, by the sandwich estimate over clusters, prompts or rows, or by a
    percentile bootstrap of them. Ranges of ranks hold for all models at once.

    Parameters
    ----------
    score
        Score that arms are compared by; None is the task's first.
    ties
        ``"half"`` a win to both, or a parameter of their own: ``"davidson"``, ``"rao-kupper"``.
    prior
        Ties with an average model that each is imagined to have had; keeps the ratings of models
        finite that won or lost everything. 0 is maximum likelihood.
    scale
        ``"elo"``, points around 1000, or ``"log"``, natural log odds around 0.
    interval
        ``"sandwich"`` or ``"bootstrap"``.
    draws
        Resamples, and draws for the ranges of ranks.
    level
        Coverage the intervals aim for.

    Examples
    --------
    >>> met = Comparisons.of(["a", "a", "b", "b"] * 30, ["b", "c", "c", "a"] * 30, [1] * 120)
    >>> BradleyTerryRatings(prior=1).rate(met, Rng(0))["a"].details["rank_high"]
    2.0
    """

    score: str | None = None
    ties: str = one_of("half", "davidson", "rao-kupper", default="half")
    prior: float = between(0.0, 1e6, default=0.0)
    scale: str = one_of("elo", "log", default="elo")
    interval: str = one_of("sandwich", "bootstrap", default="sandwich")
    draws: int = between(100, 100_000, default=1000)
    level: float = between(0.5, 0.9999999, default=0.95)

    @classmethod
    def tiny(cls) -> BradleyTerryRatings:
        """Return few draws."""
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[dict[str, Outcomes], dict[str, float]]:
        """Return three arms on 150 units whose scores win as Bradley-Terry says."""
        truth = self._scaled(np.array(_STRENGTHS))
        names = _arms()
        return _world(rng, self.score), dict(zip(names, truth.tolist(), strict=True))

    def rate(self, comparisons: Comparisons, rng: Rng) -> Mapping[str, Estimate]:
        """Return each model's rating with its interval, by name.

        ``details`` has ``se``, ``games``, ``win_rate``, the ends of the range of ranks, and how
        far one scale fits: ``cyclic``, ``misfit``.
        """
        ties: Any = self.ties
        fit = bradley_terry(comparisons, ties=ties, prior=self.prior)
        tails = (1 - self.level) / 2
        if self.interval == "bootstrap":
            drawn = bradley_terry_draws(
                comparisons, ties=ties, prior=self.prior, draws=self.draws, rng=rng
            )
            low, high = np.quantile(drawn, [tails, 1 - tails], axis=0)
        else:
            drawn = fit.draws(self.draws, rng)
            low, high = fit.ends(self.level)
        note = join((size_note(len(comparisons), fit.clusters), _circling(fit)))
        value, low, high = (self._scaled(each) for each in (fit.scores, low, high))
        unit = ELO if self.scale == "elo" else 1.0
        spread = drawn.std(axis=0) if self.interval == "bootstrap" else fit.se
        found = _told(comparisons, value, low, high, unit * spread, rank_ranges(
            fit.scores, drawn, level=self.level), self.level)  # fmt: skip
        extra = {"cyclic": fit.cyclic, "misfit": fit.misfit}
        if self.ties != "half":
            extra["tie"] = fit.tie
        return {
            name: replace(
                enclosing(each),
                method=f"bradley-terry, {self.interval}",
                clusters=fit.clusters,
                note=note,
                details={**each.details, **extra},
            )
            for name, each in found.items()
        }

    def _name(self) -> str:
        return "Bradley-Terry"

    def _scaled(self, scores: np.ndarray) -> np.ndarray:
        return 1000 + ELO * scores if self.scale == "elo" else scores


@dataclass(frozen=True)
class EloRatings(_Ratings):
    r"""Elo ratings of models, averaged over random orders of the comparisons, with intervals.

    The plain function is `equipoise.kit.statistics.elo`. One pass leaves noise of the order
    behind, since late comparisons weigh more; the mean over orders does not. What is estimated is
    the expected rating after as many comparisons, which few of them leave near 1000.

    Parameters
    ----------
    score
        Score that arms are compared by; None is the task's first.
    k
        How far one comparison moves a rating, in points.
    order
        ``"random"``, or ``"given"`` for comparisons whose order is that of time.
    orders
        Random orders to average over.
    draws
        Resamples for the intervals.
    level
        Coverage the intervals aim for.

    Examples
    --------
    >>> met = Comparisons.of(["a", "a", "b", "b"] * 30, ["b", "c", "c", "a"] * 30, [1] * 120)
    >>> ratings = EloRatings(orders=20, draws=100).rate(met, Rng(0))
    >>> ratings["a"].value > ratings["c"].value
    True
    """

    score: str | None = None
    k: float = between(1e-3, 400.0, default=16.0)
    order: str = one_of("random", "given", default="random")
    orders: int = between(2, 10_000, default=100)
    draws: int = between(100, 100_000, default=200)
    level: float = between(0.5, 0.9999999, default=0.95)

    @classmethod
    def tiny(cls) -> EloRatings:
        """Return few orders and draws."""
        return cls(orders=20, draws=100)

    def simulate(self, rng: Rng) -> tuple[dict[str, Outcomes], dict[str, float]]:
        """Return three arms on 150 units, and what Elo gives on average over such worlds."""
        return _world(rng, self.score), dict(_expected_elo(self.k))

    def rate(self, comparisons: Comparisons, rng: Rng) -> Mapping[str, Estimate]:
        """Return each model's rating with its interval, by name.

        ``details`` has ``se``, ``games``, ``win_rate``, the ends of the range of ranks, and
        ``order_sd``: how far one random order moves the rating.
        """
        order: Any = self.order
        found = elo(
            comparisons, k=self.k, order=order, orders=self.orders, draws=self.draws, rng=rng
        )
        reach = critical(self.level, found.df) * found.se
        ranks = rank_ranges(found.ratings, found.draws, level=self.level)
        told = _told(
            comparisons,
            found.ratings,
            found.ratings - reach,
            found.ratings + reach,
            found.se,
            ranks,
            self.level,
        )
        noisy = self.order == "random" and np.median(found.order_sd / found.se) > np.sqrt(
            self.orders / 2
        )
        warning = (
            "The order of comparisons moves ratings as much as chance does; more orders, or"
            " Bradley-Terry, would not."
        )
        note = join((size_note(len(comparisons), found.clusters), warning if noisy else ""))
        return {
            name: replace(
                each,
                method=f"elo, {self.order} order",
                clusters=found.clusters,
                note=note,
                details={**each.details, "order_sd": float(moved)},
            )
            for (name, each), moved in zip(told.items(), found.order_sd, strict=True)
        }

    def _name(self) -> str:
        return "Elo"


def _told(
    met: Comparisons,
    value: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    se: np.ndarray,
    ranks: np.ndarray,
    level: float,
) -> dict[str, Estimate]:
    """Return an estimate a model, with what a table of them shows."""
    m, games = len(met.models), met.games()
    won = np.bincount(met.first, met.score, m) + np.bincount(met.second, 1 - met.score, m)
    return {
        name: Estimate(
            float(value[i]),
            float(low[i]),
            float(high[i]),
            level,
            n=int(games[i]),
            details={
                "se": float(se[i]),
                "games": float(games[i]),
                "win_rate": float(won[i] / games[i]),
                "rank_low": float(ranks[i, 0]),
                "rank_high": float(ranks[i, 1]),
            },
        )
        for i, name in enumerate(met.models)
    }


def _circling(fit: Any) -> str:
    """Say that preferences go in circles, where they do by more than chance."""
    by_chance = fit.misfit_p > 0.001 if not np.isnan(fit.misfit_p) else not fit.misfit > MISFIT
    if by_chance or fit.cyclic < CIRCLING:
        return ""
    return (
        f"Preferences go in circles: no ranking explains {fit.cyclic:.0%} of what pairs differ by."
    )


def _arms() -> tuple[str, ...]:
    return tuple(f"arm {i}" for i in range(len(_STRENGTHS)))


def _world(rng: Rng, score: str | None, units: int = 150) -> dict[str, Outcomes]:
    """Return arms whose scores are strengths with Gumbel noise, which win as Bradley-Terry says."""
    generator = rng.numpy()
    return {
        arm: rows_of({score or "quality": strength + generator.gumbel(size=units)})
        for arm, strength in zip(_arms(), _STRENGTHS, strict=True)
    }


@functools.cache
def _expected_elo(k: float, worlds: int = 4000, units: int = 150) -> tuple[tuple[str, float], ...]:
    """Return the mean Elo of the simulated arms, one random order a world."""
    generator = Rng(0).child("elo").numpy()
    m = len(_STRENGTHS)
    i, j = np.triu_indices(m, 1)
    quality = np.array(_STRENGTHS) + generator.gumbel(size=(worlds * units, m))
    score = (quality[:, i] > quality[:, j]).astype(float).reshape(-1)
    steps = units * len(i)
    met = Comparisons(_arms(), np.tile(i, worlds * units), np.tile(j, worlds * units), score)
    order = generator.permuted(np.arange(worlds * steps).reshape(worlds, steps), axis=1)
    return tuple(zip(_arms(), elo_passes(met, k=k, order=order).mean(axis=0).tolist(), strict=True))
