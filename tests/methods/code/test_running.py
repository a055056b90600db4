import pytest

from equipoise.core import UnitError
from equipoise.kit.sandbox import Limits, isolation_level
from equipoise.methods.code import Suite, run_tests

TESTS = """
import unittest
class TestCases(unittest.TestCase):
    def test_b(self):
        self.assertEqual(task_func(2), 4)
    def test_a(self):
        self.assertEqual(task_func(3), 9)
"""
SUITE = Suite("unittest", TESTS, "task_func", names=("test_b", "test_a"))
CHECK = Suite("check", "def check(f):\n    assert f(2) == 4\n", "f", names=("check",))
ASSERTS = Suite("asserts", "", "f", ("assert f(2) == 4", "assert f(3) == 9"), ("test_1", "test_2"))
GOOD = "def task_func(x):\n    return x * x\n"
HEAD = "def task_func(x):\n"


def statuses(code, suite=SUITE, **given):
    return {name: status for name, (status, _) in run_tests(code, suite, **given).tests.items()}


def test_right_and_wrong_are_told_apart_test_by_test():
    assert run_tests(GOOD, SUITE).passed
    assert run_tests(GOOD, SUITE).level == isolation_level()
    found = run_tests(HEAD + "    return x + 2\n", SUITE)
    assert not found.passed
    assert statuses(HEAD + "    return x + 2\n") == {"test_b": "pass", "test_a": "fail"}
    assert found.failing()["test_a"].endswith("AssertionError: 5 != 9")


def test_humaneval_and_mbpp_suites():
    for suite in (CHECK, ASSERTS):
        assert run_tests("def f(x):\n    return x * x\n", suite).passed
        assert not run_tests("def f(x):\n    return x\n", suite).passed
        missing = run_tests("def g(x):\n    return x * x\n", suite)
        assert not missing.passed
        assert "NameError" in next(iter(missing.failing().values()))
    assert statuses("def f(x):\n    return x + 2\n", ASSERTS) == {
        "test_1": "pass",
        "test_2": "fail",
    }


FORGERIES = {
    "ends": "    import os\n    os._exit(0)\n",
    "leaves": "    import sys\n    sys.exit(0)\n",
    "skips": "    import unittest\n    raise unittest.SkipTest('no')\n",
    "patches": "    import unittest\n"
    "    unittest.TestCase.assertEqual = lambda *a, **k: None\n    return 0\n",
    "patches the runner": "    import unittest.case\n"
    "    unittest.case._Outcome.testPartExecutor = None\n    return 0\n",
    "patches builtins": "    import builtins\n    builtins.isinstance = lambda *a: True\n"
    "    return 0\n",
    "prints a report": "    print('0' * 32, 'pass 746573745f61 -')\n    return 0\n",
    "writes files": "    open('result.json', 'w').write('{\"passed\": true}')\n    return 0\n",
    "forks": "    import os\n    return x * x if os.fork() == 0 else os._exit(0)\n",
    "reports through frames": """
    import os, sys
    frame = sys._getframe()
    while frame:
        send = frame.f_locals.get("report")
        if send:
            for name in ("test_a", "test_b"):
                send("pass", name, "")
            send("done", "", "")
            os._exit(0)
        frame = frame.f_back
""",
    "makes every test pass": """
    import sys
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "Result":
                type(value)._bad = lambda self, test, error: self.addSuccess(test)
        frame = frame.f_back
""",
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_program_cannot_report_its_own_success(how):
    found = run_tests(HEAD + FORGERIES[how], SUITE)
    assert not found.passed
    assert set(statuses(HEAD + FORGERIES[how]).values()) == {"fail"}


def test_a_program_that_forges_while_it_loads():
    for code in (
        "import os\nos._exit(0)\n",
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n" + HEAD + "    pass\n",
        "import sys\nsys.modules['unittest'] = sys\n" + HEAD + "    return 0\n",
        "class TestCases: pass\n" + HEAD + "    return 0\n",
    ):
        assert not run_tests(code, SUITE).passed


def test_faults_say_what_happened():
    assert run_tests("def task_func(x)\n", SUITE).fault == "load"
    assert run_tests("1 / 0", SUITE).reason.endswith("ZeroDivisionError: division by zero")
    assert run_tests("import os\nos._exit(3)", SUITE).reason.endswith("exit code 3.")
    changed = run_tests(HEAD + FORGERIES["patches"], SUITE)
    assert changed.fault == "tampered"
    assert "TestCase.assertEqual" in changed.reason


def test_hanging_programs_end_and_the_other_tests_are_run():
    code = HEAD + "    while x == 2:\n        pass\n    return x * x\n"
    assert statuses(code, seconds=0.3) == {"test_b": "timeout", "test_a": "pass"}
    stubborn = HEAD + "    while True:\n        try:\n            while True: pass\n"
    stubborn += "        except BaseException: pass\n"
    limits = Limits(cpu=1.5)
    assert set(statuses(stubborn, seconds=0.3, limits=limits).values()) == {"timeout"}
    assert run_tests("while True: pass", SUITE, seconds=0.3).fault == "cpu"


def test_binary_output_is_no_obstacle():
    code = "import os\n" + HEAD
    code += "    for place in range(64):\n        try:\n            os.write(place, bytes(256))\n"
    code += "        except OSError:\n            pass\n    return x * x\n"
    assert run_tests(code, SUITE).passed


def test_memory_is_limited():
    code = HEAD + "    return len(bytearray(1 << 34))\n"
    assert "MemoryError" in run_tests(code, SUITE).failing()["test_a"]


def test_tracebacks_are_cleaned():
    code = HEAD + "    return [object()][x]\n"
    text = run_tests(code, SUITE).failing()["test_b"]
    assert "unittest" not in text
    assert "harness" not in text
    assert 'File "solution.py", line 2, in task_func' in text
    assert "return [object()][x]" in text
    same = HEAD + "    raise ValueError(repr(object()))\n"
    assert "0x..." in run_tests(same, SUITE).failing()["test_b"]


def test_deep_recursion_is_cut():
    text = run_tests(HEAD + "    return task_func(x)\n", SUITE).failing()["test_a"]
    assert text.count("solution.py") <= 12
    assert text.splitlines()[-1].startswith("RecursionError")


def test_fixtures_subtests_and_skips_by_decorator():
    source = """
import unittest
class TestCases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.two = 2
    def test_sub(self):
        for x in (1, 2):
            with self.subTest(x=x):
                self.assertEqual(task_func(x), x * self.two)
    @unittest.skip("not here")
    def test_skipped(self):
        self.fail()
"""
    suite = Suite("unittest", source, "task_func", names=("test_sub", "test_skipped"))
    assert statuses(GOOD, suite) == {"test_sub": "fail", "test_skipped": "pass"}
    assert run_tests(HEAD + "    return 2 * x\n", suite).passed


def test_test_code_that_cannot_run_is_not_the_programs_fault():
    with pytest.raises(UnitError, match=r"tests cannot run: .*not_there"):
        run_tests(GOOD, Suite("unittest", "import not_there\n", "task_func"))
