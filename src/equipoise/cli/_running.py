"""What `run` and `replicate` share: progress, reports, where they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from equipoise.cli._shared import console

if TYPE_CHECKING:
    from equipoise.store import Store
    from equipoise.trial.result import Result
    from equipoise.trial.trial import Trial


def carry_out(
    trial: Trial,
    *,
    store: str | None,
    workers: int = 1,
    quiet: bool = False,
    command: str = "",
    html: Path | None = None,
    junit: Path | None = None,
    markdown: Path | None = None,
    show: bool = True,
) -> Result:
    """Run a trial with a progress display, write its reports, print its verdicts."""
    from equipoise.report.terminal import progress, result_page
    from equipoise.store import Store, default_store
    from equipoise.trial.engine import run
    from equipoise.trial.executors import Local, Processes

    place = store or default_store()
    executor = Local() if workers == 1 else Processes(workers)
    with Store.open(place) as opened:
        with progress(console(stderr=True), quiet=quiet) as watcher:
            result = run(trial, store=opened, executor=executor, watcher=watcher, command=command)
        written = _write(result, opened, html or _beside(place, result), junit, markdown, html)
    if show:
        screen = console()
        result_page(result.as_json(), screen)
        for path in written:
            screen.print(f"Report: {path}", soft_wrap=True)
    return result


def _beside(place: str | Path, result: Result) -> Path:
    folder = Path(".equipoise") if "://" in str(place) else Path(place).parent
    return folder / "reports" / f"{_slug(result.trial)}-{result.run}.html"


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-") or "trial"


def _write(
    result: Result,
    store: Store,
    html: Path,
    junit: Path | None,
    markdown: Path | None,
    asked: Path | None,
) -> list[Path]:
    from equipoise.report import html as html_report
    from equipoise.report import junit as junit_report
    from equipoise.report import markdown as markdown_report

    row = result.as_json()
    written = [html]
    html_report.write(row, store, html)
    if junit:
        junit_report.write(row, junit)
        written.append(junit)
    if markdown:
        markdown_report.write(row, markdown)
        written.append(markdown)
    return written
