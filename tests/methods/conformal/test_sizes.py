import math

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.statistics import mean, quantile
from equipoise.methods.conformal import IntervalSize, SetSizes, interval_size, set_sizes


def test_finite_widths_are_plain_means_and_medians():
    width = np.random.default_rng(0).exponential(size=80)
    assert interval_size(width) == mean(width)
    assert interval_size(width, which="median") == quantile(width, 0.5)


def test_infinite_widths_are_counted():
    width = np.r_[np.arange(1.0, 101), np.full(40, np.inf)]
    median = interval_size(width, which="median")
    assert (median.value, median.n) == (70.5, 140)
    assert "40 of 140 intervals are infinite and count as the largest" in median.note
    assert math.isinf(interval_size([*range(1, 12), *[np.inf] * 9], which="median").high)
    few = interval_size([*range(1, 201), np.inf])
    assert (few.value, few.n) == (100.5, 200)
    assert "1 of 201 intervals are infinite and left out" in few.note


def test_the_measure_knows_infinite_widths_by_their_score():
    rows = Outcomes.of(width=[1, 2, 3, np.nan, np.nan], unbounded=[0, 0, 0, 1, np.nan])
    part = IntervalSize("median")
    found = part.measure(rows, Rng(0))
    assert found.value == 2.5 == part.statistic(rows)
    assert "1 of 4 intervals are infinite" in found.note
    assert "1 of 5 rows have no score" in found.note
    for ask in (IntervalSize().statistic, lambda rows: IntervalSize().measure(rows, Rng(0))):
        with pytest.raises(UsageError, match=r"1 of 4 intervals .* or take the median"):
            ask(rows)


def test_set_sizes_by_hand():
    found = set_sizes([0, 1, 1, 3])
    assert {size: each.value for size, each in found.items()} == {0: 0.25, 1: 0.5, 2: 0, 3: 0.25}
    assert found[1].level == pytest.approx(1 - 0.05 / 4)


def test_the_figure_has_bars_for_each_arm():
    arms = {"lac": Outcomes.of(set_size=[1, 1, 2]), "aps": Outcomes.of(set_size=[2, 3, 3])}
    figure = SetSizes().figure(arms, Rng(0))
    assert [series.name for series in figure.series] == ["lac", "aps"]
    assert {series.look for series in figure.series} == {"bars"}
    assert figure.series[1].x == (0, 1, 2, 3)
    assert figure.series[1].y == pytest.approx((0, 0, 1 / 3, 2 / 3))


def test_refusals_are_sentences():
    with pytest.raises(UsageError, match="no mean width; calibrate on more rows"):
        interval_size([np.inf, np.inf])
    with pytest.raises(UsageError, match="no median width"):
        interval_size([1, np.inf], which="median")
    with pytest.raises(UsageError, match="no widths"):
        interval_size([])
    for sizes in ([], [0.5], [-1], [np.inf]):
        with pytest.raises(UsageError, match="whole numbers from 0"):
            set_sizes(sizes)
