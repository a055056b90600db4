"""Programs in answers: which block counts, and whether it compiles."""

from __future__ import annotations

import re
import traceback
import warnings
from dataclasses import dataclass

NO_ERRORS = "No syntax errors"

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n", re.MULTILINE)
_PYTHON = ("python", "py", "python3", "py3")
_LONGEST = 100_000  # characters of a program


@dataclass(frozen=True, slots=True)
class Answer:
    """A program as it was found in an answer.

    Parameters
    ----------
    code
        The program, perhaps none at all.
    fault
        Empty; or ``empty`` (nothing was said), ``no_block`` (all of it was taken), ``language``
        (blocks of other languages alone: the first of them was taken), ``unclosed`` (the block
        has no end) or ``long`` (cut).
    blocks
        How many blocks there were.
    """

    code: str
    fault: str = ""
    blocks: int = 0


def read_program(text: str) -> Answer:
    """Return the program of an answer.

    The first block marked as Python counts; else the first without a mark; else the first of any
    language, which is a fault. Without a block all of the text is taken.

    Examples
    --------
    >>> read_program("So:\\n```python\\nx = 1\\n```\\nor\\n```\\nx = 2\\n```")
    Answer(code='x = 1\\n', fault='', blocks=2)
    >>> read_program("I do not know.").fault
    'no_block'
    """
    blocks: list[tuple[str, str, bool]] = []
    place = 0
    while found := _FENCE.search(text, place):
        end = re.compile(rf"^[ \t]*{re.escape(found[1])}[ \t]*$", re.MULTILINE).search(
            text, found.end()
        )
        inside = text[found.end() : end.start() if end else len(text)]
        blocks.append((found[2].lower(), inside, end is not None))
        place = end.end() if end else len(text)
    if not blocks:
        fault = "no_block" if text.strip() else "empty"
        return _cut(text.strip() + "\n" if text.strip() else "", fault, 0)
    for names in (_PYTHON, ("",)):
        for language, inside, closed in blocks:
            if language in names:
                return _cut(inside, "" if closed else "unclosed", len(blocks))
    return _cut(blocks[0][1], "language", len(blocks))


def _cut(code: str, fault: str, blocks: int) -> Answer:
    if len(code) > _LONGEST:
        return Answer(code[:_LONGEST], "long", blocks)
    return Answer(code, fault, blocks)


def syntax_error(code: str) -> str | None:
    """Return the traceback of compiling a program, or None if it compiles.

    Examples
    --------
    >>> print(syntax_error("def f(x)\\n    return x"))
      File "solution.py", line 1
        def f(x)
                ^
    SyntaxError: expected ':'
    >>> syntax_error("x = 1")
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "solution.py", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return "".join(traceback.format_exception_only(error)).rstrip()
    return None


def with_header(header: str, code: str) -> str:
    """Return a program with the problem's header, such as its imports, before it.

    Examples
    --------
    >>> with_header("import math\\n", "def f(x):\\n    return math.pi\\n").splitlines()[0]
    'import math'
    """
    if not header.strip() or code.lstrip().startswith(header.strip()):
        return code
    return f"{header.rstrip()}\n{code}"


def fenced(code: str) -> str:
    """Return a program as a block."""
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return f"{ticks}python\n{code.rstrip()}\n{ticks}"
