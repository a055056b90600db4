"""Classification: scores against scikit-learn's, splits that hold, faults that are counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from equipoise.core import PredictsProba, Rng, UnitError, UsageError, learnable
from equipoise.methods.tables import Classification, classification_scores

RNG = Rng(0)


class Constant:
    """Gives the same probabilities to every row."""

    def __init__(self, classes, row):
        self.classes_ = np.array(classes)
        self.row = np.array(row, float)

    def predict_proba(self, inputs):
        return np.tile(self.row, (len(inputs), 1))

    def predict(self, inputs):
        return self.classes_[self.predict_proba(inputs).argmax(axis=1)]


class Labels:
    """Gives labels alone."""

    def __init__(self, answer):
        self.answer = answer

    def predict(self, inputs):
        return self.answer(inputs)


def held_out(task):
    return [unit for unit in task.units(RNG) if unit.split == "test"]


def csv(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


@pytest.fixture
def two(tmp_path):
    lines = "".join(f"{n},{n % 7},{'yes' if n % 3 else 'no'},c{n % 5}\n" for n in range(60))
    return csv(tmp_path, "a,b,target,group\n" + lines)


# --- scores ----------------------------------------------------------------------------------


def test_scores_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
    found = classification_scores(["a", "b"], ["a", "c"], p, ["a", "b", "c"])
    np.testing.assert_allclose(found["correct"], [1, 0])
    np.testing.assert_allclose(found["true_probability"], [0.7, 0.25])
    np.testing.assert_allclose(found["confidence"], [0.7, 0.5])
    np.testing.assert_allclose(found["brier"], [0.09 + 0.04 + 0.01, 0.0625 + 0.5625 + 0.25])
    np.testing.assert_allclose(found["log_loss"], [-math.log(0.7), -math.log(0.25)])
    np.testing.assert_allclose(found["label"], [0, 1])
    np.testing.assert_allclose(found["predicted"], [0, 2])
    assert "probability" not in found


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 5), st.integers(5, 40), st.integers(0, 2**31))
def test_scores_are_scikit_learns(classes, n, seed):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=n)])
    p = rng.dirichlet(np.full(classes, 0.5), size=len(labels))
    predicted = p.argmax(axis=1)
    found = classification_scores(labels.tolist(), predicted.tolist(), p)
    assert found["correct"].mean() == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert found["log_loss"].mean() == pytest.approx(metrics.log_loss(labels, p))
    brier = metrics.brier_score_loss(labels, p, scale_by_half=False)
    assert found["brier"].mean() == pytest.approx(brier)
    if classes == 2:
        np.testing.assert_array_equal(found["probability"], p[:, 1])
        auroc = metrics.roc_auc_score(found["label"], found["probability"])
        assert auroc == pytest.approx(metrics.roc_auc_score(labels, p[:, 1]))


def test_perform_scores_what_a_real_classifier_gives():
    from sklearn.linear_model import LogisticRegression

    task = Classification("builtin:iris")
    train, test = learnable(task, RNG), held_out(task)
    model = LogisticRegression(max_iter=1000).fit(
        [unit.content for unit in train], [unit.target for unit in train]
    )
    outcomes = task.perform(model, test, RNG)
    assert [outcome.unit for outcome in outcomes] == [unit.id for unit in test]
    inputs, truth = [unit.content for unit in test], [unit.target for unit in test]
    mean = {name: np.mean([o.scores[name] for o in outcomes]) for name in ("correct", "log_loss")}
    assert mean["correct"] == pytest.approx(model.score(inputs, truth))
    assert mean["log_loss"] == pytest.approx(
        metrics.log_loss(truth, model.predict_proba(inputs), labels=model.classes_)
    )
    assert outcomes[0].output["prediction"] in ("setosa", "versicolor", "virginica")
    assert sum(outcomes[0].output["probabilities"]) == pytest.approx(1)


def test_labels_alone_give_label_scores_alone():
    task = Classification("builtin:iris")
    units = held_out(task)
    (outcome, *_) = task.perform(Labels(lambda x: np.full(len(x), "setosa")), units, RNG)
    assert outcome.scores == {"correct": 1.0, "label": 0.0, "predicted": 0.0}
    assert outcome.output == {"prediction": "setosa"}


def test_one_call_a_shard():
    calls = []

    def answer(inputs):
        calls.append(inputs.shape)
        return np.zeros(len(inputs), int)

    task = Classification("builtin:digits")
    units = held_out(task)
    task.perform(Labels(answer), units, RNG)
    assert calls == [(len(units), 64)]


def test_unseen_class_gets_no_probability():
    task = Classification("builtin:iris")
    units = held_out(task)
    subject = Constant(["setosa", "versicolor"], [0.5, 0.5])
    for outcome in task.perform(subject, units, RNG):
        if outcome.scores["label"] == 2:
            assert outcome.scores["true_probability"] == 0
            assert outcome.scores["log_loss"] == pytest.approx(52 * math.log(2))
            assert outcome.scores["brier"] == pytest.approx(1.5)
        else:
            assert outcome.scores["true_probability"] == 0.5


def test_class_outside_the_data_is_wrong_and_not_free():
    task = Classification("builtin:iris")
    (outcome, *_) = task.perform(
        Constant(["setosa", "tulip"], [0.4, 0.6]), held_out(task), RNG
    )  # right is setosa
    assert outcome.scores["correct"] == 0
    assert "predicted" not in outcome.scores
    assert outcome.scores["brier"] == pytest.approx(0.36 + 0.36)
    assert outcome.scores["confidence"] == pytest.approx(0.6)


@pytest.mark.parametrize("row", [[np.nan, 1, 0], [1.5, -0.5, 0], [0.2, 0.2, 0.2], [np.inf, 0, 0]])
def test_probabilities_that_are_none_fail_the_unit(row):
    task = Classification("builtin:iris")
    subject = Constant(["setosa", "versicolor", "virginica"], row)
    for outcome in task.perform(subject, held_out(task), RNG):
        assert (outcome.status, outcome.error_kind, outcome.scores) == ("error", "garbage", {})
        assert "do not sum to 1" in outcome.error


def test_wrong_shapes_are_refused():
    task = Classification("builtin:iris")
    units = held_out(task)[:5]
    with pytest.raises(UnitError, match=r"predictions of shape \(1,\) for 5 rows"):
        task.perform(Labels(lambda x: np.zeros(1)), units, RNG)
    subject = Constant(["setosa", "versicolor"], [0.2, 0.3, 0.5])
    subject.predict = lambda x: np.full(len(x), "setosa")
    with pytest.raises(UnitError, match=r"shape \(5, 3\) for 5 rows and 2 classes"):
        task.perform(subject, units, RNG)


def test_column_of_labels_is_taken():
    task = Classification("builtin:digits")
    subject = Labels(lambda x: np.zeros((len(x), 1), int))
    assert all(o.status == "ok" for o in task.perform(subject, held_out(task), RNG))


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
def test_oracle_is_right_everywhere(name):
    task = Classification(f"builtin:{name}")
    outcomes = task.perform(task.oracle(), held_out(task), RNG)
    assert isinstance(task.oracle(), PredictsProba)
    assert all(o.scores["correct"] == 1 and o.scores["brier"] == 0 for o in outcomes)
    assert all(abs(o.scores["log_loss"]) < 1e-12 for o in outcomes)


def test_scores_lie_in_their_bounds():
    task = Classification("builtin:breast_cancer")
    specs = {spec.name: spec for spec in task.scores}
    for row in ([1, 0], [0, 1], [0.5, 0.5]):
        for outcome in task.perform(Constant(["benign", "malignant"], row), held_out(task), RNG):
            assert outcome.scores.keys() <= specs.keys()
            for name, value in outcome.scores.items():
                spec = specs[name]
                assert spec.low is None or spec.low <= value
                assert spec.high is None or value <= spec.high


# --- units and splits ------------------------------------------------------------------------


def test_splits_hold_whatever_the_stream_and_are_disjoint():
    task = Classification("builtin:wine")
    first, second = list(task.units(Rng(0))), list(task.units(Rng(99).child("x")))
    assert first == second
    assert len({unit.id for unit in first}) == 178
    sizes = {name: sum(u.split == name for u in first) for name in ("train", "calibration", "test")}
    assert sum(sizes.values()) == 178
    for name, share in {"train": 0.5, "calibration": 0.2, "test": 0.3}.items():
        assert abs(sizes[name] / 178 - share) < 4 * math.sqrt(share * (1 - share) / 178)


def test_equal_rows_share_a_split(tmp_path):
    text = "a,target\n" + "".join(f"{n // 2},{n % 2}\n" for n in range(100))
    units = list(Classification(csv(tmp_path, text)).units(RNG))
    assert all(a.split == b.split for a, b in zip(units[::2], units[1::2], strict=True))
    assert len({unit.split for unit in units}) == 3


def test_appended_rows_move_no_others(tmp_path):
    lines = [f"{n},{n % 2}\n" for n in range(100)]
    few = list(
        Classification(csv(tmp_path, "a,target\n" + "".join(lines[:60]), "f.csv")).units(RNG)
    )
    many = list(Classification(csv(tmp_path, "a,target\n" + "".join(lines), "m.csv")).units(RNG))
    assert many[:60] == few


def test_clusters_share_a_split_and_are_told(two):
    units = list(Classification(two, cluster="group", stratum="target").units(RNG))
    splits = {}
    for unit in units:
        splits.setdefault(unit.cluster, set()).add(unit.split)
    assert set(splits) == {"c0", "c1", "c2", "c3", "c4"}
    assert all(len(each) == 1 for each in splits.values())
    assert units[0].stratum == "no"
    assert units[0].content == [0.0, 0.0]  # neither cluster nor target


def test_stratified_gives_every_class_its_share():
    task = Classification("builtin:digits", stratified=True)
    units = list(task.units(RNG))
    for digit in range(10):
        mine = [unit.split for unit in units if unit.target == digit]
        assert abs(mine.count("train") - 0.5 * len(mine)) <= 1
        assert abs(mine.count("calibration") - 0.2 * len(mine)) <= 1


def test_split_seed_moves_rows():
    a = [u.split for u in Classification("builtin:wine").units(RNG)]
    b = [u.split for u in Classification("builtin:wine", split_seed=1).units(RNG)]
    assert a != b


def test_split_column(tmp_path):
    text = "a,target,part\n1,x,train\n2,y,validation\n3,x,test\n4,y,test\n"
    task = Classification(csv(tmp_path, text), split="part")
    assert [unit.split for unit in task.units(RNG)] == ["train", "calibration", "test", "test"]
    bad = Classification(csv(tmp_path, text.replace("4,y,test", "4,y,Test"), "b.csv"), split="part")
    with pytest.raises(UsageError, match=r"line 5: \"part\" must be train, .*, got 'Test'\."):
        list(bad.units(RNG))


def test_edited_file_is_read_again(tmp_path):
    def rows(n):
        return "a,target\n" + "".join(f"{each},{each % 2}\n" for each in range(n))

    task = Classification(csv(tmp_path, rows(20)))
    before = task.content()
    assert len(list(task.units(RNG))) == 20
    csv(tmp_path, rows(30))
    assert len(list(task.units(RNG))) == 30
    assert task.content() != before


def test_identity_follows_content_not_place(two, tmp_path):
    from pathlib import Path

    from equipoise.catalog import identity

    copy = tmp_path / "elsewhere.csv"
    copy.write_bytes(Path(two).read_bytes())
    assert identity(Classification(two)) == identity(Classification(str(copy)))
    assert identity(Classification(two)) != identity(Classification(two, features=("a",)))


# --- bad data --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,target\n1,x\n2,x\n", "\"target\" has one class only ('x'); at least two are needed."),
        ("a,target\n1,0.5\n2,1.5\n", 'line 2: "target" is not a whole number; classes are text'),
        ("a,target\n1,x\n,y\n", 'line 3: "a" is empty; features are finite numbers.'),
        ("a,label\n1,x\n2,y\n", 'there is no column "target". Nearest: label.'),
        ("target\nx\ny\n", "there are no columns to predict from."),
    ],
)
def test_bad_tables(tmp_path, text, said):
    with pytest.raises(UsageError) as caught:
        list(Classification(csv(tmp_path, text)).units(RNG))
    assert said in str(caught.value) or said.split(" Nearest")[0] in str(caught.value)


def test_constant_features_are_fine(tmp_path):
    text = "a,b,target\n" + "".join(f"1,{n},{n % 2}\n" for n in range(40))
    assert len(list(Classification(csv(tmp_path, text)).units(RNG))) == 40


def test_nothing_left_to_test(tmp_path):
    with pytest.raises(UsageError, match="none of its 2 rows is left to test"):
        list(
            Classification(csv(tmp_path, "a,target\n1,x\n2,y\n"), train=0.99, calibration=0).units(
                RNG
            )
        )


def test_impossible_parameters():
    with pytest.raises(UsageError, match="train and calibration must be below 1 together"):
        Classification("builtin:iris", train=0.8, calibration=0.2)
    with pytest.raises(UsageError, match="stratified and cluster cannot go together; drop one"):
        Classification("builtin:iris", stratified=True, cluster="a")
    with pytest.raises(UsageError, match=r'No built-in data "iriss"\. Nearest: iris'):
        Classification("builtin:iriss").content()


def test_no_units_no_outcomes():
    task = Classification("builtin:iris")
    assert task.perform(task.oracle(), [], RNG) == []
