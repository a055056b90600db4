import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression

from equipoise.core import (
    Predicts,
    PredictsInterval,
    PredictsQuantiles,
    PredictsSurvival,
    Rng,
    Trains,
    UsageError,
)
from equipoise.kit.about import about
from equipoise.kit.arrays import Examples
from equipoise.kit.worlds.right_censored import RightCensored
from equipoise.methods.survival import (
    CalibrateSurvival,
    ConformalSurvival,
    Survival,
    SurvivalBounds,
    SurvivalModel,
)
from equipoise.methods.survival.calibrate_survival import (
    first_crossing,
    focused_weights,
    fused_weights,
    miss_rates,
)
from equipoise.methods.tables import Train

METHODS = ("naive", "focused", "fused")


class TrueQuantiles:
    """Knows the quantiles of a world and needs no training."""

    def __init__(self, world):
        self.world = world

    def fit(self, data, rng):
        return self

    def predict_quantiles(self, inputs, levels):
        return self.world.quantiles(inputs, levels)


def draws(world, n, seed):
    return tuple(world.draw(n, Rng(seed).child(name)) for name in ("train", "calibration", "new"))


def whole(train, calibration):
    split = np.repeat(["train", "calibration"], [len(train.times), len(calibration.times)])
    return Examples(
        np.concatenate([train.inputs, calibration.inputs]),
        np.concatenate([train.targets, calibration.targets]),
        split,
    )


# The plain functions


def test_first_crossing_is_not_the_last():
    assert first_crossing([0.1, 0.2, 0.3], [0.05, 0.2, 0.05], 0.1) == 0.1
    assert first_crossing([0.1, 0.2, 0.3], [0.05, 0.06, 0.07], 0.1) == 0.3
    assert first_crossing([0.1, 0.2], [0.1, 0.05], 0.1) is None  # below alpha, not at it


def test_rates_by_hand():
    missed = np.array([[True, True], [False, True], [False, False], [True, True]])
    events = np.array([1, 0, 1, 1])
    weights = focused_weights(events, [0.5, 0.5, 0.25, 0.01])
    assert weights.tolist() == [2, 0, 4, 50]
    assert miss_rates(missed, np.ones(4)).tolist() == [0.5, 0.75]
    assert miss_rates(missed, weights) == pytest.approx([52 / 56, 52 / 56])
    tighter = np.array([[True, False], [True, False], [False, True], [False, True]])
    assert fused_weights(weights, tighter).tolist() == [[1, 2], [1, 0], [4, 1], [50, 1]]
    assert miss_rates(missed, fused_weights(weights, tighter)) == pytest.approx([51 / 56, 3 / 4])
    assert miss_rates(missed, np.zeros(4)).tolist() == [1, 1]


# Limits


def test_without_censoring_all_three_are_split_calibration():
    world = RightCensored(5, censored=False)
    train, calibration, new = draws(world, 400, 1)
    found = {}
    for method in METHODS:
        bound = ConformalSurvival(world.quantiles, method).fit(train.inputs, train.targets)
        bound.conformalize(calibration.inputs, calibration.targets)
        found[method] = bound.predict_lower_bound(new.inputs, 0.1)
    assert (found["naive"] == found["focused"]).all()
    assert (found["naive"] == found["fused"]).all()
    # Split calibration by the law's own transform: the largest level that at most a tenth miss.
    mu, sd = world.law(calibration.inputs)
    places = np.sort((np.log(calibration.times) - mu) / sd)
    limit = places[39]  # with 40 of 400 below the next, the share would reach 0.1
    level = max(each for each in bound.grid_ if ndtri(each) <= limit)
    assert bound.chosen_level(0.1) == level


