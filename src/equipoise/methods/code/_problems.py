"""Programming problems: generated, or from files of BigCodeBench, HumanEval and MBPP.

Nothing in a file is run here: test classes and asserts are read as syntax.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from equipoise.core import Rng, Unit, UsageError
from equipoise.kit.data import read_rows
from equipoise.kit.worlds.small_problems import ENTRY, problems, spoilt
from equipoise.methods.code._reading import fenced
from equipoise.methods.code._running import Suite

Row = Mapping[str, Any]

COLUMNS = {
    "bigcodebench": ("task_id", "instruct_prompt", "canonical_solution", "test", "entry_point"),
    "humaneval": ("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    "mbpp": ("task_id", "code", "test_list"),
}
FORMATS = ("auto", *COLUMNS)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem as a unit carries it.

    Parameters
    ----------
    id
        As in the file.
    prompt
        What is asked.
    header
        What is put before every refined program, such as imports.
    suite
        Its tests.
    reference
        A right program.
    initial
        The program of turn 0; None if the subject writes it.
    cluster
        Problems of one cluster are not independent.
    """

    id: str
    prompt: str
    header: str
    suite: Suite
    reference: str
    initial: str | None = None
    cluster: str | None = None

    def unit(self) -> Unit:
        """Return the unit; tests and reference are its target, which no subject sees."""
        return Unit(
            self.id,
            content={"prompt": self.prompt, "header": self.header, "initial": self.initial},
            target={"suite": self.suite.as_json(), "reference": self.reference},
            cluster=self.cluster,
        )

    @classmethod
    def of(cls, unit: Unit) -> Problem:
        """Return the problem of a unit."""
        content, target = unit.content, unit.target
        return cls(
            unit.id,
            content["prompt"],
            content["header"],
            Suite.from_json(target["suite"]),
            target["reference"],
            content["initial"],
            unit.cluster,
        )


def generated(count: int, variants: int, faults: int, rng: Rng) -> Iterator[Problem]:
    """Yield small problems with spoilt initial programs, of 0 to ``faults`` faults, evenly."""
    for problem in problems()[:count]:
        for variant in range(variants):
            draws = rng.child("small_problems", problem.name, variant).numpy()
            code, _ = spoilt(problem.solution, draws, int(draws.integers(faults + 1)))
            name = f"{problem.name}-{variant}" if variants > 1 else problem.name
            yield Problem(
                # The draw is told apart by its faults and by the program itself.
                f"{name}-{_short(code)}",
                problem.ask,
                "",
                Suite("unittest", problem.tests, ENTRY, names=problem.names),
                problem.solution,
                code,
                problem.name if variants > 1 else None,
            )


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_problems(
    data: str, form: str, limit: int | None, initial: Mapping[str, str], who: str
) -> list[Problem]:
    """Return the problems of a file.

    Parameters
    ----------
    data
        Path of a JSONL or Parquet file (``.gz`` too), or ``hf:NAME_OR_FOLDER``.
    form
        One of `FORMATS`; ``auto`` goes by the columns.
    limit
        Read only the first so many rows.
    initial
        Programs of turn 0, by task.
    who
        Part, for messages.

    Raises
    ------
    UsageError
        If a column is missing, is of another type, or holds what cannot be read.
    """
    rows = read_rows(data, limit=limit)
    if form == "auto":
        form = _form_of(data, rows[0], who)
    for index, row in enumerate(rows):
        lack = [name for name in COLUMNS[form] if row.get(name) is None]
        if lack:
            raise UsageError(
                f'{who}: {data}, row {index + 1}: there is no "{lack[0]}", which every row of '
                f"{form} needs; there are: {', '.join(map(str, row))}."
            )
    make = _MAKERS[form]
    found = []
    for index, row in enumerate(rows):
        try:
            problem = make(row)
            ast.parse(problem.reference)
        except (_Wrong, SyntaxError, ValueError) as error:
            raise UsageError(
                f"{who}: {data}, row {index + 1} ({row['task_id']}): {_told(error)}."
            ) from error
        found.append(_started(problem, initial))
    if len({each.id for each in found}) < len(found):
        raise UsageError(f"{who}: {data}: a task_id stands there twice; each needs its own.")
    return found


def _started(problem: Problem, initial: Mapping[str, str]) -> Problem:
    return replace(problem, initial=initial[problem.id]) if problem.id in initial else problem


