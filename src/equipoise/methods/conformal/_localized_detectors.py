"""Localised tests for notebooks, in scikit-learn's habits: fit, conformalize, predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.examples import Examples
from equipoise.kit.arrays.learners import Untrained, live
from equipoise.methods.conformal._localized_live import (
    SCORES,
    LabelLearner,
    LabelScreener,
    Nearness,
    OutlierScreen,
    Score,
    check_given,
    label_screener,
    outlier_screen,
)


class LocalizedOutlierDetector:
    r"""Flag rows that are outliers given some of their columns, with a false discovery rate.

    Parameters
    ----------
    estimator
        Regressor, or for ``detector`` an outlier detector with ``score_samples``; None is
        ``RandomForestRegressor``, or ``IsolationForest``.
    score
        ``"residual"``, ``"quantile"`` or ``"detector"``, as in `LocalizedOutlierTest`.
    given
        Places from 0, or names where rows are a table with column names, of one to four
        columns in which rows must be near; by default all.
    alpha
        False discovery rate of `predict`, in (0, 1).
    bandwidth, localized, pruning, scale
        As in `LocalizedOutlierTest`.
    prefit
        The estimator is fitted already; ``fit`` then only learns the spread of the columns.
    random_state
        Seed, a non-negative integer.

    Raises
    ------
    UsageError
        If a parameter is none of these, or a step is left out.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> g = np.random.default_rng(0)
    >>> x = g.random((3000, 1))
    >>> y = x[:, 0] + (0.1 + x[:, 0]) * g.normal(size=3000)
    >>> y[2950:] += 6 * (0.1 + x[2950:, 0])
    >>> detector = LocalizedOutlierDetector(LinearRegression(), scale=False)
    >>> found = detector.fit(x[:500], y[:500]).conformalize(x[500:2500], y[500:2500])
    >>> labels = found.predict(x[2500:], y[2500:])
    >>> int((labels[450:] == -1).sum()), int((labels[:450] == -1).sum())
    (49, 4)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        score: Score = "residual",
        given: Sequence[int | str] = (),
        alpha: float = 0.1,
        bandwidth: float | None = None,
        localized: bool = True,
        pruning: bool = True,
        scale: bool = True,
        prefit: bool = False,
        random_state: int = 0,
    ) -> None:
        if score not in SCORES:
            raise UsageError(
                f"LocalizedOutlierDetector: score must be one of {', '.join(map(repr, SCORES))}, "
                f"got {score!r}."
            )
        self.estimator, self.score, self.given, self.alpha = estimator, score, given, alpha
        self.bandwidth, self.localized, self.pruning = bandwidth, localized, pruning
        self.scale, self.prefit, self.random_state = scale, prefit, random_state
        self._train: Examples | None = None
        self._inner: Any = None
        self._screen: OutlierScreen | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimator on training rows ``(n, features)`` and their values ``(n,)``."""
        self._near = _nearness(self, X)
        self._train, self._screen = _rows(self, X, y), None
        self._inner = (
            live(self.estimator)
            if self.prefit
            else Untrained(self._estimator()).fit(self._train, Rng(self.random_state))
        )
        return self

    def conformalize(self, X: Any, y: Any = None) -> Self:
        """Calibrate on rows that are free of outliers and that the estimator has not seen."""
        if self._train is None:
            raise UsageError("LocalizedOutlierDetector is not fitted; call fit first.")
        self._screen = outlier_screen(
            self._inner,
            self.score,
            self._near,
            self.pruning,
            self._train,
            _rows(self, X, y),
            Rng(self.random_state),
        )
        return self

    def predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Return -1 for rows that are outliers and 1 for others, ``(n,)``."""
        return np.where(self.test(X, y)[1], -1, 1)

    def test(
        self, X: Any, y: Any = None, alpha: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return p-values and flags of rows that are tested together, each ``(n,)``."""
        if self._screen is None:
            raise UsageError("LocalizedOutlierDetector is not calibrated; call conformalize.")
        rows = _rows(self, X, y)
        level = self.alpha if alpha is None else alpha
        targets = None if self.score == "detector" else rows.targets
        rng = Rng(self.random_state).child("test")
        return self._screen.screen(rows.inputs, targets, level, rng)

    def _estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from sklearn.ensemble import IsolationForest, RandomForestRegressor

        return IsolationForest() if self.score == "detector" else RandomForestRegressor()


class LocalizedLabelScreener:
    r"""Declare labels that are safe to declare; a row gets any false one at most ``alpha`` often.

    Parameters
    ----------
    estimator
        Classifier with ``predict_proba``, of which one is fitted for each column of labels; None
        is ``RandomForestClassifier``.
    given
        Places from 0, or names where rows are a table with column names, of one to four
        columns in which rows must be near; by default all.
    alpha
        Family-wise error rate of `predict`, in (0, 1).
    bandwidth, localized, scale
        As in `LocalizedLabelScreen`.
    random_state
        Seed, a non-negative integer.

    Raises
    ------
    UsageError
        If a parameter is none of these, or a step is left out.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> g = np.random.default_rng(0)
    >>> x = g.uniform(-1, 1, (900, 2))
    >>> labels = (4 * x + g.normal(size=(900, 2)) > 0).astype(int)
    >>> screener = LocalizedLabelScreener(LogisticRegression())
    >>> found = screener.fit(x[:300], labels[:300]).conformalize(x[300:600], labels[300:600])
    >>> declared = found.predict(x[600:])
    >>> false = (declared & (labels[600:] == 0)).any(axis=1)
    >>> declared.shape, round(float(false.mean()), 2)
    ((300, 2), 0.08)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        given: Sequence[int | str] = (),
        alpha: float = 0.1,
        bandwidth: float | None = None,
        localized: bool = True,
        scale: bool = True,
        random_state: int = 0,
    ) -> None:
        self.estimator, self.given, self.alpha = estimator, given, alpha
        self.bandwidth, self.localized, self.scale = bandwidth, localized, scale
        self.random_state = random_state
        self._train: Examples | None = None
        self._inner: Any = None
        self._screen: LabelScreener | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit one classifier a label on rows ``(n, features)`` and labels ``(n, K)``.

        With classes ``(n,)`` one classifier gives the probabilities of all.
        """
        from sklearn.ensemble import RandomForestClassifier

        self._near = _nearness(self, X)
        self._train, self._screen = _rows(self, X, y), None
        prototype = RandomForestClassifier() if self.estimator is None else self.estimator
        learner = LabelLearner(Untrained(prototype), self._near)
        self._inner = learner.classifier(self._train, Rng(self.random_state))
        return self

    def conformalize(self, X: Any, y: Any) -> Self:
        """Calibrate on rows that the classifiers have not seen."""
        if self._train is None:
            raise UsageError("LocalizedLabelScreener is not fitted; call fit first.")
        rows = _rows(self, X, y)
        self._screen = label_screener(self._inner, self._near, self._train, rows)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return which labels are declared, ``(n, K)`` of true and false."""
        return self.test(X)[1]

    def test(self, X: Any, alpha: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return p-values and declarations, each ``(n, K)``."""
        if self._screen is None:
            raise UsageError("LocalizedLabelScreener is not calibrated; call conformalize.")
        level = self.alpha if alpha is None else alpha
        rows = _rows(self, X, None)
        return self._screen.screen(rows.inputs, None, level, Rng(self.random_state).child("test"))


def _nearness(owner: Any, X: Any) -> Nearness:
    """Return the settings, with names of columns as places."""
    who, names = type(owner).__name__, [str(each) for each in getattr(X, "columns", ())]
    places = []
    for each in owner.given:
        if isinstance(each, str) and each not in names:
            known = f"; there are: {', '.join(names)}" if names else ", as the rows have no names"
            raise UsageError(f'{who}: given has no column "{each}"{known}.')
        places.append(names.index(each) if isinstance(each, str) else int(each))
    check_given(who, tuple(places))
    return Nearness(tuple(places), owner.bandwidth, owner.localized, owner.scale)


def _rows(owner: Any, X: Any, y: Any) -> Examples:
    who = type(owner).__name__
    try:
        inputs = np.asarray(X, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{who}: rows must be numbers.") from error
    if inputs.ndim != 2 or not np.isfinite(inputs).all():
        raise UsageError(f"{who}: rows must be (n, features), all finite numbers.")
    if y is None and getattr(owner, "score", "detector") != "detector":
        raise UsageError(f"{who}: the score {owner.score} compares values; give y too.")
    return Examples(inputs, np.zeros(len(inputs)) if y is None else np.asarray(y))
