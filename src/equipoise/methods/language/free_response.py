"""Free response: the subject answers a question in its own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    Generates,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    Talk,
    Unit,
    UsageError,
    between,
    one_of,
)
from equipoise.kit.language.canned import Canned, Lookup, asked
from equipoise.kit.language.normalise import last_number, squad, token_f1
from equipoise.kit.language.questions import QuestionTask

_LONGEST = 20_000  # characters of an answer that are compared; a pattern's time grows with them


@dataclass(frozen=True)
class FreeResponse(QuestionTask):
    """Questions answered in free text and compared with one or more right answers.

    An answer is right if it matches any of a row's right answers:

    - ``exact``: they are equal.
    - ``contains``: the right answer is in it, as whole words.
    - ``numeric``: its last number is within ``tolerance`` of that of the right answer.
    - ``regex``: the right answer, a regular expression, is found in it.
    - ``f1``: the F1 of their words is at least ``threshold``.

    For ``exact`` and ``contains`` both sides are normalised first: lower case,
    no punctuation, no English articles, single blanks (as SQuAD does). The
    score ``f1`` is always over words normalised so, and the best over right
    answers.

    Parameters
    ----------
    data
        A path (``.jsonl``, ``.json``, ``.csv``, ``.parquet``),
        ``hf:NAME_OR_FOLDER`` or ``builtin:NAME``.
    rows
        The rows themselves, in place of ``data``.
    question, answer, context
        Columns; an answer is text, a number or a list of them. The context (a
        passage) is optional.
    id, cluster, stratum
        Columns; rows without an id are numbered.
    split
        ``train``, ``calibration`` or ``test`` for all rows, or the column that
        says it (``validation`` and ``dev`` count as calibration).
    template
        What is asked, with ``{question}``, ``{context}`` and any other column.
    system
        A system message, or text that goes before a plain prompt.
    chat
        Ask by a chat message; otherwise by plain text to be continued.
    match
        When an answer is right, as above.
    normalise
        ``squad``, or ``none`` to strip outer blanks only.
    tolerance
        Largest distance of a right number, in its own unit.
    threshold
        Least F1 of a right answer, in [0, 1].
    extract
        A regular expression whose last match is what is compared (its first
        group if it has one); without a match the answer is wrong.
    max_tokens
        Most new tokens.
    stop
        Strings that end an answer.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned, Constant
    >>> from equipoise.kit.language.talk import converse
    >>> task = FreeResponse(rows=({"question": "6 x 7?", "answer": 42},), match="numeric")
    >>> subject = Canned(Constant("It is 42."))
    >>> converse(task, subject, list(task.units(Rng(0))), Rng(0))[0].scores
    {'correct': 1.0, 'f1': 0.5}
    """

    match: str = one_of("exact", "contains", "numeric", "regex", "f1", default="exact")
    normalise: str = one_of("squad", "none", default="squad")
    tolerance: float = between(0, float("inf"), default=0.0)
    threshold: float = between(0, 1, default=0.5)
    extract: str = ""
    max_tokens: int = between(1, 1_000_000, default=128)
    stop: tuple[str, ...] = ()

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("correct", True, 0, 1),
        ScoreSpec("f1", True, 0, 1),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls(
            rows=(
                {"question": "What is the capital of France?", "answer": "Paris"},
                {"question": "What is the capital of Italy?", "answer": ["Rome", "Roma"]},
            )
        )

    def check(self) -> None:
        super().check()
        _compiled(self.extract, "FreeResponse: extract")

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield a unit a row, in order; ``rng`` is not used."""
        for index, (row, unit) in enumerate(self.read([self.answer])):
            rights = self._rights(row[self.answer], index)
            yield replace(unit, target=rights[0] if len(rights) == 1 else rights)

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        answer = await talk.generate(
            Request(self.prompt(unit.content), max_tokens=self.max_tokens, stop=self.stop)
        )
        return Outcome(
            unit.id,
            scores=self.score(answer.text, unit.target),
            status="limit" if answer.finish[:1] == ("length",) else "ok",
            output=answer.text,
        )

    def score(self, answer: str, rights: str | Sequence[str]) -> dict[str, float]:
        """Return the scores of an answer.

        Parameters
        ----------
        answer
            What the subject said.
        rights
            The right answer, or several; patterns for ``match: regex``.
        """
        rights = [rights] if isinstance(rights, str) else list(rights)
        answer = answer[:_LONGEST]
        f1 = [0.0 if self.match == "regex" else token_f1(answer, right) for right in rights]
        if self.extract:
            found = list(_compiled(self.extract, "extract").finditer(answer))
            if not found:
                return {"correct": 0.0, "f1": 0.0}
            last = found[-1]
            answer = (last.group(1) if last.re.groups else last.group()) or ""
            f1 = [token_f1(answer, right) for right in rights]
        return {"correct": float(any(self._matches(answer, r) for r in rights)), "f1": max(f1)}

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and the right answer, for demonstrations."""
        right = unit.target if isinstance(unit.target, str) else unit.target[0]
        return self.text(unit.content), right

    def oracle(self) -> Canned:
        """Return a subject that gives the first right answer (a pattern, if it matches itself)."""
        return Canned(
            Lookup(
                {
                    asked(self.prompt(unit.content)): self.example(unit)[1]
                    for unit in self.units(Rng(0))
                }
            )
        )

    def _matches(self, answer: str, right: str) -> bool:
        if self.match == "regex":
            return re.search(right, answer) is not None
        if self.match == "f1":
            return token_f1(answer, right) >= self.threshold
        if self.match == "numeric":
            found, wanted = last_number(answer), last_number(right)
            assert wanted is not None, "units() checks it"
            # 1e-9 of the value allows for decimals that floats cannot hold.
            return found is not None and abs(found - wanted) <= self.tolerance + 1e-9 * abs(wanted)
        said, wanted_text = self._normal(answer), self._normal(right)
        if self.match == "exact":
            return said == wanted_text
        if self.normalise == "none":
            return wanted_text in said
        return f" {wanted_text} " in f" {said} "

    def _normal(self, text: str) -> str:
        return squad(text) if self.normalise == "squad" else text.strip()

    def _rights(self, value: Any, index: int) -> list[str]:
        rights = [str(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
        if not rights:
            raise self.wrong(index, f"{self.answer} is an empty list")
        for right in rights:
            if self.match == "numeric" and last_number(right) is None:
                raise self.wrong(index, f'{self.answer} must hold a number, got "{right}"')
            if self.match == "regex":
                _compiled(right, f"FreeResponse: row {index + 1}: {self.answer}")
        return rights


def _compiled(pattern: str, what: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{what} must be a regular expression, got {pattern!r}: {error}."
        ) from error
