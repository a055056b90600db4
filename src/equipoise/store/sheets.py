"""Plain files of outcomes as columns: what can be weighed without a store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.core import EXCUSED, Outcomes, ScoreSpec, UsageError, nearest
from equipoise.store._files import (
    SUFFIXES,
    File,
    check_rows,
    find_scores,
    read_file,
    shown,
    without_collector,
)

__all__ = ["SUFFIXES", "Sheet", "cluster_codes", "read_sheet", "score_specs"]

_MOST = {"build": 1 << 10, "repeat": 1 << 14}  # as many as pairing can tell apart


@dataclass(frozen=True)
class Sheet:
    """A file whose every row was checked.

    Parameters
    ----------
    file
        What was read.
    columns
        Those of the guide on importing outcomes, absent ones filled with None.
    task
        The task of rows that name none.
    """

    file: File
    columns: Mapping[str, list[Any]]
    task: str

    @cached_property
    def cells(self) -> dict[tuple[str, str], np.ndarray]:
        """Row numbers of each arm on each task."""
        found: dict[tuple[str, str], list[int]] = {}
        pairs = zip(self.columns["arm"], self.columns["task"], strict=True)
        for row, pair in enumerate(pairs):
            found.setdefault(pair, []).append(row)
        return {pair: np.array(rows) for pair, rows in found.items()}

    @cached_property
    def _numbered(self) -> tuple[np.ndarray, dict[str, dict[str, int]]]:
        """Return each row's unit as a number in its task, and what the numbers stand for."""
        known: dict[str, dict[str, int]] = {}
        numbers = np.empty(len(self.file.lines), np.int64)
        for row, (task, unit) in enumerate(
            zip(self.columns["task"], self.columns["unit"], strict=True)
        ):
            mine = known.get(task)
            if mine is None:
                mine = known[task] = {}
            numbers[row] = mine.setdefault(unit, len(mine))
        return numbers, known

    def units(self, task: str) -> list[str]:
        """Return the ids of a task's units; their places are the numbers of `outcomes`."""
        return list(self._numbered[1][task])

    def clusters(self, task: str) -> list[str | None]:
        """Return the cluster of each of a task's units."""
        return self._clusters[task]

    @cached_property
    def _clusters(self) -> dict[str, list[str | None]]:
        numbers, known = self._numbered
        found: dict[str, list[str | None]] = {t: [None] * len(u) for t, u in known.items()}
        if "cluster" not in self.file.columns:
            return found
        for row, (task, number, cluster) in enumerate(
            zip(self.columns["task"], numbers.tolist(), self.columns["cluster"], strict=True)
        ):
            if cluster is None:
                continue
            mine = found[task]
            if mine[number] not in (None, cluster):
                self.file.wrong(
                    row,
                    f'unit "{self.columns["unit"][row]}" has cluster {shown(cluster)} here'
                    f" and {shown(mine[number])} elsewhere",
                )
            mine[number] = cluster
        return found

    @cached_property
    def _codes(self) -> dict[str, np.ndarray]:
        """Return cluster codes by unit number; a unit without a cluster is one of its own."""
        return {
            task: cluster_codes(names)
            for task, names in self._clusters.items()
            if any(name is not None for name in names)
        }

    def outcomes(self, arm: str, task: str, specs: Sequence[ScoreSpec]) -> Outcomes:
        """Return an arm on a task as columns, ordered by unit, build and repeat.

        A file without a column ``repeat`` may have a unit several times: they are
        numbered as they come.

        Raises
        ------
        UsageError
            If a unit, build and repeat come twice.
        """
        rows = self.cells[arm, task]
        unit = self._numbered[0][rows]
        codes = self._codes.get(task)
        zeros = np.zeros(len(rows), np.int64)
        build, repeat = (
            self._places[name][rows] if name in self._places else zeros for name in _MOST
        )
        order = np.lexsort((repeat, build, unit))
        rows, unit, build, repeat = rows[order], unit[order], build[order], repeat[order]
        again = (unit[1:] == unit[:-1]) & (build[1:] == build[:-1])
        if "repeat" in self.file.columns:
            twice = np.flatnonzero(again & (repeat[1:] == repeat[:-1]))
            if len(twice):
                self._refuse(rows[twice[0]], rows[twice[0] + 1], build[twice[0]], repeat[twice[0]])
        elif again.any():
            starts = np.flatnonzero(~np.append(False, again))
            repeat = np.arange(len(rows)) - np.repeat(starts, np.diff([*starts, len(rows)]))
            if repeat.max() >= _MOST["repeat"]:
                self.file.wrong(
                    rows[repeat.argmax()],
                    f"this unit comes {_MOST['repeat']:,} times and more; is the column unit right",
                )
        failed, excused = (each[rows] for each in self._ends)
        return Outcomes(
            unit=unit,
            scores={
                each.name: self._scores[each.name][rows]
                for each in specs
                if each.name in self._scores
            },
            failed=failed,
            excused=excused if excused.any() else None,
            build=build,
            repeat=repeat,
            cluster=None if codes is None else codes[unit],
            specs=tuple(specs),
            arm=arm,
            task=task,
        )

    @cached_property
    def _scores(self) -> dict[str, np.ndarray]:
        return {name: np.array(values) for name, values in self.file.scores.items()}

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows failed, and which of them without blame."""
        failed = np.array([each == "error" for each in self.columns["status"]])
        if not failed.any():
            return failed, failed
        return failed, failed & np.array([each in EXCUSED for each in self.columns["error_kind"]])

    @cached_property
    def _places(self) -> dict[str, np.ndarray]:
        """Return the builds and repeats, where the file has them."""
        found = {}
        for name, most in _MOST.items():
            if name in self.file.columns:
                given = [value or 0 for value in self.columns[name]]
                largest = max(given)
                if largest >= most:
                    self.file.wrong(
                        given.index(largest), f"{name} must be below {most:,}, got {largest}"
                    )
                found[name] = np.array(given, np.int64)
        return found

    def repeats(self) -> int:
        """Return how many rows are a unit's second or later, in a file that numbers none."""
        if "repeat" in self.file.columns:
            return 0
        keys = zip(*(self.columns[name] for name in ("arm", "task", "unit", "build")), strict=True)
        return len(self.file.lines) - len(set(keys))

    def row(self, arm: str, task: str, unit: str) -> dict[str, Any]:
        """Return a unit's first row."""
        rows = self.cells[arm, task]
        (first, *_) = rows[self._numbered[0][rows] == self._numbered[1][task][unit]]
        return {name: values[first] for name, values in self.columns.items()}

    def costs(self, arm: str, task: str) -> dict[str, float]:
        """Return outcomes, and the tokens, dollars and seconds that they cost."""
        rows = self.cells[arm, task].tolist()
        found: dict[str, float] = {"outcomes": len(rows)}
        for name in ("input_tokens", "output_tokens", "dollars", "seconds"):
            given = self.columns[name]
            values = (given[row] for row in rows)
            found[name] = sum(v for v in values if v is not None and v == v)
        return found

    def _refuse(self, first: int, row: int, build: int, repeat: int) -> None:
        first, row = sorted((int(first), int(row)))
        arm, task, unit = (self.columns[name][row] for name in ("arm", "task", "unit"))
        self.file.wrong(
            row,
            f'unit "{unit}" of arm {arm} on {task} (build {build}, repeat {repeat}) was given'
            f" before, in {self.file.word} {self.file.lines[first]}; tell repeats apart by the"
            " column repeat",
        )


