"""The store as the pages read it: opened for reading, its columns kept while they are in use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.core import Outcomes, UsageError, nearest
from equipoise.store import Store
from equipoise.viewer.grid import Grid, cells_of, tasks_of
from equipoise.viewer.search import Search

Key = tuple[Any, ...]

KEPT_BYTES = 120_000_000
"""Most that columns may take in memory; the oldest go first."""


class Library:
    """A store whose columns are read once while nothing is added to them.

    It has everything that a store opened for reading has.

    Parameters
    ----------
    place
        The store's path or address.
    """

    def __init__(self, place: str | Path) -> None:
        self.store = Store.open(place, readonly=True)
        self.search = Search(self.store, place)
        self._kept: OrderedDict[Key, tuple[int, Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[Key, threading.Lock] = {}

    def close(self) -> None:
        """Let go of the store."""
        self.search.close()
        self.store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def outcomes(
        self,
        arm: int,
        task: int,
        *,
        builds: int | None = None,
        repeats: int | None = None,
        units: int | None = None,
        score_names: Sequence[str] | None = None,
    ) -> Outcomes:
        """Return what `Store.outcomes` does, from memory where nothing was added since."""
        size = {"builds": builds, "repeats": repeats, "units": units}
        names = None if score_names is None else tuple(score_names)
        found: Outcomes = self._once(
            ("outcomes", arm, task, *size.values(), names),
            lambda: self.store.outcomes(arm, task, **size, score_names=names),
            _size,
        )
        return found

    def grid(self, run: Mapping[str, Any], task: str, score: str) -> Grid:
        """Return a score of every unit and arm of a run's task."""
        cells = cells_of(run, task)
        if not cells:
            raise UsageError(f'No task "{task}" in run {run["id"]}.{nearest(task, tasks_of(run))}')
        specs = self.store.specs(next(iter(cells.values()))["task"])
        spec = next((each for each in specs if each.name == score), None)
        if spec is None:
            names = [each.name for each in specs]
            raise UsageError(f'No score "{score}" in task {task}.{nearest(score, names)}')
        found: Grid = self._once(
            ("grid", run["id"], task, score),
            lambda: Grid.read(self.store, cells, spec),
            lambda grid: grid.nbytes,
        )
        return found

    def _once(self, key: Key, read: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:  # two pages that open at once read once
            written = self.store.written()
            with self._lock:
                kept = self._kept.get(key)
                if kept is not None and kept[0] == written:
                    self._kept.move_to_end(key)
                    return kept[1]
            found = read()
            with self._lock:
                self._kept[key] = (written, found, size(found))
                while len(self._kept) > 1 and sum(n for *_, n in self._kept.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
            return found


def _size(outcomes: Outcomes) -> int:
    columns = [outcomes.unit, outcomes.failed, outcomes.build, outcomes.repeat]
    columns += [each for each in (outcomes.cluster, outcomes.stratum) if each is not None]
    return sum(each.nbytes for each in (*columns, *outcomes.scores.values()))
