"""What the HTML page says of a result, laid out for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.report import _budget, charts, figures, words
from equipoise.report._about import cost_tables, facts, part, provenance, recipe
from equipoise.report._edits import COLUMNS, edits, without_edits

Row = Mapping[str, Any]

_STATUS = {
    "early": "The run ended early: every claim was decided, by intervals that allow looking at "
    "every moment.",
    "budget": "The run ended when its budget was spent; what is shown rests on the units done "
    "until then.",
    "interrupted": "The run was interrupted; what is shown rests on the units done until then.",
}
_OPTIONAL: Row = {
    "control": "", "notices": (), "differs": "", "run": None, "claims": (), "estimates": (),
    "effects": (), "errors": 0, "units": 0, "seconds": 0.0, "verdict": None,
}  # fmt: skip
_BETTER = ("← worse", "better →")
_TONE = {"supported": "good", "refuted": "bad", "inconclusive": "open"}


def page(row: Row) -> dict[str, Any]:
    """Return everything the template shows that the result itself holds."""
    row = {**_OPTIONAL, **row}
    edited, row = edits(row), without_edits(row)
    units = {(each["task"], each["name"]): each.get("unit") or "" for each in row["estimates"]}
    return {
        "row": row,
        "title": row.get("question") or row["trial"],
        "headline": words.headline(row),
        "tone": _TONE.get(row.get("verdict") or "", "none"),
        "status": _budget.ended(row)
        if row.get("allocation")
        else _STATUS.get(row.get("status", ""), ""),
        "facts": facts(row),
        "claims": [claim_panel(claim, units) for claim in row["claims"]],
        "level": row.get("level", 0.95),
        "budget": _budget.page(row),
        "forest": _forest(row),
        "matrix": _matrix(row),
        "tables": _tables(row),
        "sequences": _sequences(row),
        "figures": figures.panels(row),
        "arms": [(label, recipe(arm)) for label, arm in row.get("arms", {}).items()],
        "tasks": [(label, part(task)) for label, task in row.get("tasks", {}).items()],
        "edits": edited,
        "edit_columns": COLUMNS,
        "costs": cost_tables(row),
        "about": provenance(row),
    }


def claim_panel(claim: Row, units: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return a claim as the page shows it; ``units`` maps task and score to a unit of measure."""
    points = words.turning_points(claim)
    compared = isinstance(claim.get("other"), str)
    values = [claim.get(key) for key in ("estimate", "low", "high")]
    chart = axis = None
    if points and any(value is not None for value in values):
        shown = [v for v in (*values, *points, 0.0 if compared else None) if v is not None]
        room = 0.12 * (max(shown) - min(shown))  # so that the shaded stretch is seen
        edges = {"below": [points[0] - room], "matches": [points[0] - room, points[-1] + room]}
        beyond = edges.get(claim["relation"], [points[0] + room])
        scale = charts.Scale.over([*shown, *beyond], 4)
        chart = charts.interval(
            claim,
            scale,
            value="estimate",
            tone=_TONE[claim["verdict"]],
            zero=compared,
            bounds=[point for point in points if not compared or point],
            region=_region(claim, points),
            label=words.evidence(claim),
        )
        axis = charts.axis(scale, *(_BETTER if compared else ("← lower", "higher →")))
    return {
        "verdict": claim["verdict"],
        "mark": words.MARKS[claim["verdict"]],
        "tone": _TONE[claim["verdict"]],
        "text": claim["claim"],
        "plain": words.plainly(claim, _unit_of(claim, units)),
        "evidence": words.evidence(claim),
        "outlook": _sentence(words.outlook(claim)),
        "note": _note(claim),
        "method": claim.get("method") or "",
        "chart": chart,
        "axis": axis,
        "bound": ", ".join(f"{point:g}".replace("-", "−") for point in points),
    }


