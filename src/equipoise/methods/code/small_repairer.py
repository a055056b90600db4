"""A scripted programmer that mends small programs by what feedback tells it, well or badly."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from equipoise.core import Capability, Generates, Request, Rng, Subject, between
from equipoise.kit.language.canned import Canned, asked
from equipoise.kit.worlds.small_problems import Change, swaps
from equipoise.methods.code._feedback import PASSED_ALL, sections
from equipoise.methods.code._reading import NO_ERRORS, fenced, read_program, syntax_error

MOST = 12


@dataclass(frozen=True)
class SmallRepairer(Subject):
    r"""A programmer that makes one small change a turn, of a kind and at a place feedback names.

    It knows the ways in which small programs are spoilt (a wrong comparison, a number one off, a
    lost import, colon, bracket or check for empty input), lists every change that would undo one,
    and chooses by what it understands of the feedback: the line and kind of an error, the name
    that is not known, the pattern of a failing assertion, the place and kind that an expert
    points at. It runs nothing and knows no right program. With skill :math:`s` of 12 it
    understands plain words and the compiler with chance :math:`0.1 + 0.85 s/12`, and tracebacks
    of tests with chance :math:`0.05 + 0.65 s/12`; what it does not understand it answers with any
    change, or with none. Its chances are drawn from the prompt: the same prompt gives the same
    answer.

    Parameters
    ----------
    skill
        From 1 to 12.

    Examples
    --------
    >>> from equipoise.methods.code._feedback import Feedback, refine_request
    >>> said = Feedback("No syntax errors", None, "Line 2: a number is too small.")
    >>> ask = refine_request("Add two.", "def f(x):\n    return x + 1\n", said)
    >>> print(SmallRepairer(12).load(Rng(0)).generate([Request(ask)])[0].text)
    I change line 2.
    <BLANKLINE>
    ```python
    def f(x):
        return x + 2
    ```
    """

    skill: int = between(1, MOST, default=6)

    provides: ClassVar[frozenset[Capability]] = frozenset({Generates})

    @classmethod
    def tiny(cls) -> Self:
        return cls()

    def load(self, rng: Rng) -> Canned:
        """Return the live programmer; ``rng`` is not used."""
        return Canned(_Mends(self.skill))


@dataclass(frozen=True)
class _Mends:
    skill: int

    def __call__(self, request: Request) -> str:
        text = asked(request.prompt)
        parts = sections(text)
        if "Previous program" not in parts:
            return "I can only mend programs."
        code = read_program(parts["Previous program"]).code
        digest = hashlib.sha256(f"{self.skill} {text}".encode()).digest()
        draws = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        change = _choose(code, parts, self.skill / MOST, draws)
        if change is None:
            return f"I see nothing to change.\n\n{fenced(code)}"
        return f"I change line {change.line}.\n\n{fenced(change.code)}"


def _choose(
    code: str, parts: dict[str, str], skill: float, draws: np.random.Generator
) -> Change | None:
    """Return the change it makes, or None for none."""
    changes = ways_back(code)
    plain, terse = draws.random(2)
    left: Sequence[Change] = ()
    if plain < 0.1 + 0.85 * skill:
        left = _by_words(changes, parts.get("Feedback", ""))
        left = left or _by_compiler(changes, parts.get("Compilation", NO_ERRORS))
    if not left and terse < 0.05 + 0.65 * skill:
        tests = parts.get("Tests", PASSED_ALL)
        if "SyntaxError" in tests and syntax_error(code) is None:
            return None  # the tests speak of the program before its repair
        left = _by_tests(changes, tests)
    if not left and draws.random() < 0.5:
        left = changes
    return left[int(draws.integers(len(left)))] if left else None


@functools.lru_cache(maxsize=8192)  # a program comes back in every arm, and listing takes longest
def ways_back(code: str) -> tuple[Change, ...]:
    """Return all changes that would undo a fault of a small program, wherever it may be.

    Examples
    --------
    >>> [c.code for c in ways_back("x = (1")]
    ['x = (1:\\n', 'x = (1)\\n']
    """
    lines = code.splitlines()
    if syntax_error(code) is not None:
        return tuple(
            Change("syntax", i + 1, "\n".join([*lines[:i], line + end, *lines[i + 1 :]]) + "\n")
            for i, line in enumerate(lines)
            if line.strip()
            for end in (":", ")")
        )
    found = [each for each in swaps(code) if each.code.strip() != code.strip()]
    for name in ("math", "re", "datetime", "string", "Counter"):
        if re.search(rf"\b{name}[.(]", code) and not re.search(rf"import {name}$", code, re.M):
            how = "from collections import Counter" if name == "Counter" else f"import {name}"
            found.append(Change("missing_import", 1, f"{how}\n\n{code}"))
    head = next((i for i, line in enumerate(lines) if line.startswith("def ")), None)
    if head is not None:
        (name,) = re.findall(r"def \w+\((\w+)", lines[head])[:1] or [""]
        guarded = lines[head + 1 : head + 2] == [f"    if not {name}:"]
        begin, end = (head + 2, head + 3) if guarded else (head + 1, head + 1)
        for value in ("0", "[]", "None", "'-'", "''") if name else ():
            guard = [] if guarded else [f"    if not {name}:"]
            whole = [*lines[:begin], *guard, f"        return {value}", *lines[end:]]
            if whole != lines:
                found.append(Change("edge_case", begin + guarded, "\n".join(whole) + "\n"))
    return tuple(found)


def _by_words(changes: Sequence[Change], words: str) -> list[Change]:
    """Return the changes that plain words allow."""
    if not words:
        return []
    line = re.search(r"(?:Line|around line) (\d+)", words)
    if line:
        place = int(line[1])
        if "a case is not dealt with" in words:
            return [c for c in changes if c.kind == "edge_case"]
        if "number" in words:
            step = 1 if "too small" in words else -1
            return [c for c in changes if c.line == place and c.step == step]
        if "comparison" in words:
            border = "border case" in words
            turns = "the wrong way" in words
            return [
                c
                for c in changes
                if c.kind == "comparison"
                and c.line == place
                and not (border and c.step != 0)
                and not (turns and c.step == 0)
            ]
        if "fixed values" in words:
            return [c for c in changes if c.kind == "edge_case" and c.line == place]
        return _closing(changes, place)
    lost = re.search(r"(\w+) is used but is not imported|does not know what (\w+) is", words)
    if lost:
        return _importing(changes, lost[1] or lost[2])
    if "nothing in the input" in words:
        value = re.search(r"it should be (.+?)\. ", words)
        return [
            c
            for c in changes
            if c.kind == "edge_case" and (not value or f"return {value[1]}\n" in c.code)
        ]
    if "one too" in words or "beyond the end" in words:
        return [c for c in changes if c.kind == "off_by_one"]
    return [c for c in changes if c.kind in ("comparison", "off_by_one")]


def _by_compiler(changes: Sequence[Change], said: str) -> list[Change]:
    """Return the changes that an error of the compiler allows."""
    if said == NO_ERRORS:
        return []
    place = int((re.findall(r"line (\d+)", said) or ["1"])[-1])
    return _closing(changes, place)


def _closing(changes: Sequence[Change], place: int) -> list[Change]:
    """Return the changes at or before a line after which the program can be read."""
    near = [c for c in changes if c.kind == "syntax" and c.line in (place, place - 1)]
    return [c for c in near if syntax_error(c.code) is None] or near


def _by_tests(changes: Sequence[Change], tests: str) -> list[Change]:
    """Return the changes that tracebacks of failing tests allow."""
    if tests == PASSED_ALL:
        return []
    lost = re.search(r"NameError: name '(\w+)' is not defined", tests)
    if lost:
        return _importing(changes, lost[1])
    places = re.findall(r'File "solution\.py", line (\d+)', tests)
    if places:  # it broke at a line
        here = [c for c in changes if c.line == int(places[0]) and c.kind != "missing_import"]
        return here + [c for c in changes if c.kind == "edge_case"]
    failing = re.findall(r"assertEqual\(\w+\((.*)\), (.*)\)$", tests, re.MULTILINE)
    if failing and all(given in ("[]", "''") for given, _ in failing):
        wanted = f"return {failing[0][1]}\n"
        return [c for c in changes if c.kind == "edge_case" and wanted in c.code]
    return [c for c in changes if c.kind in ("comparison", "off_by_one")]


def _importing(changes: Sequence[Change], name: str) -> list[Change]:
    return [c for c in changes if c.kind == "missing_import" and f"import {name}\n" in c.code]
