"""A subject whose answers are written down: for tests, oracles and baselines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    Generates,
    Json,
    Request,
    Rng,
    Subject,
    UnitError,
    UsageError,
    setting,
)
from equipoise.kit.data import content_hash, read_rows
from equipoise.kit.language.canned import Canned, Constant, Lookup


@dataclass(frozen=True)
class Scripted(Subject):
    """Answers from a function, a table, a file or always the same.

    Give one of the four. A table is looked up by what is asked: the text of
    the prompt, or of the last user message; a question that is not in it is an
    error of its unit, unless there is a ``constant`` too. Usage counts words.

    Parameters
    ----------
    function
        ``module:function`` of one argument, the `Request`, that returns the
        answer's text. Each of several samples asks again, with the next seed.
    answers
        Questions to answers.
    file
        A JSONL, CSV or Parquet file with the columns ``prompt`` and ``answer``.
    constant
        The answer to everything (or to everything else).

    Examples
    --------
    >>> subject = Scripted(answers={"2+2?": "4"}, constant="I don't know.").load(Rng(0))
    >>> [answer.text for answer in subject.generate([Request("2+2?"), Request("3+3?")])]
    ['4', "I don't know."]
    """

    function: str | None = None
    answers: dict[str, str] | None = None
    file: str | None = setting(None)
    constant: str | None = None

    provides: ClassVar[frozenset[Capability]] = frozenset({Generates})

    @classmethod
    def tiny(cls) -> Self:
        return cls(constant="yes")

    def check(self) -> None:
        tables = sum([self.function is not None, self.answers is not None, self.file is not None])
        if tables > 1 or (not tables and self.constant is None):
            raise UsageError(
                "Scripted: give one of function, answers and file, or a constant answer."
            )
        if self.function is not None:
            if self.constant is not None:
                raise UsageError("Scripted: a function answers everything; leave constant out.")
            module, _, name = self.function.partition(":")
            if not module or not name.isidentifier():
                raise UsageError(
                    f"Scripted: function must be module:function, got {self.function!r}."
                )

    def content(self) -> Json:
        return None if self.file is None else content_hash(self.file)

    def load(self, rng: Rng) -> Canned:
        if self.function is not None:
            return Canned(self._function())
        table = dict(self.answers or {})
        if self.file is not None:
            for row in read_rows(self.file, columns=["prompt", "answer"]):
                table[str(row["prompt"])] = str(row["answer"])
        if not table:
            assert self.constant is not None, "check() sees to it"
            return Canned(Constant(self.constant))
        return Canned(Lookup(table) if self.constant is None else _Or(Lookup(table), self.constant))

    def _function(self) -> Callable[[Request], str]:
        assert self.function is not None
        module, _, name = self.function.partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"Scripted: the function {self.function} cannot be imported: {error}."
            ) from error
        if not callable(found):
            raise UsageError(f"Scripted: {self.function} is not a function.")
        answer: Callable[[Request], str] = found
        return answer


@dataclass(frozen=True)
class _Or:
    """The table's answer, or another."""

    table: Lookup
    constant: str

    def __call__(self, request: Request) -> str:
        try:
            return self.table(request)
        except UnitError:
            return self.constant
