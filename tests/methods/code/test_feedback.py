import asyncio

import pytest

from equipoise.core import Generation, Rng, UnitError
from equipoise.methods.code import expert_words, leaked, novice_words
from equipoise.methods.code._feedback import (
    EXECUTIONS,
    PASSED_ALL,
    WORDS,
    Feedback,
    Scenario,
    cut,
    cut_words,
    execution_text,
    refine_request,
    sections,
    teacher_request,
)
from equipoise.methods.code._problems import generated
from equipoise.methods.code._running import Record
from equipoise.methods.code._turns import taught

NAMES = ("test_a", "test_b", "test_c", "test_d")
FAILS_LAST = Record(dict.fromkeys(NAMES[:3], ("pass", "")) | {"test_d": ("fail", "Boom")})
(PROBLEM,) = generated(1, 1, 0, Rng(0))


def test_the_nine_arms_have_the_papers_numbers():
    order = [Scenario(e, w).number for w in WORDS for e in EXECUTIONS]
    assert order == list(range(1, 10))


def test_partial_feedback_says_passed_although_a_hidden_test_fails():
    assert execution_text(FAILS_LAST, NAMES, "none") is None
    assert execution_text(FAILS_LAST, NAMES, "partial") == PASSED_ALL
    assert execution_text(FAILS_LAST, NAMES, "full") == "TEST_D\nBoom\n"
    assert not FAILS_LAST.passed


def test_a_program_that_does_not_load_has_one_error_for_all():
    record = Record(dict.fromkeys(NAMES, ("fail", "Bad")), "load", "Bad")
    assert execution_text(record, NAMES, "partial") == "ALL\nBad\n"


def test_long_feedback_is_cut_to_five_lines_on_either_side():
    lines = [f"{n} " + "x" * 400 for n in range(40)]
    front, rear = cut("\n".join(lines)).split("\n...\n")
    assert front == "\n".join(lines[:5])[:2000]
    assert rear == "\n".join(lines[-5:])[-4000:]
    few = cut("\n".join("y" * 3000 for _ in range(4)))
    assert [len(part) for part in few.split("\n...\n")] == [2000, 4000]
    assert cut("z" * 7999) == "z" * 7999


def test_words_are_cut_at_rules_gaps_and_code():
    assert cut_words("Mind it.\n---\nmore", expert=False) == "Mind it."
    assert cut_words("Mind it.\n\n\nmore", expert=False) == "Mind it."
    assert cut_words("```python\nx\n```", expert=True) is None
    assert "```" in cut_words("See ```x```.\n```\ny\n```", expert=False)


def test_a_request_can_be_taken_apart_again():
    said = Feedback("No syntax errors", "TEST_A\n# Feedback\nfalse", "Mind line 2.")
    (message,) = refine_request("Add\n# two", "x = '# Tests'\n", said)
    found = sections(message["content"])
    assert found["Problem"] == "Add\n# two"
    assert found["Compilation"] == "No syntax errors"
    (message,) = refine_request("Add", "x", Feedback("Bad"))
    assert set(sections(message["content"])) == {"Problem", "Previous program", "Compilation"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    self.assertEqual(f([]), 0)\nAssertionError: 1 != 0",
         "When I call f([]) I get 1, but it should be 0. It is one too large."
         " It happens when there is nothing in the input."),
        ("    self.assertEqual(f([1]), [2])\nAssertionError: Lists differ: [1] != [2]",
         "When I call f([1]) I get Lists differ: [1], but it should be [2]."),
        ("NameError: name 're' is not defined", "It breaks: it does not know what re is."),
        ("The test does not come to an end.", None),
    ],
)  # fmt: skip
def test_a_layman_puts_failures_plainly(text, words):
    said = novice_words(None, {"test": text})
    assert words is None or said == words
    assert said


def test_a_layman_sees_nothing_where_nothing_is_shown():
    assert novice_words(None, {}) is None
    assert "around line 1" in novice_words('  File "solution.py", line 1\nSyntaxError: no', {})


REFERENCE = "import re\n\ndef f(xs):\n    if not xs:\n        return 0\n    return re.sub(xs, 2)\n"


@pytest.mark.parametrize(
    ("code", "part"),
    [
        (REFERENCE.replace("import re\n", ""), "re is used but is not imported"),
        (REFERENCE.replace("2", "3"), "Line 6: look at the numbers in this statement"),
        (REFERENCE.replace("    if not xs:\n        return 0\n", ""), "a case is not dealt with"),
        (REFERENCE.replace("sub", "match"), "Line 6: this statement computes something else"),
        (REFERENCE.replace("xs):", "xs)"), "Line 3: the syntax"),
        (REFERENCE, "structure is sound"),
        ("x = 1", "this step should be"),
        ("", "Line 1"),
    ],
)
def test_an_expert_names_place_and_kind_and_no_code(code, part):
    said = expert_words(code, REFERENCE)
    assert part in said
    assert leaked(said, REFERENCE, code) == 0


def test_comparisons_are_told_apart():
    right = "def f(x):\n    return x > 1\n"
    assert "border case" in expert_words("def f(x):\n    return x >= 1\n", right)
    assert "wrong way" in expert_words("def f(x):\n    return x < 1\n", right)
    assert "wrong thing" in expert_words("def f(x):\n    return x == 1\n", right)


def test_a_leak_is_measured():
    right = "def f(x):\n    return x * x + 1\n"
    assert leaked(f"Write this: {right}", right, "") == 1
    assert leaked("Just return x * x + 1", right, "return x * x + 1") == 0
    assert leaked("anything", "", "") == 0


class Teacher:
    def __init__(self, text):
        self.text, self.asked = text, []

    async def __call__(self, request):
        self.asked.append(request)
        if isinstance(self.text, Exception):
            raise self.text
        return Generation((self.text,))


def test_only_the_expert_is_shown_the_reference_and_a_layman_is_not_asked_in_vain():
    for words in ("novice", "expert"):
        teacher = Teacher("Mind line 3.\n```python\nx\n```")
        speak = taught(PROBLEM, Scenario("full", words), teacher, Rng(0))
        blind = Feedback("No syntax errors", PASSED_ALL)
        seen = Feedback("No syntax errors", "TEST_A\nBoom")
        first = asyncio.run(speak("x = 1", blind, FAILS_LAST))
        assert (first is None) == (words == "novice")
        assert asyncio.run(speak("x = 1", seen, FAILS_LAST)).startswith("Mind line 3.")
        told = str([request.prompt for request in teacher.asked])
        assert ("total = total + x" in told) == (words == "expert")
        assert len(teacher.asked) == (1 if words == "novice" else 2)
    assert (
        teacher_request("novice", "p", "c", Feedback(), "SECRET")[1]["content"].count("SECRET") == 0
    )


def test_a_teacher_that_fails_is_not_the_subjects_fault():
    speak = taught(PROBLEM, Scenario("full", "expert"), Teacher(ValueError("down")), Rng(0))
    with pytest.raises(UnitError, match="The teacher failed") as caught:
        asyncio.run(speak("x = 1", Feedback("No syntax errors"), FAILS_LAST))
    assert caught.value.kind == "teacher"
