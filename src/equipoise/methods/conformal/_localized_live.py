"""Live subjects that screen rows: outliers of any predictor, labels of a classifier."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from equipoise.core import PredictsProba, Rng, UsageError
from equipoise.kit.arrays.examples import Examples, column_of
from equipoise.methods.conformal._localized_p_values import label_screen, outlier_test
from equipoise.methods.conformal._rows import LEARNS_FROM, finite, parted, untrained

Score = Literal["residual", "quantile", "detector"]
SCORES = ("residual", "quantile", "detector")
MOST = 4
"""Columns to localise on; with more, hardly a calibration row is near any row."""

NOMINAL = 0.2  # quantile scores are of the 10 % and 90 % quantiles, as in the paper

OUTLIERS, LABELS = "localized_outlier_test", "localized_label_screen"


@dataclass(frozen=True)
class Nearness:
    """What rows are near in; the parameters that both treatments share."""

    given: tuple[int, ...] = ()
    bandwidth: float | None = None
    localized: bool = True
    scale: bool = True

    def width(self) -> float | None:
        """Return the bandwidth to ask for: infinite without localisation."""
        return self.bandwidth if self.localized else math.inf


def check_given(who: str, given: tuple[int, ...]) -> None:
    """Refuse columns that cannot be localised on, before any data are there."""
    if len(given) > MOST:
        raise UsageError(
            f"{who}: given must be 1 to {MOST} columns, got {len(given)}; with more, hardly a "
            f"calibration row is near any row and p-values say nothing."
        )
    if len(set(given)) < len(given):
        raise UsageError(f"{who}: given must name a column once, got {list(given)}.")


class Covariates:
    """The columns to localise on, brought to variance 1 by the train rows."""

    def __init__(self, who: str, settings: Nearness, train: np.ndarray) -> None:
        width = train.shape[1]
        self._places = list(settings.given or range(width))
        if len(self._places) > MOST and settings.localized:
            raise UsageError(
                f"{who}: give the 1 to {MOST} columns to localise on as given; the rows have "
                f"{width}, and hardly a calibration row is near any row in all of them."
            )
        if max(self._places) >= width:
            raise UsageError(
                f"{who}: given must be places of features, from 0 to {width - 1}, got "
                f"{max(self._places)}."
            )
        spread = train[:, self._places].std(axis=0) if settings.scale else np.ones(1)
        self._spread = np.where(spread > 0, spread, 1.0)  # a constant column: all rows are near

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.asarray(inputs, np.float64)[:, self._places] / self._spread
        return found


Strangeness = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


def strangeness(who: str, score: Score, inner: Any, train: Examples, rng: Rng) -> Strangeness:
    """Return the score V of rows and their targets, larger where a row is stranger."""
    if score == "detector":
        found = getattr(inner, "score_samples", None)
        found = found or getattr(getattr(inner, "model", None), "score_samples", None)
        if found is None:
            raise UsageError(
                f"{who}: the score detector needs a subject with score_samples, such as "
                f"scikit-learn's IsolationForest; for others there are residual and quantile."
            )
        return lambda inputs, targets: -column_of(found(inputs), len(inputs))
    if score == "residual":
        return lambda inputs, targets: np.abs(
            _values(who, targets) - column_of(inner.predict(inputs), len(inputs))
        )
    from equipoise.methods.conformal._intervals import Settings, band_of

    band = band_of(Settings("quantile", NOMINAL), inner, train, rng)

    def outside(inputs: np.ndarray, targets: np.ndarray | None) -> np.ndarray:
        low, high, _ = band(inputs, NOMINAL)
        y = _values(who, targets)
        found: np.ndarray = np.maximum(low - y, y - high)
        return found

    return outside


class OutlierLearner:
    """Learns on train rows and calibrates on calibration rows; until then it refuses."""

    learns_from = LEARNS_FROM

    def __init__(self, inner: Any, score: Score, settings: Nearness, pruning: bool) -> None:
        self.inner, self.score, self.settings, self.pruning = inner, score, settings, pruning

    def fit(self, data: Any, rng: Rng) -> OutlierScreen:
        train, calibration = parted(OUTLIERS, data)
        inner = self.inner.fit(train, rng)
        return outlier_screen(
            inner, self.score, self.settings, self.pruning, train, calibration, rng
        )

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        raise untrained(OUTLIERS)

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        raise untrained(OUTLIERS)


@dataclass(frozen=True)
class OutlierScreen:
    """A predictor with the scores of its calibration rows."""

    inner: Any
    strange: Strangeness
    near: Covariates
    settings: Nearness
    pruning: bool
    scores: np.ndarray
    covariates: np.ndarray
    learned_from: frozenset[bytes] = frozenset()

    @property
    def n_features_in_(self) -> int:
        return int(self.inner.n_features_in_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return what the wrapped predictor says."""
        found: np.ndarray = self.inner.predict(inputs)
        return found

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return p-values and flags of rows asked together, each (n,)."""
        found = outlier_test(
            self.scores,
            self.covariates,
            self.strange(inputs, targets),
            self.near(inputs),
            alpha=alpha,
            bandwidth=self.settings.width(),
            pruning=self.pruning and self.settings.localized,
            rng=rng,
        )
        return found.p_values, found.flagged


def outlier_screen(
    inner: Any,
    score: Score,
    settings: Nearness,
    pruning: bool,
    train: Examples,
    calibration: Examples,
    rng: Rng,
) -> OutlierScreen:
    """Return a trained predictor, calibrated."""
    near = Covariates(OUTLIERS, settings, train.inputs)
    strange = strangeness(OUTLIERS, score, inner, train, rng.child("strangeness"))
    targets = None if score == "detector" else calibration.targets
    scores = finite(OUTLIERS, strange(calibration.inputs, targets))
    seen = frozenset(train.ids) | frozenset(calibration.ids) | _learned(inner)
    return OutlierScreen(
        inner, strange, near, settings, pruning, scores, near(calibration.inputs), seen
    )


class LabelLearner:
    """Learns one classifier a label on train rows and calibrates on calibration rows."""

    learns_from = LEARNS_FROM

    def __init__(self, inner: Any, settings: Nearness) -> None:
        self.inner, self.settings = inner, settings

    def fit(self, data: Any, rng: Rng) -> LabelScreener:
        train, calibration = parted(LABELS, data)
        model = self.classifier(train, rng)
        return label_screener(model, self.settings, train, calibration)

    def classifier(self, train: Examples, rng: Rng) -> Any:
        """Return what gives the probability of each label, trained."""
        if train.targets.ndim == 1:
            return self.inner.fit(train, rng)
        models = []
        for k, label in enumerate(train.targets.T):
            if len(np.unique(label)) < 2:
                raise UsageError(
                    f"{LABELS}: label {k} is alike in all {len(label)} train rows; nothing can be "
                    f"learned about it, so leave it out or give more rows."
                )
            rows = Examples(train.inputs, label, train.split, train.group)
            models.append(self.inner.fit(rows, rng.child("label", k)))
        return OnePerLabel(tuple(models))

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        raise untrained(LABELS)


@dataclass(frozen=True)
class OnePerLabel:
    """A classifier of 0 and 1 for each label, asked together."""

    models: tuple[Any, ...]

    @property
    def classes_(self) -> np.ndarray:
        return np.arange(len(self.models))

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        """Return the probability of each label, (n, labels)."""
        every = [_proba(model, inputs)[:, _place(model)] for model in self.models]
        return np.column_stack(every)


@dataclass(frozen=True)
class LabelScreener:
    """A classifier with the probabilities it gives calibration rows."""

    inner: Any
    near: Covariates
    settings: Nearness
    probabilities: np.ndarray
    labels: np.ndarray
    covariates: np.ndarray
    learned_from: frozenset[bytes] = frozenset()

    @property
    def classes_(self) -> np.ndarray:
        """Names of the labels, in the order of the columns of `screen`."""
        return np.asarray(self.inner.classes_)

    @property
    def n_features_in_(self) -> int:
        return int(self.inner.n_features_in_)

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        """Return what the wrapped classifier says, (n, labels)."""
        found: np.ndarray = self.inner.predict_proba(inputs)
        return found

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return p-values and declarations, each (n, labels); ``targets`` are not used."""
        found = label_screen(
            self.probabilities,
            self.labels,
            self.covariates,
            _proba(self.inner, inputs),
            self.near(inputs),
            alpha=alpha,
            bandwidth=self.settings.width(),
            rng=rng,
        )
        return found.p_values, found.declared


