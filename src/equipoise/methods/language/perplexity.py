"""Perplexity: how well a subject predicts running text, window by window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    HasModule,
    Json,
    Outcome,
    Prompt,
    Rng,
    ScoreSpec,
    ScoresText,
    Task,
    TokenScores,
    Unit,
    UnitError,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.data import content_hash, read_texts
from equipoise.kit.language.canned import CannedScores
from equipoise.kit.language.talk import each, error_outcome
from equipoise.kit.language.tokens import known_tokens

_SEEK = 64  # characters within which the end of a word is looked for


@dataclass(frozen=True)
class Perplexity(Task):
    r"""Negative log-likelihood of windows of prose.

    The documents are joined by blank lines. Window $i$ covers positions
    $[iS, iS + L)$ of the text, with stride $S$ and length $L$. Its first token
    is context only; from the second window on, so is what it shares with the
    window before, so that no token is scored twice. Over the scored tokens $t$,

    $$\mathrm{nll} = -\frac{1}{n} \sum_t \log p(t \mid \text{window before } t),$$

    and perplexity is $e^{\mathrm{nll}}$. Bits a byte are
    $-\sum_t \log_2 p(t)$ over the UTF-8 bytes of the scored text.

    With ``unit: tokens`` positions are the subject's own tokens: arms with one
    tokenizer see the same windows. With ``unit: bytes`` they are bytes of the
    text, moved on to the end of a word, and context is at least one word: every
    subject scores the same text. Compare tokenizers by ``bits_per_byte`` with
    ``unit: bytes``; per-token scores then differ in their denominators.

    Neighbouring windows of one document are alike, so intervals over windows
    hold for texts like these and not for prose at large.

    Parameters
    ----------
    windows
        How many windows.
    length
        Tokens (or bytes) in a window.
    stride
        Tokens (or bytes) from one window to the next; by default the length,
        so that windows do not overlap.
    unit
        ``tokens`` or ``bytes``.
    data
        Prose: a ``.txt`` file or a folder of them, a table with a column
        ``text``, ``hf:NAME_OR_FOLDER`` or ``builtin:NAME``.

    Examples
    --------
    >>> task = Perplexity(windows=2, length=64)
    >>> task.perform(task.oracle(), list(task.units(Rng(0))), Rng(0))[0].scores["tokens"]
    63.0
    """

    windows: int = between(1, 1_000_000, default=24)
    length: int = between(2, 1_000_000, default=512)
    stride: int | None = between(1, 1_000_000, default=None)
    unit: str = one_of("tokens", "bytes", default="tokens")
    data: str = setting("builtin:sklearn_descriptions")

    needs: ClassVar[frozenset[Capability]] = frozenset({ScoresText})
    batch: ClassVar[int] = 8  # windows are long: what is done is stored often
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("nll", False, unit="nats per token"),
        ScoreSpec("bits_per_byte", False, unit="bits per byte"),
        ScoreSpec("log_likelihood", True, unit="nats"),
        ScoreSpec("tokens", None, unit="tokens"),
        ScoreSpec("bytes", None, unit="bytes"),
    )

    def check(self) -> None:
        if self.stride is not None and self.stride > self.length:
            raise UsageError(
                f"Perplexity: stride must be at most the length of {self.length}, "
                f"got {self.stride}; text between windows would go unread."
            )

    def content(self) -> Json:
        return content_hash(self.data)

    @classmethod
    def tiny(cls) -> Self:
        return cls(windows=2, length=16)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the windows, whose number depends on no subject; ``rng`` is not used."""
        for index in range(self.windows):
            yield Unit(f"window-{index:04d}", content={"window": index})

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        text = "\n\n".join(read_texts(self.data))
        windows = _TokenWindows(self, subject, text) if self.unit == "tokens" else None
        cut = windows.cut if windows else _ByteWindows(self, text).cut
        pairs: list[_Pair | UnitError] = []
        for unit in units:
            try:
                pairs.append(cut(unit.content["window"]))
            except UnitError as error:
                pairs.append(error)

        def scored(wanted: Sequence[_Pair]) -> list[TokenScores]:
            found: list[TokenScores] = subject.log_likelihood([(p.context, p.rest) for p in wanted])
            return found

        found = iter(each(scored, [pair for pair in pairs if isinstance(pair, _Pair)]))
        return [
            error_outcome(unit, pair)
            if isinstance(pair, UnitError)
            else self._outcome(unit, pair, next(found))
            for unit, pair in zip(units, pairs, strict=True)
        ]

    def oracle(self) -> CannedScores:
        """Return a subject to which the text is certain."""
        return CannedScores()

    def constant(self) -> CannedScores:
        """Return a subject to which every byte is as likely as any other."""
        return CannedScores(_never, wrong=-math.log(256))

    def too_short(self, index: int, size: int) -> UnitError:
        """Return the error of a window beyond the end of the text."""
        most = max(0, (size - self.length) // self._step + 1)
        return UnitError(
            f"Perplexity: {self.data} has {size:,} {self.unit}, too few for window {index + 1} "
            f"of {self.length}: ask for at most {most} windows, or for shorter ones.",
            "too_short",
        )

    @property
    def _step(self) -> int:
        return self.stride or self.length

    def _outcome(self, unit: Unit, pair: _Pair, found: TokenScores | UnitError) -> Outcome:
        if isinstance(found, UnitError):
            return error_outcome(unit, found)
        tokens = len(found.log_probs)
        if not tokens:
            return error_outcome(unit, UnitError("The window has no tokens to score.", "garbage"))
        total = found.total
        nll = -total / tokens
        return Outcome(
            unit.id,
            scores={
                "nll": nll,
                "bits_per_byte": -total / math.log(2) / pair.size,
                "log_likelihood": total,
                "tokens": float(tokens),
                "bytes": float(pair.size),
            },
            output={"perplexity": math.exp(min(nll, 700.0)), "text": pair.text},
        )


def _never(prompt: Prompt) -> str:
    return ""


@dataclass(frozen=True)
class _Pair:
    """A window: what is context, what is scored, and the scored bytes and text."""

    context: Prompt
    rest: str | list[int]
    size: float
    text: str


class _TokenWindows:
    """Windows of a subject's own tokens."""

    def __init__(self, task: Perplexity, subject: Any, text: str) -> None:
        self.task = task
        self.subject = subject
        self.ids = known_tokens(subject, text)
        self.bytes_per_token = len(text.encode()) / max(1, len(self.ids))

    def cut(self, index: int) -> _Pair:
        task, step = self.task, self.task._step
        start, end = index * step, index * step + task.length
        if end > len(self.ids):
            raise task.too_short(index, len(self.ids))
        first = start + (max(1, task.length - step) if index else 1)
        rest = self.ids[first:end]
        if not isinstance(self.subject, HasModule):
            # Without the tokenizer the bytes of these tokens are not known: take the average.
            return _Pair(self.ids[start:first], rest, len(rest) * self.bytes_per_token, "")
        text = self.subject.tokenizer.decode(rest, clean_up_tokenization_spaces=False)
        return _Pair(self.ids[start:first], rest, max(1, len(text.encode())), text)


class _ByteWindows:
    """Windows of text whose edges are those of words, the same for every subject."""

    def __init__(self, task: Perplexity, text: str) -> None:
        self.task = task
        self.raw = text.encode()

    def cut(self, index: int) -> _Pair:
        task, step = self.task, self.task._step
        start, end = index * step, index * step + task.length
        if end > len(self.raw):
            raise task.too_short(index, len(self.raw))
        shared = task.length - step if index else 0
        left, right = self._edge(start), self._edge(end)
        middle = self._edge(start + shared) if shared else self._edge(left + 1)
        context, rest = self.raw[left:middle].decode(), self.raw[middle:right].decode()
        if not rest:
            raise UnitError(f"Perplexity: {task.length} bytes hold no more than a word.", "garbage")
        return _Pair(context, rest, right - middle, rest)

    def _edge(self, place: int) -> int:
        """Return the end of the word at a place, or of the character if it is very long."""
        if place == 0:
            return 0
        for at in range(place, min(place + _SEEK, len(self.raw))):
            if self.raw[at] in b" \n\t":
                return at
        while place < len(self.raw) and self.raw[place] & 0xC0 == 0x80:
            place += 1
        return place
