"""Allocation: bounds by hand and as banditeval has them, missing scores, and resuming."""

from __future__ import annotations

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics.allocation import UCBE, Allocation, UCBELowRank
from equipoise.kit.statistics.low_rank import low_rank


def walk(policy: Allocation, truth: np.ndarray, budget: int) -> list[tuple[int, int]]:
    """Run a policy on a whole matrix and return the cells in the order they were run."""
    cells: list[tuple[int, int]] = []
    while len(cells) < budget:
        arms, units = policy.next()
        if not len(arms):
            break
        policy.tell(arms, units, truth[arms, units])
        cells += zip(arms.tolist(), units.tolist(), strict=True)
    return cells


def chosen(policy: Allocation, truth: np.ndarray, batches: int) -> list[int]:
    arms = []
    for _ in range(batches):
        at, units = policy.next()
        arms.append(int(at[0]))
        policy.tell(at, units, truth[at, units])
    return arms


def policies(arms: int, units: int) -> list[Allocation]:
    order = Rng(3).numpy().permutation(units)
    return [UCBE(arms, order, batch=7), UCBELowRank(arms, units, Rng(3), members=8, batch=7)]


def responses(arms: int, units: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(arms, 1)) - generator.normal(size=(1, units))
    return (generator.random((arms, units)) < 1 / (1 + np.exp(-logits))).astype(float)


def test_ucbe_follows_its_bound_by_hand():
    # Bounds after one batch of 4 each: 0.75 + 0.5, 0.25 + 0.5, 0.5 + 0.5. Arm 0 has 0.75 + 0.354
    # after two, 0.75 + 0.289 after three, 0.75 + 0.25 after four: a tie with arm 2, won by 0.
    truth = np.tile(np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]], float), 10)
    policy = UCBE(3, np.arange(40), batch=4)
    assert chosen(policy, truth, 8) == [0, 1, 2, 0, 0, 0, 0, 2]


def test_a_constant_loser_is_run_until_its_bound_falls_below():
    # 0 + sqrt(1 / 2) < 1 + sqrt(1 / N) for all N: one batch, whatever the budget.
    truth = np.array([np.ones(200), np.zeros(200)])
    policy = UCBE(2, np.arange(200), batch=2)
    walk(policy, truth, 150)
    assert policy.asked.sum(axis=1).tolist() == [148, 2]


# What banditeval 0.1.1 chooses on rows that are constant, in batches of 3 of 24 items; its random
# order of items does not matter there. Arms 0 to 4 are 0.31, 0.93, 0.62, 0.88 and 0.5.
BANDITEVAL = {
    1.0: "0123413131132131133342224022244440400000",
    0.2: "0123413113111313333222422224444440000000",
}


@pytest.mark.parametrize("a", BANDITEVAL)
def test_ucbe_chooses_as_banditeval(a):
    truth = np.repeat([[0.31], [0.93], [0.62], [0.88], [0.5]], 24, axis=1)
    policy = UCBE(5, np.arange(24), a=a, batch=3)
    assert "".join(map(str, chosen(policy, truth, 40))) == BANDITEVAL[a]


def test_ucbe_explores_more_with_a_larger_weight():
    truth = responses(10, 400)
    spreads = []
    for a in (0.0, 1.0, 100.0):
        policy = UCBE(10, np.arange(400), a=a, batch=8)
        walk(policy, truth, 400)
        spreads.append(policy.asked.sum(axis=1).max())
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[2] <= 48


def test_ucbe_walks_the_given_order_and_makes_pairs():
    order = Rng(1).numpy().permutation(20)
    cells = walk(UCBE(3, order, batch=5), responses(3, 20), 60)
    for arm in range(3):
        assert [unit for each, unit in cells if each == arm] == order.tolist()
    own = np.array([Rng(arm).numpy().permutation(20) for arm in range(3)])
    cells = walk(UCBE(3, own, batch=5), responses(3, 20), 60)
    for arm in range(3):
        assert [unit for each, unit in cells if each == arm] == own[arm].tolist()


