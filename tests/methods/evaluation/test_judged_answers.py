"""Answers scored by a judge: from the run to human labels and back, and whose fault errors are."""

import csv
import random

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from equipoise.cli import export
from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.language.canned import Canned, Constant
from equipoise.kit.language.talk import converse
from equipoise.methods.evaluation._labels import KEY
from equipoise.methods.evaluation.erring_judge import ErringJudge
from equipoise.methods.evaluation.judged_answers import JudgedAnswers
from equipoise.methods.evaluation.verdict_report import VerdictReport
from equipoise.methods.language.judge import Judge
from equipoise.methods.language.scripted import Scripted
from equipoise.store import Store
from equipoise.trial import run
from equipoise.trial.trial import Arm, Claim, Trial

QUESTIONS = tuple({"question": f"{n}+1?", "answer": str(n + 1)} for n in range(300))
ERRING = ErringJudge(sensitivity=0.95, specificity=0.5)


def answers(share, seed):
    """Return an arm that is right on a share of the questions."""
    draw = random.Random(seed)
    said = {
        row["question"]: row["answer"] if draw.random() < share else "unknown" for row in QUESTIONS
    }
    return Arm(Scripted(answers=said)), said


def task(**given):
    return JudgedAnswers(**{"rows": QUESTIONS, "answer": "answer", "judge": ERRING} | given)


def label(path, said, arms, count, seed=0):
    """Write what people would: right or wrong for some answers chosen at random."""
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["unit", "output", "label"])
        for arm in arms:
            for place in draw.sample(range(len(QUESTIONS)), count):
                row = QUESTIONS[place]
                answer = said[arm][row["question"]]
                right = "right" if answer == row["answer"] else "wrong"
                out.writerow([f"{place:06d}", answer, right])
    return str(path)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "s.sqlite") as opened:
        yield opened


