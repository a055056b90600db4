"""Survival models with calibrated lower bounds, as live subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.core import Predicts, PredictsSurvival, Rng, Split, Trains, Unit, UsageError
from equipoise.kit.about import about, annotate
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.methods.survival.calibrate_survival import ConformalSurvival

if TYPE_CHECKING:
    from equipoise.methods.survival.calibrate_survival import CalibrateSurvival


def learner(inner: Any, how: CalibrateSurvival) -> Any:
    """Return a learner that trains the inner one and then calibrates it."""
    return _kind(inner)(inner, how, None, frozenset())


def calibrated(inner: Any, how: CalibrateSurvival, data: Examples, rng: Rng) -> Any:
    """Return a trained model with bounds; its classifiers learn from the train rows."""
    train, calibration = data.of("train"), data.of("calibration")
    if not len(train) or not len(calibration):
        lacking = "calibration" if len(train) else "train"
        raise UsageError(
            f"CalibrateSurvival: there are no {lacking} rows; give the task a {lacking} split."
        )
    bound = ConformalSurvival(
        inner.predict_quantiles,
        how.method,
        levels=how.levels,
        failsafe=how.failsafe,
        random_state=rng.seed_for_request(),
    )
    bound.fit(train.inputs, train.targets).conformalize(calibration.inputs, calibration.targets)
    learned = frozenset(train.ids) | frozenset(calibration.ids)
    learned |= getattr(inner, "learned_from", frozenset())
    made = _kind(inner)(inner, how, bound, learned)
    said = about(inner)
    notes = [*said["notes"], *_notes(how, bound, calibration)]
    rates = [list(pair) for pair in zip(bound.grid_.tolist(), bound.rates_.tolist(), strict=True)]
    return annotate(made, notes=notes, curves=said["curves"] | {"miss rate by level": rates})


def _notes(how: CalibrateSurvival, bound: ConformalSurvival, calibration: Examples) -> list[str]:
    n, found = len(calibration), []
    if how.method == "none":
        return ["Its lower bounds are the model's own quantiles, not calibrated."]
    if not bound.weights_.sum():
        found.append(
            f"None of {n} calibration rows has the event, so that the focused rate cannot be told "
            f"and is taken as 1."
        )
    elif how.method != "naive":
        found.append(
            f"The focused weights of {n} calibration rows are worth {bound.effective_size_:.0f} "
            f"equal ones."
        )
    if bound.clipped_:
        found.append(
            f"{bound.clipped_} of {n} calibration rows had the event with a probability below "
            f"0.02, which was taken as 0.02."
        )
    if bound.beyond_:
        found.append(
            f"At the median, {bound.beyond_} of {n} calibration rows have a quantile beyond the "
            f"model's curve; the longest training time stands in for such."
        )
    return found


class _Bounded:
    """Quantiles of the inner model, and lower bounds once it is trained and calibrated."""

    learns_from: tuple[Split, ...] = ("train", "calibration")

    def __init__(
        self,
        inner: Any,
        how: CalibrateSurvival,
        bound: ConformalSurvival | None,
        learned_from: frozenset[bytes],
    ) -> None:
        self.inner, self.how, self.bound, self.learned_from = inner, how, bound, learned_from

    @property
    def n_features_in_(self) -> int | None:
        return getattr(self.inner, "n_features_in_", None)

    def fit(self, data: Iterable[Unit] | Examples, rng: Rng) -> Any:
        """Train the inner model on train rows, then calibrate on calibration rows."""
        if not isinstance(self.inner, Trains):
            raise UsageError("CalibrateSurvival: this model cannot be trained; give data instead.")
        found = examples(data)
        inner = self.inner.fit(found.of("train"), rng.child("inner"))
        return calibrated(inner, self.how, found, rng.child("calibration"))

    def with_parameters(self, parameters: Mapping[str, Any]) -> Any:
        """Return the same learner, untrained, around a model with some parameters changed."""
        if not hasattr(self.inner, "with_parameters"):
            raise UsageError("CalibrateSurvival: this model's parameters cannot be changed.")
        return learner(self.inner.with_parameters(parameters), self.how)

    def predict_quantiles(self, inputs: np.ndarray, levels: Any) -> np.ndarray:
        return np.asarray(self.inner.predict_quantiles(inputs, levels))

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        """Return ``(n, 2)``: the lower bound, and infinity."""
        return self._trained().predict_interval(inputs, alpha)

    def chosen_level(self, alpha: float) -> float:
        """Return the level whose quantile is the bound; 0 where there is none."""
        return self._trained().chosen_level(alpha) or 0.0

    def _trained(self) -> ConformalSurvival:
        if self.bound is None:
            raise UsageError(
                "CalibrateSurvival: the model has not been trained and calibrated; use the "
                "treatment train after it, or give data to calibrate a trained model."
            )
        return self.bound


class _Predicting(_Bounded):
    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.inner.predict(inputs))


class _WithCurves(_Bounded):
    def predict_survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        return np.asarray(self.inner.predict_survival(inputs, times))


class _PredictingWithCurves(_Predicting, _WithCurves):
    pass


def _kind(inner: Any) -> type[_Bounded]:
    kinds = {
        (False, False): _Bounded, (True, False): _Predicting,
        (False, True): _WithCurves, (True, True): _PredictingWithCurves,
    }  # fmt: skip
    return kinds[isinstance(inner, Predicts), isinstance(inner, PredictsSurvival)]
