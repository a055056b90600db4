"""What holds for the package as a whole: lazy, plain numbers, rows in any order."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core import Estimate, Rng
from equipoise.kit import statistics


def test_every_public_name_loads():
    for name in statistics.__all__:
        assert getattr(statistics, name).__doc__
    assert set(statistics._WHERE) == set(statistics.__all__)
    with pytest.raises(AttributeError, match="no attribute 'median'"):
        _ = statistics.median


def test_importing_the_package_loads_no_scipy():
    code = (
        "import sys, equipoise.kit.statistics as s; assert 'scipy' not in sys.modules;"
        "s.mean([1, 2]); s.paired_difference([1, 2], [2, 1]);"
        "assert 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def calls(a, b, clusters, builds):
    """All estimates of two columns, with the names that say which one failed."""
    zero, one = (a > 0).astype(float), (b > 0).astype(float)
    s, rng = statistics, Rng(0)
    unit = np.arange(a.size) // 2
    yield "mean", s.mean(a)
    yield "mean clusters", s.mean(a, clusters=clusters)
    yield "mean builds", s.mean(a, units=unit, builds=builds)
    yield "proportion", s.proportion(zero)
    yield "proportion clusters", s.proportion(zero, clusters=clusters)
    yield "quantile", s.quantile(a, 0.5)
    yield "paired", s.paired_difference(a, b, rng=rng, draws=100)
    yield "paired clusters", s.paired_difference(a, b, clusters=clusters, rng=rng, draws=100)
    yield "paired builds", s.paired_difference(a, b, units=unit, builds=builds)
    yield "paired binary", s.paired_difference(zero, one)
    yield "unpaired", s.unpaired_difference(a, b)
    yield "unpaired binary", s.unpaired_difference(zero, one)
    yield "log odds", s.log_odds_ratio(zero, one, clusters=clusters, rng=rng, draws=100)
    yield "ratio", s.ratio(np.exp(a), np.exp(b), rng=rng, draws=100)
    for method in ("bca", "percentile", "studentized"):
        yield "bootstrap", s.bootstrap_mean(a, rng=rng, draws=100, method=method)
    betting, asymptotic = s.BettingSequence(-25, 25), s.AsymptoticSequence(start=5)
    betting.update_many(a)
    asymptotic.update_many(a)
    yield "betting", betting.estimate()
    yield "asymptotic", asymptotic.estimate()


def plain(estimate):
    numbers = [estimate.value, estimate.low, estimate.high, *estimate.details.values()]
    if estimate.p_value is not None:
        numbers.append(estimate.p_value)
        assert 0 <= estimate.p_value <= 1
    assert all(type(each) is float for each in numbers), estimate
    assert type(estimate.n) is int
    assert all(each is None or type(each) is int for each in (estimate.clusters, estimate.builds))
    assert estimate.method


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(5, 40),
    st.sampled_from(["normal", "rounded", "heavy", "constant"]),
)
def test_estimates_are_plain_numbers_in_order(seed, half, law):
    generator = np.random.default_rng(seed)
    shape = (2, 2 * half)
    a, b = {
        "normal": generator.normal(size=shape),
        "rounded": np.round(generator.normal(size=shape)),
        "heavy": np.clip(generator.standard_cauchy(size=shape), -20, 20),
        "constant": np.full(shape, 0.3),
    }[law]
    builds = np.tile([0, 1], half)
    clusters = np.arange(2 * half) // 4
    for name, found in calls(a, b, clusters, builds):
        assert isinstance(found, Estimate), name
        plain(found)
        slack = 1e-9 * (1 + abs(found.value))
        if name != "bootstrap":
            assert found.low - slack <= found.value <= found.high + slack, (name, found)
        assert not np.isnan([found.low, found.high]).any(), name


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rows_may_come_in_any_order(seed):
    generator = np.random.default_rng(seed)
    a, b = np.round(generator.normal(size=(2, 24)), 1)
    clusters, builds, units = np.arange(24) // 4, np.tile([0, 1], 12), np.arange(24) // 2
    order = generator.permutation(24)
    for design in ({}, {"clusters": clusters}, {"units": units, "builds": builds}):
        shuffled = {name: column[order] for name, column in design.items()}
        one = statistics.paired_difference(a, b, **design)
        other = statistics.paired_difference(a[order], b[order], **shuffled)
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))