def test_ucbe_chooses_alike_whatever_the_arms_are_called():
    truth, shuffle = responses(6, 300), np.array([3, 0, 5, 1, 4, 2])
    truth += np.linspace(0, 1e-6, 6)[:, np.newaxis]  # no ties after the first round
    truth /= truth.max()
    plain, moved = UCBE(6, np.arange(300)), UCBE(6, np.arange(300))
    first = chosen(plain, truth, 30)
    second = chosen(moved, truth[shuffle], 30)
    assert sorted(first[:6]) == sorted(second[:6]) == list(range(6))
    assert first[6:] == [int(shuffle[arm]) for arm in second[6:]]


@pytest.mark.parametrize("which", [0, 1])
def test_every_cell_is_given_once_and_the_whole_matrix_gives_the_true_means(which):
    truth = responses(5, 31)
    policy = policies(5, 31)[which]
    cells = walk(policy, truth, 10**6)
    assert sorted(cells) == [(arm, unit) for arm in range(5) for unit in range(31)]
    assert np.allclose(policy.means(), truth.mean(axis=1))
    assert policy.best() == truth.mean(axis=1).argmax()
    arms, units = policy.next()
    assert arms.size == units.size == 0
    assert arms.dtype.kind == "i"


@pytest.mark.parametrize("which", [0, 1])
def test_batches_without_an_answer_do_not_overlap(which):
    policy = policies(4, 40)[which]
    seen: set[tuple[int, int]] = set()
    for _ in range(30):
        arms, units = policy.next()
        batch = set(zip(arms.tolist(), units.tolist(), strict=True))
        assert not batch & seen
        seen |= batch
    assert len(seen) == 160


