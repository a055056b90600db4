"""What passes between tasks and language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Json = Any
"""Anything that JSON can hold."""

Message = Mapping[str, Any]
"""A chat message in OpenAI's shape: role, content (text or parts), tool calls."""

Prompt = str | Sequence[Message] | Sequence[int]
"""Plain text, a list of messages (the chat template is applied), or token ids."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost, in tokens, and in dollars where the price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to generate from.

    Parameters
    ----------
    prompt
        Text to continue, or messages to answer.
    n
        How many samples.
    max_tokens
        Most new tokens in each sample.
    temperature
        0 is greedy decoding.
    top_p
        Nucleus of probability mass to sample from, in (0, 1].
    stop
        Strings that end an answer; they are not part of it.
    tools
        Function descriptions in OpenAI's shape.
    seed
        Seed of this request alone, so that batching and order do not matter.
    log_probs
        Whether to return the log-probability (natural) of each new token.
    """

    prompt: str | Sequence[Message]
    n: int = 1
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    seed: int | None = None
    log_probs: bool = False


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one `Request`; each tuple has one entry a sample.

    ``finish`` is ``"stop"``, ``"length"`` or ``"tool_calls"``; ``log_probs``
    holds a float array a sample when they were asked for, and ``tokens`` the text
    of each of these tokens where it is known.
    """

    texts: tuple[str, ...]
    finish: tuple[str, ...] = ()
    tool_calls: tuple[tuple[Mapping[str, Any], ...], ...] = ()
    log_probs: tuple[np.ndarray, ...] = ()
    usage: Usage = field(default_factory=Usage)
    tokens: tuple[tuple[str, ...], ...] = ()

    @property
    def text(self) -> str:
        """The first sample."""
        return self.texts[0]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities of a continuation, token by token.

    Parameters
    ----------
    log_probs
        Natural logarithms, one a token, shape ``(tokens,)``.
    greedy
        Whether every token was the most probable one.
    """

    log_probs: np.ndarray
    greedy: bool = False

    @property
    def total(self) -> float:
        """Log-likelihood of the whole continuation, in nats."""
        return float(self.log_probs.sum(dtype=np.float64))
