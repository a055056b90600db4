"""Rows from JSONL, JSON, CSV, TSV and Parquet files, dataset folders and built-in sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from equipoise.core import UsageError, nearest
from equipoise.kit.data import builtin, hub
from equipoise.kit.data.formats import FORMATS, format_of
from equipoise.kit.data.source import Row, Source, existing, scheme, unreadable


def read_rows(
    data: str, *, columns: Sequence[str] = (), limit: int | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a data set, one mapping each, with every column they have.

    Parameters
    ----------
    data
        A path (``.jsonl``, ``.json`` array, ``.csv``, ``.tsv``, ``.parquet``;
        all but the last may end in ``.gz``), ``hf:NAME_OR_FOLDER[:SPLIT]`` or
        ``builtin:NAME``.
    columns
        Columns that every row must have, with a value, of one type.
    limit
        Read only the first so many rows.

    Raises
    ------
    UsageError
        One sentence that names the file, the line or row, and the fault.

    Examples
    --------
    >>> read_rows("builtin:iris", columns=["target"], limit=1)
    [{'sepal_length_cm': 5.1, 'sepal_width_cm': 3.5, 'petal_length_cm': 1.4,
      'petal_width_cm': 0.2, 'target': 'setosa'}]
    """
    return load(data, columns=columns, limit=limit).rows


def load(data: str, *, columns: Sequence[str] = (), limit: int | None = None) -> Source:
    """Return rows with their places; the same checks as `read_rows`."""
    if limit is not None and limit < 1:
        raise UsageError(f"{data}: limit must be an integer of at least 1, got {limit!r}.")
    kind, name = scheme(data)
    if kind == "builtin":
        rows = list(islice(builtin.rows(name), limit))
        source = Source(data, rows, range(1, len(rows) + 1))
    elif kind == "hf":
        rows = hub.rows(data, limit)
        source = Source(data, rows, range(1, len(rows) + 1))
    else:
        source = _from_file(data, existing(data), limit)
    if not source.rows:
        raise UsageError(f"{data}: there are no rows; at least one is needed.")
    for column in columns:
        _check_column(source, column)
    _check_ids(source)
    return source


def _from_file(data: str, path: Path, limit: int | None) -> Source:
    if path.is_dir():
        raise UsageError(f"{data}: is a folder; name a file in it, or hf:{data} for a dataset.")
    reader: Callable[[str, Path, int | None], Source] = FORMATS[format_of(data, path)]
    try:
        if path.stat().st_size == 0:
            raise UsageError(f"{data}: the file is empty; at least one row is needed.")
        return reader(data, path, limit)
    except OSError as error:
        raise unreadable(data, error) from error


def _check_column(source: Source, column: str) -> None:
    """Refuse a column that is missing, empty somewhere or of two types."""
    kind, first = "", 0
    for index, row in enumerate(source.rows):
        if column not in row:
            raise _missing(source, column, index)
        value = row[column]
        if value is None or (isinstance(value, float) and math.isnan(value)):
            what = "empty" if value is None else "NaN"
            raise UsageError(
                f'{source.at(index)}: "{column}" is {what}; every row needs a value there.'
            )
        found = kind_of(value)
        if not kind:
            kind, first = found, index
        elif found != kind:
            raise UsageError(
                f'{source.data}: "{column}" is {kind} in {source.word} {source.places[first]} and '
                f"{found} in {source.word} {source.places[index]}; give the column one type."
            )
    if kind == "binary data":
        raise UsageError(f'{source.data}: "{column}" holds binary data, which is not supported.')


def _missing(source: Source, column: str, index: int) -> UsageError:
    if any(column in row for row in source.rows):
        return UsageError(
            f'{source.at(index)}: "{column}" is missing; every row needs a value there.'
        )
    names = list(dict.fromkeys(str(name) for row in source.rows[:100] for name in row))
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return UsageError(
        f'{source.data}: there is no column "{column}".{nearest(column, names)} There are: {shown}.'
    )


def _check_ids(source: Source) -> None:
    """Refuse ids that are missing in some rows or met twice."""
    having = sum("id" in row for row in source.rows)
    if having == 0:
        return
    seen: dict[str, int] = {}
    for index, row in enumerate(source.rows):
        value = row.get("id")
        if value is None:
            raise UsageError(f"{source.at(index)}: has no id though other rows do; give it one.")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise UsageError(
                f"{source.at(index)}: id must be text or an integer, got {kind_of(value)}."
            )
        key = str(value)
        if key in seen:
            first = source.places[seen[key]]
            raise UsageError(
                f'{source.at(index)}: id "{key}" is already in {source.word} {first}; '
                f"ids must differ, so mend them or rename the column."
            )
        seen[key] = index


def kind_of(value: Any) -> str:
    """Return what people call the type of a value."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "binary data"
    return "empty" if value is None else type(value).__name__


__all__ = ["Row", "kind_of", "load", "read_rows"]
