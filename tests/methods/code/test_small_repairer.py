import numpy as np
import pytest

from equipoise.core import Request, Rng, UsageError
from equipoise.kit.language.talk import converse
from equipoise.kit.worlds.small_problems import problems, spoilt
from equipoise.methods.code import read_program
from equipoise.methods.code._feedback import Feedback, first_request, refine_request
from equipoise.methods.code.conversational_code import ConversationalCode
from equipoise.methods.code.small_repairer import SmallRepairer, ways_back


def test_every_single_fault_has_a_way_back():
    for seed, problem in enumerate(problems()):
        code, (kind,) = spoilt(problem.solution, np.random.default_rng(seed), 1)
        back = [change for change in ways_back(code) if change.kind == kind]
        texts = {"".join(change.code.split()) for change in back}
        assert "".join(problem.solution.split()) in texts, (problem.name, kind)


def test_it_answers_the_same_to_the_same_and_knows_nothing_of_its_own():
    subject = SmallRepairer(7).load(Rng(0))
    said = Feedback("No syntax errors", None, "Line 2: look at the numbers, one is too large.")
    ask = refine_request("P", "def f(x):\n    return x + 3\n", said)
    one, two = subject.generate([Request(ask, seed=1), Request(ask, seed=2)])
    assert one.text == two.text
    first = subject.generate([Request(first_request("P"))])[0].text
    assert read_program(first).fault == "no_block"


def test_more_skill_solves_more():
    task = ConversationalCode(problems=40, execution="none", words="expert", turns=6)
    units = list(task.units(Rng(5)))
    solved = [
        np.mean([o.scores["solved"] for o in converse(task, subject, units, Rng(0))])
        for subject in (SmallRepairer(skill).load(Rng(0)) for skill in (1, 6, 12))
    ]
    assert solved[0] < solved[1] < solved[2]


def test_it_survives_any_program():
    subject = SmallRepairer(12).load(Rng(0))
    for code in ("", "x = (", "\0", "def f():\n    pass\n", "import math\n", "(" * 3000):
        for words in (None, "Line 9: look at the comparison.", "re is used but is not imported"):
            said = Feedback("SyntaxError: line 7", "NameError: name 'q' is not defined", words)
            ask = refine_request("P", code, said)
            assert subject.generate([Request(ask)])[0].text


def test_skills_are_from_1_to_12():
    with pytest.raises(UsageError, match="skill must be an integer from 1 to 12, got 13"):
        SmallRepairer(13)
