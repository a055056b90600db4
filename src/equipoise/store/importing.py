"""Takes outcomes from plain files into a store, as a run.

The columns are documented in the guide, under importing outcomes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from equipoise.core import Outcome, ScoreSpec, Unit, Usage, UsageError
from equipoise.store._files import (
    File,
    check_rows,
    find_scores,
    read_file,
    shown,
    without_collector,
)
from equipoise.store.sheets import score_specs

_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class _Row:
    """Where an outcome belongs and what it is."""

    file: File
    index: int
    cell: tuple[str, str, int, int]  # arm, task, build, repeat
    unit: Unit
    outcome: Outcome


@without_collector()
def import_files(
    files: Sequence[Path],
    place: str | Path,
    *,
    trial: str | None = None,
    task: str = "imported",
    lower_better: Sequence[str] = (),
    bounds: Sequence[str] = (),
) -> dict[str, Any]:
    """Read files, check every row, and add them to a store as one finished run.

    Parameters
    ----------
    files
        JSONL, CSV, TSV or Parquet, told by their names' endings.
    place
        The store's path or address.
    trial
        Name of the run's trial; the first file's name by default.
    task
        The task of rows that name none.
    lower_better
        Scores of which less is better.
    bounds
        ``NAME:LOW:HIGH``. A score that is 0 or 1 everywhere has these bounds by itself.

    Returns
    -------
    dict
        ``run``, ``trial``, ``outcomes`` (new ones), ``arms``, ``tasks``,
        ``scores`` and ``ignored`` (columns left out).

    Raises
    ------
    UsageError
        One sentence with file and line; the store is untouched then.
    """
    read = [read_file(path) for path in files]
    for each in read:
        find_scores(each)
    rows = [row for each in read for row in _rows(each, task)]
    _check_keys(rows)
    units = _units(rows)
    specs = score_specs(read, task, lower_better, bounds)
    content = _hash(files)
    name = trial or files[0].stem

    from equipoise.store import Store  # SQLAlchemy loads once the files are found good

    with Store.open(place) as store:
        about = {"imported": [each.path.name for each in read], "sha256": content}
        run = store.begin_run(name, "", about)
        try:
            added = _keep(store, run, rows, units, specs, content)
        except BaseException:
            store.end_run(run, "failed")
            raise
        store.end_run(run, "finished")
    return {
        "run": run,
        "trial": name,
        "outcomes": added,
        "arms": list(dict.fromkeys(row.cell[0] for row in rows)),
        "tasks": list(units),
        "scores": list(dict.fromkeys(spec.name for each in specs.values() for spec in each)),
        "ignored": list(dict.fromkeys(name for each in read for name in each.ignored)),
    }


def _keep(
    store: Any,
    run: int,
    rows: list[_Row],
    units: dict[str, dict[str, Unit]],
    specs: dict[str, list[ScoreSpec]],
    content: str,
) -> int:
    tasks: dict[str, int] = {}
    numbers: dict[str, dict[str, int]] = {}
    for label, found in units.items():
        # Imports of one task share it, so that arms from two files can be
        # paired; another direction or range of a score makes another task.
        about = {"imported": label, "scores": [asdict(each) for each in specs[label]]}
        tasks[label] = store.task(_identity(about), label, about, specs[label])
        try:
            given = store.add_units(tasks[label], list(found.values())).tolist()
        except UsageError as error:
            raise UsageError(f"{error} Or give this task another name with --task.") from error
        numbers[label] = dict(zip(found, given, strict=True))
    cells: dict[tuple[str, str, int, int], list[tuple[int, Outcome]]] = {}
    for row in rows:
        pair = (numbers[row.cell[1]][row.outcome.unit], row.outcome)
        cells.setdefault(row.cell, []).append(pair)
    added = 0
    for (arm_label, task_label, build, repeat), pairs in cells.items():
        about = {"imported": arm_label, "sha256": content}
        arm, task = store.arm(_identity(about), arm_label, about), tasks[task_label]
        store.cover(run, arm, task, arm_label=arm_label, task_label=task_label)
        pairs.sort(key=lambda pair: pair[0])
        for start in range(0, len(pairs), _AT_ONCE):
            part = pairs[start : start + _AT_ONCE]
            added += store.add(run, arm, task, build, part, repeat)
    return added


def _identity(about: Any) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _hash(files: Sequence[Path]) -> str:
    return hashlib.sha256(
        b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)
    ).hexdigest()


def _rows(file: File, task: str) -> list[_Row]:
    columns = check_rows(file, task)
    scores = list(file.scores.items())
    found = []
    for i, (arm, label, unit, cluster, stratum, status, kind, error, repeat, build, tokens_in,
            tokens_out, seed, dollars, seconds, content, target, output) in enumerate(
        zip(*columns.values(), strict=True)
    ):  # fmt: skip
        mine = {name: values[i] for name, values in scores if values[i] == values[i]}
        outcome = Outcome(
            unit,
            mine,
            status,
            output,
            error_kind=kind,
            error=error,
            usage=Usage(tokens_in or 0, tokens_out or 0, dollars if dollars and dollars > 0 else 0),
            seconds=None if seconds != seconds else seconds,
            seed=seed,
        )
        cell = (arm, label, build or 0, repeat or 0)
        found.append(_Row(file, i, cell, Unit(unit, content, target, cluster, stratum), outcome))
    return found


def _check_keys(rows: list[_Row]) -> None:
    seen: dict[tuple[Any, ...], _Row] = {}
    for row in rows:
        first = seen.setdefault((row.cell, row.outcome.unit), row)
        if first is not row:
            arm, task, build, repeat = row.cell
            where = f"{first.file.word} {first.file.lines[first.index]}"
            if first.file is not row.file:
                where += f" of {first.file.path}"
            row.file.wrong(
                row.index,
                f'unit "{row.outcome.unit}" of arm {arm} on {task} (build {build}, repeat {repeat})'
                f" was given before, in {where}; tell repeats apart by a column repeat",
            )


def _units(rows: list[_Row]) -> dict[str, dict[str, Unit]]:
    """Return the units of each task; what rows say about one must agree."""
    found: dict[str, dict[str, Unit]] = {}
    for row in rows:
        mine = found.setdefault(row.cell[1], {})
        first = mine.setdefault(row.unit.id, row.unit)
        if first is row.unit or first == row.unit:
            continue
        merged: dict[str, Any] = {}
        for name in ("content", "target", "cluster", "stratum"):
            one, other = getattr(first, name), getattr(row.unit, name)
            if one is not None and other is not None and one != other:
                row.file.wrong(
                    row.index,
                    f'unit "{row.unit.id}" has {name} {shown(other)} here'
                    f" and {shown(one)} elsewhere",
                )
            merged[name] = other if one is None else one
        mine[row.unit.id] = Unit(row.unit.id, **merged)
    return found
