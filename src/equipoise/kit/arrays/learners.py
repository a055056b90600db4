"""Learners with scikit-learn's interface, as live subjects: untrained and fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import sklearn.base
from sklearn.exceptions import NotFittedError

from equipoise.core import Rng, Unit, UsageError, nearest
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.kit.data.source import one_line


def fit_estimator(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray, rng: Rng, *, scale: bool = False
) -> Any:
    """Return a fitted copy of an estimator; the one given stays as it is.

    Parameters
    ----------
    estimator
        Anything with scikit-learn's ``get_params`` and ``fit``.
    inputs, targets
        ``(n, features)`` and ``(n,)``.
    rng
        Seeds every ``random_state`` that is None, nested ones too.
    scale
        Put a ``StandardScaler`` before it.

    Raises
    ------
    UsageError
        If the estimator refuses the data or its parameters, with its reason.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree = fit_estimator(
    ...     DecisionTreeClassifier(), np.array([[0.0], [1.0]]), np.array([0, 1]), Rng(0))
    >>> tree.predict([[0.9]])
    array([1])
    """
    made = sklearn.base.clone(estimator)
    names = [name for name in made.get_params() if name.split("__")[-1] == "random_state"]
    open_ones = [name for name in names if made.get_params()[name] is None]
    made.set_params(**{name: rng.child("fit", name).seed_for_request() for name in open_ones})
    if scale:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        made = make_pipeline(StandardScaler(), made)
    try:
        return made.fit(inputs, targets)
    except (ValueError, TypeError) as error:
        name = type(estimator).__name__
        raise UsageError(f"{name} could not be trained ({one_line(error)}).") from error


class Untrained:
    """An estimator that has yet to learn; `fit` gives one that predicts."""

    def __init__(self, prototype: Any, scale: bool = False) -> None:
        self.prototype, self.scale = prototype, scale

    def fit(self, data: Iterable[Unit] | Examples, rng: Rng) -> Predictor:
        """Return a predictor that has learned from units: their contents and targets."""
        found = examples(data)
        fitted = fit_estimator(self.prototype, found.inputs, found.targets, rng, scale=self.scale)
        return live(fitted, self.prototype, self.scale, frozenset(found.ids))

    def with_parameters(self, parameters: Mapping[str, Any]) -> Untrained:
        """Return the same estimator, untrained, with some parameters changed."""
        made = sklearn.base.clone(self.prototype)
        known = made.get_params()
        for name in parameters:
            if name not in known:
                raise UsageError(
                    f'{type(made).__name__} has no parameter "{name}".{nearest(name, known)}'
                )
        return Untrained(made.set_params(**parameters), self.scale)


class Predictor(Untrained):
    """A fitted estimator; ``learned_from`` holds the digests of its training rows."""

    def __init__(
        self,
        model: Any,
        prototype: Any,
        scale: bool = False,
        learned_from: frozenset[bytes] = frozenset(),
    ) -> None:
        super().__init__(prototype, scale)
        self.model, self.learned_from = model, learned_from

    @property
    def n_features_in_(self) -> int:
        return int(self.model.n_features_in_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return self._ask(self.model.predict, inputs)

    def _ask(self, method: Any, inputs: np.ndarray) -> np.ndarray:
        inputs = np.asarray(inputs, np.float64)
        if len(inputs) == 0:
            return self._none()
        try:
            return np.asarray(method(inputs))
        except NotFittedError as error:
            name = type(self.model).__name__
            raise UsageError(f"{name} has not been trained; use the treatment train.") from error

    def _none(self) -> np.ndarray:
        return np.empty(0)


class Classifier(Predictor):
    """A fitted estimator that gives probabilities."""

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.model.classes_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        found = super().predict(inputs)
        return found if len(found) else self.classes_[:0]

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        found = self._ask(self.model.predict_proba, inputs)
        return found if len(found) else np.empty((0, len(self.classes_)))


def live(
    model: Any, prototype: Any = None, scale: bool = False, learned: frozenset[bytes] = frozenset()
) -> Predictor:
    """Return a fitted estimator as a subject, with probabilities where it gives them."""
    kind = Classifier if hasattr(model, "predict_proba") else Predictor
    return kind(model, model if prototype is None else prototype, scale, learned)
