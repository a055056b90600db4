"""The list of trials."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from equipoise.report import words
from equipoise.viewer.app import library
from equipoise.viewer.pages import page

router = APIRouter()

AT_ONCE = 50
TONES = {"supported": "good", "refuted": "bad", "inconclusive": "open"}


@router.get("/")
def trials(
    request: Request,
    q: Annotated[str, Query(max_length=200)] = "",
    verdict: Literal["", "supported", "refuted", "inconclusive", "none"] = "",
    status: Literal["", "running", "finished", "interrupted", "failed"] = "",
    sort: Literal["newest", "oldest", "name", "outcomes"] = "newest",
    page_: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
) -> Response:
    """List the runs of the store with their verdicts, age and cost."""
    asked = {"search": q.strip(), "verdict": verdict, "status": status, "sort": sort}
    store = library(request)
    total, rows = store.browse(**asked, limit=AT_ONCE, offset=(page_ - 1) * AT_ONCE)
    pages = max(1, math.ceil(total / AT_ONCE))
    if page_ > pages:
        page_ = pages
        _, rows = store.browse(**asked, limit=AT_ONCE, offset=(page_ - 1) * AT_ONCE)
    now = datetime.now(UTC)
    return page(
        request,
        "trials.html.j2",
        rows=[_line(row, now) for row in rows],
        total=total,
        number=page_,
        pages=pages,
    )


def _line(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    verdict, claims, costs = row["verdict"], row["claims"], row["costs"]
    n = sum(claims.values())
    units = row["written"] if row["units"] is None else int(row["units"])
    return row | {
        "tone": TONES.get(verdict, "none"),
        "mark": words.MARKS.get(verdict, ""),
        "tally": f"{claims.get('supported', 0)} of {n} claims supported" if n > 1 else "",
        "state": "no claims" if row["status"] == "finished" else row["status"],
        "outcomes": f"{units:,}",
        "failed": f"{int(row['errors']):,}" if row["errors"] else "",
        "time": "" if row["seconds"] is None else words.seconds(row["seconds"]),
        "cost": _cost(costs),
        "age": age(row["started"], now),
    }


def _cost(costs: dict[str, float]) -> str:
    if costs["dollars"]:
        return f"${costs['dollars']:,.2f}"
    tokens = costs["input_tokens"] + costs["output_tokens"]
    return f"{tokens:,} tokens" if tokens else ""


def age(started: str, now: datetime) -> str:
    """Return how long ago a moment was, as people say it.

    Examples
    --------
    >>> age("2025-01-01T10:00:00+00:00", datetime(2025, 1, 1, 12, tzinfo=UTC))
    '2 hours ago'
    >>> age("2025-01-01T11:15:00+00:00", datetime(2025, 1, 1, 12, tzinfo=UTC))
    '45 minutes ago'
    """
    try:
        then = datetime.fromisoformat(started)
    except ValueError:
        return started
    seconds = (now - then.replace(tzinfo=then.tzinfo or UTC)).total_seconds()
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            n = int(seconds // size)
            old = name == "day" and n > 30
            return then.date().isoformat() if old else f"{n} {name}{'' if n == 1 else 's'} ago"
    return "just now"
