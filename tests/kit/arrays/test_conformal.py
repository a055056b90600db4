import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.conformal import (
    calibration_needed,
    conformal_p_values,
    conformal_quantile,
    weighted_conformal_quantile,
)


def test_the_rank_is_exact_for_every_size_and_percent():
    # (n + 1) * alpha may miss a whole number by rounding; in fractions it cannot.
    for n, percent in itertools.product(range(1, 120), range(1, 100)):
        rank = math.ceil((n + 1) * (1 - Fraction(percent, 100)))
        found = conformal_quantile(np.arange(1.0, n + 1), percent / 100)
        assert found == (rank if rank <= n else np.inf), (n, percent)
        assert conformal_quantile(np.arange(1.0, n + 1), 1 - (100 - percent) / 100) == found


@pytest.mark.parametrize("percent", range(1, 100))
def test_the_size_needed_is_the_least_with_a_finite_quantile(percent):
    alpha = percent / 100
    needed = calibration_needed(alpha)
    assert np.isfinite(conformal_quantile(np.arange(float(needed)), alpha))
    if needed > 1:
        assert np.isinf(conformal_quantile(np.arange(float(needed - 1)), alpha))


def test_many_rates_are_as_one_at_a_time():
    scores = np.random.default_rng(0).normal(size=501)
    rates = [0.5, 0.001, 0.1, 0.1, 0.9999]
    together = conformal_quantile(scores, rates)
    assert together.tolist() == [conformal_quantile(scores, rate) for rate in rates]
    assert np.isinf(together[1])
    assert together[4] == scores.min()


def test_scores_are_not_written_to():
    scores = np.random.default_rng(0).normal(size=100)
    before = scores.copy()
    conformal_quantile(scores, [0.1, 0.3])
    weighted_conformal_quantile(scores, np.ones(100), [1.0], 0.1)
    assert (scores == before).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("many", [1, 30, 95])
@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.9, [0.1, 0.5]])
def test_scores_that_are_not_finite_are_found_wherever_they_lie(bad, many, alpha):
    scores = np.random.default_rng(0).normal(size=100)
    scores[np.random.default_rng(1).permutation(100)[:many]] = bad
    with pytest.raises(UsageError, match=f"{many} of 100 calibration scores are not finite"):
        conformal_quantile(scores, alpha)


def test_coverage_of_a_calibration_set_follows_its_beta_law():
    # Given n scores, coverage of the k-th smallest is Beta(k, n + 1 - k) (Vovk, 2012).
    n, alpha = 50, 0.1
    k = math.ceil((n + 1) * (1 - alpha))
    scores = np.random.default_rng(1).random((4000, n))  # uniform: the quantile is its coverage
    coverage = [conformal_quantile(row, alpha) for row in scores]
    assert stats.kstest(coverage, stats.beta(k, n + 1 - k).cdf).pvalue > 1e-3
    assert stats.kstest(coverage, stats.beta(k - 1, n + 2 - k).cdf).pvalue < 1e-3


def test_equal_weights_are_no_weights():
    generator = np.random.default_rng(2)
    for n in (1, 5, 19, 100, 999):
        scores = generator.normal(size=n)
        for alpha in (0.01, 0.05, 0.1, 0.5, 0.99):
            found = weighted_conformal_quantile(scores, np.full(n, 0.37), [0.37] * 3, alpha)
            assert (found == conformal_quantile(scores, alpha)).all()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 6)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 99),
)
def test_weighted_quantile_is_the_definition(rows, own, percent):
    # The least value v with mass of {score <= v} at least 1 - alpha, infinity holding ``own``.
    total = sum(weight for _, weight in rows) + own
    wanted = Fraction(100 - percent, 100) * total
    expected = np.inf
    for value in sorted({score for score, _ in rows}, reverse=True):
        if sum(weight for score, weight in rows if score <= value) >= wanted:
            expected = value
    scores, weights = np.array(rows, float).T
    (found,) = weighted_conformal_quantile(scores, weights, [own], percent / 100)
    assert found == expected


