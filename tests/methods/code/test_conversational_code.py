import json

import pytest

from equipoise.core import Generation, Outcome, Rng, Subject, UsageError
from equipoise.kit.language.canned import Canned, asked
from equipoise.kit.language.talk import converse
from equipoise.methods.code import write_log
from equipoise.methods.code._feedback import EXECUTIONS, PASSED_ALL, WORDS, sections
from equipoise.methods.code.conversational_code import ConversationalCode, FeedbackCombination
from equipoise.methods.code.small_repairer import SmallRepairer

PROBLEM = {
    "task_id": "own/0",
    "instruct_prompt": "Write task_func(x) that squares x.",
    "code_prompt": "def task_func(x):\n",
    "canonical_solution": "    return x * x\n",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
    + "".join(
        f"    def test_{n}(self):\n        self.assertEqual(task_func({n}), {n * n})\n"
        for n in (2, 0, 1, 3)
    ),
    "entry_point": "task_func",
}
HEAD = "def task_func(x):\n"
RIGHT, WRONG, BROKEN = (
    HEAD + "    return x * x\n",
    HEAD + "    return 7\n",
    HEAD + "    return (x\n",
)
HIDDEN = HEAD + "    return min(x * x, 4)\n"  # passes the first three tests


def block(code):
    return f"So:\n```python\n{code}```"


