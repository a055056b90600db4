"""What a trial would run, what the store has already, and what it may cost; nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equipoise.core import UsageError
from equipoise.store import Store, default_store
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

    def as_json(self) -> dict[str, Any]:
        """Return the JSON contract of ``plan --json``."""
        known = [cell.seconds for cell in self.cells if cell.total > cell.done]
        seconds = None if None in known else sum(s for s in known if s is not None)
        return {
            "trial": self.trial.name,
            "question": self.trial.question,
            "units": sum(cell.total for cell in self.cells),
            "done": sum(cell.done for cell in self.cells),
            "todo": self.todo,
            "seconds": seconds,
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
    place = Path(store or default_store())
    totals = {label: sum(1 for _ in test_units(trial, label)) for label in trial.tasks}
    history: dict[tuple[str, str], Mapping[str, Any]] = {}
    if place.exists():
        with Store.open(place, readonly=True) as opened:
            for arm, task in trial.cells():
                found = opened.known(trial.arm_identities[arm], trial.task_identities[task])
                if found:
                    history[arm, task] = found
    cells = []
    for arm, task in trial.cells():
        total = totals[task] * trial.repeats * trial.builds_of(arm)
        own = history.get((arm, task))
        done = min(total, int(own["units"] - own["errors"])) if own else 0
        like = own or next((h for (_, t), h in history.items() if t == task), None)
        each = _each(like) if like else (None, None)
        left = total - done
        cells.append(
            Cell(
                arm,
                task,
                total,
                done,
                None if each[0] is None else each[0] * left,
                None if each[1] is None else each[1] * left,
            )
        )
    return Plan(trial, cells)


def _each(history: Mapping[str, Any]) -> tuple[float, float]:
    units = max(1, int(history["units"]))
    tokens = (history["input_tokens"] or 0) + (history["output_tokens"] or 0)
    return float(history["seconds"] or 0.0) / units, tokens / units
