"""Additions: a text task small enough to learn by heart, half for learning and half for testing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from equipoise.core import (
    Capability,
    Generates,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    Split,
    Task,
    Unit,
    between,
)
from equipoise.kit.language.normalise import last_number


@dataclass(frozen=True)
class Additions(Task):
    """Asks sums of two numbers; those with an even first number are for learning.

    Parameters
    ----------
    largest
        Numbers go from 0 to this.

    Examples
    --------
    >>> [Additions.example(u) for u in Additions(largest=1).units(Rng(0)) if u.split == "train"]
    [('0 + 0 =', '0'), ('0 + 1 =', '1')]
    """

    largest: int = between(1, 1_000, default=5)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (ScoreSpec("correct", True, 0, 1),)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield every pair, in order."""
        for one in range(self.largest + 1):
            split: Split = "train" if one % 2 == 0 else "test"
            for two in range(self.largest + 1):
                yield Unit(f"{one}+{two}", {"prompt": f"{one} + {two} ="}, one + two, split=split)

    @staticmethod
    def example(unit: Unit) -> tuple[str, str]:
        """Return a unit's question and its answer."""
        return unit.content["prompt"], str(unit.target)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score the last number of each answer."""
        requests = [Request(unit.content["prompt"], max_tokens=8) for unit in units]
        return [
            Outcome(u.id, {"correct": float(last_number(g.text) == u.target)}, output=g.text)
            for u, g in zip(units, subject.generate(requests), strict=True)
        ]
