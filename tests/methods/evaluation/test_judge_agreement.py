"""Judges on trial: their known faults are found, and what they fail at is theirs."""

import csv

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.language.canned import Canned
from equipoise.kit.language.judging import JudgeModel, Style
from equipoise.methods.evaluation.erring_judge import ErringJudge
from equipoise.methods.evaluation.judge_agreement import JudgeAgreement
from equipoise.methods.evaluation.verdict_report import VerdictReport

N = 1500


def rows(pairs):
    draw = np.random.default_rng(3)
    found = []
    for n in range(N):
        right, longer = draw.random(2) < 0.6
        answer = f"{n if right else n + 1}{' I am quite sure of it' if longer else ''}"
        row = {"question": f"{n}+0?", "key": n}
        if pairs:
            other = draw.random() < 0.6
            row |= {"answer_a": answer, "answer_b": f"{n if other else n + 2}"}
            row["gold"] = "tie" if other == right else "A" if right else "B"
        else:
            row |= {"answer": answer, "gold": int(right)}
        found.append(row)
    return tuple(found)


def report(judge, pairs):
    task = JudgeAgreement(rows=rows(pairs), pairs=pairs, reference="key")
    found = task.perform(judge.load(Rng(0)), list(task.units(Rng(0))), Rng(0))
    assert {each.status for each in found} == {"ok"}
    names = [spec.name for spec in task.scores if spec.name in found[0].scores]
    columns = {name: [each.scores[name] for each in found] for name in names}
    return VerdictReport(draws=300).measure(Outcomes.of(**columns), Rng(0)), columns


def test_the_report_finds_sensitivity_and_specificity():
    table, columns = report(ErringJudge(sensitivity=0.9, specificity=0.7), pairs=False)
    for name, truth in (("sensitivity", 0.9), ("specificity", 0.7), ("balanced_agreement", 0.8)):
        found = table[name]
        assert found.low < truth < found.high
        assert found.high - found.low < 0.1
    assert table["length_bias"].low < 0 < table["length_bias"].high
    assert table["agreement"].value == pytest.approx(np.mean(columns["agreement"]))
    assert "consistent" not in table


def test_the_report_finds_position_bias():
    table, columns = report(ErringJudge(sensitivity=1, specificity=1, first=0.4), pairs=True)
    no_tie = np.mean([gold != 0.5 for gold in columns["gold"]])
    expected = 0.6**2 + 0.4 * 0.6 * no_tie
    assert table["consistent"].low < expected < table["consistent"].high
    fair, _ = report(ErringJudge(sensitivity=1, specificity=1), pairs=True)
    assert fair["consistent"].value == 1
    assert fair["bias"].value == 0
    assert fair["rho_squared"].value == pytest.approx(1)


def test_the_report_finds_length_bias():
    table, _ = report(ErringJudge(sensitivity=1, specificity=1, longer=0.5), pairs=True)
    assert table["length_bias"].low > 0.2
    fair, _ = report(ErringJudge(sensitivity=0.8, specificity=0.8), pairs=True)
    assert fair["length_bias"].low < 0 < fair["length_bias"].high


def test_a_judge_without_a_verdict_fails_and_is_to_blame():
    from equipoise.core import EXCUSED
    from equipoise.kit.language._judge_words import RUBRIC_PROMPT

    task = JudgeAgreement(rows=rows(False)[:3])
    judge = JudgeModel(Canned(lambda request: "Hm."), Style(RUBRIC_PROMPT), Rng(0))
    found = task.perform(judge, list(task.units(Rng(0))), Rng(0))
    assert {each.error_kind for each in found} == {"off_format"}
    assert "off_format" not in EXCUSED


def test_rewards_can_be_on_trial_over_pairs():
    class Longest:
        def judge(self, conversations):
            return np.array([len(each[-1]["content"]) / 100 for each in conversations])

    task = JudgeAgreement(
        rows=({"question": "Q", "answer_a": "xx", "answer_b": "x", "gold": "A"},), pairs=True
    )
    (found,) = task.perform(Longest(), list(task.units(Rng(0))), Rng(0))
    assert found.scores["agreement"] == 1
    assert "consistent" not in found.scores


def test_files_scales_and_clusters(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["id", "question", "answer", "stars", "topic"])
        out.writerows([["x", "Q", "A", 5, "t"], ["y", "Q", "B", 2, "t"]])
    task = JudgeAgreement(str(path), gold="stars", gold_scale=(1.0, 5.0), cluster="topic")
    units = list(task.units(Rng(0)))
    assert [(u.id, u.target, u.cluster) for u in units] == [("x", 1.0, "t"), ("y", 0.25, "t")]


GOOD = {"question": "Q", "answer": "A", "gold": 1}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "give either data"),
        ({"rows": (GOOD,), "gold_scale": (1.0, 0.0)}, "gold_scale must rise, got 1 to 0"),
        ({"rows": (GOOD, GOOD | {"gold": 3})}, 'row 2: "gold" must be a number from 0 to 1, got 3'),
        ({"rows": (GOOD, GOOD | {"gold": "A"})}, "row 2"),
        ({"rows": ({"question": "Q", "gold": 1},)}, 'row 1: there is no "answer"'),
        ({"rows": (GOOD | {"id": 1}, GOOD | {"id": 1})}, 'row 2: the id "1" is already'),
        (
            {"rows": (GOOD | {"answer_a": "1", "answer_b": "2", "gold": "D"},), "pairs": True},
            "must be A, B, tie or a number",
        ),
    ],
)
def test_bad_rows_are_sentences(given, fault):
    with pytest.raises(UsageError) as found:
        list(JudgeAgreement(**given).units(Rng(0)))
    assert str(found.value).startswith("JudgeAgreement: ")
    assert fault in str(found.value)
