"""Reading a store: columns for the statistics, rows for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    exists,
    func,
    or_,
    select,
)

from equipoise.core import EXCUSED, Outcomes, ScoreSpec, UsageError, nearest
from equipoise.store import _packing as packing
from equipoise.store._dialect import score_value
from equipoise.store._tables import arms, covers, outcomes, runs, tasks, units

_CHUNK = 10_000  # rows in Python's hands at a time

FINAL = ("ok", "limit")  # an error may be followed by another attempt, these may not


def chunks(
    connection: Connection, query: Select[Any], size: int = _CHUNK
) -> Iterator[Sequence[Any]]:
    """Yield plain tuples, some thousands at a time, straight from the driver."""
    result = connection.execute(query)
    cursor: Any = result.cursor
    try:
        while found := cursor.fetchmany(size):
            yield found
    finally:
        result.close()


def size_of(
    arm: int, task: int, builds: int | None, repeats: int | None, unit_count: int | None
) -> ColumnElement[bool]:
    """Return the condition for an arm on a task, cut to a trial's size."""
    asked = [outcomes.c.arm == arm, outcomes.c.task == task]
    for column, most in ((outcomes.c.build, builds), (outcomes.c.repeat, repeats)):
        if most is not None:
            asked.append(column < most)
    if unit_count is not None:
        asked.append(outcomes.c.unit < unit_count)
    return and_(*asked)


def latest() -> ColumnElement[bool]:
    """Return the condition for the attempt that counts."""
    later = outcomes.alias("later")
    key = ("arm", "task", "build", "repeat", "unit")
    same = [later.c[name] == outcomes.c[name] for name in key]
    return or_(
        outcomes.c.status != "error",
        ~exists().where(*same, later.c.attempt > outcomes.c.attempt),
    )


def specs_of(connection: Connection, task: int) -> tuple[ScoreSpec, ...]:
    """Return how the scores of a task are read."""
    row = connection.execute(select(tasks.c.scores).where(tasks.c.id == task)).scalar()
    if row is None:
        raise UsageError(f"No task {task} in this store.")
    return tuple(ScoreSpec(**each) for each in json.loads(row))


def label_of(connection: Connection, table: Any, number: int) -> str:
    """Return the label of an arm or a task."""
    found = connection.execute(select(table.c.label).where(table.c.id == number)).scalar()
    if found is None:
        raise UsageError(f"No {table.name[:-1]} {number} in this store.")
    return str(found)


_FAILED = ("error", "excused")
_LARGEST = 2**31 - 1  # of the integers that every database takes


class _Columns:
    """Columns that grow by chunks and are joined once, one at a time."""

    def __init__(self, names: Sequence[str]) -> None:
        self.whole: dict[str, list[np.ndarray]] = {name: [] for name in names}
        self.scores: dict[str, list[tuple[int, np.ndarray]]] = {}
        self.n = 0

    def add(self, rows: Sequence[Any], wanted: Sequence[str] | None) -> None:
        unit, build, repeat, attempt, status, scores = zip(*rows, strict=True)
        for name, column in zip(self.whole, (unit, build, repeat, attempt), strict=False):
            self.whole[name].append(np.array(column, np.int64))
        self.whole["failed"].append(np.array([each in _FAILED for each in status]))
        self.whole["excused"].append(np.array([each == "excused" for each in status]))
        parsed = json.loads(f"[{','.join(scores)}]")
        names: Any = wanted if wanted is not None else {name for each in parsed for name in each}
        for name in names:
            values = [each.get(name, np.nan) for each in parsed]
            self.scores.setdefault(name, []).append((self.n, np.array(values, float)))
        self.n += len(rows)

    def column(self, name: str) -> np.ndarray:
        parts = self.whole.pop(name)
        if parts:
            return np.concatenate(parts)
        return np.empty(0, bool if name in ("failed", "excused") else np.int64)

    def score(self, name: str) -> np.ndarray:
        column = np.full(self.n, np.nan)
        for start, part in self.scores.pop(name, ()):
            column[start : start + len(part)] = part
        return column


