"""What a page about many runs asks of a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, Text, and_, cast, func, or_, select

from equipoise.core import UsageError, nearest
from equipoise.store import _packing as packing
from equipoise.store._dialect import json_value
from equipoise.store._tables import runs

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
    return int(total.scalar() or 0), [_row(each) for each in rows.mappings()]


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    row = dict(found)
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
