"""CR2 against its matrix definition; the two-way table against ANOVA and a mixed model."""

import numpy as np
import pytest
from scipy import linalg, stats

from equipoise.core import UsageError
from equipoise.kit.statistics import crossed_variance, mean


def cr2_by_matrices(x, clusters):
    """Bell & McCaffrey (2002) written out: matrix square roots and all."""
    n = len(x)
    design = np.ones((n, 1))
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    keep = np.eye(n) - hat
    residual = keep @ x
    variance, vectors = 0.0, []
    for label in np.unique(clusters):
        rows = np.flatnonzero(clusters == label)
        block = linalg.inv(linalg.sqrtm(keep[np.ix_(rows, rows)]).real)
        pull = (np.ones(len(rows)) / n) @ block
        variance += (pull @ residual[rows]) ** 2
        vectors.append(keep[:, rows] @ pull)
    gram = np.array(vectors) @ np.array(vectors).T
    return variance, np.trace(gram) ** 2 / (gram**2).sum()


def test_cr2_equals_its_matrix_definition():
    generator = np.random.default_rng(1)
    for sizes in ([3, 5, 2, 9], [1, 1, 20], [4, 4], [2, 7, 1, 1, 6, 3]):
        clusters = np.repeat(np.arange(len(sizes)), sizes)
        x = generator.normal(size=clusters.size) + generator.normal(size=len(sizes))[clusters]
        variance, df = cr2_by_matrices(x, clusters)
        found = mean(x, clusters=clusters)
        assert found.details["se"] ** 2 == pytest.approx(variance, rel=1e-9)
        assert found.details["df"] == pytest.approx(df, rel=1e-9)