def read_initial(data: str, who: str) -> dict[str, str]:
    """Return the programs of turn 0 by task, from a file with ``task_id`` and ``solution``."""
    rows = read_rows(data, columns=("task_id", "solution"))
    found = {str(row["task_id"]): row["solution"] for row in rows}
    if not all(isinstance(each, str) for each in found.values()):
        raise UsageError(f'{who}: {data}: "solution" must be text, a program.')
    return found


class _Wrong(Exception):
    """What is wrong with a row, without an end mark."""


def _told(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"its code cannot be read as Python ({error.msg})"
    return " ".join(str(error).split()).rstrip(".")


def _form_of(data: str, row: Row, who: str) -> str:
    for form, columns in COLUMNS.items():
        if all(name in row for name in columns):
            return form
    known = "; ".join(f"{form}: {', '.join(columns)}" for form, columns in COLUMNS.items())
    raise UsageError(
        f"{who}: {data} is in none of the known formats ({known}); it has: "
        f"{', '.join(map(str, row))}."
    )


def _text(row: Row, *names: str) -> str:
    for name in names:
        value = row.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise _Wrong(f'"{name}" must be text, got {type(value).__name__}')
            return value
    raise _Wrong(f'there is no "{names[0]}"')


def _before(code: str, entry: str) -> str:
    """Return what stands before a function: imports, constants, helpers."""
    head, found, _ = code.partition(f"def {entry}(")
    return head if found else ""


def _bigcodebench(row: Row) -> Problem:
    entry, test = _text(row, "entry_point"), _text(row, "test")
    start = _text(row, "code_prompt", "complete_prompt", "instruct_prompt")
    whole = start if f"def {entry}(" in start else ""
    names = methods_of(test)
    if not names:
        raise _Wrong('"test" holds no class of unittest tests')
    return Problem(
        str(row["task_id"]),
        _text(row, "instruct_prompt"),
        _before(start, entry),
        Suite("unittest", test, entry, names=tuple(names)),
        whole + _text(row, "canonical_solution"),
    )


def _humaneval(row: Row) -> Problem:
    entry, test, prompt = (_text(row, name) for name in ("entry_point", "test", "prompt"))
    tree = ast.parse(test)
    if not any(isinstance(n, ast.FunctionDef) and n.name == "check" for n in tree.body):
        raise _Wrong('"test" holds no function check(candidate)')
    return Problem(
        str(row["task_id"]),
        f"Complete this function.\n\n{fenced(prompt)}",
        _before(prompt, entry),
        Suite("check", test, entry, names=("check",)),
        prompt + _text(row, "canonical_solution"),
    )


def _mbpp(row: Row) -> Problem:
    code = _text(row, "code")
    lists: list[Any] = [row.get("test_list"), row.get("challenge_test_list") or []]
    if not all(isinstance(each, (list, tuple)) for each in lists) or not row["test_list"]:
        raise _Wrong('"test_list" must be a list of assert statements')
    asserts = tuple(str(line) for each in lists for line in each)
    imports = row.get("test_imports") or []
    setup = "\n".join([*map(str, imports), str(row.get("test_setup_code") or "")])
    trees = [ast.parse(line) for line in asserts]
    called = {
        node.func.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    made = [n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)]
    entry = next((name for name in reversed(made) if name in called), None)
    if entry is None:
        raise _Wrong('no function of "code" is called in "test_list"')
    shown = f"It must pass this test:\n\n{fenced(asserts[0])}"
    return Problem(
        str(row["task_id"]),
        f"{_text(row, 'text', 'prompt')}\n\n{shown}",
        "",
        Suite(
            "asserts", setup, entry, asserts, tuple(f"test_{n + 1}" for n in range(len(asserts)))
        ),
        code,
    )


_MAKERS: dict[str, Callable[[Row], Problem]] = {
    "bigcodebench": _bigcodebench,
    "humaneval": _humaneval,
    "mbpp": _mbpp,
}


def methods_of(source: str) -> list[str]:
    """Return the names of the test methods of all classes in a source, in order.

    Examples
    --------
    >>> methods_of("class T(C):\\n  def setUp(self): pass\\n  def test_b(self): pass")
    ['test_b']
    """
    return [
        node.name
        for cls in ast.parse(source).body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name[:4] == "test"
    ]
