from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from equipoise.core import (
    Predicts,
    PredictsInterval,
    PredictsQuantiles,
    Rng,
    Trains,
    UnitError,
    UsageError,
    learnable,
)
from equipoise.kit.arrays.examples import Examples
from equipoise.kit.arrays.learners import Untrained
from equipoise.methods.conformal import ConformalInterval, ConformalRegressor, IntervalPrediction

LEVELS = [0.05, 0.1, 0.3]
SCORES = ["absolute", "normalized", "quantile"]


def noisy(n, seed, features=3):
    """Rows whose noise grows with the first feature, from 0.1 to 2.1."""
    generator = np.random.default_rng(seed)
    x = generator.random((n, features))
    y = x.sum(axis=1) + (0.1 + 2 * x[:, 0]) * generator.normal(size=n)
    return x, y


def examples_of(train, calibration, seed=0):
    x, y = noisy(train + calibration, seed)
    return Examples(x, y, np.array(["train"] * train + ["calibration"] * calibration))


@parametrize_with_checks([ConformalRegressor(conformity_score=score) for score in SCORES])
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


# Same as MAPIE


def test_absolute_intervals_are_mapies():
    mapie = pytest.importorskip("mapie.regression")
    (x, y), (cx, cy), (tx, _) = noisy(100, 0), noisy(157, 1), noisy(40, 2)
    line = LinearRegression().fit(x, y)
    theirs = mapie.SplitConformalRegressor(line, confidence_level=[1 - a for a in LEVELS])
    points, intervals = theirs.conformalize(cx, cy).predict_interval(tx)
    ours = ConformalRegressor(line, prefit=True).conformalize(cx, cy)
    found, ends = ours.predict_interval(tx, LEVELS)
    assert ends.shape == intervals.shape
    np.testing.assert_allclose(found, points, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ends, intervals, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.conformity_scores, theirs.conformity_scores, atol=1e-12)


def test_normalized_intervals_are_mapies_with_the_same_scale():
    mapie = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    (x, y), (cx, cy), (tx, _) = noisy(300, 0), noisy(157, 1), noisy(40, 2)
    ours = ConformalRegressor(conformity_score="normalized", random_state=0).fit(x, y)
    ours.conformalize(cx, cy)

    class Scale(HistGradientBoostingRegressor):
        def predict(self, X):
            return ours._band(X, 0.1)[2]

    scale = Scale(max_iter=1).fit(x, y)
    theirs = mapie.SplitConformalRegressor(
        ours.estimator_,
        confidence_level=[1 - a for a in LEVELS],
        conformity_score=scores.ResidualNormalisedScore(scale, prefit=True),
    )
    _, intervals = theirs.conformalize(cx, cy).predict_interval(tx)
    np.testing.assert_allclose(ours.predict_interval(tx, LEVELS)[1], intervals, atol=1e-12)
    assert np.ptp(intervals[:, 1, 0] - intervals[:, 0, 0]) > 1  # the scale does something


@pytest.mark.parametrize(
    "estimator",
    [
        QuantileRegressor(alpha=0.0),
        GradientBoostingRegressor(n_estimators=20, random_state=0),
        HistGradientBoostingRegressor(max_iter=20, random_state=0),
    ],
)
def test_quantile_intervals_are_mapies(estimator):
    mapie = pytest.importorskip("mapie.regression")
    (x, y), (cx, cy), (tx, _) = noisy(200, 0), noisy(157, 1), noisy(40, 2)
    ours = ConformalRegressor(conformity_score="quantile", quantile_estimator=estimator)
    ours.fit(x, y).conformalize(cx, cy)
    given = estimator
    if "loss" in estimator.get_params():
        given = type(estimator)(**estimator.get_params() | {"loss": "quantile"})
    theirs = mapie.ConformalizedQuantileRegressor(given, confidence_level=0.9)
    theirs.fit(x, y).conformalize(cx, cy)
    _, intervals = theirs.predict_interval(tx, symmetric_correction=True)
    np.testing.assert_allclose(ours.predict_interval(tx, 0.1)[1], intervals, rtol=0, atol=1e-12)


# Coverage


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.4])
def test_it_covers_as_promised_whatever_the_model(score, alpha):
    # A line cannot follow this noise; coverage must hold all the same, and not exceed.
    found = examples_of(400, 2000)
    learner = ConformalInterval(score=score).apply(Untrained(LinearRegression()), Rng(0))
    live = learner.fit(found, Rng(1))
    x, y = noisy(20_000, 9)
    low, high = live.predict_interval(x, alpha).T
    covered = np.mean((low <= y) & (y <= high))
    # The law of coverage given 2,000 calibration rows has this spread; 5 of them.
    assert abs(covered - (1 - alpha)) < 5 * np.sqrt(alpha * (1 - alpha) / 2000) + 0.005


