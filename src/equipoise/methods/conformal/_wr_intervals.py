r"""Live learners with intervals from weighted or worst-case quantiles of absolute errors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from equipoise.core import Rng, Trains, UsageError
from equipoise.kit.about import annotate
from equipoise.kit.arrays.conformal import (
    checked_alphas,
    conformal_quantile,
    weighted_conformal_quantile,
)
from equipoise.kit.arrays.examples import Examples, column_of, examples, learns_from
from equipoise.methods.conformal._rows import LEARNS_FROM, finite, parted, untrained
from equipoise.methods.conformal._wr_weights import (
    MOST_FEATURES,
    effective_sample_size,
    interpolated_weighted_quantile,
    kernel_density_weights,
    select_bandwidth,
)


@dataclass(frozen=True)
class Weighing:
    """Quantiles weighted by the covariates asked about."""

    quantile: Literal["exact", "interpolated"]
    cap: float

    who = "importance_weighted_interval"

    def around(self, inner: Any, rows: Examples) -> Calibrated:
        kind = RetrainableWeighted if isinstance(inner, Trains) else Weighted
        made = kind(inner, rows, self)
        features = rows.inputs.shape[1]
        notes = []
        if features > MOST_FEATURES:
            notes.append(
                f"Weights are ratios of kernel densities in {features} dimensions, which are "
                f"unreliable beyond {MOST_FEATURES}; look at effective_sample_size."
            )
        if getattr(inner, "learned_from", frozenset()) & frozenset(rows.ids):
            notes.append(
                "The predictor has learned from its calibration rows, so coverage is not "
                "guaranteed even without shift."
            )
        return annotate(made, notes=notes) if notes else made


@dataclass(frozen=True)
class Worst:
    """The largest quantile of any domain."""

    who = "worst_case_interval"

    def around(self, inner: Any, rows: Examples) -> Calibrated:
        kind = RetrainableWorstCase if isinstance(inner, Trains) else WorstCase
        return kind(inner, rows, self)


Rule = Weighing | Worst


class Learner:
    """Learns on the rows that the inner learner reads, and calibrates on calibration rows."""

    learns_from = LEARNS_FROM

    def __init__(self, inner: Any, rule: Rule) -> None:
        self.inner, self.rule = inner, rule

    def fit(self, data: Any, rng: Rng) -> Calibrated:
        """Return the trained and calibrated predictor."""
        found = examples(data)
        _, calibration = parted(self.rule.who, found)
        inner = self.inner.fit(found.of(*learns_from(self.inner)), rng)
        return self.rule.around(inner, calibration)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        raise untrained(self.rule.who)

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        raise untrained(self.rule.who)


class Calibrated:
    """A predictor with the absolute errors of its calibration rows."""

    def __init__(self, inner: Any, rows: Examples, rule: Rule) -> None:
        self.inner, self.rule = inner, rule
        said = column_of(inner.predict(rows.inputs), len(rows))
        self.scores = finite(rule.who, np.abs(np.asarray(rows.targets, float) - said))
        self.learned_from = frozenset(rows.ids) | getattr(inner, "learned_from", frozenset())

    @property
    def n_features_in_(self) -> int:
        return int(self.inner.n_features_in_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return what the wrapped predictor says."""
        found: np.ndarray = self.inner.predict(inputs)
        return found

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        """Return ``(n, 2)``; the rows asked together are the sample of covariates to come."""
        (level,) = checked_alphas(alpha).tolist()
        inputs = np.asarray(inputs, np.float64)
        if not len(inputs):
            return np.empty((0, 2))
        middle = column_of(self.predict(inputs), len(inputs))
        margin = self._margin(inputs, level)
        return np.stack([middle - margin, middle + margin], axis=1)

    def _margin(self, inputs: np.ndarray, alpha: float) -> float | np.ndarray:
        raise NotImplementedError


