"""What made a result: arms and tasks, what they cost, where they ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.report import words
from equipoise.report._text import clip

Row = Mapping[str, Any]


def facts(row: Row) -> list[tuple[str, str]]:
    """Return the few numbers at the head of the page."""
    about = row.get("provenance") or {}
    errors = f"{row['errors']:,}"
    if row["errors"] and row["units"]:
        errors += f" ({row['errors'] / row['units']:.1%})"
    found = [
        ("Outcomes", f"{row['units']:,}"),
        ("Errors", errors),
        ("This run took", words.seconds(row["seconds"])),
    ]
    if row.get("reused"):
        found.insert(1, ("From earlier runs", f"{row['reused']:,}"))
    if about.get("date"):
        found.append(("Date", str(about["date"])[:10]))
    if row.get("run") is not None:
        found.append(("Run", str(row["run"])))
    return found


def recipe(arm: Any) -> list[str]:
    """Return an arm's subject and treatments, one part a line."""
    if not isinstance(arm, Mapping):
        return [part(arm)]
    return [part(arm.get("subject")), *(part(each) for each in arm.get("treatments", ()))]


def part(said: Any) -> str:
    """Return a part's recipe as ``id(parameter=value, …)``, the empty parameters left out.

    Examples
    --------
    >>> part({"round_to_nearest": {"weights": 4, "clip": None}})
    'round_to_nearest(weights=4)'
    """
    if isinstance(said, Mapping) and len(said) == 1:
        ((name, given),) = said.items()
        if isinstance(given, Mapping):
            inside = ", ".join(
                f"{key}={_plain(value)}"
                for key, value in given.items()
                if value not in (None, "", [], {})
            )
            return f"{name}({inside})" if inside else str(name)
    return _plain(said)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return clip(value, 200)
    if isinstance(value, Mapping) and len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, Mapping):
            return part(value)
    return clip(json.dumps(value, ensure_ascii=False, default=str), 200)


def cost_tables(row: Row) -> dict[str, Any] | None:
    """Return what every arm cost, in all and on each task."""
    costs = row.get("costs") or []
    if not costs:
        return None
    tokens = any(each.get("input_tokens") or each.get("output_tokens") for each in costs)
    dollars = any(each.get("dollars") for each in costs)
    by_arm: dict[str, list[Row]] = {}
    for each in costs:
        by_arm.setdefault(each["arm"], []).append(each)
    lines = [_cost(arm, "", cells) for arm, cells in by_arm.items()]
    cells = [_cost(each["arm"], each["task"], [each]) for each in costs]
    return {"tokens": tokens, "dollars": dollars, "arms": lines,
            "cells": cells if len(cells) > len(lines) else []}  # fmt: skip


def _cost(arm: str, task: str, cells: Sequence[Row]) -> dict[str, Any]:
    total = {
        key: sum(each.get(key) or 0 for each in cells)
        for key in ("outcomes", "errors", "attempts", "input_tokens", "output_tokens", "dollars",
                    "seconds")
    }  # fmt: skip
    per = total["seconds"] / total["attempts"] if total["attempts"] else None
    return total | {
        "arm": arm,
        "task": task,
        "time": words.seconds(total["seconds"]),
        "each": _duration(per),
    }


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return words.seconds(seconds) if seconds >= 1 else f"{words.number(1000 * seconds)} ms"


def provenance(row: Row) -> list[tuple[str, str]]:
    """Return where, when and with what the run was made."""
    about = row.get("provenance") or {}
    found = [("Trial", row["trial"])]
    if row.get("paper"):
        found.append(("Replicates", row["paper"]))
    if about.get("command"):
        found.append(("Command", about["command"]))
    for name, key in (("Date", "date"), ("Python", "python"), ("Platform", "platform")):
        if about.get(key):
            found.append((name, str(about[key])))
    machine = [f"{about['cores']} cores"] if about.get("cores") else []
    machine += [f"{about['memory_gib']} GiB memory"] if about.get("memory_gib") else []
    if machine:
        found.append(("Machine", ", ".join(machine)))
    git = about.get("git")
    if git:
        state = "" if git.get("clean") else ", with changes that are not committed"
        found.append(("Code", f"commit {git['commit']}{state}"))
    versions = about.get("versions") or {}
    if versions:
        found.append(("Versions", ", ".join(f"{k} {v}" for k, v in versions.items())))
    return found
