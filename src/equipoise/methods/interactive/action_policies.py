"""Baselines for `ToolDial`: who acts by rules, by habit, by words or by what was learned.

The plain functions take the text of a dialogue: `rule_action` and `keyword_action`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Embeds,
    Generates,
    Generation,
    Prompt,
    Request,
    Rng,
    ScoresText,
    Subject,
    Task,
    TokenScores,
    Unit,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.language.canned import Canned, Constant, asked
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS
from equipoise.methods.interactive._tooldial_graph import ngram_vectors
from equipoise.methods.interactive._tooldial_learners import Logistic, Nearest
from equipoise.methods.interactive._tooldial_rules import keyword_action, rule_action

__all__ = ["ActionPolicy", "keyword_action", "rule_action"]

Choose = Callable[[Sequence[str]], list[str]]

_LEARNING = ("majority", "neighbour", "logistic")
_WRONG = -5.0  # log-likelihood of a letter of an action that is not chosen


@dataclass(frozen=True)
class ActionPolicy(Subject):
    """Says the next action of a tool dialogue, without being a language model.

    ``rule`` follows the task's rules over the right states, and words where none are shown;
    ``keyword`` looks at the last line's words and the retriever's scores; ``majority`` always says
    the most frequent action; ``neighbour`` what followed most often after the nearest dialogues;
    ``logistic`` is a logistic regression on words, where they stand, and how often kinds of lines
    come. The last three learn from train units. An answer is one of the eight actions; as
    log-likelihood the chosen action has 0, others -5 a letter.

    Parameters
    ----------
    kind
        ``rule``, ``keyword``, ``majority``, ``neighbour`` or ``logistic``.
    data
        A task `ToolDial` on action prediction, whose train units are learned from.
    neighbours
        How many dialogues vote.
    most
        Train units that ``neighbour`` remembers, drawn at random.
    embedder
        A subject that embeds texts, for ``neighbour``; hashed pieces of words where there is none.

    Examples
    --------
    >>> live = ActionPolicy("keyword").load(Rng(0))
    >>> live.generate([Request("- Retriever status: {'HotelSearch': 0.55}")])[0].text
    'suggest'
    """

    kind: str = one_of("rule", "keyword", *_LEARNING, default="rule")
    data: Task | None = None
    neighbours: int = between(1, 1_000, default=5)
    most: int = between(1, 1_000_000, default=4_000)
    embedder: Subject | None = None

    provides: ClassVar[frozenset[Capability]] = frozenset({Generates, ScoresText})

    @classmethod
    def tiny(cls) -> Self:
        return cls("keyword")

    def check(self) -> None:
        if self.kind in _LEARNING and self.data is None:
            raise UsageError(
                f"ActionPolicy: kind: {self.kind} learns, so it needs data, such as "
                "{tooldial: {train: 200}}."
            )
        if self.embedder is not None:
            if self.kind != "neighbour":
                raise UsageError("ActionPolicy: embedder is for kind: neighbour.")
            if Embeds not in self.embedder.provides:
                name = type(self.embedder).__name__
                raise UsageError(f"ActionPolicy: embedder must embed texts, and {name} does not.")

    def load(self, rng: Rng) -> Policy:
        """Return the policy; those that learn do it here, from train units alone."""
        if self.kind in ("rule", "keyword"):
            return Policy(_Each(rule_action if self.kind == "rule" else keyword_action))
        texts, actions = self._learnt(rng)
        if self.kind == "majority":
            return Policy(_Each(_Always(SYSTEM_ACTIONS[Counter(actions).most_common(1)[0][0]])))
        if self.kind == "logistic":
            if len(set(actions)) < 2:
                raise UsageError("ActionPolicy: the train units know one action only; take more.")
            return Policy(Logistic(texts, np.array(actions)))
        embed: Any = ngram_vectors
        if self.embedder is not None:
            embed = self.embedder.load(rng.child("embedder")).embed
        drawn = rng.child("neighbour").numpy().permutation(len(texts))[: self.most]
        some = [texts[i] for i in drawn]
        return Policy(Nearest(embed, some, np.array(actions)[drawn], self.neighbours))

    def _learnt(self, rng: Rng) -> tuple[list[str], list[int]]:
        assert self.data is not None, "check() sees to it"
        units = learnable(self.data, rng)
        actions = [_action(unit) for unit in units]
        if not units or any(action not in SYSTEM_ACTIONS for action in actions):
            raise UsageError(
                "ActionPolicy: data must be a tooldial task on action prediction with train units."
            )
        texts = [unit.content["history"] for unit in units]
        return texts, [SYSTEM_ACTIONS.index(action) for action in actions]


def _action(unit: Unit) -> str:
    return str(unit.target.get("action")) if isinstance(unit.target, dict) else ""


@dataclass(frozen=True)
class _Each:
    one: Callable[[str], str]

    def __call__(self, texts: Sequence[str]) -> list[str]:
        return [self.one(text) for text in texts]


@dataclass(frozen=True)
class _Always:
    action: str

    def __call__(self, text: str) -> str:
        return self.action


class Policy:
    """A live policy: answers with the action it chooses, and scores that action highest."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        actions = self._choose([asked(request.prompt) for request in requests])
        found = []
        for request, action in zip(requests, actions, strict=True):
            found += Canned(Constant(action)).generate([request])
        return found

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def log_likelihood(
        self, pairs: Sequence[tuple[Prompt, str | Sequence[int]]]
    ) -> list[TokenScores]:
        # The options of one prompt come as one object: each prompt is looked at once.
        prompts = {id(prompt): prompt for prompt, _ in pairs}
        texts = [_text(prompt) for prompt in prompts.values()]
        chosen = dict(zip(prompts, self._choose(texts), strict=True))
        found = []
        for prompt, option in pairs:
            letters = option.encode() if isinstance(option, str) else bytes(option)
            right = letters.decode(errors="replace").strip() == chosen[id(prompt)]
            found.append(TokenScores(np.full(len(letters), 0.0 if right else _WRONG), right))
        return found


def _text(prompt: Any) -> str:
    if not isinstance(prompt, str) and len(prompt) and isinstance(prompt[0], int):
        return bytes(prompt).decode(errors="replace")
    return asked(prompt)