class Weighted(Calibrated):
    """Weighs calibration rows by how likely they are among the rows asked."""

    rule: Weighing

    def __init__(self, inner: Any, rows: Examples, rule: Weighing) -> None:
        super().__init__(inner, rows, rule)
        spread = rows.inputs.std(0)
        self._mean, self._spread = rows.inputs.mean(0), np.where(spread > 0, spread, 1.0)
        self._rows = self._scaled(rows.inputs)
        self._bandwidth = select_bandwidth(self._rows)
        self._last: tuple[bytes, tuple[np.ndarray, np.ndarray]] | None = None

    def calibration_weights(self, inputs: np.ndarray) -> np.ndarray:
        """Return the weight of each calibration row when ``inputs`` are asked."""
        return self._weights(np.asarray(inputs, np.float64))[0]

    def effective_sample_size(self, inputs: np.ndarray) -> float:
        """Return how many calibration rows count when ``inputs`` are asked."""
        return effective_sample_size(self.calibration_weights(inputs))

    def _scaled(self, inputs: np.ndarray) -> np.ndarray:
        found: np.ndarray = (inputs - self._mean) / self._spread
        return found

    def _weights(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of calibration rows and of ``inputs``, kept for the next alpha."""
        key = hashlib.blake2b(np.ascontiguousarray(inputs).tobytes()).digest()
        if self._last is None or self._last[0] != key:
            asked = self._scaled(inputs)
            both = kernel_density_weights(
                self._rows, asked, bandwidth=self._bandwidth, cap=self.rule.cap,
                at=np.concatenate([self._rows, asked]),
            )  # fmt: skip
            self._last = key, (both[: len(self._rows)], both[len(self._rows) :])
        return self._last[1]

    def _margin(self, inputs: np.ndarray, alpha: float) -> float | np.ndarray:
        own, asked = self._weights(inputs)
        if self.rule.quantile == "interpolated":
            return float(interpolated_weighted_quantile(self.scores, 1 - alpha, own))
        some = own > 0  # a weight may be too small for a number
        least = np.finfo(float).tiny
        return weighted_conformal_quantile(
            self.scores[some], own[some], np.maximum(asked, least), alpha
        )


class WorstCase(Calibrated):
    """Takes the largest conformal quantile of the domains it was calibrated on."""

    def __init__(self, inner: Any, rows: Examples, rule: Worst) -> None:
        super().__init__(inner, rows, rule)
        self._domains = [self.scores[rows.group == each] for each in np.unique(rows.group)]

    def _margin(self, inputs: np.ndarray, alpha: float) -> float | np.ndarray:
        return worst_case_quantile(self._domains, alpha)


class _Retrainable:
    learns_from = LEARNS_FROM
    inner: Any
    rule: Any

    def fit(self, data: Any, rng: Rng) -> Calibrated:
        """Return one that has learned and calibrated anew."""
        return Learner(self.inner, self.rule).fit(data, rng)


class RetrainableWeighted(_Retrainable, Weighted):
    """One whose inner predictor can learn anew."""


class RetrainableWorstCase(_Retrainable, WorstCase):
    """One whose inner predictor can learn anew."""


def worst_case_quantile(scores: Sequence[np.ndarray], alpha: float) -> float:
    r"""Return the largest conformal quantile of several domains.

    With $q_i$ the $\lceil (n_i+1)(1-\alpha) \rceil$-th smallest of the $n_i$ scores of domain
    $i$, it is $\max_i q_i$. A row of any mixture of the domains is covered with probability
    $\sum_i w_i P_i(s \le q) \ge \sum_i w_i P_i(s \le q_i) \ge 1 - \alpha$, so the weights need
    not be known. Give the scores of test sets instead for the released code's baseline, which
    looks at test labels and can only be computed afterwards.

    Parameters
    ----------
    scores
        Scores of each domain, finite.
    alpha
        Share of values that may lie outside, in (0, 1).

    Returns
    -------
    float
        Infinite where a domain has too few rows for ``alpha``.

    Raises
    ------
    UsageError
        If there are no scores, or they are not finite, or ``alpha`` is outside (0, 1).

    Examples
    --------
    >>> worst_case_quantile([np.arange(1.0, 10.0), np.arange(11.0, 20.0)], 0.5)
    15.0
    """
    if not len(scores):
        raise UsageError("worst_case_quantile: there are no domains; give scores of one or more.")
    return max(float(conformal_quantile(each, alpha)) for each in scores)
