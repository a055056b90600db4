"""One reader a file format; each turns a fault into a sentence with its line."""

from __future__ import annotations

import csv
import gzip
import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from equipoise.core import UsageError, nearest
from equipoise.kit.data.source import Row, Source, one_line

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def format_of(data: str, path: Path) -> str:
    """Return the format that a file's name says."""
    name = path.name.lower()
    packed = name.endswith(".gz")
    suffix = Path(name.removesuffix(".gz")).suffix
    if suffix in FORMATS and not (packed and suffix == ".parquet"):
        return suffix
    known = ".jsonl, .json, .csv, .tsv or .parquet"
    shown = suffix + (".gz" if packed else "") if suffix else path.name
    hint = nearest(suffix, FORMATS) if suffix else ""
    raise UsageError(
        f'{data}: unknown format "{shown}"; rows come as {known}, all but the last also with .gz.'
        f"{hint}"
    )


def _lines(data: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of a UTF-8 file, plain or gzipped, their ends kept."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    number = 0
    try:
        file: IO[bytes]
        with opener(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                if number == 1:
                    if raw.startswith(_UTF16):
                        raise UsageError(f"{data}: is UTF-16; save it as UTF-8.")
                    raw = raw.removeprefix(_BOM)
                yield number, _decode(data, number, raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(
            f"{data}: is not a whole gzip file (after line {number}: {one_line(error)})."
        ) from error


def _decode(data: str, number: int, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{data}, line {number}: byte {error.start + 1} of the line is "
            f"0x{raw[error.start]:02x}, which is not UTF-8; save the file as UTF-8."
        ) from error


def text_of(data: str, path: Path) -> str:
    """Return the whole text of a UTF-8 file, plain or gzipped."""
    return "".join(line for _, line in _lines(data, path))


def _from_jsonl(data: str, path: Path, limit: int | None) -> Source:
    rows: list[Row] = []
    places: list[int] = []
    for number, line in _lines(data, path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"{data}, line {number}: is not JSON ({error.msg} at column {error.colno}); "
                f"each line holds one object."
            ) from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{data}, line {number}: is not JSON ({one_line(error)}).") from error
        rows.append(_object(f"{data}, line {number}", row))
        places.append(number)
        if len(rows) == limit:
            break
    return Source(data, rows, places, "line")


def _from_json(data: str, path: Path, limit: int | None) -> Source:
    text = text_of(data, path)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        hint = "; one object a line is .jsonl" if error.msg == "Extra data" else ""
        raise UsageError(
            f"{data}, line {error.lineno}: is not JSON ({error.msg} at column {error.colno}){hint}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{data}: is not JSON ({one_line(error)}).") from error
    if not isinstance(found, list):
        raise UsageError(f'{data}: must be an array of objects, as in [{{"text": "…"}}, …].')
    rows = [_object(f"{data}, row {n}", row) for n, row in enumerate(found[:limit], 1)]
    return Source(data, rows, range(1, len(rows) + 1))


def _object(place: str, row: Any) -> Row:
    if isinstance(row, dict):
        return row
    raise UsageError(f'{place}: must be an object such as {{"text": "…"}}, got {str(row)[:40]!r}.')


_FIELD_LIMIT = threading.Lock()  # csv's limit is the interpreter's, so one reader at a time


def _from_csv(data: str, path: Path, limit: int | None, delimiter: str = ",") -> Source:
    with _FIELD_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            return _parse_csv(data, path, limit, delimiter)
        finally:
            csv.field_size_limit(before)


def _parse_csv(data: str, path: Path, limit: int | None, delimiter: str) -> Source:
    reader = csv.reader((line for _, line in _lines(data, path)), delimiter=delimiter, strict=True)
    cells: list[list[str]] = []
    places: list[int] = []
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            raise UsageError(f"{data}: the file is empty; a header and one row are needed.")
        _check_header(data, header)
        for row in islice((row for row in reader if row), limit):
            if len(row) != len(header):
                raise UsageError(
                    f"{data}, line {reader.line_num}: has {len(row)} fields and the header has "
                    f"{len(header)}; quote fields that hold a {_spoken(delimiter)}."
                )
            cells.append(row)
            places.append(reader.line_num)
    except csv.Error as error:
        raise UsageError(
            f"{data}, line {reader.line_num}: is not proper CSV ({one_line(error)})."
        ) from error
    columns = [_typed(column) for column in zip(*cells, strict=True)]
    rows = [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]
    return Source(data, rows, places, "line")


def _check_header(data: str, header: list[str]) -> None:
    for index, name in enumerate(header):
        if not name.strip():
            raise UsageError(f"{data}: column {index + 1} has no name in the header.")
        if name in header[:index]:
            raise UsageError(f'{data}: the header has the column "{name}" twice; rename one.')


def _spoken(delimiter: str) -> str:
    return "comma" if delimiter == "," else "tab"


# Leading zeros ("007", "0123") mark codes, not numbers, so they stay text.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})").fullmatch
_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?|nan|NaN|NAN|[+-]?(inf|Inf|INF)"
).fullmatch
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def _typed(cells: tuple[str, ...]) -> list[Any]:
    """Give a column the narrowest type that all its cells have; an empty cell is None."""
    filled = [cell for cell in cells if cell]
    if filled and all(map(_INTEGER, filled)):
        return [int(cell) if cell else None for cell in cells]
    if filled and all(map(_NUMBER, filled)):
        return [float(cell) if cell else None for cell in cells]
    if filled and all(cell in _TRUTH for cell in filled):
        return [_TRUTH[cell] if cell else None for cell in cells]
    return [cell or None for cell in cells]


def _from_tsv(data: str, path: Path, limit: int | None) -> Source:
    return _from_csv(data, path, limit, "\t")


def _from_parquet(data: str, path: Path, limit: int | None) -> Source:
    import polars as pl
    import polars.selectors as cs

    try:
        frame = pl.read_parquet(path, n_rows=limit, glob=False)
        frame = frame.with_columns(
            cs.datetime().dt.to_string("iso:strict"),
            cs.date().dt.to_string("iso"),
            cs.time().dt.to_string("iso"),
            cs.duration().dt.total_seconds(fractional=True),
            cs.decimal().cast(pl.Float64),
            cs.categorical().cast(pl.String),
            cs.enum().cast(pl.String),
        )
        rows = frame.to_dicts()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UsageError(f"{data}: is not a whole Parquet file ({one_line(error)}).") from error
    return Source(data, rows, range(1, len(rows) + 1))


FORMATS: dict[str, Callable[[str, Path, int | None], Source]] = {
    ".jsonl": _from_jsonl,
    ".ndjson": _from_jsonl,
    ".json": _from_json,
    ".csv": _from_csv,
    ".tsv": _from_tsv,
    ".parquet": _from_parquet,
}
