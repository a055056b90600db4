"""`equipoise show`: a run again, or one unit with its conversation."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, StoreOption, console, open_store, print_json


def command(
    run: Annotated[
        str | None,
        typer.Argument(help="A run: its number, a trial's name, or `last`; absent: all runs."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Show this unit in every arm.")] = None,
    task: Annotated[str | None, typer.Option(help="The unit's task, if several have it.")] = None,
    repeat: Annotated[int, typer.Option(help="Which repeat of the unit.", min=0)] = 0,
    build: Annotated[int, typer.Option(help="Which build of the arms.", min=0)] = 0,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show a run again, or one of its units with the whole conversation."""
    from equipoise.report import terminal
    from equipoise.trial.comparison import estimates

    with open_store(store) as opened:
        if run is None:
            runs = opened.runs()
            if json:
                print_json(runs)
            else:
                terminal.runs_table(runs, console())
            return
        found = opened.run(run)
        if unit is not None:
            answers = _unit(opened, found, unit, task, repeat, build)
            if json:
                print_json(answers)
            else:
                terminal.unit_pages(answers, console())
            return
        row = found["result"]
        if row is None:
            row = found | {"estimates": estimates(opened, found)}
            if not json:
                terminal.bare_page(row, console())
                return
    if json:
        print_json(row)
    else:
        terminal.result_page(row, console())


def _unit(
    store: Any, run: dict[str, Any], unit: str, task: str | None, repeat: int, build: int
) -> list[dict[str, Any]]:
    from equipoise.core.errors import UsageError, nearest

    tasks = {cell["task_label"] for cell in run["covers"]}
    if task is not None and task not in tasks:
        raise UsageError(f'No task "{task}" in that run.{nearest(task, tasks)}')
    answers = []
    fault: UsageError | None = None
    for cell in run["covers"]:
        if task not in (None, cell["task_label"]):
            continue
        try:
            row = store.unit(cell["arm"], cell["task"], unit, repeat=repeat, build=build)
        except UsageError as error:
            fault = error
            continue
        answers.append(row | {"arm": cell["arm_label"], "task": cell["task_label"]})
    if not answers:
        raise fault or UsageError(f'No unit "{unit}" in that run.')
    return answers
