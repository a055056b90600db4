"""Reads plain files of outcomes into checked columns."""

from __future__ import annotations

import csv
import difflib
import gc
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from equipoise.core import RunError, UsageError

TEXT = ("arm", "task", "unit", "cluster", "stratum", "status", "error_kind", "error")
COUNTS = ("repeat", "build", "input_tokens", "output_tokens", "seed")
NUMBERS = ("dollars", "seconds")
ANYTHING = ("content", "target", "output")
STATUS = ("ok", "error", "limit")
SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_IGNORED = ("attempt", "split")  # ours, but what they say does not count here
_KNOWN = (*TEXT, *COUNTS, *NUMBERS, *ANYTHING, *_IGNORED)
_INDEX = ("Unnamed: ", "__index_level_")  # what pandas calls a column that has no name
_TRUTH = {"true": 1.0, "false": 0.0}


@dataclass
class File:
    """A file as columns; ``lines`` says where each row stands."""

    path: Path
    word: str  # line or row
    lines: Sequence[int]
    columns: dict[str, list[Any]]
    scores: dict[str, list[float]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def wrong(self, row: int, fault: str) -> NoReturn:
        raise UsageError(f"{self.path}, {self.word} {self.lines[row]}: {fault}.")


@contextmanager
def without_collector() -> Iterator[None]:
    """Make many small objects without the collector looking through them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_file(path: Path) -> File:
    readers: tuple[Callable[[Path], File], ...] = (
        _read_jsonl, _read_jsonl, _read_csv, _read_csv, _read_parquet
    )  # fmt: skip
    reader = dict(zip(SUFFIXES, readers, strict=True)).get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: the name must end in {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise UsageError(f"No file {path}.")
    try:
        found = reader(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not found.lines:
        raise UsageError(f"{path} holds no rows.")
    return found


def _text_of(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}, line {line}: this is not UTF-8; save the file as UTF-8."
        ) from error


def _read_jsonl(path: Path) -> File:
    lines: list[int] = []
    rows: list[dict[str, Any]] = []
    # Only a newline ends a line: JSON text may hold the other separators.
    for number, line in enumerate(_text_of(path).split("\n"), 1):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise UsageError(f"{path}, line {number}: not JSON ({said}).") from error
        if not isinstance(row, dict):
            raise UsageError(
                f"{path}, line {number}: a line must be an object,"
                ' as in {"unit": "a", "score": 1}.'
            )
        scores = row.pop("scores", None)
        if isinstance(scores, dict):
            row |= {f"score.{name}": value for name, value in scores.items()}
        lines.append(number)
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return File(path, "line", lines, {name: [row.get(name) for row in rows] for name in names})


def _read_csv(path: Path) -> File:
    csv.field_size_limit(2**31 - 1)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.reader(io.StringIO(_text_of(path), newline=""), delimiter=delimiter, strict=True)
    lines: list[int] = []
    rows: list[list[str]] = []
    header: list[str] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        start = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(header):
                    raise UsageError(
                        f"{path}, line {start}: {len(row)} fields, but the first line names"
                        f" {len(header)} columns."
                    )
                lines.append(start)
                rows.append(row)
            start = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: not CSV ({error}).") from error
    if len(header) == 1 and ";" in header[0]:
        raise UsageError(f"{path}: fields must be divided by commas, not semicolons.")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise UsageError(f'{path}: the column "{twice}" comes twice.')
    columns: dict[str, list[Any]] = {
        name: [value or None for value in column]
        for name, column in zip(header, zip(*rows, strict=True), strict=False)
    }
    return File(path, "line", lines, columns)


def _read_parquet(path: Path) -> File:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        said = str(error).strip().splitlines()[0].rstrip(".")
        raise UsageError(f"{path}: not a Parquet file that can be read ({said}).") from error
    columns: dict[str, list[Any]] = frame.to_dict(as_series=False)
    return File(path, "row", range(1, len(frame) + 1), columns)


def find_scores(file: File) -> None:
    """Tell scores from other columns; unknown ones that look like a slip are refused."""
    names = list(file.columns)
    absent = [name for name in _KNOWN if name not in names]
    named = [name for name in names if name == "score" or name.startswith("score.")]
    for name in [each for each in names if each not in _KNOWN and each not in named]:
        if name.startswith(_INDEX) or not name:
            file.ignored.append(name or "(unnamed)")
            continue
        near = difflib.get_close_matches(name.lower(), [*absent, "score"], n=1, cutoff=0.75)
        if near and not (near[0] == "score" and named):
            raise UsageError(f'{file.path}: unknown column "{name}". Nearest: {near[0]}.')
        if named or not _is_number(next((v for v in file.columns[name] if v is not None), None)):
            file.ignored.append(name)
        else:
            file.scores[name] = number_column(file, name)
    for name in named:
        file.scores[name.removeprefix("score.")] = number_column(file, name)
    if "unit" not in names:
        raise UsageError(f"{file.path}: the column unit is missing; there are: {', '.join(names)}.")
    if not file.scores:
        raise UsageError(
            f"{file.path}: no score; give a column score, score.NAME, or any column of numbers."
        )
    for name, values in file.scores.items():
        given = file.columns.get(name if name in file.columns else f"score.{name}", ())
        for i in np.flatnonzero(np.isnan(values)).tolist():
            if given[i] is not None:
                file.wrong(i, f'the score "{name}" is NaN; leave it out where there is none')


def check_rows(file: File, task: str) -> dict[str, list[Any]]:
    """Return the columns that outcomes have, absent ones filled; every row is checked.

    Scores are apart, in ``file.scores``. ``task`` is that of rows that name none.
    """
    n = len(file.lines)
    columns: dict[str, list[Any]] = {}
    readers: tuple[tuple[tuple[str, ...], Callable[[File, str], list[Any]]], ...] = (
        (TEXT, text_column),
        (COUNTS, count_column),
        (NUMBERS, number_column),
        (ANYTHING, lambda given, name: given.columns[name]),
    )
    for names, reader in readers:
        for name in names:
            columns[name] = reader(file, name) if name in file.columns else [None] * n
    if "arm" not in file.columns:
        columns["arm"] = [file.path.stem] * n
    if "task" not in file.columns:
        columns["task"] = [task] * n
    for name in ("unit", "arm", "task"):
        if not all(columns[name]):
            file.wrong(next(i for i, value in enumerate(columns[name]) if not value),
                       f"{name} is empty")  # fmt: skip
    _check_status(file, columns)
    return columns


def _check_status(file: File, columns: dict[str, list[Any]]) -> None:
    """Fill in how each unit ended; what did not fail must have a score."""
    given, kinds, errors = columns["status"], columns["error_kind"], columns["error"]
    for i, (status, kind, error) in enumerate(zip(given, kinds, errors, strict=True)):
        given[i] = (status or ("error" if error or kind else "ok")).lower()
        if given[i] == "error":
            kinds[i] = kind or "imported"
            errors[i] = error or "The imported row says that it failed."
        elif given[i] not in STATUS:
            file.wrong(i, f'status must be one of {", ".join(STATUS)}, got "{given[i]}"')
    bare = np.all([np.isnan(values) for values in file.scores.values()], axis=0)
    for i in np.flatnonzero(bare).tolist():
        if given[i] == "ok":
            file.wrong(i, 'no score; give one, or the status "error" where the unit failed')


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return value.lower() in _TRUTH
        return True
    return isinstance(value, (bool, int, float, Decimal))


def number_column(file: File, name: str) -> list[float]:
    found = []
    for i, value in enumerate(file.columns[name]):
        try:
            if value is None:
                found.append(math.nan)
            elif isinstance(value, (str, bool, int, float, Decimal)):
                found.append(float(value))
            else:
                raise ValueError
        except (ValueError, OverflowError):
            truth = _TRUTH.get(str(value).lower())
            if truth is None:
                file.wrong(i, f"{name} must be a number, got {shown(value)}")
            found.append(truth)
    return found


def count_column(file: File, name: str) -> list[int | None]:
    found: list[int | None] = []
    for i, value in enumerate(file.columns[name]):
        number = None if value is None else _whole(value)
        if value is not None and (number is None or (number < 0 and name != "seed")):
            file.wrong(i, f"{name} must be a whole number from 0, got {shown(value)}")
        found.append(number)
    return found


def _whole(value: Any) -> int | None:
    """Return a value as an integer if it is one, whatever its type."""
    try:
        if isinstance(value, float) or (
            isinstance(value, str) and not value.strip("-").isdecimal()
        ):
            value = float(value)
            return int(value) if value.is_integer() else None
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def text_column(file: File, name: str) -> list[str | None]:
    found: list[str | None] = []
    kind: type | None = None
    for i, value in enumerate(file.columns[name]):
        if value is None:
            found.append(None)
            continue
        if type(value) not in (str, int):
            file.wrong(i, f"{name} must be text or a whole number, got {shown(value)}")
        if kind is not None and type(value) is not kind:
            file.wrong(i, f"{name} mixes text and numbers, here {shown(value)}")
        kind = type(value)
        found.append(str(value))
    return found


def shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
