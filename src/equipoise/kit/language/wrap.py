"""Subjects that change what is asked before another subject sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    Generation,
    HasModule,
    Message,
    Prompt,
    Request,
    ScoresText,
    TokenScores,
    UsageError,
)

Rewrite = Callable[[Request], Request]


def rewritten(subject: Any, rewrite: Rewrite) -> Any:
    """Return a subject that answers ``rewrite(request)`` in place of each request.

    It has those of `Generates`, `GeneratesAsync`, `ScoresText` and `HasModule`
    that ``subject`` has. Prompts of text and of messages are rewritten for
    log-likelihoods too; prompts of token ids, such as windows of running text,
    are left as they are. The module is the inner subject's own; a subject with
    another module is rewritten in the same way.

    Parameters
    ----------
    subject
        A live text subject.
    rewrite
        Maps a request to another; picklable, and the same every time.

    Raises
    ------
    UsageError
        If the subject neither generates nor scores text.
    """
    found = frozenset(each for each in _MIXINS if isinstance(subject, each))
    if not found & {Generates, GeneratesAsync, ScoresText}:
        raise UsageError(
            f"{type(subject).__name__} neither generates nor scores text, so what it is "
            "asked cannot be rewritten: choose a language model or an endpoint."
        )
    return _class_for(found)(subject, rewrite)


class Rewritten:
    """A subject behind a rewriting of its requests; made by `rewritten`."""

    def __init__(self, subject: Any, rewrite: Rewrite) -> None:
        self.subject = subject
        self.rewrite = rewrite

    def __reduce__(self) -> tuple[Any, ...]:
        return rewritten, (self.subject, self.rewrite)

    def __repr__(self) -> str:
        return f"rewritten({self.subject!r}, {self.rewrite!r})"


class _Generating:
    subject: Any
    rewrite: Rewrite

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        found: list[Generation] = self.subject.generate([self.rewrite(r) for r in requests])
        return found


class _Answering:
    subject: Any
    rewrite: Rewrite

    @property
    def max_connections(self) -> int | None:
        return getattr(self.subject, "max_connections", None)

    async def generate_one(self, request: Request) -> Generation:
        found: Generation = await self.subject.generate_one(self.rewrite(request))
        return found


class _Scoring:
    subject: Any
    rewrite: Rewrite

    def tokenize(self, text: str) -> list[int]:
        found: list[int] = self.subject.tokenize(text)
        return found

    def log_likelihood(
        self, pairs: Sequence[tuple[Prompt, str | Sequence[int]]]
    ) -> list[TokenScores]:
        # Pairs that share a prompt go on sharing it.
        seen: dict[int, Prompt] = {}
        for prompt, _ in pairs:
            if id(prompt) not in seen:
                seen[id(prompt)] = self._prompt(prompt)
        found: list[TokenScores] = self.subject.log_likelihood(
            [(seen[id(prompt)], continuation) for prompt, continuation in pairs]
        )
        return found

    def _prompt(self, prompt: Prompt) -> Prompt:
        if isinstance(prompt, str) or (len(prompt) and isinstance(prompt[0], Mapping)):
            return self.rewrite(Request(prompt)).prompt  # type: ignore[arg-type]
        return prompt


class _Opening:
    subject: Any
    rewrite: Rewrite

    @property
    def module(self) -> Any:
        return self.subject.module

    @property
    def tokenizer(self) -> Any:
        return self.subject.tokenizer

    @property
    def device(self) -> Any:
        return self.subject.device

    def with_module(self, module: Any) -> Any:
        return rewritten(self.subject.with_module(module), self.rewrite)


_MIXINS: dict[Capability, type] = {
    Generates: _Generating,
    GeneratesAsync: _Answering,
    ScoresText: _Scoring,
    HasModule: _Opening,
}


@functools.cache
def _class_for(capabilities: frozenset[Capability]) -> type[Rewritten]:
    # A class has just the methods of its capabilities, because that is how they are recognised.
    bases = tuple(mixin for each, mixin in _MIXINS.items() if each in capabilities)
    return type("Rewritten", (Rewritten, *bases), {"__module__": __name__})


def with_prefix(request: Request, messages: Sequence[Message], text: str) -> Request:
    """Return a request with messages put after its leading system messages, or text before it.

    Parameters
    ----------
    request
        What was asked.
    messages
        Put in where the prompt is a list of messages.
    text
        Put in front where the prompt is plain text.
    """
    if isinstance(request.prompt, str):
        return replace(request, prompt=text + request.prompt)
    said = list(request.prompt)
    place = 0
    while place < len(said) and said[place].get("role") in ("system", "developer"):
        place += 1
    return replace(request, prompt=[*said[:place], *messages, *said[place:]])