def test_all_censored_says_nothing():
    world = RightCensored(1)
    train, calibration, new = draws(world, 100, 2)
    lost = np.stack([calibration.targets[:, 0], np.zeros(100)], axis=1)
    bound = ConformalSurvival(world.quantiles, "focused").fit(train.inputs, train.targets)
    bound.conformalize(calibration.inputs, lost)
    assert bound.predict_lower_bound(new.inputs, 0.1).tolist() == [0] * 100
    assert bound.effective_size_ == 0
    bound.fit(train.inputs, lost).conformalize(calibration.inputs, lost)
    assert not bound.predict_lower_bound(new.inputs, 0.1).any()
    fused = ConformalSurvival(world.quantiles, "fused").fit(train.inputs, lost)
    fused.conformalize(calibration.inputs, lost)
    naive = ConformalSurvival(world.quantiles, "naive").fit(train.inputs, lost)
    naive.conformalize(calibration.inputs, lost)
    assert fused.chosen_level(0.1) == naive.chosen_level(0.1)
    how = CalibrateSurvival("focused")
    data = whole(train, calibration)
    data.targets[data.split == "calibration", 1] = 0
    live = how.apply(TrueQuantiles(world), Rng(0)).fit(data, Rng(0))
    assert not live.predict_interval(new.inputs, 0.1)[:, 0].any()
    assert live.chosen_level(0.1) == 0
    assert "None of 100 calibration rows has the event" in about(live)["notes"][0]


# Known truth, closed form


def truths(world, x, grid):
    r"""Return s and pi of the closed form, the integral as a sum on a fine grid of z."""
    z = np.linspace(-8, 8, 801)
    mu, sd = world.law(x)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    sums = np.cumsum(world.still_followed(x, np.exp(mu[:, None] + sd[:, None] * z)) * density, 1)
    of_events = sums[:, np.searchsorted(z, ndtri(grid))] / sums[:, -1:]
    seen = 1 - (1 - grid) * world.still_followed(x, world.quantiles(x, grid))
    return seen < of_events, sums[:, -1]


# Chosen level and mean bound of naive, focused and fused, with true quantiles, pi and s, as
# another simulation of 30 draws found them; its levels were some thousandths apart, which moves
# naive bounds near 0.
KNOWN = {
    1: ((0.076, 0.055, 0.076), (0.26, 0.19, 0.26)),
    2: ((0.000, 0.048, 0.048), (0.00, 5.04, 5.04)),
    3: ((0.000, 0.032, 0.032), (0.00, 2.07, 2.07)),
    4: ((0.000, 0.018, 0.018), (0.00, 4.54, 4.55)),
    5: ((0.005, 0.039, 0.039), (0.34, 0.76, 0.76)),
    6: ((0.003, 0.039, 0.039), (0.24, 0.86, 0.86)),
}


@pytest.mark.parametrize("setting", KNOWN)
def test_with_true_weights_levels_and_bounds_are_the_known_ones(setting):
    world, levels, bounds, coverage = RightCensored(setting), [], [], []
    grid = np.arange(1, 61) / 400
    for seed in range(12):
        _, calibration, new = draws(world, 1000, 100 + seed)
        times, events = calibration.targets.T
        missed = times[:, None] < world.quantiles(calibration.inputs, grid)
        tighter, pi = truths(world, calibration.inputs, grid)
        focused = focused_weights(events, pi)
        row = []
        for weights in (np.ones(1000), focused, fused_weights(focused, tighter)):
            row.append(first_crossing(grid, miss_rates(missed, weights), 0.1) or 0.0)
        found = [
            world.quantiles(new.inputs, [each])[:, 0] if each else np.zeros(1000) for each in row
        ]
        levels.append(row)
        bounds.append([each.mean() for each in found])
        coverage.append([(new.times >= each).mean() for each in found])
    known_levels, known_bounds = KNOWN[setting]
    error = 4 * np.std(levels, axis=0, ddof=1) / np.sqrt(12) + 0.003
    assert (np.abs(np.mean(levels, axis=0) - known_levels) < error).all()
    error = 4 * np.std(bounds, axis=0, ddof=1) / np.sqrt(12) + 0.03 * max(known_bounds)
    assert (np.abs(np.mean(bounds, axis=0) - known_bounds)[1:] < error[1:]).all()
    assert (np.mean(coverage, axis=0) >= 0.9).all()
    naive, focused_level, fused = np.mean(levels, axis=0)
    assert fused >= max(naive, focused_level) - 1e-3


