"""Where two arms differ most, with both answers side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from equipoise.core import Outcomes
from equipoise.store import _read as read
from equipoise.store._tables import outcomes, units

_SHOWN = ("content", "target", "cluster", "stratum")
_ANSWER = ("status", "scores", "output", "error_kind", "error")


def disagreements(
    connection: Connection,
    pair: tuple[int, int],
    task: int,
    score: str,
    limit: int,
    size: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the units on which two arms' mean scores differ most."""
    columns = [read.read_outcomes(connection, arm, task, **size) for arm in pair]
    scored = [_scored(each, score) for each in columns]
    (unit_a, mean_a), (unit_b, mean_b) = (_means(*each[::3]) for each in scored)
    shared, in_a, in_b = np.intersect1d(unit_a, unit_b, assume_unique=True, return_indices=True)
    gap = mean_b[in_b] - mean_a[in_a]
    order = [i for i in np.lexsort((shared, -np.abs(gap)))[:limit] if gap[i] != 0]
    return [
        _side_by_side(connection, pair, task, int(shared[i]), float(gap[i]), scored) for i in order
    ]


def _scored(columns: Outcomes, score: str) -> tuple[np.ndarray, ...]:
    """Return unit, build, repeat and value, failed units having the worst value there is."""
    values = columns.score(score)
    worst = columns.spec(score).worst
    if worst is not None:
        values = np.where(columns.blamed, worst, values)
    kept = ~np.isnan(values)
    return columns.unit[kept], columns.build[kept], columns.repeat[kept], values[kept]


def _means(unit: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    numbers, where = np.unique(unit, return_inverse=True)
    sums = np.bincount(where, values, minlength=len(numbers))
    return numbers, sums / np.bincount(where, minlength=len(numbers))


def _side_by_side(
    connection: Connection,
    pair: tuple[int, int],
    task: int,
    number: int,
    gap: float,
    scored: Sequence[tuple[np.ndarray, ...]],
) -> dict[str, Any]:
    """Show the build and repeat that differ most in the direction of the means."""
    values = []
    for unit, build, repeat, value in scored:
        here = slice(*np.searchsorted(unit, (number, number + 1)))
        keys = zip(build[here].tolist(), repeat[here].tolist(), strict=True)
        values.append(dict(zip(keys, value[here].tolist(), strict=True)))
    shared = sorted(set(values[0]) & set(values[1]))
    key_a = key_b = max(
        shared, key=lambda key: (values[1][key] - values[0][key]) * gap, default=None
    )
    if key_a is None or key_b is None:  # the arms have no build and repeat in common
        key_a, key_b = min(values[0]), min(values[1])
    sides = []
    for arm, (build, repeat) in zip(pair, (key_a, key_b), strict=True):
        query = read.rows_query(None, arm, task).where(
            outcomes.c.unit == number, outcomes.c.build == build, outcomes.c.repeat == repeat
        )
        sides.append(read.as_row(connection.execute(query).one()))
    name = select(units.c.unit).where(units.c.task == task, units.c.number == number)
    return {
        "unit": connection.execute(name).scalar_one(),
        **{key: sides[0][key] for key in _SHOWN},
        "build": key_a[0],
        "repeat": key_a[1],
        "difference": gap,
        "a": {key: sides[0][key] for key in _ANSWER},
        "b": {key: sides[1][key] for key in _ANSWER},
    }
