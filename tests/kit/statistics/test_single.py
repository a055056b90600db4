"""Proportions and quantiles of one arm."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics import mean, proportion, quantile, wilson


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(("successes", "n"), [(0, 5), (5, 5), (1, 40), (20, 40), (999, 1000)])
def test_wilson_equals_statsmodels(successes, n, level):
    expected = proportion_confint(successes, n, 1 - level, method="wilson")
    assert wilson(successes, n, level) == pytest.approx(expected, abs=1e-12)


def test_proportion_is_wilson():
    x = np.array([1] * 33 + [0] * 7)
    found = proportion(x, level=0.9)
    assert (found.low, found.high) == wilson(33, 40, 0.9)
    assert (found.value, found.n, found.method, found.note) == (33 / 40, 40, "wilson", "")


@pytest.mark.parametrize("n", [10, 40, 200])
def test_wilson_covers_on_average(n):
    """Exact coverage by summing the binomial law: nominal over p, never far below."""
    k = np.arange(n + 1)
    ends = np.array([wilson(each, n) for each in k])
    coverage = [
        stats.binom.pmf(k, n, p)[(ends[:, 0] <= p) & (p <= ends[:, 1])].sum()
        for p in np.linspace(0.01, 0.99, 393)
    ]
    assert 0.945 < np.mean(coverage) < 0.965
    assert min(coverage) > 0.83


@pytest.mark.parametrize(("p", "sizes"), [(0.5, 6), (0.85, 6), (0.3, 2), (0.9, 20)])
def test_cluster_proportion_covers(covers, p, sizes):
    generator = np.random.default_rng(1)
    clusters = np.repeat(np.arange(25), sizes)
    hits = []
    for _ in range(1000):
        chance = generator.beta(2 * p, 2 * (1 - p), size=25)  # intraclass correlation 1/3
        x = generator.random(clusters.size) < chance[clusters]
        found = proportion(x, clusters=clusters)
        hits.append(found.low <= p <= found.high)
    covers(hits, at_least=0.94)


def test_cluster_proportion_stays_inside_and_matches_delta():
    generator = np.random.default_rng(2)
    x, clusters = (generator.random(60) < 0.95).astype(float), np.arange(60) // 5
    found, plain = proportion(x, clusters=clusters), mean(x, clusters=clusters)
    assert 0 < found.low < found.value < found.high < 1
    logit = np.log(found.value / (1 - found.value))
    reach = (plain.high - plain.value) / (found.value * (1 - found.value))
    assert found.low == pytest.approx(1 / (1 + np.exp(reach - logit)))
    assert found.details["df"] == plain.details["df"]


@pytest.mark.parametrize("x", [np.zeros(40), np.ones(40), np.tile([0, 1], 20)])
def test_clusters_without_variance_still_have_width(x):
    found = proportion(x, clusters=np.arange(40) // 4)
    assert (found.low, found.high) == wilson(x.mean() * 10, 10)
    assert found.method == "wilson-clusters"
    assert "counted as one observation" in found.note


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [30, 100])
def test_quantile_covers_exactly_what_the_binomial_says(q, n):
    found = quantile(np.arange(1, n + 1), q)
    lower = 0 if np.isinf(found.low) else int(found.low)
    upper = n + 1 if np.isinf(found.high) else int(found.high)
    law = stats.binom(n, q)
    assert law.cdf(upper - 1) - law.cdf(lower - 1) >= 0.95
    assert law.cdf(lower - 1) <= 0.025 < law.cdf(lower)
    assert law.sf(upper - 1) <= 0.025 < law.sf(upper - 2)
    assert found.value == pytest.approx(np.quantile(np.arange(1, n + 1), q))


def test_quantile_covers(covers):
    generator = np.random.default_rng(3)
    truth = stats.expon.ppf(0.75)
    hits = []
    for _ in range(2000):
        found = quantile(generator.exponential(size=60), 0.75)
        hits.append(found.low <= truth <= found.high)
    covers(hits)


def test_quantile_over_clusters_covers(covers):
    generator = np.random.default_rng(4)
    clusters = np.repeat(np.arange(40), 4)
    hits = []
    for run in range(200):
        x = generator.normal(size=40)[clusters] + generator.normal(size=160)
        found = quantile(x, 0.5, clusters=clusters, rng=Rng(run), draws=150)
        hits.append(found.low <= 0 <= found.high)
    covers(hits, at_least=0.93)


def test_too_few_units_leave_an_end_open():
    found = quantile([1.0, 2.0, 3.0, 4.0], 0.9)
    assert found.high == np.inf
    assert "Too few units" in found.note


def test_few_units_and_clusters_are_warned_of():
    assert "Only 12 units" in mean(np.arange(12)).note
    assert (
        "Only 4 clusters" in proportion(np.tile([0, 1, 1], 20), clusters=np.arange(60) // 15).note
    )
    assert mean(np.arange(30)).note == ""


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: proportion([0, 0.5, 1]), "zeros and ones only"),
        (lambda: proportion([]), "x is empty"),
        (lambda: proportion([0, 1, np.nan]), "NaN"),
        (lambda: proportion([0, 1], clusters=["a", "a"]), "one cluster gives no interval"),
        (lambda: wilson(3, 2), "from 0 to n"),
        (lambda: wilson(0, 0), "from 0 to n"),
        (lambda: quantile([1, 2], 1.5), "q must be between 0 and 1"),
        (lambda: quantile([1, 2], 0.5, clusters=[0, 1]), "clusters need rng"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
