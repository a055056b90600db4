"""Live text subjects whose answers are known beforehand: for scripts, oracles and tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import Generation, Prompt, Request, TokenScores, UnitError, Usage
from equipoise.kit.language.tools import calls_in


def asked(prompt: Prompt) -> str:
    """Return what a prompt asks: the text itself, or the text of the last user message.

    Examples
    --------
    >>> asked([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}])
    'Why?'
    """
    if isinstance(prompt, str):
        return prompt
    for message in reversed(prompt):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return message_text(message)
    return ""


def message_text(message: Mapping[str, object]) -> str:
    """Return the text of a message, its text parts joined."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(p["text"]) for p in content if isinstance(p, Mapping) and "text" in p)
    return ""


@dataclass(frozen=True)
class Lookup:
    """Answers by what the prompt asks; a prompt that is not in the table is an error."""

    table: Mapping[str, str]

    def __call__(self, request: Request) -> str:
        question = asked(request.prompt)
        try:
            return self.table[question]
        except KeyError:
            short = question if len(question) <= 60 else question[:57] + "..."
            raise UnitError(f'No answer is scripted for "{short}".', "unknown_prompt") from None


@dataclass(frozen=True)
class Constant:
    """Answers every prompt the same."""

    text: str

    def __call__(self, request: Request) -> str:
        return self.text


@dataclass(frozen=True)
class Canned:
    """A subject with `Generates` that asks a function.

    Usage counts words. Asked with tools, calls are JSON between ``<tool_call>`` tags, as local
    models write them. An answer ends at a stop string and after
    ``max_tokens`` words. Each of several samples asks the function again,
    with the request's seed plus the number of the sample.

    Parameters
    ----------
    answer
        Maps a request to the text of the answer.
    """

    answer: Callable[[Request], str]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation:
        texts, finish, words = [], [], 0
        for sample in range(request.n):
            seed = None if request.seed is None else request.seed + sample
            asked_now = request if request.n == 1 else replace(request, n=1, seed=seed)
            text, end, count = _cut(self.answer(asked_now), request)
            texts.append(text)
            finish.append(end)
            words += count
        prompt = request.prompt
        given = prompt if isinstance(prompt, str) else " ".join(map(message_text, prompt))
        usage = Usage(len(given.split()), words)
        if not request.tools:
            return Generation(tuple(texts), tuple(finish), usage=usage)
        calls = tuple(map(calls_in, texts))
        ends = tuple("tool_calls" if c else f for c, f in zip(calls, finish, strict=True))
        return Generation(tuple(texts), ends, calls, usage=usage)


def _cut(text: str, request: Request) -> tuple[str, str, int]:
    if not isinstance(text, str):
        raise UnitError(f"A scripted answer must be text, got {type(text).__name__}.", "garbage")
    for stop in request.stop:
        text = text.partition(stop)[0]
    count = len(text.split())
    if count <= request.max_tokens:
        return text, "stop", count
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text[: ends[request.max_tokens - 1]], "length", request.max_tokens


@dataclass(frozen=True)
class CannedScores:
    """A subject with `ScoresText` that knows which continuation follows a prompt.

    The right continuation has probability 1, any other ``exp(wrong)`` a byte;
    tokens are bytes. Without ``right`` every text is certain.
    """

    right: Callable[[Prompt], str] | None = None
    wrong: float = -5.0

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def log_likelihood(
        self, pairs: Sequence[tuple[Prompt, str | Sequence[int]]]
    ) -> list[TokenScores]:
        scores = []
        for prompt, continuation in pairs:
            size = len(continuation.encode() if isinstance(continuation, str) else continuation)
            right = self.right is None or self.right(prompt) == continuation
            scores.append(TokenScores(np.full(size, 0.0 if right else self.wrong), greedy=right))
        return scores
