"""Two runs or more, one answer: paired effects, and a leaderboard."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from equipoise.core import UsageError
from equipoise.report import charts, words
from equipoise.trial.comparison import compare
from equipoise.trial.sides import run_side
from equipoise.viewer import vega
from equipoise.viewer.app import library
from equipoise.viewer.pages import page
from equipoise.viewer.standing import Standing, leaderboard

router = APIRouter()

MOST = 12
FOLDED = 40
"""Comparisons without a clear answer beyond so many are folded away."""

Runs = Annotated[str, Query(max_length=200, pattern=r"^[\d,\s]*$")]
Correct = Literal["holm", "bh", "none"]


@router.get("/compare")
def compared(
    request: Request,
    runs: Runs = "",
    score: Annotated[str, Query(max_length=400)] = "",
    correct: Correct = "holm",
    level: Annotated[float, Query(gt=0.5, lt=1)] = 0.95,
) -> Response:
    """Compare runs: the first with each other one, or the arms of a single one."""
    store = library(request)
    chosen = _chosen(store, runs)
    _, recent = store.browse(limit=40)
    shown: dict[str, Any] = {
        "chosen": chosen,
        "recent": recent,
        "correct": correct,
        "level": level,
        "score": score,
        "tables": [],
        "scores": [],
        "board": [],
        "tasks": [],
    }
    if chosen:
        shown |= _board(*_leaders(store, chosen, level))
        shown |= store.once(
            ("compare", *_states(chosen), level, score, correct),
            lambda: _tables(store, chosen, score, correct, level),
        )
    return page(request, "compare.html.j2", **shown)


@router.get("/compare/board.json")
def board(
    request: Request, runs: Runs, level: Annotated[float, Query(gt=0.5, lt=1)] = 0.95
) -> dict[str, Any]:
    """Return the leaderboard as a Vega-Lite chart."""
    store = library(request)
    return vega.dressed(vega.board(*_leaders(store, _chosen(store, runs), level)))


def _chosen(store: Any, runs: str) -> list[Mapping[str, Any]]:
    """Return the runs that an address names, each once."""
    numbers = dict.fromkeys(int(each) for each in runs.replace(",", " ").split())
    return [store.run(number) for number in list(numbers)[:MOST]]


def _states(chosen: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    return [(run["id"], run["status"]) for run in chosen]


def _leaders(
    store: Any, chosen: Sequence[Mapping[str, Any]], level: float
) -> tuple[list[Standing], list[str]]:
    """Return the leaderboard, which the page and its chart share."""
    found: tuple[list[Standing], list[str]] = store.once(
        ("board", *_states(chosen), level), lambda: leaderboard(store, chosen, level)
    )
    return found


def _board(found: Sequence[Standing], tasks: Sequence[str]) -> dict[str, Any]:
    if not found:
        return {"board": [], "tasks": []}
    several = len({each.run for each in found}) > 1
    ends = [(each.overall.low, each.overall.high) for each in found]
    scale = charts.Scale.over(itertools.chain.from_iterable(ends))
    return {
        "tasks": tasks,
        "board": [_line(each, tasks, scale, several) for each in found],
        "axis": charts.axis(scale),
    }


def _line(
    each: Standing, tasks: Sequence[str], scale: charts.Scale, several: bool
) -> dict[str, Any]:
    low, high = each.ranks
    row = each.overall.as_json()
    return {
        "rank": f"{low}" if low == high else f"{low}–{high}",
        "arm": each.arm,
        "run": each.run,
        "trial": each.trial if several else "",
        "value": words.number(row["value"]),
        "interval": words.interval(row),
        "chart": charts.interval(row, scale, label=f"{each.arm}: {words.number(row['value'])}"),
        "tasks": [words.number(each.tasks[task].value) for task in tasks],
    }


def _tables(
    store: Any, chosen: Sequence[Mapping[str, Any]], score: str, correct: Correct, level: float
) -> dict[str, Any]:
    sides = [run_side(store, run) for run in chosen]
    pairs = [(sides[0], each) for each in sides[1:]] or [(sides[0], sides[0])]
    tables: list[dict[str, Any]] = []
    scores: dict[str, None] = {}
    for first, second in pairs:
        title = f"{second.name} against {first.name}" if first is not second else first.name
        try:
            found = compare(first, second, score=score or None, level=level, correct=correct)
        except UsageError as error:
            tables.append({"title": title, "fault": str(error)})
            continue
        scores |= dict.fromkeys(each.score for each in found.contrasts)
        rows = [*found.overall, *found.rows]
        scales = _scales(rows)
        lines = [_effect(row, scales[row["score"]]) for row in rows]
        clear = [line for line in lines if line["overall"] or line["says"] != "unclear"]
        rest = [line for line in lines if not line["overall"] and line["says"] == "unclear"]
        if len(lines) <= FOLDED:
            clear, rest = lines, []
        told: dict[str, Any] = {"title": title, "fault": "", "notices": found.notices}
        tables.append(told | {"lines": clear, "rest": rest})
    return {"tables": tables, "scores": [score] if score else list(scores)}


def _scales(rows: Sequence[Mapping[str, Any]]) -> dict[str, charts.Scale]:
    """Return one scale a score, so that its effects can be compared by eye."""
    values: dict[str, list[float | None]] = {}
    for row in rows:
        ends = [row.get(key) for key in ("value", "low", "high")]
        values.setdefault(row["score"], [0.0]).extend(ends)
    return {score: charts.Scale.over(each) for score, each in values.items()}


def _effect(row: Mapping[str, Any], scale: charts.Scale) -> dict[str, Any]:
    tone = {"better": "good", "worse": "bad"}.get(row["says"], "mark")
    more = row.get("more_units")
    return {
        "overall": "task" not in row,
        "arm": row["arm"],
        "versus": row["versus"],
        "task": row.get("task") or f"overall, {row['tasks']} tasks",
        "score": row["score"],
        "value": words.number(row["value"]),
        "interval": words.interval(row),
        "p": words.p_value(row["p_adjusted"]) if row.get("p_adjusted") is not None else "",
        "test": row.get("test") or "",
        "says": row["says"],
        "tone": tone,
        "n": row["n"],
        "better": row.get("units_better"),
        "worse": row.get("units_worse"),
        "detectable": words.number(row["detectable"]) if row.get("detectable") else "",
        "more": "" if not more else f"{more:,}",
        "note": row.get("note", ""),
        "chart": charts.interval(
            row, scale, tone=tone, zero=True, label=f"{row['arm']}: {words.number(row['value'])}"
        ),
    }
