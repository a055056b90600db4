import numpy as np
import pytest
from scipy.stats import kendalltau

from equipoise.core import Rng
from equipoise.methods.evaluation.rating_rules import (
    RatedInvention,
    RatingRule,
    RedundantPrompts,
)


def played(task, by):
    rule = RatingRule(by=by).load(Rng(0))
    return [outcome.scores for outcome in task.perform(rule, task.units(Rng(5)), Rng(0))]


def a_pool(seed=0):
    able = np.random.default_rng(seed).normal(size=(20, 6))
    return 1 / (1 + np.exp(able[:, None, :] - able[:, :, None]))


def test_bradley_terry_ranks_by_the_average_where_all_have_met():
    for seed in range(5):
        rated = [RatingRule(by=by).load(Rng(0)).rate(a_pool(seed)) for by in RULES[:2]]
        assert kendalltau(rated[0].models, rated[1].models).statistic == pytest.approx(1)


RULES = ("average", "bradley_terry", "nash", "cce")


@pytest.mark.parametrize("by", RULES)
def test_without_copies_nothing_changes(by):
    for scores in played(RedundantPrompts(copies=0, draws=3), by):
        assert scores["shift"] == 0
        assert scores["kendall"] == pytest.approx(1)


def test_copies_move_averages_and_no_equilibrium():
    task = RedundantPrompts(copies=100, draws=6)
    for by in RULES:
        scores = played(task, by)
        kendall = np.mean([each["kendall"] for each in scores])
        shift = max(each["shift"] for each in scores)
        if by in ("nash", "cce"):
            assert kendall == pytest.approx(1)
            assert shift < 1e-6
        else:
            assert kendall < 0.7
            assert shift > 0.3


def test_noise_makes_copies_differ():
    exact, noisy = (
        played(RedundantPrompts(copies=50, noise=noise, draws=4), "nash") for noise in (0, 0.3)
    )
    assert max(each["shift"] for each in exact) < 1e-6
    assert max(each["shift"] for each in noisy) > 0.01


def test_averages_reward_what_is_common():
    task = RatedInvention(rounds=25, draws=4)
    average, nash = (
        np.mean([each["added_prompt_entropy"] for each in played(task, by)])
        for by in ("average", "nash")
    )
    assert average < nash - 0.1
    assert nash < np.log(4)


def test_draws_depend_on_the_seed_alone():
    task = RatedInvention(rounds=5, draws=2)
    units = task.units(Rng(1))
    rule = RatingRule(by="nash").load(Rng(0))
    together = task.perform(rule, units, Rng(0))
    alone = task.perform(rule, units[1:], Rng(3))
    assert together[1].scores == alone[0].scores
