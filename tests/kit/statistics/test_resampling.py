"""The bootstrap against SciPy's, closed forms and simulation."""

import time

import numpy as np
import pytest
from scipy import stats

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics import bootstrap, bootstrap_difference, bootstrap_mean, mean
from equipoise.kit.statistics.resampling import resampled_sums

METHODS = ["bca", "percentile", "studentized"]


def correlation(x, y):
    return float(np.corrcoef(x, y)[0, 1])


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_intervals_agree_with_scipy(method):
    generator = np.random.default_rng(1)
    x = generator.normal(size=40)
    y = x + generator.normal(size=40)
    found = bootstrap(correlation, (x, y), rng=Rng(0), draws=8000, method=method)
    expected = stats.bootstrap(
        (x, y), correlation, paired=True, vectorized=False, n_resamples=8000,
        method=method, rng=np.random.default_rng(0),
    )  # fmt: skip
    ends = expected.confidence_interval
    slack = 0.1 * expected.standard_error  # about three Monte Carlo errors of a 2.5 % quantile
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=slack)
    assert found.details["se"] == pytest.approx(expected.standard_error, rel=0.04)


def test_skewed_mean_agrees_with_scipys_bca():
    x = np.random.default_rng(2).lognormal(size=50)
    found = bootstrap_mean(x, rng=Rng(0), draws=50_000)
    expected = stats.bootstrap((x,), np.mean, n_resamples=50_000, rng=np.random.default_rng(0))
    ends, se = expected.confidence_interval, expected.standard_error
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=0.05 * se)


def test_acceleration_of_a_mean_is_a_sixth_of_its_skewness():
    x = np.random.default_rng(3).lognormal(size=60)
    expected = stats.skew(x) / (6 * np.sqrt(60))
    quick = bootstrap_mean(x, rng=Rng(0), draws=200)
    plain = bootstrap(np.mean, (x,), rng=Rng(0), draws=200)
    assert quick.details["acceleration"] == pytest.approx(expected)
    assert plain.details["acceleration"] == pytest.approx(expected)


