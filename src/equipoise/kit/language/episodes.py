"""Tasks whose units are episodes in an environment: what to write is the environment."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from equipoise.core import Capability, Generates, Outcome, Rng, Talk, Task, Unit, between
from equipoise.kit.language.environment import DialogueLimits, Environment, User, hold_dialogue


@dataclass(frozen=True)
class EnvironmentTask(Task):
    """An agent works through episodes; each gives the scores of its environment.

    Give `units`, `episode` and `simulated_user`, and declare ``scores``. An episode that
    a limit ended keeps its scores and has the status ``limit``.

    Parameters
    ----------
    steps
        Answers that the agent may give in an episode, tool calls and messages alike.
    max_tokens
        New tokens in one answer.
    temperature
        Of the agent.
    """

    steps: int = between(1, 10_000, default=30)
    max_tokens: int = between(1, 100_000, default=512)
    temperature: float = between(0.0, 2.0, default=0.0)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})

    @abstractmethod
    def episode(self, unit: Unit) -> Environment:
        """Return the environment of a unit, with a state of its own."""

    @abstractmethod
    def simulated_user(self, unit: Unit, rng: Rng) -> User:
        """Return who the agent talks to; ``rng`` is the unit's own stream."""

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        """Hold one dialogue and score what became of the state."""
        episode = self.episode(unit)
        limits = DialogueLimits(steps=self.steps, turns=self.steps, max_tokens=self.max_tokens)
        user = self.simulated_user(unit, rng)
        found = await hold_dialogue(
            talk, episode, user, limits=limits, temperature=self.temperature
        )
        return Outcome(
            unit.id,
            dict(episode.scores(found)),
            status="ok" if found.ended in ("user", "tool") else "limit",
            output={"ended": found.ended, "faults": found.faults, "said": found.said[-1:]},
        )
