"""What pages ask of a store: lists of runs, and a score of every unit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    or_,
    select,
)

from equipoise.core import UsageError, nearest
from equipoise.store import _packing as packing
from equipoise.store import _read as read
from equipoise.store._dialect import json_value, score_value
from equipoise.store._tables import outcomes, runs, units

SORTS = ("newest", "oldest", "name", "outcomes")


def list_runs(
    connection: Connection,
    *,
    search: str = "",
    verdict: str = "",
    status: str = "",
    sort: str = "newest",
    limit: int = 50,
    offset: int = 0,
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many runs there are of this kind, and one stretch of them.

    A row has what `Reader.runs` gives and ``question``, ``verdict``, ``units``,
    ``errors``, ``seconds``, ``claims`` (verdicts by number) and ``costs`` of the result.
    """
    if sort not in SORTS:
        raise UsageError(f'No order "{sort}".{nearest(sort, SORTS)} There are: {", ".join(SORTS)}.')
    dialect = connection.dialect

    def value(name: str) -> Any:
        return json_value(dialect, runs.c.result, name)

    asked = []
    if search:
        pattern = func.lower(f"%{_escaped(packing.text(search))}%")
        fields = (runs.c.trial, runs.c.paper, value("question"))
        asked.append(
            or_(*(func.lower(cast(each, Text)).like(pattern, escape="\\") for each in fields))
        )
    if verdict:
        found = value("verdict")
        asked.append(found.is_(None) if verdict == "none" else found == verdict)
    if status:
        asked.append(runs.c.status == status)
    order = {
        "newest": runs.c.id.desc(),
        "oldest": runs.c.id,
        "name": func.lower(runs.c.trial),
        "outcomes": runs.c.written.desc(),
    }[sort]
    names = ("id", "trial", "paper", "status", "started", "ended", "written")
    of_result = ("question", "verdict", "units", "errors", "seconds", "claims", "costs")
    query: Select[Any] = select(
        *(runs.c[name] for name in names), *(value(name).label(name) for name in of_result)
    ).where(and_(True, *asked))
    total = connection.execute(select(func.count()).select_from(runs).where(and_(True, *asked)))
    rows = connection.execute(query.order_by(order, runs.c.id.desc()).limit(limit).offset(offset))
    return int(total.scalar() or 0), [_row(dict(each)) for each in rows.mappings()]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    claims, costs = (json.loads(row[name]) if row[name] else [] for name in ("claims", "costs"))
    counts: dict[str, int] = {}
    for claim in claims:
        counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
    totals = {
        name: sum(each.get(name) or 0 for each in costs)
        for name in ("input_tokens", "output_tokens", "dollars")
    }
    for name in ("units", "errors", "seconds"):
        row[name] = None if row[name] is None else float(row[name])
    return row | {"claims": counts, "costs": totals}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


@dataclass(frozen=True, slots=True)
class UnitScores:
    """One arm's score of each unit it was asked, over builds and repeats, ordered by unit.

    Parameters
    ----------
    unit
        Unit numbers, shape ``(n,)``.
    value
        Mean of the score over the outcomes that did not fail; NaN where there is none.
    failed
        Outcomes that failed.
    kind
        Kind of error of one that failed, or None.
    """

    unit: np.ndarray
    value: np.ndarray
    failed: np.ndarray
    kind: np.ndarray


def unit_scores(
    connection: Connection,
    which: ColumnElement[bool],
    score: str,
    *,
    below: int | None = None,
) -> UnitScores:
    """Read one score of an arm on a task, a row a unit; the attempts that count only.

    ``below`` reads the units with a smaller number alone.
    """
    c = outcomes.c
    query = select(
        c.build,
        c.repeat,
        c.unit,
        c.attempt,
        score_value(connection.dialect, c.scores, score),
        case((c.status == "error", func.coalesce(c.error_kind, "error"))),
    ).where(which)
    if below is not None:
        query = query.where(c.unit < below)
    # The order is that of the table: the database need not sort, and an arm on a task
    # takes half the time that it takes when the database groups by unit.
    query = query.order_by(c.build, c.repeat, c.unit, c.attempt)
    keys: list[np.ndarray] = []
    values: list[np.ndarray] = []
    kinds: list[np.ndarray] = []
    for rows in read.chunks(connection, query):
        *key, value, kind = zip(*rows, strict=True)
        keys.append(np.array(key, np.int64).T)
        values.append(np.array(value, float))
        kinds.append(np.array(kind, object))
    if not keys:
        none = np.empty(0, np.int64)
        return UnitScores(none, none.astype(float), none, none.astype(object))
    return _by_unit(np.concatenate(keys), np.concatenate(values), np.concatenate(kinds))


