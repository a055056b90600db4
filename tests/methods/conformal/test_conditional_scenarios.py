import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from equipoise.core import Rng, UnitError, UsageError
from equipoise.kit.arrays.learners import Untrained
from equipoise.kit.worlds.conditional_tests import outlier_draw
from equipoise.methods.conformal import (
    ConditionalTwoSampleTest,
    LabelScenario,
    LocalizedLabelScreen,
    LocalizedOutlierTest,
    OutlierScenario,
    ScenarioMean,
    TwoSampleScenario,
)
from equipoise.methods.conformal._screened import family_wise_scores, outlier_scores


def mean(task, subject, score, draws=None):
    found = task.perform(subject, list(task.units(Rng(5)))[:draws], Rng(0))
    return float(np.mean([outcome.scores[score] for outcome in found]))


def test_localised_power_where_noise_is_low():
    task = OutlierScenario(draws=6)
    arms = {}
    for localized in (True, False):
        part = LocalizedOutlierTest(given=(0,), scale=False, localized=localized)
        arms[localized] = part.apply(ScenarioMean().load(Rng(0)), Rng(0))
    near, plain = (mean(task, arms[key], "power_low_noise") for key in (True, False))
    assert near > plain + 0.1


def test_scores_by_hand():
    flagged = np.array([True, True, False, False])
    outlier = np.array([True, False, True, False])
    assert outlier_scores(flagged, outlier) == {
        "power": 0.5, "false_discovery_proportion": 0.5, "flagged": 0.5
    }  # fmt: skip
    nothing = outlier_scores(np.zeros(4, bool), np.zeros(4, bool))
    assert nothing == {"false_discovery_proportion": 0.0, "flagged": 0.0}
    declared = np.array([[True, False], [True, True], [False, False], [False, True]])
    labels = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    found = family_wise_scores(declared, labels, np.array([0, 0, 3, 3]))
    assert found == {
        "family_wise_error": 0.5, "power": 0.5, "family_wise_error_1": 0.5,
        "family_wise_error_4": 0.5, "worst_quadrant": 0.5,
    }  # fmt: skip


def test_every_arm_sees_the_same_draw():
    seen = []

    class Listens:
        def fit(self, data, rng):
            seen.append(data.inputs.sum())
            return self

        def screen(self, inputs, targets, alpha, rng):
            seen.append((inputs.sum(), targets.sum(), alpha))
            return np.ones(len(inputs)), np.zeros(len(inputs), bool)

    task = OutlierScenario(draws=2, n=20, m=10)
    units = list(task.units(Rng(1)))
    task.perform(Listens(), units, Rng(0))
    task.perform(Listens(), units, Rng(9))
    assert seen[:4] == seen[4:]
    assert seen[0] != seen[2]
    world = Rng(units[0].content["seed"]).child("world")
    assert seen[1][1] == outlier_draw("A1", world, n=20, m=10).targets.sum()


def test_units_tell_draws_apart():
    one, two = (list(OutlierScenario(draws=3).units(Rng(seed))) for seed in (0, 1))
    assert len({unit.id for unit in one + two}) == 6


def test_labels_are_screened():
    task = LabelScenario(draws=3, n=300, m=200, alpha=0.2)
    learner = LocalizedLabelScreen().apply(Untrained(LogisticRegression()), Rng(0))
    assert 0.05 < mean(task, learner, "family_wise_error") < 0.35
    assert mean(task, learner, "power") > 0.2


def test_directions_follow_the_truth():
    better = {
        alternative: TwoSampleScenario(alternative=alternative).scores[0].higher_is_better
        for alternative in (True, False)
    }
    assert better == {True: True, False: False}
    task = TwoSampleScenario(draws=5, n=1000)
    assert mean(task, ConditionalTwoSampleTest().load(Rng(0)), "rejected") >= 0.8


class Bad:
    def __init__(self, answer):
        self.answer = answer

    def fit(self, data, rng):
        return self

    def screen(self, *asked):
        return self.answer

    def act(self, *asked):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "no p-values and decisions"),
        ((np.ones(3), np.ones(3, bool)), "where \\(10,\\) was asked"),
        ((np.full(10, np.nan), np.ones(10, bool)), "outside \\[0, 1\\]"),
    ],
)
def test_bad_answers_fail_the_unit(answer, said):
    task = OutlierScenario(draws=1, n=20, m=10)
    with pytest.raises(UnitError, match=said):
        task.perform(Bad(answer), list(task.units(Rng(0))), Rng(0))


@pytest.mark.parametrize(
    ("answer", "said"),
    [(1, "no mapping"), ({"p_value": 2.0, "reject": True}, "gave 2.0 as a p-value")],
)
def test_bad_actions_fail_the_unit(answer, said):
    task = TwoSampleScenario.tiny()
    with pytest.raises(UnitError, match=said):
        task.perform(Bad(answer), list(task.units(Rng(0))), Rng(0))


def test_too_few_outliers_and_other_rows_are_refused():
    with pytest.raises(UsageError, match="share of 10 test rows must give at least one outlier"):
        OutlierScenario(m=10, share=0.01)
    with pytest.raises(UsageError, match="whose rows have 10 columns"):
        ScenarioMean().load(Rng(0)).predict(np.ones((2, 3)))
