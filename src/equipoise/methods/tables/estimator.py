"""Predictors of scikit-learn and whatever keeps to its interface."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

from equipoise.core import (
    Predicts,
    PredictsProba,
    Rng,
    Subject,
    Task,
    Trains,
    UsageError,
    learnable,
    nearest,
    setting,
)
from equipoise.kit.arrays.learners import Untrained, live
from equipoise.kit.data.identity import content_hash
from equipoise.kit.data.objects import named_object, source_hash
from equipoise.kit.data.source import existing, one_line


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
    >>> import numpy as np
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
            return live(_open(self.file))
        bare = Untrained(self.prototype(), self.scale)
        if self.data is None:
            return bare
        return bare.fit(learnable(self.data, rng.child("data")), rng)


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
