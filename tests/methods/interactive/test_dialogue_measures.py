"""Measures of dialogue turns against hand cases, scikit-learn and simulation."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.kit.statistics.single import proportion
from equipoise.methods.interactive import (
    ActionMacroF1,
    ErrorTaxonomy,
    HistoryEffect,
    JointStateAccuracy,
    action_macro_f1,
    history_effect,
    joint_state_accuracy,
)
from equipoise.methods.interactive._tooldial_text import ERRORS


def test_macro_f1_is_that_of_scikit_learn_over_the_labels_that_occur():
    draw = np.random.default_rng(0)
    for size in (20, 300):
        label, predicted = draw.integers(0, 6, size), draw.integers(0, 9, size)
        peer = f1_score(label, predicted, labels=np.unique(label), average="macro",
                        zero_division=0)  # fmt: skip
        found = action_macro_f1(predicted, label, draws=100)
        assert found.value == pytest.approx(peer)
        assert found.low <= found.value <= found.high


def test_macro_f1_by_hand_and_at_its_ends():
    assert action_macro_f1([0, 0, 1, 1], [0, 1, 1, 1], draws=100).value == pytest.approx(
        (2 / 3 + 4 / 5) / 2
    )
    sure = action_macro_f1([0, 1] * 20, [0, 1] * 20)
    assert sure.value == sure.high == 1.0
    assert 0.8 < sure.low < 1.0
    lost = action_macro_f1([8] * 20, [0, 1] * 10)
    assert lost.value == lost.low == 0.0


def test_failed_turns_lower_macro_f1_as_much_as_misses_do():
    label = np.repeat([0, 1], 30)
    whole = Outcomes.of(predicted=label, label=label)
    failed = np.arange(60) % 3 == 0
    holes = np.where(failed, np.nan, label)
    outcomes = replace(whole, scores={"predicted": holes, "label": holes}, failed=failed)
    found = ActionMacroF1(draws=200).measure(outcomes, Rng(0))
    as_misses = f1_score(label, np.where(failed, 9, label), labels=[0, 1], average="macro")
    assert found.value == pytest.approx(as_misses) == pytest.approx(0.8)
    assert "20 failed turns count as misses" in found.note
    assert ActionMacroF1().statistic(outcomes) == found.value


def test_a_dialogue_is_right_when_all_its_turns_are():
    right = [1, 1, 1, 0, 1, 1]
    found = joint_state_accuracy(right, dialogues=list("aabbcc"), per="dialogue")
    assert found.value == pytest.approx(2 / 3)
    assert joint_state_accuracy(right, dialogues=list("aabbcc")).value == pytest.approx(5 / 6)
    with pytest.raises(UsageError, match="no clusters"):
        joint_state_accuracy(right, per="dialogue")


def test_the_dialogue_interval_covers():
    hits = 0
    part = JointStateAccuracy("dialogue")
    for index in range(200):
        outcomes, truth = part.simulate(Rng(5).child(index))
        found = part.measure(outcomes, Rng(0))
        hits += found.low <= truth <= found.high
    assert 180 <= hits <= 199


def test_shares_of_errors_add_up_and_are_proportions():
    draw = np.random.default_rng(1)
    codes = draw.integers(0, 5, 200)
    groups = np.repeat(np.arange(40), 5)
    outcomes = Outcomes.of(error=codes, cluster=groups)
    table = ErrorTaxonomy().measure(outcomes, Rng(0))
    assert sum(each.value for each in table.values()) == pytest.approx(1.0)
    peer = proportion((codes == 1).astype(float), clusters=groups)
    assert table[ERRORS[1]].value == peer.value
    assert (table[ERRORS[1]].low, table[ERRORS[1]].high) == (peer.low, peer.high)


def test_failed_turns_are_a_class_of_error():
    outcomes = Outcomes.of(error=[0.0, np.nan, 1.0, 0.0])
    outcomes = replace(outcomes, failed=np.array([False, True, False, False]))
    table = ErrorTaxonomy().measure(outcomes, Rng(0))
    assert {name: each.value for name, each in table.items()} == {
        "right": 0.5, "generation_error": 0.25, "failed": 0.25,
    }  # fmt: skip


def test_bars_stand_side_by_side_and_name_their_classes():
    one, two = Outcomes.of(error=[0, 1, 1, 7]), Outcomes.of(error=[0, 0, 0, 7])
    figure = ErrorTaxonomy().figure({"one": one, "two": two}, Rng(0))
    assert [series.look for series in figure.series] == ["bars", "bars"]
    assert figure.series[0].y == (0.5, 0.25)
    assert figure.series[1].y == (0.0, 0.25)
    assert figure.series[0].x[0] < 1 < figure.series[1].x[0]
    assert "1 generation_error, 2 value_error" in figure.caption
    assert ErrorTaxonomy().figure({"one": Outcomes.of(error=[0, 0])}, Rng(0)) is None


def test_the_effect_of_the_history_by_hand():
    right, shown = [1, 1, 1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]
    groups = np.tile(np.arange(4), 2)
    found = history_effect(right, shown, clusters=groups)
    assert found.value == 0.5
    assert found.low < 0.5 < found.high
    with pytest.raises(UsageError, match="history: both"):
        history_effect([1, 0], [1, 1])


def test_a_failed_turn_is_in_the_setting_that_its_stratum_says():
    specs = (ScoreSpec("correct", True, 0, 1), ScoreSpec("with_gt", None, 0, 1))
    outcomes = Outcomes.of(correct=[1, 1, 0, 1], with_gt=[1, 0, np.nan, 0], specs=specs,
                           cluster=list("aabb"))  # fmt: skip
    outcomes = replace(outcomes, stratum=np.array([0, 1, 0, 1]), strata=("with_gt", "without_gt"))
    assert HistoryEffect().statistic(outcomes) == -0.5