def test_bundled_jackknife_keeps_the_acceleration():
    x = np.random.default_rng(4).lognormal(size=5000)
    found = bootstrap(np.mean, (x,), rng=Rng(0), draws=100)
    assert found.details["acceleration"] == pytest.approx(
        stats.skew(x) / (6 * np.sqrt(5000)), abs=0.003
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clustered", [False, True])
def test_quick_mean_equals_the_plain_bootstrap(method, clustered):
    """With 24 units or 20 clusters, so that the inner jackknife bundles none together."""
    generator = np.random.default_rng(5)
    x = generator.exponential(size=60 if clustered else 24)
    clusters = np.repeat(np.arange(20), 3) if clustered else None
    quick = bootstrap_mean(x, clusters=clusters, rng=Rng(0), draws=4000, method=method)
    plain = bootstrap(np.mean, (x,), clusters=clusters, rng=Rng(1), draws=4000, method=method)
    se = mean(x, clusters=clusters).details["se"]
    slack = (0.12 if method == "percentile" else 0.25) * se  # the others reach further out
    assert (quick.low, quick.high) == pytest.approx((plain.low, plain.high), abs=slack)
    assert quick.clusters == plain.clusters == (20 if clustered else None)


@pytest.mark.parametrize(
    ("columns", "groups"), [([0.0, 1.0, -1.0], 2000), (list(np.arange(50) ** 2.0), 50)]
)
def test_resampled_sums_have_the_right_law(columns, groups):
    """Both ways of drawing: counts of few values, and row by row."""
    x = np.resize(np.array(columns), groups)
    found = resampled_sums([x, x**2], 20_000, np.random.default_rng(6))
    assert found[:, 0].mean() == pytest.approx(x.sum(), abs=4 * found[:, 0].std() / 141)
    assert found[:, 0].std() == pytest.approx(np.sqrt(groups) * x.std(), rel=0.02)
    expected = np.corrcoef(x, x**2)[0, 1]
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(expected, abs=0.02)


def test_whole_clusters_are_drawn_and_rows_stay_together():
    clusters = np.array(["b", "a", "b", "c", "a", "b"])
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    seen = set()

    def statistic(values, again):
        assert (values == again).all()
        seen.add(tuple(sorted(values)))
        return values.mean()

    bootstrap(statistic, (x, x), clusters=clusters, rng=Rng(0), draws=300)
    whole = {(1.0, 3.0, 6.0), (2.0, 5.0), (4.0,)}
    possible = {
        tuple(sorted(i + j + k)) for i in whole for j in whole for k in whole
    } | {tuple(sorted(i + j)) for i in whole for j in whole if i != j}  # fmt: skip
    assert seen <= possible
    assert len(seen) >= 10


@pytest.mark.parametrize("method", METHODS)
def test_quick_mean_covers_skewed_clusters(covers, method):
    generator = np.random.default_rng(7)
    clusters = np.repeat(np.arange(30), generator.integers(1, 6, size=30))
    hits = []
    for run in range(800):
        x = generator.exponential(size=30)[clusters] + generator.exponential(size=clusters.size)
        found = bootstrap_mean(x, clusters=clusters, rng=Rng(run), draws=1000, method=method)
        hits.append(found.low <= 2 <= found.high)
    # First-order methods lose a few percent at 30 skewed clusters; the studentised one does not.
    covers(hits, at_least=0.94 if method == "studentized" else 0.90)


def test_functional_covers(covers):
    generator = np.random.default_rng(8)
    hits = []
    for run in range(200):
        x = generator.normal(size=60)
        y = 0.5 * x + np.sqrt(0.75) * generator.normal(size=60)
        found = bootstrap(correlation, (x, y), rng=Rng(run), draws=200)
        hits.append(found.low <= 0.5 <= found.high)
    covers(hits, at_least=0.93)


def test_studentized_functional_covers(covers):
    generator = np.random.default_rng(9)
    hits = []
    for run in range(120):
        x = generator.exponential(size=15)
        found = bootstrap(np.mean, (x,), rng=Rng(run), draws=120, method="studentized")
        hits.append(found.low <= 1 <= found.high)
    covers(hits, at_least=0.93)


@pytest.mark.parametrize("method", METHODS)
def test_p_value_inverts_the_interval(method):
    x = np.random.default_rng(10).exponential(size=50) - 0.75
    at = [
        bootstrap_mean(x, rng=Rng(0), draws=20_000, level=level, method=method)
        for level in (0.95, 0.9)
    ]
    p = at[0].p_value
    assert p == at[1].p_value
    inside = bootstrap_mean(x, rng=Rng(0), draws=20_000, level=1 - 0.97 * p, method=method)
    outside = bootstrap_mean(x, rng=Rng(0), draws=20_000, level=1 - 1.03 * p, method=method)
    assert inside.low < 0 < inside.high
    assert not outside.low < 0 < outside.high


@pytest.mark.parametrize("method", METHODS)
def test_no_effect_is_found_no_oftener_than_the_level(method):
    generator = np.random.default_rng(11)
    found = [
        bootstrap_mean(generator.normal(size=60), rng=Rng(run), draws=400, method=method).p_value
        for run in range(1000)
    ]
    for level in (0.05, 0.1, 0.5):
        share = np.mean(np.array(found) <= level)
        # Percentile and BCa treat the spread as known: at 60 units, z where t would be right.
        extra = 0.0 if method == "studentized" else 0.01
        assert share <= level + extra + 3.5 * np.sqrt(level * (1 - level) / 1000)


def test_difference_is_paired():
    generator = np.random.default_rng(12)
    truth = generator.integers(2, size=300)
    shared = truth + generator.normal(size=300)
    a, b = shared + 0.1 * generator.normal(size=300), shared + 0.1 * generator.normal(size=300)

    def area(scores, labels):
        ranks = stats.rankdata(scores)
        ones = labels.sum()
        return (ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones))

    found = bootstrap_difference(area, (a, truth), (b, truth), rng=Rng(0), draws=500)
    one = bootstrap(area, (a, truth), rng=Rng(0), draws=500)
    assert found.value == pytest.approx(area(a, truth) - area(b, truth))
    assert found.high - found.low < (one.high - one.low) / 3
    assert found.low <= 0 <= found.high
    assert found.p_value > 0.05


