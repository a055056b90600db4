import math

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.code import (
    expected_mrr,
    expected_recall,
    mrr,
    recall,
    static_live_rank_correlation,
)
from equipoise.methods.code.turn_measures import (
    StaticLiveRankCorrelation,
    TurnMRR,
    TurnRecall,
)


def test_the_case_worked_by_hand():
    assert mrr([1, 2, None]) == 0.5
    assert recall([1, 2, None]) == pytest.approx(2 / 3)
    assert mrr([1, math.inf, math.nan]) == recall([1, None, None]) == pytest.approx(1 / 3)


def test_one_mrr_two_recalls():
    early, late = [1] * 50 + [None] * 50, [2] * 100
    assert mrr(early) == mrr(late) == 0.5
    assert (recall(early), recall(late)) == (0.5, 1.0)


def test_mrr_is_at_most_recall_and_equal_only_at_turn_0():
    draws = Rng(0).numpy()
    for _ in range(100):
        k = np.where(draws.random(20) < 0.3, np.inf, draws.integers(1, 12, 20))
        by_turn = [recall(k, turns=t) for t in range(12)]
        assert by_turn == sorted(by_turn)
        assert mrr(k) <= recall(k)
        assert (mrr(k) == recall(k)) == bool(np.all((k == 1) | np.isinf(k)))


@pytest.mark.parametrize(("hazard", "turns"), [(0.1, 10), (0.5, 3), (0.9, 1), (0.2, 0)])
def test_a_constant_hazard_gives_what_is_expected(hazard, turns):
    draws = Rng(1).numpy()
    k = draws.geometric(hazard, 200_000).astype(float)
    k[k > turns + 1] = np.inf
    assert recall(k) == pytest.approx(expected_recall(hazard, turns), abs=0.004)
    assert mrr(k) == pytest.approx(expected_mrr(hazard, turns), abs=0.004)


def test_the_limit_of_many_turns():
    for h in (0.05, 0.3, 0.8):
        limit = h * math.log(1 / h) / (1 - h)
        assert expected_mrr(h, 2000) == pytest.approx(limit, abs=1e-9)
        assert expected_recall(h, 2000) == pytest.approx(1)
    assert expected_mrr(1, 5) == expected_recall(1, 5) == 1
    assert expected_mrr(0, 5) == expected_recall(0, 5) == 0


def test_tables_are_the_plain_functions():
    k = [1, 2, 3, None, 11, 2]
    rows = Outcomes.of(reciprocal_rank=[0 if each is None else 1 / each for each in k])
    recalls = TurnRecall().measure(rows, Rng(0))
    means = TurnMRR().measure(rows, Rng(0))
    for turn in range(11):
        assert recalls[str(turn)].value == pytest.approx(recall(k, turns=turn))
        assert means[str(turn)].value == pytest.approx(mrr(k, turns=turn))
    assert recalls["9"].value < recalls["10"].value  # 1/11 is turn 10


def test_the_figure_has_a_line_an_arm():
    arms = {"a": Outcomes.of(reciprocal_rank=[1, 0.5]), "b": Outcomes.of(reciprocal_rank=[0, 0.5])}
    found = TurnRecall(turns=2).figure(arms, Rng(0))
    assert [line.name for line in found.series] == ["a", "b"]
    assert found.series[1].y == (0.0, 0.5, 0.5)
    assert TurnMRR(turns=2).figure(arms, Rng(0)).series[0].y == (0.5, 0.75, 0.75)


def test_clusters_widen_intervals():
    x = np.repeat([0, 1, 0, 1, 1, 0], 20).astype(float)
    alone = TurnRecall(turns=0).measure(Outcomes.of(reciprocal_rank=x), Rng(0))["0"]
    together = Outcomes.of(reciprocal_rank=x, cluster=np.repeat(range(6), 20))
    found = TurnRecall(turns=0).measure(together, Rng(0))["0"]
    assert found.high - found.low > 2 * (alone.high - alone.low)


def test_spearman_is_that_of_scipy():
    from scipy.stats import spearmanr

    x, y = Rng(3).numpy().integers(0, 6, size=(2, 25)).astype(float)
    found = static_live_rank_correlation(x, y)
    assert found.value == pytest.approx(spearmanr(x, y).statistic)
    assert found.low < found.value < found.high
    rows = Outcomes.of(static_reciprocal_rank=x, live_reciprocal_rank=y)
    assert StaticLiveRankCorrelation().statistic(rows) == pytest.approx(found.value)


def test_twelve_models_are_covered_well_enough():
    """At the size that replications have, resampled ranks tie and the interval is too wide."""
    measure, hits = StaticLiveRankCorrelation(draws=300), 0
    truth = 6 / np.pi * np.arcsin(0.45)
    for seed in range(200):
        x, noise = Rng(seed).numpy().normal(size=(2, 12))
        y = 0.9 * x + math.sqrt(1 - 0.81) * noise
        rows = Outcomes.of(static_reciprocal_rank=x, live_reciprocal_rank=y)
        found = measure.measure(rows, Rng(seed))
        hits += found.low <= truth <= found.high
    assert hits / 200 >= 0.95


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mrr([]), "mrr: there is no conversation"),
        (lambda: recall([0]), "recall: turns count from 1 for turn 0, got 0."),
        (lambda: expected_mrr(1.5, 1), "expected_mrr: hazard must be from 0 to 1"),
        (lambda: expected_recall(0.5, -1), "expected_recall: turns must be at least 0"),
        (lambda: static_live_rank_correlation([1, 2, 3], [1, 2, 3]), "3 models say nothing"),
        (lambda: static_live_rank_correlation([1] * 5, [1, 2, 3, 4, 5]), "one score"),
        (lambda: static_live_rank_correlation([1, 2], [1]), "one static and one live"),
        (lambda: static_live_rank_correlation([1, 2, 3, math.nan], [1] * 4), "needs both"),
        (
            lambda: TurnRecall().measure(Outcomes.of(reciprocal_rank=[3.0]), Rng(0)),
            "must be from 0 to 1",
        ),
        (
            lambda: TurnMRR().measure(Outcomes.of(reciprocal_rank=[math.nan]), Rng(0)),
            "no row has a value",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call()
