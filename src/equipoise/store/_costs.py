"""What outcomes cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, case, func, select

from equipoise.store._read import FINAL
from equipoise.store._tables import outcomes

_AT_ONCE = 500  # any database takes so many values in a list


def read_costs(
    connection: Connection, which: ColumnElement[bool], numbers: np.ndarray | None = None
) -> dict[str, Any]:
    """Sum what outcomes cost; every attempt was paid for, the last one counts.

    ``numbers`` asks for these units only.
    """
    if numbers is None:
        return _sum(connection, which)
    parts = np.array_split(numbers, max(1, -(-len(numbers) // _AT_ONCE)))
    found = [_sum(connection, which & outcomes.c.unit.in_(part.tolist())) for part in parts]
    return {name: sum(each[name] for each in found) for name in found[0]}


def _sum(connection: Connection, which: ColumnElement[bool]) -> dict[str, Any]:
    c = outcomes.c
    first = func.sum(case((c.attempt == 0, 1), else_=0))
    final = func.sum(case((c.status.in_(FINAL), 1), else_=0))
    query = select(
        func.count(c.unit.distinct()),
        first,
        first - final,
        func.count(),
        func.sum(c.input_tokens),
        func.sum(c.output_tokens),
        func.sum(c.dollars),
        func.sum(c.seconds),
    ).where(which)
    row = connection.execute(query).one()
    names = ("units", "outcomes", "errors", "attempts", "input_tokens", "output_tokens")
    found: dict[str, Any] = {name: int(row[i] or 0) for i, name in enumerate(names)}
    return found | {"dollars": float(row[6] or 0), "seconds": float(row[7] or 0)}
