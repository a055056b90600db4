"""Differences between two arms, paired and not."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics import (
    crossed_variance,
    mcnemar,
    mean,
    paired_difference,
    sign_flip,
    unpaired_difference,
)


def pairs(both, wins, losses, neither):
    counts = [both, wins, losses, neither]
    return np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)


def test_independent_units_give_the_paired_t():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=35) + 0.2, generator.normal(size=35)
    found = paired_difference(a, b, rng=Rng(3))
    expected = stats.ttest_rel(a, b).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.p_value == sign_flip(a - b, rng=Rng(3))
    assert found.p_value == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.03)
    assert (found.method, found.n, found.details["df"]) == ("t", 35, 34)


def test_published_tango_interval():
    """Airway hyper-responsiveness of 21 children: Fagerland et al. (2014), Table 4."""
    a, b = pairs(1, 1, 7, 12)
    found = paired_difference(a, b)
    assert (round(found.low, 3), round(found.high, 3)) == (-0.517, -0.026)
    assert found.p_value == mcnemar(a, b)


@pytest.mark.parametrize("table", [(10, 9, 3, 8), (0, 0, 0, 20), (5, 4, 0, 1), (0, 15, 0, 0)])
def test_tango_inverts_the_score_test(table):
    """Both ends are where the likelihood-constrained score reaches z, found by plain search."""
    both, wins, losses, neither = table
    n = sum(table)
    found = paired_difference(*pairs(*table))

    def score(delta):
        q = np.linspace(0, (1 - abs(delta)) / 2, 200_001)  # the smaller discordant share
        more, less = (q + delta, q) if delta >= 0 else (q, q - delta)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = [np.where(k == 0, 0, k * np.log(p)) for k, p in
                     ((wins, more), (losses, less), (both + neither, 1 - more - less))]  # fmt: skip
        best = np.argmax(np.nan_to_num(sum(terms), nan=-np.inf))
        return (wins - losses - n * delta) / np.sqrt(n * (more[best] + less[best] - delta**2))

    if found.low > -1:
        assert score(found.low) == pytest.approx(stats.norm.ppf(0.975), abs=2e-3)
    if found.high < 1:
        assert score(found.high) == pytest.approx(-stats.norm.ppf(0.975), abs=2e-3)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(("wins", "losses"), [(0.02, 0.02), (0.1, 0.02), (0.3, 0.2)])
@pytest.mark.parametrize("n", [25, 100])
def test_paired_binary_interval_covers(covers, wins, losses, n):
    generator = np.random.default_rng(2)
    hits = []
    for _ in range(1000):
        d = generator.choice([1, -1, 0], p=[wins, losses, 1 - wins - losses], size=n)
        found = paired_difference(d > 0, d < 0)
        hits.append(found.low <= wins - losses <= found.high)
    covers(hits, at_least=0.935)


def test_agreement_of_few_units_is_no_proof_of_equality():
    found = paired_difference(np.ones(5), np.ones(5))
    assert found.low < -0.4
    assert found.high > 0.4
    assert found.p_value == 1


def test_binary_agreement_with_clusters_or_repeats_keeps_width():
    ones, labels = np.ones(60), np.arange(60) // 6
    for found in (
        paired_difference(ones, ones, clusters=labels),
        paired_difference(ones, ones, units=labels),
        paired_difference(ones, ones, units=np.tile(labels, 1), builds=np.arange(60) % 2),
    ):
        alone = paired_difference(np.ones(10), np.ones(10))
        assert (found.low, found.high) == pytest.approx((alone.low, alone.high))
        assert "counted as one pair" in found.note


def test_paired_difference_is_the_mean_of_differences_in_every_design():
    generator = np.random.default_rng(3)
    build, unit = np.divmod(np.arange(4 * 24), 24)
    cluster = unit // 3
    a, b = generator.normal(size=96), generator.normal(size=96)
    for design in ({"units": unit}, {"clusters": cluster}, {"units": unit, "clusters": cluster},
                   {"units": unit, "builds": build},
                   {"units": unit, "clusters": cluster, "builds": build}):  # fmt: skip
        found, plain = paired_difference(a, b, **design), mean(a - b, **design)
        assert (found.low, found.high) == (plain.low, plain.high)
        assert found.details == plain.details
    assert found.details["share_builds"] <= 1
    assert crossed_variance(a - b, unit, build).mean == pytest.approx(found.value)


def test_permutation_is_over_clusters():
    generator = np.random.default_rng(4)
    cluster = np.repeat(np.arange(8), 5)
    d = generator.normal(size=40) + generator.normal(size=8)[cluster]
    found = paired_difference(d, np.zeros(40), clusters=cluster)
    assert found.p_value == sign_flip(d, clusters=cluster, rng=Rng(0))
    repeated = paired_difference(d, np.zeros(40), units=cluster)
    assert repeated.p_value == sign_flip(d.reshape(8, 5).mean(axis=1), rng=Rng(0))


def a_against_a(design, runs=1200):
    generator = np.random.default_rng(5)
    build, unit = np.divmod(np.arange(3 * 30), 30)
    cluster = unit // 3
    found = []
    for run in range(runs):
        if design == "binary":
            ability = generator.random(60)
            a, b = generator.random((2, 60)) < ability
            found.append(paired_difference(a, b))
        elif design == "t":
            a, b = generator.exponential(size=(2, 30))
            found.append(paired_difference(a, b, rng=Rng(run), draws=199))
        elif design == "clusters":
            d = generator.normal(size=90) + generator.normal(size=10)[cluster]
            found.append(
                paired_difference(d, np.zeros(90), units=unit, clusters=cluster, rng=Rng(run))
            )
        else:
            d = generator.normal(size=90) + 0.3 * generator.normal(size=3)[build]
            d += generator.normal(size=30)[unit]
            found.append(paired_difference(d, np.zeros(90), units=unit, builds=build))
    return found


@pytest.mark.parametrize("design", ["binary", "t", "clusters", "builds"])
def test_no_effect_is_found_no_oftener_than_the_level(covers, level_holds, design):
    found = a_against_a(design)
    covers([each.low <= 0 <= each.high for each in found], at_least=0.945)
    level_holds([each.p_value for each in found])


@pytest.mark.parametrize(
    ("yes_a", "n_a", "yes_b", "n_b"),
    [(8, 10, 5, 10), (0, 20, 0, 30), (56, 70, 48, 80), (10, 10, 0, 20)],
)
def test_newcombe_equals_statsmodels(yes_a, n_a, yes_b, n_b):
    a = np.repeat([1, 0], [yes_a, n_a - yes_a])
    b = np.repeat([1, 0], [yes_b, n_b - yes_b])
    found = unpaired_difference(a, b)
    expected = confint_proportions_2indep(yes_a, n_a, yes_b, n_b, method="newcomb", compare="diff")
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)
    table = [[yes_a, n_a - yes_a], [yes_b, n_b - yes_b]]
    assert found.p_value == pytest.approx(stats.fisher_exact(table).pvalue)


def test_published_newcombe_interval():
    """Newcombe (1998), Table II, contrast (a): 56/70 against 48/80."""
    found = unpaired_difference(np.repeat([1, 0], [56, 14]), np.repeat([1, 0], [48, 32]))
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)


def test_welch_equals_scipy():
    generator = np.random.default_rng(6)
    a, b = generator.normal(size=12), 3 * generator.normal(size=30) + 1
    found, expected = unpaired_difference(a, b, level=0.9), stats.ttest_ind(a, b, equal_var=False)
    ends = expected.confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.details["df"] == pytest.approx(expected.df)


@pytest.mark.parametrize("binary", [True, False])
def test_unpaired_interval_covers(covers, level_holds, binary):
    generator = np.random.default_rng(7)
    intervals, p_values = [], []
    for _ in range(1500):
        if binary:
            a, b = generator.random(30) < 0.3, generator.random(45) < 0.3
        else:
            a, b = generator.normal(size=12), 3 * generator.normal(size=25)
        found = unpaired_difference(a, b)
        intervals.append(found.low <= 0 <= found.high)
        p_values.append(found.p_value)
    covers(intervals, at_least=0.945)
    level_holds(p_values)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: paired_difference([1, 2], [1]), "equally long, but a has 2, b has 1 rows"),
        (lambda: paired_difference([], []), "a is empty"),
        (lambda: paired_difference([1, np.nan], [1, 2]), "a has 1 values that are NaN"),
        (lambda: paired_difference([1], [1]), "one unit gives no interval"),
        (lambda: paired_difference([1, 2], [1, 2], clusters=[0, 0]), "one cluster"),
        (lambda: paired_difference([1, 2, 3], [1, 2, 3], builds=[0, 0, 1]), "give units"),
        (lambda: unpaired_difference([0.5], [1, 2]), "at least two"),
        (lambda: unpaired_difference([], [1, 2]), "a is empty"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