@pytest.mark.parametrize("setting", [1, 5])
def test_learned_weights_do_about_as_well_as_true_ones(setting):
    world = RightCensored(setting)
    train, calibration, _ = draws(world, 1000, 7)
    for method in METHODS:
        bound = ConformalSurvival(world.quantiles, method).fit(train.inputs, train.targets)
        bound.conformalize(calibration.inputs, calibration.targets)
        tighter, pi = truths(world, calibration.inputs, bound.grid_)
        missed = calibration.targets[:, :1] < world.quantiles(calibration.inputs, bound.grid_)
        focused = focused_weights(calibration.targets[:, 1], pi)
        weights = {
            "naive": np.ones(1000), "focused": focused, "fused": fused_weights(focused, tighter)
        }  # fmt: skip
        best = first_crossing(bound.grid_, miss_rates(missed, weights[method]), 0.1)
        assert bound.chosen_level(0.1) == pytest.approx(best, abs=0.015)
        if method == "fused":
            # Where levels are chosen; below, too few rows miss to learn from.
            chosen = (bound.grid_ > 0.03) & (bound.grid_ < 0.1)
            agree = bound.tighter(calibration.inputs)[:, chosen] == tighter[:, chosen]
            assert agree.mean() > 0.9


def test_bounds_hold_around_a_wrong_model():
    world = RightCensored(2)

    def wrong(inputs, levels):  # three times too long
        return 3 * world.quantiles(inputs, levels)

    cover = {method: [] for method in (*METHODS, "none")}
    for seed in range(4):
        train, calibration, new = draws(world, 600, 40 + seed)
        for method, found in cover.items():
            bound = ConformalSurvival(wrong, method).fit(train.inputs, train.targets)
            bound.conformalize(calibration.inputs, calibration.targets)
            found.append((new.times >= bound.predict_lower_bound(new.inputs, 0.1)).mean())
    assert np.mean(cover["none"]) < 0.6
    for method in METHODS:
        assert np.mean(cover[method]) > 0.89


def test_failsafe_takes_the_smaller_rate():
    world = RightCensored(1)
    train, calibration, _ = draws(world, 500, 3)
    rates = {}
    for method, failsafe in (("naive", False), ("focused", False), ("focused", True)):
        bound = ConformalSurvival(world.quantiles, method, failsafe=failsafe)
        bound.fit(train.inputs, train.targets)
        rates[method, failsafe] = bound.conformalize(*calibration[:1], calibration.targets).rates_
    smaller = np.minimum(rates["naive", False], rates["focused", False])
    assert (rates["focused", True] == smaller).all()
    assert (rates["naive", False] < rates["focused", False]).any()


def test_own_classifiers_are_used_and_left_alone():
    world = RightCensored(5)
    train, calibration, _ = draws(world, 300, 4)
    mine = LogisticRegression()
    bound = ConformalSurvival(world.quantiles, "fused", event_classifier=mine, miss_classifier=mine)
    bound.fit(train.inputs, train.targets).conformalize(calibration.inputs, calibration.targets)
    expected = LogisticRegression().fit(train.inputs, train.targets[:, 1])
    expected = expected.predict_proba(calibration.inputs)[:, 1]
    assert bound.event_probability(calibration.inputs) == pytest.approx(expected)
    assert not hasattr(mine, "coef_")


def test_infinite_quantiles_are_the_longest_training_time():
    def cut(inputs, levels):
        return np.where(np.asarray(levels) > 0.01, np.inf, 0.01) * np.ones((len(inputs), 1))

    x = np.zeros((50, 1))
    targets = np.stack([np.linspace(5, 6, 50), np.ones(50)], axis=1)
    bound = ConformalSurvival(cut, "naive").fit(x, targets)
    bound.conformalize(x, np.stack([np.full(50, 7.0), np.ones(50)], axis=1))
    assert bound.predict_lower_bound(x[:1], 0.1) == [6]
    assert bound.beyond_ == 50


# The treatment


def test_learner_trains_and_calibrates_on_its_own_splits():
    pytest.importorskip("lifelines")
    task = SurvivalBounds("builtin:gbsg2", train=0.4, calibration=0.3)
    bare = SurvivalModel("WeibullAFTFitter").load(Rng(0))
    learner = CalibrateSurvival("fused").apply(bare, Rng(0))
    assert learner.learns_from == ("train", "calibration")
    for each in (Predicts, PredictsInterval, PredictsQuantiles, PredictsSurvival, Trains):
        assert isinstance(learner, each)
    with pytest.raises(UsageError, match="has not been trained and calibrated"):
        learner.predict_interval(np.zeros((1, 8)), 0.1)
    live = Train(task).apply(learner, Rng(0))
    units = list(task.units(Rng(0)))
    inputs = np.array([unit.content for unit in units])
    alone = Train(task).apply(bare, Rng(0))
    assert live.predict(inputs) == pytest.approx(alone.predict(inputs))
    assert live.predict_quantiles(inputs, [live.chosen_level(0.1)])[:, 0] == pytest.approx(
        live.predict_interval(inputs, 0.1)[:, 0]
    )
    kinds = {unit.id: unit.split for unit in units}
    outcomes = task.perform(live, units, Rng(0))
    assert {kinds[each.unit] for each in outcomes if each.error_kind == "leak"} == {
        "train", "calibration",
    }  # fmt: skip
    assert {kinds[each.unit] for each in outcomes if each.status == "ok"} == {"test"}
    assert "are worth" in about(live)["notes"][0]
    rates = np.array(about(live)["curves"]["miss rate by level"])
    assert (np.diff(rates[:, 0]) > 0).all()


