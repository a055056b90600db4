import json

import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.language.canned import Canned
from equipoise.kit.language.talk import converse
from equipoise.methods.code import static_credit, write_log
from equipoise.methods.code.conversational_code import ConversationalCode, FeedbackCombination
from equipoise.methods.code.frozen_conversation import BenchmarkAgreement, FrozenConversation
from equipoise.methods.code.small_repairer import SmallRepairer

SOME = {"problems": 12, "turns": 4}


def held(task, subject, rng=0):
    return converse(task, subject, list(task.units(Rng(rng))), Rng(rng))


def live(skill):
    return SmallRepairer(skill).load(Rng(0))


@pytest.mark.parametrize(
    ("reference", "target", "initial", "credit"),
    [
        ([1, 1], [0, 0], 0, 1),  # the reference was right at once
        ([0, 1, 1], [0, 0, 0], 0, 1 / 2),  # ... after a turn: its own success counts
        ([0, 0, 0], [1, 0, 0], 0, 1 / 2),
        ([0, 1, 1], [1, 0, 0], 0, 1 / 2),  # both at turn 1
        ([0, 0, 1], [0, 0, 1], 0, 1 / 3),  # the reference comes first
        ([0, 0, 0], [0, 0, 1], 0, 1 / 4),
        ([0, 0, 0, 1], [0, 0, 0], 0, 0),  # what it solves last helps nobody
        ([0, 0, 0], [0, 0, 0], 1, 1),
        ([0], [], 0, 0),
    ],
)
def test_credit_by_hand(reference, target, initial, credit):
    found = static_credit(
        list(map(bool, reference)), list(map(bool, target)), initial=bool(initial)
    )
    assert found == pytest.approx(credit)


@pytest.mark.parametrize("execution", ["none", "partial", "full"])
@pytest.mark.parametrize("words", ["none", "novice", "expert"])
def test_a_reference_on_its_own_log_scores_what_it_scored_live(execution, words, tmp_path):
    given = SOME | {"execution": execution, "words": words}
    subject = live(9)
    once = held(ConversationalCode(**given), subject)
    path = tmp_path / "log.jsonl"
    write_log(once, str(path))
    read = held(FrozenConversation(log=str(path), **given), subject)
    made = held(FrozenConversation(reference=SmallRepairer(9), **given), subject)
    for one, two, three in zip(once, read, made, strict=True):
        assert two.status == three.status == "ok", two.error
        for name in ("reciprocal_rank", "solved"):
            assert one.scores[name] == two.scores[name] == three.scores[name]


def test_replay_gives_the_credit_of_the_plain_function():
    given = SOME | {"execution": "full", "words": "expert"}
    reference = held(ConversationalCode(**given), live(3))
    target = held(FrozenConversation(reference=SmallRepairer(3), **given), live(10))
    for one, two in zip(reference, target, strict=True):
        mine = [turn["status"] == "pass" for turn in one.output]
        own = [turn["status"] == "pass" for turn in two.output]
        # Where the reference had passed, the target was asked no more.
        own += [False] * (len(mine) - len(own))
        assert two.scores["reciprocal_rank"] == pytest.approx(static_credit(mine, own))
        if two.output and two.scores["own"]:
            assert two.output[-1]["status"] == "pass"


