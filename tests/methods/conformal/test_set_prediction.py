import numpy as np
import pytest

from equipoise.core import Rng, UnitError, UsageError
from equipoise.methods.conformal import SetPrediction, set_scores


class Fixed:
    classes_ = np.array(["versicolor", "setosa", "virginica", "moss"])

    def __init__(self, row):
        self.row = row

    def predict_set(self, inputs, alpha):
        return np.tile(self.row, (len(inputs), 1))


def rows_of(task):
    return [unit for unit in task.units(Rng(0)) if unit.split == "test"]


def test_scores_by_hand():
    sets = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1]], bool)
    found = set_scores(["a", "b", "a", "a", "z"], sets, ["a", "b", "c"])
    assert found["covered"].tolist() == [1, 1, 0, 0, 0]
    assert found["set_size"].tolist() == [1, 2, 0, 1, 3]
    assert found["singleton_correct"].tolist() == [1, 0, 0, 0, 0]
    assert found["empty"].tolist() == [0, 0, 1, 0, 0]
    assert len(set_scores([], np.empty((0, 3)), "abc")["covered"]) == 0


def test_columns_follow_the_subjects_order():
    task = SetPrediction("builtin:iris", alphas=(0.2,))
    units = rows_of(task)
    outcomes = task.perform(Fixed([False, True, False, True]), units, Rng(0))
    for unit, outcome in zip(units, outcomes, strict=True):
        right = float(unit.target == "setosa")
        assert outcome.scores["covered"] == outcome.scores["covered_at_0.2"] == right
        assert outcome.scores["set_size"] == 2
        assert outcome.output == {"set": ["setosa", "moss"]}


def test_garbage_is_a_sentence():
    task = SetPrediction("builtin:iris")
    with pytest.raises(UnitError, match=r"shape \(1, 2\) for 1 rows and 4 classes"):
        task.perform(Fixed([True, False]), rows_of(task)[:1], Rng(0))
    with pytest.raises(UnitError, match="not true or false"):
        task.perform(Fixed([0.2, 0.2, 0.3, 0.3]), rows_of(task)[:1], Rng(0))
    with pytest.raises(UsageError, match="must be of shape"):
        set_scores(["a"], [[True]], ["a", "b"])


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"alphas": (0.5, 0.0)}])
def test_rates_outside_are_refused(settings):
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        SetPrediction("builtin:iris", **settings)


@pytest.mark.parametrize(
    ("rows", "said"), [("1,a\n2,a\n", "one class only"), ("1,0.5\n2,1\n", "not a whole number")]
)
def test_targets_must_be_classes(tmp_path, rows, said):
    path = tmp_path / "rows.csv"
    path.write_text("a,target\n" + rows)
    with pytest.raises(UsageError, match=said):
        rows_of(SetPrediction(str(path), train=0.0, calibration=0.0))
