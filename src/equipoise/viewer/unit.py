"""One unit: what was asked, and every arm's answer side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from equipoise.core import ScoreSpec, UsageError, nearest
from equipoise.report import words
from equipoise.report._diff import marked
from equipoise.report._text import as_text, clip
from equipoise.viewer.app import library
from equipoise.viewer.grid import cells_of, tasks_of
from equipoise.viewer.pages import AS_IT_IS, page
from equipoise.viewer.sayings import MOST, conversation, exhibits, given, picture_type, rich

router = APIRouter()

ON_A_PAGE = 600_000
"""Most characters of all arms' answers on a page; many arms get fewer each."""

LARGEST = 2_000_000
"""Bytes beyond which an artifact is not read for the page of its unit."""

Name = Annotated[str, Query(max_length=2_000)]
Place = Annotated[int, Query(ge=0, le=1_000_000)]


@router.get("/runs/{run}/unit")
def unit(
    request: Request,
    run: int,
    id_: Annotated[str, Query(alias="id", max_length=2_000)],
    task: Name = "",
    score: Name = "",
    repeat: Place = 0,
    build: Place = 0,
) -> Response:
    """Show one unit in every arm."""
    store = library(request)
    found = store.run(run)
    task = task or next(iter(tasks_of(found)), "")
    cells = cells_of(found, task)
    if not cells:
        raise UsageError(f'No task "{task}" in run {run}.{nearest(task, tasks_of(found))}')
    specs = store.specs(next(iter(cells.values()))["task"])
    score = score or (specs[0].name if specs else "")
    rows: dict[str, dict[str, Any]] = {}
    fault: UsageError | None = None
    for arm, cell in cells.items():
        try:
            rows[arm] = store.unit(
                cell["arm"], cell["task"], id_, repeat=repeat, build=build, largest=LARGEST
            )
        except UsageError as error:  # this arm was not asked
            fault = error
    if not rows:
        raise fault or UsageError(f'No unit "{id_}" in run {run}.')
    first = next(iter(rows.values()))
    before, after = _neighbours(store, found, task, score, id_)
    return page(
        request,
        "unit.html.j2",
        run=found,
        task=task,
        score=score,
        unit=first["unit"],
        about=_about(first, repeat, build),
        asked=given(first["content"]),
        right=given(first["target"]) if first["target"] is not None else "",
        sides=_sides(rows, specs, score, run, task, id_, repeat, build),
        before=before,
        after=after,
        repeats=max(each["repeats"] or 1 for each in cells.values()),
        builds=max(each["builds"] or 1 for each in cells.values()),
        repeat=repeat,
        build=build,
    )


@router.get("/runs/{run}/artifact")
def artifact(
    request: Request,
    run: int,
    arm: Name,
    task: Name,
    id_: Annotated[str, Query(alias="id", max_length=2_000)],
    name: Name,
    repeat: Place = 0,
    build: Place = 0,
) -> Response:
    """Give one artifact: a picture to look at, anything else to save."""
    store = library(request)
    cell = cells_of(store.run(run), task).get(arm)
    if cell is None:
        raise UsageError(f"Arm {arm} has no task {task} in run {run}.")
    row = store.unit(cell["arm"], cell["task"], id_, repeat=repeat, build=build)
    if name not in row["artifacts"]:
        raise UsageError(f'No artifact "{name}".{nearest(name, row["artifacts"])}')
    value = row["artifacts"][name]
    kind = picture_type(value) if isinstance(value, bytes) else None
    headers = {"content-security-policy": "default-src 'none'; sandbox", **AS_IT_IS}
    if kind:
        return Response(value, media_type=kind, headers=headers)
    headers["content-disposition"] = "attachment"
    return Response(_saved(value), media_type="application/octet-stream", headers=headers)


def _saved(value: bytes | np.ndarray) -> bytes:
    if isinstance(value, bytes):
        return value
    import io

    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()


