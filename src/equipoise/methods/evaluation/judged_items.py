"""Judged items: a model's answers with gold scores, where known, and a judge's verdicts."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from equipoise.core import (
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UnitError,
    UsageError,
    nearest,
    setting,
)

_GOLD = ScoreSpec("gold", low=0.0, high=1.0)
_JUDGE = ScoreSpec("judge", low=0.0, high=1.0)
_ONLY = "the model"

Row = Mapping[str, float | None]
"""What is recorded of one model on one item: gold (None if unlabelled) and judge."""


@runtime_checkable
class Recalls(Protocol):
    """Picks what was recorded of it from the rows of an item, by model."""

    def recall(self, rows: Mapping[str, Row]) -> Row: ...


@dataclass(frozen=True)
class _Recorded:
    model: str | None

    def recall(self, rows: Mapping[str, Row]) -> Row:
        if self.model is None:
            if len(rows) > 1:
                raise UnitError(
                    f"RecordedModel: the item has rows of {len(rows)} models; name one of"
                    f" {', '.join(sorted(rows))}.",
                    kind="which_model",
                )
            return next(iter(rows.values()))
        if self.model not in rows:
            raise UnitError(
                f'RecordedModel: no row of model "{self.model}" for this item.'
                f"{nearest(self.model, rows)}",
                kind="no_row",
            )
        return rows[self.model]


@dataclass(frozen=True)
class RecordedModel(Subject):
    """A model whose answers were judged elsewhere and lie in a file.

    Parameters
    ----------
    model
        Its name in the file's column of models; None where the file has one model.

    Examples
    --------
    >>> subject = RecordedModel("small").load(Rng(0))
    >>> subject.recall({"small": {"gold": 1.0, "judge": 0.5}})
    {'gold': 1.0, 'judge': 0.5}
    """

    provides = frozenset({Recalls})

    model: str | None = None

    def load(self, rng: Rng) -> Recalls:
        """Return what picks the model's rows."""
        return _Recorded(self.model)


@dataclass(frozen=True)
class JudgedItems(Task):
    """Items from a file, each with a model's gold score, where known, and a judge's verdict.

    One unit an item; each arm is a `RecordedModel`. Columns: ``item``,
    ``gold`` (0, 1 or empty) and ``judge`` (0 to 1), and where there are any
    ``model``, ``stratum`` and ``cluster``, the latter two the same for all
    rows of an item.

    Parameters
    ----------
    data
        Path of a CSV, JSONL or Parquet file. Results follow its content.
    gold, judge
        Names of the columns with the gold scores and the verdicts, so that
        one file may hold several judges.

    Examples
    --------
    >>> task = JudgedItems.tiny()
    >>> unit = task.units(Rng(0))[0]
    >>> unit.id, unit.content["large"]
    ('q01', {'gold': 1.0, 'judge': 0.78})
    """

    needs = frozenset({Recalls})
    scores = (_GOLD, _JUDGE)

    data: str = setting()
    gold: str = "gold"
    judge: str = "judge"

    @classmethod
    def tiny(cls) -> JudgedItems:
        """Return the example that lies beside this module."""
        return cls(str(Path(__file__).with_name("judged_items_example.csv")))

    def content(self) -> Any:
        """Return the hash of the file."""
        return hashlib.sha256(_bytes(self.data)).hexdigest()

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit an item, in the file's order."""
        state = Path(self.data).stat() if Path(self.data).is_file() else None
        key = (state.st_mtime_ns, state.st_size) if state else (0, 0)
        return list(_units(self.data, self.gold, self.judge, key))

    def perform(self, subject: Recalls, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Look up each item's scores; an item without a label has no gold score."""
        outcomes = []
        for unit in units:
            row = subject.recall(unit.content)
            scores = {name: float(value) for name, value in row.items() if value is not None}
            outcomes.append(Outcome(unit.id, scores=scores))
        return outcomes

    def oracle(self) -> Any:
        """Return a subject that was right each time, and judged so."""
        return _AlwaysRight()


class _AlwaysRight:
    def recall(self, rows: Mapping[str, Row]) -> Row:
        return {"gold": 1.0, "judge": 1.0}


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"JudgedItems: {path} cannot be read: {error.strerror}.") from error


@functools.lru_cache(maxsize=4)
def _units(path: str, gold: str, judge: str, key: tuple[int, int]) -> tuple[Unit, ...]:
    columns = _table(path, ("item", gold, judge))
    size = len(columns["item"])
    models = columns.get("model", [_ONLY] * size)
    rows: dict[str, dict[str, Row]] = {}
    about: dict[str, tuple[str | None, str | None]] = {}

    def wrong(fault: str, index: int) -> UsageError:
        return UsageError(f"JudgedItems: {path}, row {index + 1}: {fault}.")

    for index in range(size):
        item, model = columns["item"][index], models[index]
        if item is None or model is None:
            raise wrong(f"the column {'item' if item is None else 'model'} is empty", index)
        label = _number(columns[gold][index])
        if label not in (None, 0.0, 1.0):
            raise wrong(f"{gold} must be 0, 1 or empty, got {columns[gold][index]!r}", index)
        verdict = _number(columns[judge][index])
        if verdict is None or not 0 <= verdict <= 1:
            raise wrong(
                f"{judge} must be a number from 0 to 1, got {columns[judge][index]!r}", index
            )
        item, model = str(item), str(model)
        if model in rows.setdefault(item, {}):
            raise wrong(f'item "{item}" of {_named(model)} is there twice', index)
        rows[item][model] = {"gold": label, "judge": verdict}
        group = tuple(
            None if name not in columns or columns[name][index] is None
            else str(columns[name][index])
            for name in ("stratum", "cluster")
        )  # fmt: skip
        if about.setdefault(item, group) != group:  # type: ignore[arg-type]
            raise wrong(f'item "{item}" has another stratum or cluster than before', index)
    return tuple(
        Unit(item, content=content, stratum=about[item][0], cluster=about[item][1])
        for item, content in rows.items()
    )


def _named(model: str) -> str:
    return _ONLY if model == _ONLY else f'model "{model}"'


def _number(value: Any) -> float | None:
    """Return a float, None for an empty cell, and NaN for what is not a number."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _table(path: str, needed: tuple[str, ...]) -> dict[str, list[Any]]:
    import polars as pl

    raw = _bytes(path)
    readers = {
        ".csv": lambda: pl.read_csv(raw, infer_schema=False),
        ".jsonl": lambda: pl.read_ndjson(raw, infer_schema_length=None),
        ".parquet": lambda: pl.read_parquet(raw),
    }
    kind = Path(path).suffix.lower()
    if kind not in readers:
        raise UsageError(
            f"JudgedItems: {path} must be a .csv, .jsonl or .parquet file, got {kind or 'no'}"
            " suffix."
        )
    if not raw.strip():
        raise UsageError(f"JudgedItems: {path} is empty; it needs {', '.join(needed)}.")
    try:
        frame = readers[kind]()
    except Exception as error:  # polars raises many kinds, some of them from Rust
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UsageError(f"JudgedItems: {path} is not {kind[1:].upper()}: {reason}.") from error
    for name in needed:
        if name not in frame.columns:
            raise UsageError(
                f'JudgedItems: {path} has no column "{name}".{nearest(name, frame.columns)}'
                f" It has: {', '.join(frame.columns) or 'none'}."
            )
    if frame.height == 0:
        raise UsageError(f"JudgedItems: {path} has no rows.")
    return frame.to_dict(as_series=False)
