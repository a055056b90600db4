import math

import numpy as np
import pytest
from scipy.stats import binom, mannwhitneyu, norm
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from equipoise.core import Acts, Rng, UsageError
from equipoise.kit.worlds.conditional_tests import two_sample_draw
from equipoise.methods.conformal import (
    ClassifierTwoSampleTest,
    ConditionalTwoSampleTest,
    DensityRatioTwoSampleTest,
    _two_sample,
    classifier_test,
    density_ratio_test,
    two_sample_conditional_test,
)
from equipoise.methods.conformal._two_sample import _Halves
from equipoise.methods.tables import Estimator

A, B = two_sample_draw("A3", Rng(0), n=60)
HALVES = _Halves.of(A, B, Rng(4))
ONE, TWO = HALVES.ratios(None, Rng(4))
XI = Rng(4).child("ties").numpy().random(len(TWO.t))


def naive(h, columns):
    """Return Z by sums over pairs."""
    n1, n2 = len(ONE.t), len(TWO.t)
    b = np.empty((n1, n2))
    for i in range(n1):
        for j in range(n2):
            far = ((ONE.x[i, columns] - TWO.x[j, columns]) ** 2).sum()
            a = (ONE.t[i] < TWO.t[j]) + XI[j] * (ONE.t[i] == TWO.t[j])
            b[i, j] = math.exp(-far / (2 * h * h)) * (0.5 - a)
    variance = sum(b[i].sum() ** 2 for i in range(n1)) + sum(b[:, j].sum() ** 2 for j in range(n2))
    variance -= (b**2).sum() + 2 * b.sum() ** 2 / 30
    return b.sum() / math.sqrt(max(variance, (b**2).sum()))


@pytest.mark.parametrize("block", [2_000_000, 70])
@pytest.mark.parametrize(("h", "given"), [(None, ()), (0.8, ()), (1.5, (0, 3))])
def test_statistic_is_the_formula(h, given, block, monkeypatch):
    monkeypatch.setattr(_two_sample, "BLOCK", block)
    found = two_sample_conditional_test(A, B, bandwidth=h, given=given, rng=Rng(4))
    wide = 30 ** (-1 / 7) if h is None else h
    z = naive(wide, list(given) or list(range(5)))
    assert found.statistic == pytest.approx(z, rel=1e-9)
    assert found.p_value == pytest.approx(norm.sf(z))
    assert found.used == (len(ONE.t), len(TWO.t))


def test_wide_bandwidth_is_a_rank_test():
    found = two_sample_conditional_test(A, B, bandwidth=math.inf, rng=Rng(4))
    ranks = mannwhitneyu(ONE.t, TWO.t, alternative="greater")
    n1, n2 = len(ONE.t), len(TWO.t)
    # The sum of 1/2 - a over all pairs is the Mann-Whitney U less its mean.
    assert found.statistic == pytest.approx(naive(1e9, [0]), rel=1e-6)
    a = (ONE.t[:, None] < TWO.t).sum()
    assert ranks.statistic - n1 * n2 / 2 == pytest.approx(n1 * n2 / 2 - a)


def test_ratios_are_of_the_conditional_densities():
    # With the classifiers right, T is f1(y|x) / f2(y|x): here exp of a line in y - x.
    g = np.random.default_rng(0)
    x, z = g.normal(size=20_000), g.normal(1, 1, 20_000)
    y, w = x + g.normal(size=20_000), z + 1 + g.normal(size=20_000)
    one, _ = _Halves.of((x, y), (z, w), Rng(0)).ratios(None, Rng(0))
    halves = _Halves.of((x, y), (z, w), Rng(0))
    rows, values = halves.test[0]
    kept = np.isin(rows[:, 0], one.x[:, 0])
    truth = np.exp(0.5 - (values - rows[:, 0])[kept])
    assert np.corrcoef(np.log(one.t), np.log(truth))[0, 1] > 0.99
    assert np.abs(np.log(one.t) - np.log(truth)).mean() < 0.15


def test_samples_of_uneven_size_and_tiny_ones():
    g = np.random.default_rng(0)
    small, large = g.normal(size=(2, 12)), g.normal(size=(2, 40))
    for seed in range(20):
        found = two_sample_conditional_test(small, large, bandwidth=0.1, rng=Rng(seed))
        assert math.isfinite(found.statistic)
        assert 0 <= found.p_value <= 1


def test_tiny_samples_do_not_reject_too_often():
    # Without a floor the variance comes near zero here, and |Z| reaches 10.
    found = []
    for seed in range(150):
        first, second = two_sample_draw("B3", Rng(seed), n=20, alternative=False)
        try:
            found.append(two_sample_conditional_test(first, second, rng=Rng(seed)).statistic)
        except UsageError:  # a classifier on ten rows tells all of them apart
            continue
    assert len(found) > 100
    assert np.abs(found).max() < 4
    assert np.mean(np.array(found) > norm.isf(0.05)) < 0.12


def rejections(test, draws, level, **world):
    found = 0
    for seed in range(draws):
        first, second = two_sample_draw(rng=Rng(seed).child("level"), **world)
        found += test(first, second, rng=Rng(seed)).p_value <= level
    return found


@pytest.mark.parametrize("test", [two_sample_conditional_test, density_ratio_test])
@pytest.mark.parametrize("scenario", ["A3", "B3"])
def test_level_by_simulation(test, scenario):
    draws, level = 120, 0.1
    found = rejections(test, draws, level, scenario=scenario, n=200, alternative=False)
    # Both are tests of large samples: the level may be a third higher here.
    assert binom.sf(found - 1, draws, level * 4 / 3) > 0.005


