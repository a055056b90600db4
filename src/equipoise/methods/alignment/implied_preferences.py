"""Worlds with known preferences: how much of the noise in labels reaches what is implied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from equipoise.core import (
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UsageError,
    between,
    one_of,
)
from equipoise.methods.alignment._preference_models import (
    fit_rankings,
    ranking_probabilities,
    ranking_sensitivity,
    tuple_region_areas,
)

_TRIPLES = np.array([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
_PAIRS = np.array([(0, 1), (1, 0), (1, 2), (2, 1)])


@runtime_checkable
class FitsRankings(Protocol):
    """Says what is to be ranked, pairs or triples, and fits scores to counted rankings."""

    @property
    def size(self) -> int: ...

    def fit(self, rankings: np.ndarray, counts: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class _Fitted:
    size: int
    ridge: float

    def fit(self, rankings: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return fit_rankings(rankings, counts, 3, ridge=self.ridge)


@dataclass(frozen=True)
class RankedTuples(Subject):
    """Asking people to rank pairs, or triples, and fitting Plackett-Luce to what they say.

    Of pairs it is Bradley-Terry; see `fit_rankings`.

    Parameters
    ----------
    size
        Options ranked at once.
    ridge
        Of the fit, small: it only keeps scores finite where labels are one-sided.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025.

    Examples
    --------
    >>> RankedTuples(3).load(Rng(0)).size
    3
    """

    provides = frozenset({FitsRankings})

    size: int = one_of(2, 3, default=2)
    ridge: float = between(1e-12, 1e6, default=1e-3)

    def load(self, rng: Rng) -> FitsRankings:
        """Return what fits."""
        return _Fitted(self.size, self.ridge)


@dataclass(frozen=True)
class SensitiveRegion(Task):
    r"""How large the M-sensitive region of pairs, or of triples, is; a unit is a batch of draws.

    ``area`` is that of the reference probabilities at which the target moves more than ``least``
    times as far as the first of them. Pairs: a share of uniform $(p_{kj}, p_{ik})$, by the Jacobian
    of `ranking_sensitivity`, and no closed form is used. Triples: the largest area that
    `tuple_region_areas` gives over all targets and references; ``typical`` is their mean.
    ``share`` is the largest area by that of all references that some scores give, 1 for pairs.

    Parameters
    ----------
    least
        M.
    draws
        In a batch.
    batches
        How many units.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025.

    Examples
    --------
    >>> task = SensitiveRegion(batches=1)
    >>> outcome, = task.perform(RankedTuples(2).load(Rng(0)), task.units(Rng(0)), Rng(0))
    >>> round(outcome.scores["area"], 2)
    0.07
    """

    needs = frozenset({FitsRankings})
    scores = (
        ScoreSpec("area", False, low=0),
        ScoreSpec("typical", False, low=0),
        ScoreSpec("share", False, low=0),
    )

    least: float = between(1.0, 1e6, default=2.0)
    draws: int = between(100, 100_000_000, default=50_000)
    batches: int = between(1, 1_000_000, default=40)

    @classmethod
    def tiny(cls) -> SensitiveRegion:
        """Return a few small batches."""
        return cls(draws=20_000, batches=4)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a batch, with its seed."""
        return _seeded("batch", self.batches, rng)

    def perform(self, subject: FitsRankings, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Return the areas of each batch; every arm has the same seeds."""
        return [Outcome(unit.id, self._areas(subject.size, unit)) for unit in units]

    def _areas(self, size: int, unit: Unit) -> dict[str, float]:
        seed = _seed(unit)
        if size == 2:
            u = np.random.default_rng(seed).random((self.draws, 2))
            x, y = np.log(u / (1 - u)).T
            scores = np.stack([y, -x, np.zeros_like(x)], axis=1)  # i, j and k
            moved = ranking_sensitivity(scores, (0, 1), [(0, 2), (2, 1)])[:, 0]
            area = float((moved > self.least).mean())
            return {"area": area, "typical": area, "share": area}
        found = tuple_region_areas(size, self.least, Rng(seed), draws=self.draws).values()
        return {
            "area": max(each.value for each in found),
            "typical": float(np.mean([each.value for each in found])),
            "share": max(each.value / each.details["feasible"] for each in found),
        }

    def oracle(self) -> Any:
        """Return triples, whose region is smaller at the default M."""
        return _Fitted(3, 1e-3)

    def constant(self) -> Any:
        """Return pairs."""
        return _Fitted(2, 1e-3)


@dataclass(frozen=True)
class ImpliedPreferences(Task):
    r"""A preference that no one was asked about, fitted from noisy labels; a unit is a draw.

    Options A, B, C have scores with $p_{AB}$ ``fixed`` and $p_{BC}$ ``swept``. Pairs: ``labels``
    each of A-B and B-C, none of A-C. Triples: twice as many rankings of all three, so that as many
    annotations are made. Scores: ``squared_error`` of the fitted $p_{AC}$; ``implied``, it;
    ``trained``, the fitted $p_{BC}$; ``predicted``, the true $\partial p_{AC} / \partial p_{BC}$.

    Parameters
    ----------
    fixed, swept
        Probabilities in [0, 1]; several swept ones are strata.
    labels
        Of each pair.
    noise
        ``"both"`` pairs are sampled, or the ``"swept"`` one alone, and A-B has its exact share.
    draws
        Units of each swept probability.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025.

    Examples
    --------
    >>> task = ImpliedPreferences(fixed=0.99, swept=(0.01,), draws=1)
    >>> unit, = task.units(Rng(0))
    >>> outcome, = task.perform(RankedTuples(2).load(Rng(0)), [unit], Rng(0))
    >>> round(outcome.scores["predicted"], 2)
    25.25
    """

    needs = frozenset({FitsRankings})
    scores = (
        ScoreSpec("squared_error", False, 0, 1, share=True),
        ScoreSpec("implied", None, 0, 1, share=True),
        ScoreSpec("trained", None, 0, 1, share=True),
        ScoreSpec("predicted", None, low=0),
    )
    batch = 512

    fixed: float = between(1e-6, 1 - 1e-6, default=0.99)
    swept: tuple[float, ...] = between(1e-6, 1 - 1e-6, default=(0.5,))
    labels: int = between(1, 1_000_000_000, default=2000)
    noise: str = one_of("both", "swept", default="both")
    draws: int = between(1, 1_000_000, default=500)

    def check(self) -> None:
        """Refuse a sweep of nothing, or of one value twice."""
        if not self.swept or len(set(self.swept)) < len(self.swept):
            raise UsageError(
                "ImpliedPreferences: swept must be different probabilities, at least one,"
                f" got {list(self.swept)}."
            )

    @classmethod
    def tiny(cls) -> ImpliedPreferences:
        """Return a few draws."""
        return cls(swept=(0.1, 0.5), labels=200, draws=10)

    def units(self, rng: Rng) -> list[Unit]:
        """Return the draws of each swept probability, which is their stratum."""
        found = []
        for swept in self.swept:
            for unit in _seeded("draw", self.draws, rng.child(swept)):
                content: Any = unit.content
                found.append(
                    Unit(
                        f"{swept:g}-{unit.id}",
                        content={"seed": content["seed"], "swept": swept},
                        stratum=f"{swept:g}",
                    )
                )
        return found

    def perform(self, subject: FitsRankings, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Draw labels for each unit and fit them all at once."""
        if subject.size == 3 and self.noise == "swept":
            raise UsageError(
                'ImpliedPreferences: triples are sampled as a whole; take noise="both".'
            )
        rankings = _PAIRS if subject.size == 2 else _TRIPLES
        truth = np.array([self._scores(unit) for unit in units])
        pairs = zip(units, truth, strict=True)
        counts = np.array([self._draw(unit, s, rankings) for unit, s in pairs])
        found = subject.fit(rankings, counts)
        wanted = _logistic(truth[:, 0] - truth[:, 2])
        taught = _logistic(truth[:, 1] - truth[:, 2])
        slope = wanted * (1 - wanted) / (taught * (1 - taught))
        implied = _logistic(found[:, 0] - found[:, 2])
        trained = _logistic(found[:, 1] - found[:, 2])
        return [
            Outcome(
                unit.id,
                {
                    "squared_error": float((implied[row] - wanted[row]) ** 2),
                    "implied": float(implied[row]),
                    "trained": float(trained[row]),
                    "predicted": float(slope[row]),
                },
            )
            for row, unit in enumerate(units)
        ]

    def _scores(self, unit: Unit) -> list[float]:
        content: Any = unit.content
        swept = content["swept"]
        c = -math.log(swept / (1 - swept))
        return [math.log(self.fixed / (1 - self.fixed)), 0.0, c]

    def _draw(self, unit: Unit, s: np.ndarray, rankings: np.ndarray) -> np.ndarray:
        generator = np.random.default_rng(_seed(unit))
        p = ranking_probabilities(s, rankings)
        if rankings.shape[1] == 3:
            return np.asarray(generator.multinomial(2 * self.labels, p / p.sum()), float)
        both = generator.binomial(self.labels, p[[0, 2]]).astype(float)
        if self.noise == "swept":
            both[0] = self.labels * p[0]
        return np.array([both[0], self.labels - both[0], both[1], self.labels - both[1]])

    def oracle(self) -> Any:
        """Return what knows the first world's scores."""
        return _Knows(tuple(self._scores(Unit("", {"swept": self.swept[0]}))))

    def constant(self) -> Any:
        """Return what holds all options for equal."""
        return _Knows((0.0, 0.0, 0.0))


@dataclass(frozen=True)
class _Knows:
    scores: tuple[float, ...]
    size: int = 2

    def fit(self, rankings: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return np.tile(self.scores, (len(counts), 1))


def _logistic(t: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-t)))


def _seeded(name: str, count: int, rng: Rng) -> list[Unit]:
    return [
        Unit(f"{name}-{i:06d}", content={"seed": rng.child(name, i).seed_for_request()})
        for i in range(count)
    ]


def _seed(unit: Unit) -> int:
    content: Any = unit.content
    return int(content["seed"])