def cluster_codes(names: Sequence[str | None]) -> np.ndarray:
    """Return clusters as integers; what has no cluster is one of its own.

    Examples
    --------
    >>> cluster_codes(["a", None, "a", "b"])
    array([0, 5, 0, 1])
    """
    known: dict[str, int] = {}
    return np.array(
        [
            len(names) + place if name is None else known.setdefault(name, len(known))
            for place, name in enumerate(names)
        ],
        np.int64,
    )


def read_sheet(path: Path, task: str = "imported") -> Sheet:
    """Read a file of outcomes and check every row.

    Parameters
    ----------
    path
        JSONL, CSV, TSV or Parquet.
    task
        The task of rows that name none.

    Raises
    ------
    UsageError
        One sentence with file and line.
    """
    with without_collector():
        file = read_file(path)
        find_scores(file)
        return Sheet(file, check_rows(file, task), task)


def score_specs(
    files: Sequence[File], task: str, lower_better: Sequence[str], bounds: Sequence[str]
) -> dict[str, list[ScoreSpec]]:
    """Return how each task's scores are read, in the order of the columns.

    Parameters
    ----------
    files
        Whose scores were found.
    task
        The task of rows that name none.
    lower_better
        Scores of which less is better.
    bounds
        ``NAME:LOW:HIGH``. A score that is 0 or 1 everywhere has these bounds by itself.
    """
    names = list(dict.fromkeys(name for file in files for name in file.scores))
    limits = _limits(bounds)
    for name in (*lower_better, *limits):
        if name not in names:
            raise UsageError(f'No score "{name}".{nearest(name, names)} All: {", ".join(names)}.')
    binary: dict[str, dict[str, bool]] = {}
    for file in files:
        labels = [str(each) for each in file.columns.get("task", [task] * len(file.lines))]
        found: dict[str, int] = {}
        code = np.array([found.setdefault(each, len(found)) for each in labels])
        for name, given in file.scores.items():
            values = np.array(given)
            there = ~np.isnan(values)
            if name in limits:
                low, high = limits[name]
                for row in np.flatnonzero((values < low) | (values > high)).tolist():
                    file.wrong(row, f"{name} is {values[row]:g}, outside its bounds")
            other = np.bincount(code[there & (values != 0) & (values != 1)], minlength=len(found))
            counts = np.bincount(code[there], minlength=len(found))
            for label, place in found.items():
                if counts[place]:
                    mine = binary.setdefault(label, {})
                    mine[name] = mine.get(name, True) and not other[place]
    return {
        label: [
            ScoreSpec(
                name,
                name not in lower_better,
                *limits.get(name, (0.0, 1.0) if mine[name] else (None, None)),
            )
            for name in names
            if name in mine
        ]
        for label, mine in binary.items()
    }


def _limits(bounds: Sequence[str]) -> dict[str, tuple[float, float]]:
    limits: dict[str, tuple[float, float]] = {}
    for text in bounds:
        try:
            name, low, high = text.rsplit(":", 2)
            limits[name] = (float(low), float(high))
        except ValueError:
            raise UsageError(f'--bounds must be NAME:LOW:HIGH, got "{text}".') from None
        if not -math.inf < limits[name][0] < limits[name][1] < math.inf:
            raise UsageError(
                f"--bounds {text}: the lower bound must be below the upper one, both finite."
            )
    return limits
