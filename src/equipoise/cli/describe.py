"""`equipoise describe`: one part explained."""

from __future__ import annotations

import json as json_
from typing import Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, console, print_json


def command(
    part: Annotated[str, typer.Argument(help="A part's id; `equipoise list` shows them.")],
    json: JsonOption = False,
) -> None:
    """Explain a part: what it does, its parameters, its paper and replication."""
    from equipoise.catalog import catalog
    from equipoise.report.parts import describe

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
