r"""Wasserstein-regularized conformal prediction: intervals that hold when the data drift.

Scores $V = |y - h(x)|$ have the law $P_V$ on calibration data and $Q_V$ on test data. At the
calibration quantile $\tau$ of level $1-\alpha$ the coverage is off by

$$|F_{Q_V}(\tau) - F_{P_V}(\tau)| \le \sqrt{2 L\, W_1(P_V, Q_V)},$$

with $L$ the largest density of one of the two (`coverage_gap_bound`). With $Q_{s,P}$ the law of
scores under test covariates and the calibration data's own concept,

$$W_1(P_V, Q_V) \le W_1(P_V, Q_{s,P}) + W_1(Q_{s,P}, Q_V).$$

Weights $w(x) = q(x)/p(x)$ on calibration scores remove the first term, the covariate shift.
Training removes part of the second, the concept shift: of $k$ source domains, the weighted
calibration scores are drawn to the scores of each. Test data are an unknown mixture of the
domains.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

from equipoise.core import (
    HasModule,
    Predicts,
    PredictsInterval,
    PredictsProba,
    PredictsQuantiles,
    PredictsSurvival,
    Rng,
    Subject,
    Task,
    Trains,
    Treatment,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.arrays.examples import learns_from
from equipoise.methods.conformal._rows import calibration_rows
from equipoise.methods.conformal._wr_distances import (
    coverage_gap_bound,
    kl_divergence,
    mean_difference,
    total_variation,
    wasserstein_1,
    wasserstein_1_torch,
)
from equipoise.methods.conformal._wr_intervals import (
    Learner,
    Rule,
    Weighing,
    Worst,
    worst_case_quantile,
)
from equipoise.methods.conformal._wr_weights import (
    effective_sample_size,
    interpolated_weighted_quantile,
    kernel_density_weights,
    kernel_log_density,
    select_bandwidth,
)

__all__ = [
    "ImportanceWeightedInterval",
    "MultiSourceMLP",
    "WassersteinRegularizedTraining",
    "WorstCaseInterval",
    "coverage_gap_bound",
    "effective_sample_size",
    "interpolated_weighted_quantile",
    "kernel_density_weights",
    "kernel_log_density",
    "kl_divergence",
    "mean_difference",
    "select_bandwidth",
    "total_variation",
    "wasserstein_1",
    "wasserstein_1_torch",
    "worst_case_quantile",
]


@dataclass(frozen=True)
class MultiSourceMLP(Subject):
    r"""A network with two hidden layers that learns from several domains alike.

    Layers of ``hidden`` with tanh and dropout after each, Xavier weights; Adam on all rows at
    once minimises $\frac{1}{k} \sum_i \ell_i + \text{decay} \lVert \theta \rVert^2$, with $\ell_i$
    the mean absolute error on domain $i$. Groups of rows (a task's clusters) are the domains.
    Features and target are standardised by the train rows. Dropout is off when it predicts.

    Parameters
    ----------
    hidden
        Width of both hidden layers.
    dropout
        Share of units dropped while training.
    steps
        Updates.
    rate
        Learning rate.
    decay
        Weight of the squares of all parameters.
    quantiles
        Levels in (0, 1), rising, for the network to learn by the pinball loss, a column each;
        it then predicts the middle one, and quantiles too.
    data
        Task to learn from at once; None leaves it untrained.

    References
    ----------
    "Wasserstein-Regularized Conformal Prediction under General Distribution Shift", ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.conformal import MultiSourceRegression
    >>> learn = MultiSourceRegression(rows=60).sources(seed=1).learn
    >>> network = MultiSourceMLP(steps=20).load(Rng(0)).fit(learn, Rng(0))
    >>> network.predict(learn.inputs[:3]).shape
    (3,)
    """

    hidden: int = between(1, 100_000, default=64)
    dropout: float = between(0.0, 0.99, default=0.5)
    steps: int = between(1, 10_000_000, default=3000)
    rate: float = between(1e-8, 10.0, default=1e-3)
    decay: float = between(0.0, 1e3, default=1e-3)
    quantiles: tuple[float, ...] = ()
    data: Task | None = None

    provides = frozenset({Trains, Predicts})

    def check(self) -> None:
        levels = self.quantiles
        rising = all(a < b for a, b in itertools.pairwise(levels))
        if not rising or not all(0 < level < 1 for level in levels):
            raise UsageError(
                f"MultiSourceMLP: quantiles must rise and lie strictly between 0 and 1, "
                f"got {levels}."
            )
        found = {Trains, Predicts}
        if levels:
            found.add(PredictsQuantiles)
        if self.data is not None:
            found.add(HasModule)
        object.__setattr__(self, "provides", frozenset(found))

    @classmethod
    def tiny(cls) -> Self:
        return cls(hidden=4, steps=5, data=_tiny_task())

    def load(self, rng: Rng) -> Any:
        from equipoise.methods.conformal._wr_network import Recipe, learner, tanh_network

        shape = {"outputs": max(1, len(self.quantiles)), "hidden": self.hidden}
        make = functools.partial(tanh_network, **shape, dropout=self.dropout)
        bare = learner(Recipe(make, self.steps, self.rate, self.decay, self.quantiles))
        if self.data is None:
            return bare
        return bare.fit(learnable(self.data, rng.child("data")), rng)


@dataclass(frozen=True)
class WassersteinRegularizedTraining(Treatment):
    r"""Train so that scores are alike on all domains, at the price of wider intervals.

    With $R$ the loss of `MultiSourceMLP` and $P_{w_i}$ the scores $|y - h(x)|$ of the anchor rows
    weighted by $w_i = p_i(x) / p(x)$, ratios of kernel densities of domain $i$ and of the anchor,

    $$\min_\theta\ \frac{R(\theta)}{\beta} + \frac{1}{k} \sum_{i=1}^k W_1(P_{w_i}, P_i),$$

    where $R$ is not divided during the first ``anneal`` steps. The subject is a
    `MultiSourceMLP`, or any predictor of values with an open torch module, which is trained
    further from the weights it has, on inputs and targets as they are. The result is a learner;
    put `ImportanceWeightedInterval` around it. A task's clusters are the domains.

    The paper's anchor are the calibration rows. The network then knows the rows that it is
    calibrated on, and no guarantee is left even without shift; ``anchor: train`` compares
    each domain with all train rows instead, and leaves calibration rows unseen.

    Parameters
    ----------
    beta
        The larger, the smaller the coverage gap and the wider the intervals; 1 to 20 in the paper.
    anneal
        Steps before ``beta`` counts.
    anchor
        Whose scores are drawn to each domain's: ``calibration`` or ``train``.
    cap
        Largest weight of an anchor row, where their mean is 1.
    steps, rate, decay
        As of `MultiSourceMLP`, for a module that brings no recipe of its own.
    data
        Task to learn from at once; None gives an untrained learner.

    References
    ----------
    "Wasserstein-Regularized Conformal Prediction under General Distribution Shift", ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.conformal import MultiSourceRegression
    >>> learn = MultiSourceRegression(rows=60).sources(seed=1).learn
    >>> bare = MultiSourceMLP(steps=20).load(Rng(0))
    >>> treated = WassersteinRegularizedTraining(beta=9.0, anneal=10).apply(bare, Rng(0))
    >>> ImportanceWeightedInterval().apply(treated, Rng(0)).fit(learn, Rng(0)).predict_interval(
    ...     learn.inputs[:30], alpha=0.1).shape
    (30, 2)
    """

    beta: float = between(1e-3, 1e6, default=4.5)
    anneal: int = between(0, 10_000_000, default=1000)
    anchor: Literal["calibration", "train"] = one_of("calibration", "train", default="calibration")
    cap: float = between(1.0, math.inf, default=20.0)
    steps: int = between(1, 10_000_000, default=3000)
    rate: float = between(1e-8, 10.0, default=1e-3)
    decay: float = between(0.0, 1e3, default=1e-3)
    data: Task | None = None

    needs = frozenset({Predicts})
    adds = frozenset({Trains})
    removes = frozenset({PredictsInterval, PredictsProba, PredictsQuantiles, PredictsSurvival})
    random = True

    @classmethod
    def tiny(cls) -> Self:
        return cls(anneal=2, data=_tiny_task())

    @classmethod
    def tiny_subject(cls) -> Any:
        return MultiSourceMLP.tiny().load(Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        from equipoise.methods.conformal._wr_network import Penalty

        penalty = Penalty(self.beta, self.anneal, self.anchor, self.cap)
        treated = self._recipe_of(subject).regularized(penalty)
        if self.data is None:
            return treated
        stream = rng.child("data")
        units = [
            unit for split in learns_from(treated) for unit in learnable(self.data, stream, split)
        ]
        return treated.fit(units, rng)

    def _recipe_of(self, subject: Any) -> Any:
        """Return the subject as a network that learns, or refuse it."""
        from equipoise.methods.conformal import _wr_network

        if isinstance(subject, _wr_network.Learner):
            if subject.recipe.levels:
                raise UsageError(
                    "WassersteinRegularizedTraining: the penalty compares errors of one "
                    "prediction; leave out the subject's quantiles."
                )
            return subject
        if not isinstance(subject, HasModule):
            raise UsageError(
                "WassersteinRegularizedTraining: the subject must be a multi_source_mlp or a "
                f"predictor with an open torch module, got {type(subject).__name__}."
            )
        module, settings = subject.module, (self.steps, self.rate, self.decay)
        return _wr_network.learner(
            _wr_network.Recipe(lambda _: copy.deepcopy(module).cpu().float(), *settings,
                               standardize=False)
        )  # fmt: skip


@dataclass(frozen=True)
class _Interval(Treatment):
    """Puts absolute errors of calibration rows around a predictor."""

    data: Task | None = None

    needs = frozenset({Trains, Predicts})
    adds = frozenset({Predicts, PredictsInterval})
    removes = frozenset({PredictsProba, PredictsQuantiles, PredictsSurvival, HasModule})

    def check(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "needs", frozenset({Predicts}))

    @classmethod
    def tiny(cls) -> Self:
        return cls(data=_tiny_task())

    @classmethod
    def tiny_subject(cls) -> Any:
        return MultiSourceMLP.tiny().load(Rng(0))

    def rule(self) -> Rule:
        """Return how the margin follows from calibration errors."""
        raise NotImplementedError

    def apply(self, subject: Any, rng: Rng) -> Any:
        rule = self.rule()
        if self.data is None:
            return Learner(subject, rule)
        return rule.around(subject, calibration_rows(rule.who, self.data, rng.child("data")))


@dataclass(frozen=True)
class ImportanceWeightedInterval(_Interval):
    r"""Give intervals calibrated for the covariates asked about: rows asked together count.

    The margin is a quantile of calibration errors $|y - h(x)|$ weighted by $w(x) = q(x)/p(x)$,
    with $p$ the kernel density of calibration covariates and $q$ that of the rows asked in one
    call, both with the bandwidth that suits the calibration rows best
    (`kernel_density_weights`). So the rows of one place and time belong in one call; their
    targets are not needed. Features are standardised by the calibration rows.

    Only a shift of covariates is made good, and only where calibration rows lie too; the weights
    are estimates, poor ones beyond 6 features. The trained subject's
    ``effective_sample_size(inputs)`` tells how many calibration rows count. Around an untrained
    subject this gives a learner; around a trained one, give ``data``.

    Parameters
    ----------
    data
        Task whose calibration rows calibrate a predictor that is trained already.
    quantile
        ``exact`` gives each new row its own weight at infinity, so that true weights would
        guarantee coverage; ``interpolated`` is the paper's, without it.
    cap
        Largest weight, where the mean over calibration rows is 1.

    References
    ----------
    Tibshirani et al., "Conformal Prediction Under Covariate Shift", NeurIPS 2019;
    "Wasserstein-Regularized Conformal Prediction under General Distribution Shift", ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.conformal import MultiSourceRegression
    >>> sources = MultiSourceRegression(rows=60).sources(seed=1)
    >>> bare = MultiSourceMLP(steps=20).load(Rng(0))
    >>> fitted = ImportanceWeightedInterval().apply(bare, Rng(0)).fit(sources.learn, Rng(0))
    >>> test_rows, _ = sources.tests[0]
    >>> fitted.predict_interval(test_rows, alpha=0.2).shape[1]
    2
    >>> 1 < fitted.effective_sample_size(test_rows) < 60
    True
    """

    quantile: Literal["exact", "interpolated"] = one_of("exact", "interpolated", default="exact")
    cap: float = between(1.0, math.inf, default=20.0)

    def rule(self) -> Rule:
        return Weighing(self.quantile, self.cap)


@dataclass(frozen=True)
class WorstCaseInterval(_Interval):
    r"""Give intervals that hold on every mixture of the source domains, whatever its shares.

    The margin is the largest over domains of the conformal quantile of their calibration errors
    (`worst_case_quantile`). Groups of rows (a task's clusters) are the domains; name the task's
    ``split`` column so that each has calibration rows. Around an untrained subject this gives
    a learner; around a trained one, give ``data``.

    Parameters
    ----------
    data
        Task whose calibration rows calibrate a predictor that is trained already.

    References
    ----------
    The baseline of "Wasserstein-Regularized Conformal Prediction under General Distribution
    Shift", ICLR 2025, which takes the largest quantile of the test sets themselves instead.

    Examples
    --------
    >>> from equipoise.methods.conformal import MultiSourceRegression
    >>> learn = MultiSourceRegression(rows=60).sources(seed=1).learn
    >>> bare = MultiSourceMLP(steps=20).load(Rng(0))
    >>> fitted = WorstCaseInterval().apply(bare, Rng(0)).fit(learn, Rng(0))
    >>> ends = fitted.predict_interval(learn.inputs[:2], alpha=0.2)
    >>> bool((ends[:, 0] < ends[:, 1]).all())
    True
    """

    def rule(self) -> Rule:
        return Worst()


def _tiny_task() -> Task:
    from equipoise.methods.conformal.interval_prediction import IntervalPrediction

    return IntervalPrediction.tiny()
