import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.arrays.concordance import concordance


def draw(n=300, seed=0, digits=None):
    """Return times with events, cut short at random, and a noisy risk; rounding makes ties."""
    generator = np.random.default_rng(seed)
    risk = generator.normal(size=n)
    times, cut = generator.exponential(np.exp(-risk)), generator.exponential(1.5, n)
    seen = np.minimum(times, cut)
    seen = seen if digits is None else np.round(seen, digits) + 0.1
    return seen, times <= cut, risk + 0.3 * generator.normal(size=n)


@pytest.mark.parametrize("digits", [None, 1])
def test_concordance_is_that_of_scikit_survival(digits):
    metrics = pytest.importorskip("sksurv.metrics")
    times, events, risk = draw(digits=digits)
    risk = np.round(risk, 1)
    theirs = metrics.concordance_index_censored(events, times, risk)[0]
    assert concordance(times, events, risk).value == pytest.approx(theirs)


def test_concordance_is_that_of_lifelines_without_ties():
    utils = pytest.importorskip("lifelines.utils")
    times, events, risk = draw()
    theirs = utils.concordance_index(times, -risk, events)
    assert concordance(times, events, risk).value == pytest.approx(theirs)


def test_concordance_interval_covers_and_respects_clusters():
    truth = concordance(*draw(20_000, 99)).value
    hits = 0
    for seed in range(200):
        found = concordance(*draw(100, seed), level=0.9)
        hits += found.low <= truth <= found.high
    assert abs(hits / 200 - 0.9) < 3.5 * np.sqrt(0.09 / 200)
    times, events, risk = draw(100)
    once = concordance(times, events, risk)
    many = [np.repeat(each, 3) for each in (times, events, risk)]
    copies = concordance(*many, clusters=np.repeat(np.arange(100), 3))
    assert copies.value == pytest.approx(once.value)
    assert copies.high - copies.low == pytest.approx(once.high - once.low, rel=1e-6)


def test_perfect_order_has_no_interval_and_says_so():
    found = concordance([1, 2, 3], [1, 1, 1], [3, 2, 1])
    assert found.value == 1
    assert not found.has_interval
    assert "no spread" in found.note


def test_pairs_by_hand():
    # At time 2 the event comes before the row that is lost then; two events at 3 are no pair.
    found = concordance([1, 2, 2, 3, 3], [1, 1, 0, 1, 1], [5, 1, 3, 1, 0])
    assert found.details["pairs"] == 4 + 3
    assert found.value == pytest.approx((4 + 0 + 0.5 + 1) / 7)


@pytest.mark.parametrize(("columns", "sentence"), [
    (([1, 2], [0, 0], [1, 2]), "no two rows can be compared"),
    (([1, 2], [1, 0], [np.nan, 2]), "none NaN"),
    (([1, -2], [1, 0], [1, 2]), "not negative"),
])  # fmt: skip
def test_faults_are_told_in_a_sentence(columns, sentence):
    with pytest.raises(UsageError, match=sentence):
        concordance(*columns)
