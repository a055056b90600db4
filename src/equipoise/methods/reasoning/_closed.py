"""Questions whose answer is one of a few words, asked by logits or answered in writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import (
    HasModule,
    Outcome,
    Request,
    ScoreSpec,
    Unit,
    UnitError,
    UsageError,
)
from equipoise.kit.language.canned import Canned, CannedScores, Constant, asked
from equipoise.kit.language.talk import each, error_outcome, generate_each

SCORES = (
    ScoreSpec("correct", True, 0, 1),
    ScoreSpec("probability", True, 0, 1),
    ScoreSpec("mass", True, 0, 1),
    ScoreSpec("margin", True, unit="nats"),
    ScoreSpec("entropy", None, low=0, unit="nats"),
)
NEW_TOKENS = 10
STOP = ("\n", "Passage:")


def perform(evaluation: str, subject: Any, units: Sequence[Unit]) -> list[Outcome]:
    """Ask units, whose content has ``prompt`` and ``candidates``, and score the answers.

    Parameters
    ----------
    evaluation
        ``logit`` compares the candidates' first tokens; ``exact_match`` looks
        for the right word in what the subject writes.
    subject, units
        As for `Task.perform`.
    """
    if evaluation == "exact_match":
        return _written(subject, units)
    by = _from_distributions if isinstance(subject, HasModule) else _from_likelihoods
    return [
        error_outcome(unit, found) if isinstance(found, UnitError) else found
        for unit, found in zip(units, each(lambda some: by(subject, some), units), strict=True)
    ]


def _from_likelihoods(subject: Any, units: Sequence[Unit]) -> list[Outcome]:
    """Ask a subject that gives log-likelihoods of the candidates, and no more."""
    pairs = []
    for unit in units:
        prompt = unit.content["prompt"]  # one object, so that its computation is shared
        pairs += [(prompt, f" {word}") for word in unit.content["candidates"]]
    found = iter(subject.log_likelihood(pairs))
    outcomes = []
    for unit in units:
        scores = [next(found).log_probs for _ in unit.content["candidates"]]
        outcomes.append(_outcome(unit, np.array([line[0] for line in scores])))
    return outcomes


def _from_distributions(subject: Any, units: Sequence[Unit]) -> list[Outcome]:
    from equipoise.kit.language.distributions import next_token_entropy
    from equipoise.kit.language.states import next_token_log_probs

    asked = [first_tokens(subject, u.content["prompt"], u.content["candidates"]) for u in units]
    log_probs = next_token_log_probs(subject, [row for row, _ in asked])
    entropy = next_token_entropy(log_probs)
    return [
        _outcome(unit, line[firsts], entropy=float(unsure))
        for unit, line, (_, firsts), unsure in zip(units, log_probs, asked, entropy, strict=True)
    ]


def first_tokens(
    subject: Any, prompt: str, candidates: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return the ids of a context and, for each candidate, the first token that tells it apart.

    Words follow a blank, and are cut as the tokenizer cuts them in context, so
    that marks at the beginning of a text and blanks inside tokens are where the
    model expects them. Tokens that all candidates begin with (a blank of its
    own) go to the context.

    Raises
    ------
    UsageError
        If two candidates have the same first token.
    """
    from equipoise.kit.language.states import cut

    context, words = cut(subject, prompt, [f" {word}" for word in candidates])
    shared = 0
    while len({tuple(word[: shared + 1]) for word in words}) == 1 and shared + 1 < min(
        map(len, words)
    ):
        shared += 1
    firsts = [word[shared] for word in words]
    for place, first in enumerate(firsts):
        other = firsts.index(first)
        if other != place:
            raise UsageError(
                f'The answers "{candidates[other]}" and "{candidates[place]}" begin with the same'
                " token for this model: choose other words, or evaluation: exact_match."
            )
    return context + words[0][:shared], firsts


def _outcome(unit: Unit, among: np.ndarray, **others: float) -> Outcome:
    """Score the log-probabilities of the candidates' first tokens."""
    if not np.isfinite(among).all():
        fault = UnitError("The subject gave a log-likelihood that is not finite.", "garbage")
        return error_outcome(unit, fault)
    words = unit.content["candidates"]
    right, choice = words.index(unit.target), int(among.argmax())
    weights = np.exp(among - among.max())
    scores = {
        "correct": float(choice == right),
        "probability": float(weights[right] / weights.sum()),
        "mass": float(min(1.0, np.exp(among[right]))),
        "margin": float(among[right] - np.delete(among, right).max()),
    }
    return Outcome(unit.id, scores=scores | others, output=words[choice])


def _written(subject: Any, units: Sequence[Unit]) -> list[Outcome]:
    requests = [Request(unit.content["prompt"], max_tokens=NEW_TOKENS, stop=STOP) for unit in units]
    outcomes = []
    for unit, found in zip(units, generate_each(subject, requests), strict=True):
        if isinstance(found, UnitError):
            outcomes.append(error_outcome(unit, found))
            continue
        right = unit.target.lower() in found.text.lower()
        outcomes.append(
            Outcome(unit.id, {"correct": float(right)}, output=found.text, usage=found.usage)
        )
    return outcomes


def example(unit: Unit) -> tuple[str, str]:
    """Return what is asked and the right answer."""
    return unit.content["prompt"], unit.target


def oracle(evaluation: str, solve: Callable[[str], str]) -> Any:
    """Return a subject that answers every prompt as ``solve`` does."""
    if evaluation == "exact_match":
        return Canned(_Writes(solve))
    return CannedScores(_Right(solve))


def constant(evaluation: str) -> Any:
    """Return a subject to which all answers are alike."""
    if evaluation == "exact_match":
        return Canned(Constant("nothing"))
    return CannedScores(_none, wrong=0.0)


def _none(prompt: Any) -> str:
    return ""


@dataclass(frozen=True)
class _Writes:
    solve: Callable[[str], str]

    def __call__(self, request: Request) -> str:
        return f" {self.solve(asked(request.prompt))}"


@dataclass(frozen=True)
class _Right:
    solve: Callable[[str], str]

    def __call__(self, prompt: Any) -> str:
        return f" {self.solve(asked(prompt))}"
