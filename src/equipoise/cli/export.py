"""`equipoise export`: a run's outcomes as one long table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from equipoise.cli._shared import JsonOption, QuietOption, StoreOption, open_store, print_json


def command(
    run: Annotated[
        str, typer.Argument(help="A run: its number, a trial's name, or `last`.")
    ] = "last",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write: .parquet, .jsonl or .csv."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a run's outcomes to Parquet, JSONL or CSV.

    One row an outcome, one column a score (`score.NAME`); the last attempt at
    each unit. `equipoise import` reads such a file back.
    """
    from equipoise.core.errors import UsageError
    from equipoise.store.exporting import FORMATS, export

    if out is None:
        raise UsageError("Say where to: equipoise export last -o outcomes.parquet.")
    if out.suffix not in FORMATS:
        raise UsageError(f"{out}: the name must end in {', '.join(FORMATS)}.")
    with open_store(store) as opened:
        found = opened.run(run)
        with _replacing(out) as part:
            rows = export(opened, found["id"], part, out.suffix)
    if json:
        print_json({"run": found["id"], "trial": found["trial"], "rows": rows, "file": str(out)})
    elif not quiet:
        typer.echo(f"Run {found['id']} ({found['trial']}): {rows:,} outcomes in {out}.")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside the one to write; it takes that one's place when all went well."""
    from equipoise.core.errors import RunError, UsageError

    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_mask())
        part.replace(path)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
