"""Regression: scores against scikit-learn's, faults that are counted."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from equipoise.core import Rng, UnitError, UsageError
from equipoise.methods.tables import Regression, regression_scores

RNG = Rng(0)


class Answers:
    def __init__(self, answer):
        self.predict = answer


def held_out(task):
    return [unit for unit in task.units(RNG) if unit.split == "test"]


def test_scores_are_scikit_learns():
    rng = np.random.default_rng(1)
    y, found = rng.normal(size=200), rng.normal(size=200)
    scores = regression_scores(y, found)
    assert scores["absolute_error"].mean() == pytest.approx(metrics.mean_absolute_error(y, found))
    assert scores["squared_error"].mean() == pytest.approx(metrics.mean_squared_error(y, found))


def test_perform_and_oracle():
    task = Regression("builtin:diabetes")
    units = held_out(task)
    calls = []

    def answer(inputs):
        calls.append(inputs.shape)
        return np.full(len(inputs), 100.0)

    outcomes = task.perform(Answers(answer), units, RNG)
    assert calls == [(len(units), 10)]
    assert outcomes[0].scores == {
        "absolute_error": abs(100 - units[0].target),
        "squared_error": (100 - units[0].target) ** 2,
        "target": units[0].target,
        "predicted": 100.0,
    }
    assert outcomes[0].output == {"prediction": 100.0}
    right = task.perform(task.oracle(), units, RNG)
    assert all(outcome.scores["absolute_error"] == 0 for outcome in right)
    assert task.perform(task.oracle(), [], RNG) == []


def test_predictions_that_are_not_finite_fail_their_units_alone():
    task = Regression("builtin:diabetes")
    units = held_out(task)[:4]
    given = np.array([1.0, np.nan, np.inf, 1e300])
    outcomes = task.perform(Answers(lambda _: given), units, RNG)
    assert [o.status for o in outcomes] == ["ok", "error", "error", "error"]
    assert outcomes[1].error_kind == "garbage"
    assert outcomes[1].error == "The subject predicted nan, which is not a finite number to score."


def test_wrong_predictions_are_refused():
    task = Regression("builtin:diabetes")
    units = held_out(task)[:3]
    with pytest.raises(UnitError, match=r"predictions of shape \(2,\) for 3 rows"):
        task.perform(Answers(lambda _: np.zeros(2)), units, RNG)
    with pytest.raises(UnitError, match="something other than numbers"):
        task.perform(Answers(lambda _: np.array(["a", "b", "c"])), units, RNG)
    column = task.perform(Answers(lambda _: np.zeros((3, 1))), units, RNG)
    assert [o.scores["predicted"] for o in column] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a,target\n1,x\n2,y\n",
            '"target" is text; a value to predict must be a number (for classes',
        ),
        (
            "a,target\n1,true\n2,false\n",
            '"target" is true or false; a value to predict must be a number (for classes',
        ),
        ("a,target\n1,1\n2,inf\n", 'line 3: "target" is not finite.'),
        ("a,target\n1,1\n2,nan\n", 'line 3: "target" is NaN; every row needs a value there.'),
    ],
)
def test_bad_targets(tmp_path, text, said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        list(Regression(str(path)).units(RNG))
    assert said in str(caught.value)
