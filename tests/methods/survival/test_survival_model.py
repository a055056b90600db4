import numpy as np
import pytest

from equipoise.core import (
    Predicts,
    PredictsQuantiles,
    PredictsSurvival,
    Rng,
    Trains,
    Unit,
    UsageError,
)
from equipoise.kit.about import about
from equipoise.kit.arrays import Examples
from equipoise.kit.worlds.right_censored import RightCensored
from equipoise.methods.survival import Survival, SurvivalLearner, SurvivalModel
from equipoise.methods.survival._fitted import LIFELINES, SKSURV
from equipoise.methods.tables import Train

LEVELS = [0.05, 0.3, 0.6, 0.9]


def some(n=300, setting=5):
    found = RightCensored(setting).draw(n, Rng(1))
    return Examples(found.inputs, found.targets)


def frame(data):
    pandas = pytest.importorskip("pandas")
    columns = [f"x{place}" for place in range(data.inputs.shape[1])]
    made = pandas.DataFrame(data.inputs, columns=columns)
    return made, made.assign(time=data.targets[:, 0], event=data.targets[:, 1])


@pytest.mark.parametrize("name", LIFELINES)
def test_answers_are_those_of_lifelines(name):
    lifelines = pytest.importorskip("lifelines")
    data = some()
    rows, whole = frame(data)
    theirs = getattr(lifelines, name)().fit(whole, "time", "event")
    live = SurvivalLearner(name).fit(data, Rng(0))
    quantiles = live.predict_quantiles(data.inputs, LEVELS)
    for column, level in enumerate(LEVELS):
        expected = theirs.predict_percentile(rows, p=1 - level).to_numpy(float).reshape(-1)
        assert quantiles[:, column] == pytest.approx(expected, rel=1e-6)
    at = np.unique(data.targets[:, 0])  # between its times Cox's curve is a matter of taste
    expected = theirs.predict_survival_function(rows, times=at).to_numpy().T
    assert live.predict_survival(data.inputs, at) == pytest.approx(expected, abs=1e-6)
    median = theirs.predict_median(rows).to_numpy(float).reshape(-1)
    assert live.predict(data.inputs) == pytest.approx(median, rel=1e-6)


@pytest.mark.parametrize("parameters", [
    {"baseline_estimation_method": "spline", "n_baseline_knots": 3}, {"penalizer": 0.1},
])  # fmt: skip
def test_cox_with_parameters_is_that_of_lifelines(parameters):
    lifelines = pytest.importorskip("lifelines")
    data = some()
    rows, whole = frame(data)
    theirs = lifelines.CoxPHFitter(**parameters).fit(whole, "time", "event")
    live = SurvivalLearner("CoxPHFitter", parameters).fit(data, Rng(0))
    at = np.unique(data.targets[:, 0])
    expected = theirs.predict_survival_function(rows, times=at).to_numpy().T
    assert live.predict_survival(data.inputs, at) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["RandomSurvivalForest", "CoxPHSurvivalAnalysis"])
def test_answers_are_those_of_scikit_survival(name):
    pytest.importorskip("sksurv")
    from importlib import import_module

    data = some(200)
    seed = {"random_state": 3} if name == "RandomSurvivalForest" else {}
    kind = [("e", bool), ("t", float)]
    seen = np.array([(e, t) for t, e in data.targets], dtype=kind)
    theirs = getattr(import_module(f"sksurv.{SKSURV[name]}"), name)(**seed).fit(data.inputs, seen)
    live = SurvivalLearner(name, seed).fit(data, Rng(0))
    functions = theirs.predict_survival_function(data.inputs)
    at = np.quantile(data.targets[:, 0], [0.1, 0.5, 0.8])
    expected = np.array([function(at) for function in functions])
    assert live.predict_survival(data.inputs, at) == pytest.approx(expected)


