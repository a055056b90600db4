"""Treatments of what a subject is asked: a system prompt, examples, how to sample."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from equipoise.core import (
    Acts,
    Capability,
    Embeds,
    Forecasts,
    Json,
    Judges,
    Predicts,
    PredictsProba,
    Request,
    Rng,
    Task,
    Trains,
    Treatment,
    Unit,
    UsageError,
    between,
    learnable,
    setting,
)
from equipoise.kit.language.canned import asked
from equipoise.kit.language.wrap import rewritten, with_prefix

_NOT_TEXT: frozenset[Capability] = frozenset(
    {Acts, Embeds, Forecasts, Judges, Predicts, PredictsProba, Trains}
)


@dataclass(frozen=True)
class SystemPrompt(Treatment):
    """Tell the subject something before every question.

    Chat requests get a system message; where there is one already, the text
    goes before its own. Plain prompts get the text and an empty line in front.
    Running text, as perplexity scores it, is not prompted. No text is no change.

    Parameters
    ----------
    text
        What to say.
    file
        A text file that says it, in place of ``text``.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned
    >>> echo = Canned(lambda request: str(request.prompt))
    >>> SystemPrompt("Be brief.").apply(echo, Rng(0)).generate([Request("Why?")])[0].text
    'Be brief.\\n\\nWhy?'
    """

    text: str = ""
    file: str | None = setting(None)

    removes: ClassVar[frozenset[Capability]] = _NOT_TEXT

    @classmethod
    def tiny(cls) -> Self:
        return cls("Answer in one word.")

    @classmethod
    def null(cls) -> Self:
        """Return the setting that changes nothing."""
        return cls()

    def check(self) -> None:
        if self.text and self.file is not None:
            raise UsageError("SystemPrompt: give either text or file.")

    def content(self) -> Json:
        if self.file is None:
            return None
        return hashlib.sha256(self._text().encode()).hexdigest()

    def apply(self, subject: Any, rng: Rng) -> Any:
        text = self._text()
        return rewritten(subject, _Telling(text)) if text else subject

    def _text(self) -> str:
        if self.file is None:
            return self.text
        try:
            return Path(self.file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"SystemPrompt: {self.file} cannot be read: {why}.") from error


@dataclass(frozen=True)
class FewShot(Treatment):
    r"""Show the subject questions with their right answers before each question.

    Chat requests get pairs of user and assistant messages after the system
    message; plain prompts get ``question answer`` blocks, an empty line apart.
    Running text, as perplexity scores it, is not prompted. The same examples,
    in the same order, go before every question, except that a question is not
    its own example. None is no change.

    Parameters
    ----------
    count
        How many examples; by default all that are given, or 4 of ``data``.
    data
        A task whose train units are drawn from; test units are never seen. It
        says how its questions are put, so take the task of the trial with its
        ``split`` at ``train`` or naming a column.
    examples
        Pairs of question and answer, in place of ``data``; the first ``count``.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned
    >>> echo = Canned(lambda request: str(request.prompt))
    >>> shown = FewShot(examples=(("1+1?", "2"),)).apply(echo, Rng(0))
    >>> shown.generate([Request("2+2?")])[0].text
    '1+1? 2\n\n2+2?'
    """

    count: int | None = between(0, 1_000, default=None)
    data: Task | None = None
    examples: tuple[tuple[str, str], ...] = ()

    removes: ClassVar[frozenset[Capability]] = _NOT_TEXT
    random: ClassVar[bool] = True

    @classmethod
    def tiny(cls) -> Self:
        return cls(examples=(("What is the capital of Spain?", "Madrid"),))

    @classmethod
    def null(cls) -> Self:
        """Return the setting that changes nothing."""
        return cls(count=0)

    def check(self) -> None:
        if self.count == 0:
            return
        if (self.data is None) == (not self.examples):
            raise UsageError("FewShot: give either data (a task with train units) or examples.")
        if self.data is None and (self.count or 0) > len(self.examples):
            raise UsageError(
                f"FewShot: count must be at most the {len(self.examples)} examples given, "
                f"got {self.count}."
            )

    def apply(self, subject: Any, rng: Rng) -> Any:
        pairs = self.drawn(rng)
        return rewritten(subject, _Showing(pairs)) if pairs else subject

    def drawn(self, rng: Rng) -> tuple[tuple[str, str], ...]:
        """Return the examples, in the order they are shown."""
        if self.data is None or self.count == 0:
            return self.examples[: self.count]
        count = 4 if self.count is None else self.count
        units = learnable(self.data, rng)
        if len(units) < count:
            raise UsageError(
                f"FewShot: {type(self.data).__name__} has {len(units)} train units, too few for "
                f"{count} examples: give it a split column, or rows with split: train."
            )
        picks = rng.child("examples").numpy().choice(len(units), size=count, replace=False)
        return tuple(_example(self.data, units[pick]) for pick in picks)


@dataclass(frozen=True)
class Sampling(Treatment):
    """Change how answers are drawn.

    What is not given stays as the task asks. Log-likelihoods do not change.

    Parameters
    ----------
    temperature
        0 is greedy decoding.
    top_p
        Nucleus of probability mass to sample from, above 0 and at most 1.
    max_tokens
        Most new tokens.
    log_probs
        Keep each token's log-probability with the answer, where the subject gives it; pages
        then shade unlikely tokens.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned
    >>> shown = Canned(lambda request: str(request.temperature))
    >>> Sampling(temperature=0.7).apply(shown, Rng(0)).generate([Request("Why?")])[0].text
    '0.7'
    """

    temperature: float | None = between(0, 10, default=None)
    top_p: float | None = between(0, 1, default=None)
    max_tokens: int | None = between(1, 1_000_000, default=None)
    log_probs: bool | None = None

    removes: ClassVar[frozenset[Capability]] = _NOT_TEXT

    @classmethod
    def tiny(cls) -> Self:
        return cls(temperature=0.7)

    @classmethod
    def null(cls) -> Self:
        """Return the setting that changes nothing."""
        return cls()

    def check(self) -> None:
        if self.top_p == 0:
            raise UsageError("Sampling: top_p must be above 0, got 0; temperature: 0 is greedy.")

    def apply(self, subject: Any, rng: Rng) -> Any:
        names = ("temperature", "top_p", "max_tokens", "log_probs")
        changes = tuple((n, getattr(self, n)) for n in names if getattr(self, n) is not None)
        return rewritten(subject, _Drawing(changes)) if changes else subject


@dataclass(frozen=True)
class _Telling:
    text: str

    def __call__(self, request: Request) -> Request:
        if isinstance(request.prompt, str):
            return replace(request, prompt=f"{self.text}\n\n{request.prompt}")
        said = list(request.prompt)
        first = said[0] if said else {}
        text = self.text
        if first.get("role") == "system" and isinstance(first.get("content"), str):
            text = f"{text}\n\n{first['content']}"
            said = said[1:]
        return replace(request, prompt=[{"role": "system", "content": text}, *said])


@dataclass(frozen=True)
class _Showing:
    pairs: tuple[tuple[str, str], ...]

    def __call__(self, request: Request) -> Request:
        now = asked(request.prompt)
        pairs = [pair for pair in self.pairs if pair[0] != now]
        messages = [
            {"role": role, "content": text}
            for pair in pairs
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
        blocks = [f"{q}{'' if q[-1:].isspace() else ' '}{a}\n\n" for q, a in pairs]
        return with_prefix(request, messages, "".join(blocks))


@dataclass(frozen=True)
class _Drawing:
    changes: tuple[tuple[str, Any], ...]

    def __call__(self, request: Request) -> Request:
        return replace(request, **dict(self.changes))


def _example(task: Task, unit: Unit) -> tuple[str, str]:
    """Return a unit's question and answer: the task's own words, or the usual fields."""
    own = getattr(task, "example", None)
    if own is not None:
        question, answer = own(unit)
        return str(question), str(answer)
    content = unit.content if isinstance(unit.content, Mapping) else {"question": unit.content}
    question = content.get("prompt", content.get("question"))
    if not isinstance(question, str) or not isinstance(unit.target, (str, int, float)):
        raise UsageError(
            f"FewShot: {type(task).__name__} does not say how its units are shown: give it a "
            "method example(unit) that returns question and answer, or give examples."
        )
    return question, str(unit.target)
