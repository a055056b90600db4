"""The edit report: how far edited models are from the reference, an arm a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equipoise.report import charts, words

Row = Mapping[str, Any]

COLUMNS = (
    ("kl", "KL to reference"),
    ("agreement", "same next token"),
    ("changed", "weights changed"),
    ("size", "size"),
    ("working", "working memory"),
    ("speed", "time a token"),
)
"""Key of a line and heading, in order."""


def without_edits(row: Row) -> dict[str, Any]:
    """Return a result whose tasks, estimates and effects leave the edit report out."""
    labels = {each["task"] for each in row.get("edits") or ()}
    kept = {
        key: [each for each in row.get(key) or () if each["task"] not in labels]
        for key in ("estimates", "effects")
    }
    tasks = row.get("tasks") or {}
    if isinstance(tasks, Mapping):
        kept["tasks"] = {k: v for k, v in tasks.items() if k not in labels}  # type: ignore[assignment]
    return {**row, **kept}


def edits(row: Row) -> list[dict[str, Any]]:
    """Return one line an arm, in words, with its remarks and the curves of its making."""
    found = []
    for each in row.get("edits") or ():
        scores = {
            one["name"]: one
            for one in row["estimates"]
            if (one["arm"], one["task"]) == (each["arm"], each["task"])
        }
        size = words.size(each["bytes"])
        if each["bytes"] != each["reference_bytes"]:
            size += f" ({each['bytes'] / each['reference_bytes']:.2g}×)"
        working = each.get("working_bytes")
        found.append(
            {
                "arm": each["arm"],
                "kl": _score(scores.get("kl")),
                "agreement": _score(scores.get("agreement")),
                "changed": f"{each['changed']:.1%}",
                "size": size,
                "working": "?" if working is None else words.size(working),
                "speed": f"{words.number(1000 * each['seconds_per_token'])} ms",
                "notes": each["notes"],
                "curves": [
                    {
                        "name": name,
                        "last": words.number(points[-1][1]),
                        "points": len(points),
                        "chart": charts.curve(points, f"{name} of {each['arm']} by step"),
                    }
                    for name, points in each["curves"].items()
                    if points
                ],
            }
        )
    return found


def _score(row: Row | None) -> str:
    if row is None or row.get("value") is None or row["value"] != row["value"]:
        return "–"
    return f"{words.number(row['value'])} {words.interval(row)}".rstrip()
