"""How a scorer does on pairs of responses, all scored together in an order that gives no hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from equipoise.core import Outcome, ScoreSpec, Unit, UsageError
from equipoise.kit.data.identity import position
from equipoise.methods.alignment._responses import GivesRewards, Responses

PAIR_SCORES = (
    ScoreSpec("correct", low=0, high=1),
    ScoreSpec("margin"),
    ScoreSpec("preference", low=0, high=1, share=True),
    ScoreSpec("reward_chosen", higher_is_better=None),
    ScoreSpec("reward_rejected", higher_is_better=None),
    ScoreSpec("length_chosen", higher_is_better=None),
    ScoreSpec("length_rejected", higher_is_better=None),
)


def responses_of(units: Sequence[Unit]) -> Responses:
    """Return two responses a pair, in an order that does not tell which is better."""
    sides = [
        unit.content[side]
        for unit in units
        for side in (("rejected", "chosen") if turned_pair(unit.id) else ("chosen", "rejected"))
    ]
    names = [name for name in (sides[0] if sides else ()) if name != "text"]
    missing = float("nan")
    columns = {
        name: np.array([missing if side.get(name) is None else side[name] for side in sides], float)
        for name in names
    }
    has_text = bool(sides) and all("text" in side for side in sides)
    prompts = tuple(str(unit.content.get("prompt", "")) for unit in units for _ in range(2))
    return Responses(
        pair=np.repeat(np.arange(len(units)), 2),
        prompts=prompts if any(prompts) else (),
        texts=tuple(str(side["text"]) for side in sides) if has_text else (),
        columns=columns,
    )


def scored(
    subject: GivesRewards, whole: Sequence[Unit], asked: Sequence[Unit], length: str
) -> list[Outcome]:
    """Return the outcomes of the pairs asked, all of ``whole`` being scored together."""
    responses = responses_of(whole)
    rewards = np.asarray(subject.rewards(responses), float)
    if rewards.shape != (len(responses),):
        raise UsageError(f"The scorer gave {rewards.size} rewards for {len(responses)} responses.")
    turned = np.array([turned_pair(unit.id) for unit in whole])
    lengths = lengths_of(responses, length)
    columns = {"reward": _ordered(rewards, turned)}
    if lengths is not None:
        columns["length"] = _ordered(lengths, turned)
    place = {unit.id: index for index, unit in enumerate(whole)}
    return [_outcome(unit, place[unit.id], columns) for unit in asked]


def _outcome(unit: Unit, index: int, columns: dict[str, np.ndarray]) -> Outcome:
    chosen, rejected = columns["reward"][index]
    if not np.isfinite([chosen, rejected]).all():
        return Outcome(
            unit.id,
            status="error",
            error_kind="no_score",
            error="A response of the pair has no score.",
        )
    margin = float(chosen - rejected)
    scores = {
        "correct": float(margin > 0),
        "margin": margin,
        "preference": float(0.5 * (1 + np.tanh(margin / 2))),
    }
    for name, each in columns.items():
        scores |= {
            f"{name}_chosen": float(each[index, 0]),
            f"{name}_rejected": float(each[index, 1]),
        }
    return Outcome(unit.id, scores=scores, output={"margin": margin})


def lengths_of(responses: Responses, name: str) -> np.ndarray | None:
    """Return the lengths, or None where texts and column are missing."""
    try:
        return responses.characteristic(name)
    except UsageError:
        return None


def turned_pair(key: str) -> bool:
    """Say whether the worse response of a pair comes first."""
    return position(key) < 0.5


def _ordered(column: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """Return chosen and rejected side by side, shape ``(pairs, 2)``."""
    table = column.reshape(-1, 2)
    return np.where(turned[:, None], table[:, ::-1], table)


@dataclass(frozen=True)
class Knows:
    """A scorer that knows which of two responses is the better, all pairs being asked."""

    turned: tuple[bool, ...]

    @classmethod
    def of(cls, units: Sequence[Unit]) -> Knows:
        """Return the scorer that knows these pairs."""
        return cls(tuple(turned_pair(unit.id) for unit in units))

    def rewards(self, responses: Responses) -> np.ndarray:
        table = np.array([[0.0, 1.0] if each else [1.0, 0.0] for each in self.turned])
        return table.reshape(-1)


@dataclass(frozen=True)
class Alike:
    """A scorer that finds all responses alike."""

    def rewards(self, responses: Responses) -> np.ndarray:
        return np.zeros(len(responses))
