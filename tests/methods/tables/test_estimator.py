"""Estimators: seeded, never changed in place, refused with a sentence."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import SVC

from equipoise.core import Predicts, PredictsProba, Rng, Trains, Unit, UsageError, learnable
from equipoise.kit.arrays.learners import fit_estimator
from equipoise.methods.tables import Classification, Estimator, Regression, Train

DIABETES = Regression("builtin:diabetes")
IRIS = Classification("builtin:iris")


def accuracy(subject, task=IRIS):
    units = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    return np.mean([o.scores["correct"] for o in task.perform(subject, units, Rng(0))])


def test_trained_subject_is_what_scikit_learn_gives():
    subject = Estimator("LogisticRegression", {"C": 0.5, "max_iter": 500}, data=IRIS).load(Rng(0))
    train = learnable(IRIS, Rng(0))
    inputs, labels = np.array([u.content for u in train]), [u.target for u in train]
    model = LogisticRegression(C=0.5, max_iter=500).fit(inputs, labels)
    np.testing.assert_allclose(subject.predict_proba(inputs), model.predict_proba(inputs))
    np.testing.assert_array_equal(subject.predict(inputs), model.predict(inputs))
    np.testing.assert_array_equal(subject.classes_, model.classes_)
    assert accuracy(subject) > 0.9


def test_scale_uses_the_training_rows():
    wine = Classification("builtin:wine")
    subject = Estimator("LogisticRegression", scale=True, data=wine).load(Rng(0))
    train = np.array([u.content for u in learnable(wine, Rng(0))])
    np.testing.assert_allclose(subject.model[0].mean_, train.mean(axis=0))
    assert accuracy(subject, wine) > 0.9


def test_seed_comes_from_the_stream():
    made = [
        Estimator("RandomForestClassifier", {"n_estimators": 5}, data=IRIS).load(Rng(seed))
        for seed in (0, 0, 1)
    ]
    inputs = np.array([unit.content for unit in IRIS.units(Rng(0))])
    first, again, other = (each.predict_proba(inputs) for each in made)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    fixed = [
        Estimator("RandomForestClassifier", {"n_estimators": 5, "random_state": 3}, data=IRIS)
        .load(Rng(seed))
        .predict_proba(inputs)
        for seed in (0, 1)
    ]
    np.testing.assert_array_equal(*fixed)


def test_nested_random_states_are_seeded_and_the_global_one_left_alone():
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    bag = BaggingClassifier(DecisionTreeClassifier(max_features=1), n_estimators=3)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    made = [fit_estimator(bag, x, y, Rng(4)) for _ in range(2)]
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.testing.assert_array_equal(*(each.predict_proba(x) for each in made))
    assert made[0].estimator.random_state is not None
    assert bag.random_state is None
    assert not hasattr(bag, "estimators_")


def test_capabilities_are_those_of_the_estimator():
    assert Estimator("LogisticRegression").provides == {Trains}
    assert Estimator("LogisticRegression", data=IRIS).provides == {Predicts, PredictsProba, Trains}
    assert Estimator("LinearRegression", data=DIABETES).provides == {Predicts, Trains}
    assert Estimator.provides == {Predicts, PredictsProba, Trains}
    for part in (Estimator.tiny(), Estimator("LinearRegression", data=DIABETES), Estimator("SVC")):
        live = part.load(Rng(0))
        assert {
            p for p in (Predicts, PredictsProba, Trains) if isinstance(live, p)
        } == part.provides


def test_empty_input():
    classifier = Estimator("LogisticRegression", data=IRIS).load(Rng(0))
    empty = np.empty((0, 4))
    assert classifier.predict(empty).shape == (0,)
    assert classifier.predict_proba(empty).shape == (0, 3)
    regressor = Estimator("LinearRegression", data=DIABETES).load(Rng(0))
    assert regressor.predict(np.empty((0, 10))).shape == (0,)


def test_import_paths(tmp_path, monkeypatch):
    (tmp_path / "ownmodels.py").write_text(
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "from sklearn.svm import SVC\n"
        "def scaled(C=1.0):\n    return make_pipeline(StandardScaler(), SVC(C=C))\n"
        "def nothing():\n    return 3\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    part = Estimator("ownmodels:scaled", {"C": 2.0}, data=IRIS)
    assert part.load(Rng(0)).model[-1].C == 2.0
    before = part.content()
    assert len(before) == 64
    with (tmp_path / "ownmodels.py").open("a") as file:
        file.write("# edited\n")
    assert part.content() != before
    assert isinstance(Estimator("sklearn.svm.SVC").prototype(), SVC)
    for name, said in {
        "ownmodels:nothing": "must give fit and get_params",
        "ownmodels:number": "must be a class or a function, got 3",
        "ownmodels:scale": 'the module ownmodels has no "scale". Nearest: scaled',
        "nomodule:x": "the module nomodule cannot be imported",
        "bad path:x": 'An import path is written "package.module:name"',
    }.items():
        with pytest.raises(UsageError) as caught:
            Estimator(name)
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give either estimator, a name, or file"),
        ({"estimator": "SVC", "file": "m.joblib"}, "give either estimator, a name, or file"),
        ({"estimator": "LogisticRegresion"}, "Nearest: LogisticRegression"),
        ({"estimator": "StandardScaler"}, 'scikit-learn has no predictor "StandardScaler"'),
        (
            {"estimator": "SVC", "parameters": {"gama": 1}},
            'SVC has no parameter "gama". Nearest: gamma.',
        ),
        ({"file": "m.joblib"}, "which can run any code when it is opened; if you trust who made"),
        (
            {"file": "m.joblib", "scale": True, "trust_pickle": True},
            "a file is fitted already; parameters, scale and data go with estimator only.",
        ),
    ],
)
def test_impossible_parameters(given, said):
    with pytest.raises(UsageError) as caught:
        Estimator(**given)
    assert said in str(caught.value)


def test_rarer_estimators_are_found_by_name():
    assert Estimator("CalibratedClassifierCV").prototype() is not None
    assert Estimator("PLSRegression").prototype() is not None


def test_bad_values_and_bad_data_are_one_sentence():
    with pytest.raises(
        UsageError, match=r"LogisticRegression could not be trained \(The 'C' param"
    ):
        Estimator("LogisticRegression", {"C": -1.0}, data=IRIS).load(Rng(0))
    one = [Unit(str(n), content=[float(n)], target="a") for n in range(4)]
    bare = Estimator("LogisticRegression").load(Rng(0))
    with pytest.raises(UsageError, match=r"could not be trained .*at least 2 classes"):
        bare.fit(one, Rng(0))
    with pytest.raises(UsageError, match="There are no units to learn from"):
        bare.fit([], Rng(0))
    with pytest.raises(UsageError, match="content is a list of numbers"):
        bare.fit([Unit("a", content="text", target=1)], Rng(0))
    with pytest.raises(UsageError, match="one label or number as target"):
        bare.fit([Unit("a", content=[1.0], target={"label": 1})], Rng(0))


def test_trusted_pickle(tmp_path):
    import joblib

    x, y = np.array([[0.0], [1.0]]), np.array([0, 1])
    path = tmp_path / "m.joblib"
    joblib.dump(LogisticRegression().fit(x, y), path)
    part = Estimator(file=str(path), trust_pickle=True)
    assert part.load(Rng(0)).predict(x).tolist() == [0, 1]
    assert len(part.content()) == 64
    joblib.dump(LinearRegression().fit(x, y), path)
    live = part.load(Rng(0))
    assert not isinstance(live, PredictsProba)
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(RandomForestClassifier(3)))
    unfitted = Estimator(file=str(tmp_path / "plain.pkl"), trust_pickle=True).load(Rng(0))
    with pytest.raises(UsageError, match="has not been trained; use the treatment train"):
        unfitted.predict(x)
    path.write_bytes(b"garbage")
    with pytest.raises(UsageError, match="cannot be opened as a pickled estimator"):
        part.load(Rng(0))
    joblib.dump({"a": 1}, path)
    with pytest.raises(UsageError, match="holds dict, which cannot predict"):
        part.load(Rng(0))
    with pytest.raises(UsageError, match=r"no such file. Nearest: m.joblib"):
        Estimator(file=str(tmp_path / "m.jobli"), trust_pickle=True).content()


def test_rows_learned_from_are_failed_units():
    narrow = Classification("builtin:iris", train=0.3, calibration=0.0)
    wide = Classification("builtin:iris", train=0.9, calibration=0.0)
    subject = Estimator("LogisticRegression", {"max_iter": 500}, data=wide).load(Rng(0))
    units = [unit for unit in narrow.units(Rng(0)) if unit.split == "test"]
    learned = {unit.id for unit in learnable(wide, Rng(0))}
    outcomes = narrow.perform(subject, units, Rng(0))
    assert [o.unit for o in outcomes] == [u.id for u in units]
    for outcome in outcomes:
        assert (outcome.error_kind == "leak") == (outcome.unit in learned)
    assert {o.status for o in outcomes} == {"ok", "error"}
    clean = [unit for unit in wide.units(Rng(0)) if unit.split == "test"]
    assert all(o.status == "ok" for o in wide.perform(subject, clean, Rng(0)))


# --- the treatment train ---------------------------------------------------------------------


def test_train_leaves_the_control_as_it_was():
    bare = Estimator("DecisionTreeClassifier").load(Rng(0))
    small = Train(IRIS, parameters={"max_depth": 1}).apply(bare, Rng(0))
    plain = Train(IRIS).apply(bare, Rng(0))
    assert bare.prototype.max_depth is None
    assert not hasattr(bare.prototype, "tree_")
    assert small.model.get_depth() == 1
    assert accuracy(plain) > accuracy(small) > 0.5
    again = Train(IRIS).apply(small, Rng(0))  # from the start, with max_depth kept at 1
    assert again is not small
    assert again.model.get_depth() == 1


def test_train_draws_rows_by_its_stream():
    bare = Estimator("KNeighborsClassifier", {"n_neighbors": 1}).load(Rng(0))
    drawn = [Train(IRIS, rows=20).apply(bare, Rng(seed)) for seed in (0, 0, 1)]
    assert [len(each.learned_from) for each in drawn] == [20, 20, 20]
    assert drawn[0].learned_from == drawn[1].learned_from != drawn[2].learned_from
    inputs = [unit.content for unit in learnable(IRIS, Rng(0))]
    assert set(map(tuple, drawn[0].model._fit_X.tolist())) <= set(map(tuple, inputs))


def test_train_never_reads_test_units():
    poisoned = []

    class Poisoned:
        def units(self, rng):
            for unit in IRIS.units(rng):
                if unit.split == "test":
                    poisoned.append(unit.id)
                    unit = Unit(unit.id, content=[1e9] * 4, target="poison", split="test")
                yield unit

    bare = Estimator("LogisticRegression", {"max_iter": 500}).load(Rng(0))
    part = Train(IRIS)
    object.__setattr__(part, "data", Poisoned())
    inputs = np.array([unit.content for unit in IRIS.units(Rng(0))])
    np.testing.assert_array_equal(
        part.apply(bare, Rng(0)).predict_proba(inputs),
        Train(IRIS).apply(bare, Rng(0)).predict_proba(inputs),
    )
    assert poisoned


def test_train_on_calibration_and_its_faults():
    bare = Estimator("LogisticRegression", {"max_iter": 500}).load(Rng(0))
    made = Train(IRIS, split="calibration").apply(bare, Rng(0))
    assert len(made.learned_from) == len(learnable(IRIS, Rng(0), "calibration"))
    with pytest.raises(UsageError, match=r"rows must be at most the \d+ train units there are"):
        Train(IRIS, rows=1000).apply(bare, Rng(0))
    with pytest.raises(UsageError, match='has no parameter "c"'):
        Train(IRIS, parameters={"c": 1}).apply(bare, Rng(0))
    with pytest.raises(UsageError, match="split must be one of 'train', 'calibration'"):
        Train(IRIS, split="test")

    class Plain:
        def fit(self, data, rng):
            return self

    with pytest.raises(UsageError, match="parameters cannot be changed"):
        Train(IRIS, parameters={"a": 1}).apply(Plain(), Rng(0))
