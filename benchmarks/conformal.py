"""Speed of conformal quantiles and intervals, as JSON lines.

The quantile against a bare ``np.partition``; calibration at 1,000,000 rows and prediction of 1,000
against MAPIE's. Both are around models whose predictions are a column of the rows and cost nothing,
so that what is measured is the conformal work; the intervals are compared too. CPU seconds of this
process on one thread, in turns, so that a busy machine slows both sides alike.

    OMP_NUM_THREADS=1 python benchmarks/conformal.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable

import numpy as np
from _peers import in_turns, say
from sklearn.base import BaseEstimator, RegressorMixin

from equipoise.kit.arrays.conformal import conformal_quantile, weighted_conformal_quantile
from equipoise.methods.conformal import ConformalRegressor

ROWS, ASKED = 1_000_000, 1_000


def quantiles() -> None:
    scores = np.abs(np.random.default_rng(0).normal(size=ROWS))
    rank = int(np.ceil((ROWS + 1) * 0.9)) - 1
    ours, bare = in_turns(
        lambda: conformal_quantile(scores, 0.1), lambda: np.partition(scores, rank), rounds=101
    )
    say(what="conformal_quantile", rows=ROWS, cpu_seconds=ours, over_partition=ours / bare)
    alphas = [0.01, 0.05, 0.1, 0.2, 0.5]
    ours, sort = in_turns(lambda: conformal_quantile(scores, alphas), lambda: np.sort(scores))
    say(what="the same, 5 levels", rows=ROWS, cpu_seconds=ours, over_sort=ours / sort)
    weights = np.random.default_rng(1).exponential(size=ROWS)
    (ours,) = in_turns(lambda: weighted_conformal_quantile(scores, weights, weights[:ASKED], 0.1))
    say(what="weighted_conformal_quantile", rows=ROWS, asked=ASKED, cpu_seconds=ours)


class Column(RegressorMixin, BaseEstimator):
    """A trained regressor that predicts a column of its rows."""

    def __init__(self, place: int = 0) -> None:
        self.place = place

    def fit(self, X: np.ndarray, y: np.ndarray) -> Column:
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X[:, self.place]


class Level(Column):
    """The same for quantiles: the column follows the level asked for."""

    def __init__(self, quantile: float = 0.5) -> None:
        self.quantile = quantile

    @property
    def place(self) -> int:
        return int(np.sign(self.quantile - 0.5)) + 1


def intervals() -> None:
    from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor

    generator = np.random.default_rng(2)
    middle = generator.normal(size=ROWS + ASKED)
    x = np.asfortranarray(np.stack([middle - 1, middle, middle + 1], axis=1))
    y = middle + generator.normal(size=len(x))
    cx, cy, tx = x[:ROWS], y[:ROWS], x[ROWS:]
    point = Column(1).fit(cx, cy)

    def ours() -> np.ndarray:
        model = ConformalRegressor(point, prefit=True).conformalize(cx, cy)
        return model.predict_interval(tx, 0.1)[1]

    def theirs() -> np.ndarray:
        model = SplitConformalRegressor(point, confidence_level=0.9).conformalize(cx, cy)
        return model.predict_interval(tx)[1]

    compare("absolute", ours, theirs)
    levels = [0.01, 0.05, 0.1, 0.2, 0.5]

    def ours_levels() -> np.ndarray:
        model = ConformalRegressor(point, prefit=True).conformalize(cx, cy)
        return model.predict_interval(tx, levels)[1]

    def theirs_levels() -> np.ndarray:
        model = SplitConformalRegressor(point, confidence_level=[1 - each for each in levels])
        return model.conformalize(cx, cy).predict_interval(tx)[1]

    compare("absolute, 5 levels", ours_levels, theirs_levels)
    quantile = ConformalRegressor(
        point, conformity_score="quantile", quantile_estimator=Level(), prefit=True
    ).fit(cx[:100], cy[:100])
    ends = [Level(each).fit(cx, cy) for each in (0.05, 0.95, 0.5)]

    def ours_quantile() -> np.ndarray:
        return quantile.conformalize(cx, cy).predict_interval(tx, 0.1)[1]

    def theirs_quantile() -> np.ndarray:
        model = ConformalizedQuantileRegressor(ends, confidence_level=0.9, prefit=True)
        return model.conformalize(cx, cy).predict_interval(tx, symmetric_correction=True)[1]

    compare("quantile", ours_quantile, theirs_quantile)


def compare(score: str, ours: Callable[[], np.ndarray], theirs: Callable[[], np.ndarray]) -> None:
    apart = float(np.abs(ours() - theirs()).max())
    mine, other = in_turns(ours, theirs)
    say(
        what=f"intervals, {score}", rows=ROWS, asked=ASKED, cpu_seconds=mine, mapie=other,
        ours_over_mapie=mine / other, largest_difference=apart,
    )  # fmt: skip


if __name__ == "__main__":
    quantiles()
    intervals()
