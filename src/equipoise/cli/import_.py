"""`equipoise import`: outcomes that another tool made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import JsonOption, QuietOption, StoreOption, print_json


def command(
    files: Annotated[list[Path], typer.Argument(help="Files: .jsonl, .csv, .tsv or .parquet.")],
    trial: Annotated[
        str | None, typer.Option(help="Name of the run's trial. Default: the first file's name.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="The task, for files without a column `task`.")
    ] = "imported",
    lower_better: Annotated[
        list[str] | None, typer.Option(help="A score of which less is better; repeat for more.")
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(help="Bounds of a score, as NAME:LOW:HIGH; repeat for more."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take outcomes that another tool made: JSONL, CSV, TSV or Parquet.

    A row is one outcome. Columns: `unit`, and `score`, `score.NAME` or any
    column of numbers as scores; `arm` (else the file's name is the arm),
    `task`, `repeat`, `build`, `cluster`, `stratum`, `content`, `target`,
    `output`, `status`, `error`, tokens and seconds where there are any.
    """
    from equipoise.store import default_store
    from equipoise.store.importing import import_files

    place = store or default_store()
    found = import_files(
        files, place, trial=trial, task=task, lower_better=lower_better or (), bounds=bounds or ()
    )
    if json:
        print_json(found)
        return
    if quiet:
        return
    count = found["outcomes"]
    arms, tasks = ", ".join(found["arms"]), ", ".join(found["tasks"])
    typer.echo(f"Run {found['run']} ({found['trial']}): {count:,} outcomes of {arms} on {tasks}.")
    if found["ignored"]:
        typer.echo(f"Columns left out: {', '.join(found['ignored'])}.", err=True)
    if len(found["arms"]) > 1:
        typer.echo(f"Next: equipoise compare {found['run']}")
