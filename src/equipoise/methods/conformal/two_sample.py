"""Tests of whether two samples share the law of Y given X, as subjects that act on a pair of them.

An observation is a mapping with ``first`` and ``second``, each rows and values, and ``alpha``; the
action is a mapping with ``p_value``, ``statistic`` and ``reject``. The plain functions are
`two_sample_conditional_test`, `density_ratio_test` and `classifier_test`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from equipoise.core import Acts, PredictsProba, Rng, Subject, Trains, UsageError, between
from equipoise.kit.arrays.conformal import checked_alphas
from equipoise.methods.conformal._two_sample import (
    TwoSampleTest,
    classifier_test,
    density_ratio_test,
    two_sample_conditional_test,
)

__all__ = [
    "ClassifierTwoSampleTest",
    "ConditionalTwoSampleTest",
    "DensityRatioTwoSampleTest",
    "TwoSampleTest",
    "classifier_test",
    "density_ratio_test",
    "two_sample_conditional_test",
]


class _Tester:
    """Tests the pair of samples it observes."""

    def __init__(self, part: _TwoSample, learner: Any) -> None:
        self._part, self._learner = part, learner

    def act(self, observation: Any, rng: Rng) -> dict[str, Any]:
        """Return the p-value and whether it is at most ``alpha``."""
        who = type(self._part).__name__
        if not isinstance(observation, Mapping) or not {"first", "second"} <= set(observation):
            raise UsageError(f"{who}: it tests a mapping with first and second, each (x, y).")
        (alpha,) = checked_alphas(observation.get("alpha", 0.05)).tolist()
        found = self._part.test(observation["first"], observation["second"], self._learner, rng)
        return {
            "p_value": found.p_value,
            "statistic": found.statistic,
            "reject": found.p_value <= alpha,
        }


@dataclass(frozen=True)
class _TwoSample(Subject):
    """A test of two samples with a classifier of its own."""

    classifier: Subject | None = None

    provides = frozenset({Acts})

    def check(self) -> None:
        who = type(self).__name__
        if self.classifier is not None and Trains not in self.classifier.provides:
            raise UsageError(f"{who}: classifier must be a subject that can be trained.")
        if self.classifier is not None and PredictsProba in self.classifier.provides:
            return
        prototype = getattr(self.classifier, "prototype", None)
        if prototype is not None and not hasattr(prototype(), "predict_proba"):
            raise UsageError(f"{who}: classifier must give probabilities.")

    def load(self, rng: Rng) -> Any:
        learner = None if self.classifier is None else self.classifier.load(rng.child("learner"))
        return _Tester(self, learner)

    @abstractmethod
    def test(self, first: Any, second: Any, learner: Any, rng: Rng) -> TwoSampleTest:
        """Test two samples."""


@dataclass(frozen=True)
class ConditionalTwoSampleTest(_TwoSample):
    r"""Test whether Y given X is alike in two samples, by pairs of rows that are near in X.

    The plain function is `two_sample_conditional_test`: the ratio of the conditional densities is
    compared between rows of the two samples, weighted by a Gaussian kernel of their distance.

    Parameters
    ----------
    classifier
        Learner of sample membership that gives probabilities, such as ``{sklearn:
        {estimator: RandomForestClassifier}}``; by default logistic regression without a penalty.
    given
        Places, from 0, of the columns that rows must be near in; by default all.
    bandwidth
        :math:`h`; by default :math:`n^{-1/(2+d)}` for n rows to test with and d columns.
    scale
        Bring the columns to variance 1 first.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> from equipoise.kit.worlds.conditional_tests import two_sample_draw
    >>> first, second = two_sample_draw("A3", Rng(0), n=800)
    >>> found = ConditionalTwoSampleTest().load(Rng(0)).act(
    ...     {"first": first, "second": second, "alpha": 0.05}, Rng(0))
    >>> found["reject"]
    True
    """

    given: tuple[int, ...] = between(0, 1_000_000, default=())
    bandwidth: float | None = between(1e-12, 1e12, default=None)
    scale: bool = False

    @classmethod
    def tiny(cls) -> Self:
        return cls()

    def test(self, first: Any, second: Any, learner: Any, rng: Rng) -> TwoSampleTest:
        return two_sample_conditional_test(
            first,
            second,
            classifier=learner,
            given=self.given,
            bandwidth=self.bandwidth,
            scale=self.scale,
            rng=rng,
        )


@dataclass(frozen=True)
class DensityRatioTwoSampleTest(_TwoSample):
    r"""Test the same with rows weighted by the density ratio of X alone.

    The plain function is `density_ratio_test`, the test of Hu and Lei.

    Parameters
    ----------
    classifier
        Learner of sample membership that gives probabilities; by default logistic regression
        without a penalty.

    References
    ----------
    Hu and Lei, "A two-sample conditional distribution test using conformal prediction and
    weighted rank sum", Journal of the American Statistical Association, 2024.

    Examples
    --------
    >>> from equipoise.kit.worlds.conditional_tests import two_sample_draw
    >>> first, second = two_sample_draw("A3", Rng(0), n=800, alternative=False)
    >>> found = DensityRatioTwoSampleTest().load(Rng(0)).act(
    ...     {"first": first, "second": second, "alpha": 0.05}, Rng(0))
    >>> found["reject"]
    False
    """

    def test(self, first: Any, second: Any, learner: Any, rng: Rng) -> TwoSampleTest:
        return density_ratio_test(first, second, classifier=learner, rng=rng)


@dataclass(frozen=True)
class ClassifierTwoSampleTest(_TwoSample):
    r"""Test whether two samples are told apart by X and Y together, whichever of them differs.

    The plain function is `classifier_test`. It rejects when X alone differs: what the
    conditional tests are there to avoid.

    Parameters
    ----------
    classifier
        Learner of sample membership that gives probabilities; by default logistic regression
        without a penalty.

    References
    ----------
    Lopez-Paz and Oquab, "Revisiting classifier two-sample tests", ICLR 2017.

    Examples
    --------
    >>> from equipoise.kit.worlds.conditional_tests import two_sample_draw
    >>> first, second = two_sample_draw("A3", Rng(0), n=800, alternative=False)
    >>> found = ClassifierTwoSampleTest().load(Rng(0)).act(
    ...     {"first": first, "second": second, "alpha": 0.05}, Rng(0))
    >>> found["reject"]
    True
    """

    def test(self, first: Any, second: Any, learner: Any, rng: Rng) -> TwoSampleTest:
        return classifier_test(first, second, classifier=learner, rng=rng)
