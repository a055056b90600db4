"""Feedback on a program: the compiler's, the tests', and words of a layman or an expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from equipoise.core import Message
from equipoise.methods.code._reading import NO_ERRORS, fenced
from equipoise.methods.code._running import Record

Execution = Literal["none", "partial", "full"]
Words = Literal["none", "novice", "expert"]

EXECUTIONS: tuple[Execution, ...] = ("none", "partial", "full")
WORDS: tuple[Words, ...] = ("none", "novice", "expert")
PARTIAL = 3
"""Test methods that partial feedback shows: the first of the class, in source order."""

PASSED_ALL = "Passed all test runs"
CUT_AT = 8000
"""Characters from which execution feedback is cut."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of the nine kinds of feedback; what compiling says is always part of it."""

    execution: Execution = "full"
    words: Words = "none"

    @property
    def number(self) -> int:
        """The arm's number in the paper, from 1 to 9."""
        return 1 + EXECUTIONS.index(self.execution) + 3 * WORDS.index(self.words)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What is said about one program; a part is None where nothing is said."""

    compilation: str | None = None
    execution: str | None = None
    words: str | None = None

    @property
    def silent(self) -> bool:
        """Whether there is nothing to go by: no error in sight and no words."""
        shown = self.execution not in (None, PASSED_ALL)
        return not shown and self.words is None and self.compilation in (None, NO_ERRORS)


def shown_tests(names: Sequence[str], execution: Execution) -> tuple[str, ...]:
    """Return the tests whose outcome is shown.

    Examples
    --------
    >>> shown_tests(["a", "b", "c", "d"], "partial")
    ('a', 'b', 'c')
    """
    return {"none": (), "partial": tuple(names[:PARTIAL]), "full": tuple(names)}[execution]


def execution_text(record: Record, names: Sequence[str], execution: Execution) -> str | None:
    """Return what the tests say, None where they are not shown.

    Where none of the tests shown fails, the text is "Passed all test runs", although hidden ones
    may fail.
    """
    if execution == "none":
        return None
    failing = record.failing(shown_tests(names, execution))
    if not failing:
        return PASSED_ALL
    if record.fault == "load":  # one error for all
        return cut(f"ALL\n{record.reason}\n")
    return cut("\n".join(f"{name.upper()}\n{text}\n" for name, text in failing.items()))


def cut(text: str, front: int = 2000, rear: int = 4000) -> str:
    """Return a long text's first and last five lines.

    Text of fewer than 8000 characters is left whole; of fewer than ten lines, half of them stand
    on either side.

    Parameters
    ----------
    text
        What may be long.
    front, rear
        Most characters of the first and of the last lines.

    Examples
    --------
    >>> short = cut("x" * 9000)
    >>> len(short), short.count("\\n...\\n")
    (6005, 1)
    """
    if len(text) < CUT_AT:
        return text
    lines = text.splitlines()
    window = 5 if len(lines) >= 10 else max(1, len(lines) // 2)
    first, last = "\n".join(lines[:window])[:front], "\n".join(lines[-window:])[-rear:]
    return f"{first}\n...\n{last}"


def cut_words(text: str, expert: bool) -> str | None:
    """Return a teacher's words up to a rule, two empty lines or, of an expert, a block of code.

    Examples
    --------
    >>> cut_words("Mind line 3.\\n```python\\nx = 1\\n```", expert=True)
    'Mind line 3.'
    """
    text = text.split("---", 1)[0].split("\n\n\n", 1)[0]
    if expert:
        text = f"\n{text}".split("\n```", 1)[0]
    return text.strip() or None


_TASK = "# Problem\n{problem}"
_ASK = (
    "Think about what has to change, in a few sentences. Then write the whole program in one block"
    " that begins with ```python."
)


def first_request(problem: str) -> list[Message]:
    """Return what a subject is asked at turn 0."""
    ask = "Write the program. Put all of it in one block that begins with ```python."
    return [{"role": "user", "content": f"{_TASK.format(problem=problem)}\n\n{ask}"}]


def refine_request(problem: str, code: str, feedback: Feedback) -> list[Message]:
    """Return what a subject is asked to refine: problem, program, present feedback and no more."""
    parts = [_TASK.format(problem=problem), f"# Previous program\n{fenced(code)}"]
    for title, text in (
        ("Compilation", feedback.compilation),
        ("Tests", feedback.execution),
        ("Feedback", feedback.words),
    ):
        if text is not None:
            parts.append(f"# {title}\n{text.rstrip()}")
    parts.append(f"The previous program is not right yet. {_ASK}")
    return [{"role": "user", "content": "\n\n".join(parts)}]


_NOVICE = """\
You use a program that someone writes for you. You do not program yourself.
Say in plain words what seems to be wrong with it, in at most four sentences.
- Go only by what the messages below say. Invent nothing.
- Do not write code. Do not name a fix in terms of code.
- You do not know what a right program looks like.

An example. The messages say: `test_total`, `AssertionError: 12 != 10`, for the call
`total([4, 6, 2])`. You say: When I give it 4, 6 and 2 I get 12, but it should leave out the last
one and give 10."""

_EXPERT = """\
You are an experienced programmer who looks at someone's program. You know how the task is solved.
Point at where the program deviates from what is needed, and suggest what to improve.
- Write no code and no corrected line. Describe in words.
- Do not quote the solution that you know, and do not say that you have one.
- Name places by line or by what happens there. At most six sentences.

An example. The program adds up a list but begins with the second item. You say: The loop in line 3
leaves out the first item; let it run over all of them. The rest is fine."""


def teacher_request(
    words: Words, problem: str, code: str, feedback: Feedback, reference: str
) -> list[Message]:
    """Return what a language model is asked that speaks as a layman or as an expert."""
    parts = [f"# Task\n{problem}", f"# Program\n{fenced(code)}"]
    if feedback.compilation is not None:
        parts.append(f"# What compiling says\n{feedback.compilation}")
    if feedback.execution is not None:
        parts.append(f"# What the tests say\n{feedback.execution}")
    if words == "expert":
        parts.append(f"# A right solution, for your eyes only\n{fenced(reference)}")
    parts.append("# Your words")
    rules = _EXPERT if words == "expert" else _NOVICE
    return [
        {"role": "system", "content": rules},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def sections(prompt: str) -> dict[str, str]:
    """Return the parts of what `refine_request` asks, by title.

    Examples
    --------
    >>> (message,) = refine_request("Double x.", "x = 1", Feedback(NO_ERRORS, None, "Mind 1."))
    >>> sections(message["content"])["Feedback"]
    'Mind 1.'
    """
    found: dict[str, str] = {}
    titles = ("Problem", "Previous program", "Compilation", "Tests", "Feedback")
    places = []
    start = 0
    for title in titles:
        place = prompt.find(f"# {title}\n", start)
        if place >= 0:
            places.append((title, place))
            start = place + 1
    end = prompt.rfind("\n\nThe previous program is not right yet.")
    ends = [place for _, place in places[1:]] + [end if end >= 0 else len(prompt)]
    for (title, place), stop in zip(places, ends, strict=False):
        found[title] = prompt[place + len(title) + 3 : stop].strip()
    return found
