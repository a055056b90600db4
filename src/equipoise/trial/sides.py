"""One side of a comparison: arms on tasks, out of a store or straight from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.core import Outcomes, ScoreSpec
from equipoise.store import Store
from equipoise.store.sheets import Sheet

_AT_ONCE = 10_000


@dataclass(frozen=True)
class Cell:
    """One arm on one task.

    Parameters
    ----------
    task
        Two cells whose tasks are equal number their units alike.
    read
        Gives the outcomes as columns.
    units
        Gives the id and the cluster of the units with these numbers.
    answer
        Gives the row of a unit's first outcome by the unit's id.
    costs
        Gives outcomes, tokens, dollars and seconds.
    imported
        Whether the outcomes came from a file, so that equal ids of tasks with one label are
        all that is known of the units.
    """

    task: object
    read: Callable[[], Outcomes]
    units: Callable[[np.ndarray], tuple[list[str], list[str | None]]]
    answer: Callable[[str], Mapping[str, Any]]
    costs: Callable[[], Mapping[str, float]]
    imported: bool


@dataclass(frozen=True)
class Side:
    """What a user named: a run, or a file of outcomes.

    Parameters
    ----------
    name
        What messages call it.
    arms
        Arm to task to cell, in the order of the run or the file.
    notices
        What a reader of a comparison must know.
    """

    name: str
    arms: Mapping[str, Mapping[str, Cell]]
    notices: Sequence[str] = field(default=())

    @property
    def tasks(self) -> list[str]:
        """Labels of all tasks."""
        return list(dict.fromkeys(task for cells in self.arms.values() for task in cells))


def run_side(store: Store, run: Mapping[str, Any]) -> Side:
    """Return a run of a store as a side; nothing is read before it is asked for."""
    arms: dict[str, dict[str, Cell]] = {}
    imported = "imported" in (run.get("provenance") or {})
    for each in run["covers"]:
        cell = _stored(store, each, imported)
        arms.setdefault(each["arm_label"], {})[each["task_label"]] = cell
    name, result, notices = f"run {run['id']}", run.get("result") or {}, []
    if result.get("allocation") or result.get("status") == "early":
        notices.append(
            f"{name} let its scores say how many units to do. All that the store has of its arms"
            " is compared, and intervals and p-values here do not allow for such a choice."
        )
    return Side(name, arms, notices)


def _stored(store: Store, cell: Mapping[str, Any], imported: bool) -> Cell:
    arm, task = cell["arm"], cell["task"]
    size = {name: cell[name] for name in ("units", "builds", "repeats")}

    def units(numbers: np.ndarray) -> tuple[list[str], list[str | None]]:
        rows: list[dict[str, Any]] = []
        for start in range(0, len(numbers), _AT_ONCE):
            rows += store.units_named(task, numbers[start : start + _AT_ONCE].tolist())
        return [row["unit"] for row in rows], [row["cluster"] for row in rows]

    def answer(unit: str) -> Mapping[str, Any]:
        return store.rows(arm=arm, task=task, where={"unit": unit}, limit=1)[0]

    return Cell(
        (store.place, task),
        lambda: store.outcomes(arm, task, **size),
        units,
        answer,
        lambda: store.costs(arm, task, **size),
        imported,
    )


def file_side(sheet: Sheet, specs: Mapping[str, Sequence[ScoreSpec]]) -> Side:
    """Return a file as a side; ``specs`` says how each task's scores are read."""
    arms: dict[str, dict[str, Cell]] = {}
    for arm, task in sheet.cells:
        arms.setdefault(arm, {})[task] = _filed(sheet, arm, task, specs[task])
    notices = []
    if again := sheet.repeats():
        rows = "1 row" if again == 1 else f"{again:,} rows"
        notices.append(
            f"{sheet.file.path.name} has {rows} of units that it had before; without a"
            " column repeat they are taken for repeats."
        )
    return Side(sheet.file.path.name, arms, notices)


def _filed(sheet: Sheet, arm: str, task: str, specs: Sequence[ScoreSpec]) -> Cell:
    def units(numbers: np.ndarray) -> tuple[list[str], list[str | None]]:
        ids, clusters = sheet.units(task), sheet.clusters(task)
        places = numbers.tolist()
        return [ids[place] for place in places], [clusters[place] for place in places]

    return Cell(
        (sheet.file.path, task),
        lambda: sheet.outcomes(arm, task, specs),
        units,
        lambda unit: sheet.row(arm, task, unit),
        lambda: sheet.costs(arm, task),
        True,
    )
