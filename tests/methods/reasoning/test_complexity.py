"""Slopes against closed forms, statsmodels and simulation with known truth."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special, stats

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.methods.reasoning import accuracy_slope, movement_effect, slope_difference
from equipoise.methods.reasoning.complexity import (
    AccuracyVsComplexity,
    MovementEffect,
    SlopeDifference,
)


def drawn(n, slope, seed, depths=(1, 2, 3, 4), start=2.0):
    generator = np.random.default_rng(seed)
    depth = generator.choice(depths, n)
    return generator.random(n) < special.expit(start + slope * depth), depth


def test_two_depths_give_the_closed_form():
    """Saturated, Firth's penalty adds half a right and half a wrong answer to each depth."""
    right = [1] * 9 + [0] * 1 + [1] * 3 + [0] * 7
    depth = [1] * 10 + [2] * 10
    by_hand = np.log(3.5 / 7.5) - np.log(9.5 / 1.5)
    assert accuracy_slope(right, depth).value == pytest.approx(by_hand, abs=1e-7)
    wide = accuracy_slope(right, np.array(depth) * 10.0)
    assert wide.value == pytest.approx(by_hand / 10, abs=1e-8)


def test_four_cells_give_the_closed_form_of_the_interaction():
    cells = {(0, 1): (8, 2), (0, 2): (5, 5), (1, 1): (9, 1), (1, 2): (2, 8)}
    rows = [
        (y, depth, group)
        for (group, depth), (right, wrong) in cells.items()
        for y in [1] * right + [0] * wrong
    ]
    logit = {key: np.log((r + 0.5) / (w + 0.5)) for key, (r, w) in cells.items()}
    by_hand = (logit[1, 2] - logit[1, 1]) - (logit[0, 2] - logit[0, 1])
    found = slope_difference(*(np.array(column) for column in zip(*rows, strict=True)))
    assert found.value == pytest.approx(by_hand, abs=1e-7)
    assert found.low < by_hand < found.high


def test_large_samples_agree_with_statsmodels():
    y, depth = drawn(20_000, -0.8, 1)
    peer = sm.Logit(y.astype(float), sm.add_constant(depth.astype(float))).fit(disp=0)
    found = accuracy_slope(y, depth)
    assert found.value == pytest.approx(peer.params[1], abs=2e-3)
    assert (found.low, found.high) == pytest.approx(tuple(peer.conf_int()[1]), abs=3e-3)
    group = np.random.default_rng(2).integers(0, 2, len(y))
    x = np.column_stack([np.ones(len(y)), group, depth, group * depth]).astype(float)
    peer = sm.Logit(y.astype(float), x).fit(disp=0)
    found = slope_difference(y, depth, group)
    assert found.value == pytest.approx(peer.params[3], abs=2e-3)
    assert (found.low, found.high) == pytest.approx(tuple(peer.conf_int()[3]), abs=3e-3)


def test_the_interval_is_where_the_penalised_likelihood_has_fallen_by_half_a_quantile():
    """Against a brute search over the other coefficient."""
    y, depth = drawn(60, -1.0, 4)
    found = accuracy_slope(y, depth, level=0.9)
    centred = depth - depth.mean()

    def penalised(a, b):
        p = special.expit(a + b * centred)
        w = p * (1 - p)
        x = np.column_stack([np.ones(len(y)), centred])
        return (
            np.where(y, np.log(p), np.log1p(-p)).sum()
            + 0.5 * np.linalg.slogdet(x.T @ (x * w[:, None]))[1]
        )

    grid = np.linspace(-6, 8, 2_001)
    best = max(penalised(a, found.value) for a in grid)
    for end in (found.low, found.high):
        there = max(penalised(a, end) for a in grid)
        assert 2 * (best - there) == pytest.approx(stats.chi2.ppf(0.9, 1), abs=2e-3)


def test_a_sharp_limit_has_a_finite_slope_and_an_interval_below_zero():
    depth = np.repeat([1, 2, 3, 4, 5, 6], 50)
    found = accuracy_slope(depth <= 3, depth)
    assert np.isfinite(found.value)
    assert found.high < -2
    assert "all or nothing" in found.note
    assert found.details["accuracy_at_3"] == 1
    assert found.details["accuracy_at_4"] == 0


def test_a_floor_has_a_slope_near_zero_and_a_wide_interval():
    depth = np.repeat([1, 2, 3], 40)
    found = accuracy_slope(np.zeros(120), depth)
    assert abs(found.value) < 1e-6
    assert found.low < -1 < 1 < found.high