def label_screener(
    inner: Any, settings: Nearness, train: Examples, calibration: Examples
) -> LabelScreener:
    """Return a trained classifier, calibrated."""
    near = Covariates(LABELS, settings, train.inputs)
    g, targets = _proba(inner, calibration.inputs), calibration.targets
    labels = targets if targets.ndim == 2 else targets[:, None] == np.asarray(inner.classes_)
    seen = frozenset(train.ids) | frozenset(calibration.ids) | _learned(inner)
    return LabelScreener(inner, near, settings, g, labels, near(calibration.inputs), seen)


def _learned(inner: Any) -> frozenset[bytes]:
    found: frozenset[bytes] = getattr(inner, "learned_from", frozenset())
    return found


def _proba(inner: Any, inputs: np.ndarray) -> np.ndarray:
    if not isinstance(inner, PredictsProba):
        raise UsageError(
            f"{LABELS}: it needs a classifier that gives probabilities; {type(inner).__name__} "
            f"does not."
        )
    return np.asarray(inner.predict_proba(np.asarray(inputs, np.float64)), np.float64)


def _place(model: Any) -> int:
    """Return the column of the class that says a label holds."""
    known = np.asarray(model.classes_).tolist()
    for true in (1, True, 1.0):
        if true in known:
            return int(known.index(true))
    raise UsageError(f"{LABELS}: labels must be true or false, or 1 or 0, got {known}.")


def _values(who: str, targets: np.ndarray | None) -> np.ndarray:
    if targets is None:
        raise UsageError(f"{who}: this score compares values; give the targets of the rows too.")
    found = np.asarray(targets)
    if found.dtype.kind not in "biuf" or found.ndim != 1 or not np.isfinite(found).all():
        raise UsageError(f"{who}: targets must be one finite number a row.")
    return found.astype(np.float64)
