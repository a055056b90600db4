"""Ratios of means and log odds ratios."""

import numpy as np
import pytest
from scipy import stats

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics import log_odds_ratio, mcnemar, ratio, sign_flip


@pytest.mark.parametrize("n", [20, 80])
def test_ratio_covers(covers, n):
    generator = np.random.default_rng(1)
    hits = []
    for run in range(800):
        shared = generator.exponential(size=n)
        a = 1.3 * (shared + generator.exponential(size=n))
        b = shared + generator.exponential(size=n)
        found = ratio(a, b, rng=Rng(run), draws=600)
        hits.append(found.low <= 1.3 <= found.high)
    covers(hits, at_least=0.94, at_most=0.98)


def test_ratio_over_clusters_covers(covers):
    generator = np.random.default_rng(2)
    cluster = np.repeat(np.arange(20), generator.integers(2, 7, size=20))
    hits = []
    for run in range(800):
        level_a, level_b = generator.gamma(4, size=(2, 20))
        a = 2 * level_a[cluster] * generator.gamma(3, size=cluster.size)
        b = level_b[cluster] * generator.gamma(3, size=cluster.size)
        found = ratio(a, b, clusters=cluster, rng=Rng(run), draws=600)
        hits.append(found.low <= 2 <= found.high)
    covers(hits, at_least=0.94, at_most=0.98)


def test_large_samples_agree_with_the_delta_method():
    generator = np.random.default_rng(3)
    a, b = generator.gamma(5, size=(2, 5000))
    found = ratio(a, b, rng=Rng(0), draws=4000)
    gap = np.array([1 / a.mean(), -1 / b.mean()])
    se = np.sqrt(gap @ np.cov(a, b) @ gap / 5000)
    reach = stats.norm.ppf(0.975) * se
    assert np.log([found.low, found.high]) == pytest.approx(
        [np.log(found.value) - reach, np.log(found.value) + reach], abs=reach / 15
    )
    assert found.details["log_se"] == pytest.approx(se)
    assert found.value == pytest.approx(a.mean() / b.mean())


def test_clusters_of_one_are_units():
    generator = np.random.default_rng(4)
    a, b = generator.gamma(5, size=(2, 60))
    alone, clustered = ratio(a, b, rng=Rng(1)), ratio(a, b, clusters=np.arange(60), rng=Rng(1))
    assert (alone.low, alone.high) == pytest.approx((clustered.low, clustered.high))
    assert alone.p_value == sign_flip(a - b, rng=Rng(1).child("flips"))


def test_the_scale_of_an_arm_only_moves_the_ratio():
    generator = np.random.default_rng(5)
    a, b = generator.gamma(5, size=(2, 40))
    one, other = ratio(a, b, rng=Rng(0)), ratio(1e6 * a, b, rng=Rng(0))
    assert [other.low / 1e6, other.high / 1e6] == pytest.approx([one.low, one.high])
    swapped = ratio(b, a, rng=Rng(0))
    assert [1 / swapped.high, 1 / swapped.low] == pytest.approx([one.low, one.high], rel=0.02)


def test_a_constant_ratio_has_no_width_and_says_so():
    b = np.arange(1.0, 50)
    found = ratio(3 * b, b)
    assert (found.low, found.high) == pytest.approx((3, 3))
    assert "no width" in found.note


@pytest.mark.parametrize(("p", "q", "n"), [(0.5, 0.3, 40), (0.9, 0.8, 60), (0.97, 0.9, 40)])
def test_log_odds_ratio_covers(covers, p, q, n):
    generator = np.random.default_rng(6)
    truth = stats.logistic.ppf(p) - stats.logistic.ppf(q)
    hits = []
    for _ in range(1200):
        shared, own = generator.random((2, n)), generator.random((2, n))
        mixed = np.where(generator.random(n) < 0.6, shared[0], own[0])
        other = np.where(mixed == shared[0], shared[0], own[1])
        found = log_odds_ratio(mixed < p, other < q)
        hits.append(found.low <= truth <= found.high)
    covers(hits, at_least=0.945)


def test_log_odds_ratio_over_clusters_covers(covers):
    generator = np.random.default_rng(7)
    cluster = np.arange(120) // 5
    hits = []
    for run in range(800):
        chance = generator.beta(3, 3, size=24)[cluster]
        a, b = generator.random((2, 120)) < chance
        found = log_odds_ratio(a, b, clusters=cluster, rng=Rng(run), draws=100)
        hits.append(found.low <= 0 <= found.high)
    covers(hits, at_least=0.945)


def test_independent_arms_have_woolfs_standard_error():
    """Where pairs are unrelated, the sum of four reciprocal counts (n - 1 for n)."""
    counts = np.array([[30, 20], [24, 16]])  # the product of 50:40 and 54:36, so no covariance
    a = np.repeat([1, 1, 0, 0], counts.ravel())
    b = np.repeat([1, 0, 1, 0], counts.ravel())
    found = log_odds_ratio(a, b)
    woolf = np.sqrt((1 / 50 + 1 / 40 + 1 / 54 + 1 / 36) * 90 / 89)
    assert found.details["se"] == pytest.approx(woolf)
    assert found.value == pytest.approx(np.log(50 / 40 / (54 / 36)))
    assert found.p_value == mcnemar(a, b)


def test_an_arm_without_failures_is_finite_as_haldane_has_it():
    a, b = np.ones(40), np.repeat([1, 0], [25, 15])
    found = log_odds_ratio(a, b)
    assert found.value == pytest.approx(np.log(40.5 / 0.5) - np.log(25.5 / 15.5))
    assert found.details["se"] ** 2 == pytest.approx(
        1 / 40.5 + 1 / 0.5 + 1 / 25.5 + 1 / 15.5, rel=0.03
    )
    assert "half of each" in found.note
    assert np.isfinite([found.low, found.high]).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ratio([1, 2], [0, 0]), "means must be above zero"),
        (lambda: ratio([1], [1]), "one unit"),
        (lambda: ratio([1, 2], [1]), "equally long"),
        (lambda: ratio([1, 2], [1, 2], clusters=[3, 3]), "one cluster"),
        (lambda: ratio([1, np.inf], [1, 2]), "infinite"),
        (lambda: ratio([1, -1, 3], [1, -1, 2]), "resamples have no ratio"),
        (lambda: log_odds_ratio([1, 0.5], [1, 0]), "zeros and ones"),
        (lambda: log_odds_ratio([1], [0]), "one unit"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