@pytest.mark.parametrize("name", [*LIFELINES, *SKSURV])
def test_quantiles_and_curves_agree(name):
    pytest.importorskip("lifelines" if name in LIFELINES else "sksurv")
    parameters = {"n_estimators": 20} if "Forest" in name or "Extra" in name else {}
    data = some(200)
    live = SurvivalLearner(name, parameters).fit(data, Rng(0))
    again = SurvivalLearner(name, parameters).fit(data, Rng(0))
    levels = np.linspace(0.02, 0.95, 30)
    quantiles = live.predict_quantiles(data.inputs[:20], levels)
    assert (quantiles == again.predict_quantiles(data.inputs[:20], levels)).all()
    with np.errstate(invalid="ignore"):
        rises = np.diff(quantiles, axis=1)
    assert (rises[np.isfinite(rises)] >= 0).all()
    for row in range(20):
        for column, level in enumerate(levels):
            end = quantiles[row, column]
            if np.isfinite(end):
                at = np.array([end * (1 - 1e-6), end * (1 + 1e-6)])
                before, after = live.predict_survival(data.inputs[row : row + 1], at)[0]
                assert after <= 1 - level + 1e-5
                assert before >= 1 - level - 1e-5


def test_a_learner_has_all_it_will_have_and_refuses_until_trained():
    bare = SurvivalModel("CoxPHFitter").load(Rng(0))
    for each in (Predicts, PredictsQuantiles, PredictsSurvival, Trains):
        assert isinstance(bare, each)
    for ask in (
        lambda: bare.predict(np.zeros((1, 2))),
        lambda: bare.predict_quantiles(np.zeros((1, 2)), [0.5]),
        lambda: bare.predict_survival(np.zeros((1, 2)), np.array([1.0])),
    ):
        with pytest.raises(UsageError, match="has not been trained; use the treatment train"):
            ask()


def test_training_on_a_task_reads_train_units_alone():
    pytest.importorskip("lifelines")
    task = Survival("builtin:rossi")
    bare = SurvivalModel("WeibullAFTFitter").load(Rng(0))
    live = Train(task).apply(bare, Rng(0))
    split = {unit.id: unit for unit in task.units(Rng(0))}
    outcomes = task.perform(live, list(split.values()), Rng(0))
    leaks = {outcome.unit for outcome in outcomes if outcome.error_kind == "leak"}
    assert leaks == {name for name, unit in split.items() if unit.split == "train"}
    penalised = Train(task, parameters={"penalizer": 1.0}).apply(bare, Rng(0))
    inputs = np.array([next(iter(split.values())).content])
    assert not np.allclose(penalised.predict(inputs), live.predict(inputs))


def test_what_lifelines_warns_of_is_said():
    pytest.importorskip("lifelines")
    generator = np.random.default_rng(0)
    x = np.repeat([0.0, 1.0], 40)[:, None]  # all early events have 1: the coefficient runs off
    targets = np.stack(
        [np.where(x[:, 0] == 1, generator.uniform(0.1, 1, 80), 9.0), x[:, 0]], axis=1
    )
    live = SurvivalLearner("CoxPHFitter").fit(Examples(x, targets), Rng(0))
    assert "CoxPHFitter warned when it was trained: " in about(live)["notes"][0]


def rows_with(column):
    data = some(60)
    inputs = data.inputs.copy()
    inputs[:, 2] = column(inputs)
    return Examples(inputs, data.targets)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (rows_with(lambda x: 1.0), r"feature 2 \(from 0\) is constant"),
        (rows_with(lambda x: x[:, 0] + 2 * x[:, 1]), "collinear in the 60 training rows"),
        (Examples(np.ones((3, 1)), np.array([[1, 0]] * 3)), "every one of 3 .* is cut short"),
        (Examples(np.ones((3, 1)), np.array([[-1, 1]] * 3)), "not negative, got -1 in row 0"),
        (Examples(np.array([[np.nan]] * 3), np.array([[1, 1]] * 3)), "feature 0 of row 0"),
        (Examples(np.ones((3, 1)), np.arange(3.0)), "pairs of time and event"),
        (Examples(np.ones((3, 1)), np.ones((3, 2)), np.full(3, "test")), "no train rows"),
        (Examples(np.arange(3.0)[:, None], np.array([[0, 1], [1, 1], [2, 0]])), "row 0 has time 0"),
    ],
)
def test_bad_data_are_refused_in_a_sentence(data, sentence):
    pytest.importorskip("lifelines")
    with pytest.raises(UsageError, match=sentence):
        SurvivalLearner("LogNormalAFTFitter").fit(data, Rng(0))