def test_weighted_shapes_and_scale():
    scores, weights = np.arange(10.0), np.arange(1.0, 11)
    found = weighted_conformal_quantile(scores, weights, [1.0, 5.0, 50.0], [0.2, 0.5])
    assert found.shape == (3, 2)
    again = weighted_conformal_quantile(scores, weights * 8, np.array([8.0, 40.0, 400.0]), 0.5)
    assert (found[:, 1] == again).all()


def test_weights_restore_coverage_under_a_known_shift():
    # Calibration x is uniform on (0, 1), test x has density 2x; noise grows with x.
    generator = np.random.default_rng(3)
    alpha, n, trials = 0.2, 200, 3000
    plain, weighted = [], []
    for _ in range(trials):
        x = generator.random(n)
        x_test = math.sqrt(generator.random())
        scores, score = x * generator.exponential(size=n), x_test * generator.exponential()
        plain.append(score <= conformal_quantile(scores, alpha))
        weighted.append(score <= weighted_conformal_quantile(scores, x, [x_test], alpha)[0])
    standard_error = math.sqrt(alpha * (1 - alpha) / trials)
    assert np.mean(plain) < 1 - alpha - 4 * standard_error
    assert 1 - alpha - 4 * standard_error < np.mean(weighted) < 1 - alpha + 0.03


def test_p_values_by_hand_and_their_law():
    assert conformal_p_values([1, 2, 2, 3], [2, 0, 4]).tolist() == [0.8, 1.0, 0.2]
    generator = np.random.default_rng(4)
    # Scores with ties: only randomised p-values are uniform.
    found = [
        conformal_p_values(row[1:], row[:1], Rng(0).child(index))[0]
        for index, row in enumerate(generator.integers(0, 4, size=(4000, 12)))
    ]
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    assert min(found) > 0


def test_randomised_p_values_never_exceed_the_plain_ones():
    generator = np.random.default_rng(5)
    scores, asked = generator.integers(0, 5, 40), generator.integers(-1, 6, 30)
    assert (
        conformal_p_values(scores, asked, Rng(1)) <= conformal_p_values(scores, asked) + 1e-15
    ).all()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: conformal_quantile([1.0], 0), "alpha must lie strictly between 0 and 1"),
        (lambda: conformal_quantile([1.0], 1.0), "alpha must lie strictly between 0 and 1"),
        (lambda: conformal_quantile([1.0], [0.1, math.nan]), "alpha must lie strictly"),
        (lambda: conformal_quantile([1.0], []), "alpha must lie strictly"),
        (lambda: conformal_quantile([1.0], "much"), "alpha must lie strictly"),
        (lambda: conformal_quantile([1.0, math.nan], 0.1), "1 of 2 calibration scores"),
        (lambda: conformal_quantile([[1.0]], 0.1), "must be one list"),
        (lambda: conformal_quantile([], 0.1), "no calibration rows"),
        (lambda: conformal_quantile([1.0] * 5, 0.05, too_small="refuse"), "at least 19 are needed"),
        (lambda: weighted_conformal_quantile([1.0], [0.0], [1.0], 0.1), "calibration weights"),
        (lambda: weighted_conformal_quantile([1.0], [-1.0], [1.0], 0.1), "calibration weights"),
        (lambda: weighted_conformal_quantile([1.0], [1.0], [math.inf], 0.1), "test weights"),
        (lambda: weighted_conformal_quantile([1.0], [1.0, 1.0], [1.0], 0.1), "one weight for each"),
        (lambda: conformal_p_values([1.0], [math.inf]), "test scores are not finite"),
        (lambda: conformal_p_values([], [1.0]), "no calibration rows"),
    ],
)
def test_refusals_are_sentences(work, said):
    with pytest.raises(UsageError, match=said) as refused:
        work()
    assert str(refused.value).endswith(".")
    assert str(refused.value).count(". ") == 0
