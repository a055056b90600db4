r"""Ways to find a model's accuracy, put on trial: a judge alone, gold labels, or both.

Here the thing on trial is the evaluation itself. A task plays a model and a
judge with known rates, a protocol says how accurate the model is, and the
score is how far off it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from equipoise.core import (
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Treatment,
    Unit,
    UsageError,
    between,
    one_of,
)
from equipoise.methods.evaluation._judges import JudgeRates, judge_weight

Buy = Callable[[int], np.ndarray]
"""Returns the gold scores of the first so many items, which lie in random order."""


@runtime_checkable
class EstimatesAccuracy(Protocol):
    """Says how accurate a model is from verdicts on all items and the labels it buys."""

    def estimate(self, judge: np.ndarray, buy: Buy) -> float: ...


@dataclass(frozen=True)
class _JudgeMean:
    def estimate(self, judge: np.ndarray, buy: Buy) -> float:
        return float(judge.mean())


@dataclass(frozen=True)
class _GoldMean:
    labels: int

    def estimate(self, judge: np.ndarray, buy: Buy) -> float:
        return float(buy(self.labels).mean())


@dataclass(frozen=True)
class _Debiased:
    base: EstimatesAccuracy
    labels: int
    lam: float | None

    def estimate(self, judge: np.ndarray, buy: Buy) -> float:
        s, t, u = buy(self.labels), judge[: self.labels], judge[self.labels :]
        weight = judge_weight(s, t, u, self.lam)
        return float((s - weight * t).mean()) + weight * self.base.estimate(u, buy)


@dataclass(frozen=True)
class JudgeAlone(Subject):
    """The mean verdict: no gold labels, and all of the judge's bias.

    Examples
    --------
    >>> JudgeAlone().load(Rng(0)).estimate(np.array([1.0, 1, 0, 0]), lambda n: np.ones(n))
    0.5
    """

    provides = frozenset({EstimatesAccuracy})

    def load(self, rng: Rng) -> EstimatesAccuracy:
        """Return the protocol."""
        return _JudgeMean()


@dataclass(frozen=True)
class GoldLabels(Subject):
    """The mean of some gold labels: no judge.

    Parameters
    ----------
    labels
        How many.

    Examples
    --------
    >>> GoldLabels(labels=2).load(Rng(0)).estimate(np.zeros(4), lambda n: np.ones(n))
    1.0
    """

    provides = frozenset({EstimatesAccuracy})

    labels: int = between(1, 10_000_000, default=100)

    def load(self, rng: Rng) -> EstimatesAccuracy:
        """Return the protocol."""
        return _GoldMean(self.labels)


@dataclass(frozen=True)
class DebiasWithGold(Treatment):
    r"""Take away a judge's bias with some gold labels.

    .. math:: \hat\theta = \lambda \hat\theta_{judge}
              + \frac1n \sum_{i \le n} (s_i - \lambda t_i),

    where the judge's own estimate is made on the items without a label.

    Parameters
    ----------
    labels
        How many gold labels, :math:`n`.
    lam
        Weight of the judge; None tunes it on the data, 1 is plain
        prediction-powered inference.

    References
    ----------
    Limits to scalable evaluation at the frontier, ICLR 2025, section 2.

    Examples
    --------
    >>> judge = np.array([1.0, 1, 1, 1, 0, 1])
    >>> debiased = DebiasWithGold(labels=2, lam=1.0).apply(JudgeAlone().load(Rng(0)), Rng(0))
    >>> debiased.estimate(judge, lambda n: np.array([1.0, 0.0])[:n])
    0.25
    """

    needs = frozenset({EstimatesAccuracy})

    labels: int = between(2, 10_000_000, default=100)
    lam: float | None = None

    @classmethod
    def tiny_subject(cls) -> EstimatesAccuracy:
        """Return a judge alone."""
        return _JudgeMean()

    def apply(self, subject: EstimatesAccuracy, rng: Rng) -> EstimatesAccuracy:
        """Return the debiased protocol."""
        return _Debiased(subject, self.labels, self.lam)


@dataclass(frozen=True)
class SimulatedJudges(Task):
    r"""Studies of a model by a judge, both with rates drawn at random and known.

    A unit is one study: $b, p, q$ are drawn uniformly from their ranges (and
    again until they fit ``region``), then the items' gold scores and verdicts.
    The protocol on trial estimates $b$.

    Parameters
    ----------
    accuracy, sensitivity, specificity
        Ranges of $b$, $p$ and $q$, from 0 to 1; two equal ends fix them.
    region
        ``"frontier"`` keeps judges that agree with the gold score on at least
        half of the items and at most on the model's accuracy;
        ``"beyond"`` those that agree on more; ``"any"`` all.
    items
        Items in a study: those without a gold label are what the judge adds.
    studies
        How many units.

    Examples
    --------
    >>> task = SimulatedJudges(studies=3)
    >>> judges = [JudgeRates(**unit.content["rates"]) for unit in task.units(Rng(0))]
    >>> all(0.5 <= judge.agreement <= judge.b for judge in judges)
    True
    """

    needs = frozenset({EstimatesAccuracy})
    scores = (
        ScoreSpec("squared_error", higher_is_better=False, low=0.0),
        ScoreSpec("error", higher_is_better=None),
        ScoreSpec("labels", higher_is_better=False, low=0.0, unit="labels"),
    )

    accuracy: tuple[float, float] = between(0.0, 1.0, default=(0.5, 0.95))
    sensitivity: tuple[float, float] = between(0.0, 1.0, default=(0.0, 1.0))
    specificity: tuple[float, float] = between(0.0, 1.0, default=(0.0, 1.0))
    region: str = one_of("frontier", "beyond", "any", default="frontier")
    items: int = between(3, 10_000_000, default=2100)
    studies: int = between(1, 10_000_000, default=1000)

    def check(self) -> None:
        """Refuse empty ranges and regions."""
        for name in ("accuracy", "sensitivity", "specificity"):
            low, high = getattr(self, name)
            if low > high:
                raise UsageError(
                    f"SimulatedJudges: {name} must rise, as in [0.5, 0.9], got {[low, high]}."
                )
        self._draw(Rng(0).numpy())

    @classmethod
    def tiny(cls) -> SimulatedJudges:
        """Return a few small studies."""
        return cls(items=300, studies=20)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a study, with its rates and the seed of its items."""
        return [self._study(index, rng.child("study", index)) for index in range(self.studies)]

    def perform(self, subject: EstimatesAccuracy, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Play each study; every arm sees the same items."""
        return [self._play(subject, unit) for unit in units]

    def oracle(self) -> Any:
        """Return a protocol that buys every label."""
        return _Everything()

    def constant(self) -> Any:
        """Return a protocol that calls every model perfect."""
        return _Always(1.0)

    def _study(self, index: int, rng: Rng) -> Unit:
        generator = rng.numpy()
        b, p, q = self._draw(generator)
        rates = {"b": b, "p": p, "q": q}
        seed = int(generator.integers(2**31))
        return Unit(f"study-{index:06d}", content={"rates": rates, "seed": seed}, target=b)

    def _draw(self, generator: np.random.Generator) -> tuple[float, float, float]:
        low, high = np.array([self.accuracy, self.sensitivity, self.specificity]).T
        for _ in range(100):
            b, p, q = generator.uniform(low, high, size=(256, 3)).T
            agreement = JudgeRates(b, p, q).agreement
            inside = {
                "any": np.ones(256, bool),
                "frontier": (agreement >= 0.5) & (agreement <= b),
                "beyond": agreement > b,
            }[self.region]
            if inside.any():
                first = int(inside.argmax())
                return float(b[first]), float(p[first]), float(q[first])
        raise UsageError(
            f"SimulatedJudges: the ranges hold no judge in the region {self.region}; widen them."
        )

    def _play(self, subject: EstimatesAccuracy, unit: Unit) -> Outcome:
        rates, bought = JudgeRates(**unit.content["rates"]), 0
        generator = np.random.default_rng(unit.content["seed"])
        gold = (generator.random(self.items) < rates.b).astype(float)
        says_right = np.where(gold == 1, rates.p, 1 - rates.q)
        judge = (generator.random(self.items) < says_right).astype(float)

        def buy(labels: int) -> np.ndarray:
            nonlocal bought
            if labels > self.items:
                raise UsageError(
                    f"SimulatedJudges: a study has {self.items} items, {labels} labels were asked."
                )
            bought = max(bought, labels)
            return np.asarray(gold[:labels])

        found = subject.estimate(judge, buy)
        error = found - rates.b
        scores = {"squared_error": error**2, "error": error, "labels": float(bought)}
        return Outcome(unit.id, scores=scores, output=found)


@dataclass(frozen=True)
class _Always:
    value: float

    def estimate(self, judge: np.ndarray, buy: Buy) -> float:
        return self.value


@dataclass(frozen=True)
class _Everything:
    def estimate(self, judge: np.ndarray, buy: Buy) -> float:
        return float(buy(len(judge)).mean())
