"""`equipoise run`: a trial file to a verdict."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import JsonOption, QuietOption, StoreOption, print_json


def command(
    file: Annotated[Path, typer.Argument(help="The trial file.", show_default=False)],
    units: Annotated[
        int | None, typer.Option(help="Most units a task, in place of the file's.", min=1)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Apply the file's `quick` overrides.")
    ] = False,
    workers: Annotated[
        int, typer.Option(help="Worker processes; 1 runs in this process.", min=1)
    ] = 1,
    html: Annotated[
        Path | None,
        typer.Option(help="Where to write the HTML report.", show_default="beside the store"),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML for CI here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown for CI here.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a trial file and say what came of it.

    Units that the store has are not run again: a run that was stopped goes on,
    an added arm runs alone, a finished trial answers at once.

    Exit code: 0 supported, 1 refuted, 3 inconclusive, 2 wrong use, 4 run failed.
    """
    from equipoise.cli._running import carry_out
    from equipoise.trial import load

    trial = load(file, quick=quick)
    if units is not None:
        trial = trial.with_units(units)
    result = carry_out(
        trial,
        store=store,
        workers=workers,
        quiet=quiet or json,
        command=shlex.join(["equipoise", *sys.argv[1:]]),
        html=html,
        junit=junit,
        markdown=markdown,
        show=not json,
    )
    if json:
        print_json(result.as_json())
    raise typer.Exit(result.exit_code)