def _note(claim: Row) -> str:
    """Return what was noted about the estimate, unless the reason says it already."""
    note, reason = claim.get("note") or "", claim.get("reason") or ""
    return "" if any(each and each in note.lower() for each in reason.split("; ")) else note


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _region(claim: Row, points: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the stretch an interval must lie in to support the claim."""
    if len(points) == 2:
        return points[0], points[1]
    return (None, points[0]) if claim["relation"] == "below" else (points[0], None)


def _unit_of(claim: Row, units: Mapping[tuple[str, str], str]) -> str:
    """Return the unit of a claim about a mean; a measure's may be another."""
    if claim["claim"].partition(f" on {claim['on']}")[2].startswith(" in "):
        return ""
    task = claim["on"]
    main = next((name for t, name in units if t == task), "")
    return units.get((task, claim.get("score") or main), "")


def _tone(effect: Row) -> str:
    """Return whether an effect's interval leaves zero on one side."""
    if (effect.get("low") or 0) > 0:
        return "good"
    return "bad" if (effect.get("high") or 0) < 0 else "mark"


def _forest(row: Row) -> list[dict[str, Any]]:
    panels: dict[tuple[str, str], list[Row]] = {}
    for effect in row["effects"]:
        panels.setdefault((effect["task"], effect["name"]), []).append(effect)
    main = dict(reversed(panels))  # the first panel of a task
    margins: dict[tuple[str, str, str], list[float]] = {}
    for claim in row["claims"]:
        if claim.get("other") == row.get("control"):
            name = claim.get("score") or main.get(claim["on"], "")
            points = [point for point in words.turning_points(claim) if point]
            margins.setdefault((claim["on"], name, claim["arm"]), []).extend(points)
    found = []
    for (task, name), effects in panels.items():
        bounds = [margins.get((task, name, each["arm"]), []) for each in effects]
        values = [each.get(key) for each in effects for key in ("value", "low", "high")]
        scale = charts.Scale.over([0.0, *values, *(b for some in bounds for b in some)])
        rows = [
            {
                "arm": each["arm"],
                "tone": _tone(each),
                "sign": "",
                "value": words.number(each.get("value")),
                "interval": words.interval(each),
                "note": each.get("note", ""),
                "chart": charts.interval(
                    each,
                    scale,
                    tone=_tone(each),
                    zero=True,
                    bounds=some,
                    label=f"{each['arm']}: {words.number(each.get('value'))} "
                    f"{words.interval(each)}",
                ),
            }
            for each, some in zip(effects, bounds, strict=True)
        ]
        found.append(
            {
                "task": task,
                "name": name,
                "unit": effects[0].get("unit", ""),
                "versus": effects[0].get("versus") or row.get("control", ""),
                "rows": rows,
                "axis": charts.axis(scale, *_BETTER),
                "margins": any(bounds),
            }
        )
    return found


def _mains(row: Row) -> dict[tuple[str, str], Row]:
    """Return the estimate of each arm on each task: the mean of the task's first score."""
    found: dict[tuple[str, str], Row] = {}
    for each in row["estimates"]:
        found.setdefault((each["arm"], each["task"]), each)
    return found


def _matrix(row: Row) -> dict[str, Any] | None:
    mains = _mains(row)
    arms = [arm for arm in row.get("arms", {}) if any(a == arm for a, _ in mains)]
    tasks = [task for task in row.get("tasks", {}) if any(t == task for _, t in mains)]
    if not arms or not tasks:
        return None
    effects: dict[tuple[str, str], Row] = {}
    for each in row["effects"]:
        effects.setdefault((each["arm"], each["task"]), each)

    def cell(arm: str, task: str) -> dict[str, Any] | None:
        each = mains.get((arm, task))
        if each is None:
            return None
        effect = effects.get((arm, task))
        tone = _tone(effect) if effect else "mark"
        return {
            "value": words.number(each.get("value")),
            "interval": words.interval(each),
            "tone": tone,
            "sign": {"good": "▲", "bad": "▼"}.get(tone, ""),
            "said": {"good": "better than control", "bad": "worse than control"}.get(tone, ""),
            "note": each.get("note", "") if not words.interval(each) else "",
            "n": each.get("n", 0),
        }

    heads = {}
    for task in tasks:
        first = next(each for (_, t), each in mains.items() if t == task)
        heads[task] = _head(first)
    grid = {(arm, task): cell(arm, task) for arm in arms for task in tasks}
    signs = any(each and each["sign"] for each in grid.values())
    # The longer side goes down: pages scroll down better than across.
    return {"arms": arms, "tasks": tasks, "heads": heads, "grid": grid, "signs": signs,
            "down": "tasks" if len(tasks) > len(arms) else "arms"}  # fmt: skip


def _head(row: Row) -> dict[str, str]:
    better: bool | None = row.get("higher_is_better")
    ways: dict[bool | None, str] = {True: "higher is better", False: "lower is better"}
    return {
        "name": row["name"],
        "arrow": words.arrow(better),
        "better": ways.get(better, ""),
        "unit": row.get("unit") or "",
    }


def _tables(row: Row) -> list[dict[str, Any]]:
    """Return what was measured beside the main scores, a table a task and kind of measure.

    Measures that give a table, such as a mean in every stratum, name their
    rows ``measure key``; these share a table.
    """
    mains = {id(each) for each in _mains(row).values()}
    tables: dict[tuple[str, str], list[Row]] = {}
    for each in row["estimates"]:
        if id(each) not in mains:
            measure, _, key = each["name"].partition(" ")
            tables.setdefault((each["task"], measure if key else ""), []).append(each)
    found = []
    for (task, measure), rows in tables.items():
        arms = list(dict.fromkeys(each["arm"] for each in rows))
        lines: dict[str, dict[str, Row]] = {}
        for each in rows:
            lines.setdefault(each["name"], {})[each["arm"]] = each
        found.append(
            {
                "task": task,
                "measure": measure,
                "arms": arms,
                "lines": [
                    {
                        **_head(next(iter(cells.values()))),
                        "name": name.removeprefix(f"{measure} "),
                        "cells": [_value(cells.get(arm)) for arm in arms],
                    }
                    for name, cells in lines.items()
                ],
            }
        )
    return found


def _value(row: Row | None) -> dict[str, str] | None:
    if row is None:
        return None
    shown = {
        "value": words.number(row.get("value")),
        "interval": words.interval(row),
        "sign": "",
    }
    return shown | {"note": row.get("note", "") if not shown["interval"] else ""}


def _sequences(row: Row) -> list[dict[str, Any]]:
    claims = {claim["claim"]: claim for claim in row["claims"]}
    found = []
    for each in row.get("sequences") or ():
        claim = claims.get(each["claim"])
        points = words.turning_points(claim) if claim else []
        region = _region(claim, points) if claim and points else None
        last = each["steps"][-1]
        said = f"{each['claim']}: {words.number(last['value'])} {words.interval(last)} after "
        said += f"{last['n']:,} units"
        found.append(
            {
                "claim": each["claim"],
                "method": each["method"],
                "level": each["level"],
                "note": each.get("note", ""),
                "looks": len(each["steps"]),
                "said": said,
                "chart": charts.sequence(each["steps"], points, region, said),
            }
        )
    return found
