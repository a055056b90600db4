r"""Tests given covariates, with conformal p-values that weigh calibration rows by nearness.

A conformal p-value says how strange a row is among calibration rows. Localised, it says so among
rows near it, and stays exactly valid on average: the weights are centred at an anchor drawn
around the row. Three tests stand on it:

1. which rows are **outliers**, with a false discovery rate (`outlier_test`);
2. which **labels** may be declared, with a family-wise error rate (`label_screen`);
3. whether **two samples** share the law of Y given X (`two_sample_conditional_test`).

The first two come as treatments here; the third is a subject, see the card beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from equipoise.core import (
    Predicts,
    PredictsInterval,
    PredictsProba,
    PredictsQuantiles,
    PredictsSet,
    PredictsSurvival,
    Rng,
    Screens,
    Task,
    Trains,
    Treatment,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.methods.conformal._localized_live import (
    LABELS,
    OUTLIERS,
    SCORES,
    LabelLearner,
    Nearness,
    OutlierLearner,
    check_given,
    label_screener,
    outlier_screen,
)
from equipoise.methods.conformal._localized_p_values import (
    LabelScreen,
    OutlierTest,
    label_screen,
    localized_p_values,
    outlier_test,
)
from equipoise.methods.conformal._localized_weights import default_bandwidth
from equipoise.methods.conformal._rows import calibration_rows

__all__ = [
    "LabelScreen",
    "LocalizedLabelScreen",
    "LocalizedOutlierTest",
    "OutlierTest",
    "default_bandwidth",
    "label_screen",
    "localized_p_values",
    "outlier_test",
]

_OTHER = frozenset({PredictsInterval, PredictsQuantiles, PredictsSet, PredictsSurvival})


@dataclass(frozen=True)
class LocalizedOutlierTest(Treatment):
    r"""Find rows that are outliers given some of their columns, with a false discovery rate.

    The plain function is `outlier_test`. Rows asked together are one family: among those flagged,
    the share of wrong ones is at most :math:`\alpha` on average. Around an untrained subject
    this gives a learner: put ``train`` after it, which hands it train rows to learn from and
    calibration rows, free of outliers, to compare with. Around a trained one, give ``data``.

    Parameters
    ----------
    score
        What makes a row strange. ``residual``: :math:`|y - f(x)|`. ``quantile``:
        :math:`\max(q_{0.1}(x) - y, y - q_{0.9}(x))`, with quantiles that the subject gives or,
        where it gives none, boosted trees of the train rows. ``detector``: minus
        ``score_samples`` of a subject such as scikit-learn's ``IsolationForest``; targets are
        not used.
    given
        Places, from 0, of one to four columns in which rows must be near; by default all.
    bandwidth
        :math:`h`; by default :math:`n^{-1/(2+d)}` for n calibration rows and d columns.
    localized
        False weighs all calibration rows alike and applies the Benjamini-Hochberg procedure:
        ordinary conformal outlier detection, right on average but not near every x.
    pruning
        False applies the Benjamini-Hochberg procedure to localised p-values too, which has
        no proof.
    scale
        Bring the columns of ``given`` to variance 1 by the train rows, so that one bandwidth
        fits all.
    data
        Task whose calibration rows calibrate a predictor that is trained already; its train
        rows tell the spread of the columns.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from equipoise.kit.arrays.learners import Untrained
    >>> from equipoise.kit.worlds.conditional_tests import outlier_draw
    >>> draw = outlier_draw("A1", Rng(0), n=1000, m=1000)
    >>> part = LocalizedOutlierTest(given=(0,), scale=False)
    >>> learner = part.apply(Untrained(LinearRegression()), Rng(0))
    >>> fitted = learner.fit(draw.examples, Rng(0))
    >>> p, flagged = fitted.screen(draw.inputs, draw.targets, alpha=0.15, rng=Rng(0))
    >>> int(flagged.sum()), int((flagged & draw.outlier).sum())
    (81, 64)
    """

    score: Literal["residual", "quantile", "detector"] = one_of(*SCORES, default="residual")
    given: tuple[int, ...] = between(0, 1_000_000, default=())
    bandwidth: float | None = between(1e-12, 1e12, default=None)
    localized: bool = True
    pruning: bool = True
    scale: bool = True
    data: Task | None = None

    needs = frozenset({Trains})
    adds = frozenset({Predicts, Screens})
    removes = _OTHER | {PredictsProba, Trains}
    random = True

    def check(self) -> None:
        check_given(type(self).__name__, self.given)
        keeps = frozenset({Trains}) if self.data is None else frozenset({Predicts})
        object.__setattr__(self, "needs", keeps)
        object.__setattr__(self, "removes", self.removes - keeps)

    @classmethod
    def tiny(cls) -> Self:
        return cls(given=(0,), data=_tiny_task())

    @classmethod
    def tiny_subject(cls) -> Any:
        from sklearn.linear_model import LinearRegression

        from equipoise.kit.arrays.learners import Untrained

        return Untrained(LinearRegression()).fit(learnable(_tiny_task(), Rng(0)), Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return a learner that calibrates itself, or, with ``data``, a calibrated predictor."""
        settings = Nearness(self.given, self.bandwidth, self.localized, self.scale)
        if self.data is None:
            return OutlierLearner(subject, self.score, settings, self.pruning)
        train, calibration = _parts(OUTLIERS, self.data, rng)
        return outlier_screen(subject, self.score, settings, self.pruning, train, calibration, rng)


