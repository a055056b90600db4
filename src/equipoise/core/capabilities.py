"""What a live subject can do: small protocols that tasks and treatments ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from equipoise.core.language import Generation, Message, Prompt, Request, TokenScores
from equipoise.core.rng import Rng


@runtime_checkable
class Generates(Protocol):
    """Answers requests in batches: local language models."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]: ...


@runtime_checkable
class GeneratesAsync(Protocol):
    """Answers one request at a time, many at once: endpoints."""

    async def generate_one(self, request: Request) -> Generation: ...


@runtime_checkable
class ScoresText(Protocol):
    """Gives the log-likelihood of continuations.

    Pairs with the same prompt share its computation. ``tokenize`` gives the
    token ids of plain text, without special tokens.
    """

    def log_likelihood(
        self, pairs: Sequence[tuple[Prompt, str | Sequence[int]]]
    ) -> list[TokenScores]: ...

    def tokenize(self, text: str) -> list[int]: ...


@runtime_checkable
class HasModule(Protocol):
    """Opens its torch module for white-box work.

    ``with_module`` returns a new subject around another module and leaves
    this one as it was.
    """

    module: Any
    tokenizer: Any

    @property
    def device(self) -> Any: ...

    def with_module(self, module: Any) -> Any: ...


@runtime_checkable
class Embeds(Protocol):
    """Maps texts to vectors, shape ``(texts, dimensions)``."""

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


@runtime_checkable
class Predicts(Protocol):
    """Maps rows ``(n, features)`` to labels or values ``(n,)``."""

    def predict(self, inputs: np.ndarray) -> np.ndarray: ...


@runtime_checkable
class PredictsProba(Protocol):
    """Maps rows ``(n, features)`` to class probabilities ``(n, classes)``."""

    @property
    def classes_(self) -> np.ndarray: ...

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray: ...


@runtime_checkable
class Acts(Protocol):
    """Chooses an action for an observation."""

    def act(self, observation: Any, rng: Rng) -> Any: ...


@runtime_checkable
class Forecasts(Protocol):
    """Continues series ``(n, context)`` by ``(n, horizon)`` values."""

    def forecast(self, context: np.ndarray, horizon: int) -> np.ndarray: ...


@runtime_checkable
class Trains(Protocol):
    """Learns from data and returns a new subject."""

    def fit(self, data: Any, rng: Rng) -> Any: ...


@runtime_checkable
class Judges(Protocol):
    """Gives each conversation a score in [0, 1]."""

    def judge(self, conversations: Sequence[Sequence[Message]]) -> np.ndarray: ...


Capability = type
"""One of the protocols above."""


def capability_names(capabilities: Sequence[Capability] | frozenset[Capability]) -> list[str]:
    """Return sorted names, for messages and JSON."""
    return sorted(each.__name__ for each in capabilities)
