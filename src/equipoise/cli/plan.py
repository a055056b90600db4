"""`equipoise plan`: what a trial would run; nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import JsonOption, StoreOption, console, print_json


def command(
    file: Annotated[Path, typer.Argument(help="The trial file.", show_default=False)],
    units: Annotated[
        int | None, typer.Option(help="Most units a task, in place of the file's.", min=1)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Apply the file's `quick` overrides.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a trial would run, what is done already, and the likely cost.

    The file is read and every part, parameter and capability checked, as `run`
    does before it starts. Costs come from what the same arm, or another on the
    same task, cost before.
    """
    from equipoise.trial import load, plan

    trial = load(file, quick=quick)
    if units is not None:
        trial = trial.with_units(units)
    planned = plan(trial, store=store)
    if json:
        print_json(planned.as_json())
        return
    from equipoise.report.terminal import plan_table

    plan_table(planned, console())