def _about(row: Mapping[str, Any], repeat: int, build: int) -> list[tuple[str, str]]:
    found = [(name, str(row[name])) for name in ("stratum", "cluster") if row[name] is not None]
    found += [(name, str(n)) for name, n in (("repeat", repeat), ("build", build)) if n]
    return found


def _sides(
    rows: Mapping[str, Mapping[str, Any]], specs: Sequence[ScoreSpec], score: str, run: int,
    task: str, unit: str, repeat: int, build: int,
) -> list[dict[str, Any]]:  # fmt: skip
    control = next(iter(rows.values()))
    first = as_text(control["output"])
    spec = next((each for each in specs if each.name == score), None)
    most = max(3_000, min(MOST, ON_A_PAGE // len(rows)))
    found = []
    for place, (arm, row) in enumerate(rows.items()):
        text = as_text(row["output"])
        where = urlencode({"arm": arm, "task": task, "id": unit, "repeat": repeat, "build": build})
        found.append(
            {
                "arm": arm,
                "status": row["status"],
                "error": "" if row["status"] != "error" else _error(row),
                "score": row["scores"].get(score),
                **_tone(spec, control["scores"].get(score), row["scores"].get(score)),
                "scores": {k: v for k, v in row["scores"].items() if k != score},
                "answer": rich(text, most),
                "data": text != row["output"],
                "empty": not text.strip(),
                "diff": _diff(clip(first, most), clip(text, most)) if place else None,
                "same": bool(place) and text == first,
                "turns": conversation(row["transcript"], 5 * most),
                "exhibits": exhibits(row["artifacts"]),
                "attempts": _attempts(row["attempts"]),
                "artifact": f"/runs/{run}/artifact?{where}",
                "cost": _cost(row),
            }
        )
    return found


def _diff(first: str, text: str) -> Markup | None:
    """Return a text with what the first does not say marked; None where nothing is."""
    found = marked(first, text)[1]
    return found if "<ins>" in found else None


def _tone(spec: ScoreSpec | None, first: float | None, mine: float | None) -> dict[str, str]:
    up = None if spec is None else spec.higher_is_better
    if up is None or first is None or mine is None or first == mine:
        return {"tone": "none", "said": ""}
    better = (mine > first) is up
    word = "better" if better else "worse"
    return {"tone": "good" if better else "bad", "said": f"{word} than the first arm"}


def _attempts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the last attempts of a unit that needed several."""
    last = rows[-50:] if len(rows) > 1 else []
    return [{**each, "error": clip(each["error"] or "", 1_000)} for each in last]


def _error(row: Mapping[str, Any]) -> str:
    return clip(f"{row['error_kind'] or 'error'}: {row['error'] or ''}".rstrip(": "), 4_000)


def _cost(row: Mapping[str, Any]) -> str:
    parts, usage = [], row["usage"]
    if usage["input_tokens"] or usage["output_tokens"]:
        parts.append(f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out")
    if usage["dollars"]:
        parts.append(f"${usage['dollars']:.4f}")
    if row["seconds"] is not None:
        parts.append(words.seconds(row["seconds"]))
    if row["seed"] is not None:
        parts.append(f"seed {row['seed']}")
    if row["sandbox"]:
        parts.append(f"sandbox: {row['sandbox']}")
    return ", ".join(parts)


def _neighbours(
    store: Any, run: Mapping[str, Any], task: str, score: str, unit: str
) -> tuple[str | None, str | None]:
    """Return the ids of the units before and after this one."""
    cells = cells_of(run, task).values()
    cell = next(iter(cells))
    number = store.number_of(cell["task"], unit)
    sizes = [each["units"] for each in cells]
    end = math.inf if None in sizes else max(sizes)
    wanted = [each for each in (number - 1, number + 1) if each < end]
    near = store.units_named(cell["task"], wanted)
    by_number = {each["number"]: each["unit"] for each in near}
    return by_number.get(number - 1), by_number.get(number + 1)