def test_a_trained_model_is_calibrated_at_once():
    pytest.importorskip("lifelines")
    task = Survival("builtin:gbsg2", train=0.4, calibration=0.3)
    trained = SurvivalModel("WeibullAFTFitter", data=task).load(Rng(0))
    live = CalibrateSurvival("naive", data=task).apply(trained, Rng(0))
    inputs = np.array([unit.content for unit in task.units(Rng(0))])
    assert live.predict_quantiles(inputs, [0.3]) == pytest.approx(
        trained.predict_quantiles(inputs, [0.3])
    )
    low = live.predict_interval(inputs, 0.1)
    assert (low[:, 1] == np.inf).all()
    looser = live.predict_interval(inputs, 0.3)[:, 0]
    assert (looser >= low[:, 0]).all()
    assert (looser > low[:, 0]).any()
    assert not isinstance(trained, PredictsInterval)


def test_what_the_model_cannot_do_the_treated_one_cannot():
    treated = CalibrateSurvival().apply(TrueQuantiles(RightCensored(1)), Rng(0))
    assert isinstance(treated, PredictsInterval)
    assert not isinstance(treated, PredictsSurvival)
    assert not isinstance(treated, Predicts)


def test_none_is_the_models_own_quantile():
    world = RightCensored(1)
    train, calibration, new = draws(world, 100, 5)
    live = CalibrateSurvival("none").apply(TrueQuantiles(world), Rng(0))
    live = live.fit(whole(train, calibration), Rng(0))
    own = world.quantiles(new.inputs, [0.2])[:, 0]
    assert (live.predict_interval(new.inputs, 0.2)[:, 0] == own).all()
    assert "not calibrated" in about(live)["notes"][0]


def test_faults_are_told_in_a_sentence():
    world = RightCensored(1)
    train, calibration, new = draws(world, 60, 6)
    with pytest.raises(UsageError, match="method must be one of fused, focused, naive, none"):
        ConformalSurvival(world.quantiles, "split")
    bound = ConformalSurvival(world.quantiles, "naive")
    with pytest.raises(UsageError, match="call fit and conformalize before"):
        bound.predict_lower_bound(new.inputs, 0.1)
    bound.fit(train.inputs, train.targets)
    with pytest.raises(UsageError, match="no rows to calibrate with"):
        bound.conformalize(calibration.inputs[:0], calibration.targets[:0])
    bound.conformalize(calibration.inputs, calibration.targets)
    for alpha in (0.0, 1.0, -1.0, 2.0):
        with pytest.raises(UsageError, match="alpha must lie between 0 and 1"):
            bound.predict_lower_bound(new.inputs, alpha)
    with pytest.raises(UsageError, match=r"60 calibration rows cannot tell .* at least 100"):
        bound.predict_lower_bound(new.inputs, 0.01)
    with pytest.raises(UsageError, match="quantiles must be"):
        ConformalSurvival(lambda x, levels: np.full((len(x), len(levels)), np.nan)).fit(
            train.inputs, train.targets
        ).conformalize(calibration.inputs, calibration.targets)
    live = CalibrateSurvival().apply(TrueQuantiles(world), Rng(0))
    with pytest.raises(UsageError, match="no calibration rows; give the task a calibration split"):
        live.fit(Examples(train.inputs, train.targets), Rng(0))
    negative = Examples(train.inputs, train.targets * [-1, 1])
    with pytest.raises(UsageError, match="finite and not negative"):
        live.fit(
            Examples(negative.inputs, negative.targets, np.repeat(["train", "calibration"], 30)),
            Rng(0),
        )
