"""Planning: what is promised about settling and power, by simulation."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import NormalIndPower

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics import mean, minimum_detectable_effect, units_to_settle


def test_the_number_settles_with_the_power_it_says():
    effect, level, power = 0.15, 0.95, 0.8
    half = stats.norm.ppf(0.975) / np.sqrt(100)
    now = Estimate(effect, effect - half, effect + half, level, n=100)
    total = 100 + units_to_settle(now, [0.0], power)
    generator = np.random.default_rng(1)
    settled = generator.normal(effect, 1 / np.sqrt(total), size=20_000) > 1.959964 / np.sqrt(total)
    assert settled.mean() == pytest.approx(power, abs=0.01)


def test_more_units_for_margins_on_both_sides():
    now = Estimate(0.01, -0.06, 0.08, n=200)
    assert units_to_settle(now, [-0.05, 0.05]) == units_to_settle(now, [0.05])
    assert units_to_settle(now, [0.05]) > units_to_settle(now, [-0.05])


def test_settled_claims_need_none():
    assert units_to_settle(Estimate(0.2, 0.1, 0.3, n=50), [0.0]) == 0
    assert units_to_settle(Estimate(0.2, 0.1, 0.3, n=50), [-0.1, 0.0]) == 0


@pytest.mark.parametrize(
    "estimate",
    [
        Estimate(0.0, -0.1, 0.1, n=50),
        Estimate(0.1, -np.inf, 0.3, n=50),
        Estimate(0.1, n=50),
        Estimate(0.1, -0.1, 0.3, n=0),
    ],
)
def test_no_number_would_do(estimate):
    assert units_to_settle(estimate, [0.0]) is None


def test_variance_of_builds_does_not_shrink():
    now = Estimate(0.1, -0.02, 0.22, n=100)
    plain = units_to_settle(now, [0.0])
    some = units_to_settle(Estimate(0.1, -0.02, 0.22, n=100, details={"share_builds": 0.2}), [0.0])
    assert plain < some
    assert (
        units_to_settle(Estimate(0.1, -0.02, 0.22, n=100, details={"share_builds": 0.9}), [0.0])
        is None
    )


def test_asymmetric_intervals_use_the_side_of_the_threshold():
    now = Estimate(0.5, 0.3, 0.9, n=40)
    assert units_to_settle(now, [0.2]) == 0
    assert units_to_settle(now, [0.8]) > 0


def test_more_power_needs_more_units():
    now = mean(np.random.default_rng(2).normal(0.1, 1, size=60))
    found = [units_to_settle(now, [0.0], power) for power in (0.5, 0.8, 0.95)]
    assert found == sorted(found)
    assert found[0] < found[2]


def test_minimum_detectable_effect_agrees_with_statsmodels():
    effect = minimum_detectable_effect(2.0, 150, level=0.9, power=0.7)
    power = NormalIndPower(ddof=0).power(effect / 2.0, nobs1=150, alpha=0.1, ratio=0)
    assert power == pytest.approx(0.7, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: units_to_settle(Estimate(0.1), []), "at least one threshold"),
        (lambda: units_to_settle(Estimate(0.1), [0], power=0.3), "power must be"),
        (lambda: minimum_detectable_effect(1, 0), "n at least 1"),
        (lambda: minimum_detectable_effect(1, 9, power=1), "power must be"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
