"""Words on a program without a language model: what a layman sees, what an expert would point at.

A layman knows what the interpreter and the tests say. An expert knows how a right program is
built, says where this one deviates and in what kind of thing, and writes no code.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from equipoise.kit.worlds.small_problems import folded

_SHOWN = 3  # failures that a layman tells of
_NOTHING = "It happens when there is nothing in the input."


def novice_words(syntax: str | None, failing: Mapping[str, str]) -> str | None:
    """Return what a layman says, or None where no error is to be seen.

    Parameters
    ----------
    syntax
        What compiling said, None if nothing.
    failing
        Name and traceback of the failing tests that are shown.

    Examples
    --------
    >>> text = "self.assertEqual(task_func([1, 2]), 3)\\nAssertionError: 4 != 3"
    >>> novice_words(None, {"test_a": text})
    'When I call task_func([1, 2]) I get 4, but it should be 3. It is one too large.'
    >>> novice_words(None, {}) is None
    True
    """
    if syntax is not None:
        line = _line(syntax)
        where = f" Something is off around line {line}." if line else ""
        return f"The program does not even start: {_lay_error(_last(syntax))}.{where}"
    said = [_lay(text) for text in list(failing.values())[:_SHOWN]]
    return " ".join(dict.fromkeys(said)) or None


def _lay(text: str) -> str:
    call = re.search(r"assertEqual\((\w+\(.*\)), .*\)$", text, re.MULTILINE)
    last = _last(text)
    found = re.fullmatch(r"AssertionError: (.+) != (.+?)(?: : .*)?", last)
    if found is None:
        with_ = f"When I call {call[1]} " if call else ""
        empty = (
            " It happens when there is nothing in the input." if call and _empty(call[1]) else ""
        )
        return f"{with_}{'it' if with_ else 'It'} breaks: {_lay_error(last)}.{empty}"
    got, wanted = found[1], found[2]
    begin = f"When I call {call[1]} I get" if call else "I get"
    hint = _difference(got, wanted)
    if call and _empty(call[1]):
        hint = f"{hint} {_NOTHING}".strip()
    return f"{begin} {got}, but it should be {wanted}.{' ' + hint if hint else ''}"


def _lay_error(last: str) -> str:
    name, _, rest = last.partition(": ")
    lost = re.match(r"name '(\w+)' is not defined", rest)
    if lost:
        return f"it does not know what {lost[1]} is"
    plain = {
        "SyntaxError": "it is not written correctly",
        "IndentationError": "the lines are not set in correctly",
        "IndexError": "it looks for an item beyond the end",
        "ZeroDivisionError": "it divides by zero",
        "KeyError": "it looks for an entry that is not there",
        "ValueError": "it cannot deal with a value",
        "TypeError": "it mixes things that do not go together",
    }
    return plain.get(name, f"it says {name}")


def _difference(got: str, wanted: str) -> str:
    try:
        one, two = ast.literal_eval(got), ast.literal_eval(wanted)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if type(one) is int and type(two) is int:
        size = "one too" if abs(one - two) == 1 else "too"
        return f"It is {size} {'large' if one > two else 'small'}." if one != two else ""
    if isinstance(one, (list, str)) and type(one) is type(two):
        if len(one) != len(two):
            return f"There is too {'much' if len(one) > len(two) else 'little'} in it."
        return "The length is right, but not what is in it."
    return ""


def _empty(call: str) -> bool:
    return bool(re.search(r"\((\[\]|''|\{\}|)\)$", call))


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    found = next((x for x in lines if re.match(r"\w*(Error|Exception|Exit)\b", x)), None)
    return (found or (lines[-1] if lines else "")).strip()


def _line(text: str) -> int | None:
    found = re.findall(r'File "solution\.py", line (\d+)', text)
    return int(found[-1]) if found else None


def expert_words(code: str, reference: str) -> str:
    """Return what an expert would point at: where a program deviates and in what, no code.

    Parameters
    ----------
    code
        The program.
    reference
        A right one.

    Examples
    --------
    >>> expert_words("def f(x):\\n    return x + 1", "def f(x):\\n    return x + 2")
    'Line 2: look at the numbers in this statement, one is too small.'
    """
    try:
        here = folded(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        return (
            f"Line {line}: the syntax is broken here or just before; look at the end of the line."
        )
    there = folded(ast.parse(reference))
    said = [*_imports(here, there), *_statements(here, there)]
    if not said:
        return "The structure is sound; test it on unusual inputs."
    return said[0] if len(said) == 1 else f"{said[0]} There is more to mend after that."


def _imports(here: ast.Module, there: ast.Module) -> Iterator[str]:
    missing = _imported(there) - _imported(here)
    for name in sorted(missing & _used(here)):
        yield f"Top of the file: {name} is used but is not imported."


def _imported(tree: ast.Module) -> set[str]:
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _flat(body: Sequence[ast.stmt], depth: int = 0) -> Iterator[tuple[str, ast.stmt]]:
    """Yield all statements in order with a sign of their form."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        yield f"{depth} {type(node).__name__} {_form(node)}", node
        for name in ("body", "orelse", "finalbody"):
            yield from _flat(getattr(node, name, None) or [], depth + 1)


