"""`equipoise export`: a run's outcomes as one long table."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli._shared import JsonOption, QuietOption, StoreOption, open_store, print_json

if TYPE_CHECKING:
    import polars as pl

    from equipoise.store import Store

FORMATS = (".parquet", ".jsonl", ".csv")
_TEXT = ("arm", "task", "unit", "cluster", "stratum", "status", "output", "error_kind", "error")
_INTEGERS = ("build", "repeat", "attempt", "input_tokens", "output_tokens", "seed")
_BEFORE = ("arm", "task", "unit", "build", "repeat", "attempt", "status")
_AFTER = (
    "output", "error_kind", "error", "input_tokens", "output_tokens", "dollars", "seconds",
    "seed", "cluster", "stratum",
)  # fmt: skip


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

    if out is None:
        raise UsageError("Say where to: equipoise export last -o outcomes.parquet.")
    if out.suffix not in FORMATS:
        raise UsageError(f"{out}: the name must end in {', '.join(FORMATS)}.")
    with open_store(store) as opened:
        found = opened.run(run)
        names = opened.score_names(found["id"])
        with _replacing(out) as part:
            rows = _write(opened, found["id"], names, part, out.suffix)
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


def _write(store: Store, run: int, names: list[str], path: Path, suffix: str) -> int:
    count = 0
    if suffix == ".jsonl":
        import json

        # A lone surrogate becomes its escape, which JSON reads back as it was.
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for rows in store.stream(run):
                for row in rows:
                    flat = {name: _json(value) for name, value in _flat(row, names).items()}
                    file.write(json.dumps(flat, ensure_ascii=False) + "\n")
                count += len(rows)
        return count
    if suffix == ".csv":
        with path.open("wb") as raw:
            for number, frame in enumerate(_frames(store, run, names)):
                frame.write_csv(raw, include_header=number == 0)
                count += len(frame)
        return count
    from polars.io.plugins import register_io_source

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        nonlocal count
        for frame in _frames(store, run, names):
            count += len(frame)
            yield frame

    # Polars writes what the source yields as it comes, a group of rows at a time.
    register_io_source(source, schema=_schema(names)).sink_parquet(path)
    return count


def _schema(names: list[str]) -> dict[str, Any]:
    import polars as pl

    columns = [*_BEFORE, *(f"score.{name}" for name in names), *_AFTER]
    return {
        name: pl.String if name in _TEXT else pl.Int64 if name in _INTEGERS else pl.Float64
        for name in columns
    }


def _frames(store: Store, run: int, names: list[str]) -> Iterator[pl.DataFrame]:
    import json

    import polars as pl

    schema = _schema(names)
    empty = True
    for rows in store.stream(run):
        flat = [_flat(row, names) for row in rows]
        for row in flat:
            output = row["output"]
            if output is not None:
                text = output if isinstance(output, str) else json.dumps(output)
                row["output"] = text.encode("utf-8", "backslashreplace").decode()
        yield pl.DataFrame(
            {name: [row[name] for row in flat] for name in schema}, schema=schema, strict=True
        )
        empty = False
    if empty:
        yield pl.DataFrame(schema=schema)


def _json(value: Any) -> Any:
    """Return null for what JSON has no word for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    row = row | row["usage"]
    return {
        **{name: row[name] for name in _BEFORE},
        **{f"score.{name}": row["scores"].get(name) for name in names},
        **{name: row[name] for name in _AFTER},
    }
