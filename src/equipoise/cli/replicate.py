"""`equipoise replicate`: a paper's headline claim, by a trial of its own."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import JsonOption, QuietOption, StoreOption, console, print_json


def command(
    paper: Annotated[
        str | None, typer.Argument(help="The paper's slug, as in `rrs`.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every paper, one after another.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The size that runs in seconds.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Write the result to the ledger.")
    ] = False,
    ledger: Annotated[Path, typer.Option(help="Folder of the ledger, one file a paper.")] = Path(
        "replications"
    ),
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1)] = 1,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the trial that shows a paper's headline claim.

    Without a paper, list what can be replicated. With --all, the exit code
    tells whether every trial ran, not how its claims came out.
    """
    from equipoise.catalog import catalog
    from equipoise.cli._running import carry_out
    from equipoise.core.errors import UsageError
    from equipoise.trial.replication import WORDS, replication, replications
    from equipoise.trial.replication import record as write

    if paper is None and not every:
        for card in replications():
            typer.echo(f"{card.paper or next(iter(card.parts)):28} {card.title}")
        return
    if record and quick:
        raise UsageError("The ledger holds full replications; leave out --quick or --record.")
    slugs = [paper] if paper else [c.paper or next(iter(c.parts)) for c in replications()]
    results = []
    for slug in slugs:
        trial = replication(slug, quick=quick)
        result = carry_out(
            trial,
            store=store,
            workers=workers,
            quiet=quiet or json,
            command=shlex.join(["equipoise", *sys.argv[1:]]),
            show=not (json or every),
        )
        results.append(result)
        if record:
            write(result, catalog().paper(slug), ledger)
        if every and not json:
            console().print(
                f"{slug:28} {WORDS[result.verdict]:16} {result.units} units, "
                f"{result.errors} errors, {result.seconds:.0f} s"
            )
    if json:
        rows = [each.as_json() for each in results]
        print_json(rows if every else rows[0])
    if every:
        failed = any(each.errors == each.units for each in results)
        raise typer.Exit(4 if failed else 0)
    raise typer.Exit(results[0].exit_code)