def test_labels_come_after_the_run_and_nothing_runs_again(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    monkeypatch.setenv("EQUIPOISE_STORE", str(path))
    (good, said_good), (bad, said_bad) = answers(0.9, 1), answers(0.5, 2)
    claims = (Claim("good", "beats", "bad", "sums"), Claim("good", "above", 0.8, "sums"))

    def trial(**given):
        return Trial("t", {"bad": bad, "good": good}, {"sums": task(**given)}, claims=claims)

    with Store.open(path) as opened:
        first = run(trial(), store=opened)
    assert not any("debiased" in claim.claim for claim in first.claims)
    names = {row.name for row in first.estimates}
    assert {"judge", "verdict_report judge_mean"} <= names

    app = typer.Typer()
    app.command()(export.command)
    done = CliRunner().invoke(app, ["last", "-o", str(tmp_path / "answers.csv"), "-q"])
    assert done.exit_code == 0, done.output
    # A person fills in a column for some rows and leaves the others empty.
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = set(random.Random(4).sample(range(len(rows)), 160))
    for place, row in enumerate(rows):
        right = QUESTIONS[int(row["unit"])]["answer"]
        row["label"] = ("yes" if row["output"] == right else "no") if place in chosen else ""
    with (tmp_path / "labelled.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys())
        out.writeheader()
        out.writerows(rows)

    with Store.open(path) as opened:
        second = run(trial(human=str(tmp_path / "labelled.csv")), store=opened)
    assert second.reused == second.units == 600
    assert all(claim.claim.endswith("in debiased_mean") for claim in second.claims)
    found = {(row.arm, row.name): row.estimate for row in second.estimates}
    for arm, said in (("good", said_good), ("bad", said_bad)):
        truth = np.mean([said[row["question"]] == row["answer"] for row in QUESTIONS])
        assert found[arm, "debiased_mean"].low < truth < found[arm, "debiased_mean"].high
    assert found["bad", "judge"].low > 0.55, "the judge alone is sure of too much"
    assert found["bad", "verdict_report bias"].low > 0
    assert [claim.verdict for claim in second.claims] == ["supported", "supported"]
    effect = second.claims[0].estimate
    truth = np.mean([said_good[r["question"]] == r["answer"] for r in QUESTIONS]) - np.mean(
        [said_bad[r["question"]] == r["answer"] for r in QUESTIONS]
    )
    assert effect.low < truth < effect.high


def test_labels_of_one_arm_leave_the_claim_open(tmp_path, store):
    (good, said), (bad, _) = answers(0.9, 1), (Arm(Scripted(constant="never said")), None)
    human = label(tmp_path / "l.csv", {"good": said}, ["good"], 40)
    found = run(
        Trial(
            "t", {"bad": bad, "good": good}, {"sums": task(human=human)},
            claims=(Claim("good", "beats", "bad", "sums"), Claim("good", "above", 0.5, "sums")),
        ),
        store=store,
    )  # fmt: skip
    assert [claim.verdict for claim in found.claims] == ["inconclusive", "supported"]
    assert "no answer of arm bad has a human label" in str(found.claims[0])
    (row,) = (r for r in found.estimates if (r.arm, r.name) == ("bad", "debiased_mean"))
    assert "no answer of arm bad has a human label" in row.estimate.note


def test_two_labels_leave_claims_open(tmp_path, store):
    good, said = answers(0.9, 1)
    human = label(tmp_path / "l.csv", {"good": said}, ["good"], 2)
    trial = Trial(
        "t", {"good": good}, {"sums": task(human=human)},
        claims=(Claim("good", "above", 0.5, "sums"),),
    )  # fmt: skip
    (claim,) = run(trial, store=store).claims
    assert claim.verdict == "inconclusive"
    assert "Only 2 answers have a label" in claim.estimate.note


def test_the_debiased_interval_covers_through_the_task(tmp_path):
    hits, truths = 0, []
    for seed in range(60):
        arm, said = answers(0.6, seed)
        human = label(tmp_path / f"{seed}.csv", {"a": said}, ["a"], 50, seed)
        judged = task(human=human)
        live = arm.subject.load(Rng(seed))
        found = converse(judged, live, list(judged.units(Rng(seed))), Rng(seed))
        columns = {name: [o.scores[name] for o in found] for name in ("judge", KEY)}
        estimate = judged.claimed().measure(Outcomes.of(**columns), Rng(0))
        # The answers are fixed and labels drawn, so the truth is the mean of a population.
        hits += estimate.low <= 0.6 <= estimate.high
        truths.append(estimate.value)
    assert hits >= 51, "a coverage of 95 % misses more than 9 of 60 once in 1,000"
    assert abs(np.mean(truths) - 0.6) < 4 * np.std(truths) / np.sqrt(60)


def test_a_judge_who_fails_is_not_held_against_the_arm(store):
    def sometimes(place):
        return f"{__name__}:judges_all_but_{place}"

    judge = Judge(model=Scripted(function=sometimes("7")))
    arm = Arm(Scripted(answers={r["question"]: r["answer"] for r in QUESTIONS[:40]}))
    judged = JudgedAnswers(rows=QUESTIONS[:40], judge=judge)
    found = run(
        Trial("t", {"a": arm}, {"sums": judged}, claims=(Claim("a", "above", 0.9, "sums"),)),
        store=store,
    )
    (row, *_) = found.estimates
    assert row.estimate.value == 1
    assert row.estimate.n == 40 - found.errors < 40
    assert "asked twice" in found.first_error
    assert found.first_error.startswith("judge: ")


def judges_all_but_7(request):
    return "Hm." if "\n7+1?\n" in request.prompt[0]["content"] else "Score: 10"


def test_an_arm_that_fails_counts_as_the_worst(store):
    said = {r["question"]: r["answer"] for r in QUESTIONS[:30]}
    judged = task(rows=QUESTIONS[:40], judge=ErringJudge(sensitivity=1, specificity=1))
    found = run(Trial("t", {"a": Arm(Scripted(answers=said))}, {"s": judged}), store=store)
    assert found.errors == 10
    assert found.estimates[0].estimate.value == 0.75


def test_the_transcript_holds_both_conversations():
    judged = JudgedAnswers(rows=QUESTIONS[:1], judge=Judge(model=Scripted(constant="Score: 4")))
    (found,) = converse(judged, Canned(Constant("One.")), list(judged.units(Rng(0))), Rng(0))
    assert [m.get("name", "") for m in found.transcript] == ["", "", "judge", "judge"]
    assert found.output == "One."
    assert found.scores["judge"] == pytest.approx(1 / 3)
    assert found.scores["length"] == 4


def test_pairs_give_win_rates():
    rows = tuple(row | {"old": "unknown"} for row in QUESTIONS[:60])
    judged = task(rows=rows, baseline="old", judge=ErringJudge(sensitivity=1, specificity=1))
    names = [spec.name for spec in judged.scores]
    assert {"tie", "consistent"} <= set(names)
    subject = Scripted(
        answers={r["question"]: r["answer"] for r in QUESTIONS[:45]}, constant="neither"
    ).load(Rng(0))
    found = converse(judged, subject, list(judged.units(Rng(0))), Rng(0))
    assert np.mean([o.scores["judge"] for o in found]) == (45 + 15 / 2) / 60
    assert np.mean([o.scores["tie"] for o in found]) == 0.25
    assert found[0].scores["length"] == 1 - len("unknown")


def test_scores_are_those_that_come():
    alone = {spec.name for spec in task().scores}
    assert alone == {"judge", "asked_again", "length", KEY}
    once = Judge(model=Scripted(constant="A"), kind="pairwise", swap=False)
    assert "consistent" not in {s.name for s in task(judge=once, baseline="answer").scores}
    assert isinstance(task().measures()[0], VerdictReport)
    assert task().claimed() is None


def test_labels_do_not_change_what_the_task_is(tmp_path):
    from equipoise.catalog import identity

    human = label(tmp_path / "l.csv", {"a": answers(1, 0)[1]}, ["a"], 5)
    assert identity(task(human=human)) == identity(task())
    assert identity(task(judge=ErringJudge())) != identity(task())


def test_answers_that_stop_at_the_limit_say_so():
    judged = JudgedAnswers.tiny()
    long = Canned(Constant("Paris " * 400))
    found = converse(judged, long, list(judged.units(Rng(0))), Rng(0))
    assert {each.status for each in found} == {"limit"}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"judge": None}, "name the judge, such as"),
        ({"judge": Scripted(constant="x")}, "judge must have Judges; this subject has Generates"),
        (
            {"judge": Judge(model=Scripted(constant="A"), kind="pairwise")},
            "a judge of pairs needs a baseline",
        ),
        ({"label_scale": (1.0, 0.0)}, "label_scale must rise, got 1 to 0"),
        ({"baseline": "old"}, 'there is no column "old"'),
        ({"human": "nowhere.csv"}, "nowhere.csv: there is no such file"),
    ],
)
def test_bad_settings_are_sentences(given, fault):
    with pytest.raises(UsageError) as found:
        list(task(**given).units(Rng(0)))
    assert fault in str(found.value)