def test_power_is_above_that_of_density_ratios():
    near, ratio = (
        rejections(test, 40, 0.05, scenario="B3", n=500, alternative=True)
        for test in (two_sample_conditional_test, density_ratio_test)
    )
    assert near > ratio + 5


def test_a_classifier_test_takes_other_rows_for_other_laws():
    world = {"scenario": "A3", "n": 200, "alternative": False}
    assert rejections(classifier_test, 10, 0.05, **world) == 10
    level = 0
    for seed in range(100):  # the same law of (x, y): the level is exact
        g = np.random.default_rng(seed)
        first, second = ((g.normal(size=(40, 2)), g.normal(size=40)) for _ in range(2))
        level += classifier_test(first, second, rng=Rng(seed)).p_value <= 0.1
    assert binom.sf(level - 1, 100, 0.1) > 0.005


def test_ratio_test_is_the_weighted_rank_sum():
    found = density_ratio_test(A, B, rng=Rng(4))
    n1, n2 = len(ONE.t), len(TWO.t)
    g = ONE.g * n1 / n2
    u = [
        (g * ((ONE.t < TWO.t[j]) + XI[j] * (ONE.t == TWO.t[j]))).sum() / g.sum() for j in range(n2)
    ]
    above = [1 - ((TWO.t <= t).mean() + (TWO.t < t).mean()) / 2 for t in ONE.t]
    variance = np.var(g * above, ddof=1) + n1 / (12 * n2) + np.var(g, ddof=1) / 4
    variance -= np.cov(g, g * above)[0, 1]
    z = math.sqrt(n1) * (0.5 - np.mean(u)) / math.sqrt(variance)
    assert found.statistic == pytest.approx(z)


def test_scale_makes_units_irrelevant():
    kilo = lambda sample: (sample[0] * [1000.0, 1, 1, 1, 1], sample[1])  # noqa: E731
    plain = two_sample_conditional_test(A, B, scale=True, rng=Rng(1))
    other = two_sample_conditional_test(kilo(A), kilo(B), scale=True, rng=Rng(1))
    assert plain.statistic == pytest.approx(other.statistic, rel=1e-3)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ((A[0][:7], A[1][:7]), "The first sample has 7 rows; a test in halves needs at least 8"),
        ((A[0], A[1][:-1]), "one value a row"),
        ((A[0][:, :2], A[1]), r"the same columns, got \[2, 5\]"),
        ((A[0] * np.nan, A[1]), "first covariates are not finite"),
        ((A[0] + 1000, A[1]), "covariates hardly overlap"),
    ],
)
def test_bad_samples_are_refused(first, said):
    with pytest.raises(UsageError, match=said):
        two_sample_conditional_test(first, B, rng=Rng(0))


def test_bad_bandwidth_and_classifier_are_refused():
    from sklearn.svm import LinearSVC

    with pytest.raises(UsageError, match="bandwidth must be a positive number"):
        two_sample_conditional_test(A, B, bandwidth=-1.0, rng=Rng(0))
    with pytest.raises(UsageError, match="given must be places of columns, from 0 to 4"):
        two_sample_conditional_test(A, B, given=(5,), rng=Rng(0))
    with pytest.raises(UsageError, match="gives probabilities; Predictor does not"):
        two_sample_conditional_test(A, B, classifier=LinearSVC(), rng=Rng(0))
    with pytest.raises(UsageError, match="classifier must give probabilities"):
        ConditionalTwoSampleTest(Estimator("LinearRegression"))


@pytest.mark.parametrize(
    ("part", "plain"),
    [
        (ConditionalTwoSampleTest, two_sample_conditional_test),
        (DensityRatioTwoSampleTest, density_ratio_test),
        (ClassifierTwoSampleTest, classifier_test),
    ],
)
def test_subjects_are_the_functions(part, plain):
    subject = part().load(Rng(0))
    assert isinstance(subject, Acts)
    found = subject.act({"first": A, "second": B, "alpha": 0.3}, Rng(4))
    same = plain(A, B, rng=Rng(4))
    assert found == {
        "p_value": same.p_value,
        "statistic": same.statistic,
        "reject": same.p_value <= 0.3,
    }
    with pytest.raises(UsageError, match="mapping with first and second"):
        subject.act([A, B], Rng(0))
    with pytest.raises(UsageError, match="alpha must lie strictly"):
        subject.act({"first": A, "second": B, "alpha": 5}, Rng(0))


def test_a_learner_of_equipoise_is_a_classifier_too():
    part = ConditionalTwoSampleTest(Estimator("RandomForestClassifier", {"n_estimators": 20}))
    found = part.load(Rng(0)).act({"first": A, "second": B}, Rng(4))
    forest = RandomForestClassifier(n_estimators=20)
    # A tree does not care about the scale that scikit-learn classifiers get.
    same = two_sample_conditional_test(A, B, classifier=forest, rng=Rng(4))
    assert found["p_value"] == pytest.approx(same.p_value, abs=0.2)
    logistic = two_sample_conditional_test(
        A, B, classifier=LogisticRegression(C=np.inf, max_iter=1000), rng=Rng(4)
    )
    assert logistic == two_sample_conditional_test(A, B, rng=Rng(4))
