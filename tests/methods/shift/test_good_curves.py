from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.shift import (
    AUGOOD,
    PairedCurveTest,
    SimilarityQuality,
    au_good,
    compare_curves,
    deployment_weights,
    good_curve,
    similarity_partition,
    similarity_quality,
)
from equipoise.methods.shift._curves import METRICS, SCORERS

GRID = [0.3, 0.5, 0.7]


def _one(metric, y, hat, w=None):
    w = np.ones(len(y)) if w is None else w
    return SCORERS[metric](np.asarray(y, float), np.asarray(hat, float), w[None, :])[0]


def test_hand_case():
    curve = dict(zip(GRID, [0.4, 0.6, 0.8], strict=True))
    w = deployment_weights([0.2, 0.35, 0.45, 0.6], GRID)
    assert w.tolist() == [0.25, 0.5, 0.25]
    assert au_good(curve, w) == pytest.approx(0.6)
    assert au_good(curve) == pytest.approx(0.6)
    assert au_good(curve, deployment_weights([0.1, 0.3], GRID)) == pytest.approx(0.4)


def test_edges_of_the_bins_and_what_lies_beyond():
    assert deployment_weights([0.3, 0.5, 0.7], GRID).tolist() == pytest.approx([1 / 3] * 3)
    # 32-bit floats hold 0.7 a little below and 0.3 a little above.
    assert deployment_weights(np.float32(GRID), GRID).tolist() == pytest.approx([1 / 3] * 3)
    assert deployment_weights([0.6, 0.9, 1.0], GRID).tolist() == [0, 0, 1]  # two are dropped
    for bad, told in [
        (([0.9], GRID), "none of 1 deployment items is as far"),
        (([0.5], [0.5, 0.3]), "must rise"),
        (([np.nan], GRID), "finite"),
        (([1.5], GRID), "from 0 to 1"),
    ]:
        with pytest.raises(UsageError, match=told):
            deployment_weights(*bad)


def test_area_keeps_constants_bounds_and_order():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = np.sort(rng.random(6))
        curve = dict(zip(np.linspace(0.2, 0.7, 6).tolist(), values, strict=True))
        m = rng.uniform(0, 0.7, size=30)
        w = deployment_weights(m, sorted(curve))
        assert au_good(dict.fromkeys(curve, 0.3), w) == pytest.approx(0.3)
        assert values.min() - 1e-12 <= au_good(curve, w) <= values.max() + 1e-12
        nearer = deployment_weights(np.minimum(m + 0.1, 0.7), sorted(curve))
        assert au_good(curve, nearer) >= au_good(curve, w) - 1e-12
    for bad in ([0, 0, 0], [1, -1, 1], [1, 2]):
        with pytest.raises(UsageError, match="au_good: "):
            au_good(dict.fromkeys(GRID, 1.0), bad)


def test_metrics_are_those_of_scipy_and_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    y = rng.normal(size=80).round(1)  # with ties
    hat = (y + rng.normal(size=80)).round(1)
    assert _one("spearman", y, hat) == pytest.approx(stats.spearmanr(y, hat)[0])
    assert _one("pearson", y, hat) == pytest.approx(stats.pearsonr(y, hat)[0])
    assert _one("r2", y, hat) == pytest.approx(metrics.r2_score(y, hat))
    assert _one("rmse", y, hat) == pytest.approx(metrics.root_mean_squared_error(y, hat))
    assert _one("mae", y, hat) == pytest.approx(metrics.mean_absolute_error(y, hat))
    for kinds in (2, 4):
        a = rng.integers(kinds, size=80)
        b = np.where(rng.random(80) < 0.6, a, rng.integers(kinds, size=80))
        assert _one("mcc", a, b) == pytest.approx(metrics.matthews_corrcoef(a, b))
        assert _one("accuracy", a, b) == pytest.approx(metrics.accuracy_score(a, b))


@pytest.mark.parametrize("metric", METRICS)
def test_counts_are_as_good_as_rows_repeated(metric):
    rng = np.random.default_rng(2)
    y = rng.integers(4, size=40).astype(float)
    hat = rng.integers(4, size=40).astype(float)
    counts = rng.multinomial(40, np.full(40, 1 / 40), size=5).astype(float)
    drawn = SCORERS[metric](y, hat, counts)
    for value, w in zip(drawn, counts.astype(int), strict=True):
        assert value == pytest.approx(_one(metric, np.repeat(y, w), np.repeat(hat, w)))


def test_what_does_not_vary_has_no_correlation():
    y = np.arange(5.0)
    for metric in ("spearman", "pearson", "mcc"):
        assert _one(metric, y, np.full(5, 0.1)) == 0.0
    assert np.isnan(_one("r2", np.full(5, 2.0), y))


