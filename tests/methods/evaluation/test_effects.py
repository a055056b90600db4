import math
from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.methods.evaluation import log_odds, paired_difference, ratio
from equipoise.methods.evaluation.effects import LogOdds, PairedDifference, Ratio

RNG = Rng(0)


def arms(generator, n=120, direction=True, cluster=None):
    spec = ScoreSpec("x", higher_is_better=direction)
    base = generator.gamma(4, 1, n)
    a, b = base + generator.gamma(2, 0.3, n), base
    return tuple(Outcomes.of(x=x, specs=[spec], cluster=cluster) for x in (a, b))


def test_difference_is_the_functions_and_follows_direction():
    up = arms(np.random.default_rng(0))
    found = PairedDifference().measure(up, RNG)
    wanted = paired_difference(up[0].score("x"), up[1].score("x"), rng=RNG)
    assert (found.value, found.low, found.high, found.p_value) == (
        wanted.value,
        wanted.low,
        wanted.high,
        wanted.p_value,
    )
    down = arms(np.random.default_rng(0), direction=False)
    assert PairedDifference().measure(down, RNG).value == pytest.approx(-found.value)


def test_ratio_says_how_many_times_better():
    up = arms(np.random.default_rng(1))
    x, y = (each.score("x") for each in up)
    found = Ratio().measure(up, RNG)
    assert found.value == pytest.approx(x.mean() / y.mean())
    assert found.value == pytest.approx(ratio(x, y, rng=RNG).value)
    down = arms(np.random.default_rng(1), direction=False)
    assert Ratio().measure(down, RNG).value == pytest.approx(y.mean() / x.mean())
    assert Ratio.null == 1.0


def test_log_odds_closed_form():
    a, b = np.repeat([1.0, 0], [60, 40]), np.repeat([1.0, 0], [30, 70])
    found = LogOdds().measure((Outcomes.of(x=a), Outcomes.of(x=b)), RNG)
    assert found.value == pytest.approx(math.log(60 / 40) - math.log(30 / 70))
    assert found.value == log_odds(a, b, rng=RNG).value


@pytest.mark.parametrize("part", [PairedDifference(), Ratio(draws=500)], ids=repr)
@pytest.mark.parametrize("clustered", [False, True])
def test_row_order_is_irrelevant_and_gaps_are_counted(part, clustered):
    generator = np.random.default_rng(2)
    a, b = arms(generator, cluster=np.arange(120) // 4 if clustered else None)
    a.scores["x"][5] = math.nan
    found = part.measure((a, b), RNG)
    assert "1 of 120 pairs lack a score" in found.note
    order = generator.permutation(120)
    again = part.measure((a.take(order), b.take(order)), RNG)
    assert (found.low, found.value, found.high, found.p_value) == pytest.approx(
        (again.low, again.value, again.high, again.p_value)
    )
    assert found.low <= found.value <= found.high
    assert (found.clusters is not None) is clustered


def test_repeats_make_no_new_units():
    a, b = arms(np.random.default_rng(3), n=40)
    twice = np.repeat(np.arange(40), 2)
    repeated = [replace(each.take(twice), repeat=np.tile([0, 1], 40)) for each in (a, b)]
    once, again = (PairedDifference().measure(pair, RNG) for pair in ((a, b), tuple(repeated)))
    assert (once.low, once.high) == pytest.approx((again.low, again.high))


def test_difference_covers_with_clusters():
    generator, hits, runs = np.random.default_rng(4), 0, 400
    groups = np.arange(100) // 5
    for run in range(runs):
        base = generator.normal(size=100)
        shift = np.repeat(generator.normal(0.3, 0.5, 20), 5)
        a = Outcomes.of(x=base + shift + generator.normal(0, 0.5, 100), cluster=groups)
        b = Outcomes.of(x=base, cluster=groups)
        found = PairedDifference(level=0.9, draws=100).measure((a, b), Rng(run))
        hits += found.low <= 0.3 <= found.high
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


def test_refusals():
    a, b = arms(np.random.default_rng(5), n=10)
    with pytest.raises(UsageError, match="same units, in the same order"):
        PairedDifference().measure((a, b.take(np.arange(9))), RNG)
    with pytest.raises(UsageError, match="same units, in the same order"):
        PairedDifference().measure((a, b.take(np.arange(10)[::-1])), RNG)
    empty = Outcomes.of(x=[math.nan] * 10)
    with pytest.raises(UsageError, match="no pair of rows"):
        Ratio().measure((empty, b), RNG)
