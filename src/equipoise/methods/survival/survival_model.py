"""Models of times to an event that may be cut short: those of lifelines and scikit-survival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    Predicts,
    PredictsQuantiles,
    PredictsSurvival,
    Rng,
    Subject,
    Task,
    Trains,
    Unit,
    UsageError,
    learnable,
)
from equipoise.kit.about import annotate
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.kit.arrays.survival import check_grid, check_levels, times_and_events
from equipoise.kit.data.objects import named_object, source_hash
from equipoise.methods.survival._fitted import (
    LIFELINES,
    Fitted,
    fit_estimator_of_sksurv,
    fit_lifelines,
    known,
    sksurv_maker,
)


@dataclass(frozen=True)
class SurvivalModel(Subject):
    r"""A survival model by name, of lifelines or scikit-survival.

    It learns from units whose target is time and event, as those of the task ``survival``. It
    comes trained when ``data`` is given; otherwise the treatment ``train`` trains it. Trained, it
    gives curves $P(T > t \mid x)$ and quantiles of $T$ given $x$, which are infinite where a curve
    does not fall so far; its plain prediction is the median. Features that are constant or
    collinear in the training rows are refused by the models of lifelines.

    Parameters
    ----------
    model
        Of lifelines: ``CoxPHFitter``, ``LogNormalAFTFitter``, ``WeibullAFTFitter``,
        ``LogLogisticAFTFitter``. Of scikit-survival (a
        package of its own): ``RandomSurvivalForest``, ``ExtraSurvivalTrees``, ``SurvivalTree``,
        ``CoxPHSurvivalAnalysis``, ``CoxnetSurvivalAnalysis``,
        ``GradientBoostingSurvivalAnalysis``, ``ComponentwiseGradientBoostingSurvivalAnalysis``.
        Or the import path of a class with scikit-survival's interface.
    parameters
        What it is made with. A ``random_state`` left open is drawn from the trial's seed.
    scale
        Bring features to mean 0 and variance 1 first, by the training rows.
    data
        Task whose ``train`` units it learns from.

    Examples
    --------
    >>> from equipoise.methods.survival import Survival
    >>> live = SurvivalModel("WeibullAFTFitter", data=Survival("builtin:rossi")).load(Rng(0))
    >>> live.predict_survival(np.array([[0, 27, 1, 0, 0, 1, 3.0]]), np.array([10.0, 52.0])).round(2)
    array([[0.96, 0.7 ]])
    """

    model: str = "CoxPHFitter"
    parameters: Mapping[str, Any] | None = None
    scale: bool = False
    data: Task | None = None

    provides = frozenset({Predicts, PredictsQuantiles, PredictsSurvival, Trains})

    def check(self) -> None:
        if not self._own:
            known(self.model)

    def content(self) -> Any:
        return source_hash(self.model) if self._own else None

    @property
    def _own(self) -> bool:
        return any(mark in self.model for mark in ".:")

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.survival.survival import Survival

        return cls("WeibullAFTFitter", data=Survival.tiny())

    def load(self, rng: Rng) -> Any:
        bare = SurvivalLearner(self.model, self.parameters, scale=self.scale)
        if self.data is None:
            return bare
        return bare.fit(learnable(self.data, rng.child("data")), rng)


class SurvivalLearner:
    """A survival model as a live subject, yet to be trained.

    Parameters
    ----------
    model, parameters, scale
        As in `SurvivalModel`.

    Examples
    --------
    >>> bare = SurvivalLearner("LogNormalAFTFitter")
    >>> data = Examples(np.arange(1.0, 9).reshape(-1, 1), np.array([[t, 1] for t in range(1, 9)]))
    >>> bare.fit(data, Rng(0)).predict(np.array([[4.0]])).round(1)
    array([3.3])
    """

    def __init__(
        self, model: str, parameters: Mapping[str, Any] | None = None, *, scale: bool = False
    ) -> None:
        self.model, self.parameters, self.scale = model, dict(parameters or {}), scale

    def fit(self, data: Iterable[Unit] | Examples, rng: Rng) -> TrainedSurvival:
        """Return a predictor that has learned from units, or from arrays."""
        found = examples(data).of("train")
        if not len(found):
            raise UsageError(f"{self.model}: there are no train rows to learn from.")
        inputs = _rows(found.inputs, self.model)
        times, events = times_and_events(found.targets, self.model)
        if not events.any():
            raise UsageError(
                f"{self.model}: the time of every one of {len(events)} training rows is cut short, "
                f"so there is no event to learn from."
            )
        middle, spread = np.zeros(inputs.shape[1]), np.ones(inputs.shape[1])
        if self.scale:
            middle, spread = inputs.mean(axis=0), inputs.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
        model, notes = self._fitted((inputs - middle) / spread, times, events, rng)
        made = TrainedSurvival(self, model, middle, spread, frozenset(found.ids))
        return annotate(made, notes=notes) if notes else made

    def _fitted(
        self, inputs: np.ndarray, times: np.ndarray, events: np.ndarray, rng: Rng
    ) -> tuple[Fitted, list[str]]:
        if self.model in LIFELINES:
            return fit_lifelines(self.model, self.parameters, inputs, times, events)
        own = any(mark in self.model for mark in ".:")
        maker = named_object(self.model) if own else sksurv_maker(self.model)
        made = fit_estimator_of_sksurv(
            self.model, maker, self.parameters, inputs, times, events, rng
        )
        return made, []

    def with_parameters(self, parameters: Mapping[str, Any]) -> SurvivalLearner:
        """Return the same model, untrained, with some parameters changed."""
        return SurvivalLearner(self.model, self.parameters | dict(parameters), scale=self.scale)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        raise self._not_trained()

    def predict_quantiles(self, inputs: np.ndarray, levels: Sequence[float]) -> np.ndarray:
        raise self._not_trained()

    def predict_survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        raise self._not_trained()

    def _not_trained(self) -> UsageError:
        return UsageError(f"{self.model} has not been trained; use the treatment train.")


class TrainedSurvival(SurvivalLearner):
    """A trained survival model; ``learned_from`` holds the digests of its training rows."""

    def __init__(
        self,
        bare: SurvivalLearner,
        fitted: Fitted,
        middle: np.ndarray,
        spread: np.ndarray,
        learned_from: frozenset[bytes],
    ) -> None:
        super().__init__(bare.model, bare.parameters, scale=bare.scale)
        self.fitted, self.n_features_in_, self.learned_from = fitted, len(middle), learned_from
        self._middle, self._spread = middle, spread

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the median time ``(n,)``, infinite where the curve stays above one half."""
        return self.predict_quantiles(inputs, [0.5])[:, 0]

    def predict_quantiles(self, inputs: np.ndarray, levels: npt.ArrayLike) -> np.ndarray:
        """Return quantiles of the time, ``(n, levels)``."""
        rows, tau = self._asked(inputs), check_levels(levels, self.model)
        return self.fitted.quantiles(rows, tau) if len(rows) else np.empty((0, len(tau)))

    def predict_survival(self, inputs: np.ndarray, times: npt.ArrayLike) -> np.ndarray:
        """Return $P(T > t)$ ``(n, times)`` at times that rise."""
        rows, grid = self._asked(inputs), check_grid(times, self.model)
        return self.fitted.survival(rows, grid) if len(rows) else np.empty((0, len(grid)))

    def _asked(self, inputs: np.ndarray) -> np.ndarray:
        rows = _rows(inputs, self.model)
        if rows.shape[1] != self.n_features_in_:
            raise UsageError(
                f"{self.model} learned from {self.n_features_in_} features, got {rows.shape[1]}."
            )
        return np.asarray((rows - self._middle) / self._spread)


def _rows(inputs: np.ndarray, who: str) -> np.ndarray:
    rows = np.asarray(inputs, float)
    if rows.ndim != 2:
        raise UsageError(f"{who}: inputs must be (rows, features), got shape {rows.shape}.")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise UsageError(f"{who}: feature {column} of row {row} is not a finite number.")
    return rows
