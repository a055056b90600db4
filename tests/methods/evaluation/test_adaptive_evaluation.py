"""Finding the best method: policies against known matrices, functions, missing scores, faults."""

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods import evaluation
from equipoise.methods.evaluation import hardness
from equipoise.methods.evaluation.adaptive_evaluation import (
    FilledSubset,
    LowRankImputation,
    RowMeanImputation,
    UCBELRFPolicy,
    UCBEPolicy,
)

FUNCTIONS = ["ucb_e", "ucb_e_lrf", "row_mean_imputation", "filled_subset", "low_rank_imputation"]
POLICIES = [
    UCBEPolicy(),
    UCBELRFPolicy(members=8),
    RowMeanImputation(),
    FilledSubset(),
    LowRankImputation(),
]


def find(name, *arguments, **options):
    if name == "ucb_e_lrf":
        options.setdefault("members", 8)
    return getattr(evaluation, name)(*arguments, **options)


def coins(means, items, seed=0):
    generator = np.random.default_rng(seed)
    return (generator.random((len(means), items)) < np.array(means)[:, np.newaxis]).astype(float)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_whole_budget_gives_the_true_best_and_the_true_means(name):
    scores = coins(np.linspace(0.3, 0.7, 6), 50)
    found = find(name, scores, 1.0)
    assert found.best == scores.mean(axis=1).argmax()
    assert np.allclose(found.means, scores.mean(axis=1))
    assert np.array_equal(found.scores, scores)
    assert found.cells == 300
    assert found.fresh is None


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("budget", [77, 0.257])
def test_a_budget_is_kept_to_the_cell(name, budget):
    asked = []
    scores = coins(np.linspace(0.2, 0.8, 6), 50)

    def run(method, items):
        asked.extend((method, int(item)) for item in items)
        return scores[method, items]

    found = find(name, run, budget, shape=scores.shape)
    assert len(asked) == len(set(asked)) == found.cells == 77
    known = ~np.isnan(found.scores)
    assert set(zip(*map(list, np.nonzero(known)), strict=True)) == set(asked)
    assert np.array_equal(found.scores[known], scores[known])


def test_each_cell_of_the_warm_up_is_run_with_its_own_method():
    scores = np.repeat(np.linspace(0, 1, 20)[:, np.newaxis], 30, axis=1)
    found = find(
        "ucb_e_lrf", lambda method, items: np.full(len(items), method / 19), 64, shape=scores.shape
    )
    rows, columns = np.nonzero(~np.isnan(found.scores))
    assert len(set(rows)) > 10
    assert np.allclose(found.scores[rows, columns], scores[rows, columns])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_missing_scores_stay_missing(name):
    scores = coins([0.3, 0.9, 0.5, 0.4], 200)
    scores[np.random.default_rng(1).random(scores.shape) < 0.2] = np.nan
    found = find(name, scores, 0.5)
    assert found.best == 1
    run_here = found.scores[1]
    assert 0.75 < np.nanmean(run_here) <= 1  # zeros in place of what is missing would give 0.72
    if name not in ("ucb_e_lrf", "low_rank_imputation"):  # the ridge pulls these down
        assert found.means[1] > 0.75


def test_ucb_e_runs_a_constant_loser_once():
    found = find("ucb_e", np.array([np.ones(300), np.zeros(300)]), 200, batch=2)
    assert (~np.isnan(found.scores)).sum(axis=1).tolist() == [198, 2]


def test_bandits_find_the_best_from_a_tenth_of_the_cells_and_random_cells_do_not():
    found = {"ucb_e": 0, "row_mean_imputation": 0}
    for seed in range(30):
        scores = coins([0.7, *[0.55] * 39], 600, seed)
        for name in found:
            found[name] += find(name, scores, 0.12, rng=Rng(seed)).best == 0
    assert found["ucb_e"] >= 27
    assert found["row_mean_imputation"] <= 20


def test_random_cells_choose_among_equal_methods_evenly():
    counts = np.zeros(5)
    for seed in range(400):
        scores = coins([0.5] * 5, 200, seed)
        counts[find("row_mean_imputation", scores, 0.3, rng=Rng(seed)).best] += 1
    # Equal means: one in five each, but for ties, which go to the lowest.
    assert counts[1:].min() > 45
    assert counts.max() < 125


