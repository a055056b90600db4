"""Coins: a subject and a task whose truth is known, for tests of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from equipoise.core import Outcome, Rng, ScoreSpec, Subject, Task, Unit, UnitError, between


@dataclass(frozen=True)
class Coin(Subject):
    """A coin that shows heads with probability ``heads``.

    Parameters
    ----------
    heads
        In [0, 1].

    Examples
    --------
    >>> Coin(heads=1.0).load(Rng(0)).heads
    1.0
    """

    heads: float = between(0, 1, default=0.5)

    def load(self, rng: Rng) -> Coin:
        """Return the coin itself."""
        return self


@dataclass(frozen=True)
class Tosses(Task):
    """Tosses a coin once a unit; ``correct`` is heads, ``loss`` an unbounded number.

    Parameters
    ----------
    tosses
        How many units.
    per_cluster
        Units that share a toss, and so a cluster; 1 makes them independent.
    fails
        Share of tosses that fail, in [0, 1].
    """

    tosses: int = between(1, 10_000_000, default=100)
    per_cluster: int = between(1, 1_000, default=1)
    fails: float = between(0, 1, default=0.0)

    scores = (
        ScoreSpec("correct", low=0, high=1),
        ScoreSpec("loss", higher_is_better=False, unit="nats"),
    )

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the tosses."""
        for index in range(self.tosses):
            cluster = f"c{index // self.per_cluster}" if self.per_cluster > 1 else None
            yield Unit(f"toss-{index}", {"toss": index}, cluster=cluster)

    def perform(self, subject: Coin, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Toss; a failing toss fails whatever it is asked together with."""
        return [self._toss(subject, unit, rng) for unit in units]

    def _toss(self, subject: Coin, unit: Unit, rng: Rng) -> Outcome:
        draw = rng.child(unit.cluster or unit.id).numpy()
        heads, noise, failing = draw.random() < subject.heads, draw.normal(), draw.random()
        if failing < self.fails:
            raise UnitError("The coin fell off the table.", kind="lost")
        return Outcome(
            unit.id,
            {"correct": float(heads), "loss": 1.0 - heads + 0.1 * noise},
            output="heads" if heads else "tails",
        )