class Script:
    """Answers one after the other, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, request):
        self.asked.append(asked(request.prompt))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


@pytest.fixture
def play(tmp_path):
    """Hold one conversation about squares that begins with a given program."""

    def held(initial, *answers, execution="full", words="none", subject=None, **given):
        data, programs = tmp_path / "data.jsonl", tmp_path / "programs.jsonl"
        data.write_text(json.dumps(PROBLEM) + "\n")
        programs.write_text(json.dumps({"task_id": "own/0", "solution": initial}) + "\n")
        task = ConversationalCode(
            data=str(data), programs=str(programs), execution=execution, words=words, **given
        )
        script = Script(*answers)
        (outcome,) = converse(task, subject or Canned(script), list(task.units(Rng(0))), Rng(0))
        assert outcome.status != "error", outcome.error
        return outcome, script

    return held


@pytest.mark.parametrize(("wrong", "rank"), [(0, 1 / 2), (1, 1 / 3), (4, 1 / 6)])
def test_the_turn_that_passes_counts_from_one(play, wrong, rank):
    outcome, script = play(WRONG, *[block(WRONG)] * wrong, block(RIGHT))
    assert outcome.scores["reciprocal_rank"] == pytest.approx(rank)
    assert outcome.scores["turns"] == outcome.scores["calls"] == wrong + 1
    assert len(script.asked) == wrong + 1


def test_once_passed_nothing_more_is_asked(play):
    outcome, script = play(RIGHT, block(WRONG))
    assert outcome.scores["reciprocal_rank"] == outcome.scores["solved_at_0"] == 1
    assert script.asked == []
    assert outcome.sandbox


def test_never_solved_scores_nothing_and_uses_all_turns(play):
    outcome, script = play(WRONG, block(WRONG), turns=4)
    assert outcome.scores["reciprocal_rank"] == outcome.scores["solved"] == 0
    assert outcome.scores["turns"] == len(script.asked) == 4
    assert [turn["iteration"] for turn in outcome.output] == [0, 1, 2, 3, 4]


def test_the_subject_sees_the_program_before_and_present_feedback_only(play):
    second = HEAD + "    return x + 5\n"
    _, script = play(WRONG, block(second), block(RIGHT))
    assert "7 != 4" in script.asked[0]
    parts = sections(script.asked[1])
    assert second.strip() in parts["Previous program"]
    assert "return 7" not in script.asked[1]
    assert "So:" not in script.asked[1]
    assert "x * x" not in script.asked[1]
    assert set(parts) == {"Problem", "Previous program", "Compilation", "Tests"}


@pytest.mark.parametrize("words", ["none", "novice"])
def test_arms_1_and_4_never_change_what_compiles(play, words):
    outcome, script = play(WRONG, block(RIGHT), execution="none", words=words)
    assert script.asked == []
    assert outcome.scores["reciprocal_rank"] == 0
    assert outcome.scores["turns"] == 10


def test_partial_tests_hide_a_failure_and_a_layman_is_silent(play):
    for words in ("none", "novice"):
        outcome, script = play(HIDDEN, block(RIGHT), execution="partial", words=words)
        assert script.asked == []
        assert outcome.scores["shown_only"] == 1
        assert outcome.output[1]["execution_feedback"] == PASSED_ALL
    outcome, script = play(HIDDEN, block(RIGHT), execution="partial", words="expert")
    assert outcome.scores["solved"] == 1  # an expert speaks all the same
    assert sections(script.asked[0])["Tests"] == PASSED_ALL
    outcome, _ = play(HIDDEN, block(RIGHT), execution="full")
    assert outcome.scores["solved"] == 1


def test_what_does_not_compile_is_repaired_first_inside_the_turn(play):
    outcome, script = play(BROKEN, block(WRONG), block(RIGHT))
    assert outcome.scores["reciprocal_rank"] == 1 / 2
    assert (outcome.scores["calls"], outcome.scores["repairs"]) == (2, 1)
    first, second = map(sections, script.asked)
    assert set(first) == {"Problem", "Previous program", "Compilation"}
    # The tests shown are still those of the program before its repair.
    assert "SyntaxError" in second["Tests"]
    assert "return 7" in second["Previous program"]


def test_three_repairs_end_a_turn(play):
    outcome, script = play(BROKEN, block(BROKEN), turns=2)
    assert (outcome.scores["calls"], outcome.scores["repairs"]) == (6, 6)
    outcome, script = play(BROKEN, block(BROKEN), block(BROKEN), block(WRONG), turns=1)
    assert len(script.asked) == 3  # the third repair compiles, and still nothing follows


def test_with_novice_words_nothing_is_repaired_by_itself(play):
    outcome, script = play(BROKEN, block(RIGHT), execution="none", words="novice")
    assert (outcome.scores["calls"], outcome.scores["repairs"]) == (1, 0)
    assert "does not even start" in sections(script.asked[0])["Feedback"]


def test_the_first_program_may_be_the_subjects_own(play):
    outcome, script = play(WRONG, block(RIGHT), start="subject")
    assert outcome.scores["solved_at_0"] == 1
    assert "Previous program" not in sections(script.asked[0])


@pytest.mark.parametrize(
    ("answer", "fault"),
    [("I give up.", "no_block"), ("", "empty"), ("```c\nint x;\n```", "language")],
)
def test_answers_without_a_program_are_counted_and_go_on(play, answer, fault):
    outcome, _ = play(WRONG, answer, block(RIGHT), block(RIGHT))
    assert outcome.scores["unreadable"] == 1
    assert outcome.output[1]["answer_faults"] == [fault]
    assert outcome.scores["solved"] == 1


def test_words_that_give_the_answer_away_are_measured(play):
    outcome, _ = play(WRONG, block(WRONG), words="expert", turns=1)
    assert outcome.scores["leak"] == 0
    outcome, _ = play(
        WRONG, block(WRONG), words="expert", turns=1,
        teacher=Talks("Just write return x * x there."),
    )  # fmt: skip
    assert outcome.scores["leak"] > 0.3
    assert outcome.output[1]["user_feedback"].startswith("Just write")


class Online:
    """An endpoint: one request at a time."""

    async def generate_one(self, request):
        return Generation((block(RIGHT),))


def test_endpoints_are_asked_too(play):
    treated = FeedbackCombination("full", "novice").apply(Online(), Rng(0))
    outcome, _ = play(WRONG, words="expert", subject=treated)
    assert outcome.scores["reciprocal_rank"] == 1 / 2
    assert "When I call" in outcome.output[1]["user_feedback"]


class Talks(Subject):
    """A teacher that always says the same."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return f"Talks({self.text!r})"

    provides = SmallRepairer.provides

    def load(self, rng):
        return Canned(lambda request: self.text)


