"""What a comparison is named by: runs of a store, and files of outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise.cli._shared import open_store

LowerBetterOption = Annotated[
    list[str] | None, typer.Option(help="Of files: a score of which less is better.")
]
BoundsOption = Annotated[
    list[str] | None, typer.Option(help="Of files: bounds of a score, as NAME:LOW:HIGH.")
]


class Relation(StrEnum):
    """What may be claimed of one side against another."""

    beats = "beats"
    no_worse_than = "no_worse_than"
    matches = "matches"


@contextmanager
def open_sides(
    first: str,
    second: str | None,
    store: str | None,
    lower_better: Sequence[str] = (),
    bounds: Sequence[str] = (),
) -> Iterator[tuple[Any, Any]]:
    """Yield both sides; with one name, the same side twice.

    Files are read first, so that the scores of two are read alike. A file that
    names no task takes the other side's where that has one only.
    """
    from equipoise.core.errors import UsageError
    from equipoise.store.sheets import read_sheet, score_specs
    from equipoise.trial.sides import file_side, run_side

    names = list(dict.fromkeys(each for each in (first, second) if each is not None))
    files = [each for each in names if _is_file(each)]
    sides: dict[str, Any] = {}
    with ExitStack() as stack:
        if len(files) < len(names):
            opened = stack.enter_context(open_store(store))
            runs: dict[int, Any] = {}  # two names may stand for one run
            for each in names:
                if each not in files:
                    run = opened.run(each)
                    sides[each] = runs.setdefault(run["id"], run_side(opened, run))
        tasks = {task for side in sides.values() for task in side.tasks}
        task = tasks.pop() if len(tasks) == 1 else "imported"
        if files:
            sheets = {each: read_sheet(Path(each), task) for each in files}
            specs = score_specs([each.file for each in sheets.values()], task, lower_better, bounds)
            sides |= {each: file_side(sheet, specs) for each, sheet in sheets.items()}
        elif lower_better or bounds:
            raise UsageError("--lower-better and --bounds are for files; runs have said it.")
        yield sides[first], sides[first if second is None else second]


def _is_file(name: str) -> bool:
    from equipoise.store.sheets import SUFFIXES

    return Path(name).suffix.lower() in SUFFIXES or Path(name).is_file()