def read_outcomes(
    connection: Connection,
    arm: int,
    task: int,
    *,
    builds: int | None = None,
    repeats: int | None = None,
    unit_count: int | None = None,
    score_names: Sequence[str] | None = None,
) -> Outcomes:
    """Read one arm on one task into arrays, the attempts that count only."""
    c = outcomes.c
    blameless = (c.status == "error") & c.error_kind.in_(EXCUSED)
    status = case((blameless, "excused"), else_=c.status)
    query = (
        select(c.unit, c.build, c.repeat, c.attempt, status, c.scores)
        .where(size_of(arm, task, builds, repeats, unit_count))
        .order_by(c.build, c.repeat, c.unit, c.attempt)
    )
    specs = specs_of(connection, task)
    found = _Columns(("unit", "build", "repeat", "attempt", "failed", "excused"))
    for rows in chunks(connection, query):
        found.add(rows, score_names)
    unit, build, repeat = (found.column(name) for name in ("unit", "build", "repeat"))
    pick: Any = slice(None)
    if found.column("attempt").any():
        same = (unit[1:] == unit[:-1]) & (build[1:] == build[:-1]) & (repeat[1:] == repeat[:-1])
        pick = np.flatnonzero(~np.append(same, False))
    if build.any() or repeat.any():
        order = np.lexsort((repeat[pick], build[pick], unit[pick]))
        pick = order if isinstance(pick, slice) else pick[order]
    unit = unit[pick]
    names = [each.name for each in specs]
    if score_names is None:
        names += sorted(set(found.scores) - set(names))
    else:
        names = list(score_names)
    clusters, strata, strata_names = _groups(connection, task)
    excused = found.column("excused")[pick]
    return Outcomes(
        unit=unit,
        scores={name: found.score(name)[pick] for name in names},
        failed=found.column("failed")[pick],
        excused=excused if excused.any() else None,
        build=build[pick],
        repeat=repeat[pick],
        cluster=None if clusters is None else clusters[unit],
        stratum=None if strata is None else strata[unit],
        strata=strata_names,
        specs=specs,
        arm=label_of(connection, arms, arm),
        task=label_of(connection, tasks, task),
    )


def _groups(
    connection: Connection, task: int
) -> tuple[np.ndarray | None, np.ndarray | None, tuple[str, ...]]:
    """Return cluster and stratum codes by unit number, and the names of the strata.

    Codes are of all the task's units, so they agree between arms. The database
    ranks the names: a million of them need not become Python strings. A unit
    without a cluster is one of its own.
    """
    mine = units.c.task == task
    n = connection.execute(select(func.max(units.c.number)).where(mine)).scalar()
    n = 0 if n is None else n + 1

    def codes(column: ColumnElement[Any]) -> np.ndarray:
        code = np.full(n, -1, np.int64)
        rank = func.dense_rank().over(order_by=column) - 1
        query = select(units.c.number, rank).where(mine, column.is_not(None))
        for rows in chunks(connection, query):
            pairs = np.array(rows, np.int64)
            code[pairs[:, 0]] = pairs[:, 1]
        return code

    def has(column: ColumnElement[Any]) -> bool:
        query = select(exists().where(mine, column.is_not(None)))
        return bool(connection.execute(query).scalar())

    clusters = strata = None
    names: tuple[str, ...] = ()
    if has(units.c.cluster):
        clusters = codes(units.c.cluster)
        alone = clusters < 0
        clusters[alone] = clusters.max() + 1 + np.arange(alone.sum())
    if has(units.c.stratum):
        strata = codes(units.c.stratum)
        query = select(units.c.stratum).where(mine, units.c.stratum.is_not(None)).distinct()
        names = tuple(connection.execute(query.order_by(units.c.stratum)).scalars())
        if (strata < 0).any():
            strata[strata < 0] = len(names)
            names += ("",)
    return clusters, strata, names


def read_done(
    connection: Connection,
    arm: int,
    task: int,
    build: int,
    numbers: np.ndarray,
    repeats: int,
    include_errors: bool,
) -> np.ndarray:
    """Return a mask of shape ``(units, repeats)``."""
    if not len(numbers):
        return np.zeros((0, repeats), bool)
    low, high = int(numbers.min()), int(numbers.max())
    mask = np.zeros((high - low + 1, repeats), bool)
    c = outcomes.c
    query = select(c.unit, c.repeat).where(
        c.arm == arm,
        c.task == task,
        c.build == build,
        c.repeat < repeats,
        c.unit.between(low, high),
    )
    if not include_errors:
        query = query.where(c.status.in_(FINAL))
    for rows in chunks(connection, query):
        pairs = np.array(rows, np.int64)
        mask[pairs[:, 0] - low, pairs[:, 1]] = True
    found: np.ndarray = mask[numbers - low]
    return found