def test_undefined_resamples_are_told_or_refused():
    labels = np.repeat([0, 1], [27, 3])
    x = np.arange(30.0)

    def gap(values, classes):
        if classes.min() == classes.max():
            return np.nan
        return values[classes == 1].mean() - values[classes == 0].mean()

    found = bootstrap(gap, (x, labels), rng=Rng(0), draws=500, method="percentile")
    assert "undefined" in found.note
    with pytest.raises(UsageError, match="undefined on"):
        bootstrap(gap, (x[20:], np.repeat([0, 1], [9, 1])), rng=Rng(0), draws=500)


def test_a_constant_has_no_width_and_says_so():
    for method in METHODS:
        found = bootstrap_mean(np.full(40, 0.1), rng=Rng(0), draws=200, method=method)
        assert found.low == found.high == pytest.approx(0.1)
        assert "no width" in found.note


def test_few_draws_for_a_level_are_told():
    assert (
        "few for this level"
        in bootstrap_mean(np.arange(40), rng=Rng(0), draws=200, level=0.999).note
    )


def test_same_stream_same_interval():
    x = np.random.default_rng(13).normal(size=30)
    assert bootstrap(np.mean, (x,), rng=Rng(1)) == bootstrap(np.mean, (x,), rng=Rng(1))
    assert bootstrap(np.mean, (x,), rng=Rng(1)) != bootstrap(np.mean, (x,), rng=Rng(2))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clustered", [False, True])
def test_row_order_does_not_matter(method, clustered):
    generator = np.random.default_rng(15)
    x, y, order = *generator.normal(size=(2, 30)), generator.permutation(30)
    clusters = np.array(list("abcdef"))[np.arange(30) % 6] if clustered else None
    mixed = None if clusters is None else clusters[order]

    def both(columns, labels):
        design = {"clusters": labels, "rng": Rng(0), "draws": 100, "method": method}
        return (
            bootstrap(correlation, columns, **design),
            bootstrap_mean(columns[0], **design),
        )

    assert both((x, y), clusters) == both((x[order], y[order]), mixed)


def test_ten_thousand_by_ten_thousand_is_quick():
    d = np.random.default_rng(14).normal(size=10_000)
    started = time.process_time()
    bootstrap_mean(d, rng=Rng(0), draws=10_000)
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bootstrap(np.mean, (), rng=Rng(0)), "tuple of arrays"),
        (lambda: bootstrap(np.mean, ([],), rng=Rng(0)), "empty"),
        (lambda: bootstrap(np.mean, ([1.0, np.nan],), rng=Rng(0)), "NaN or infinite"),
        (lambda: bootstrap(correlation, ([1, 2], [1]), rng=Rng(0)), "equally long"),
        (lambda: bootstrap(np.mean, ([1.0],), rng=Rng(0)), "one unit"),
        (lambda: bootstrap(np.mean, ([1.0, 2.0],), clusters=[1, 1], rng=Rng(0)), "one cluster"),
        (lambda: bootstrap(np.mean, ([1.0, 2.0],), rng=Rng(0), draws=3), "draws must be"),
        (lambda: bootstrap(np.mean, ([1.0, 2.0],), rng=Rng(0), method="x"), "method must be"),
        (lambda: bootstrap(lambda x: np.nan, ([1.0, 2.0],), rng=Rng(0)), "the data is nan"),
        (lambda: bootstrap_mean([1.0, np.inf], rng=Rng(0)), "NaN or infinite"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
