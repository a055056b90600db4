import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods.evaluation import JudgeRates, prediction_powered_mean
from equipoise.methods.evaluation.judging_protocols import (
    DebiasWithGold,
    GoldLabels,
    JudgeAlone,
    SimulatedJudges,
)

RNG = Rng(0)


def errors(subject, task, rng=RNG):
    """Return each study's error."""
    return np.array([each.scores["error"] for each in task.perform(subject, task.units(rng), rng)])


def debiased(labels, lam=None):
    return DebiasWithGold(labels=labels, lam=lam).apply(JudgeAlone().load(RNG), RNG)


def test_debiasing_is_the_prediction_powered_mean():
    generator = np.random.default_rng(0)
    gold = (generator.random(300) < 0.7).astype(float)
    judge = np.where(generator.random(300) < 0.85, gold, 1 - gold)
    for lam in (None, 0.5):
        found = debiased(60, lam).estimate(judge, lambda n: gold[:n])
        wanted = prediction_powered_mean(gold[:60], judge[:60], judge[60:], lam=lam)
        assert found == pytest.approx(wanted.value)


def test_errors_have_the_mean_and_spread_of_theory():
    rates = {"accuracy": (0.8, 0.8), "sensitivity": (0.9, 0.9), "specificity": (0.6, 0.6)}
    task = SimulatedJudges(studies=1500, items=1050, region="any", **rates)
    judge = JudgeRates(0.8, 0.9, 0.6)
    best = 50 / (1 + 50 / 1000) * 0.8 * (0.9 - judge.m) / (50 * judge.m * (1 - judge.m))
    protocols = JudgeAlone(), GoldLabels(50)
    alone, gold = (errors(each.load(RNG), task) for each in protocols)
    both, tuned = errors(debiased(50, best), task), errors(debiased(50), task)
    se = 0.4 / np.sqrt(50)
    assert alone.mean() == pytest.approx(judge.bias, abs=0.003)
    assert gold.mean() == pytest.approx(0, abs=4 * se / np.sqrt(1500))
    assert both.mean() == pytest.approx(0, abs=4 * se / np.sqrt(1500))
    assert gold.std() == pytest.approx(se, rel=0.08)
    assert gold.var() / both.var() == pytest.approx(judge.efficiency(50 / 1000), rel=0.05)
    # Tuning on 50 labels costs a bias of a tenth of a standard error, and hardly any spread.
    assert abs(tuned.mean()) < 0.2 * se
    assert tuned.var() == pytest.approx(both.var(), rel=0.05)


def test_twice_the_labels_beat_the_judge_at_the_frontier_and_not_beyond():
    ranges = {
        "frontier": ((0.8, 0.95), (0.7, 1.0), (0.9, 1.0)),
        "beyond": ((0.5, 0.8), (0.9, 1.0), (0.9, 1.0)),
    }
    for region, (b, p, q) in ranges.items():
        task = SimulatedJudges(
            accuracy=b, sensitivity=p, specificity=q, region=region, studies=1000
        )
        gap = errors(debiased(100), task) ** 2 - errors(GoldLabels(200).load(RNG), task) ** 2
        t = gap.mean() / gap.std() * np.sqrt(len(gap))
        assert t > 4 if region == "frontier" else t < -4


@pytest.mark.parametrize("region", ["frontier", "beyond"])
def test_units_lie_in_their_region(region):
    for unit in SimulatedJudges(region=region, studies=200).units(RNG):
        judge = JudgeRates(**unit.content["rates"])
        inside = 0.5 <= judge.agreement <= judge.b
        assert inside if region == "frontier" else judge.agreement > judge.b
        assert unit.target == judge.b


def test_arms_see_the_same_items_in_any_order():
    task = SimulatedJudges.tiny()
    units = task.units(RNG)
    subject = JudgeAlone().load(RNG)
    first = task.perform(subject, units, RNG.child("one"))
    second = task.perform(subject, units[::-1], RNG.child("two"))[::-1]
    assert [each.scores for each in first] == [each.scores for each in second]
    assert [each.unit for each in first] == [unit.id for unit in units]


def test_oracle_beats_the_judge_and_labels_are_counted():
    task = SimulatedJudges(studies=100)
    units = task.units(RNG)
    oracle = task.perform(task.oracle(), units, RNG)
    alone = task.perform(JudgeAlone().load(RNG), units, RNG)
    assert np.mean([o.scores["squared_error"] for o in oracle]) < 0.01 * np.mean(
        [o.scores["squared_error"] for o in alone]
    )
    assert {o.scores["labels"] for o in oracle} == {2100.0}
    assert {o.scores["labels"] for o in alone} == {0.0}


def test_refusals():
    with pytest.raises(UsageError, match="accuracy must rise"):
        SimulatedJudges(accuracy=(0.9, 0.5))
    with pytest.raises(UsageError, match="no judge in the region frontier"):
        SimulatedJudges(accuracy=(0.5, 0.6), sensitivity=(0.9, 1.0), specificity=(0.9, 1.0))
    task = SimulatedJudges.tiny()
    with pytest.raises(UsageError, match="300 items, 400 labels"):
        task.perform(GoldLabels(400).load(RNG), task.units(RNG), RNG)
