"""Budgets to find the best: by hand, in pairs, and their pictures."""

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.evaluation import budget_to_find
from equipoise.methods.evaluation.recovery_budgets import BudgetSaved, BudgetToFind


def draws(**shares):
    """Return 100 draws of which such shares find the best at each budget."""
    return Outcomes.of(
        **{
            f"found_at_{name.removeprefix('b') if '.' in name else '0.' + name[1:]}": (
                np.arange(100) < round(100 * share)
            ).astype(float)
            for name, share in shares.items()
        }
    )


def test_the_budget_is_read_off_between_two_budgets():
    found = budget_to_find({0.1: [1] * 80 + [0] * 20, 0.2: [1] * 100})
    assert found.value == pytest.approx(0.15)
    assert found.low < 0.15 < found.high
    assert found.n == 100


def test_the_last_time_below_the_target_counts():
    found = {0.1: [1] * 95 + [0] * 5, 0.2: [1] * 80 + [0] * 20, 0.3: [1] * 100}
    assert budget_to_find(found).value == pytest.approx(0.25)
    assert budget_to_find(found).note == ""  # the lowest budget would have been enough but for that


def test_beyond_the_budgets_precision_rises_to_one_at_all_cells():
    found = budget_to_find({0.5: [1] * 80 + [0] * 20})
    assert found.value == pytest.approx(0.75)
    whole = budget_to_find({0.5: [0, 1], 1.0: [1, 1]})
    assert whole.value == pytest.approx(0.9)


def test_the_lowest_budget_may_be_enough():
    found = budget_to_find({0.1: [1] * 1000, 0.2: [1] * 1000})
    assert found.value == found.low == found.high == 0.1
    assert "lowest budget" in found.note


def test_the_interval_inverts_that_of_the_precision():
    column = np.arange(100) < 50
    found = budget_to_find({0.1: column, 0.2: np.ones(100)}, target=0.75)
    # At 0.1 Wilson's interval of 50 in 100 is [0.404, 0.596], at 0.2 it is [0.963, 1].
    assert found.low == pytest.approx(0.1 + 0.1 * (0.75 - 0.5962) / (1 - 0.5962), abs=1e-4)
    assert found.high == pytest.approx(0.1 + 0.1 * (0.75 - 0.4038) / (0.9630 - 0.4038), abs=1e-4)


def test_intervals_hold_the_budget_as_often_as_they_say():
    measure, inside = BudgetToFind(), []
    for seed in range(400):
        outcomes, truth = measure.simulate(Rng(seed))
        found = measure.measure(outcomes, Rng(seed))
        assert found.value == pytest.approx(measure.statistic(outcomes))
        inside.append(found.low <= truth <= found.high)
    assert 0.93 < np.mean(inside) < 0.985


def test_savings_cover_too_and_are_none_between_equals():
    measure, inside, false = BudgetSaved(draws=400), [], []
    for seed in range(300):
        pair, truth = measure.simulate(Rng(seed))
        assert truth == pytest.approx(0.5, abs=0.03)
        found = measure.measure(pair, Rng(seed))
        inside.append(found.low <= truth <= found.high)
        generator = np.random.default_rng(seed)
        settled = generator.uniform(0, 0.5, (2, 150))
        a, b = (
            Outcomes.of(**{f"found_at_{x}": (row <= x).astype(float) for x in (0.1, 0.3, 0.5)})
            for row in settled
        )
        same = measure.measure((a, b), Rng(seed))
        false.append(not same.low <= 0 <= same.high)
    assert np.mean(inside) > 0.91
    assert np.mean(false) < 0.08


def test_the_figure_has_precision_against_budget_a_line_an_arm():
    arms = {"quick": draws(b05=0.5, b1=1.0), "slow": draws(b05=0.1, b1=0.4)}
    figure = BudgetToFind().figure(arms, Rng(0))
    quick, slow, target = figure.series
    assert (quick.name, quick.x, quick.y) == ("quick", (5.0, 10.0), (0.5, 1.0))
    assert slow.y == (0.1, 0.4)
    assert all(low < y < high for low, y, high in zip(slow.low, slow.y, slow.high, strict=True))
    assert target.look == "guide"
    assert target.y == (0.9, 0.9)


def test_incomplete_draws_are_left_out_and_counted():
    outcomes = draws(b05=0.5, b1=1.0)
    outcomes.scores["found_at_0.1"][:10] = np.nan
    found = BudgetToFind().measure(outcomes, Rng(0))
    assert found.n == 90
    assert "10 of 100" in found.note


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: budget_to_find({}), "budgets must be shares"),
        (lambda: budget_to_find({1.5: [1]}), "budgets must be shares"),
        (lambda: budget_to_find({0.5: [1, 0]}, target=1), "target must be between"),
        (lambda: BudgetToFind().measure(Outcomes.of(x=[1, 0]), Rng(0)), "there is no score"),
        (
            lambda: BudgetSaved().measure((draws(b05=1), draws(b1=1)), Rng(0)),
            "the same draws and budgets",
        ),
        (
            lambda: BudgetSaved().measure(
                (draws(b05=1).take(np.array([0])), draws(b05=1).take(np.array([0]))), Rng(0)
            ),
            "one draw gives no interval",
        ),
    ],
)
def test_faults_are_one_sentence(call, fault):
    with pytest.raises(UsageError, match=fault):
        call()