def test_equal_clusters_give_t_on_cluster_means():
    x = np.random.default_rng(2).normal(size=(7, 4))
    found = mean(x.ravel(), clusters=np.repeat(np.arange(7), 4))
    means = x.mean(axis=1)
    low, high = stats.t.interval(0.95, 6, means.mean(), stats.sem(means))
    assert found.details["df"] == pytest.approx(6, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    assert (found.n, found.clusters, found.method) == (28, 7, "cr2")


def test_singleton_clusters_give_ordinary_t():
    x = np.random.default_rng(3).exponential(size=40)
    alone, clustered = mean(x), mean(x, clusters=np.arange(40))
    low, high = stats.t.interval(0.95, 39, x.mean(), stats.sem(x))
    assert (alone.low, alone.high) == pytest.approx((low, high), rel=1e-12)
    assert (clustered.low, clustered.high) == pytest.approx((low, high), rel=1e-12)


def test_repeats_are_averaged_within_units():
    x = np.array([1.0, 3.0, 5.0, 2.0, 2.0, 9.0])
    units = ["a", "a", "b", "c", "c", "d"]
    found = mean(x, units=units)
    assert found.n == 4
    assert found.value == pytest.approx(np.mean([2, 5, 2, 9]))
    assert found.details["se"] == pytest.approx(stats.sem([2, 5, 2, 9]))


def test_cluster_labels_and_row_order_do_not_matter():
    generator = np.random.default_rng(4)
    x, clusters = generator.normal(size=30), generator.integers(6, size=30)
    order = generator.permutation(30)
    names = np.array(["f", "e", "d", "c", "b", "a"])
    first = mean(x, clusters=clusters)
    second = mean(x[order], clusters=names[clusters][order])
    assert (first.low, first.high) == pytest.approx((second.low, second.high), rel=1e-12)


def test_two_way_table_has_the_anova_components():
    y = np.random.default_rng(5).normal(size=(4, 9)) + np.arange(9) + np.arange(4)[:, None] / 2
    builds, units = np.divmod(np.arange(36), 9)
    found = crossed_variance(y.ravel(), units, builds)
    square_builds = 9 * y.mean(axis=1).var(ddof=1)
    square_units = 4 * y.mean(axis=0).var(ddof=1)
    left = y - y.mean(axis=1, keepdims=True) - y.mean(axis=0) + y.mean()
    square_left = (left**2).sum() / (3 * 8)
    assert found.builds == pytest.approx((square_builds - square_left) / 9)
    assert found.units == pytest.approx((square_units - square_left) / 4)
    assert found.residual == pytest.approx(square_left)
    assert found.variance == pytest.approx((square_builds + square_units - square_left) / 36)
    assert found.share_builds + found.share_units + found.share_residual == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:Using deprecated variance:FutureWarning")
def test_two_way_components_agree_with_a_mixed_model():
    import statsmodels.api as sm

    generator = np.random.default_rng(6)
    builds, units = np.divmod(np.arange(8 * 25), 25)
    y = generator.normal(size=8)[builds] + 1.5 * generator.normal(size=25)[units]
    y = y + 0.7 * generator.normal(size=200)
    # REML equals the method of moments in a full table with no truncated component.
    fit = sm.MixedLM(
        y, np.ones((200, 1)), np.zeros(200),
        exog_vc={
            name: {0: (column[:, None] == np.arange(count)).astype(float)}
            for name, column, count in (("build", builds, 8), ("unit", units, 25))
        },
    ).fit(reml=True)  # fmt: skip
    found = crossed_variance(y, units, builds)
    assert [found.builds, found.units] == pytest.approx(list(fit.vcomp), rel=1e-3)
    assert found.residual == pytest.approx(fit.scale, rel=1e-3)
    assert np.sqrt(found.variance) == pytest.approx(fit.bse_fe[0], rel=1e-3)


def test_components_survive_missing_cells(covers):
    generator = np.random.default_rng(7)
    builds, units = np.divmod(np.arange(5 * 40), 40)
    found = []
    for _ in range(300):
        y = generator.normal(size=5)[builds] + 2 * generator.normal(size=40)[units]
        y += generator.normal(size=200)
        keep = generator.random(200) > 0.15
        one = crossed_variance(y[keep], units[keep], builds[keep])
        found.append([one.builds, one.units, one.residual])
    average, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(300)
    assert (np.abs(average - [1, 4, 1]) < 4 * error + [0.02, 0.1, 0.02]).all()


@pytest.mark.parametrize(("spread", "units"), [(0, 20), (0.1, 20), (0.3, 60), (1, 20), (1, 100)])
@pytest.mark.parametrize("builds", [2, 3, 5])
def test_two_way_interval_covers(covers, spread, units, builds):
    generator = np.random.default_rng(8)
    build, unit = np.divmod(np.arange(builds * units), units)
    hits = []
    for _ in range(800):
        y = spread * generator.normal(size=builds)[build] + generator.normal(size=units)[unit]
        found = mean(y + generator.normal(size=y.size), units=unit, builds=build)
        hits.append(found.low <= 0 <= found.high)
    # Two builds are next to no sample of builds: a percent may be missing there.
    covers(hits, at_least=0.95 if builds > 2 else 0.935)


def test_two_way_interval_is_narrow_when_builds_do_not_matter():
    generator = np.random.default_rng(9)
    build, unit = np.divmod(np.arange(5 * 200), 200)
    ratios = []
    for _ in range(100):
        y = generator.normal(size=200)[unit] + generator.normal(size=1000)
        two_way = mean(y, units=unit, builds=build)
        one_way = mean(y, clusters=unit)
        ratios.append((two_way.high - two_way.low) / (one_way.high - one_way.low))
    assert np.median(ratios) < 1.15


@pytest.mark.parametrize("together", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("kind", ["equal", "unequal", "few"])
def test_cluster_interval_covers(covers, together, kind):
    generator = np.random.default_rng(10)
    hits = []
    for _ in range(1000):
        count = 5 if kind == "few" else 15
        sizes = generator.integers(1, 12, size=count) if kind == "unequal" else np.full(count, 6)
        clusters = np.repeat(np.arange(count), sizes)
        x = generator.normal(size=clusters.size)
        x += together * generator.normal(size=count)[clusters]
        found = mean(x, clusters=clusters)
        hits.append(found.low <= 0 <= found.high)
    covers(hits, at_least=0.945, at_most=0.975)


def test_clusters_with_builds_cover(covers):
    generator = np.random.default_rng(11)
    build, unit = np.divmod(np.arange(4 * 60), 60)
    cluster = unit // 4
    hits = []
    for _ in range(800):
        y = 0.3 * generator.normal(size=4)[build] + generator.normal(size=15)[cluster]
        y += generator.normal(size=60)[unit] + 0.4 * generator.normal(size=60)[build * 15 + cluster]
        y += generator.normal(size=240)
        found = mean(y, units=unit, clusters=cluster, builds=build)
        hits.append(found.low <= 0 <= found.high)
    covers(hits)
    assert (found.n, found.clusters, found.builds) == (60, 15, 4)


def test_builds_without_units_pair_rows_by_position():
    y = np.random.default_rng(12).normal(size=30)
    build, unit = np.divmod(np.arange(30), 10)
    assert mean(y, builds=build) == mean(y, builds=build, units=unit)
    with pytest.raises(UsageError, match="give units"):
        mean(y, builds=np.minimum(build, 1))


def test_units_nested_in_builds_do_not_cross():
    build = np.repeat(np.arange(5), 8)
    y = np.random.default_rng(13).normal(size=5)[build] * 3 + np.random.default_rng(14).normal(
        size=40
    )
    found = mean(y, units=np.arange(40), builds=build)
    assert found.details["se"] == pytest.approx(mean(y, clusters=build).details["se"])


def test_one_build_counts_as_none():
    y = np.random.default_rng(15).normal(size=12)
    assert mean(y, units=np.arange(12), builds=np.zeros(12)) == mean(y)


def test_p_value_of_builds_inverts_the_interval():
    from equipoise.kit.statistics import paired_difference

    generator = np.random.default_rng(16)
    build, unit = np.divmod(np.arange(4 * 30), 30)
    a = 0.5 + 0.2 * generator.normal(size=4)[build] + generator.normal(size=120)
    p = paired_difference(a, np.zeros(120), units=unit, builds=build).p_value
    assert 0 < p < 1
    edge = paired_difference(a, np.zeros(120), units=unit, builds=build, level=1 - p)
    assert min(abs(edge.low), abs(edge.high)) == pytest.approx(0, abs=1e-9)
    reach = edge.value - edge.low
    assert stats.t.ppf(1 - p / 2, edge.details["df"]) * edge.details["se"] == pytest.approx(reach)


def test_a_constant_has_no_width_and_says_so():
    for found in (mean([0.1] * 40), mean([0.1] * 40, clusters=np.arange(40) // 4)):
        assert found.low == found.value == found.high
        assert "no width" in found.note


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mean([]), "mean: x is empty"),
        (lambda: mean([1.0, np.nan]), "mean: x has 1 values that are NaN"),
        (lambda: mean([[1.0, 2.0]]), "one dimension"),
        (lambda: mean(["a", "b"]), "list of numbers"),
        (lambda: mean([1.0]), "one unit gives no interval"),
        (lambda: mean([1.0, 2.0], clusters=[0, 0]), "one cluster gives no interval"),
        (lambda: mean([1.0, 2.0], clusters=[0]), "one label a row"),
        (lambda: mean([1.0, 2.0], clusters=[0, np.nan]), "missing labels"),
        (lambda: mean([1.0, 2.0], clusters=["a", None]), "mixes kinds of labels"),
        (lambda: mean([1.0, 2.0], level=1.0), "level must be between 0 and 1"),
        (lambda: mean([1, 2, 3], units=[0, 0, 1], clusters=[0, 1, 1]), "whole units"),
        (lambda: crossed_variance([1, 2], [0, 1], [0, 0]), "one build shows no variance"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
