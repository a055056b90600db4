r"""Small programming problems over lists, texts and dates, their tests, and programs gone wrong.

`problems` makes about sixty: twenty-one kinds with three settings each. Each has a right program
and a unittest suite of six methods whose expected values that program gave; the first three are
those that partial feedback shows. `spoilt` breaks a program in known ways.

>>> found = problems()
>>> len(found), found[0].name
(63, 'sum_above_2')
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ENTRY = "task_func"
FAULTS = ("off_by_one", "comparison", "missing_import", "syntax", "edge_case")


@dataclass(frozen=True, slots=True)
class SmallProblem:
    """A problem with its right program and its tests.

    Parameters
    ----------
    name
        Kind and setting.
    ask
        What to write.
    solution
        A right program.
    tests
        Source of a `unittest.TestCase` class named ``TestCases``.
    names
        Its methods, in order.
    """

    name: str
    ask: str
    solution: str
    tests: str
    names: tuple[str, ...]


# A kind: name, settings of K, the question, the program, arguments of six calls. The third and
# the last are edge cases, so that one is shown by partial feedback and one is not.
_KINDS: tuple[tuple[str, tuple[Any, ...], str, str, str], ...] = (
    (
        "sum_above", (2, 5, 10), "return the sum of the numbers in a list that are above K",
        "def task_func(xs):\n total = 0\n for x in xs:\n  if x > K:\n   total = total + x\n"
        " return total",
        "[[1,K,K+1]], [[K+3,K-1,2*K]], [[]], [[K,K,K]], [[K+1]], [[-4,K+2,0,K+1]]",
    ),
    (
        "first_above", (1, 4, 9),
        "return the position of the first number that is at least K, or -1 if there is none",
        "def task_func(xs):\n for i in range(0, len(xs)):\n  if xs[i] >= K:\n   return i\n"
        " return -1",
        "[[0,K+1,K]], [[K,1,2]], [[]], [[K-1,K-1,K]], [[K-1]], [[0,0,0,K+5]]",
    ),
    (
        "mean_of_last", (2, 3, 4),
        "return the mean of the last K numbers of a list, rounded down to an integer;"
        " 0 for an empty list",
        "import math\ndef task_func(xs):\n if not xs:\n  return 0\n tail = xs[-K:]\n"
        " return math.floor(sum(tail) / len(tail))",
        "[[1,2,3,4,5]], [[10,20,31]], [[]], [[7]], [[9,1,1,1,1,6]], [[-3,-4,-5,8]]",
    ),
    (
        "every_nth", (2, 3, 4), "return every K-th item of a list, beginning with the first",
        "def task_func(xs):\n out = []\n for i in range(0, len(xs)):\n  if i % K == 0:\n"
        "   out.append(xs[i])\n return out",
        "[[1,2,3,4,5,6,7]], [[5,4,3]], [[]], [[0]], [[8,8,9,9,7,7,6,6,5]], [list(range(12))]",
    ),
    (
        "count_long_words", (3, 4, 6), "return how many words of a text have more than K letters",
        "def task_func(text):\n n = 0\n for word in text.split():\n  if len(word) > K:\n"
        "   n = n + 1\n return n",
        "['a bb ccc dddd eeeeee'], ['banana split today'], [''], ['abc abcd abcdef abcdefg'],"
        " ['one'], ['  spaced   outwards words ']",
    ),
    (
        "clip_words", (1, 2, 3),
        "shorten every word of a text to its first K letters and join them with single blanks;"
        " an empty text gives '-'",
        "def task_func(text):\n if not text:\n  return '-'\n parts = []\n"
        " for word in text.split():\n  parts.append(word[0:K])\n return ' '.join(parts)",
        "['green apple pie'], ['xy'], [''], ['a bcd efgh'], ['one  two'], ['zebra']",
    ),
    (
        "digit_sum", (0, 1, 7), "return the sum of the digits in a text, plus K",
        "import re\ndef task_func(text):\n total = K\n for digit in re.findall('[0-9]', text):\n"
        "  total = total + int(digit)\n return total",
        "['a1b2'], ['99 balloons'], [''], ['no digits'], ['2025-04-24'], ['x0y0']",
    ),
    (
        "days_between", (0, 1, 2),
        "return how many days lie between two dates written YYYY-MM-DD, the later given second,"
        " plus K",
        "import datetime\ndef task_func(first, last):\n a = datetime.date.fromisoformat(first)\n"
        " b = datetime.date.fromisoformat(last)\n return (b - a).days + K",
        "['2024-01-01','2024-01-31'], ['2023-12-30','2024-01-02'], ['2024-02-28','2024-03-01'],"
        " ['2024-05-05','2024-05-05'], ['2023-01-01','2024-01-01'], ['2023-02-28','2023-03-01']",
    ),
    (
        "add_days", (1, 7, 30),
        "return the date K days after a date written YYYY-MM-DD, so written",
        "import datetime\ndef task_func(day):\n date = datetime.date.fromisoformat(day)\n"
        " later = date + datetime.timedelta(days=K)\n return later.isoformat()",
        "['2024-01-01'], ['2023-12-30'], ['2024-02-28'], ['2023-02-28'], ['2024-06-15'],"
        " ['2024-12-31']",
    ),
    (
        "late_dates", (5, 10, 11), "return those dates, written YYYY-MM-DD, whose month is after K",
        "def task_func(days):\n out = []\n for day in days:\n  month = int(day[5:7])\n"
        "  if month > K:\n   out.append(day)\n return out",
        "[['2024-05-01','2024-11-02','2024-12-01']], [['2023-10-10','2023-12-09']], [[]],"
        " [['2020-01-31','2020-11-30']], [['2021-06-06','2021-12-12','2021-10-01']],"
        " [['2024-12-31']]",
    ),
    (
        "window_sums", (2, 3, 4), "return the sums of all runs of K neighbours in a list",
        "def task_func(xs):\n sums = []\n for i in range(0, len(xs) - K + 1):\n"
        "  sums.append(sum(xs[i:i + K]))\n return sums",
        "[[1,2,3,4,5]], [[0,0,1,0,0,2]], [[]], [[1]], [[5,5,5,5]], [[1,-1,1,-1,1,-1]]",
    ),
    (
        "largest_gap", (0, 1, 3),
        "return the largest step between neighbours in a list, but at least K;"
        " K if there are fewer than two numbers",
        "def task_func(xs):\n best = K\n for i in range(1, len(xs)):\n"
        "  gap = abs(xs[i] - xs[i - 1])\n  if gap > best:\n   best = gap\n return best",
        "[[1,4,2,9]], [[10,10,11]], [[]], [[5]], [[3,-3]], [[9,1,1,1,1]]",
    ),
    (
        "common_items", (1, 2, 3), "return the sorted items that stand in a list at least K times",
        "from collections import Counter\ndef task_func(xs):\n counts = Counter(xs)\n out = []\n"
        " for item in sorted(counts):\n  if counts[item] >= K:\n   out.append(item)\n return out",
        "[[1,1,2,3,3,3]], [['b','a','b','a','b']], [[]], [[7]], [[5,5,5,5,4,4,4,3,3]], [[2,1,2,1]]",
    ),
    (
        "run_length", (1, 2, 3),
        "return the length of the longest run of equal neighbours in a list if it is at least K,"
        " else 0",
        "def task_func(xs):\n if not xs:\n  return 0\n best = 1\n run = 1\n"
        " for i in range(1, len(xs)):\n  if xs[i] == xs[i - 1]:\n   run = run + 1\n  else:\n"
        "   run = 1\n  best = max(best, run)\n if best >= K:\n  return best\n return 0",
        "[[1,1,2,2,2]], [['a','b','c']], [[]], [[4,4]], [[1,2,2,2,2,1,1]], [[9]]",
    ),
    (
        "nearest_to", (0, 5, 8), "return the number of a list nearest to K, the first of equals;"
        " None for an empty list",
        "def task_func(xs):\n if not xs:\n  return None\n best = xs[0]\n for x in xs:\n"
        "  if abs(x - K) < abs(best - K):\n   best = x\n return best",
        "[[1,4,9]], [[K-2,K+2]], [[]], [[K+1,K,K-1]], [[100,-100]], [[K+2,K-2,K+3]]",
    ),
    (
        "shift_letters", (1, 2, 3),
        "move every small letter of a text K places on in the alphabet, from z on to a;"
        " leave all else",
        "import string\ndef task_func(text):\n out = ''\n for c in text:\n"
        "  if c in string.ascii_lowercase:\n   place = (ord(c) - 97 + K) % 26\n"
        "   c = chr(place + 97)\n  out = out + c\n return out",
        "['abc'], ['xyz!'], [''], ['Hello, World'], ['zzz'], ['a b c']",
    ),
    (
        "drop_ends", (1, 2, 3),
        "return a list without its K smallest and K largest numbers, sorted;"
        " an empty list if there are not more than that",
        "def task_func(xs):\n if len(xs) <= 2 * K:\n  return []\n ordered = sorted(xs)\n"
        " return ordered[K:len(ordered) - K]",
        "[[5,1,4,2,3,9,8]], [[1,2,3,4,5,6,7,8]], [[]], [[3,1,2]], [[2,2,2,2,2,2,2,1]],"
        " [list(range(2*K))]",
    ),
    (
        "root_sum", (1, 2, 5),
        "return the integer part of the square root of the sum of a list and K;"
        " -1 if that sum is below 0",
        "import math\ndef task_func(xs):\n total = sum(xs) + K\n if total < 0:\n  return -1\n"
        " return math.isqrt(total)",
        "[[3,4,8]], [[-K]], [[-50]], [[100,20,1]], [[2]], [[-K-1]]",
    ),
    (
        "weekday_count", (0, 2, 5),
        "return how many of the dates, written YYYY-MM-DD, are on weekday K, Monday being 0",
        "import datetime\ndef task_func(days):\n n = 0\n for day in days:\n"
        "  date = datetime.date.fromisoformat(day)\n  if date.weekday() == K:\n   n = n + 1\n"
        " return n",
        "[['2024-01-01','2024-01-03','2024-01-06','2024-01-10']], [['2024-04-24','2024-04-22']],"
        " [[]],"
        " [['2024-02-29','2024-03-02','2024-03-04','2024-03-06']],"
        " [['2023-07-03','2023-07-05','2023-07-08']], [['2024-12-28','2024-12-30','2025-01-01']]",
    ),
    (
        "vowel_words", (1, 2, 3), "return the words of a text with at least K vowels, in order",
        "def task_func(text):\n out = []\n for word in text.split():\n  n = 0\n  for c in word:\n"
        "   if c in 'aeiou':\n    n = n + 1\n  if n >= K:\n   out.append(word)\n return out",
        "['a green boat'], ['why try rhythm'], [''], ['banana apple fig'], ['aeiou'],"
        " ['queue up one by one']",
    ),
    (
        "pair_count", (3, 6, 10), "return how many pairs of places in a list have numbers that sum"
        " to less than K",
        "def task_func(xs):\n n = 0\n for i in range(0, len(xs)):\n"
        "  for j in range(i + 1, len(xs)):\n   if xs[i] + xs[j] < K:\n    n = n + 1\n return n",
        "[[1,2,3]], [[K,0,0]], [[]], [[1]], [[5,1,4,2,0]], [[K-1,1,-1]]",
    ),
)  # fmt: skip


@functools.cache
def problems() -> tuple[SmallProblem, ...]:
    """Return all problems, the first setting of every kind first."""
    width = max(len(settings) for _, settings, *_ in _KINDS)
    return tuple(
        _problem(name, settings[place], ask, code, calls)
        for place in range(width)
        for name, settings, ask, code, calls in _KINDS
    )


def _problem(name: str, k: Any, ask: str, code: str, calls: str) -> SmallProblem:
    solution = ast.unparse(ast.parse(code.replace("K", str(k)))) + "\n"
    scope: dict[str, Any] = {}
    exec(compile(solution, name, "exec"), scope)  # noqa: S102 - this file's own programs
    inputs = eval(f"[{calls}]", {"K": k, "list": list, "range": range})  # noqa: S307
    lines = ["import unittest", "", "class TestCases(unittest.TestCase):"]
    names = []
    for number, given in enumerate(inputs, 1):
        names.append(f"test_case_{number}")
        call = f"{ENTRY}({', '.join(map(repr, given))})"
        lines += [
            f"    def {names[-1]}(self):",
            f"        self.assertEqual({call}, {scope[ENTRY](*given)!r})",
        ]
    head = solution.splitlines()[next(_defs(solution))].removeprefix("def ").rstrip(":")
    text = f"Write a function {head} that does this: {ask.replace('K', str(k))}."
    return SmallProblem(f"{name}_{k}", text, solution, "\n".join(lines) + "\n", tuple(names))


def _defs(code: str) -> Iterator[int]:
    return (i for i, line in enumerate(code.splitlines()) if line.startswith("def "))


@dataclass(frozen=True, slots=True)
class Change:
    """A program with one small change.

    Parameters
    ----------
    kind
        One of `FAULTS`.
    line
        Where, from 1, in the program before.
    code
        The program after.
    step
        By how much a number changed; of a comparison, 1 if it points the other way.
    """

    kind: str
    line: int
    code: str
    step: int = 0


_NEXT_TO = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}


def swaps(code: str) -> list[Change]:
    """Return all programs one wrong comparison or one off-by-one away; each is its own way back.

    Raises
    ------
    SyntaxError
        If the program is none.

    Examples
    --------
    >>> [(c.kind, c.code) for c in swaps("x = 1")]
    [('off_by_one', 'x = 2\\n'), ('off_by_one', 'x = 0\\n')]
    """
    tree = folded(ast.parse(code))
    found: list[Change] = []

    def note(kind: str, node: ast.expr, step: int = 0) -> None:
        found.append(Change(kind, node.lineno, ast.unparse(tree) + "\n", step))

    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            (before,) = node.ops
            for turned, other in enumerate(_NEXT_TO.get(type(before), ())):
                node.ops = [other()]
                note("comparison", node, turned)
            node.ops = [before]
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            value = node.value
            for step in (1, -1):
                node.value = value + step
                note("off_by_one", node, step)
            node.value = value
    return found


class _Folds(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        value = node.operand
        number = value.value if isinstance(value, ast.Constant) else None
        if isinstance(node.op, ast.USub) and type(number) is int:
            return ast.copy_location(ast.Constant(-number), node)
        return self.generic_visit(node)


def folded(tree: ast.Module) -> ast.Module:
    """Return a tree whose negative numbers are numbers, and not minus a number."""
    found: ast.Module = _Folds().visit(tree)
    return found


def breaks(code: str) -> list[Change]:
    """Return all programs that lack an import, a guard, a colon or a closing bracket."""
    found = []
    lines = code.splitlines()
    for i, line in enumerate(lines):
        without = "\n".join(lines[:i] + lines[i + 1 :]) + "\n"
        if line.startswith(("import ", "from ")):
            found.append(Change("missing_import", i + 1, without))
        if line.startswith("    if not ") and lines[i + 1].startswith("        return "):
            rest = "\n".join(lines[:i] + lines[i + 2 :]) + "\n"
            found.append(Change("edge_case", i + 1, rest))
        for end in (":", ")"):
            if line.endswith(end):
                slip = "\n".join([*lines[:i], line[:-1], *lines[i + 1 :]]) + "\n"
                found.append(Change("syntax", i + 1, slip))
    return found


def spoilt(code: str, draws: np.random.Generator, faults: int) -> tuple[str, tuple[str, ...]]:
    """Return a program with so many faults, and their kinds; each kind is as likely as it can be.

    A syntax slip comes last, since nothing else can be changed after it.

    Examples
    --------
    >>> code = problems()[0].solution
    >>> spoilt(code, np.random.default_rng(0), 0) == (code, ())
    True
    """
    kinds: list[str] = []
    for number in range(faults):
        choices = {kind: [c for c in _changes(code) if c.kind == kind] for kind in FAULTS}
        open_ = [k for k in FAULTS if choices[k] and not (k == "syntax" and number + 1 < faults)]
        kind = str(draws.choice(open_))
        code = _pick(choices[kind], draws).code
        kinds.append(kind)
    return code, tuple(kinds)


def _changes(code: str) -> list[Change]:
    return swaps(code) + breaks(code)


def _pick(changes: Sequence[Change], draws: np.random.Generator) -> Change:
    return changes[int(draws.integers(len(changes)))]
