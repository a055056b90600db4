r"""Live learners that put a conformal interval around what another one predicts.

Every score is one formula. A band gives :math:`l(x) \le u(x)` and a scale :math:`\sigma(x) > 0`;
the score of a row is :math:`\max(l(x) - y, y - u(x)) / \sigma(x)`, and the interval
:math:`[l(x) - q \sigma(x), u(x) + q \sigma(x)]` with :math:`q` the conformal quantile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import sklearn.base

from equipoise.core import PredictsQuantiles, Rng, Trains, UsageError
from equipoise.kit.arrays.conformal import checked_alphas, conformal_quantile
from equipoise.kit.arrays.examples import Examples, column_of
from equipoise.kit.arrays.learners import fit_estimator
from equipoise.methods.conformal._rows import LEARNS_FROM, finite, parted, untrained

Score = Literal["absolute", "normalized", "quantile"]
SCORES = ("absolute", "normalized", "quantile")

_WHO = "conformal_interval"
_FOLDS = 5
_LEAST_SPREAD = 1e-3  # of the mean residual: no row's interval shrinks to nothing


@dataclass(frozen=True)
class Settings:
    """What kind of interval; the parameters of `ConformalInterval` and `ConformalRegressor`."""

    score: Score = "absolute"
    nominal: float = 0.1
    group: int | None = None
    residual_estimator: Any = None
    quantile_estimator: Any = None


class Band(Protocol):
    """Lower end, upper end and scale of each row; ``per_alpha`` where they depend on alpha."""

    per_alpha: bool

    def __call__(
        self, inputs: np.ndarray, alpha: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]: ...


class _Point:
    """A prediction as a band without width, scaled by ``spread`` where there is one."""

    per_alpha = False

    def __init__(self, inner: Any, spread: Spread | None = None) -> None:
        self._inner, self._spread = inner, spread

    def __call__(
        self, inputs: np.ndarray, alpha: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        point = column_of(self._inner.predict(inputs), len(inputs))
        scale = 1.0 if self._spread is None else self._spread.predict(inputs)
        return point, point, scale


class _Fitted:
    """Two quantile models, fitted for one error rate; calibration makes any other of them."""

    per_alpha = False

    def __init__(self, lower: Any, upper: Any) -> None:
        self.lower, self.upper = lower, upper

    def __call__(
        self, inputs: np.ndarray, alpha: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        ends = (column_of(each.predict(inputs), len(inputs)) for each in (self.lower, self.upper))
        low, high = ends
        if (low > high).any():
            low, high = np.minimum(low, high), np.maximum(low, high)
        return low, high, 1.0


class _Asked:
    """A subject's own quantiles, asked anew for every error rate."""

    per_alpha = True

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(
        self, inputs: np.ndarray, alpha: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
        found = np.asarray(self._inner.predict_quantiles(inputs, (alpha / 2, 1 - alpha / 2)), float)
        return found[:, 0], found[:, 1], 1.0


class Spread:
    """How far a prediction is off, as a model of the absolute residuals; always positive."""

    def __init__(self, model: Any, floor: float) -> None:
        self._model, self._floor = model, floor

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the scale of each row."""
        if self._floor == 0:  # no residual at all: every row is alike
            return np.ones(len(inputs))
        found: np.ndarray = np.maximum(self._model.predict(inputs), self._floor)
        return found


class Learner:
    """Learns on train rows and calibrates on calibration rows; until then it refuses."""

    learns_from = LEARNS_FROM

    def __init__(self, inner: Any, settings: Settings) -> None:
        self.inner, self.settings = inner, settings

    def fit(self, data: Any, rng: Rng) -> Calibrated:
        """Return the trained and calibrated predictor."""
        train, calibration = parted(_WHO, data)
        numbers(train), numbers(calibration)
        inner = self.inner.fit(train, rng)
        band = band_of(self.settings, inner, train, rng, learner=self.inner)
        return calibrated(inner, band, calibration, self.settings, train.ids)

    def with_parameters(self, parameters: Mapping[str, Any]) -> Learner:
        """Return the same with parameters of the inner learner changed."""
        return Learner(self.inner.with_parameters(parameters), self.settings)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        raise untrained(_WHO)

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        raise untrained(_WHO)


class Calibrated:
    """A predictor with the scores of its calibration rows, so that any alpha can be asked."""

    def __init__(
        self,
        inner: Any,
        band: Band,
        inputs: np.ndarray,
        targets: np.ndarray,
        settings: Settings,
        learned_from: frozenset[bytes] = frozenset(),
    ) -> None:
        self.inner, self.band, self.settings = inner, band, settings
        self.learned_from = learned_from
        self._inputs, self._targets = inputs, targets
        self._groups = None if settings.group is None else self._group(inputs)
        self._scores: dict[float | None, np.ndarray] = {}
        if not band.per_alpha:
            self._scores[None] = self._score(settings.nominal)
            self._inputs, self._targets = inputs[:0], targets[:0]  # the scores tell the rest

    @property
    def n_features_in_(self) -> int:
        return int(self.inner.n_features_in_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return what the wrapped predictor says."""
        found: np.ndarray = self.inner.predict(inputs)
        return found

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        """Return ``(n, 2)``; too few calibration rows for alpha are refused."""
        ends: np.ndarray = self.predict_intervals(inputs, checked_alphas(alpha).tolist())[1]
        return ends[:, :, 0]

    def predict_intervals(
        self, inputs: np.ndarray, alphas: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return points ``(n,)`` and intervals ``(n, 2, levels)``; the model is asked once."""
        inputs = np.asarray(inputs, np.float64)
        if not len(inputs):
            return np.empty(0), np.empty((0, 2, len(alphas)))
        bands = [self.band(inputs, a) for a in (alphas if self.band.per_alpha else alphas[:1])]
        low, high, _ = bands[0]
        points = low if low is high else self.predict(inputs)
        bands = bands if self.band.per_alpha else bands * len(alphas)
        margins = self._margins(inputs, alphas)
        ends = [_drawn(band, margins[place]) for place, band in enumerate(bands)]
        return points, np.stack(ends, axis=2)

    def scores(self, alpha: float | None = None) -> np.ndarray:
        """Return the calibration scores; ``alpha`` counts for a subject's own quantiles only."""
        key = alpha if self.band.per_alpha else None
        if key not in self._scores:
            self._scores[key] = self._score(self.settings.nominal if key is None else key)
        return self._scores[key]

    def _score(self, alpha: float) -> np.ndarray:
        low, high, scale = self.band(self._inputs, alpha)
        if low is high:
            apart = self._targets - low
            np.abs(apart, out=apart)
        else:
            apart = low - self._targets
            np.maximum(apart, self._targets - high, out=apart)
        return finite(_WHO, apart if isinstance(scale, float) else apart / scale)

    def _margins(self, inputs: np.ndarray, alphas: Sequence[float]) -> Sequence[Any]:
        """Return how far intervals reach at each error rate: a number, or one for each row."""
        if self._groups is None and not self.band.per_alpha:
            quantiles = conformal_quantile(self.scores(), alphas, too_small="refuse")
            found: list[float] = np.atleast_1d(quantiles).tolist()
            return found
        return [self._margin(inputs, alpha) for alpha in alphas]

    def _margin(self, inputs: np.ndarray, alpha: float) -> float | np.ndarray:
        scores = self.scores(alpha)
        if self._groups is None:
            return float(conformal_quantile(scores, alpha, too_small="refuse"))
        margin = np.full(len(inputs), np.inf)  # a group without calibration rows
        asked = self._group(inputs)
        for group in np.intersect1d(asked, self._groups):
            margin[asked == group] = conformal_quantile(scores[self._groups == group], alpha)
        return margin

    def _group(self, inputs: np.ndarray) -> np.ndarray:
        place = self.settings.group
        assert place is not None
        if place >= inputs.shape[1]:
            raise UsageError(
                f"{_WHO}: group must be the place of a feature, from 0 to {inputs.shape[1] - 1}, "
                f"got {place}."
            )
        found: np.ndarray = inputs[:, place]
        return found


def _drawn(
    band: tuple[np.ndarray, np.ndarray, np.ndarray | float], margin: float | np.ndarray
) -> np.ndarray:
    """Return ``(n, 2)``: a band moved out by a margin, or in."""
    low, high, scale = band
    reach = margin * scale
    low, high = low - reach, high + reach
    # A band wider than alpha needs is drawn in; where its ends would cross, they meet.
    crossed = low > high
    if crossed.any():
        middle = low + (high - low) / 2
        low, high = np.where(crossed, middle, low), np.where(crossed, middle, high)
    return np.stack([low, high], axis=1)


class Retrainable(Calibrated):
    """A calibrated predictor whose inner one can learn anew."""

    learns_from = LEARNS_FROM

    def fit(self, data: Any, rng: Rng) -> Calibrated:
        """Return one that has learned and calibrated anew."""
        return Learner(self.inner, self.settings).fit(data, rng)


def calibrated(
    inner: Any, band: Band, rows: Examples, settings: Settings, learned: tuple[bytes, ...] = ()
) -> Calibrated:
    """Return the live subject around a trained predictor and its band."""
    kind = Retrainable if isinstance(inner, Trains) else Calibrated
    seen = frozenset(learned) | frozenset(rows.ids) | getattr(inner, "learned_from", frozenset())
    return kind(inner, band, rows.inputs, numbers(rows), settings, seen)


def band_of(settings: Settings, inner: Any, train: Examples, rng: Rng, learner: Any = None) -> Band:
    """Return the band of a trained predictor.

    For ``normalized``, residuals come from rows that the predictor has not seen: with
    ``learner``, copies of it that each leave out a fifth of ``train``; without, ``train``
    must be unseen.
    """
    if settings.score == "absolute":
        return _Point(inner)
    if settings.score == "quantile":
        if isinstance(inner, PredictsQuantiles):
            return _Asked(inner)
        lower, upper = (
            fit_estimator(
                _at_quantile(settings.quantile_estimator, level), train.inputs, numbers(train),
                rng.child("quantile", name),
            )
            for name, level in (("low", settings.nominal / 2), ("high", 1 - settings.nominal / 2))
        )  # fmt: skip
        return _Fitted(lower, upper)
    said = (
        column_of(inner.predict(train.inputs), len(train))
        if learner is None
        else _out_of_fold(learner, train, rng.child("folds"))
    )
    residuals = np.abs(numbers(train) - finite(_WHO, said))
    return _Point(inner, spread(train.inputs, residuals, settings, rng.child("spread")))


def spread(inputs: np.ndarray, residuals: np.ndarray, settings: Settings, rng: Rng) -> Spread:
    """Return a model of absolute residuals, by default boosted trees under a gamma law."""
    floor = _LEAST_SPREAD * float(residuals.mean())
    if floor == 0:
        return Spread(None, 0.0)
    model = settings.residual_estimator
    if model is None:
        model = _trees(loss="gamma", max_iter=50, max_leaf_nodes=4)
    return Spread(fit_estimator(model, inputs, np.maximum(residuals, floor), rng), floor)


def _out_of_fold(learner: Any, train: Examples, rng: Rng) -> np.ndarray:
    folds = min(_FOLDS, len(train))
    if folds < 2:
        raise UsageError(f"{_WHO}: normalized needs at least 2 train rows, got {len(train)}.")
    fold = rng.numpy().permutation(len(train)) % folds
    said = np.empty(len(train))
    for each in range(folds):
        here = fold == each
        found = learner.fit(train.take(~here), rng.child(each)).predict(train.inputs[here])
        said[here] = column_of(found, int(here.sum()))
    return said


def _at_quantile(estimator: Any, level: float) -> Any:
    """Return an unfitted regressor of one quantile."""
    if estimator is None:
        return _trees(loss="quantile", quantile=level)
    made = sklearn.base.clone(estimator)
    known = made.get_params()
    name = next((each for each in ("quantile", "alpha") if each in known), None)
    if name is None:
        raise UsageError(
            f"{_WHO}: {type(estimator).__name__} has neither quantile nor alpha to say which "
            f"quantile it estimates."
        )
    loss = {"loss": "quantile"} if "loss" in known else {}
    return made.set_params(**loss, **{name: level})


def _trees(**parameters: Any) -> Any:
    from sklearn.ensemble import (
        HistGradientBoostingRegressor,
    )  # its import moves a global generator

    return HistGradientBoostingRegressor(**parameters)


def numbers(rows: Examples) -> np.ndarray:
    """Return the targets as ``(n,)`` finite numbers."""
    if rows.targets.dtype.kind not in "biuf":
        raise UsageError(f"{_WHO}: targets must be numbers; for classes there is conformal_set.")
    found = np.asarray(rows.targets, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise UsageError(f"{_WHO}: targets must be one finite number a row.")
    return found
