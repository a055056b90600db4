"""`equipoise report`: a run's report again, as HTML, Markdown or JUnit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import StoreOption, open_store


def command(
    run: Annotated[
        str, typer.Argument(help="A run: its number, a trial's name, or `last`.")
    ] = "last",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Ends in .html, .md or .xml (JUnit).")
    ] = Path("report.html"),
    store: StoreOption = None,
) -> None:
    """Write the HTML, Markdown or JUnit report of a run."""
    from equipoise.core.errors import UsageError
    from equipoise.report import html as html_report
    from equipoise.report import junit as junit_report
    from equipoise.report import markdown as markdown_report

    with open_store(store) as opened:
        found = opened.run(run)
        if found["result"] is None:
            raise UsageError(f"Run {found['id']} is {found['status']} and has no result to report.")
        if output.suffix == ".html":
            html_report.write(found["result"], opened, output)
        elif output.suffix == ".md":
            markdown_report.write(found["result"], output)
        elif output.suffix == ".xml":
            junit_report.write(found["result"], output)
        else:
            raise UsageError(f"--output must end in .html, .md or .xml, got {output.name}.")
    typer.echo(str(output))