def test_a_fit_that_does_not_converge_is_refused():
    pytest.importorskip("lifelines")
    task = Survival("builtin:flchain", stratum="sex")
    pytest.importorskip("sksurv")
    with pytest.raises(UsageError, match=r"did not converge; give the parameter penalizer"):
        SurvivalModel("CoxPHFitter", data=task).load(Rng(0))
    SurvivalModel("CoxPHFitter", {"penalizer": 0.01}, data=task).load(Rng(0))


def test_scaling_changes_nothing_that_is_free_of_scale():
    pytest.importorskip("lifelines")
    data = some(200)
    one, two = (
        SurvivalLearner("LogNormalAFTFitter", scale=each).fit(data, Rng(0))
        for each in (False, True)
    )
    assert two.predict(data.inputs) == pytest.approx(one.predict(data.inputs), rel=1e-3)
    assert two.with_parameters({"penalizer": 0.1}).scale


def test_scaling_saves_newton_from_large_features():
    pytest.importorskip("sksurv")
    data = some(200)
    far = Examples(data.inputs * 100 + 2000, data.targets)
    live = SurvivalLearner("CoxPHSurvivalAnalysis", scale=True).fit(far, Rng(0))
    near = SurvivalLearner("CoxPHSurvivalAnalysis").fit(data, Rng(0))
    at = np.array([1.0, 4.0])
    assert live.predict_survival(far.inputs, at) == pytest.approx(
        near.predict_survival(data.inputs, at), abs=1e-3
    )


def test_a_penalty_allows_collinear_features():
    pytest.importorskip("lifelines")
    data = rows_with(lambda x: x[:, 0] + 2 * x[:, 1])
    live = SurvivalLearner("CoxPHFitter", {"penalizer": 0.1}).fit(data, Rng(0))
    assert np.isfinite(live.predict_survival(data.inputs, np.array([1.0]))).all()


def test_names_and_parameters_are_checked():
    with pytest.raises(UsageError, match=r'no survival model "CoxFitter".*CoxPHFitter'):
        SurvivalModel("CoxFitter")
    pytest.importorskip("lifelines")
    with pytest.raises(UsageError, match="CoxPHFitter cannot be made"):
        SurvivalLearner("CoxPHFitter", {"trees": 3}).fit(some(60), Rng(0))
    pytest.importorskip("sksurv")
    with pytest.raises(UsageError, match="SurvivalTree cannot be made"):
        SurvivalLearner("SurvivalTree", {"trees": 3}).fit(some(60), Rng(0))


def test_a_class_is_named_by_import_path():
    pytest.importorskip("sksurv")
    part = SurvivalModel("sksurv.tree:SurvivalTree", {"max_depth": 2})
    live = part.load(Rng(0)).fit(some(100), Rng(0))
    assert live.predict_survival(np.zeros((2, 10)), np.array([1.0])).shape == (2, 1)
    with pytest.raises(UsageError, match="learned from 10 features, got 3"):
        live.predict(np.zeros((2, 3)))


def test_missing_packages_are_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lifelines", None)
    with pytest.raises(UsageError, match=r"pip install 'equipoise\[survival\]'"):
        SurvivalLearner("CoxPHFitter").fit(some(60), Rng(0))
    monkeypatch.setitem(sys.modules, "sksurv.tree", None)
    with pytest.raises(UsageError, match=r"pip install 'equipoise\[scikit-survival\]'"):
        SurvivalLearner("SurvivalTree").fit(some(60), Rng(0))


def test_units_teach_as_arrays_do():
    pytest.importorskip("lifelines")
    data = some(80)
    units = [
        Unit(str(row), x.tolist(), t.tolist(), split="train")
        for row, (x, t) in enumerate(zip(data.inputs, data.targets, strict=True))
    ]
    one, two = (SurvivalLearner("WeibullAFTFitter").fit(each, Rng(0)) for each in (data, units))
    assert one.predict(data.inputs) == pytest.approx(two.predict(data.inputs))
    assert len(two.learned_from) == 80
