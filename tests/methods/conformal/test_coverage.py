from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.statistics import wilson
from equipoise.methods.conformal import (
    CoverageCurve,
    CoverageGap,
    coverage_curve,
    coverage_gap,
)


def test_the_gap_of_one_stratum_is_wilsons_interval_seen_from_the_promise():
    found = coverage_gap([1] * 80 + [0] * 20, 0.1)
    low, high = wilson(80, 100)
    assert found.value == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((0.9 - high, 0.9 - low))
    kept = coverage_gap([1] * 90 + [0] * 10, 0.1)  # the promise lies inside
    assert kept.low == 0
    assert kept.value == pytest.approx(0)
    assert kept.high == pytest.approx(0.9 - wilson(90, 100)[0])
    over = coverage_gap([1] * 400, 0.1)
    assert over.low == pytest.approx(wilson(400, 400)[0] - 0.9)
    assert over.high == pytest.approx(0.1)


def test_the_worst_and_the_mean_stratum():
    x, names = [1] * 80 + [0] * 20 + [1] * 96 + [0] * 4, ["hard"] * 100 + ["easy"] * 100
    worst = coverage_gap(x, 0.1, strata=names)
    mean = coverage_gap(x, 0.1, strata=names, over="mean")
    assert worst.value == pytest.approx(0.10)
    assert mean.value == pytest.approx(0.08)
    assert worst.details == mean.details == pytest.approx({"worst": 0.1, "mean": 0.08, "strata": 2})
    each = [wilson(k, 100, 0.975) for k in (80, 96)]
    assert worst.high == pytest.approx(0.9 - each[0][0])
    assert mean.low == pytest.approx(((0.9 - each[0][1]) + max(0, each[1][0] - 0.9)) / 2)


@pytest.mark.parametrize("over", ["worst", "mean"])
def test_the_gaps_interval_covers_where_the_promise_is_kept_too(over):
    # No gap at all is where a plain bootstrap of a maximum of distances fails.
    generator, strata = np.random.default_rng(0), np.repeat(np.arange(5), 60)
    held = [
        coverage_gap(generator.random(300) < 0.9, 0.1, strata=strata, over=over).low == 0
        for _ in range(400)
    ]
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 400)


def test_clusters_widen_the_gap():
    x = np.repeat([1, 1, 1, 1, 1, 1, 1, 0, 1, 0.0], 10)
    alone = coverage_gap(x, 0.1)
    together = coverage_gap(x, 0.1, clusters=np.repeat(np.arange(10), 10))
    assert together.high - together.low > alone.high - alone.low


def test_strata_come_from_the_outcomes():
    rows = Outcomes.of(covered=[1] * 80 + [0] * 20 + [1] * 100)
    rows = replace(rows, stratum=np.repeat([0, 1], 100), strata=("hard", "easy"))
    found = CoverageGap().measure(rows, Rng(0))
    assert found == coverage_gap(rows.score("covered"), 0.1, strata=["hard"] * 100 + ["easy"] * 100)
    some = CoverageGap(over="mean")
    assert some.statistic(rows) == pytest.approx(some.measure(rows, Rng(0)).value)


def test_the_curve_and_its_figure():
    generator = np.random.default_rng(1)
    chance = generator.random(200)
    rows = Outcomes.of(
        **{f"covered_at_{alpha:g}": chance < 1 - alpha for alpha in (0.5, 0.05, 0.2)},
        covered=chance < 0.9,
    )
    table = CoverageCurve().measure(rows, Rng(0))
    assert sorted(table) == ["0.5", "0.8", "0.95"]
    assert table["0.8"].value == np.mean(chance < 0.8)
    assert (table["0.8"].low, table["0.8"].high) == wilson((chance < 0.8).sum(), 200)
    figure = CoverageCurve().figure({"split": rows, "other": rows}, Rng(0))
    assert [series.name for series in figure.series] == ["split", "other", "as promised"]
    assert figure.series[0].x == (0.5, 0.8, 0.95)
    assert figure.series[0].y == tuple(table[name].value for name in ("0.5", "0.8", "0.95"))
    assert figure.series[-1].x == figure.series[-1].y == (0.5, 0.8, 0.95)
    assert figure.series[-1].look == "guide"


def test_refusals_are_sentences():
    with pytest.raises(UsageError, match="give the task alphas"):
        CoverageCurve().measure(Outcomes.of(covered=[1, 0]), Rng(0))
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        coverage_gap([1, 0], 1)
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        coverage_curve({90: [1, 0]})
    with pytest.raises(UsageError, match="one stratum a row"):
        coverage_gap([1, 0], 0.1, strata=["a"])
    with pytest.raises(UsageError, match="no row"):
        CoverageGap().measure(Outcomes.of(covered=[np.nan]), Rng(0))
    with pytest.raises(UsageError, match="zeros and ones"):
        coverage_gap([0.5, 1], 0.1)
