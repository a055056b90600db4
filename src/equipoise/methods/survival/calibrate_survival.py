r"""Lower bounds on survival times that hold with a chosen probability, under general censoring.

Seen are features $X$, the time $\tilde T = \min(T, C)$ and the event $e = 1(T \le C)$, with $T$
independent of $C$ given $X$; how long a row with an event would have been followed is not known.
Any model of the quantiles $q_\tau(x)$ of $T$ gives a family of bounds; calibration rows choose the
level $\tau$. With $Z_i(\tau) = 1(\tilde T_i < q_\tau(X_i))$ the miss rate is estimated as

$$a(\tau) = \frac{\sum_i w_i(\tau) Z_i(\tau)}{\sum_i w_i(\tau)}$$

and $\tau^*$ is the largest level of the grid such that $a(\tau') < \alpha$ for every
$\tau' \le \tau^*$. The bound is $q_{\tau^*}(x)$, or 0 where there is no such level. Weights are

- naive: $w_i = 1$. Valid because $\tilde T \le T$.
- focused: $w_i = e_i / \pi(X_i)$ with $\pi(x) = P(e = 1 \mid x)$. Valid because
  $P(T < q \mid x) \le P(T < q \mid x, e = 1)$: times that were seen are the shorter ones.
- fused: the naive weight where $P(Z \mid x, e = 0) < P(Z \mid x, e = 1)$, which makes the naive
  rate the lower of the two, and the focused weight elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    PredictsInterval,
    PredictsQuantiles,
    Rng,
    Task,
    Trains,
    Treatment,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.arrays.examples import examples
from equipoise.kit.arrays.survival import times_and_events

LEAST = 0.02
"""Probability of an event that weights take at least; smaller ones would blow them up."""

METHODS = ("fused", "focused", "naive", "none")


def focused_weights(events: npt.ArrayLike, probability: npt.ArrayLike) -> np.ndarray:
    r"""Return $e_i / \pi(X_i)$, with $\pi$ taken as at least 0.02.

    Parameters
    ----------
    events
        ``(n,)``, 1 where the event was seen.
    probability
        ``(n,)``: $\pi(X_i)$, of an event given the features.

    Examples
    --------
    >>> focused_weights([1, 0, 1], [0.5, 0.5, 0.001])
    array([ 2.,  0., 50.])
    """
    return np.asarray(np.asarray(events, float) / np.clip(probability, LEAST, 1))


def fused_weights(focused: npt.ArrayLike, tighter: npt.ArrayLike) -> np.ndarray:
    r"""Return weights ``(n, levels)``: 1 where the naive rate is the tighter one, else focused.

    Parameters
    ----------
    focused
        ``(n,)``: $e_i / \pi(X_i)$.
    tighter
        ``(n, levels)``: $s_\tau(X_i) = 1(P(Z \mid x, e = 0) < P(Z \mid x, e = 1))$.

    Examples
    --------
    >>> fused_weights([2.0, 0.0], [[True, False], [True, False]])
    array([[1., 2.],
           [1., 0.]])
    """
    return np.where(np.asarray(tighter, bool), 1.0, np.asarray(focused, float)[:, None])


def miss_rates(missed: npt.ArrayLike, weights: npt.ArrayLike) -> np.ndarray:
    r"""Return $a(\tau) = \sum_i w_i Z_i / \sum_i w_i$ for each level; 1 where no row has weight.

    Parameters
    ----------
    missed
        ``(n, levels)``: $Z_i(\tau)$.
    weights
        ``(n,)`` or ``(n, levels)``.

    Examples
    --------
    >>> miss_rates([[0, 1], [0, 0], [1, 1]], [1.0, 1.0, 2.0])
    array([0.5 , 0.75])
    """
    z, w = np.asarray(missed, float), np.asarray(weights, float)
    w = np.broadcast_to(w[:, None] if w.ndim == 1 else w, z.shape)
    total = w.sum(axis=0)
    sure = total > 0
    return np.where(sure, (w * z).sum(axis=0) / np.where(sure, total, 1), 1.0)


def first_crossing(levels: npt.ArrayLike, rates: npt.ArrayLike, alpha: float) -> float | None:
    r"""Return the largest level up to which every rate is below $\alpha$, or None.

    Rates need not rise with the level under fused weights, so that a later level may be below
    again: it does not count.

    Parameters
    ----------
    levels, rates
        ``(k,)``; levels rise.
    alpha
        In (0, 1).

    Examples
    --------
    >>> first_crossing([0.01, 0.02, 0.03, 0.04], [0.05, 0.08, 0.12, 0.09], 0.1)
    0.02
    """
    above = np.asarray(rates, float) >= alpha
    count = int(above.argmax()) if above.any() else len(above)
    return float(np.asarray(levels, float)[count - 1]) if count else None


class ConformalSurvival:
    r"""Lower bounds on survival times around any model of their quantiles.

    Parameters
    ----------
    quantiles
        Function of rows ``(n, features)`` and levels ``(k,)`` that returns quantiles ``(n, k)`` of
        the survival time, such as a trained model's ``predict_quantiles``. Where they are infinite
        the longest training time stands in.
    method
        ``fused``, ``focused``, ``naive``, or ``none`` for the model's own quantile at the level
        asked for.
    levels
        How many levels $\tau$ the bounds are chosen from.
    failsafe
        Take the smaller of the method's miss rate and the naive one at each level, which is valid
        for many calibration rows.
    event_classifier, miss_classifier
        Classifiers of scikit-learn's kind, of $e$ from $x$ and of $Z$ from $(x, e, \tau)$; by
        default gradient boosting, the second rising with $\tau$.
    random_state
        Seeds the default classifiers.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> model = lambda x, levels: np.exp(x + norm.ppf(levels))  # features (n, 1)
    >>> generator = np.random.default_rng(0)
    >>> x = generator.uniform(size=(2000, 1))
    >>> t, c = np.exp(x[:, 0] + generator.normal(size=2000)), generator.exponential(9, 2000)
    >>> y = np.stack([np.minimum(t, c), t <= c], axis=1)
    >>> bound = ConformalSurvival(model, "focused").fit(x[:1000], y[:1000])
    >>> bound = bound.conformalize(x[1000:], y[1000:])
    >>> bound.predict_lower_bound(np.array([[0.5]]), 0.1).round(1)
    array([0.4])
    """

    def __init__(
        self,
        quantiles: Any,
        method: str = "fused",
        *,
        levels: int = 300,
        failsafe: bool = False,
        event_classifier: Any = None,
        miss_classifier: Any = None,
        random_state: int = 0,
    ) -> None:
        if method not in METHODS:
            raise UsageError(
                f"ConformalSurvival: method must be one of {', '.join(METHODS)}, got {method!r}."
            )
        self.quantiles, self.method = quantiles, method
        self.levels, self.failsafe = levels, failsafe
        self.event_classifier, self.miss_classifier = event_classifier, miss_classifier
        self.random_state = random_state
        # Finest near 0, where levels are chosen.
        self.grid_ = (np.arange(1, levels + 1) / (levels + 1)) ** 2

    def fit(self, inputs: np.ndarray, targets: npt.ArrayLike) -> Self:
        r"""Learn $\pi$ and, for fused, where the naive rate is tighter, from training rows.

        ``inputs`` are ``(n, features)``, ``targets`` ``(n, 2)``: time and event.
        """
        times, events = times_and_events(targets, "ConformalSurvival")
        self.cap_ = float(times.max())
        self.share_, self.pi_, self.gap_ = float(events.mean()), None, None
        if self.method in ("focused", "fused") and 0 < self.share_ < 1:
            self.pi_ = _boosting(self.event_classifier, self.random_state).fit(inputs, events)
            if self.method == "fused":
                self.gap_ = self._learn_gap(inputs, times, events)
        return self

    def _learn_gap(self, inputs: np.ndarray, times: np.ndarray, events: np.ndarray) -> Any:
        """Return a classifier of Z, fitted to some levels at once with the level as a feature."""
        missed = times[:, None] < self._capped(inputs, self._anchors)
        if missed.all() or not missed.any():
            return None
        rows = _with_levels(np.column_stack([inputs, events]), self._anchors)
        rising = [0] * (rows.shape[1] - 1) + [1]
        learner = _boosting(self.miss_classifier, self.random_state, rising)
        return learner.fit(rows, missed.ravel())

    def conformalize(self, inputs: np.ndarray, targets: npt.ArrayLike) -> Self:
        r"""Estimate the miss rate $a(\tau)$ of each level from calibration rows.

        Sets ``rates_`` ``(levels,)``, ``weights_`` (focused ones, or ones), ``clipped_`` (rows
        whose weight was bounded), ``effective_size_`` $(\sum w)^2 / \sum w^2$, and ``beyond_``
        (rows whose median is beyond the model's curve).
        """
        times, events = times_and_events(targets, "ConformalSurvival")
        if not len(times):
            raise UsageError("ConformalSurvival: there are no rows to calibrate with.")
        missed = times[:, None] < self._capped(inputs, self.grid_)
        self.beyond_ = int(np.isinf(self.quantiles(inputs, np.array([0.5]))).sum())
        self.weights_, self.clipped_ = np.ones(len(times)), 0
        if self.method in ("focused", "fused"):
            probability = self.event_probability(inputs)
            self.clipped_ = int((events & (probability < LEAST)).sum())
            self.weights_ = focused_weights(events, probability)
        weights = self.weights_
        if self.method == "fused":
            weights = fused_weights(weights, self.tighter(inputs))
        self.rates_ = miss_rates(missed, weights)
        if self.failsafe:
            self.rates_ = np.minimum(self.rates_, missed.mean(axis=0))
        square = float((self.weights_**2).sum()) or 1.0
        self.effective_size_ = float(self.weights_.sum()) ** 2 / square
        return self

    def event_probability(self, inputs: np.ndarray) -> np.ndarray:
        r"""Return $\pi(x)$ ``(n,)``."""
        if self.pi_ is None:  # all training rows had the event, or none had
            return np.full(len(inputs), self.share_)
        return np.asarray(self.pi_.predict_proba(inputs)[:, 1])

    def tighter(self, inputs: np.ndarray) -> np.ndarray:
        r"""Return $s_\tau(x)$ ``(n, levels)``: where the naive rate is the lower one."""
        if self.gap_ is None:  # without events the focused rate cannot be told
            return np.full((len(inputs), self.levels), self.share_ == 0)
        given = []
        for event in (0.0, 1.0):
            rows = np.column_stack([inputs, np.full(len(inputs), event)])
            found = self.gap_.predict_proba(_with_levels(rows, self._anchors))[:, 1]
            given.append(found.reshape(len(inputs), -1))
        # Trees do not tell levels apart that are nearest to the same one they learned from.
        middles = (self._anchors[1:] + self._anchors[:-1]) / 2
        return np.asarray(given[0] < given[1])[:, np.searchsorted(middles, self.grid_)]

    @property
    def _anchors(self) -> np.ndarray:
        return self.grid_[:: max(1, self.levels // 24)]  # that the classifier of Z learns from

    def chosen_level(self, alpha: float) -> float | None:
        r"""Return $\tau^*$, or None where even the lowest level misses too often.

        Raises
        ------
        UsageError
            If $\alpha$ is outside (0, 1), or below one over the number of calibration rows.
        """
        if not 0 < alpha < 1:
            raise UsageError(f"ConformalSurvival: alpha must lie between 0 and 1, got {alpha}.")
        if not hasattr(self, "rates_"):
            raise UsageError("ConformalSurvival: call fit and conformalize before.")
        if self.method == "none":
            return alpha
        if len(self.weights_) * alpha < 1:
            raise UsageError(
                f"ConformalSurvival: {len(self.weights_)} calibration rows cannot tell a miss rate "
                f"of {alpha:g}; give at least {math.ceil(1 / alpha)}."
            )
        return first_crossing(self.grid_, self.rates_, alpha)

    def predict_lower_bound(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        r"""Return bounds ``(n,)`` meant to hold with probability $1 - \alpha$; 0 says nothing."""
        level = self.chosen_level(alpha)
        if level is None:
            return np.zeros(len(inputs))
        return self._capped(inputs, np.array([level]))[:, 0]

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        r"""Return ``(n, 2)``: the bound, and infinity."""
        bound = self.predict_lower_bound(inputs, alpha)
        return np.column_stack([bound, np.full(len(bound), np.inf)])

    def _capped(self, inputs: np.ndarray, levels: np.ndarray) -> np.ndarray:
        found = np.asarray(self.quantiles(inputs, levels), float)
        if found.shape != (len(inputs), len(levels)) or np.isnan(found).any():
            raise UsageError(
                f"ConformalSurvival: quantiles must be {(len(inputs), len(levels))} numbers and "
                f"not NaN, got shape {found.shape}."
            )
        return np.where(np.isinf(found), self.cap_, found)


def _boosting(given: Any, seed: int, rising: Sequence[int] | None = None) -> Any:
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier

    if given is not None:
        return clone(given)
    return HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=60, max_leaf_nodes=6, early_stopping=False,
        monotonic_cst=rising, random_state=seed,
    )  # fmt: skip


def _with_levels(rows: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return each row once a level, with the level as last column."""
    return np.column_stack([np.repeat(rows, len(levels), axis=0), np.tile(levels, len(rows))])


@dataclass(frozen=True)
class CalibrateSurvival(Treatment):
    r"""Give a survival model lower bounds that hold with a chosen probability.

    The subject's quantiles $q_\tau(x)$ are a family of bounds; calibration rows choose the level
    $\tau$ at which at most a share $\alpha$ is missed, although many times are cut short
    (see `ConformalSurvival` for the rule). The bound is the lower end of ``predict_interval``,
    whose upper end is infinite; 0 says nothing. It is conservative by design: with heavy censoring
    it holds more often than asked. Reports say how many rows the weights are worth.

    Around a model yet to be trained it gives a learner, which trains on train units and calibrates
    on calibration units; with ``data`` it calibrates a trained model at once.

    Parameters
    ----------
    method
        ``naive`` bounds the time that is seen, ``focused`` looks at rows with an event and weights
        them, ``fused`` takes for each row and level the tighter of the two, ``none`` takes the
        model's own quantile at $\alpha$.
    levels
        How many levels $\tau$ to choose from; they are finest near 0.
    failsafe
        Take the smaller of the method's miss rate and the naive one at each level.
    data
        Task with the units to calibrate a trained subject with.

    References
    ----------
    "Conformalized Survival Analysis for General Right-Censored Data", ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.survival import SurvivalModel, Survival
    >>> from equipoise.methods.tables import Train
    >>> data = Survival("builtin:gbsg2", train=0.4, calibration=0.3)
    >>> model = SurvivalModel("LogNormalAFTFitter").load(Rng(0))
    >>> learner = CalibrateSurvival().apply(model, Rng(0))
    >>> live = Train(data).apply(learner, Rng(0))
    >>> patients = np.array([[1.0, 60, 1, 20, 0, 1, 100, 100], [0, 60, 1, 60, 2, 20, 0, 0]])
    >>> (live.predict_interval(patients, 0.1)[:, 0] / 365).round(1)
    array([1.6, 0.2])
    """

    method: str = one_of(*METHODS, default="fused")
    levels: int = between(10, 10_000, default=300)
    failsafe: bool = False
    data: Task | None = None

    needs = frozenset({PredictsQuantiles, Trains})
    adds = frozenset({PredictsInterval})
    random = True

    def check(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "needs", frozenset({PredictsQuantiles}))

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.survival.survival import Survival

        return cls(data=Survival.tiny(), levels=40)

    @classmethod
    def tiny_subject(cls) -> Any:
        from equipoise.methods.survival.survival_model import SurvivalModel

        return SurvivalModel.tiny().load(Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        from equipoise.methods.survival._calibrated import calibrated, learner

        if self.data is None:
            return learner(subject, self)
        units = learnable(self.data, rng) + learnable(self.data, rng, "calibration")
        return calibrated(subject, self, examples(units), rng.child("calibration"))
