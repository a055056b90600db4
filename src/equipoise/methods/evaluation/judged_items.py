"""Judged items: a model's answers with gold scores, where known, and a judge's verdicts."""

from __future__ import annotations

import functools
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
from equipoise.kit.data import content_hash
from equipoise.kit.data.rows import load

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
        Path of a CSV, JSON, JSONL or Parquet file, or ``hf:NAME_OR_FOLDER``.
        Results follow its content, not its place.
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
    # No bounds: with bounds the engine would fill in what has no label with the worst score.
    scores = (ScoreSpec("gold"), ScoreSpec("judge"))

    data: str = setting()
    gold: str = "gold"
    judge: str = "judge"

    @classmethod
    def tiny(cls) -> JudgedItems:
        """Return the example that lies beside this module."""
        return cls(str(Path(__file__).with_name("judged_items_example.csv")))

    def content(self) -> Any:
        """Return what identifies the data, wherever it lies."""
        return content_hash(self.data)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit an item, in the file's order."""
        return list(_units(self.data, self.gold, self.judge, str(self.content())))

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
        return _Always(1.0)

    def constant(self) -> Any:
        """Return a subject that was never right."""
        return _Always(0.0)


@dataclass(frozen=True)
class _Always:
    score: float

    def recall(self, rows: Mapping[str, Row]) -> Row:
        return {"gold": self.score, "judge": self.score}


@functools.lru_cache(maxsize=4)
def _units(data: str, gold: str, judge: str, version: str) -> tuple[Unit, ...]:
    """Return the units of a file; ``version`` says when the file is another one."""
    source = load(data, columns=["item", judge])
    if not any(gold in row for row in source.rows):
        names = list(source.rows[0])
        raise UsageError(
            f'{data}: there is no column "{gold}".{nearest(gold, names)}'
            f" There are: {', '.join(names)}."
        )
    rows: dict[str, dict[str, Row]] = {}
    about: dict[str, tuple[str | None, ...]] = {}
    for index, row in enumerate(source.rows):
        label, verdict = _share(row.get(gold)), _share(row[judge])
        if label not in (None, 0.0, 1.0):
            raise UsageError(
                f'{source.at(index)}: "{gold}" must be 0, 1 or empty, got {row[gold]!r}.'
            )
        if verdict is None or math.isnan(verdict):
            raise UsageError(
                f'{source.at(index)}: "{judge}" must be a number from 0 to 1, got {row[judge]!r}.'
            )
        item, model = str(row["item"]), _text(row.get("model")) or _ONLY
        if model in rows.setdefault(item, {}):
            whose = "" if model == _ONLY else f' of model "{model}"'
            raise UsageError(f'{source.at(index)}: item "{item}"{whose} is there twice.')
        rows[item][model] = {"gold": label, "judge": verdict}
        group = tuple(_text(row.get(name)) for name in ("stratum", "cluster"))
        if about.setdefault(item, group) != group:
            raise UsageError(
                f'{source.at(index)}: item "{item}" has another stratum or cluster than before.'
            )
    return tuple(
        Unit(item, content=content, stratum=about[item][0], cluster=about[item][1])
        for item, content in rows.items()
    )


def _share(value: Any) -> float | None:
    """Return a number from 0 to 1, None for an empty cell, NaN for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    found = float(value) if isinstance(value, (int, float)) else math.nan
    return found if 0 <= found <= 1 else math.nan


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
