"""The units of a run: a table that filters and sorts, and a page for each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from equipoise.core import UsageError
from equipoise.report._text import one_line
from equipoise.report.words import number
from equipoise.viewer.app import library
from equipoise.viewer.grid import SHOWS, Grid, cells_of, tasks_of
from equipoise.viewer.pages import page, refusal
from equipoise.viewer.sayings import gist
from equipoise.viewer.search import query

router = APIRouter()

AT_ONCE = 50
Text = Annotated[str, Query(max_length=400)]
_NUMBER = r"^\s*([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?)?\s*$"
Bound = Annotated[str, Query(max_length=30, pattern=_NUMBER)]


@router.get("/runs/{run}/units")
def units(
    request: Request,
    run: int,
    task: Text = "",
    score: Text = "",
    show: Text = "all",
    arm: Text = "",
    kind: Text = "",
    stratum: Text = "",
    low: Bound = "",
    high: Bound = "",
    id_: Annotated[str, Query(alias="id", max_length=200)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    sort: Text = "unit",
    order: Literal["", "up", "down"] = "",
    page_: Annotated[int, Query(alias="page", ge=1, le=10_000_000)] = 1,
) -> Response:
    """Show the units of a task, every arm's score side by side."""
    store = library(request)
    if q.strip():
        try:
            query(q)
        except UsageError as error:
            return refusal(request, 400, f"{error} The address says q={q!r:.60}.")
    found = store.run(run)
    tasks = tasks_of(found)
    if not tasks:
        return refusal(request, 404, f"Run {run} has no outcomes.")
    task = task or tasks[0]
    cells = cells_of(found, task)
    number_ = next(iter(cells.values()))["task"] if cells else -1
    specs = store.specs(number_) if cells else ()
    score = score or (specs[0].name if specs else "")
    plain = not any((q.strip(), arm, kind, stratum, id_, low, high)) and show == "all"
    plain = plain and sort == "unit" and order != "down" and page_ == 1
    grid = _first(request, store, found, task, score) if plain else None
    counted = grid is None
    if grid is None:
        grid = store.grid(found, task, score)
    if show == "wrong" and grid.best is None:
        raise UsageError(f"No answer is right by {score}: it has no best value.")
    only, waiting = _among(store, found, cells, number_, q=q, stratum=stratum, name=id_, arm=arm)
    mask = grid.choose(show=show, arm=arm, kind=kind, low=_float(low), high=_float(high), only=only)
    down = order == "down" or (order == "" and sort == "spread")
    rows = grid.order(mask, sort, down)
    pages = max(1, math.ceil(len(rows) / AT_ONCE))
    page_ = min(page_, pages)
    here = rows[(page_ - 1) * AT_ONCE : page_ * AT_ONCE]
    return page(
        request,
        "units.html.j2",
        run=found,
        tasks=tasks,
        task=task,
        specs=specs,
        score=score,
        spec=grid.spec,
        arms=grid.arms,
        sorts=[grid.sort_of(arm) for arm in grid.arms],
        shows=SHOWS,
        kinds=grid.kinds[1:],
        strata=store.strata(number_),
        lines=_lines(store, grid, here, number_),
        total=len(rows) if counted else None,
        everything=len(grid.numbers),
        waiting=waiting,
        sort=sort,
        down=down,
        number=page_,
        pages=pages,
    )


def _first(
    request: Request, store: Any, run: Mapping[str, Any], task: str, score: str
) -> Grid | None:
    """Return a grid of the first page's units where the whole one is still to be read.

    The page then shows them at once, and asks for the count a moment later.
    """
    if request.headers.get("hx-request") == "true" or store.kept_grid(run, task, score):
        return None
    found: Grid = store.grid_of_first(run, task, score, 4 * AT_ONCE)
    if len(found.numbers) < AT_ONCE:
        return None
    store.begin_grid(run, task, score)
    return found


def _among(
    store: Any,
    run: Mapping[str, Any],
    cells: Mapping[str, Mapping[str, Any]],
    task: int,
    *,
    q: str,
    stratum: str,
    name: str,
    arm: str,
) -> tuple[np.ndarray | None, float | None]:
    """Return the units that words, stratum and id leave, and how far an awaited index is."""
    only = None
    if stratum or name:
        only = store.units_like(task, stratum=stratum, name=name)
    if not q.strip():
        return only, None
    wanted = [cell for label, cell in cells.items() if arm in ("", label)]
    key = (run["id"], task)
    if not store.search.ready(key, list(cells.values())):
        return np.empty(0, np.int64), store.search.shares.get(key, 0.0)
    said = store.search.find(q, wanted)
    if said is None:
        return np.empty(0, np.int64), 0.0
    return said if only is None else np.intersect1d(said, only), None


def _lines(store: Any, grid: Grid, rows: np.ndarray, task: int) -> list[dict[str, Any]]:
    known = {each["number"]: each for each in store.units_named(task, grid.numbers[rows].tolist())}
    lines = []
    for row in rows:
        unit = known[int(grid.numbers[row])]
        lines.append(
            {
                "unit": unit["unit"],
                "stratum": unit["stratum"],
                "asked": one_line(gist(unit["content"]), 160),
                "cells": [_cell(grid, row, place) for place in range(len(grid.arms))],
            }
        )
    return lines


def _cell(grid: Grid, row: int, place: int) -> dict[str, str]:
    value = float(grid.value[row, place])
    failed = bool(grid.failed[row, place])
    if math.isnan(value):
        kind = grid.kinds[grid.kind[row, place]]
        return {"value": kind if failed else "", "tone": "failed" if failed else "none", "said": ""}
    gain = 0.0
    if place and grid.spec.higher_is_better is not None:
        gain = float(grid.filled[row, place]) - float(grid.filled[row, 0])
        gain = gain if grid.spec.higher_is_better else -gain
    tone = "good" if gain > 0 else "bad" if gain < 0 else "none"
    shown = f"{value:.0f}" if value in (0.0, 1.0, -1.0) else number(value)
    said = {"good": "better than the first arm", "bad": "worse than the first arm"}.get(tone, "")
    return {"value": shown, "tone": tone, "said": said}


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
