"""Exact tests against their laws, drawn ones against their level."""

import time
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as reference

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics import mcnemar, permutation_two_sample, sign_flip


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (9, 2), (5, 5), (30, 12), (0, 40)])
def test_mcnemar_is_the_binomial_test(wins, losses):
    a = np.array([1] * wins + [0] * losses + [1, 0])
    b = np.array([0] * wins + [1] * losses + [1, 0])
    expected = reference([[1, wins], [losses, 1]], exact=True).pvalue
    assert mcnemar(a, b) == pytest.approx(min(expected, 1))
    if wins + losses:
        assert mcnemar(a, b) == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)


def test_sign_flip_enumerates_what_scipy_enumerates():
    d = np.random.default_rng(1).normal(size=11) + 0.6
    expected = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip(d, rng=Rng(0)) == pytest.approx(expected)


def test_sign_flip_of_zeros_and_ones_is_mcnemar():
    d = np.array([1] * 10 + [-1] * 3 + [0] * 500)
    assert sign_flip(d, rng=Rng(0)) == pytest.approx(mcnemar(d > 0, d < 0))
    many = np.array([1] * 40 + [-1] * 22 + [0] * 100)
    drawn = sign_flip(many, rng=Rng(0), draws=100_000)
    assert drawn == pytest.approx(mcnemar(many > 0, many < 0), abs=0.002)


def test_sign_flip_counts_ties_in_spite_of_rounding():
    d = np.array([0.1, 0.2, 0.3, 0.6, -0.6])
    share = np.mean(
        [abs(signs @ np.array([1, 2, 3, 6, 6])) >= 6
         for signs in np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1).T]
    )  # fmt: skip
    assert sign_flip(d, rng=Rng(0)) == pytest.approx(share)


def test_few_values_have_the_same_law_as_signs_one_by_one():
    d = np.resize([1.0, -1.0, 0.5, 2.0, 1.0], 1500)
    nearly = d + 1e-7 * np.arange(1500)  # as good as the same, but all different
    for shift in (0.0, 0.05):
        few = sign_flip(d + shift * np.sign(d), rng=Rng(0), draws=20_000)
        many = sign_flip(nearly + shift * np.sign(d), rng=Rng(1), draws=20_000)
        assert few == pytest.approx(many, abs=0.015)


def test_row_order_does_not_matter():
    generator = np.random.default_rng(12)
    d, order = generator.normal(size=50), generator.permutation(50)
    assert sign_flip(d, rng=Rng(0)) == sign_flip(d[order], rng=Rng(0))
    one = permutation_two_sample(d[:20], d[20:], rng=Rng(0), draws=500)
    assert one == permutation_two_sample(d[:20][::-1], d[20:][::-1], rng=Rng(0), draws=500)


def test_sign_flip_flips_whole_clusters():
    d = np.random.default_rng(2).normal(size=(9, 4)) + 0.3
    together = sign_flip(d.ravel(), clusters=np.repeat(np.arange(9), 4), rng=Rng(0))
    assert together == sign_flip(d.sum(axis=1), rng=Rng(0))


def test_nothing_but_zeros_is_no_evidence():
    assert sign_flip(np.zeros(50), rng=Rng(0)) == 1
    assert mcnemar([1, 0], [1, 0]) == 1


def test_same_stream_same_p_value():
    d = np.random.default_rng(3).normal(size=40)
    assert sign_flip(d, rng=Rng(5)) == sign_flip(d, rng=Rng(5))
    assert sign_flip(d, rng=Rng(5)) != sign_flip(d, rng=Rng(6))


@pytest.mark.parametrize("clustered", [False, True])
def test_sign_flip_holds_its_level(level_holds, clustered):
    generator = np.random.default_rng(4)
    clusters = np.arange(80) // 4
    found = []
    for run in range(1500):
        d = generator.standard_t(3, size=80)
        if clustered:
            d += 2 * generator.normal(size=20)[clusters]
        found.append(
            sign_flip(d, clusters=clusters if clustered else None, rng=Rng(run), draws=199)
        )
    level_holds(found)


def test_sign_flip_ignoring_clusters_would_not():
    generator = np.random.default_rng(5)
    clusters = np.arange(80) // 4
    found = [
        sign_flip(
            generator.normal(size=80) + 2 * generator.normal(size=20)[clusters],
            rng=Rng(run), draws=199,
        )
        for run in range(300)
    ]  # fmt: skip
    assert np.mean(np.array(found) <= 0.05) > 0.15


def test_sign_flip_sees_an_effect():
    d = np.random.default_rng(6).normal(size=100) + 0.6
    assert sign_flip(d, rng=Rng(0)) == 1 / 10_001


def test_two_sample_counts_every_split():
    generator = np.random.default_rng(7)
    a, b = generator.normal(size=6), generator.normal(size=5) + 1
    pooled = np.concatenate([a, b])
    gaps = [
        pooled[list(chosen)].mean() - np.delete(pooled, chosen).mean()
        for chosen in combinations(range(11), 6)
    ]
    seen = a.mean() - b.mean()
    share = np.mean(np.abs(gaps) >= abs(seen) - 1e-12)
    assert permutation_two_sample(a, b, rng=Rng(0)) == pytest.approx(share)
    by_hand = permutation_two_sample(a, b, lambda x, y: x.mean() - y.mean(), rng=Rng(0))
    assert by_hand == pytest.approx(share)
    drawn = permutation_two_sample(np.tile(a, 2), np.tile(b, 2), rng=Rng(0), draws=500)
    assert 0 < drawn < share  # twice the data, too many splits to enumerate


def test_two_sample_of_equal_sizes_equals_scipy():
    generator = np.random.default_rng(8)
    a, b = generator.normal(size=6), generator.normal(size=6) + 1
    expected = stats.permutation_test(
        (a, b), lambda x, y: x.mean() - y.mean(), n_resamples=np.inf
    ).pvalue
    assert permutation_two_sample(a, b, rng=Rng(0)) == pytest.approx(expected)


def test_two_sample_holds_its_level(level_holds):
    generator = np.random.default_rng(9)
    level_holds(
        [
            permutation_two_sample(
                generator.exponential(size=15), generator.exponential(size=25), rng=Rng(run),
                draws=199,
            )
            for run in range(1500)
        ]
    )  # fmt: skip


def test_two_sample_takes_any_statistic():
    generator = np.random.default_rng(10)
    a, b = 3 * generator.normal(size=60), generator.normal(size=60)

    def log_spread(x, y):
        return np.log(x.std() / y.std())

    assert permutation_two_sample(a, b, log_spread, rng=Rng(0), draws=999) < 0.01
    assert permutation_two_sample(a, b, rng=Rng(0), draws=999) > 0.05


def test_ten_thousand_by_ten_thousand_is_quick():
    d = np.random.default_rng(11).normal(size=10_000)
    started = time.process_time()
    sign_flip(d, rng=Rng(0))
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mcnemar([1, 0], [1]), "equally long, but a has 2, b has 1"),
        (lambda: mcnemar([1, 0.5], [1, 0]), "zeros and ones only"),
        (lambda: sign_flip([], rng=Rng(0)), "d is empty"),
        (lambda: sign_flip([np.nan], rng=Rng(0)), "NaN"),
        (lambda: sign_flip([1, 2], clusters=[1, 1], rng=Rng(0)), "one cluster"),
        (lambda: sign_flip([1, 2], rng=Rng(0), draws=5), "draws must be at least 100"),
        (lambda: permutation_two_sample([], [1], rng=Rng(0)), "a is empty"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
