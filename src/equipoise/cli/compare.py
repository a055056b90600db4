"""`equipoise compare`: two runs, one answer."""

from __future__ import annotations

from typing import Annotated

import typer

from equipoise.cli._shared import JsonOption, StoreOption, console, open_store, print_json


def command(
    first: Annotated[str, typer.Argument(help="A run: its number, a trial's name, or `last`.")],
    second: Annotated[
        str | None, typer.Argument(help="Another run; absent: the arms of the first.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="The arm of the first run.")] = None,
    other: Annotated[str | None, typer.Option(help="The arm of the second run.")] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compare two runs, or the arms of one, on the units they share.

    Every effect is how much better the second is than the first: paired on
    units, clusters respected, exact McNemar for binary scores, p-values
    corrected by Holm over all rows. Imported runs count like any other.
    """
    from equipoise.core.errors import UsageError
    from equipoise.trial.comparison import compare

    if not 0.5 < level < 1:
        raise UsageError(f"--level must be between 0.5 and 1, got {level:g}.")
    with open_store(store) as opened:
        one = opened.run(first)
        two = one if second is None else opened.run(second)
        rows = compare(opened, one, two, arm=arm, other=other, level=level)
    if json:
        print_json(rows)
        return
    from equipoise.report.terminal import comparison_table

    comparison_table(rows, console())
