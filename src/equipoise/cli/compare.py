"""`equipoise compare`: two runs or files, one answer."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, StoreOption, console, print_json
from equipoise.cli._sides import BoundsOption, LowerBetterOption, Relation, open_sides


class _Correct(StrEnum):
    holm = "holm"
    bh = "bh"
    none = "none"


class _Fail(StrEnum):
    worse = "worse"


_SIDE = "A run (its number, a trial's name, or `last`), or a file of outcomes"


def command(
    first: Annotated[str, typer.Argument(help=f"{_SIDE}: .jsonl, .csv, .tsv, .parquet.")],
    second: Annotated[
        str | None, typer.Argument(help="Another; absent: the arms of the first.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="The arm of the first.")] = None,
    other: Annotated[str | None, typer.Option(help="The arm of the second.")] = None,
    score: Annotated[str | None, typer.Option(help="Compare this score only.")] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    correct: Annotated[
        _Correct,
        typer.Option(
            help="Over many tasks: holm (no false finding), bh (few of the findings false), none."
        ),
    ] = _Correct.holm,
    claim: Annotated[
        Relation | None,
        typer.Option(help="What is claimed of the second; the exit code is its verdict."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Margin of the claim, in units of the score. Alone: no_worse_than."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="What the claim is about: a task, `each`, or `overall`.")
    ] = None,
    fail_on: Annotated[
        _Fail | None,
        typer.Option(help="worse: exit 1 if anything is worse after correction."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List every task, not only those that differ.")
    ] = False,
    flips: Annotated[
        int, typer.Option(help="Show so many units that became better, and worse.", min=0)
    ] = 0,
    lower_better: LowerBetterOption = None,
    bounds: BoundsOption = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write Markdown for a pull request here.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every row as CSV here.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compare two runs or files of outcomes, or the arms of one, on the units they share.

    Every effect is how much better the second is than the first: paired on
    units, clusters respected, exact McNemar for binary scores, p-values
    corrected over all tasks. Files are read as they are, nothing is stored.

    Exit code: 0, or with --claim or --margin 0 supported, 1 refuted, 3
    inconclusive; 2 wrong use.
    """
    from equipoise.core.errors import UsageError
    from equipoise.report import comparison as report
    from equipoise.trial import comparison

    if not 0.5 < level < 1:
        raise UsageError(f"--level must be between 0.5 and 1, got {level:g}.")
    if on is not None and claim is None and margin is None:
        raise UsageError("--on says what a claim is about; give --claim or --margin too.")
    with open_sides(first, second, store, lower_better or (), bounds or ()) as (one, two):
        found = comparison.compare(
            one, two, arm=arm, other=other, score=score, level=level, correct=correct.value
        )
        if claim is not None or margin is not None:
            relation = claim or Relation.no_worse_than
            found = comparison.claimed(found, relation.value, margin or 0.0, on)
        row: dict[str, Any] = found.as_json()
        if flips:
            row["flips"] = found.flips(flips)
    if markdown is not None:
        report.write_file(markdown, report.markdown(row))
    if csv is not None:
        report.write_file(csv, report.table(row))
    if json:
        print_json(row)
    else:
        report.terminal(row, console(), everything=everything)
    worse = fail_on is not None and bool(found.worse)
    raise typer.Exit(1 if worse else found.exit_code)
