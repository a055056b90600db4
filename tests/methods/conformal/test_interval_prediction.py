import numpy as np
import pytest

from equipoise.core import Rng, UnitError, UsageError
from equipoise.methods.conformal import IntervalPrediction, interval_scores


class Fixed:
    """Gives every row the same interval, wider by 1 - alpha."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def predict_interval(self, inputs, alpha):
        return np.tile([self.low, self.high + (1 - alpha)], (len(inputs), 1))


def rows_of(task):
    return [unit for unit in task.units(Rng(0)) if unit.split == "test"]


def test_scores_by_hand():
    found = interval_scores([5, 5, 5, 5], [[4, 6], [6, 8], [1, 4.5], [5, 5]], alpha=0.2)
    assert found["covered"].tolist() == [1, 0, 0, 1]
    assert found["width"].tolist() == [2, 2, 3.5, 0]
    assert found["interval_score"].tolist() == [2, 12, 8.5, 0]


def test_true_quantiles_make_the_interval_score_smallest():
    y = np.random.default_rng(0).normal(size=200_000)

    def mean(low, high):
        return interval_scores(y, np.tile([low, high], (len(y), 1)), 0.1)["interval_score"].mean()

    best = mean(-1.645, 1.645)
    assert best < min(mean(-1.4, 1.4), mean(-1.9, 1.9), mean(-1.4, 1.9))
    assert best == pytest.approx(2 * 0.103136 / 0.05, rel=0.01)  # 2 phi(z) / (alpha / 2)


def test_infinite_ends_cover_and_have_no_width():
    found = interval_scores([5, 5, 5], [[-np.inf, np.inf], [4, np.inf], [-np.inf, 4]], alpha=0.2)
    assert found["covered"].tolist() == [1, 1, 0]
    assert found["unbounded"].tolist() == [1, 1, 1]
    assert np.isnan(found["width"]).all()
    assert np.isnan(found["interval_score"]).all()
    task = IntervalPrediction("builtin:diabetes")
    for outcome in task.perform(Fixed(-np.inf, np.inf), rows_of(task)[:3], Rng(0)):
        assert outcome.scores == {"covered": 1.0, "unbounded": 1.0}
        assert outcome.output == {"interval": [None, None]}


def test_levels_are_asked_apart():
    task = IntervalPrediction("builtin:diabetes", alpha=0.1, alphas=(0.5, 0.05))
    names = [spec.name for spec in task.scores]
    assert names[-2:] == ["covered_at_0.5", "covered_at_0.05"]
    assert "covered_at_0.5" not in [s.name for s in IntervalPrediction("builtin:diabetes").scores]
    (unit,) = rows_of(task)[:1]
    (outcome,) = task.perform(Fixed(unit.target - 1, unit.target - 0.7), [unit], Rng(0))
    assert (outcome.scores["covered_at_0.5"], outcome.scores["covered_at_0.05"]) == (0, 1)
    assert set(outcome.scores) == set(names)


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1), (1, np.nan), (5, 1)])
def test_garbage_fails_its_unit(low, high):
    task = IntervalPrediction("builtin:diabetes")
    (outcome,) = task.perform(Fixed(low, high), rows_of(task)[:1], Rng(0))
    assert outcome.status == "error"
    assert outcome.error_kind == "garbage"
    assert "not numbers in rising order" in outcome.error


def test_wrong_shapes_fail_in_a_sentence():
    class Points:
        def predict_interval(self, inputs, alpha):
            return np.zeros(len(inputs))

    class Words:
        def predict_interval(self, inputs, alpha):
            return [["low", "high"]] * len(inputs)

    task = IntervalPrediction("builtin:diabetes")
    with pytest.raises(UnitError, match=r"shape \(2,\) for 2 rows"):
        task.perform(Points(), rows_of(task)[:2], Rng(0))
    with pytest.raises(UnitError, match="not numbers"):
        task.perform(Words(), rows_of(task)[:2], Rng(0))
    with pytest.raises(UsageError, match="must be of shape"):
        interval_scores([1.0], [1.0], 0.1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1"),
        ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1"),
        ({"alphas": (0.1, 1.5)}, "alphas must lie strictly between 0 and 1"),
        ({"alphas": (0.1, 0.1)}, "alphas must differ"),
        ({"train": 0.6, "calibration": 0.4}, "below 1 together"),
    ],
)
def test_bad_parameters_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        IntervalPrediction("builtin:diabetes", **settings)


def test_targets_must_be_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,target\n1,2\n3,many\n")
    with pytest.raises(UsageError, match="a value to predict must be a number"):
        rows_of(IntervalPrediction(str(path), train=0.0, calibration=0.0))