def test_words_are_those_of_the_log_and_programs_those_of_the_reference(tmp_path):
    task = ConversationalCode(problems=1, faults=0, words="expert", turns=2)
    (unit,) = task.units(Rng(0))
    bad = [unit.content["initial"].replace("total = 0", f"total = {n}") for n in (5, 6, 7)]
    rows = [
        {"task_id": unit.id, "solution": code, "iteration": n, "user_feedback": f"WORDS {n}"}
        for n, code in enumerate(bad)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = []

    def answer(request):
        seen.append(request.prompt[0]["content"])
        return "```python\nmine = 1\n```"

    frozen = FrozenConversation(
        log=str(tmp_path / "log.jsonl"), problems=1, faults=0, words="expert", turns=2
    )
    (outcome,) = held(frozen, Canned(answer))
    assert outcome.scores["reciprocal_rank"] == 0
    assert ["total = 5" in seen[0], "WORDS 1" in seen[0]] == [True, True]
    assert ["total = 6" in seen[1], "WORDS 2" in seen[1], "mine" in seen[1]] == [True, True, False]
    assert len(seen) == 2


def official(folder, unit, codes, middle="_CF_EF_FULL_SEF_by_gpt-4o", last=None):
    folder.mkdir(exist_ok=True)
    for turn, code in enumerate(codes, 1):
        row = {
            "task_id": unit.id, "solution": code, "compilation_feedback": "No syntax errors",
            "execution_feedback": "x", "user_feedback": f"WORDS {turn}", "log": None,
            "iteration": turn + 3,
        }  # fmt: skip
        end = f"_ITER={turn}" if turn > 1 else ""
        (folder / f"bigcodebench_some_model{middle}{end}.jsonl").write_text(json.dumps(row) + "\n")


def test_a_folder_of_official_files_is_read_by_turn_and_feedback(tmp_path):
    given = {"problems": 1, "faults": 0, "turns": 3}
    (unit,) = ConversationalCode(**given).units(Rng(0))
    right = unit.target["reference"]
    wrong = right.replace("total = 0", "total = 5")
    data, programs = tmp_path / "d.jsonl", tmp_path / "p.jsonl"
    row = {
        "task_id": unit.id, "instruct_prompt": "Do it.", "canonical_solution": right,
        "test": unit.target["suite"]["source"], "entry_point": "task_func",
    }  # fmt: skip
    data.write_text(json.dumps(row) + "\n")
    programs.write_text(json.dumps({"task_id": unit.id, "solution": wrong}) + "\n")
    folder = tmp_path / "logs"
    official(folder, unit, [wrong, right])
    official(folder, unit, [right], middle="_CF_SEF_by_gpt-4o")
    seen = []

    def answer(request):
        seen.append(request.prompt[0]["content"])
        return "no"

    def task(**more):
        return FrozenConversation(
            log=str(folder), data=str(data), programs=str(programs), turns=3, **more
        )

    (outcome,) = held(task(execution="full", words="expert"), Canned(answer))
    assert outcome.scores["reciprocal_rank"] == pytest.approx(1 / 3)  # the reference's, at turn 2
    assert outcome.scores["own"] == 0
    assert "WORDS 1" in seen[0]
    assert "WORDS 2" in seen[1]
    (outcome,) = held(task(execution="none", words="expert"), Canned(answer))
    assert outcome.scores["reciprocal_rank"] == pytest.approx(1 / 2)
    with pytest.raises(UsageError, match=r"no file in .* with execution partial and words novice"):
        task(execution="partial", words="novice").content()


def test_logs_that_are_not_whole_are_refused(tmp_path):
    (unit,) = ConversationalCode(problems=1).units(Rng(0))
    folder = tmp_path / "logs"
    official(folder, unit, ["a", "b", "c"])
    task = FrozenConversation(log=str(folder), words="expert")
    task.content()
    (folder / "bigcodebench_some_model_CF_EF_FULL_SEF_by_gpt-4o_ITER=2.jsonl").unlink()
    with pytest.raises(UsageError, match="the log of turn 2 is missing"):
        task.content()
    official(folder, unit, ["a"], middle="_CF_EF_FULL_SEF_by_other")
    with pytest.raises(UsageError, match="holds turn 1 twice"):
        task.content()
    with pytest.raises(UsageError, match="there is no log"):
        FrozenConversation(log=str(tmp_path / "none.jsonl")).content()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"iteration": 2, "solution": "x"}], "has turn 2, and 0 or 1 must come"),
        ([{"iteration": 0, "solution": "x"}, {"iteration": 2, "solution": "x"}], "1 must come"),
        ([{"iteration": 0, "solution": 5}], "must be text"),
        ([{"iteration": 0}], "solution"),
    ],
)
def test_lines_of_a_log_that_do_not_fit_are_named(tmp_path, rows, said):
    task = FrozenConversation(log=str(tmp_path / "log.jsonl"), problems=1)
    (unit,) = task.units(Rng(0))
    lines = [json.dumps({"task_id": unit.id} | row) + "\n" for row in rows]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    (outcome,) = held(task, live(1))
    assert outcome.status == "error"
    assert said in outcome.error


def test_a_problem_without_a_log_is_an_error_of_its_unit(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        json.dumps({"task_id": "other", "solution": "x", "iteration": 0}) + "\n"
    )
    (outcome,) = held(FrozenConversation(log=str(tmp_path / "log.jsonl"), problems=1), live(1))
    assert outcome.error_kind == "no_log"


def test_a_log_or_a_reference_and_not_both():
    with pytest.raises(UsageError, match="give either a log or a reference"):
        FrozenConversation()
    with pytest.raises(UsageError, match="give either a log or a reference"):
        FrozenConversation(log="x", reference=SmallRepairer(1))


def test_a_perfect_reference_lifts_everybody():
    task = FrozenConversation(reference=SmallRepairer(12), problems=6, words="expert", turns=6)
    lifted = held(task, Canned(lambda request: "no"))
    alone = held(ConversationalCode(problems=6, words="expert", turns=6),
                 Canned(lambda request: "no"))  # fmt: skip
    mean = [sum(o.scores["solved"] for o in each) for each in (lifted, alone)]
    assert mean[0] > mean[1]
    assert all(o.scores["own"] == 0 for o in lifted)


def test_agreement_is_what_the_two_tasks_say():
    inner = ConversationalCode(problems=6, turns=3, execution="none", words="none")
    task = BenchmarkAgreement((SmallRepairer(2), SmallRepairer(11)), inner)
    reference = FeedbackCombination("full", "expert").apply(live(4), Rng(0))
    units = task.units(Rng(7))
    found = task.perform(reference, units, Rng(0))
    again = {"problems": 6, "turns": 3, "execution": "full", "words": "expert"}
    problems = list(inner.units(Rng(7).child("problems")))
    for skill, outcome in zip((2, 11), found, strict=True):
        one = converse(ConversationalCode(**again), live(skill), problems, Rng(0))
        two = converse(
            FrozenConversation(reference=SmallRepairer(4), **again), live(skill), problems, Rng(0)
        )
        for name, rows in (("live", one), ("static", two)):
            for score in ("reciprocal_rank", "solved"):
                mean = sum(row.scores[score] for row in rows) / 6
                assert outcome.scores[f"{name}_{score}"] == pytest.approx(mean)
    with pytest.raises(UsageError, match="models must name at least one"):
        BenchmarkAgreement((), inner)
    with pytest.raises(UsageError, match="must be a conversational_code task"):
        BenchmarkAgreement((SmallRepairer(2),), FrozenConversation(reference=SmallRepairer(1)))