def read_means(
    connection: Connection, which: ColumnElement[bool], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Average each score over the outcomes that did not fail."""
    if not names:
        return {}
    columns = []
    for name in names:
        value = score_value(connection.dialect, outcomes.c.scores, name)
        columns += [func.avg(value), func.count(value)]
    row = connection.execute(select(*columns).where(which, outcomes.c.status.in_(FINAL))).one()
    return {name: {"mean": row[2 * i], "n": int(row[2 * i + 1])} for i, name in enumerate(names)}


_COMPARE: dict[str, Any] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def conditions(connection: Connection, where: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """Translate ``{"status": "error", "score.correct": ("<", 0.5)}``."""
    plain = {name: outcomes.c[name] for name in ("status", "build", "repeat", "error_kind")}
    plain |= {name: units.c[name] for name in ("unit", "cluster", "stratum", "split")}
    found = []
    for name, asked in where.items():
        sign, value = asked if isinstance(asked, tuple) else ("=", asked)
        if name.startswith("score."):
            column: Any = score_value(connection.dialect, outcomes.c.scores, name[6:])
        elif name in plain:
            column = plain[name]
        else:
            known = [*plain, "score.NAME"]
            raise UsageError(
                f'Outcomes cannot be chosen by "{name}".{nearest(name, known)}'
                f" There are: {', '.join(known)}."
            )
        if sign not in _COMPARE:
            raise UsageError(f'No comparison "{sign}"; there are: {" ".join(_COMPARE)}.')
        value = packing.text(value) if isinstance(value, str) else value
        found.append(_COMPARE[sign](column, value))
    return found


_OUTCOME = (
    "build", "repeat", "attempt", "status", "scores", "error_kind", "error",
    "input_tokens", "output_tokens", "dollars", "seconds", "seed", "sandbox", "output",
)  # fmt: skip
_UNIT = ("unit", "cluster", "stratum", "split", "content", "target")


def rows_query(run: int | None, arm: int | None, task: int | None, *more: Any) -> Select[Any]:
    """Select rows for people, in the order of a run's arms and tasks, or of numbers."""
    c = outcomes.c
    joined = outcomes.join(units, and_(units.c.task == c.task, units.c.number == c.unit))
    if run is not None:
        covered = and_(
            covers.c.run == run,
            covers.c.arm == c.arm,
            covers.c.task == c.task,
            or_(covers.c.units.is_(None), c.unit < covers.c.units),
            or_(covers.c.builds.is_(None), c.build < covers.c.builds),
            or_(covers.c.repeats.is_(None), c.repeat < covers.c.repeats),
        )
        source = joined.join(covers, covered)
        labels: tuple[Any, ...] = (covers.c.arm_label, covers.c.task_label)
        order: tuple[Any, ...] = (covers.c.position,)
    else:
        source = joined.join(arms, arms.c.id == c.arm).join(tasks, tasks.c.id == c.task)
        labels = (arms.c.label, tasks.c.label)
        order = (c.arm, c.task)
    query = (
        select(
            *labels,
            *(units.c[name] for name in _UNIT),
            *(c[name] for name in _OUTCOME),
            *more,
        )
        .select_from(source)
        .where(latest())
        .order_by(*order, c.build, c.repeat, c.unit)
    )
    if arm is not None:
        query = query.where(c.arm == arm)
    if task is not None:
        query = query.where(c.task == task)
    return query


def as_row(values: Sequence[Any]) -> dict[str, Any]:
    """Return a row of `rows_query` as people read it."""
    names = ("arm", "task", *_UNIT, *_OUTCOME)
    row = dict(zip(names, values, strict=False))
    row["scores"] = json.loads(row["scores"])
    for name in ("content", "target", "output"):
        row[name] = packing.unpack(row[name])
    row["usage"] = {name: row.pop(name) for name in ("input_tokens", "output_tokens", "dollars")}
    return row


def read_run(connection: Connection, which: int | str) -> dict[str, Any]:
    """Return a run by number, the last one of a trial by its name, or the last of all."""
    query = select(runs)
    if isinstance(which, int) or which.isdecimal():
        query = query.where(runs.c.id == min(int(which), _LARGEST))
    elif which != "last":
        query = query.where(runs.c.trial == packing.text(which))
    row = connection.execute(query.order_by(runs.c.id.desc()).limit(1)).mappings().first()
    if row is None:
        last = connection.execute(select(func.max(runs.c.id))).scalar()
        if last is None:
            raise UsageError("This store holds no run yet.")
        names = list(connection.execute(select(runs.c.trial).distinct()).scalars())
        near = "" if str(which).isdecimal() else nearest(str(which), names)
        raise UsageError(f'No run "{which}".{near} Give a number up to {last}, a trial, or last.')
    found = dict(row)
    found["provenance"] = json.loads(found["provenance"])
    found["result"] = json.loads(found["result"]) if found["result"] else None
    covered = select(covers).where(covers.c.run == found["id"]).order_by(covers.c.position)
    found["covers"] = [
        {name: value for name, value in each.items() if name not in ("run", "position")}
        for each in connection.execute(covered).mappings()
    ]
    return found
