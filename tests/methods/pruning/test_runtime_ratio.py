import math

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.pruning import PerformanceRuntimeRatio, performance_runtime_ratio


def test_worked_by_hand():
    dense = np.log([4.0, 9.0])  # the perplexity of both is 6
    treated = np.log([8.0, 18.0])  # and of both 12
    found = performance_runtime_ratio(treated, dense, [3, 5], [7, 7])
    assert found.value == pytest.approx(6 / 3)
    assert performance_runtime_ratio(
        treated, dense, [3, 5], [7, 7], perplexity=False
    ).value == pytest.approx(math.log(2) / 3)


def test_the_papers_own_figures():
    """A model that loses a third as much for as much saved has a third of the ratio."""
    generator = Rng(0).numpy()
    dense, cost = generator.normal(1.8, 0.1, 40), np.full(40, 10.0)
    pair = [
        performance_runtime_ratio(dense + lost, dense, cost - 4, cost, perplexity=False).value
        for lost in (0.3, 0.9)
    ]
    assert pair[1] / pair[0] == pytest.approx(3)


def test_interval_holds_the_value_and_narrows():
    generator = Rng(1).numpy()

    def width(n):
        dense, cost = generator.normal(2, 0.3, n), generator.normal(10, 1, n)
        found = performance_runtime_ratio(
            dense + generator.normal(0.5, 0.2, n), dense, cost - 3, cost, rng=Rng(2)
        )
        assert found.low < found.value < found.high
        return found.high - found.low

    assert width(400) < 0.5 * width(40)


def test_clusters_are_drawn_whole():
    generator = Rng(1).numpy()
    dense = np.repeat(generator.normal(2, 0.3, 12), 10)
    gap = np.repeat(generator.normal(0.5, 0.2, 12), 10)
    cost = np.full(120, 10.0)
    columns = dense + gap, dense, cost - 3, cost
    plain = performance_runtime_ratio(*columns)
    whole = performance_runtime_ratio(*columns, clusters=np.repeat(np.arange(12), 10))
    assert whole.high - whole.low > 2 * (plain.high - plain.low)


def test_a_better_and_cheaper_model_is_below_zero():
    assert performance_runtime_ratio([1, 1.1], [2, 2.2], [1, 1], [2, 2]).value < 0


def test_measure_leaves_out_pairs_without_a_score():
    a = Outcomes.of(nll=[2, np.nan, 3, 4], seconds=[1, 1, 1, 1])
    b = Outcomes.of(nll=[1, 1, 2, 2], seconds=[3, 3, 3, np.nan])
    found = PerformanceRuntimeRatio(perplexity=False).measure((a, b), Rng(0))
    assert found.n == 2
    assert found.value == 0.5
    assert "2 of 4 pairs lack a score" in found.note


def test_wrong_use_is_one_sentence():
    with pytest.raises(UsageError, match="saves no cost, so there is no ratio"):
        performance_runtime_ratio([2, 2], [1, 1], [3, 3], [3, 3])
    with pytest.raises(UsageError, match="equally long, got 2, 1, 2, 2"):
        performance_runtime_ratio([2, 2], [1], [3, 3], [3, 3])
    with pytest.raises(UsageError, match="dense must be one row of finite numbers"):
        performance_runtime_ratio([2, 2], [1, np.nan], [3, 3], [4, 4])
    a, b = Outcomes.of(nll=[1, 2], seconds=[1, 2]), Outcomes.of(nll=[1], seconds=[1])
    with pytest.raises(UsageError, match="both arms must have the same units"):
        PerformanceRuntimeRatio().measure((a, b), Rng(0))
    with pytest.raises(UsageError, match='No score "gflop"'):
        PerformanceRuntimeRatio(cost="gflop").measure((a, a), Rng(0))