def test_wilcoxon_is_scipys_and_equal_curves_do_not_matter():
    rng = np.random.default_rng(3)
    a, b = rng.random(9), rng.random(9)
    grid = np.arange(9) / 10
    curves = {"a": dict(zip(grid, a, strict=True)), "b": dict(zip(grid, b, strict=True))}
    found = compare_curves(curves)
    assert found[0, 1] == pytest.approx(stats.wilcoxon(a, b, alternative="greater").pvalue)
    turned = compare_curves(curves, higher_is_better=False)
    assert turned[0, 1] == pytest.approx(found[1, 0])
    assert compare_curves({"a": curves["a"], "c": curves["a"]}).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(UsageError, match="no threshold in common"):
        compare_curves({"a": {0.1: 1.0}, "b": {0.2: 1.0}})


def test_quality_of_a_similarity():
    assert similarity_quality({0.3: 0.4, 0.5: 0.2, 0.8: 0.1}) == pytest.approx((-1.0, 0.5))
    with pytest.raises(UsageError, match="at least two thresholds"):
        similarity_quality({0.3: 0.4})


def test_good_curve_trains_on_training_rows_only():
    neighbors = pytest.importorskip("sklearn.neighbors")
    x = np.arange(20.0)[:, None]
    y = np.where(np.arange(20) % 2, "odd", "even")
    part = similarity_partition(np.eye(20), 0.5, test_size=0.5)
    poisoned = y.copy()
    poisoned[part.test] = "odd"
    model = neighbors.KNeighborsClassifier(1)
    assert good_curve(model, x, y, [part], metric="accuracy")[0.5] == pytest.approx(
        (y[part.test] == y[part.train[0]]).mean()
    )
    assert good_curve(model, x, poisoned, [part], metric="accuracy")[0.5] in (0.0, 1.0)
    assert not hasattr(model, "classes_")


def _rows(metric="spearman", **changes):
    outcomes, _ = AUGOOD(metric=metric).simulate(Rng(1))
    return replace(outcomes, **changes) if changes else outcomes


def test_measure_is_the_weighted_mean_of_the_curve():
    rows = _rows()
    t, y, hat = (rows.score(name) for name in ("threshold", "target", "predicted"))
    curve = {float(each): stats.spearmanr(y[t == each], hat[t == each])[0] for each in np.unique(t)}
    assert AUGOOD().statistic(rows) == pytest.approx(au_good(curve, [0.4, 0.3, 0.2, 0.1]))
    uniform = AUGOOD(weighting="uniform")
    assert uniform.statistic(rows) == pytest.approx(au_good(curve))
    bare = replace(rows, scores={k: v for k, v in rows.scores.items() if k != "weight"})
    assert AUGOOD().statistic(bare) == pytest.approx(au_good(curve))
    with pytest.raises(UsageError, match="give the task a deployment"):
        AUGOOD(weighting="deployment").statistic(bare)


def test_builds_are_scored_apart_and_averaged():
    rows = _rows()
    two = Outcomes(
        unit=np.tile(rows.unit, 2),
        scores={
            name: np.concatenate([v, -v if name == "predicted" else v])
            for name, v in rows.scores.items()
        },
        failed=np.tile(rows.failed, 2),
        build=np.repeat([0, 1], len(rows)),
        repeat=np.zeros(2 * len(rows), int),
        cluster=np.tile(rows.cluster, 2),
    )
    assert AUGOOD().statistic(two) == pytest.approx(0.0, abs=1e-12)


def test_interval_is_that_of_a_plain_bootstrap():
    rows = _rows()
    measure = AUGOOD(draws=1000)
    found = measure.measure(rows, Rng(2))
    generator = np.random.default_rng(0)
    by_row = [np.flatnonzero(rows.cluster == each) for each in range(240)]
    slow = [
        measure.statistic(
            replace(
                rows.take(np.concatenate([by_row[each] for each in pick])),
                cluster=np.repeat(np.arange(240), 4),
            )
        )
        for pick in generator.integers(240, size=(300, 240))
    ]
    assert np.std(slow) == pytest.approx((found.high - found.low) / 3.92, rel=0.15)
    assert found.clusters == 240
    assert found.n == 960


def test_pair_is_better_the_right_way_round():
    good, bad = _rows(), _rows()
    y = bad.score("target")
    noise = np.random.default_rng(0).normal(size=len(y))
    bad = replace(bad, scores=dict(bad.scores) | {"predicted": 0.1 * y + noise})
    for metric in ("spearman", "rmse"):
        test = PairedCurveTest(metric=metric, draws=200)
        ahead, behind = test.measure((good, bad), Rng(0)), test.measure((bad, good), Rng(0))
        assert ahead.low > 0 > behind.high
        assert ahead.value == pytest.approx(-behind.value)
        assert ahead.details["wilcoxon_p"] == pytest.approx(1 / 16)  # 4 thresholds, all ahead
        assert AUGOOD(metric=metric).better(good) is (metric == "spearman")
    with pytest.raises(UsageError, match="same rows and thresholds"):
        PairedCurveTest().measure((good, bad.take(np.arange(240))), Rng(0))


