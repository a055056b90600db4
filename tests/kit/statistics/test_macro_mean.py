"""The mean over strata, against matrices and in simulation."""

import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.statistics import macro_mean, mean


def by_matrices(d, strata, clusters):
    """CR2 and Satterthwaite as they are defined, with projections."""
    x = (strata[:, None] == np.unique(strata)).astype(float)
    inverse = np.linalg.inv(x.T @ x)
    hat = x @ inverse @ x.T
    left = np.eye(len(d)) - hat
    contrast = np.full(x.shape[1], 1 / x.shape[1])
    residual, variance, columns = left @ d, 0.0, []
    for each in np.unique(clusters):
        rows = np.flatnonzero(clusters == each)
        values, vectors = np.linalg.eigh(np.eye(len(rows)) - hat[np.ix_(rows, rows)])
        adjust = (vectors * values**-0.5) @ vectors.T
        line = adjust @ x[rows] @ inverse @ contrast
        variance += (line @ residual[rows]) ** 2
        columns.append(left[:, rows] @ line)
    gram = np.array(columns) @ np.array(columns).T
    return variance**0.5, np.trace(gram) ** 2 / (gram**2).sum()


@pytest.mark.parametrize("nested", [True, False])
def test_it_is_cr2_of_a_model_with_a_mean_a_stratum(nested):
    rng = np.random.default_rng(int(nested))
    strata, clusters = rng.integers(0, 4, 60), rng.integers(0, 6, 60)
    clusters = clusters + 10 * strata if nested else clusters
    d = rng.normal(size=60) + strata
    se, df = by_matrices(d, strata, clusters)
    found = macro_mean(d, strata, clusters=clusters)
    assert found.details["se"] == pytest.approx(se)
    assert found.details["df"] == pytest.approx(df)
    assert found.value == pytest.approx(np.mean([d[strata == t].mean() for t in range(4)]))
    shuffled = rng.permutation(60)
    again = macro_mean(d[shuffled], strata[shuffled], clusters=clusters[shuffled])
    assert again.low == pytest.approx(found.low)


def test_one_stratum_is_the_mean():
    rng = np.random.default_rng(2)
    d, clusters = rng.normal(size=40), rng.integers(0, 7, 40)
    one, other = macro_mean(d, np.zeros(40), clusters=clusters), mean(d, clusters=clusters)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))
    one, other = macro_mean(d, np.zeros(40)), mean(d)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


@pytest.mark.parametrize("crossed", [True, False])
def test_it_covers_and_its_p_values_keep_their_level(crossed, covers, level_holds):
    rng = np.random.default_rng(3)
    sizes = np.array([20, 60, 25, 150])
    strata = np.repeat(np.arange(4), sizes)
    true = np.array([0.3, -0.2, 0.1, -0.2])
    hits, p_values = [], []
    for _ in range(1_500):
        clusters = rng.integers(0, 12, sizes.sum())
        clusters = clusters if crossed else clusters + 12 * strata
        shared = rng.normal(0, 0.5, 48)[clusters]
        d = true[strata] + shared + rng.normal(size=sizes.sum()) * (1 + strata / 2)
        found = macro_mean(d, strata, clusters=clusters)
        hits.append(found.low <= 0 <= found.high)
        p_values.append(found.p_value)
    covers(hits)
    level_holds(p_values)


def test_flat_values_and_bad_input():
    found = macro_mean([1, 1, 2, 2], ["a", "a", "b", "b"])
    assert (found.low, found.value, found.p_value) == (1.5, 1.5, 0.0)
    assert "no width" in found.note
    with pytest.raises(UsageError, match="a stratum has one row"):
        macro_mean([1, 2, 3], ["a", "b", "b"])
    with pytest.raises(UsageError, match="a stratum has one cluster"):
        macro_mean([1, 2, 3, 4], ["a", "a", "b", "b"], clusters=[0, 0, 1, 2])
    with pytest.raises(UsageError, match="one label a row"):
        macro_mean([1, 2, 3, 4], ["a", "b"])
