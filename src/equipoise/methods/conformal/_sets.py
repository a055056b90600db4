"""Live learners that put a conformal set of labels around what a classifier says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import sklearn.base

from equipoise.core import Rng, Trains, UnitError, UsageError
from equipoise.kit.arrays.conformal import checked_alphas, conformal_quantile
from equipoise.kit.arrays.examples import Examples
from equipoise.kit.data.source import one_line
from equipoise.methods.conformal._rows import LEARNS_FROM, finite, parted, untrained

SetScore = Literal["lac", "aps", "raps", "top_k"]

_WHO = "conformal_set"
_LEAST = 1e-6  # added to every probability that MAPIE sees, which takes 1e-8 for nothing
_RAPS_SHARE = 0.1  # of the calibration rows, on which MAPIE chooses how to penalize


class Learner:
    """Learns on train rows and calibrates on calibration rows; until then it refuses."""

    learns_from = LEARNS_FROM

    def __init__(self, inner: Any, score: SetScore) -> None:
        self.inner, self.score = inner, score

    def fit(self, data: Any, rng: Rng) -> Calibrated:
        """Return the trained and calibrated classifier."""
        train, calibration = parted(_WHO, data)
        inner = self.inner.fit(train, rng)
        if not hasattr(inner, "predict_proba"):
            raise UsageError(
                f"{_WHO}: the subject gives no probabilities; take a classifier with predict_proba."
            )
        return calibrated(inner, calibration, self.score, rng, train.ids)

    def with_parameters(self, parameters: Mapping[str, Any]) -> Learner:
        """Return the same with parameters of the inner learner changed."""
        return Learner(self.inner.with_parameters(parameters), self.score)

    @property
    def classes_(self) -> np.ndarray:
        raise untrained(_WHO)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        raise untrained(_WHO)

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        raise untrained(_WHO)

    def predict_set(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        raise untrained(_WHO)


class Calibrated:
    """A classifier with its calibration rows, so that any alpha can be asked."""

    def __init__(
        self,
        inner: Any,
        rows: Examples,
        score: SetScore,
        rng: Rng,
        learned_from: frozenset[bytes] = frozenset(),
    ) -> None:
        self.inner, self.score, self.learned_from = inner, score, learned_from
        self._labels = rows.targets
        self._given = self._probabilities(rows.inputs)
        finite(_WHO, self._given.sum(axis=1))
        self._seed = rng.child(_WHO).seed_for_request()
        self._made: dict[float, Any] = {}
        if score == "lac":
            self._scores = lac_scores(self._given, self._labels, self.classes_)
        else:
            self._refuse_strangers()

    @property
    def n_features_in_(self) -> int:
        return int(self.inner.n_features_in_)

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.inner.classes_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return what the wrapped classifier says."""
        found: np.ndarray = self.inner.predict(inputs)
        return found

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        """Return the wrapped classifier's probabilities."""
        found: np.ndarray = self.inner.predict_proba(inputs)
        return found

    def predict_set(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        """Return ``(n, classes)``; too few calibration rows for alpha are refused."""
        (level,) = checked_alphas(alpha).tolist()
        inputs = np.asarray(inputs, np.float64)
        if not len(inputs):
            return np.empty((0, len(self.classes_)), bool)
        given = self._probabilities(inputs)
        if self.score == "lac":
            margin = conformal_quantile(self._scores, level, too_small="refuse")
            inside: np.ndarray = -given <= margin
            return inside
        n = len(self._given)
        rows = math.ceil(_RAPS_SHARE * n) if self.score == "raps" else n
        needed = 1 + math.floor(max(1 / level, 1 / (1 - level)))  # as MAPIE counts
        if rows < needed:
            raise UsageError(
                f"{_WHO}: {self.score} calibrates on {rows:,} of {n:,} rows, too few for alpha "
                f"{level:g}: at least {needed:,} are needed."
            )
        sets: np.ndarray = self._asked(level).predict_set(_spread_out(given))[1][:, :, 0]
        return sets

    def _asked(self, alpha: float) -> Any:
        """Return MAPIE's classifier for one error rate, calibrated once."""
        if alpha not in self._made:
            made = _mapie()(
                _Given(self.classes_),
                confidence_level=1 - alpha,
                conformity_score=self.score,
                random_state=self._seed,
            )
            try:
                with warnings.catch_warnings():
                    # That calibration rows lack a class is no fault.
                    warnings.filterwarnings("ignore", message=".*less labels")
                    made.conformalize(_spread_out(self._given), self._labels)
            except ValueError as error:
                raise UsageError(
                    f"{_WHO}: {self.score} cannot be calibrated on these {len(self._given):,} "
                    f"rows ({one_line(error)}); lac can."
                ) from error
            self._made[alpha] = made
        return self._made[alpha]

    def _refuse_strangers(self) -> None:
        strange = sorted(set(self._labels.tolist()) - set(self.classes_.tolist()))
        if strange:
            raise UsageError(
                f"{_WHO}: calibration rows have the class {strange[0]!r}, which the subject has "
                f"not learned; give more train rows, or take the score lac."
            )

    def _probabilities(self, inputs: np.ndarray) -> np.ndarray:
        found = np.asarray(self.inner.predict_proba(inputs), np.float64)
        if found.shape != (len(inputs), len(self.classes_)):
            raise UnitError(
                f"The subject gave probabilities of shape {found.shape} for {len(inputs)} rows "
                f"and {len(self.classes_)} classes.",
                "garbage",
            )
        return found


class Retrainable(Calibrated):
    """A calibrated classifier whose inner one can learn anew."""

    learns_from = LEARNS_FROM

    def fit(self, data: Any, rng: Rng) -> Calibrated:
        """Return one that has learned and calibrated anew."""
        return Learner(self.inner, self.score).fit(data, rng)


def calibrated(
    inner: Any, rows: Examples, score: SetScore, rng: Rng, learned: tuple[bytes, ...] = ()
) -> Calibrated:
    """Return the live subject around a trained classifier."""
    kind = Retrainable if isinstance(inner, Trains) else Calibrated
    seen = frozenset(learned) | frozenset(rows.ids) | getattr(inner, "learned_from", frozenset())
    return kind(inner, rows, score, rng, seen)


def lac_scores(probabilities: np.ndarray, labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the probability of the right label, negative; 0 for a label not among ``classes``.

    It ranks as 1 less the probability does, but does not round the smallest ones together.
    """
    place = {name: index for index, name in enumerate(classes.tolist())}
    columns = np.array([place.get(each, -1) for each in labels.tolist()])
    held = probabilities[np.arange(len(labels)), columns]
    found: np.ndarray = -np.where(columns >= 0, held, 0.0)
    return found


def _spread_out(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities none of which is next to nothing.

    MAPIE adds labels up until 1 is reached to within 1e-8, and leaves out the rest. Of a classifier
    that is too sure, right labels are among that rest more often than alpha allows.
    """
    found: np.ndarray = probabilities + _LEAST
    found /= found.sum(axis=1, keepdims=True)
    return found


class _Given(sklearn.base.ClassifierMixin, sklearn.base.BaseEstimator):  # type: ignore[misc]
    """A classifier whose inputs are the probabilities themselves."""

    def __init__(self, classes: np.ndarray) -> None:
        self.classes = classes
        self.classes_ = classes

    def fit(self, X: Any, y: Any) -> _Given:
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        labels: np.ndarray = self.classes_[np.argmax(X, axis=1)]
        return labels


def _mapie() -> Any:
    try:
        from mapie.classification import SplitConformalClassifier
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{_WHO}: the scores aps, raps and top_k need the package mapie: pip install "
            f"'equipoise[conformal]'."
        ) from error
    return SplitConformalClassifier
