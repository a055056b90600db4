"""`equipoise list`: the parts in the catalogue, read from cards alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli._shared import JsonOption, console, print_json

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
    from rich.table import Table

    for each in KINDS:
        chosen = [row for row in rows if row["kind"] == each]
        if not chosen:
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), title=f"{each}s", title_justify="left")
        table.add_column(style="bold", no_wrap=True)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for row in chosen:
            table.add_row(row["id"], row["field"], row["summary"])
        table.show_header = False
        console().print(table)


def _text(entry: Entry) -> str:
    return f"{entry.id} {entry.summary} {entry.card.title} {entry.card.summary}".lower()