def test_fresh_items_take_the_luck_out_of_the_winner_s_mean():
    bias, fresh = [], []
    for seed in range(200):
        scores = coins([0.5] * 20, 120, seed)
        found = find("ucb_e", scores, 0.2, fresh=40, rng=Rng(seed))
        bias.append(found.means[found.best] - 0.5)
        fresh.append(found.fresh.value - 0.5)
        assert found.fresh.n == 40
        assert np.isnan(found.scores).sum() == 2400 - found.cells - 40
    assert np.mean(bias) > 0.08
    assert abs(np.mean(fresh)) < 4 * 0.5 / np.sqrt(40 * 200)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_policy_draws_from_its_stream_alone(policy):
    scores = coins(np.linspace(0.3, 0.7, 5), 40)

    def cells(seed):
        found, run = [], policy.load(Rng(0)).allocate(5, 40, Rng(seed))
        for _ in range(4):
            arms, units = run.next()
            run.tell(arms, units, scores[arms, units])
            found += zip(arms.tolist(), units.tolist(), strict=True)
        return found

    assert cells(1) == cells(1)
    assert cells(1) != cells(2)


def test_ucb_e_gives_each_method_an_order_or_all_the_same():
    def orders(policy):
        run, found = policy.allocate(3, 30, Rng(4)), {0: [], 1: [], 2: []}
        while True:
            arms, units = run.next()
            if not len(arms):
                return list(found.values())
            run.tell(arms, units, np.full(len(arms), 0.5))
            found[int(arms[0])] += units.tolist()

    one, two, three = orders(UCBEPolicy(same_order=True))
    assert one == two == three != sorted(one)
    own = orders(UCBEPolicy())
    assert len(set(map(tuple, own))) == 3
    assert all(sorted(each) == list(range(30)) for each in own)


def test_baselines_run_what_their_names_say():
    run = FilledSubset().allocate(16, 10, Rng(0))
    run.next()
    assert sorted(run.asked.sum(axis=0)) == [0] * 8 + [16] * 2
    run = RowMeanImputation().allocate(16, 10, Rng(0))
    run.tell([0, 0], [0, 1], [1, 1])  # cells known from before are passed over
    seen = 2
    while True:
        arms, units = run.next()
        if not len(arms):
            break
        assert (0, 0) not in zip(arms.tolist(), units.tolist(), strict=True)
        seen += len(arms)
    assert seen == 160


def test_hardness_is_the_sum_of_inverse_squares():
    assert hardness([0.9, 0.8, 0.4]) == pytest.approx(100 + 4)
    assert hardness([0.5, 0.5]) == np.inf
    assert hardness([0.9, 0.895, 0.4], tolerance=0.01) == pytest.approx(4)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: find("ucb_e", np.ones((2, 4)), 0), "budget must be a share"),
        (lambda: find("ucb_e", np.ones((2, 4)), 9), "whole number of them from 1 to 8, got 9"),
        (lambda: find("ucb_e", np.ones((2, 4)), 1.5), "budget must be a share"),
        (lambda: find("ucb_e", np.ones((2, 4)), np.nan), "budget must be a share"),
        (lambda: find("ucb_e", np.ones((2, 4)), np.inf), "budget must be a share"),
        (lambda: find("ucb_e", np.ones(4), 2), "must be a matrix of methods and items"),
        (lambda: find("ucb_e", [["a"]], 2), "must be a matrix of numbers"),
        (lambda: find("ucb_e", np.ones((2, 4)) * 5, 4), "scores must be from 0 to 1, got 5"),
        (lambda: find("ucb_e", np.full((2, 4), np.nan), 4), "no cell has a score"),
        (lambda: find("ucb_e", lambda m, i: [1.0], 4), "shape must say how many"),
        (lambda: find("ucb_e", lambda m, i: [1.0], 4, shape=(2, 4)), "one score an item"),
        (lambda: find("ucb_e", np.ones((2, 4)), 4, shape=(3, 4)), r"shape is \(3, 4\)"),
        (lambda: find("ucb_e", np.ones((2, 4)), 4, fresh=4), "fresh must be 0, or at least 2"),
        (lambda: find("ucb_e_lrf", np.ones((2, 4)), 4, members=1), "members must be"),
        (lambda: hardness([1.0]), "at least two numbers"),
        (lambda: hardness([1.0, np.nan]), "without NaN"),
    ],
)
def test_faults_are_one_sentence(call, fault):
    with pytest.raises(UsageError, match=fault) as caught:
        call()
    assert "\n" not in str(caught.value)