@pytest.mark.parametrize("clustered", [False, True])
def test_the_interval_covers(clustered):
    truth, covered, repeats = -0.7, 0, 250
    generator = np.random.default_rng(11)
    for _ in range(repeats):
        if clustered:
            # Problems asked four times, at one depth each; copies answer alike.
            depth = np.repeat(generator.choice([1, 2, 3, 4], 60), 4)
            same = np.repeat(generator.random(60), 4)
            y = same < special.expit(1.5 + truth * depth)
            found = accuracy_slope(y, depth, clusters=np.repeat(np.arange(60), 4))
        else:
            depth = generator.choice([1, 2, 3, 4], 150)
            y = generator.random(150) < special.expit(1.5 + truth * depth)
            found = accuracy_slope(y, depth)
        covered += found.low <= truth <= found.high
    assert covered >= stats.binom.ppf(1e-3, repeats, 0.95)


def test_builds_widen_the_interval():
    generator = np.random.default_rng(3)
    depth = np.tile(np.repeat([1, 2, 3, 4], 25), 4)
    build = np.repeat(np.arange(4), 100)
    slopes = np.array([-0.2, -0.6, -1.2, -1.6])[build]
    y = generator.random(400) < special.expit(1 + slopes * (depth - 2.5))
    unit = np.tile(np.arange(100), 4)
    alone = accuracy_slope(y, depth)
    found = accuracy_slope(y, depth, units=unit, builds=build)
    assert found.builds == 4
    assert found.high - found.low > 1.5 * (alone.high - alone.low)


def test_movement_effect_is_the_mean_of_differences_within_problems():
    right = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 0]])
    found = movement_effect(right.ravel(), [0, 1, 2] * 5, np.repeat(list("abcde"), 3))
    each = right[:, 1:].mean(1) - right[:, 0]
    assert found.value == pytest.approx(each.mean())
    reach = stats.t.ppf(0.975, 4) * each.std(ddof=1) / np.sqrt(5)
    assert (found.low, found.high) == pytest.approx((each.mean() - reach, each.mean() + reach))
    assert found.details["effect_of_2"] == pytest.approx((right[:, 2] - right[:, 0]).mean())


SPECS = (ScoreSpec("correct", True, 0, 1), ScoreSpec("depth", None))


def test_a_failed_unit_counts_as_wrong_at_the_depth_of_its_stratum():
    right, depth = np.array([1.0, 1, 1, np.nan]), np.array([1.0, 1, 2, np.nan])
    plain = Outcomes.of(specs=SPECS, correct=right, depth=depth)
    from dataclasses import replace

    outcomes = replace(
        plain,
        failed=np.array([False, False, False, True]),
        stratum=np.array([0, 0, 1, 1]),
        strata=("depth 1", "depth 2"),
    )
    found = AccuracyVsComplexity().measure(outcomes, Rng(0))
    assert found.value == accuracy_slope([1, 1, 1, 0], [1, 1, 2, 2]).value
    assert found.n == 4
    dropped = AccuracyVsComplexity().measure(replace(outcomes, stratum=None), Rng(0))
    assert "1 of 4 rows lack a score" in dropped.note


def test_rows_in_another_order_give_the_same():
    y, depth = drawn(80, -1.0, 7)
    group = np.arange(80) % 2
    outcomes = Outcomes.of(specs=SPECS, correct=y, depth=depth, nonlinear=group)
    shuffled = outcomes.take(np.random.default_rng(0).permutation(80))
    for measure in (AccuracyVsComplexity(), SlopeDifference()):
        assert measure.measure(outcomes, Rng(0)) == measure.measure(shuffled, Rng(0))
        assert measure.statistic(outcomes) == measure.measure(outcomes, Rng(0)).value


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: accuracy_slope([1, 0], [2, 2]), "complexity has one value"),
        (lambda: accuracy_slope([1, 0], [1, 2, 3]), "columns must have one length"),
        (lambda: accuracy_slope([1, 2], [1, 2]), "scores must be from 0 to 1"),
        (lambda: slope_difference([1, 0], [1, 2], [0, 0]), "group must hold both 0 and 1"),
        (lambda: slope_difference([1, 0, 1], [1, 2, 1], [0, 0, 1]), "two values of complexity"),
        (lambda: movement_effect([1, 0], [0, 0], [1, 2]), "at least two problems"),
        (
            lambda: MovementEffect().measure(Outcomes.of(correct=[1, 0], movement=[0, 1]), Rng(0)),
            "units have no clusters",
        ),
        (
            lambda: AccuracyVsComplexity().measure(Outcomes.of(correct=[1, 0]), Rng(0)),
            'No score "depth"',
        ),
    ],
)
def test_mistakes_are_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
