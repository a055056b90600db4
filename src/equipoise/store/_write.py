"""Writing a store: what `Store` does inside one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy import Connection, and_, func, select, update

from equipoise.core import Outcome, ScoreSpec, Unit, UsageError
from equipoise.store import _packing as packing
from equipoise.store import _read as read
from equipoise.store._dialect import insert_once
from equipoise.store._tables import arms, covers, outcomes, tasks, units

AT_ONCE = 5_000  # rows or names in one statement


def add_units(connection: Connection, task: int, given: Sequence[Unit]) -> np.ndarray:
    """Return the numbers of units, adding those that are new."""
    names = [packing.text(unit.id) for unit in given]
    lock = select(tasks.c.label).where(tasks.c.id == task).with_for_update()
    label = connection.execute(lock).scalar()
    if label is None:
        raise UsageError(f"No task {task} in this store.")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UsageError(f'Task {label} gives the unit id "{twice}" twice; ids must differ.')
    highest = connection.execute(
        select(func.max(units.c.number)).where(units.c.task == task)
    ).scalar()
    free = 0 if highest is None else highest + 1
    numbers = np.empty(len(given), np.int64)
    for start in range(0, len(given), AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(given)))
        known: dict[str, Any] = {}
        if highest is not None:
            # Without the sum, SQLite would rather walk through all the task's units.
            mine = and_(units.c.task + 0 == task, units.c.unit.in_(names[start : part.stop]))
            found = connection.execute(select(units).where(mine)).mappings()
            known = {row["unit"]: row for row in found}
        fresh = []
        for i in part:
            unit, row = given[i], known.get(names[i])
            if row is None:
                numbers[i] = free
                fresh.append(_unit_row(task, free, names[i], unit))
                free += 1
            elif _same(_unit_row(task, row["number"], names[i], unit), row):
                numbers[i] = row["number"]
            else:
                raise UsageError(
                    f'Task {label}: the unit id "{names[i]}" stood for other content, cluster or'
                    " split before; ids must be stable, so give the changed units other ids,"
                    " or raise the version on the task's card."
                )
        insert_once(connection, units, fresh)
    return numbers


def _unit_row(task: int, number: int, name: str, unit: Unit) -> dict[str, Any]:
    return {
        "task": task,
        "number": number,
        "unit": name,
        "cluster": packing.text_or_none(unit.cluster),
        "stratum": packing.text_or_none(unit.stratum),
        "split": unit.split,
        "content": packing.pack(unit.content),
        "target": packing.pack(unit.target),
    }


def _same(given: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Say whether two rows are one unit, however its content was packed."""
    if all(given[name] == kept[name] for name in given):
        return True
    plain = all(given[name] == kept[name] for name in ("cluster", "stratum", "split"))
    return plain and all(
        packing.unpack(given[name]) == packing.unpack(kept[name]) for name in ("content", "target")
    )


def outcome_row(
    run: int,
    arm: int,
    task: int,
    build: int,
    repeat: int,
    number: int,
    outcome: Outcome,
    found: dict[str, bytes],
    quoted: dict[str, str],
) -> dict[str, Any]:
    """Return an outcome as a row, its long messages and artifacts going to ``found``."""
    seed, usage = outcome.seed, outcome.usage
    return {
        "arm": arm,
        "task": task,
        "build": build,
        "repeat": repeat,
        "unit": int(number),
        "attempt": 0,
        "run": run,
        "status": outcome.status,
        "scores": packing.scores_text(outcome.scores, quoted),
        "input_tokens": int(usage.input_tokens),
        "output_tokens": int(usage.output_tokens),
        "dollars": float(usage.dollars),
        "seconds": None if outcome.seconds is None else float(outcome.seconds),
        "seed": int(seed) if seed is not None and -(2**63) <= seed < 2**63 else None,
        "sandbox": packing.text_or_none(outcome.sandbox),
        "error_kind": packing.text_or_none(outcome.error_kind),
        "error": packing.text_or_none(outcome.error),
        "artifacts": packing.artifacts(outcome.artifacts, found, outcome.unit),
        "output": packing.pack(outcome.output),
        "transcript": packing.transcript(outcome.transcript, found),
    }


def number_attempts(connection: Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number the attempts and leave out what is done already."""
    c = outcomes.c
    numbers = [row["unit"] for row in rows]
    low, high = min(numbers), max(numbers)
    dense = high - low < 2 * len(numbers) or len(numbers) > AT_ONCE
    query = select(c.unit, c.attempt, c.status).where(
        *(c[name] == rows[0][name] for name in ("arm", "task", "build", "repeat")),
        c.unit.between(low, high) if dense else c.unit.in_(numbers),
    )
    last: dict[int, tuple[int, str]] = {
        unit: (attempt, status)
        for unit, attempt, status in connection.execute(query.order_by(c.unit, c.attempt))
    }
    kept = []
    for row in rows:
        attempt, status = last.get(row["unit"], (-1, "error"))
        if status == "error":
            row["attempt"] = attempt + 1
            last[row["unit"]] = (attempt + 1, row["status"])
            kept.append(row)
    return kept


def cover(
    connection: Connection,
    run: int,
    arm: int,
    task: int,
    arm_label: str | None = None,
    task_label: str | None = None,
    **size: int | None,
) -> None:
    """Note that a run is about an arm on a task; with no labels, unless something did."""
    mine = and_(covers.c.run == run, covers.c.arm == arm, covers.c.task == task)
    count = select(func.count()).select_from(covers)
    if arm_label is None and connection.execute(count.where(mine)).scalar():
        return
    row = {
        "run": run,
        "position": connection.execute(count.where(covers.c.run == run)).scalar(),
        "arm": arm,
        "task": task,
        "arm_label": packing.text(arm_label or read.label_of(connection, arms, arm)),
        "task_label": packing.text(task_label or read.label_of(connection, tasks, task)),
        "units": size.get("units"),
        "builds": size.get("builds"),
        "repeats": size.get("repeats"),
    }
    insert_once(connection, covers, [row])


def declare(connection: Connection, task: int, names: set[str]) -> set[str]:
    """Add the names of scores that a task did not declare, and return all its names."""
    specs = read.specs_of(connection, task)
    declared = {each.name for each in specs}
    extra = tuple(ScoreSpec(packing.text(name)) for name in sorted(names - declared))
    if extra:
        text = packing.dumps([asdict(each) for each in specs + extra])
        connection.execute(update(tasks).where(tasks.c.id == task).values(scores=text))
    return declared | names