def _by_unit(key: np.ndarray, value: np.ndarray, kind: np.ndarray) -> UnitScores:
    """Take the last attempt of each build, repeat and unit, then the mean over a unit's."""
    last = np.append((key[1:, :3] != key[:-1, :3]).any(axis=1), True)
    number, value, kind = key[last, 2], value[last], kind[last]
    failed = np.array([each is not None for each in kind], bool)
    unit, where = np.unique(number, return_inverse=True)
    if len(unit) == len(number):  # one build, one repeat: rows are units, in order or nearly
        order = np.argsort(number, kind="stable")
        mean = np.where(failed, np.nan, value)[order]
        return UnitScores(unit, mean, failed[order].astype(np.int64), kind[order])
    there = ~failed & ~np.isnan(value)
    n = np.bincount(where[there], minlength=len(unit))
    with np.errstate(invalid="ignore"):  # no score at all, or infinities of both signs
        mean = np.bincount(where[there], value[there], len(unit)) / n
    named = np.full(len(unit), None, object)
    named[where[failed]] = kind[failed]  # of several kinds the last one is told
    return UnitScores(unit, mean, np.bincount(where[failed], minlength=len(unit)), named)


def units_like(
    connection: Connection, task: int, *, stratum: str = "", cluster: str = "", name: str = ""
) -> np.ndarray:
    """Return the numbers of a task's units in a stratum or cluster, or with a part of an id."""
    c = units.c
    asked = [c.task == task]
    for column, said in ((c.stratum, stratum), (c.cluster, cluster)):
        if said:
            asked.append(column == packing.text(said))
    if name:
        asked.append(c.unit.like(f"%{_escaped(packing.text(name))}%", escape="\\"))
    rows = connection.execute(select(c.number).where(*asked).order_by(c.number)).scalars()
    return np.fromiter(rows, np.int64)


def units_named(connection: Connection, task: int, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Return id, cluster, stratum, content and target of some units, in the order asked."""
    c = units.c
    found: dict[int, dict[str, Any]] = {}
    query = select(c.number, c.unit, c.cluster, c.stratum, c.content, c.target)
    for row in connection.execute(query.where(c.task == task, c.number.in_(numbers))).mappings():
        content, target = packing.unpack(row["content"]), packing.unpack(row["target"])
        found[row["number"]] = {**row, "content": content, "target": target}
    return [found[number] for number in numbers if number in found]


def strata(connection: Connection, task: int, most: int = 200) -> list[str]:
    """Return the names of a task's strata, at most so many."""
    c = units.c
    query = select(c.stratum).where(c.task == task, c.stratum.is_not(None)).distinct()
    return list(connection.execute(query.order_by(c.stratum).limit(most)).scalars())


def texts(
    connection: Connection, arm: int, task: int, size: int, units: np.ndarray | None = None
) -> Iterator[Iterator[tuple[int, int, int, int, Any, str | None]]]:
    """Yield build, repeat, unit, attempt, output and error of an arm's outcomes.

    They come so many at a time, unpacked one by one: an output may be large.
    """
    c = outcomes.c
    query = select(c.build, c.repeat, c.unit, c.attempt, c.output, c.error)
    query = query.where(c.arm == arm, c.task == task)
    queries = [query] if units is None else [
        query.where(c.unit.in_(units[start : start + 500].tolist()))
        for start in range(0, len(units), 500)
    ]  # fmt: skip
    for each in queries:
        for rows in read.chunks(connection, each, size):
            yield ((*row[:4], packing.unpack(row[4]), row[5]) for row in rows)


def keys(connection: Connection, arm: int, task: int) -> np.ndarray:
    """Return build, repeat, unit and attempt of an arm's outcomes, shape ``(outcomes, 4)``."""
    c = outcomes.c
    query = select(c.build, c.repeat, c.unit, c.attempt).where(c.arm == arm, c.task == task)
    parts = [np.array(rows, np.int64) for rows in read.chunks(connection, query)]
    return np.concatenate([*parts, np.empty((0, 4), np.int64)])


def count(connection: Connection, arm: int, task: int) -> int:
    """Return how many outcomes an arm has on a task, every attempt counted."""
    c = outcomes.c
    query = select(func.count()).where(c.arm == arm, c.task == task)
    return int(connection.execute(query).scalar() or 0)
