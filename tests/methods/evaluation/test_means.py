import math
from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.methods.evaluation import accuracy_by_stratum, mean, quantile
from equipoise.methods.evaluation.means import AccuracyByStratum, Mean, Quantile

RNG = Rng(0)
BINARY = ScoreSpec("correct", low=0.0, high=1.0)


def outcomes(cluster=None, specs=(BINARY,), **columns):
    return Outcomes.of(cluster=cluster, specs=specs, **columns)


def test_proportion_is_wilsons():
    from statsmodels.stats.proportion import proportion_confint

    found = Mean().measure(outcomes(correct=[1] * 37 + [0] * 13), RNG)
    low, high = proportion_confint(37, 50, method="wilson")
    assert (found.value, found.low, found.high) == pytest.approx((0.74, low, high))


def test_mean_is_students():
    from scipy import stats

    x = np.random.default_rng(0).normal(3, 2, 40)
    found = mean(x)
    low, high = stats.t.interval(0.95, 39, x.mean(), stats.sem(x))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert Mean("x").measure(Outcomes.of(x=x), RNG).low == pytest.approx(low)


def test_a_count_that_is_all_ones_is_no_proportion():
    found = Mean().measure(Outcomes.of(steps=[1, 1, 0, 1] * 10), RNG)
    assert found.method == "t"


def test_repeats_are_averaged_within_units():
    rows = outcomes(correct=[1, 0, 1, 1, 0, 0])
    rows = replace(rows, unit=np.array([0, 0, 1, 1, 2, 2]), repeat=np.array([0, 1] * 3))
    found = Mean().measure(rows, RNG)
    single = mean([0.5, 1.0, 0.0])
    assert (found.value, found.low, found.high) == pytest.approx(
        (single.value, single.low, single.high)
    )


def test_builds_are_crossed_with_units():
    generator = np.random.default_rng(1)
    units, builds = np.tile(np.arange(40), 5), np.repeat(np.arange(5), 40)
    x = generator.normal(0, 1, 40)[units] + generator.normal(0, 1, 5)[builds]
    rows = replace(Outcomes.of(x=x), unit=units, build=builds)
    found = Mean("x").measure(rows, RNG)
    assert found.builds == 5
    # Five builds with spread one: far wider than 200 rows would say.
    assert found.high - found.low > 3 * (mean(x).high - mean(x).low)


def test_clusters_widen():
    x = np.repeat(np.random.default_rng(2).random(30) < 0.6, 6).astype(float)
    found = Mean().measure(outcomes(correct=x, cluster=np.repeat(np.arange(30), 6)), RNG)
    assert found.clusters == 30
    assert found.high - found.low > 2 * (mean(x).high - mean(x).low)


def test_missing_scores_are_counted():
    found = Mean().measure(outcomes(correct=[1, 0, 1, math.nan, 1]), RNG)
    assert found.n == 4
    assert "1 of 5 rows have no score" in found.note
    with pytest.raises(UsageError, match="Mean: no row has a value for correct"):
        Mean().measure(outcomes(correct=[math.nan] * 3), RNG)


@pytest.mark.parametrize("part", [Mean(), Quantile(0.3), AccuracyByStratum()], ids=repr)
def test_direction_follows_the_score(part):
    for direction in (True, False, None):
        spec = ScoreSpec("seconds", higher_is_better=direction)
        assert part.better(outcomes(seconds=[1, 2], specs=[spec])) is direction


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("part", [Mean(), Quantile(0.5, draws=200)], ids=repr)
def test_row_order_is_irrelevant(part, clustered):
    generator = np.random.default_rng(3)
    groups = np.arange(80) // 4 if clustered else None
    rows = Outcomes.of(x=generator.normal(size=80), cluster=groups)
    first = part.measure(rows, RNG)
    second = part.measure(rows.take(generator.permutation(80)), RNG)
    assert (first.low, first.value, first.high) == pytest.approx(
        (second.low, second.value, second.high)
    )
    assert part.statistic(rows) == pytest.approx(first.value)


def test_quantile_is_the_order_statistics():
    found = quantile(np.arange(1, 101), 0.5)
    assert (found.value, found.low, found.high) == (50.5, 40, 61)  # David & Nagaraja, table
    part = Quantile(0.5, "x").measure(Outcomes.of(x=np.arange(1, 101)), RNG)
    assert (part.low, part.high) == (40, 61)


def test_strata_hold_together():
    """All four intervals cover at once in 95 of 100 runs."""
    generator = np.random.default_rng(4)
    truth = np.array([0.3, 0.5, 0.7, 0.9])
    strata = np.repeat(np.arange(4), 80)
    hits, runs = 0, 500
    for _ in range(runs):
        x = (generator.random(320) < truth[strata]).astype(float)
        table = accuracy_by_stratum(x, strata)
        hits += all(table[str(k)].low <= truth[k] <= table[str(k)].high for k in range(4))
    assert hits / runs >= 0.95 - 3.5 * math.sqrt(0.05 * 0.95 / runs)


def test_stratum_values_and_lonely_strata():
    x, strata = [1.5, 2.5, 7.0], ["a", "a", "b"]
    table = accuracy_by_stratum(x, strata)
    assert table["a"].value == 2.0
    assert table["b"].value == 7.0
    assert not table["b"].has_interval
    assert "one unit" in table["b"].note


def test_stratum_part_names_and_refuses():
    rows = outcomes(correct=[1, 1, 0, 1])
    with pytest.raises(UsageError, match="have no strata"):
        AccuracyByStratum().measure(rows, RNG)
    rows = replace(rows, stratum=np.array([0, 0, 1, 1]), strata=("easy", "hard"))
    table = AccuracyByStratum().measure(rows, RNG)
    assert {name: found.value for name, found in table.items()} == {"easy": 1.0, "hard": 0.5}
    assert table["easy"].level == pytest.approx(0.975)
