r"""Tests given covariates on data whose truth is known, one draw a unit.

Draws are the units of a trial: each carries its seed, every arm sees the same draws, and intervals
are over draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from equipoise.core import (
    Acts,
    Outcome,
    Predicts,
    Rng,
    ScoreSpec,
    Screens,
    Subject,
    Task,
    Trains,
    Unit,
    UnitError,
    UsageError,
    between,
    one_of,
)
from equipoise.kit.worlds.conditional_tests import (
    SLOPES,
    LabelDraw,
    OutlierDraw,
    label_draw,
    outlier_draw,
    two_sample_draw,
)
from equipoise.methods.conformal._screened import family_wise_scores, outlier_scores, screened

__all__ = ["LabelScenario", "OutlierScenario", "ScenarioMean", "TwoSampleScenario"]


def _draws(rng: Rng, count: int) -> list[Unit]:
    found = []
    for index in range(count):
        seed = rng.child("draw", index).seed_for_request()
        found.append(Unit(f"draw-{index:05d}-{seed}", content={"draw": index, "seed": seed}))
    return found


def _world(unit: Unit) -> Rng:
    content: Any = unit.content
    return Rng(int(content["seed"])).child("world")


class _Never:
    """Learns nothing and finds nothing."""

    def fit(self, data: Any, rng: Rng) -> _Never:
        return self

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        shape = (len(inputs),) if targets is not None else (len(inputs), 2)
        return np.ones(shape), np.zeros(shape, bool)


class _Knows(_Never):
    """Is told what is true."""

    def told(self, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 1.0 - truth, truth.astype(bool)


@dataclass(frozen=True)
class OutlierScenario(Task):
    r"""Find outliers in draws whose noise depends on the covariates.

    A draw has n train rows, n calibration rows and m test rows, of which ``share`` are outliers;
    `outlier_draw` tells the laws. A learner is trained and asked which test rows are outliers.
    Scores: ``power`` (share of the outliers found), ``false_discovery_proportion`` (share of
    the found that are none), both again in the half of the covariates with low noise and in
    that with high noise, and ``flagged``, the share of all test rows.

    Parameters
    ----------
    scenario
        ``A1``: values that stray, noise depends on column 0. ``B1``: rows that stray, spread
        depends on columns 0 and 1; for subjects that need no targets.
    draws
        How many.
    n
        Train rows, and as many calibration rows, of a draw.
    m
        Test rows of a draw.
    share
        Share of the test rows that are outliers.
    alpha
        False discovery rate asked for.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.conformal import LocalizedOutlierTest
    >>> task = OutlierScenario(draws=1)
    >>> part = LocalizedOutlierTest(given=(0,), scale=False)
    >>> learner = part.apply(ScenarioMean().load(Rng(0)), Rng(0))
    >>> found = task.perform(learner, list(task.units(Rng(1))), Rng(0))[0]
    >>> round(found.scores["power"], 2), round(found.scores["false_discovery_proportion"], 2)
    (0.16, 0.11)
    """

    scenario: Literal["A1", "B1"] = one_of("A1", "B1", default="A1")
    draws: int = between(1, 100_000, default=100)
    n: int = between(20, 1_000_000, default=800)
    m: int = between(10, 1_000_000, default=2000)
    share: float = between(0.001, 0.9, default=0.1)
    alpha: float = between(1e-6, 0.999999, default=0.15)

    needs = frozenset({Trains, Screens})
    batch = 4
    scores = (
        ScoreSpec("power", low=0.0, high=1.0),
        ScoreSpec("false_discovery_proportion", higher_is_better=False, low=0.0, high=1.0),
        ScoreSpec("power_low_noise", low=0.0, high=1.0),
        ScoreSpec("power_high_noise", low=0.0, high=1.0),
        ScoreSpec(
            "false_discovery_proportion_low_noise", higher_is_better=False, low=0.0, high=1.0
        ),
        ScoreSpec(
            "false_discovery_proportion_high_noise", higher_is_better=False, low=0.0, high=1.0
        ),
        ScoreSpec("flagged", higher_is_better=None, low=0.0, high=1.0),
    )

    def check(self) -> None:
        if round(self.share * self.m) < 1:
            raise UsageError(
                f"OutlierScenario: share of {self.m} test rows must give at least one outlier, "
                f"got {self.share}."
            )

    @classmethod
    def tiny(cls) -> Self:
        return cls(draws=3, n=60, m=60)

    def units(self, rng: Rng) -> list[Unit]:
        return _draws(rng, self.draws)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Draw, train, screen and score, one unit after the other."""
        return [self._one(subject, unit, rng.child(unit.id)) for unit in units]

    def _one(self, subject: Any, unit: Unit, rng: Rng) -> Outcome:
        draw = outlier_draw(self.scenario, _world(unit), n=self.n, m=self.m, share=self.share)
        _, flagged = self._ask(subject, draw, rng)
        scores = outlier_scores(flagged, draw.outlier)
        for name, half in (("low", draw.quiet), ("high", ~draw.quiet)):
            there = outlier_scores(flagged[half], draw.outlier[half])
            scores |= {f"{key}_{name}_noise": there[key] for key in there if key != "flagged"}
        return Outcome(unit.id, scores)

    def _ask(self, subject: Any, draw: OutlierDraw, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(subject, _Knows):
            return subject.told(draw.outlier)
        fitted = subject.fit(draw.examples, rng.child("fit"))
        found = fitted.screen(draw.inputs, draw.targets, self.alpha, rng.child("screen"))
        return screened(found, (len(draw.inputs),))

    def oracle(self) -> Any:
        """Return a learner that is told the outliers."""
        return _Knows()

    def constant(self) -> Any:
        """Return a learner that finds none."""
        return _Never()


@dataclass(frozen=True)
class LabelScenario(Task):
    r"""Declare labels in draws where they are much more common in some quadrants.

    A draw has n train rows, n calibration rows and m test rows with two labels each;
    `label_draw` tells the law. Scores: ``power`` (share of the labels that hold that are
    declared, mean over the two), ``family_wise_error`` (share of the rows with a false
    declaration), the same in each of the four quadrants by the signs of columns 0 and 2, and
    ``worst_quadrant``, the largest of these in the draw, which lies above alpha even where each
    is exact.

    Parameters
    ----------
    draws
        How many.
    n
        Train rows, and as many calibration rows, of a draw.
    m
        Test rows of a draw.
    alpha
        Family-wise error rate asked for.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from equipoise.kit.arrays.learners import Untrained
    >>> from equipoise.methods.conformal import LocalizedLabelScreen
    >>> task = LabelScenario(draws=1)
    >>> learner = LocalizedLabelScreen().apply(Untrained(RandomForestClassifier(30)), Rng(0))
    >>> found = task.perform(learner, list(task.units(Rng(0))), Rng(0))[0]
    >>> round(found.scores["power"], 1), round(found.scores["family_wise_error"], 1)
    (0.6, 0.1)
    """

    draws: int = between(1, 100_000, default=100)
    n: int = between(20, 1_000_000, default=1000)
    m: int = between(10, 1_000_000, default=500)
    alpha: float = between(1e-6, 0.999999, default=0.1)

    needs = frozenset({Trains, Screens})
    batch = 4
    scores = (
        ScoreSpec("power", low=0.0, high=1.0),
        ScoreSpec("family_wise_error", higher_is_better=False, low=0.0, high=1.0),
        *(
            ScoreSpec(f"family_wise_error_{k}", higher_is_better=False, low=0.0, high=1.0)
            for k in (1, 2, 3, 4)
        ),
        ScoreSpec("worst_quadrant", higher_is_better=False, low=0.0, high=1.0),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls(draws=3, n=60, m=60)

    def units(self, rng: Rng) -> list[Unit]:
        return _draws(rng, self.draws)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Draw, train, screen and score, one unit after the other."""
        return [self._one(subject, unit, rng.child(unit.id)) for unit in units]

    def _one(self, subject: Any, unit: Unit, rng: Rng) -> Outcome:
        draw = label_draw(_world(unit), n=self.n, m=self.m)
        _, declared = self._ask(subject, draw, rng)
        return Outcome(unit.id, family_wise_scores(declared, draw.labels, draw.quadrant))

    def _ask(self, subject: Any, draw: LabelDraw, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(subject, _Knows):
            return subject.told(draw.labels)
        fitted = subject.fit(draw.examples, rng.child("fit"))
        found = fitted.screen(draw.inputs, None, self.alpha, rng.child("screen"))
        return screened(found, draw.labels.shape)

    def oracle(self) -> Any:
        """Return a learner that is told the labels."""
        return _Knows()

    def constant(self) -> Any:
        """Return a learner that declares none."""
        return _Never()


@dataclass(frozen=True)
class TwoSampleScenario(Task):
    r"""Tell whether two samples share the law of Y given X, though X differs.

    `two_sample_draw` tells the laws. Scores: ``rejected``, which should be 1 under the
    alternative and at most alpha of the time without it, and ``p_value``.

    Parameters
    ----------
    scenario
        ``A3``: Gaussian and linear. ``B3``: mixtures, a cubic mean and heavy tails.
    draws
        How many.
    n
        Rows of each sample.
    alternative
        Whether Y given X differs.
    alpha
        Level of the test.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.conformal import ConditionalTwoSampleTest
    >>> task = TwoSampleScenario(draws=4, n=800)
    >>> tester = ConditionalTwoSampleTest().load(Rng(0))
    >>> [o.scores["rejected"] for o in task.perform(tester, list(task.units(Rng(0))), Rng(0))]
    [1.0, 1.0, 1.0, 1.0]
    """

    scenario: Literal["A3", "B3"] = one_of("A3", "B3", default="A3")
    draws: int = between(1, 100_000, default=200)
    n: int = between(20, 1_000_000, default=400)
    alternative: bool = True
    alpha: float = between(1e-6, 0.999999, default=0.05)

    needs = frozenset({Acts})
    batch = 16
    scores = (
        ScoreSpec("rejected", low=0.0, high=1.0),
        ScoreSpec("p_value", higher_is_better=False, low=0.0, high=1.0),
    )

    def check(self) -> None:
        if not self.alternative:
            scores = (
                ScoreSpec("rejected", higher_is_better=False, low=0.0, high=1.0),
                ScoreSpec("p_value", higher_is_better=None, low=0.0, high=1.0),
            )
            object.__setattr__(self, "scores", scores)

    @classmethod
    def tiny(cls) -> Self:
        return cls(draws=3, n=60)

    def units(self, rng: Rng) -> list[Unit]:
        return _draws(rng, self.draws)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Draw and test, one unit after the other."""
        return [self._one(subject, unit, rng.child(unit.id)) for unit in units]

    def _one(self, subject: Any, unit: Unit, rng: Rng) -> Outcome:
        first, second = two_sample_draw(
            self.scenario, _world(unit), n=self.n, alternative=self.alternative
        )
        found = subject.act({"first": first, "second": second, "alpha": self.alpha}, rng)
        if not isinstance(found, Mapping) or not {"p_value", "reject"} <= set(found):
            raise UnitError("The subject gave no mapping with p_value and reject.", "garbage")
        p = float(found["p_value"])
        if not 0 <= p <= 1:
            raise UnitError(f"The subject gave {p} as a p-value.", "garbage")
        return Outcome(unit.id, {"rejected": float(bool(found["reject"])), "p_value": p})

    def oracle(self) -> Any:
        """Return a subject that knows whether the laws differ."""
        return _Decides(self.alternative)

    def constant(self) -> Any:
        """Return a subject that always says what is wrong here."""
        return _Decides(not self.alternative)


class _Decides:
    """Says one thing whatever it observes."""

    def __init__(self, reject: bool) -> None:
        self._reject = reject

    def act(self, observation: Any, rng: Rng) -> dict[str, Any]:
        return {"p_value": 0.0 if self._reject else 1.0, "reject": self._reject}


class _Mean:
    """The true mean of scenario A1; learning changes nothing."""

    n_features_in_ = 1 + len(SLOPES)

    def fit(self, data: Any, rng: Rng) -> _Mean:
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        rows = np.asarray(inputs, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise UsageError(
                f"ScenarioMean: it knows scenario A1, whose rows have {self.n_features_in_} "
                f"columns, got shape {rows.shape}."
            )
        found: np.ndarray = rows[:, 1:] @ SLOPES
        return found


@dataclass(frozen=True)
class ScenarioMean(Subject):
    """The true mean of the outlier scenario A1, so that nothing but the test is on trial.

    Examples
    --------
    >>> ScenarioMean().load(Rng(0)).predict(np.ones((1, 10)))
    array([0.5])
    """

    provides = frozenset({Predicts, Trains})

    def load(self, rng: Rng) -> Any:
        return _Mean()
