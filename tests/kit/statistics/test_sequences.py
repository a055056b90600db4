"""Confidence sequences: coverage at all times, against formulas and in cost."""

import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.statistics import AsymptoticSequence, BettingSequence, mean


def hedged_capital(x, m, alpha):
    """Waudby-Smith & Ramdas (2023), equations of Theorem 3, one step at a time."""
    up, down, total, squares = 1.0, 1.0, 0.5, 0.25
    path = []
    for i, value in enumerate(x, start=1):
        variance = squares / i
        bet = np.sqrt(2 * np.log(2 / alpha) / (variance * i * np.log(1 + i)))
        up *= 1 + min(bet, 0.5 / m) * (value - m)
        down *= 1 - min(bet, 0.5 / (1 - m)) * (value - m)
        path.append((up, down))
        total += value
        squares += (value - total / (i + 1)) ** 2
    return np.array(path)


@pytest.mark.parametrize("m", [0.2, 0.5, 0.75])
def test_capital_equals_the_papers_recursion(m):
    x = np.random.default_rng(1).beta(2, 3, size=200)
    sequence = BettingSequence(0, 1, points=101)
    sequence.update_many(x)
    up, down = hedged_capital(x, m, 0.05)[-1]
    assert sequence.e_value(m) == pytest.approx((up + down) / 2, rel=1e-9)


def test_interval_is_what_neither_gambler_has_ruled_out():
    x = np.random.default_rng(2).beta(2, 3, size=300)
    sequence = BettingSequence(0, 1, points=101)
    sequence.update_many(x)
    grid = np.arange(1, 100) / 100
    best = np.array([hedged_capital(x, m, 0.05).max(axis=0) for m in grid])
    low = max(grid[best[:, 0] >= 40], default=0.0)
    high = min(grid[best[:, 1] >= 40], default=1.0)
    assert sequence.interval == pytest.approx((low, high))


@pytest.mark.parametrize("law", ["rare", "even", "beta", "difference"])
def test_betting_covers_at_every_time(covers, law):
    """The interval only shrinks, so that covering at the end is covering throughout."""
    generator = np.random.default_rng(3)
    hits = []
    for _ in range(2000):
        low, truth = 0, {"rare": 0.05, "even": 0.5, "beta": 0.3}.get(law)
        if law == "beta":
            x = generator.beta(3, 7, size=200)
        elif law == "difference":
            low, truth = -1, 0.1
            x = generator.choice([1.0, 0.0, -1.0], p=[0.2, 0.7, 0.1], size=200)
        else:
            x = (generator.random(200) < truth).astype(float)
        sequence = BettingSequence(low, 1, points=101)
        sequence.update_many(x)
        hits.append(sequence.interval[0] <= truth <= sequence.interval[1])
    covers(hits)


def test_peeking_at_t_intervals_would_not_cover():
    """What the sequences are for: a fixed-time interval looked at each step fails."""
    x = np.random.default_rng(4).normal(size=(500, 300))
    n = np.arange(30, 301)
    means = np.cumsum(x, axis=1)[:, 29:] / n
    misses = (np.abs(means) > 1.96 / np.sqrt(n)).any(axis=1)
    assert misses.mean() > 0.2


def test_many_at_once_equals_one_at_a_time():
    x = np.random.default_rng(5).random(150)
    together, alone = BettingSequence(0, 1), BettingSequence(0, 1)
    together.update_many(x)
    widths = []
    for value in x:
        alone.update(value)
        widths.append(alone.interval[1] - alone.interval[0])
    assert alone.interval == pytest.approx(together.interval)
    assert alone.e_value(0.4) == pytest.approx(together.e_value(0.4))
    assert alone.value == pytest.approx(x.mean())
    assert (np.diff(widths) <= 1e-12).all()
    assert (together.n, alone.n) == (150, 150)


def test_betting_narrows_to_near_the_fixed_time_interval():
    x = (np.random.default_rng(6).random(2000) < 0.9).astype(float)
    sequence = BettingSequence(0, 1)
    sequence.update_many(x)
    low, high = sequence.interval
    fixed = mean(x)
    assert low < fixed.value < high
    assert 1 < (high - low) / (fixed.high - fixed.low) < 2.2


def test_finer_grids_change_the_interval_by_a_step_at_most():
    x = np.random.default_rng(7).random(500)
    coarse, fine = BettingSequence(0, 1, points=201), BettingSequence(0, 1, points=10_001)
    coarse.update_many(x)
    fine.update_many(x)
    assert 0 <= fine.interval[0] - coarse.interval[0] <= 0.005 + 1e-9
    assert 0 <= coarse.interval[1] - fine.interval[1] <= 0.005 + 1e-9


def test_scaling_the_bounds_scales_the_interval():
    x = np.random.default_rng(8).random(100)
    unit, wide = BettingSequence(0, 1), BettingSequence(-3, 7)
    unit.update_many(x)
    wide.update_many(10 * x - 3)
    assert wide.interval == pytest.approx(tuple(10 * end - 3 for end in unit.interval))
    assert wide.e_value(2.0) == pytest.approx(unit.e_value(0.5))


