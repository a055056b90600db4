"""Predictors of scikit-learn and whatever keeps to its interface."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np
import sklearn.base
from sklearn.exceptions import NotFittedError

from equipoise.core import (
    Predicts,
    PredictsProba,
    Rng,
    Subject,
    Task,
    Trains,
    Unit,
    UsageError,
    learnable,
    nearest,
    setting,
)
from equipoise.kit.data.identity import content_hash
from equipoise.kit.data.objects import named_object, source_hash
from equipoise.kit.data.source import existing, one_line
from equipoise.methods.tables._rows import inputs_of, row_digest


@dataclass(frozen=True)
class Estimator(Subject):
    """A classifier or regressor with scikit-learn's interface.

    It comes trained when ``data`` or ``file`` is given; otherwise the treatment
    ``train`` makes it a predictor. Every ``random_state`` that ``parameters``
    leave open is drawn from the trial's seed.

    Parameters
    ----------
    estimator
        Name of a scikit-learn estimator, such as ``LogisticRegression``, or the
        import path of a class or function that returns one, such as
        ``xgboost:XGBClassifier``.
    parameters
        What it is made with.
    scale
        Bring features to mean 0 and variance 1 first, by the training rows.
    data
        Task whose ``train`` units it learns from.
    file
        Fitted estimator that ``joblib.dump`` or ``pickle`` wrote, in place of
        ``estimator``.
    trust_pickle
        Say that ``file`` is from someone you trust: to open a pickle is to run
        the code in it.

    Examples
    --------
    >>> from equipoise.methods.tables import Classification
    >>> part = Estimator("LogisticRegression", scale=True, data=Classification("builtin:iris"))
    >>> part.load(Rng(0)).predict(np.array([[5.0, 3.4, 1.5, 0.2], [6.3, 3.3, 6.0, 2.5]])).tolist()
    ['setosa', 'virginica']
    """

    estimator: str = ""
    parameters: Mapping[str, Any] | None = None
    scale: bool = False
    data: Task | None = None
    file: str | None = setting(None)
    trust_pickle: bool = setting(False)

    # The most that an estimator can do; an instance narrows it to what it does.
    provides = frozenset({Predicts, PredictsProba, Trains})

    def check(self) -> None:
        if bool(self.estimator) == bool(self.file):
            raise UsageError("Estimator: give either estimator, a name, or file, a fitted one.")
        if self.file:
            if self.parameters or self.scale or self.data is not None:
                raise UsageError(
                    "Estimator: a file is fitted already; parameters, scale and data go with "
                    "estimator only."
                )
            if not self.trust_pickle:
                raise UsageError(
                    f"Estimator: file {self.file} is a pickle, which can run any code when it is "
                    f"opened; if you trust who made it, add trust_pickle: true."
                )
            found = {Predicts, PredictsProba, Trains}
        else:
            found = {Trains}
            if self.data is not None:
                proba = hasattr(self.prototype(), "predict_proba")
                found |= {Predicts, PredictsProba} if proba else {Predicts}
            else:
                self.prototype()
        object.__setattr__(self, "provides", frozenset(found))

    def content(self) -> Any:
        if self.file:
            return content_hash(self.file)
        own = any(mark in self.estimator for mark in ".:")
        return source_hash(self.estimator) if own else None

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.tables.classification import Classification

        return cls("LogisticRegression", scale=True, data=Classification.tiny())

    def prototype(self) -> Any:
        """Return the estimator, made but not fitted."""
        return _make(self.estimator, self.parameters or {})

    def load(self, rng: Rng) -> Any:
        if self.file:
            return _live(_open(self.file))
        bare = Untrained(self.prototype(), self.scale)
        if self.data is None:
            return bare
        return bare.fit(learnable(self.data, rng.child("data")), rng)


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

    def fit(self, data: Sequence[Unit], rng: Rng) -> Predictor:
        """Return a predictor that has learned from units: their contents and targets."""
        name = type(self.prototype).__name__
        if not data:
            raise UsageError(
                f"{name}: there are no units to learn from; give a larger train split."
            )
        targets = np.array([unit.target for unit in data])
        if targets.ndim != 1 or targets.dtype.kind == "O":
            raise UsageError(f"{name}: units to learn from need one label or number as target.")
        fitted = fit_estimator(self.prototype, inputs_of(data), targets, rng, scale=self.scale)
        return _live(fitted, self.prototype, self.scale, frozenset(map(row_digest, data)))

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


def _live(
    model: Any, prototype: Any = None, scale: bool = False, learned: frozenset[bytes] = frozenset()
) -> Predictor:
    kind = Classifier if hasattr(model, "predict_proba") else Predictor
    return kind(model, model if prototype is None else prototype, scale, learned)


def _make(name: str, parameters: Mapping[str, Any]) -> Any:
    maker = named_object(name) if any(mark in name for mark in ".:") else _by_name(name)
    if not callable(maker):
        raise UsageError(f"Estimator: {name} must be a class or a function, got {maker!r}.")
    known = _keywords(maker)
    for each in parameters:
        if known is not None and each not in known:
            raise UsageError(f'{name} has no parameter "{each}".{nearest(each, known)}')
    try:
        made = maker(**parameters)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Estimator: {name} cannot be made ({one_line(error)}).") from error
    if not (hasattr(made, "fit") and hasattr(made, "get_params")):
        raise UsageError(f"Estimator: {name} must give fit and get_params, as scikit-learn's do.")
    return made


def _keywords(maker: Any) -> list[str] | None:
    """Return the names a class or function takes, None when it takes any."""
    try:
        found = inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in found.values()):
        return None
    return list(found)


# Looked through first: to import all of scikit-learn takes seconds.
_USUAL = ("linear_model", "ensemble", "neighbors", "svm", "naive_bayes", "neural_network", "tree",
          "dummy", "discriminant_analysis", "gaussian_process")  # fmt: skip


def _by_name(name: str) -> Any:
    for found in _usual(name):
        return found
    from sklearn.utils import all_estimators

    every = {each: cls for each, cls in all_estimators() if hasattr(cls, "predict")}
    if name in every:
        return every[name]
    raise UsageError(
        f'scikit-learn has no predictor "{name}".{nearest(name, every)} '
        f"Others are named by import path, as in package.module:Name."
    )


def _usual(name: str) -> Iterator[Any]:
    for module in _USUAL:
        found = getattr(import_module(f"sklearn.{module}"), name, None)
        if inspect.isclass(found) and hasattr(found, "predict"):
            yield found


def _open(file: str) -> Any:
    import joblib

    path = existing(file)
    try:
        model = joblib.load(path)
    except Exception as error:  # a pickle may raise anything
        raise UsageError(
            f"{file}: cannot be opened as a pickled estimator "
            f"({type(error).__name__}: {one_line(error)})."
        ) from error
    if not hasattr(model, "predict"):
        raise UsageError(f"{file}: holds {type(model).__name__}, which cannot predict.")
    return model
