"""`equipoise list`: the parts in the catalogue, read from cards alone."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, print_json

if TYPE_CHECKING:
    from equipoise.catalog import Entry


def command(
    kind: Annotated[
        str | None,
        typer.Argument(help="subjects, treatments, tasks, measures; all if absent."),
    ] = None,
    field: Annotated[str | None, typer.Option(help="Only this field, as in quantization.")] = None,
    search: Annotated[str | None, typer.Option(help="Only parts whose text has this word.")] = None,
    json: JsonOption = False,
) -> None:
    """List the parts: subjects, treatments, tasks, measures.

    `equipoise describe PART` explains one.
    """
    from equipoise.catalog import KINDS, catalog

    wanted = (kind or "").removesuffix("s")
    if kind and wanted not in KINDS:
        from equipoise.core.errors import UsageError, nearest

        kinds = [f"{each}s" for each in KINDS]
        raise UsageError(f'No kind "{kind}".{nearest(kind, kinds)} There are: {", ".join(kinds)}.')
    rows = [
        {
            "id": entry.id,
            "kind": entry.kind,
            "field": entry.card.field,
            "paper": entry.card.paper,
            "summary": entry.summary,
        }
        for entry in sorted(catalog(), key=lambda e: (KINDS.index(e.kind), e.card.field, e.id))
        if (not wanted or entry.kind == wanted)
        and (field is None or entry.card.field == field)
        and (
            search is None
            or search.lower() in f"{entry.id} {entry.card.title} {entry.card.summary}".lower()
        )
    ]
    if json:
        print_json(rows)
        return
    for each in KINDS:
        chosen = [row for row in rows if row["kind"] == each]
        if chosen:
            _table(f"{each}s", chosen)


def _table(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as columns, plainly: Rich would take longer to load than to list."""
    wide = max(len(row["id"]) for row in rows)
    left = wide + 2 + max(len(row["field"]) for row in rows) + 2
    space = max(30, shutil.get_terminal_size((80, 24)).columns - left)
    typer.echo(title)
    for row in rows:
        first, *more = textwrap.wrap(row["summary"], space)
        name = f"{row['id']:{wide}}"
        if "NO_COLOR" not in os.environ:
            name = typer.style(name, bold=True)
        typer.echo(f"{name}  {row['field']:{left - wide - 4}}  {first}")
        for line in more:
            typer.echo(" " * left + line)
    typer.echo()


def _text(entry: Entry) -> str:
    return f"{entry.id} {entry.summary} {entry.card.title} {entry.card.summary}".lower()