def test_betting_e_value_is_one_on_average_when_true():
    generator = np.random.default_rng(9)
    found = []
    for _ in range(1500):
        sequence = BettingSequence(-1, 1, points=101)
        sequence.update_many(generator.choice([1.0, 0.0, -1.0], p=[0.2, 0.6, 0.2], size=60))
        found.append(sequence.e_value(0.0))
    found = np.array(found)
    assert found.mean() <= 1 + 4 * found.std() / np.sqrt(len(found))
    assert (found >= 20).mean() <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 1500)


def test_e_value_between_grid_points_is_a_lower_bound():
    x = np.random.default_rng(10).random(100)
    coarse, fine = BettingSequence(0, 1, points=11), BettingSequence(0, 1, points=1001)
    coarse.update_many(x)
    fine.update_many(x)
    assert coarse.e_value(0.333) <= fine.e_value(0.333)
    assert coarse.e_value(0.3) == pytest.approx(fine.e_value(0.3))


def test_a_moving_mean_is_told_and_the_interval_never_empty():
    sequence = BettingSequence(0, 1)
    sequence.update_many(np.zeros(300))
    sequence.update_many(np.ones(3000))
    low, high = sequence.interval
    assert low < high
    assert "ruled out" in sequence.note
    assert "ruled out" in sequence.estimate().note


def test_extreme_observations_stay_finite():
    sequence = BettingSequence(0, 1)
    sequence.update_many(np.ones(5000))
    assert sequence.interval[1] == 1
    assert 0.99 < sequence.interval[0] < 1
    assert sequence.e_value(0.5) > 1e100
    assert sequence.estimate(0.5).p_value < 1e-100


@pytest.mark.parametrize("truth", [0.1, 0.3])
def test_p_value_and_interval_agree(truth):
    generator = np.random.default_rng(13)
    for _ in range(100):
        sequence = BettingSequence(-1, 1, points=201)
        sequence.update_many(generator.choice([1.0, 0.0], p=[truth, 1 - truth], size=60))
        found = sequence.estimate(0.0)
        assert (found.p_value <= 0.05) == (found.low > -1e-9)  # 0 is a point of the grid
    assert found.details["e_value"] == pytest.approx(sequence.e_value(0.0))


def test_before_the_first_observation_nothing_is_known():
    for sequence, ends in (
        (BettingSequence(-1, 1), (-1, 1)),
        (AsymptoticSequence(), (-np.inf, np.inf)),
    ):
        sequence.update_many([])
        assert sequence.interval == ends
        assert np.isnan(sequence.value)
        assert sequence.e_value(0.0) == 1
        assert sequence.n == 0


def asymptotic_by_formula(x, tuned_for, alpha=0.05):
    n = np.arange(1, x.shape[-1] + 1)
    means = np.cumsum(x, axis=-1) / n
    variance = np.maximum(np.cumsum(x**2, axis=-1) / n - means**2, 0)
    rho2 = (-2 * np.log(alpha) + np.log(-2 * np.log(alpha) + 1)) / tuned_for
    reach = np.sqrt(
        2 * (n * rho2 + 1) / (n**2 * rho2) * np.log(np.sqrt(n * rho2 + 1) / alpha) * variance
    )
    return means, reach


def test_asymptotic_sequence_equals_its_formula():
    x = np.random.default_rng(11).exponential(size=400)
    means, reach = asymptotic_by_formula(x, 250)
    sequence = AsymptoticSequence(tuned_for=250)
    for i, value in enumerate(x):
        sequence.update(value)
        if i >= 29:
            expected = (means[i] - reach[i], means[i] + reach[i])
            assert sequence.interval == pytest.approx(expected)
    chunks = AsymptoticSequence(tuned_for=250)
    for part in np.split(x, [7, 8, 150]):
        chunks.update_many(part)
    assert chunks.interval == pytest.approx(sequence.interval)
    edge = sequence.interval[0]
    assert sequence.e_value(edge) == pytest.approx(20)


@pytest.mark.parametrize("law", ["normal", "exponential", "binary"])
def test_asymptotic_sequence_covers_from_its_start(covers, law):
    generator = np.random.default_rng(12)
    shape = (2000, 1500)
    x = {
        "normal": generator.normal(size=shape),
        "exponential": generator.exponential(size=shape) - 1,
        "binary": (generator.random(shape) < 0.3) - 0.3,
    }[law]
    means, reach = asymptotic_by_formula(x, 500)
    covers((np.abs(means) <= reach)[:, 29:].all(axis=1))


def test_asymptotic_sequence_says_nothing_early():
    sequence = AsymptoticSequence(start=30)
    sequence.update_many(np.arange(29))
    assert sequence.interval == (-np.inf, np.inf)
    assert "No interval before 30" in sequence.estimate().note
    sequence.update(29)
    assert np.isfinite(sequence.interval).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: BettingSequence(1, 0), "low must be below high"),
        (lambda: BettingSequence(0, np.inf), "both finite"),
        (lambda: BettingSequence(0, 1, level=0), "level must be between"),
        (lambda: BettingSequence(0, 1, points=2), "points must be at least 3"),
        (lambda: BettingSequence(0, 1).update(1.5), "observations must be from 0 to 1, got 1.5"),
        (lambda: BettingSequence(0, 1).update(np.nan), "NaN"),
        (lambda: AsymptoticSequence(tuned_for=0), "tuned_for must be at least 1"),
        (lambda: AsymptoticSequence().update_many([1, np.inf]), "infinite"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
