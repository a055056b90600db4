"""Preference pairs from a file, each with the labels that it got, and whose labels are read."""

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
from equipoise.kit.data.source import Source
from equipoise.methods.alignment._preference_columns import BETWEEN

_ONE = "the labels"

Labels = Mapping[str, Sequence[float]]
"""By source, how often the first and how often the second of a pair was preferred."""


@runtime_checkable
class ReadsPreferences(Protocol):
    """Picks the labels of a pair that are on trial from those of all sources."""

    def read(self, labels: Labels) -> tuple[float, float]: ...


@dataclass(frozen=True)
class _Recorded:
    source: str | None

    def read(self, labels: Labels) -> tuple[float, float]:
        if self.source is None:
            first, second = (sum(each) for each in zip(*labels.values(), strict=True))
            return first, second
        if self.source not in labels:
            raise UnitError(
                f'RecordedPreferences: no label of source "{self.source}" for this pair.'
                f"{nearest(self.source, labels)}",
                kind="no_row",
            )
        first, second = labels[self.source]
        return first, second


@dataclass(frozen=True)
class RecordedPreferences(Subject):
    """Labels that lie in a file: of one source, such as an annotator or a judge, or of all.

    Parameters
    ----------
    source
        Its name in the file's column of sources; None takes all labels together.

    Examples
    --------
    >>> RecordedPreferences().load(Rng(0)).read({"ann": [3, 1], "bob": [2, 2]})
    (5, 3)
    """

    provides = frozenset({ReadsPreferences})

    source: str | None = None

    def load(self, rng: Rng) -> ReadsPreferences:
        """Return what picks the labels."""
        return _Recorded(self.source)


@dataclass(frozen=True)
class PreferencePairs(Task):
    """Pairs of options from a file, with how often each of both was preferred.

    A unit is a pair, or a pair in a cluster. Columns: ``option_a``, ``option_b``, and either
    ``preferred`` (the name of one of both, ``option_a``, ``option_b`` or ``tie``) or
    ``probability`` (of preferring the first, 0 to 1). Optional: ``count``, for how many labels a
    row stands; ``source``, whose they are; ``cluster``, what is not independent. Rows of one pair
    are added up, in whichever order the two stand. There is no model on trial: an arm is a
    `RecordedPreferences`, and `PreferenceSensitivity` says what the labels are worth.

    Parameters
    ----------
    data
        Path of a CSV, JSON, JSONL or Parquet file, or ``hf:NAME_OR_FOLDER``. Results follow its
        content, not its place.

    Examples
    --------
    >>> unit = PreferencePairs.tiny().units(Rng(0))[0]
    >>> unit.id, unit.content["labels"]
    ('coffee | water', {'the labels': [396.0, 4.0]})
    """

    needs = frozenset({ReadsPreferences})
    scores = (
        ScoreSpec("preferred", None, 0, 1, share=True),
        ScoreSpec("labels", None, 0, unit="labels"),
        ScoreSpec("first", None),
        ScoreSpec("second", None),
    )

    data: str = setting()

    @classmethod
    def tiny(cls) -> PreferencePairs:
        """Return the example that lies beside this module."""
        return cls(str(Path(__file__).with_name("preference_pairs_example.csv")))

    def content(self) -> Any:
        """Return what identifies the data, wherever it lies."""
        return content_hash(self.data)

    def units(self, rng: Rng) -> list[Unit]:
        """Return the pairs in the order of their names; the stratum names the pair."""
        return list(_units(self.data, str(self.content())))

    def perform(self, subject: ReadsPreferences, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Look up each pair's labels; ``first`` and ``second`` number the options."""
        outcomes = []
        for unit in units:
            content: Any = unit.content
            try:
                won, lost = subject.read(content["labels"])
            except UnitError as error:
                outcomes.append(
                    Outcome(unit.id, status="error", error_kind=error.kind, error=str(error))
                )
                continue
            first, second = map(float, content["places"])
            scores = {
                "preferred": won / (won + lost), "labels": won + lost,
                "first": first, "second": second,
            }  # fmt: skip
            outcomes.append(Outcome(unit.id, scores))
        return outcomes

    def oracle(self) -> Any:
        """Return labels that always prefer the first option."""
        return _Always(1.0)

    def constant(self) -> Any:
        """Return labels that always prefer the second option."""
        return _Always(0.0)


@dataclass(frozen=True)
class _Always:
    share: float

    def read(self, labels: Labels) -> tuple[float, float]:
        return self.share, 1 - self.share


@functools.lru_cache(maxsize=4)
def _units(data: str, version: str) -> tuple[Unit, ...]:
    """Return the units of a file; ``version`` says when the file is another one."""
    source = load(data, columns=["option_a", "option_b"])
    names = {str(name) for row in source.rows for name in row}
    how = [each for each in ("preferred", "probability") if each in names]
    if len(how) != 1:
        wrong = "has both preferred and probability; keep one" if how else (
            "has no column preferred or probability" + nearest("probability", sorted(names))
        )  # fmt: skip
        raise UsageError(f"{data}: {wrong}.")
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for index, row in enumerate(source.rows):
        a, b = str(row["option_a"]), str(row["option_b"])
        if a == b:
            raise UsageError(f'{source.at(index)}: "{a}" is compared with itself.')
        if any(BETWEEN in each or not each.strip() for each in (a, b)):
            raise UsageError(f'{source.at(index)}: an option is empty or has "{BETWEEN}" in it.')
        share = _preferred(source, index, a, b) if how == ["preferred"] else _share(source, index)
        count = _count(source, index)
        if not count:
            continue
        if a > b:
            a, b, share = b, a, 1 - share
        cluster, whose = _text(row.get("cluster")), _text(row.get("source")) or _ONE
        pair = found.setdefault((a, b, cluster), {})
        labels = pair.setdefault(whose, [0.0, 0.0])
        won = share * count
        labels[0] += won
        labels[1] += count - won
    if not found:
        raise UsageError(f"{data}: every count is 0, so there is no label.")
    options = sorted({each for a, b, _ in found for each in (a, b)})
    place = {name: number for number, name in enumerate(options)}
    return tuple(
        Unit(
            BETWEEN.join(filter(None, key)),
            content={"places": [place[key[0]], place[key[1]]], "labels": labels},
            cluster=key[2] or None,
            stratum=BETWEEN.join(key[:2]),
        )
        for key, labels in sorted(found.items())
    )


def _preferred(source: Source, index: int, a: str, b: str) -> float:
    value = source.rows[index].get("preferred")
    known = {"tie": 0.5, "option_a": 1.0, "option_b": 0.0} | {a: 1.0, b: 0.0}
    if value is None or str(value) not in known:
        raise UsageError(
            f'{source.at(index)}: preferred must be "{a}", "{b}", option_a, option_b or tie,'
            f" got {str(value)[:60]!r}."
        )
    return known[str(value)]


def _share(source: Source, index: int) -> float:
    value: Any = source.rows[index].get("probability")
    if not _number(value) or not 0 <= value <= 1:
        raise UsageError(
            f"{source.at(index)}: probability must be from 0 to 1, got {str(value)[:60]!r}."
        )
    return float(value)


def _count(source: Source, index: int) -> float:
    value = source.rows[index].get("count", 1)
    if not _number(value) or not 0 <= value < 1e15:
        raise UsageError(
            f"{source.at(index)}: count must be a number of labels, at least 0,"
            f" got {str(value)[:60]!r}."
        )
    return float(value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()
