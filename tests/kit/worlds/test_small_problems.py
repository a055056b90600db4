import ast
import unittest

import numpy as np
import pytest

from equipoise.kit.worlds.small_problems import (
    ENTRY,
    FAULTS,
    breaks,
    folded,
    problems,
    spoilt,
    swaps,
)


def outcome(code, tests):
    """Run our own programs with the standard library's own runner."""
    scope = {"__name__": "tests"}
    exec(code, scope)
    exec(tests, scope)
    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(scope["TestCases"]).run(found)
    return found


def test_every_solution_passes_its_own_suite():
    for problem in problems():
        found = outcome(problem.solution, problem.tests)
        assert found.wasSuccessful(), problem.name
        assert found.testsRun == 6 == len(problem.names)


def test_names_questions_and_solutions_differ():
    for part in ("name", "ask", "solution", "tests"):
        assert len({getattr(p, part) for p in problems()}) == 63


def test_no_suite_accepts_a_constant():
    for problem in problems():
        for value in (0, [], "", None, -1):
            code = f"def {ENTRY}(*given):\n    return {value!r}\n"
            assert not outcome(code, problem.tests).wasSuccessful(), problem.name


def test_a_swap_is_its_own_way_back():
    for problem in problems():
        for change in swaps(problem.solution):
            assert change.code != problem.solution
            back = {again.code for again in swaps(change.code)}
            assert ast.unparse(folded(ast.parse(problem.solution))) + "\n" in back


def test_negative_numbers_are_stepped_as_numbers():
    assert {c.code for c in swaps("x = -1")} == {"x = 0\n", "x = -2\n"}


@pytest.mark.parametrize(
    ("kind", "least"), [("missing_import", 12), ("edge_case", 6), ("syntax", 100)]
)
def test_what_is_broken_was_there(kind, least):
    found = [(p, c) for p in problems() for c in breaks(p.solution) if c.kind == kind]
    assert len(found) >= least
    for problem, change in found:
        gone = len(problem.solution) - len(change.code)
        assert gone == 1 if kind == "syntax" else gone > 1
        if kind == "syntax":
            with pytest.raises(SyntaxError):
                ast.parse(change.code)
        else:
            ast.parse(change.code)


def test_spoilt_programs_have_as_many_faults_as_asked_and_a_slip_comes_last():
    seen = set()
    for seed in range(60):
        problem = problems()[seed]
        code, kinds = spoilt(problem.solution, np.random.default_rng(seed), seed % 4)
        assert len(kinds) == seed % 4
        assert "syntax" not in kinds[:-1]
        assert (code == problem.solution) == (not kinds) or len(kinds) > 1
        seen |= set(kinds)
    assert seen == set(FAULTS)


def test_most_single_faults_are_noticed():
    missed = 0
    for seed, problem in enumerate(problems()):
        code, (kind,) = spoilt(problem.solution, np.random.default_rng(seed), 1)
        if kind == "syntax":
            continue
        missed += outcome(code, problem.tests).wasSuccessful()
    assert missed <= 5
