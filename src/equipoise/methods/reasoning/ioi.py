"""Indirect-object identification: who is given something, where two people are named."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Generates,
    Outcome,
    Rng,
    ScoreSpec,
    ScoresText,
    Split,
    Task,
    Unit,
    UsageError,
    between,
    one_of,
)
from equipoise.methods.reasoning import _closed

NAMES = (
    "Adam", "Alice", "Anna", "Brian", "David", "Emma", "Frank", "George", "Helen", "Jack",
    "James", "John", "Laura", "Mark", "Mary", "Paul", "Peter", "Sarah", "Simon", "Tom",
)  # fmt: skip
PLACES = ("store", "park", "school", "office", "station", "library", "garden", "restaurant")
OBJECTS = ("drink", "book", "ring", "ball", "letter", "ticket", "flower", "key")
KINDS = ("A", "B", "AL", "BL")
_FILLERS = (
    "after a long and quiet afternoon",
    "on the first warm day of the year",
    "because the rain had stopped at last",
    "some time before the others came",
)


@dataclass(frozen=True)
class IndirectObject(Task):
    """Sentences that name two people, one of whom gives something: the other gets it.

    "When Mary and John went to the store, John gave a drink to" goes on with
    "Mary". A model that copies names needs to leave out the one that stands
    twice. No two problems are alike, whatever their split.

    By ``logit`` the answer is, of all names, the one whose first token is the
    most probable. Scores: ``correct``; ``probability``, of the right name among
    all; ``mass``, of its first token over the whole vocabulary; ``margin``, its
    log-probability less that of the best other name; and, for subjects that
    open their module, ``entropy`` of the next token, in nats. By ``exact_match``
    it is right if the name stands in up to 10 new tokens before a line break.

    Parameters
    ----------
    kinds
        Of ``A`` (the right name is the first of the two), ``B`` (the second),
        and ``AL`` and ``BL``, with words put in between.
    problems
        Problems to test on, spread over the kinds.
    train
        Problems for treatments to learn from.
    calibration
        Problems for treatments to choose settings by.
    shots
        Solved sentences before each.
    names
        All names there are; their first tokens must differ.
    evaluation
        ``logit`` or ``exact_match``.

    References
    ----------
    Wang et al., "Interpretability in the Wild: a Circuit for Indirect Object
    Identification in GPT-2 small", ICLR 2023; the evaluation is that of
    "Improving Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    >>> (unit,) = IndirectObject(kinds=("A",), problems=1, train=0).units(Rng(0))
    >>> solve(unit.content["prompt"]) == unit.target, unit.stratum
    (True, 'A')
    """

    kinds: tuple[str, ...] = ("A", "B")
    problems: int = between(1, 10_000, default=300)
    train: int = between(0, 10_000, default=200)
    calibration: int = between(0, 10_000, default=0)
    shots: int = between(0, 100, default=0)
    names: tuple[str, ...] = NAMES
    evaluation: str = one_of("logit", "exact_match", default="logit")

    needs: ClassVar[frozenset[Capability]] = frozenset({ScoresText})
    scores: ClassVar[tuple[ScoreSpec, ...]] = _closed.SCORES

    @classmethod
    def tiny(cls) -> Self:
        return cls(problems=6, train=4, calibration=2, shots=1, names=("Ann", "Bob", "Cid", "Dora"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation == "exact_match":  # text is enough, so endpoints can be asked too
            object.__setattr__(self, "needs", frozenset({Generates}))

    def check(self) -> None:
        odd = [kind for kind in self.kinds if kind not in KINDS]
        if odd or not self.kinds:
            raise UsageError(
                f"IndirectObject: kinds must be one or more of {', '.join(KINDS)}, got"
                f" {odd[0] if odd else 'none'!r}."
            )
        if len(set(self.names)) < len(self.names) or len(self.names) < 2:
            raise UsageError("IndirectObject: names must be two or more, all different.")
        if not all(re.fullmatch(r"\w+", name) for name in self.names):
            raise UsageError("IndirectObject: each name must be one word.")
        there = len(self.names) * (len(self.names) - 1) * len(PLACES) * len(OBJECTS)
        there *= len(set(self.kinds))
        asked = self.problems + self.train + self.calibration
        if 2 * asked > there:
            raise UsageError(
                f"IndirectObject: problems, train and calibration are {asked:,} together, too many"
                f" for {len(self.names)} names; there are {there:,} sentences."
            )

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield problems of each split; ids tell draws apart."""
        sizes: dict[Split, int] = {
            "test": self.problems, "train": self.train, "calibration": self.calibration,
        }  # fmt: skip
        seen: set[str] = set()
        for split, size in sizes.items():
            for number in range(size):
                kind = self.kinds[number % len(self.kinds)]
                draws = rng.child("ioi", split, number).numpy()
                text, answer = self._new(kind, draws, seen)
                shown = [sentence(kind, draws, self.names) for _ in range(self.shots)]
                prompt = "".join(f"{one} {name}.\n" for one, name in shown) + text
                digest = hashlib.sha256(prompt.encode()).hexdigest()[:8]
                yield Unit(
                    f"{split}-{kind}-{number:05d}-{digest}",
                    content={"prompt": prompt, "candidates": sorted(self.names)},
                    target=answer,
                    stratum=kind,
                    split=split,
                )

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        return _closed.perform(self.evaluation, subject, units)

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and the right name."""
        return _closed.example(unit)

    def negative(self, unit: Unit) -> str:
        """Return what is asked, gone on with the name of who gives."""
        prompt = unit.content["prompt"]
        return f"{prompt} {_people(prompt)[2]}"

    def oracle(self) -> Any:
        return _closed.oracle(self.evaluation, solve)

    def constant(self) -> Any:
        return _closed.constant(self.evaluation)

    def _new(self, kind: str, draws: np.random.Generator, seen: set[str]) -> tuple[str, str]:
        while True:
            text, answer = sentence(kind, draws, self.names)
            if text not in seen:
                seen.add(text)
                return text, answer


def sentence(
    kind: str, draws: np.random.Generator, names: Sequence[str] = NAMES
) -> tuple[str, str]:
    """Draw a sentence up to where the name goes, and the name.

    Examples
    --------
    >>> text, answer = sentence("B", np.random.default_rng(0))
    >>> solve(text) == answer, text.split()[3] == answer
    (True, True)
    """
    giver, receiver = (str(each) for each in draws.choice(names, 2, replace=False))
    first, second = (receiver, giver) if kind[0] == "A" else (giver, receiver)
    place, thing = str(draws.choice(PLACES)), str(draws.choice(OBJECTS))
    filler = f" {draws.choice(_FILLERS)}" if kind.endswith("L") else ""
    return (
        f"When {first} and {second} went to the {place}{filler}, {giver} gave a {thing} to",
        receiver,
    )


def solve(prompt: str) -> str:
    """Return who is given something in the last sentence of a prompt.

    Examples
    --------
    >>> solve("When Mary and John went to the store, John gave a drink to")
    'Mary'
    """
    first, second, giver = _people(prompt)
    return second if giver == first else first


def _people(prompt: str) -> tuple[str, str, str]:
    """Return the two who are named in the last sentence, and who gives."""
    found = re.findall(r"When (\w+) and (\w+) went to .*, (\w+) gave", prompt)[-1]
    return found[0], found[1], found[2]
