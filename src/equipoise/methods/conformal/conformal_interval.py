r"""Split conformal intervals around a regressor, for exchangeable rows and whatever the model.

A score :math:`s(x, y)` says how far off a model is. With :math:`q` the
:math:`\lceil (n+1)(1-\alpha) \rceil`-th smallest score of :math:`n` calibration rows, which the
model has not learned from,

.. math:: P(s(x_{n+1}, y_{n+1}) \le q) \ge 1 - \alpha,

and the interval holds the :math:`y` with :math:`s(x, y) \le q`. Scores differ in shape:

- ``absolute``: :math:`|y - f(x)|`, one width for all rows;
- ``normalized``: :math:`|y - f(x)| / \sigma(x)`, wider where the model is further off;
- ``quantile``: :math:`\max(\hat q_l(x) - y, y - \hat q_u(x))`, conformalized quantile regression,
  whose two ends follow the law of :math:`y` apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from equipoise.core import (
    HasModule,
    Predicts,
    PredictsInterval,
    PredictsProba,
    PredictsQuantiles,
    PredictsSurvival,
    Rng,
    Task,
    Trains,
    Treatment,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.arrays.conformal import checked_alphas
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.kit.arrays.learners import Untrained, live
from equipoise.methods.conformal._intervals import (
    SCORES,
    Calibrated,
    Learner,
    Score,
    Settings,
    band_of,
    calibrated,
)
from equipoise.methods.conformal._rows import calibration_rows

__all__ = ["ConformalInterval", "ConformalRegressor"]


@dataclass(frozen=True)
class ConformalInterval(Treatment):
    r"""Give a predictor of values intervals that cover with probability :math:`1-\alpha`.

    The error rate is asked when predicting, so one calibration serves all. Around an untrained
    subject this gives a learner: put ``train`` after it, which hands it train rows to learn from
    and calibration rows to calibrate on. Around a trained one, give ``data``. Calibration rows
    too few for :math:`\alpha` are refused.

    Parameters
    ----------
    score
        ``absolute``, ``normalized`` or ``quantile``. ``normalized`` learns :math:`\sigma(x)` from
        residuals of rows that the predictor has not seen: of train rows by five-fold
        cross-fitting, or of half the calibration rows where the predictor comes trained.
        ``quantile`` asks the subject for quantiles where it gives them; else it fits boosted
        trees on the train rows.
    nominal
        Error rate that those trees aim for. Any other can be asked; intervals are sharpest near
        this one.
    group
        Place, from 0, of a feature whose values each get a quantile of their own (Mondrian), so
        that every group is covered; a value with too few calibration rows gets infinite intervals.
    data
        Task whose calibration rows calibrate a predictor that is trained already.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from equipoise.methods.conformal import IntervalPrediction
    >>> task = IntervalPrediction("builtin:diabetes")
    >>> linear = Untrained(LinearRegression()).fit(learnable(task, Rng(0)), Rng(0))
    >>> treated = ConformalInterval(data=task).apply(linear, Rng(0))
    >>> rows = np.zeros((1, 10))
    >>> treated.predict(rows).round(), treated.predict_interval(rows, alpha=0.1).round()
    (array([153.]), array([[ 55., 250.]]))

    References
    ----------
    Lei et al., Distribution-Free Predictive Inference for Regression, JASA 2018. Romano,
    Patterson, Candes, Conformalized Quantile Regression, NeurIPS 2019.
    """

    score: Literal["absolute", "normalized", "quantile"] = one_of(
        "absolute", "normalized", "quantile", default="absolute"
    )
    nominal: float = between(0.001, 0.999, default=0.1)
    group: int | None = between(0, 1_000_000, default=None)
    data: Task | None = None

    needs = frozenset({Trains})
    adds = frozenset({Predicts, PredictsInterval})
    removes = frozenset({PredictsProba, PredictsQuantiles, PredictsSurvival, HasModule})
    random = True

    def check(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "needs", frozenset({Predicts}))

    @classmethod
    def tiny(cls) -> Self:
        return cls(data=_tiny_task())

    @classmethod
    def tiny_subject(cls) -> Any:
        return Untrained(_default()).fit(learnable(_tiny_task(), Rng(0)), Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return a learner that calibrates itself, or, with ``data``, a calibrated predictor."""
        settings = Settings(self.score, self.nominal, self.group)
        if self.data is None:
            return Learner(subject, settings)
        stream = rng.child("data")
        rows = calibration_rows("conformal_interval", self.data, stream)
        learned: tuple[bytes, ...] = ()
        shape_rows = rows
        if self.score == "normalized":
            shape_rows, rows = _halves(rows, rng)
            learned = shape_rows.ids
        elif self.score == "quantile" and not isinstance(subject, PredictsQuantiles):
            units = learnable(self.data, stream)
            if not units:
                raise UsageError(
                    "conformal_interval: there are no train rows to fit quantiles on; raise train "
                    "of its data above 0."
                )
            shape_rows = examples(units)
            learned = shape_rows.ids
        band = band_of(settings, subject, shape_rows, rng)
        return calibrated(subject, band, rows, settings, learned)


