"""Writes a run's outcomes to plain files, which `import_files` reads back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".parquet", ".jsonl", ".csv")
_TEXT = ("arm", "task", "unit", "cluster", "stratum", "status", "output", "error_kind", "error")
_INTEGERS = ("build", "repeat", "attempt", "input_tokens", "output_tokens", "seed")
_BEFORE = ("arm", "task", "unit", "build", "repeat", "attempt", "status")
_AFTER = (
    "output", "error_kind", "error", "input_tokens", "output_tokens", "dollars", "seconds",
    "seed", "cluster", "stratum",
)  # fmt: skip


def export(store: Any, run: int, path: Path, suffix: str | None = None) -> int:
    """Write a run's outcomes, one row each, and return how many there are.

    Parameters
    ----------
    store
        A store, open for reading.
    run
        Number of the run.
    path
        The file; one that is there is written over.
    suffix
        A member of `FORMATS`, by default that of the path.
    """
    names, suffix = store.score_names(run), suffix or path.suffix
    count = 0
    if suffix == ".jsonl":
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


def _frames(store: Any, run: int, names: list[str]) -> Iterator[pl.DataFrame]:
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