def test_quality_measure_turns_errors():
    rows = _rows()
    t, y, hat = (rows.score(name) for name in ("threshold", "target", "predicted"))
    raw = [float(np.abs(hat - y)[t == each].mean()) for each in np.unique(t)]
    found = SimilarityQuality(metric="mae", draws=100).measure(rows, Rng(0))
    assert found["correlation"].value == pytest.approx(-stats.spearmanr(np.unique(t), raw)[0])
    assert found["correlation"].value > 0
    assert found["dynamic_range"].value == pytest.approx(0.3)
    assert not found["dynamic_range"].has_interval


def test_figure_has_a_curve_an_arm_and_the_deployment():
    figure = AUGOOD(draws=100).figure({"a": _rows(), "b": _rows()}, Rng(0))
    assert [(each.name, each.look) for each in figure.series] == [
        ("a", "line"), ("b", "line"), ("share of the deployment", "bars")
    ]  # fmt: skip
    first = figure.series[0]
    assert first.x == (0.3, 0.4, 0.5, 0.6)
    assert all(
        low <= y <= high for low, y, high in zip(first.low, first.y, first.high, strict=True)
    )
    plain = AUGOOD(draws=100, weighting="uniform").figure({"a": _rows()}, Rng(0))
    assert len(plain.series) == 1


def test_incomplete_rows_are_counted_and_empty_ones_refused():
    rows = _rows()
    holes = rows.score("predicted").copy()
    holes[:5] = np.nan
    part = replace(rows, scores=dict(rows.scores) | {"predicted": holes})
    found = AUGOOD(draws=100).measure(part, Rng(0))
    assert "5 of 960 rows" in found.note
    assert found.n == 955
    holes[:] = np.nan
    with pytest.raises(UsageError, match="no row has a threshold, target and predicted"):
        AUGOOD().statistic(replace(rows, scores=dict(rows.scores) | {"predicted": holes}))
    weights = rows.score("weight") * 0
    with pytest.raises(UsageError, match="positive somewhere"):
        AUGOOD().statistic(replace(rows, scores=dict(rows.scores) | {"weight": weights}))
    with pytest.raises(UsageError, match="One row gives no interval"):
        AUGOOD(draws=100).measure(
            Outcomes.of(threshold=[0.3], target=[1.0], predicted=[1.0]), Rng(0)
        )


@pytest.mark.filterwarnings("ignore")
def test_weights_and_area_are_hestias(monkeypatch):
    pytest.importorskip("rdkit")
    pytest.importorskip("datamol")
    pytest.importorskip("networkx")
    pytest.importorskip("hestia")
    import pandas as pd
    import polars as pl
    from hestia.dataset_generator import HestiaGenerator, SimArguments

    from equipoise.kit.arrays.molecules import ecfp
    from equipoise.kit.arrays.similarity import nearest
    from equipoise.kit.data import read_rows

    # It asks pyarrow for frames of pandas, which need not be there.
    plain = lambda self, **how: pd.DataFrame({n: self[n].to_numpy() for n in self.columns})  # noqa: E731
    monkeypatch.setattr(pl.DataFrame, "to_pandas", plain)
    trained = [row["smiles"] for row in read_rows("builtin:freesolv", limit=120)]
    met = [row["smiles"] for row in read_rows("builtin:freesolv")[150:250]]
    curve = {0.37: 0.4, 0.48: 0.5, 0.61: 0.7, 0.83: 0.9}
    # Its weights are of the rows of its data, each by the nearest of the target frame; so the
    # deployment, whose items the paper weighs, has to be the data.
    generator = HestiaGenerator(pd.DataFrame({"smiles": met}), verbose=False)
    generator.sim_args = SimArguments(
        data_type="small molecule", field_name="smiles", fingerprint="ecfp", bits=1024, threads=1
    )
    _, area, weights = generator.calculate_augood(
        dict(curve), pd.DataFrame({"text": trained}), "text", return_weights=True
    )
    ours = deployment_weights(
        nearest(ecfp(met, bits=1024), ecfp(trained, bits=1024)), sorted(curve)
    )
    assert np.allclose(ours, weights)
    assert au_good(curve, ours) == pytest.approx(area)


def test_pairs_of_models_are_compared_as_hestia_does():
    pytest.importorskip("networkx")
    hestia = pytest.importorskip("hestia.dataset_generator")
    rng = np.random.default_rng(5)
    table = {name: rng.random(8).tolist() for name in "abc"}
    curves = {name: dict(zip(range(8), values, strict=True)) for name, values in table.items()}
    assert np.allclose(compare_curves(curves), hestia.HestiaGenerator.compare_models(table))