@pytest.mark.parametrize("score", ["normalized", "quantile"])
def test_shaped_intervals_cover_the_noisy_rows_too(score):
    found = examples_of(2000, 1000)
    x, y = noisy(20_000, 9)
    noisiest = x[:, 0] > 0.8

    def share(score):
        learner = ConformalInterval(score=score).apply(Untrained(LinearRegression()), Rng(0))
        low, high = learner.fit(found, Rng(1)).predict_interval(x, 0.1).T
        return np.mean((low <= y) & (y <= high) & noisiest) / noisiest.mean()

    assert share("absolute") < 0.75 < 0.8 < share(score)


def test_groups_are_covered_each():
    x, y = noisy(6000, 0)
    x[:, 0] = np.round(x[:, 0])  # two groups, of quiet and of loud noise
    y = x[:, 1] + np.where(x[:, 0] == 1, 5, 0.1) * np.random.default_rng(3).normal(size=6000)
    model = {
        group: ConformalRegressor(group=group).fit(x[:1000], y[:1000])
        .conformalize(x[1000:3000], y[1000:3000])
        for group in (None, 0)
    }  # fmt: skip
    for group, live in model.items():
        _, ends = live.predict_interval(x[3000:], 0.1)
        covered = (ends[:, 0, 0] <= y[3000:]) & (y[3000:] <= ends[:, 1, 0])
        shares = [covered[x[3000:, 0] == each].mean() for each in (0.0, 1.0)]
        assert (np.abs(np.array(shares) - 0.9) < 0.03).all() == (group == 0), shares
    strange = np.array([[0.5, 0.0, 0.0]])
    assert np.isinf(model[0].predict_interval(strange, 0.1)[1]).all()


# A subject's own quantiles