def test_ucbe_spreads_batches_that_wait_for_an_answer():
    policy = UCBE(3, np.arange(40), batch=4)
    assert [int(policy.next()[0][0]) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("which", [0, 1])
def test_a_resumed_run_goes_on_as_the_whole_one(which):
    truth = responses(6, 60)
    whole = walk(policies(6, 60)[which], truth, 210)
    resumed = policies(6, 60)[which]
    arms, units = np.array(whole[:105]).T
    back = np.arange(len(arms))[::-1]  # a store gives rows in any order
    resumed.tell(arms[back], units[back], truth[arms, units][back])
    assert walk(resumed, truth, 105) == whole[105:]


@pytest.mark.parametrize("which", [0, 1])
def test_missing_scores_stay_missing_and_are_not_asked_again(which):
    truth = responses(4, 50)
    gone = np.random.default_rng(1).random(truth.shape) < 0.3
    truth[gone] = np.nan
    policy = policies(4, 50)[which]
    cells = walk(policy, truth, 10**6)
    assert len(cells) == len(set(cells)) == 200
    if which == 0:
        assert np.allclose(policy.means(), np.nanmean(truth, axis=1))
    else:
        assert np.abs(policy.means() - np.nanmean(truth, axis=1)).max() < 0.1
    assert policy.best() == np.nanmean(truth, axis=1).argmax()


@pytest.mark.parametrize("which", [0, 1])
def test_an_arm_that_always_fails_does_not_win_or_eat_the_budget(which):
    truth = responses(4, 200)
    truth[2] = np.nan
    policy = policies(4, 200)[which]
    cells = walk(policy, truth, 320)
    assert np.isnan(policy.means()[2])
    assert policy.best() != 2
    assert sum(arm == 2 for arm, _ in cells) < 80


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_told_means_nothing_known(which):
    policy = policies(3, 10)[which]
    assert np.isnan(policy.means()).all()
    with pytest.raises(UsageError, match="no cell has a score"):
        policy.best()
    arms, units = policy.next()
    policy.tell(arms, units, np.full(len(arms), np.nan))
    assert np.isnan(policy.means()).all()
    policy.tell([], [], [])


def test_a_cell_told_again_takes_its_new_score():
    policy = UCBE(2, np.arange(4), batch=2)
    policy.tell([0, 0], [0, 1], [0.0, np.nan])
    policy.tell([0, 0], [0, 1], [1.0, 0.5])
    assert policy.means()[0] == 0.75


def test_the_warm_up_draws_cells_uniformly_from_the_whole_matrix():
    counts = np.zeros((4, 25))
    for seed in range(200):
        policy = UCBELowRank(4, 25, Rng(seed), warm_up=0.2, batch=10)
        for _ in range(2):
            np.add.at(counts, policy.next(), 1)
    statistic = float(((counts - 40) ** 2 / 32).sum())  # 100 cells, mean 99, deviation 14
    assert 57 < statistic < 141


def test_low_rank_goes_to_the_highest_bound_and_its_widest_cells():
    truth = responses(5, 40)
    policy = UCBELowRank(5, 40, Rng(2), warm_up=0.3, batch=6)
    while policy.asked.mean() < 0.3:
        arms, units = policy.next()
        policy.tell(arms, units, truth[arms, units])
    count = int(policy.asked.sum())
    mean, spread = low_rank(policy.scores, Rng(2).child("fit", count, count))
    bounds = np.where(policy.asked, truth, mean + 5 * spread).mean(axis=1)
    open_spread = np.where(policy.asked, -1, spread)[bounds.argmax()]
    before = policy.asked.copy()
    arms, units = policy.next()
    assert set(arms) == {bounds.argmax()}
    assert set(units) == set(np.argsort(-open_spread)[:6])
    assert not before[arms, units].any()
    filled = np.where(before, truth, mean).mean(axis=1)
    assert np.allclose(policy.means(), filled)


def test_without_spread_the_first_open_units_are_next():
    # No exploration, nothing left out: the members agree, and ties go to the lowest unit.
    truth = np.outer([1.0, 0.5], np.ones(12))
    policy = UCBELowRank(2, 12, Rng(0), eta=0, drop=0, warm_up=0, batch=4, iterations=50)
    policy.tell([0, 0, 1, 1], [0, 1, 0, 1], truth[[0, 0, 1, 1], [0, 1, 0, 1]])
    assert set(policy.next()[0]) == {0}


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: UCBE(0, np.arange(3)), "arms must be at least 1"),
        (lambda: UCBE(2, np.zeros(3, int)), "every unit from 0 to 2 once"),
        (lambda: UCBE(2, [0, 1, 3]), "every unit from 0 to 2 once"),
        (lambda: UCBE(2, np.zeros((3, 4), int)), r"shape \(units,\) or \(2, units\)"),
        (lambda: UCBE(2, np.arange(3), a=-1), "a must be at least 0"),
        (lambda: UCBE(2, np.arange(3), a=np.nan), "a must be at least 0"),
        (lambda: UCBE(2, np.arange(3), batch=0), "batch must be at least 1"),
        (lambda: UCBELowRank(2, 0, Rng(0)), "units must be at least 1"),
        (lambda: UCBELowRank(2, 3, Rng(0), eta=-1), "eta must be at least 0"),
        (lambda: UCBELowRank(2, 3, Rng(0), warm_up=5), "warm_up must be from 0 to 1"),
        (lambda: UCBELowRank(2, 3, Rng(0), members=1), "members must be at least 2"),
        (lambda: UCBELowRank(2, 3, Rng(0), rank=0), "rank must be at least 1"),
        (lambda: UCBELowRank(2, 3, Rng(0), ridge=0), "ridge must be above 0"),
        (lambda: UCBELowRank(2, 3, Rng(0), drop=1), "drop must be from 0 to below 1"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(make, fault):
    with pytest.raises(UsageError, match=fault):
        make()


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (([0, 1], [0], [1.0]), "lists of one length"),
        (([2], [0], [1.0]), "places of arms must be whole numbers from 0 to 1"),
        (([0], [-1], [1.0]), "places of units must be whole numbers from 0 to 3"),
        (([0.5], [0], [1.0]), "places of arms must be whole numbers"),
        (([0], [0], [1.5]), "scores must be from 0 to 1, got 1.5"),
        (([0, 1], [0, 0], [-0.5, np.nan]), "scores must be from 0 to 1, got -0.5"),
    ],
)
def test_bad_scores_are_refused_in_a_sentence(told, fault):
    with pytest.raises(UsageError, match=fault):
        UCBE(2, np.arange(4)).tell(*told)