class ConformalRegressor(
    MetaEstimatorMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    r"""Split conformal regression for notebooks: ``fit``, ``conformalize``, ``predict_interval``.

    Any error rate can be asked after one calibration.

    Parameters
    ----------
    estimator
        Regressor with scikit-learn's interface; None is ``LinearRegression``.
    conformity_score
        ``"absolute"``, ``"normalized"`` or ``"quantile"``, as in `ConformalInterval`.
    residual_estimator
        Regressor of absolute residuals for ``normalized``; None is boosted trees.
    quantile_estimator
        Regressor with a parameter ``quantile`` or ``alpha`` for ``quantile``; None is
        boosted trees.
    nominal
        Error rate in (0, 1) that the quantile regressors are fitted for.
    group
        Place, from 0, of a feature whose values each get a quantile of their own.
    prefit
        The estimator is fitted already; ``fit`` then leaves it as it is. With ``normalized``,
        half of the calibration rows then teach the residuals.
    random_state
        Seeds what is drawn; None, an integer or a NumPy ``RandomState``.

    Attributes
    ----------
    estimator_
        The fitted estimator.

    Raises
    ------
    UsageError
        If a parameter is none of these, an error rate is outside (0, 1), or predictions on
        calibration rows are not finite.

    Examples
    --------
    >>> x = np.arange(200.0)[:, None]
    >>> y = x[:, 0] + np.tile([-1.0, 1.0], 100)
    >>> model = ConformalRegressor().fit(x[:100], y[:100]).conformalize(x[100:], y[100:])
    >>> points, intervals = model.predict_interval([[50.0], [51.0]], alpha=[0.1, 0.2])
    >>> points.shape, intervals.shape
    ((2,), (2, 2, 2))
    >>> intervals[:, :, 0].round(1)
    array([[48.9, 51.1],
           [49.9, 52.1]])
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        conformity_score: Score = "absolute",
        residual_estimator: Any = None,
        quantile_estimator: Any = None,
        nominal: float = 0.1,
        group: int | None = None,
        prefit: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.conformity_score = conformity_score
        self.residual_estimator = residual_estimator
        self.quantile_estimator = quantile_estimator
        self.nominal = nominal
        self.group = group
        self.prefit = prefit
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the estimator, and what the score needs beside it.

        Parameters
        ----------
        X, y
            Training rows ``(n, features)`` and values ``(n,)``.
        """
        least = 2 if self.conformity_score == "normalized" and not self.prefit else 1
        X, y = validate_data(self, X, y, y_numeric=True, ensure_min_samples=least)
        rng, settings = self._start()
        rows = Examples(np.asarray(X, np.float64), np.asarray(y, np.float64))
        learner = Untrained(_default() if self.estimator is None else self.estimator)
        self._inner = live(self.estimator) if self.prefit else learner.fit(rows, rng)
        self.estimator_ = self._inner.model
        late = self.prefit and self.conformity_score == "normalized"
        self._band = None if late else band_of(settings, self._inner, rows, rng, learner)
        return self

    def conformalize(self, X: Any, y: Any) -> Self:
        """Calibrate on rows that the estimator has not learned from.

        A prefit estimator needs no ``fit`` before, but for ``quantile``.

        Parameters
        ----------
        X, y
            Calibration rows ``(n, features)`` and values ``(n,)``.
        """
        fresh = self.prefit and not hasattr(self, "estimator_")
        if not fresh:
            check_is_fitted(self)
        # Whether values are finite shows in the scores, where it costs less.
        validate_data(self, X, reset=fresh, skip_check_array=True)
        rng, settings = self._start()
        X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
        check_consistent_length(X, y)
        if fresh:
            if self.conformity_score == "quantile":
                raise UsageError("ConformalRegressor: call fit first, to fit the quantiles.")
            self._inner, self._band = live(self.estimator), None
            self.estimator_ = self.estimator
        band = self._band
        if band is None:
            taught = Examples(X[:0], y[:0])
            if self.conformity_score == "normalized":
                taught, rows = _halves(Examples(X, y), rng)
                X, y = rows.inputs, rows.targets
            band = band_of(settings, self._inner, taught, rng)
        self._calibrated = Calibrated(self._inner, band, X, y, settings)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return what the estimator predicts, ``(n,)``."""
        check_is_fitted(self)
        return self._inner.predict(validate_data(self, X, reset=False))

    def predict_interval(
        self, X: Any, alpha: float | Sequence[float] = 0.1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return points and intervals.

        Parameters
        ----------
        X
            Rows ``(n, features)``.
        alpha
            Share of values that may lie outside, in (0, 1); one or several.

        Returns
        -------
        points : ndarray
            ``(n,)``.
        intervals : ndarray
            ``(n, 2, levels)``: lower and upper ends for each of ``alpha``.
        """
        check_is_fitted(self)
        if not hasattr(self, "_calibrated"):
            raise NotFittedError("This ConformalRegressor is not calibrated; call conformalize.")
        levels = checked_alphas(alpha).tolist()
        X = validate_data(self, X, reset=False)
        return self._calibrated.predict_intervals(X, levels)

    @property
    def conformity_scores(self) -> np.ndarray:
        """Scores of the calibration rows, ``(n,)``."""
        if not hasattr(self, "_calibrated"):
            raise NotFittedError("This ConformalRegressor is not calibrated; call conformalize.")
        return self._calibrated.scores()

    def _start(self) -> tuple[Rng, Settings]:
        if self.conformity_score not in SCORES:
            raise UsageError(
                f"ConformalRegressor: conformity_score must be one of "
                f"{', '.join(map(repr, SCORES))}, got {self.conformity_score!r}."
            )
        checked_alphas(self.nominal)
        rng = Rng(int(check_random_state(self.random_state).randint(2**31 - 1)))
        settings = Settings(
            self.conformity_score,
            self.nominal,
            self.group,
            self.residual_estimator,
            self.quantile_estimator,
        )
        return rng, settings


def _halves(rows: Examples, rng: Rng) -> tuple[Examples, Examples]:
    """Return two halves of the rows, drawn at random."""
    if len(rows) < 2:
        raise UsageError(
            f"normalized learns residuals on half of the calibration rows of a trained predictor; "
            f"at least 2 are needed, got {len(rows)}."
        )
    first = np.zeros(len(rows), bool)
    first[rng.child("halves").numpy().permutation(len(rows))[: len(rows) // 2]] = True
    return rows.take(first), rows.take(~first)


def _default() -> Any:
    from sklearn.linear_model import LinearRegression  # its import moves a global generator

    return LinearRegression()


def _tiny_task() -> Task:
    from equipoise.methods.conformal.interval_prediction import IntervalPrediction

    return IntervalPrediction.tiny()
