"""Options that several commands take, and how they print."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The store: a file, or a database URL. Default: $EQUIPOISE_STORE, "
        "else .equipoise/store.sqlite here.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines, nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]


def print_json(value: Any) -> None:
    """Print JSON to standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def console(*, stderr: bool = False) -> Any:
    """Return a Rich console that honours NO_COLOR and falls back to 80 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 80
    return Console(file=stream, width=width, highlight=False, markup=False)


def open_store(place: str | None) -> Any:
    """Return the store, open for reading; a clear error where there is none."""
    from equipoise.core.errors import UsageError
    from equipoise.store import Store, default_store, is_there

    where = place or default_store()
    if not is_there(where):
        raise UsageError(f"No store at {where}; `equipoise run FILE` makes one.")
    return Store.open(where, readonly=True)
