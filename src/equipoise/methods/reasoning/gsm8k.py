"""GSM8K: grade-school word problems in the official JSONL, answered with worked steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
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
)
from equipoise.kit.language.canned import Canned, Lookup, asked
from equipoise.kit.language.questions import QuestionTask

SOURCE = "https://github.com/openai/grade-school-math"
INSTRUCTION = (
    "Solve this math problem step by step. Show your work and end with '#### X', where X is the"
    " final number without units.\n\n{question}"
)
_NUMBER = r"(-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?(?<=\d))"
_PLACES = tuple(
    re.compile(pattern + _NUMBER, re.IGNORECASE)
    for pattern in (r"####\s*\$?", r"the answer is:?\s*\$?", r"=\s*\$?", r"(?<![\w.,])\$?")
)


@dataclass(frozen=True)
class GSM8K(QuestionTask):
    """Grade-school word problems; the last number an answer ends on must be the right one.

    The number is what follows the last ``####``; where there is none, the last
    "The answer is"; then the last "="; then the last number at all. It is right
    within 1e-6. The data are the user's to fetch: one JSON object a line with
    ``question`` and ``answer``, whose last line is ``#### number``.

    Parameters
    ----------
    data
        The official ``train.jsonl`` or ``test.jsonl``, or any data with such
        columns (``hf:NAME_OR_FOLDER``).
    rows
        The rows themselves, in place of ``data``.
    question, answer, context
        Columns; the context is optional.
    id, cluster, stratum
        Columns; rows without an id are numbered.
    split
        ``train``, ``calibration`` or ``test`` for all rows, or the column that
        says it.
    template
        What is asked, with ``{question}`` and any other column.
    system
        A system message, or text that goes before a plain prompt.
    chat
        Ask by a chat message; otherwise by plain text to be continued.
    max_tokens
        Most new tokens.

    References
    ----------
    Cobbe et al., "Training Verifiers to Solve Math Word Problems", 2021; the
    reading of answers is that of "Improving Reasoning Performance in Large
    Language Models via Representation Engineering", ICLR 2025.

    Examples
    --------
    >>> task = GSM8K(rows=({"question": "1 + 1?", "answer": "1 + 1 = 2\\n#### 2"},))
    >>> [unit.target for unit in task.units(Rng(0))]
    [2.0]
    """

    template: str | None = INSTRUCTION
    max_tokens: int = between(1, 1_000_000, default=512)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (ScoreSpec("correct", True, 0, 1),)

    @classmethod
    def tiny(cls) -> Self:
        return cls(
            rows=(
                {"question": "Ann has 3 pens and buys 4. How many?", "answer": "3+4=7\n#### 7"},
                {"question": "Bob had 1,200 stamps and sold half.", "answer": "#### 600"},
            )
        )

    def check(self) -> None:
        if self.data is None and not self.rows:
            raise UsageError(
                f"GSM8K: data must name the official JSONL file; get it from {SOURCE}."
            )
        super().check()

    def content(self) -> Any:
        self._exists()
        return super().content()

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield a unit a row, in order; ``rng`` is not used."""
        self._exists()
        for index, (row, unit) in enumerate(self.read([self.answer])):
            worked = str(row[self.answer])
            number = final_number(worked)
            if number is None:
                raise self.wrong(index, f"{self.answer} must end on a number, as in '#### 42'")
            yield replace(unit, content=unit.content | {"worked": worked}, target=number)

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        said = await talk.generate(Request(self.prompt(unit.content), max_tokens=self.max_tokens))
        found = final_number(said.text)
        right = found is not None and abs(found - unit.target) < 1e-6
        return Outcome(
            unit.id,
            {"correct": float(right)},
            status="limit" if said.finish[:1] == ("length",) else "ok",
            output=said.text,
        )

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and the worked answer."""
        return self.text(unit.content), unit.content["worked"]

    def oracle(self) -> Canned:
        table = {
            asked(self.prompt(unit.content)): unit.content["worked"] for unit in self.units(Rng(0))
        }
        return Canned(Lookup(table))

    def _exists(self) -> None:
        if self.data is None or ":" in self.data:
            return
        if not Path(self.data).expanduser().exists():
            raise UsageError(f"GSM8K: there is no file {self.data}; get it from {SOURCE}.")


def final_number(text: str) -> float | None:
    """Return the number an answer ends on, or None.

    The last one after "####", else after "The answer is", else after "=", else
    the last one at all. Commas between thousands and a dollar sign are read
    over.

    Examples
    --------
    >>> final_number("6 * 7 = 42\\n#### 43"), final_number("The answer is 5. Or 6?")
    (43.0, 5.0)
    >>> final_number("x = 1, y = $1,200.50"), final_number("3 and -4 pens"), final_number("none")
    (1200.5, -4.0, None)
    """
    for place in _PLACES:
        found = place.findall(text)
        if found:
            return float(found[-1].replace(",", ""))
    return None