@dataclass(frozen=True)
class LocalizedLabelScreen(Treatment):
    r"""Declare the labels of a row that are safe to declare, given some of its columns.

    The plain function is `label_screen`. A row gets any false label with probability at most
    :math:`\alpha`, and nearly so near every x. Targets are either rows of labels, 0 or 1, for
    each of which a copy of the subject is trained, or one class a row, whose label alone holds.
    Around an untrained subject this gives a learner: put ``train`` after it. Around a trained
    classifier, give ``data``.

    Parameters
    ----------
    given
        Places, from 0, of one to four columns in which rows must be near; by default all.
    bandwidth
        :math:`h`; by default :math:`n^{-1/(2+d)}` for n calibration rows and d columns.
    localized
        False weighs all calibration rows alike: one threshold on probabilities for all rows.
    scale
        Bring the columns of ``given`` to variance 1 by the train rows.
    data
        Task whose calibration rows calibrate a classifier that is trained already; its train
        rows tell the spread of the columns.

    References
    ----------
    Conditional Testing based on Localized Conformal p-values, ICLR 2025.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from equipoise.kit.arrays.learners import Untrained
    >>> from equipoise.kit.worlds.conditional_tests import label_draw
    >>> draw = label_draw(Rng(0), n=400, m=300)
    >>> learner = LocalizedLabelScreen().apply(Untrained(LogisticRegression()), Rng(0))
    >>> fitted = learner.fit(draw.examples, Rng(0))
    >>> p, declared = fitted.screen(draw.inputs, None, alpha=0.1, rng=Rng(0))
    >>> false = declared & (draw.labels == 0)
    >>> round(float(false.any(axis=1).mean()), 2)
    0.11
    """

    given: tuple[int, ...] = between(0, 1_000_000, default=())
    bandwidth: float | None = between(1e-12, 1e12, default=None)
    localized: bool = True
    scale: bool = True
    data: Task | None = None

    needs = frozenset({Trains})
    adds = frozenset({Screens})
    removes = _OTHER | {Predicts, PredictsProba, Trains}
    random = True

    def check(self) -> None:
        check_given(type(self).__name__, self.given)
        keeps = frozenset({Trains}) if self.data is None else frozenset({PredictsProba})
        object.__setattr__(self, "needs", keeps)
        object.__setattr__(self, "removes", self.removes - keeps)

    @classmethod
    def tiny(cls) -> Self:
        return cls(given=(0,), data=_tiny_classes())

    @classmethod
    def tiny_subject(cls) -> Any:
        from sklearn.naive_bayes import GaussianNB

        from equipoise.kit.arrays.learners import Untrained

        return Untrained(GaussianNB()).fit(learnable(_tiny_classes(), Rng(0)), Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return a learner that calibrates itself, or, with ``data``, a calibrated classifier."""
        settings = Nearness(self.given, self.bandwidth, self.localized, self.scale)
        if self.data is None:
            return LabelLearner(subject, settings)
        train, calibration = _parts(LABELS, self.data, rng)
        return label_screener(subject, settings, train, calibration)


def _parts(who: str, data: Task, rng: Rng) -> tuple[Examples, Examples]:
    """Return the train and calibration rows that a trained predictor is calibrated with."""
    stream = rng.child("data")
    calibration, train = calibration_rows(who, data, stream), learnable(data, stream)
    if not train:
        raise UsageError(
            f"{who}: there are no train rows to tell the spread of the columns by; raise train of "
            f"its data above 0."
        )
    return examples(train), calibration


def _tiny_task() -> Task:
    from equipoise.methods.conformal.interval_prediction import IntervalPrediction

    return IntervalPrediction.tiny()


def _tiny_classes() -> Task:
    from equipoise.methods.conformal.set_prediction import SetPrediction

    return SetPrediction.tiny()