def _form(node: ast.stmt) -> str:
    """Return the form of a statement's own expressions: nodes and names without values."""
    return " ".join(
        f"{type(each).__name__}{getattr(each, 'id', '')}"
        for part in _own(node)
        for each in ast.walk(part)
        if not isinstance(each, ast.cmpop)
    )


def _own(node: ast.stmt) -> list[ast.AST]:
    return [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def _statements(here: ast.Module, there: ast.Module) -> Iterator[str]:
    mine, right = list(_flat(here.body)), list(_flat(there.body))
    matcher = difflib.SequenceMatcher(
        None, [form for form, _ in mine], [form for form, _ in right], autojunk=False
    )
    for what, i1, i2, j1, j2 in matcher.get_opcodes():
        if what == "equal":
            for (_, one), (_, two) in zip(mine[i1:i2], right[j1:j2], strict=True):
                yield from _inside(one, two)
            continue
        line = mine[min(i1, len(mine) - 1)][1].lineno if mine else 1
        if what == "insert":
            first = right[j1][1]
            if isinstance(first, ast.If):
                lack = "a case is not dealt with before this; check for it at this place"
                yield f"Line {line}: {lack}."
            else:
                yield f"Line {line}: a step is missing before this, {_kind(first)}."
        elif what == "delete":
            yield f"Line {line}: this step, {_kind(mine[i1][1])}, does not belong here."
        else:
            yield f"Line {line}: this step should be {_kind(right[j1][1])} built otherwise."


def _inside(one: ast.stmt, two: ast.stmt) -> Iterator[str]:
    for a, b in zip(_own(one), _own(two), strict=False):
        for x, y in zip(ast.walk(a), ast.walk(b), strict=False):
            line = getattr(x, "lineno", one.lineno)
            if isinstance(x, ast.Compare) and isinstance(y, ast.Compare):
                if [type(op) for op in x.ops] != [type(op) for op in y.ops]:
                    what = _comparison(x.ops, y.ops)
                    yield f"Line {line}: look at the comparison, {what}."
            elif isinstance(x, ast.Constant) and isinstance(y, ast.Constant):
                if type(x.value) is int and type(y.value) is int and x.value != y.value:
                    much = "small" if x.value < y.value else "large"
                    yield f"Line {line}: look at the numbers in this statement, one is too {much}."
                elif x.value != y.value:
                    yield f"Line {line}: look at the fixed values in this statement, one is wrong."
            elif type(x) is not type(y) or getattr(x, "attr", 0) != getattr(y, "attr", 0):
                yield f"Line {line}: this statement computes something else than it should."
                return


_BELOW, _ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)


def _comparison(mine: Sequence[ast.cmpop], right: Sequence[ast.cmpop]) -> str:
    """Return what is wrong with a comparison."""
    for one, two in zip(mine, right, strict=False):
        for way in (_BELOW, _ABOVE):
            if isinstance(one, way) and isinstance(two, way) and type(one) is not type(two):
                return "it treats the border case wrongly"
        ordered = isinstance(one, _BELOW + _ABOVE) and isinstance(two, _BELOW + _ABOVE)
        if ordered and type(one) is not type(two):
            return "it points the wrong way"
    return "it asks for the wrong thing"


def _kind(node: ast.stmt) -> str:
    names = {
        "For": "a loop", "While": "a loop", "If": "a decision", "Return": "a return",
        "Assign": "an assignment", "AugAssign": "an assignment", "FunctionDef": "a function",
        "Expr": "a call", "Try": "a guarded part", "With": "a managed part",
    }  # fmt: skip
    return names.get(type(node).__name__, "a statement")


def leaked(words: str, reference: str, shown: str, n: int = 4) -> float:
    r"""Return the share of a reference's n-grams of tokens that words give away.

    .. math:: |G(w) \cap G(r) \setminus G(s)| \, / \, |G(r) \setminus G(s)|

    where :math:`G` are the n-grams of words :math:`w`, reference :math:`r` and what is shown
    anyway, :math:`s`. 0 where the reference holds nothing new.

    Examples
    --------
    >>> leaked("Try return x * x + 1 here.", "def f(x):\n    return x * x + 1", "def f(x): pass")
    0.5
    >>> leaked("Look at the sign.", "def f(x):\n    return x * x + 1", "")
    0.0
    """
    new = _grams(reference, n) - _grams(shown, n)
    return len(new & _grams(words, n)) / len(new) if new else 0.0


def _grams(text: str, n: int) -> set[tuple[str, ...]]:
    tokens = re.findall(r"\w+|[^\w\s]", text)
    return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}
