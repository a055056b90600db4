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
class PredictsQuantiles(Protocol):
    """Maps rows ``(n, features)`` to quantiles ``(n, levels)``, rising along ``levels``.

    Levels lie in (0, 1). A quantile that cannot be told is infinite.
    """

    def predict_quantiles(self, inputs: np.ndarray, levels: Sequence[float]) -> np.ndarray: ...


@runtime_checkable
class PredictsInterval(Protocol):
    """Maps rows to intervals ``(n, 2)`` meant to hold the value with probability 1 - ``alpha``.

    One end may be infinite: a lower bound is an interval too. Rows asked
    together may be taken as a sample of the covariates to come.
    """

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray: ...


@runtime_checkable
class PredictsSet(Protocol):
    """Maps rows to sets of labels ``(n, classes)``, true where ``classes_`` is in the set.

    A set is meant to hold the right label with probability 1 - ``alpha``.
    """

    @property
    def classes_(self) -> np.ndarray: ...

    def predict_set(self, inputs: np.ndarray, alpha: float) -> np.ndarray: ...


@runtime_checkable
class PredictsSurvival(Protocol):
    """Maps rows to the probability ``(n, times)`` of no event up to each of ``times``."""

    def predict_survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray: ...


@runtime_checkable
class Screens(Protocol):
    """Decides about rows that are asked together, with an error rate of ``alpha``.

    Returns p-values and decisions of one shape: ``(n,)`` where ``targets`` are
    given and rows are flagged, ``(n, labels)`` where labels are declared.
    """

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]: ...


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
    """Learns from data and returns a new subject.

    ``data`` is a sequence of units, or `equipoise.kit.arrays.Examples`. A learner
    reads the splits it names in ``learns_from``, by default train alone: one that
    calibrates itself names calibration too. What it can do only when trained, it
    declares before, and refuses with a sentence.
    """

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