class Normal:
    """Knows the law of `noisy` rows, and tells its quantiles ``shift`` too high."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def predict(self, inputs):
        return inputs.sum(axis=1)

    def predict_quantiles(self, inputs, levels):
        from scipy.special import ndtri

        spread = 0.1 + 2 * inputs[:, 0]
        return inputs.sum(axis=1)[:, None] + spread[:, None] * ndtri(levels) + self.shift


def test_quantiles_are_asked_at_every_rate(tmp_path):
    x, y = noisy(2000, 4)
    rows = "\n".join(
        ",".join(map(repr, [*map(float, row), float(v)])) for row, v in zip(x, y, strict=True)
    )
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c,target\n" + rows)
    task = IntervalPrediction(str(path), train=0.0, calibration=0.5)
    live = ConformalInterval("quantile", data=task).apply(Normal(), Rng(0))
    assert isinstance(live, PredictsInterval)
    assert not isinstance(live, PredictsQuantiles)
    tx, _ = noisy(50, 5)
    for alpha in LEVELS:  # the quantiles are true, so calibration leaves them nearly as they are
        told = Normal().predict_quantiles(tx, (alpha / 2, 1 - alpha / 2))
        assert np.abs(live.predict_interval(tx, alpha) - told).max() < 0.25
    fresh, values = noisy(20_000, 6)
    shifted = ConformalInterval("quantile", data=task).apply(Normal(1.0), Rng(0))
    low, high = shifted.predict_interval(fresh, 0.1).T
    assert abs(np.mean((low <= values) & (values <= high)) - 0.9) < 0.05


# The treatment


def task(**settings):
    return IntervalPrediction("builtin:diabetes", **settings)


@pytest.mark.parametrize("score", SCORES)
def test_a_trained_subject_is_calibrated_at_once(score):
    line = Untrained(LinearRegression()).fit(learnable(task(), Rng(0)), Rng(0))
    live = ConformalInterval(score, data=task()).apply(line, Rng(0))
    rows = np.random.default_rng(0).normal(size=(5, 10)) * 0.05
    assert (live.predict(rows) == line.predict(rows)).all()
    assert isinstance(live, Trains)
    narrow, wide = live.predict_interval(rows, 0.3), live.predict_interval(rows, 0.1)
    assert (wide[:, 0] <= narrow[:, 0]).all()
    assert (narrow[:, 1] <= wide[:, 1]).all()
    alone = np.concatenate([live.predict_interval(rows[i : i + 1], 0.1) for i in range(5)])
    np.testing.assert_allclose(alone, wide, rtol=1e-12)
    calibration = learnable(task(), Rng(0), "calibration")
    scored = task().perform(live, calibration, Rng(0))
    assert {outcome.error_kind for outcome in scored} == {"leak"}


def test_the_model_is_the_one_that_training_alone_gives():
    bare = Untrained(HistGradientBoostingRegressor(max_iter=5))
    units = learnable(task(), Rng(0)) + learnable(task(), Rng(0), "calibration")
    alone = bare.fit(learnable(task(), Rng(0)), Rng(7))
    live = ConformalInterval().apply(bare, Rng(0)).fit(units, Rng(7))
    rows = np.zeros((1, 10))
    assert live.predict(rows) == alone.predict(rows)


def test_the_example_trial_runs(tmp_path):
    from equipoise.trial import load, run

    trial = load(Path(__file__).parents[3] / "examples" / "conformal_intervals.yaml")
    found = run(trial, store=tmp_path / "store.sqlite")
    assert found.errors == 0
    assert [claim.verdict for claim in found.claims[:3]] == ["supported"] * 3
    (figure,) = found.figures
    names = [series["name"] for series in figure["figure"]["series"]]
    assert names == ["split", "normalized", "quantile", "as promised"]


def test_the_untrained_learner_refuses_in_a_sentence():
    learner = ConformalInterval().apply(Untrained(LinearRegression()), Rng(0))
    assert isinstance(learner, Predicts)
    assert isinstance(learner, PredictsInterval)
    for ask in (learner.predict, lambda rows: learner.predict_interval(rows, 0.1)):
        with pytest.raises(UsageError, match="add the treatment train"):
            ask(np.zeros((1, 2)))


def test_too_few_calibration_rows_are_refused_with_the_number_that_would_do():
    live = ConformalInterval().apply(Untrained(LinearRegression()), Rng(0))
    live = live.fit(examples_of(50, 18), Rng(0))
    with pytest.raises(UsageError, match=r"18 calibration rows are too few for alpha 0.05: .* 19 "):
        live.predict_interval(np.zeros((1, 3)), 0.05)
    assert np.isfinite(live.predict_interval(np.zeros((1, 3)), 0.06)).all()


@pytest.mark.parametrize("score", SCORES)
def test_constant_features_and_targets_work(score):
    data = Examples(np.ones((60, 2)), np.full(60, 3.0), np.array(["train", "calibration"] * 30))
    learner = ConformalInterval(score).apply(Untrained(LinearRegression()), Rng(0))
    live = learner.fit(data, Rng(0))
    np.testing.assert_allclose(live.predict_interval(np.ones((1, 2)), 0.1), [[3, 3]], atol=1e-9)


class Broken:
    learned_from = frozenset()

    def __init__(self, value, shape=None):
        self.value, self.shape = value, shape

    def predict(self, inputs):
        return np.full(self.shape or len(inputs), self.value)


def test_bad_input_is_refused_in_a_sentence():
    some = examples_of(10, 10)
    learner = ConformalInterval().apply(Untrained(LinearRegression()), Rng(0))
    with pytest.raises(UsageError, match="no calibration rows"):
        learner.fit(some.of("train"), Rng(0))
    with pytest.raises(UsageError, match="no train rows"):
        learner.fit(some.of("calibration"), Rng(0))
    with pytest.raises(UsageError, match="targets must be numbers"):
        learner.fit(Examples(some.inputs, np.array(["1"] * 20), some.split), Rng(0))
    with pytest.raises(UsageError, match="raise its calibration"):
        ConformalInterval(data=task(calibration=0.0)).apply(Broken(1.0), Rng(0))
    with pytest.raises(UsageError, match="raise train"):
        ConformalInterval("quantile", data=task(train=0.0)).apply(Broken(1.0), Rng(0))
    with pytest.raises(UsageError, match="not finite on"):
        ConformalInterval(data=task()).apply(Broken(np.nan), Rng(0))
    with pytest.raises(UnitError, match="shape"):
        ConformalInterval(data=task()).apply(Broken(1.0, (3, 3)), Rng(0))
    with pytest.raises(UsageError, match="from 0 to 2, got 3"):
        ConformalInterval(group=3).apply(Untrained(LinearRegression()), Rng(0)).fit(some, Rng(0))
    live = learner.fit(some, Rng(0))
    for alpha in (0, 1, -1, 90, np.nan):
        with pytest.raises(UsageError, match="strictly between 0 and 1"):
            live.predict_interval(some.inputs, alpha)
    with pytest.raises(UsageError, match="neither quantile nor alpha"):
        ConformalRegressor(
            conformity_score="quantile", quantile_estimator=LinearRegression()
        ).fit(some.inputs, some.targets)  # fmt: skip
    with pytest.raises(UsageError, match="conformity_score must be one of"):
        ConformalRegressor(conformity_score="gamma").fit(some.inputs, some.targets)


def test_the_notebook_form_keeps_its_order():
    x, y = noisy(50, 0)
    model = ConformalRegressor()
    with pytest.raises(NotFittedError):
        model.conformalize(x, y)
    model.fit(x, y)
    with pytest.raises(NotFittedError, match="call conformalize"):
        model.predict_interval(x)
    fitted = LinearRegression().fit(x, y)
    late = ConformalRegressor(fitted, prefit=True, conformity_score="normalized", random_state=0)
    assert len(late.conformalize(x, y).conformity_scores) == 25  # half teaches the scale
    with pytest.raises(UsageError, match="call fit first"):
        ConformalRegressor(fitted, prefit=True, conformity_score="quantile").conformalize(x, y)