def test_the_header_is_put_before_what_is_refined(tmp_path):
    row = PROBLEM | {"code_prompt": "import math\ndef task_func(x):\n"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    task = ConversationalCode(data=str(tmp_path / "d.jsonl"), turns=1)
    code = HEAD + "    return math.prod([x, x])\n"
    (outcome,) = converse(task, Canned(Script(block(code))), list(task.units(Rng(0))), Rng(0))
    assert outcome.scores["solved_at_0"] == 1


def test_the_treatment_chooses_the_feedback(play):
    script = Script(block(RIGHT))
    treated = FeedbackCombination("none", "none").apply(Canned(script), Rng(0))
    outcome, _ = play(WRONG, execution="full", words="expert", subject=treated)
    assert script.asked == []
    treated = FeedbackCombination("full", "none").apply(treated.subject, Rng(0))
    outcome, _ = play(WRONG, execution="none", subject=treated)
    assert outcome.scores["solved"] == 1
    numbers = [FeedbackCombination(e, w).number for w in WORDS for e in EXECUTIONS]
    assert numbers == list(range(1, 10))


def test_broken_test_code_is_an_error_of_the_unit_not_of_the_program(tmp_path):
    row = PROBLEM | {"test": "import not_there\n" + PROBLEM["test"]}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    task = ConversationalCode(data=str(tmp_path / "d.jsonl"), turns=1)
    (outcome,) = converse(task, Canned(Script(block(RIGHT))), list(task.units(Rng(0))), Rng(0))
    assert (outcome.status, outcome.error_kind) == ("error", "tests")
    assert "not_there" in outcome.error


def test_a_reference_that_fails_here_is_an_error_of_the_unit(tmp_path):
    row = PROBLEM | {"code_prompt": "import not_installed\ndef task_func(x):\n"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    task = ConversationalCode(data=str(tmp_path / "d.jsonl"), turns=1)
    (outcome,) = converse(task, Canned(Script(block(WRONG))), list(task.units(Rng(0))), Rng(0))
    assert (outcome.status, outcome.error_kind) == ("error", "reference")
    assert "No module named 'not_installed'" in outcome.error


def test_a_program_that_breaks_the_tests_source_has_failed(play):
    code = "import sys\nsys.modules['random'] = None\n" + WRONG
    with_import = PROBLEM | {"test": "import random\n" + PROBLEM["test"]}
    before = PROBLEM.copy()
    PROBLEM.update(with_import)
    try:
        outcome, _ = play(WRONG, block(code), turns=1)
    finally:
        PROBLEM.update(before)
    assert outcome.scores["solved"] == 0
    assert outcome.output[1]["fault"] == "tests"


def test_a_log_has_the_official_columns(play, tmp_path):
    outcome, _ = play(WRONG, block(WRONG), block(RIGHT), words="novice")
    path = tmp_path / "log.jsonl"
    assert write_log([outcome, Outcome("x", status="error")], str(path)) == 3
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    official = {
        "task_id", "solution", "compilation_feedback", "execution_feedback", "user_feedback",
        "log", "iteration",
    }  # fmt: skip
    assert official <= set(rows[0])
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert rows[0]["user_feedback"] is None
    assert "7, but it should be 4" in rows[1]["user_feedback"]
    with pytest.raises(UsageError, match="write_log: unit x has no turns"):
        write_log([Outcome("x", output="text")], str(path))


def test_parameters_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="programs go with data"):
        ConversationalCode(programs="x.jsonl")
    with pytest.raises(UsageError, match="teacher must be a subject that generates"):
        ConversationalCode(teacher=Mute())
    with pytest.raises(UsageError, match=r"no such file"):
        list(ConversationalCode(data="not_there.jsonl").units(Rng(0)))


class Mute(Subject):
    provides = frozenset()

    def load(self, rng):
        raise AssertionError


def test_programs_must_be_there_for_every_task(tmp_path):
    (tmp_path / "d.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "p.jsonl").write_text(json.dumps({"task_id": "other", "solution": "x"}) + "\n")
    task = ConversationalCode(data=str(tmp_path / "d.jsonl"), programs=str(tmp_path / "p.jsonl"))
    with pytest.raises(UsageError, match="has no program for 1 of 1 tasks, such as own/0"):
        list(task.units(Rng(0)))


def test_an_oracle_solves_at_turn_1_what_it_was_given_broken():
    task = ConversationalCode(problems=8, faults=1)
    outcomes = converse(task, task.oracle(), list(task.units(Rng(0))), Rng(0))
    for outcome in outcomes:
        assert outcome.scores["reciprocal_rank"] == (1 if outcome.scores["solved_at_0"] else 0.5)
