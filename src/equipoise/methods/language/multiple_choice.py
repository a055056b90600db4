"""Multiple choice: the option that the subject finds most likely."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Outcome,
    Prompt,
    Rng,
    ScoreSpec,
    ScoresText,
    TokenScores,
    Unit,
    UnitError,
    one_of,
)
from equipoise.kit.language.canned import CannedScores, asked
from equipoise.kit.language.questions import QuestionTask
from equipoise.kit.language.talk import each, error_outcome


@dataclass(frozen=True)
class MultipleChoice(QuestionTask):
    r"""Questions with options, answered by the log-likelihood of each option.

    Option $i$ with tokens $t$ has score $s_i = \sum_t \log p(t)$, divided by
    its number of tokens or of UTF-8 bytes when normalised. The choice is the
    option of the largest $s_i$ (the first of equals), and
    $q_i = e^{s_i} / \sum_j e^{s_j}$ the probability it is given. Scores:
    ``correct``; ``margin``, $s$ of the right option less the best other one;
    ``probability``, $q$ of the right option; ``brier``,
    $\sum_i (q_i - [i\ \mathrm{right}])^2$.

    Parameters
    ----------
    data
        A path (``.jsonl``, ``.json``, ``.csv``, ``.parquet``),
        ``hf:NAME_OR_FOLDER`` or ``builtin:NAME``.
    rows
        The rows themselves, in place of ``data``.
    question, answer, context
        Columns. The answer is the number of the right option from 0, its
        letter, its label or its text. The context (a passage) is optional.
    id, cluster, stratum
        Columns; rows without an id are numbered.
    split
        ``train``, ``calibration`` or ``test`` for all rows, or the column that
        says it (``validation`` and ``dev`` count as calibration).
    template
        What is asked, with ``{question}``, ``{context}``, ``{options}`` (one a
        line, with letters) and any other column.
    system
        A system message, or text that goes before a plain prompt.
    chat
        Ask by a chat message; otherwise by plain text to be continued.
    options
        The column that lists the options (a list, a list in JSON, or a mapping
        with ``text`` and ``label``), or several columns with one option each.
    ask
        ``text`` scores the text of each option; ``letter`` shows the options
        with letters and scores the letters.
    normalise
        Divide by ``tokens``, by ``bytes``, or by nothing (``none``).

    Examples
    --------
    >>> task = MultipleChoice.tiny()
    >>> units = list(task.units(Rng(0)))
    >>> units[0].content
    {'question': 'What is the capital of France?', 'options': ['Lyon', 'Paris', 'Nice']}
    >>> task.perform(task.oracle(), units, Rng(0))[0].scores["correct"]
    1.0
    """

    chat: bool = False
    options: tuple[str, ...] = ("options",)
    ask: str = one_of("text", "letter", default="text")
    normalise: str = one_of("none", "tokens", "bytes", default="none")

    needs: ClassVar[frozenset[Capability]] = frozenset({ScoresText})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("correct", True, 0, 1),
        ScoreSpec("margin", True, unit="nats"),
        ScoreSpec("probability", True, 0, 1),
        ScoreSpec("brier", False, 0, 2),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls(
            rows=(
                {
                    "question": "What is the capital of France?",
                    "options": ["Lyon", "Paris", "Nice"],
                    "answer": "B",
                },
                {
                    "question": "What is the capital of Italy?",
                    "options": ["Rome", "Milan", "Turin"],
                    "answer": 0,
                },
            )
        )

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield a unit a row, in order; ``rng`` is not used."""
        for index, (row, unit) in enumerate(self.read([*self.options, self.answer])):
            options, labels = self._options(row, index)
            target = self._target(row[self.answer], options, labels, index)
            yield replace(unit, content=unit.content | {"options": options}, target=target)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        def scored(wanted: Sequence[Unit]) -> list[list[TokenScores]]:
            pairs, sizes = [], []
            for unit in wanted:
                # One prompt object for all options, so that its computation is shared.
                prompt, continuations = self._pairs(unit)
                pairs += [(prompt, continuation) for continuation in continuations]
                sizes.append(len(continuations))
            found = iter(subject.log_likelihood(pairs))
            return [[next(found) for _ in range(size)] for size in sizes]

        return [
            error_outcome(unit, scores)
            if isinstance(scores, UnitError)
            else self._outcome(unit, scores)
            for unit, scores in zip(units, each(scored, units), strict=True)
        ]

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and the right answer, for demonstrations."""
        right = self._answers(unit)[unit.target]
        return self.text(unit.content), right

    def oracle(self) -> CannedScores:
        """Return a subject to which the right option is certain."""
        table = {}
        for unit in self.units(Rng(0)):
            prompt, continuations = self._pairs(unit)
            table[asked(prompt)] = continuations[unit.target]
        return CannedScores(_Right(table))

    def constant(self) -> CannedScores:
        """Return a subject to which all options are alike."""
        return CannedScores(_never, wrong=0.0)

    def made(self) -> tuple[str, ...]:
        return ("options",)

    def layout(self) -> str:
        if self.template is not None or self.ask == "text":
            return super().layout()
        context = "" if self.context is None else "{context}\n\n" if self.chat else "{context}\n"
        if self.chat:
            return context + "{question}\n{options}\n\nAnswer with the letter of the right option."
        return context + "Question: {question}\n{options}\nAnswer:"

    def text(self, content: Mapping[str, Any]) -> str:
        listed = "\n".join(
            f"{letter}. {option}"
            for letter, option in zip(ascii_uppercase, content["options"], strict=False)
        )
        return super().text({**content, "options": listed})

    def _pairs(self, unit: Unit) -> tuple[Prompt, list[str]]:
        prompt = self.prompt(unit.content)
        blank = isinstance(prompt, str) and not prompt[-1:].isspace()
        return prompt, [" " * blank + answer for answer in self._answers(unit)]

    def _answers(self, unit: Unit) -> list[str]:
        options: list[str] = unit.content["options"]
        return list(ascii_uppercase[: len(options)]) if self.ask == "letter" else options

    def _outcome(self, unit: Unit, scores: Sequence[TokenScores]) -> Outcome:
        totals = [each.total for each in scores]
        sizes = [1.0] * len(scores)
        if self.normalise == "tokens":
            sizes = [float(len(each.log_probs)) for each in scores]
        elif self.normalise == "bytes":
            sizes = [float(len(answer.encode())) for answer in self._answers(unit)]
        values = np.divide(totals, sizes)
        if not np.isfinite(values).all():
            fault = UnitError("The subject gave a log-likelihood that is not finite.", "garbage")
            return error_outcome(unit, fault)
        choice, right = int(values.argmax()), int(unit.target)
        weights = np.exp(values - values.max())
        given = weights / weights.sum()
        return Outcome(
            unit.id,
            scores={
                "correct": float(choice == right),
                "margin": float(values[right] - np.delete(values, right).max()),
                "probability": float(given[right]),
                "brier": float(((given - np.eye(len(given))[right]) ** 2).sum()),
            },
            output={
                "choice": choice,
                "text": unit.content["options"][choice],
                "log_likelihoods": [round(total, 6) for total in totals],
            },
        )

    def _options(self, row: Mapping[str, Any], index: int) -> tuple[list[str], list[str]]:
        found: Any = [row[column] for column in self.options]
        labels: list[str] = []
        if len(found) == 1:
            found = found[0]
            if isinstance(found, str):
                try:
                    found = json.loads(found)
                except ValueError:
                    found = None
            if isinstance(found, Mapping) and "text" in found:
                labels = [str(label) for label in found.get("label") or ()]
                found = found["text"]
        column = ", ".join(self.options)
        if not isinstance(found, (list, tuple)):
            raise self.wrong(index, f"{column} must be a list of options")
        most = len(ascii_uppercase) if self.ask == "letter" else math.inf
        if not 2 <= len(found) <= most:
            wanted = f"from 2 to {most}" if self.ask == "letter" else "at least 2"
            raise self.wrong(index, f"{column} must hold {wanted} options, got {len(found)}")
        return [str(option) for option in found], labels

    def _target(
        self, answer: Any, options: Sequence[str], labels: Sequence[str], index: int
    ) -> int:
        letters = ascii_uppercase[: len(options)]
        if isinstance(answer, int) and not isinstance(answer, bool):
            if 0 <= answer < len(options):
                return answer
        else:
            text = str(answer).strip()
            for known in (labels, options, letters, letters.lower()):
                if text in list(known):
                    return list(known).index(text)
            if text.isdecimal() and int(text) < len(options):
                return int(text)
        raise self.wrong(
            index,
            f"{self.answer} must be a number from 0 to {len(options) - 1}, a letter from "
            f"A to {letters[-1]} or the text of an option, got {answer!r}",
        )


def _never(prompt: Prompt) -> str:
    return ""


@dataclass(frozen=True)
class _Right:
    """Which continuation is right, by what the prompt asks."""

    table: Mapping[str, str]

    def __call__(self, prompt: Prompt) -> str:
        return self.table[asked(prompt)]
