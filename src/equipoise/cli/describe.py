"""`equipoise describe`: one part explained."""

from __future__ import annotations

import inspect
import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, console, print_json


def command(
    part: Annotated[str, typer.Argument(help="A part's id; `equipoise list` shows them.")],
    json: JsonOption = False,
) -> None:
    """Explain a part: what it does, its parameters, its paper and replication."""
    from equipoise.catalog import catalog

    entry = catalog().find(part)
    found = describe(entry)
    if json:
        print_json(found)
        return
    screen = console()
    screen.print(f"{entry.id}", style="bold", end="")
    screen.print(f"  {entry.kind} in {entry.card.field}", style="dim")
    screen.print()
    screen.print(found["doc"])
    screen.print()
    _parameters(found["parameters"], screen)
    if entry.kind == "task":
        scores = ", ".join(score["name"] for score in found["scores"]) or "none declared"
        screen.print(f"Scores: {scores} (claims are about the first).")
    for name in ("needs", "provides"):
        if found.get(name):
            screen.print(f"{name.capitalize()}: {', '.join(found[name])}.")
    if entry.card.reference:
        screen.print(f"Paper: {entry.card.reference}")
    if found.get("replication"):
        latest = found["replication"]
        screen.print(
            f"Replication: {latest['outcome']} on {latest['date'][:10]}; "
            f"equipoise replicate {entry.card.paper}"
        )
    for check, reason in found["exempt"].items():
        screen.print(f"Exempt from the check {check}: {reason}")
    screen.print(f"\nIn a trial file:\n\n{found['example']}")


def _parameters(rows: list[dict[str, Any]], screen: Any) -> None:
    from rich.table import Table

    if not rows:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("parameter", "must be", "default"):
        table.add_column(name, header_style="dim", no_wrap=name == "parameter")
    for row in rows:
        default = "required" if row["required"] else json_.dumps(row["default"], default=str)
        table.add_row(row["name"], row["expected"], default)
    screen.print(table)
    screen.print()


def describe(entry: Any) -> dict[str, Any]:
    """Return everything known of a part, as JSON."""
    from equipoise.catalog import recipe
    from equipoise.core import Part, capability_names, parameters

    cls = entry.load()
    rows = [
        {
            "name": each.name,
            "expected": each.expected(),
            "required": each.required,
            "default": None
            if each.required
            else recipe(each.default)
            if isinstance(each.default, Part)
            else each.default,
            "setting": not each.in_identity,
        }
        for each in parameters(cls)
    ]
    found: dict[str, Any] = {
        "id": entry.id,
        "kind": entry.kind,
        "field": entry.card.field,
        "paper": entry.card.paper,
        "reference": entry.card.reference,
        "summary": entry.summary,
        "version": entry.card.version,
        "requires": list(entry.card.requires),
        "doc": inspect.getdoc(cls) or "",
        "parameters": rows,
        "exempt": dict(cls.exempt),
        "example": _example(entry, rows),
    }
    for name in ("needs", "provides", "adds", "removes"):
        capabilities = getattr(cls, name, None)
        if isinstance(capabilities, frozenset) and capabilities:
            found[name] = capability_names(capabilities)
    if entry.kind == "task":
        found["scores"] = [
            {"name": s.name, "higher_is_better": s.higher_is_better, "low": s.low, "high": s.high}
            for s in cls.scores
        ]
    latest = _latest(entry.card)
    if latest:
        found["replication"] = latest
    return found


def _example(entry: Any, rows: list[dict[str, Any]]) -> str:
    shown = [row for row in rows if row["required"]]
    shown = shown or [row for row in rows if row["default"] not in (None, [], "")][:2]
    values = ", ".join(
        f"{row['name']}: {json_.dumps(row['default'], default=str) if not row['required'] else '…'}"
        for row in shown
    )
    spec = f"{{{entry.id}: {{{values}}}}}" if values else entry.id
    return {
        "subject": f"subject: {spec}",
        "treatment": f"arms:\n  control: []\n  treated: [{spec}]",
        "task": f"tasks:\n  mine: {spec}",
        "measure": f"measures:\n  mine: [{spec}]",
    }[entry.kind]


def _latest(card: Any) -> dict[str, Any] | None:
    """Return the ledger's row of a paper, where this is a checkout that has one."""
    path = Path(__file__).parents[3] / "replications" / f"{card.paper}.json"
    if not card.paper or not path.exists():
        return None
    row = json_.loads(path.read_text(encoding="utf-8"))
    return {
        "outcome": row["outcome"],
        "date": row["provenance"]["date"],
        "claims": [{k: c[k] for k in ("claim", "verdict")} for c in row["claims"]],
    }
