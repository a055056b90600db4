"""What a trial would run, what the store has already, and what it may cost; nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equipoise.core import UsageError
from equipoise.store import Store, default_store, is_there
from equipoise.trial.trial import Trial
from equipoise.trial.units import test_units


@dataclass(frozen=True)
class Cell:
    """One arm on one task: how many units it takes and how many are done.

    ``seconds`` and ``tokens`` are what the units still to do may cost, from
    what this arm, or else this task, cost before; None when neither ran.
    """

    arm: str
    task: str
    total: int
    done: int
    seconds: float | None = None
    tokens: float | None = None


@dataclass(frozen=True)
class Plan:
    """What `run` would do."""

    trial: Trial
    cells: Sequence[Cell]

    @property
    def todo(self) -> int:
        """Units still to do."""
        return sum(cell.total - cell.done for cell in self.cells)

    @property
    def most(self) -> int | None:
        """Units that a trial which allocates runs or reuses at most; None of any other."""
        if self.trial.allocate is None:
            return None
        total = sum(cell.total for cell in self.cells)
        return min(self.trial.budget.units or total, total)

    def _seconds(self) -> float | None:
        """Return what the units still to do may take, None where that is not known."""
        known = [cell.seconds for cell in self.cells if cell.total > cell.done]
        if None in known:
            return None
        seconds = sum(s for s in known if s is not None)
        if self.most is None or self.most >= self.todo:
            return seconds
        return seconds * self.most / self.todo

    def as_json(self) -> dict[str, Any]:
        """Return the JSON contract of ``plan --json``."""
        allocated = {"allocate": self.trial.allocate, "most": self.most}
        return {
            "trial": self.trial.name,
            "question": self.trial.question,
            "units": sum(cell.total for cell in self.cells),
            "done": sum(cell.done for cell in self.cells),
            "todo": self.todo,
            "seconds": self._seconds(),
            **(allocated if self.trial.allocate is not None else {}),
            "cells": [
                {
                    "arm": cell.arm,
                    "task": cell.task,
                    "units": cell.total,
                    "done": cell.done,
                    "seconds": cell.seconds,
                    "tokens": cell.tokens,
                }
                for cell in self.cells
            ],
            "claims": [str(claim) for claim in self.trial.claims],
            "arms": {label: arm.as_json() for label, arm in self.trial.arms.items()},
        }


def sizes(trial: Trial, tasks: Iterable[str]) -> dict[str, int]:
    """Return how many units the trial plans for each task."""
    return {task: sum(1 for _ in test_units(trial, task)) for task in tasks}


def plan(trial: Trial, *, store: str | Path | None = None) -> Plan:
    """Say what a run would do. Reads the store if there is one, writes nothing.

    Raises
    ------
    UsageError
        If the trial cannot work.
    """
    faults = trial.faults()
    if faults:
        raise UsageError(" ".join(message for _, message in faults))
    place = store or default_store()
    totals = sizes(trial, trial.tasks)
    history = _history(trial, totals, place) if is_there(place) else {}
    cells = []
    for arm, task in trial.cells():
        total = totals[task] * trial.repeats * trial.builds_of(arm)
        own = history.get((arm, task))
        done = own["outcomes"] - own["errors"] if own else 0
        like = own or next((found for (_, t), found in history.items() if t == task), None)
        seconds, tokens = _each(like) if like else (None, None)
        left = total - done
        cells.append(
            Cell(
                arm,
                task,
                total,
                done,
                None if seconds is None else seconds * left,
                None if tokens is None else tokens * left,
            )
        )
    return Plan(trial, cells)


def _history(
    trial: Trial, totals: Mapping[str, int], place: str | Path
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return what the store's outcomes of each cell cost, where it has any."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    with Store.open(place, readonly=True) as store:
        for arm, task in trial.cells():
            of_arm, of_task = store.find(trial.arm_identities[arm], trial.task_identities[task])
            if of_arm is None or of_task is None:
                continue
            costs = store.costs(
                of_arm,
                of_task,
                builds=trial.builds_of(arm),
                repeats=trial.repeats,
                units=totals[task],
            )
            if costs["outcomes"]:
                found[arm, task] = costs
    return found


def _each(history: Mapping[str, Any]) -> tuple[float, float]:
    tokens = history["input_tokens"] + history["output_tokens"]
    return history["seconds"] / history["attempts"], tokens / history["attempts"]
