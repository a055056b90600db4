from dataclasses import dataclass

import numpy as np
import pytest

from equipoise.core import Predicts, Rng, Subject, UsageError
from equipoise.methods.evaluation import JudgeRates, sample_efficiency_factor
from equipoise.methods.evaluation.judged_classification import (
    GradedClassifier,
    JudgedClassification,
    _examples,
)

RNG = Rng(0)
TWELVE = [
    ("tree", 80),
    ("tree", 300),
    ("bayes", 20),
    ("bayes", 80),
    ("logistic", 20),
    ("logistic", 40),
    ("logistic", 80),
    ("logistic", 300),
    ("neighbours", 40),
    ("neighbours", 160),
    ("neighbours", 600),
    ("forest", 600),
]


def columns(outcomes):
    return tuple(
        np.array([each.scores[name] for each in outcomes]) for name in ("gold", "judge", "excess")
    )


def test_twelve_classifiers_judge_one_another():
    """The replication on the card, all pairs, worked directly."""
    live = [GradedClassifier(kind=k, examples=e).load(RNG.child(k, e)) for k, e in TWELVE]
    inside, beyond = [], []
    for j, (kind, examples) in enumerate(TWELVE):
        task = JudgedClassification(GradedClassifier(kind=kind, examples=examples))
        units = task.units(RNG)
        for i, subject in enumerate(live):
            if i == j:
                continue
            s, t, excess = columns(task.perform(subject, units, RNG))
            rates = JudgeRates.of(s, t)
            assert excess.mean() == pytest.approx(rates.agreement - rates.b)
            within = 0.5 <= rates.agreement <= rates.b
            (inside if within else beyond).append((s, t, rates.efficiency()))
    assert len(inside) > 30
    assert max(tau for _, _, tau in inside) < 2
    assert np.mean([tau < 1.5 for _, _, tau in inside]) > 0.9
    # Even the upper limit of the best judge at the frontier stays below two.
    s, t, _ = max(inside, key=lambda each: each[2])
    assert sample_efficiency_factor(s, t, draws=1000).high < 2
    s, t, best = max(beyond, key=lambda each: each[2])
    assert best > 5
    assert sample_efficiency_factor(s, t, draws=1000).low > 2


def test_more_examples_are_better():
    features, labels, training = _examples("digits")
    accuracy = [
        np.mean(GradedClassifier(examples=size).load(RNG).predict(features[~training])
                == labels[~training])
        for size in (20, 80, 600)
    ]  # fmt: skip
    assert accuracy[0] < accuracy[1] < accuracy[2]


@pytest.mark.parametrize("data", ["digits", "breast_cancer"])
@pytest.mark.parametrize("kind", ["logistic", "neighbours", "bayes", "tree", "forest"])
def test_every_kind_knows_every_class_and_repeats(data, kind):
    features, labels, training = _examples(data)
    subject = GradedClassifier(data=data, kind=kind, examples=10)
    live = subject.load(RNG)
    assert set(live.classes_) == set(labels)
    again = subject.load(Rng(0))
    assert (live.predict(features[~training]) == again.predict(features[~training])).all()


def test_units_are_held_out_and_verdicts_are_agreement():
    task = JudgedClassification(GradedClassifier(examples=100))
    units = task.units(RNG)
    assert not _examples("digits")[2][[unit.content["row"] for unit in units]].any()
    said = np.array([unit.content["judge"] for unit in units])

    class Copy:
        def predict(self, inputs):
            return said

    _, t, _ = columns(task.perform(Copy(), units, RNG))
    assert (t == 1).all()
    s, t, _ = columns(task.perform(task.oracle(), units, RNG))
    assert (s == 1).all()
    assert t.mean() == pytest.approx(np.mean([u.target == u.content["judge"] for u in units]))


def test_soft_verdicts_are_the_judges_probability():
    judge = GradedClassifier(data="breast_cancer", examples=30)
    task = JudgedClassification(judge, data="breast_cancer", soft=True)
    units = task.units(RNG)
    subject = GradedClassifier(data="breast_cancer", examples=200).load(RNG)
    outcomes = task.perform(subject, units, RNG)
    for unit, outcome in zip(units, outcomes, strict=True):
        assert sum(unit.content["judge"].values()) == pytest.approx(1)
        assert outcome.scores["judge"] == unit.content["judge"][str(outcome.output)]


@dataclass(frozen=True)
class Mute(Subject):
    def load(self, rng):
        return None


@dataclass(frozen=True)
class Hard(Subject):
    provides = frozenset({Predicts})

    def load(self, rng):
        return None


def test_a_judge_must_be_able():
    with pytest.raises(UsageError, match="Mute lacks Predicts"):
        JudgedClassification(Mute())
    JudgedClassification(Hard())
    with pytest.raises(UsageError, match="Hard lacks PredictsProba"):
        JudgedClassification(Hard(), soft=True)
