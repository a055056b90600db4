"""The store as the pages read it: opened for reading, its columns kept while they are in use."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.core import EquipoiseError, Outcomes, ScoreSpec, UsageError, nearest
from equipoise.store import Store
from equipoise.viewer.grid import Grid, cells_of, tasks_of
from equipoise.viewer.search import Search

Key = tuple[Any, ...]

KEPT_BYTES = 64_000_000
"""Most that columns may take in memory, those unused for longest go first. What is larger by
itself is kept alone: to read it anew for every page would take the same memory again and again."""

AHEAD = 2
"""Grids that are read in the background at once."""

PATIENCE = 5.0
"""Seconds that a page waits for a process that holds the whole store."""


class Library:
    """A store whose columns are read once while nothing is added to them.

    It has everything that a store opened for reading has.

    Parameters
    ----------
    place
        The store's path or address.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = place
        self._mark = _mark(place)
        self.store = Store.open(place, readonly=True, timeout=PATIENCE)
        self.search = Search(self.store, place)
        self._kept: OrderedDict[Key, tuple[Any, Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[Key, threading.Lock] = {}
        self._ahead: dict[Key, threading.Thread] = {}

    def close(self) -> None:
        """Let go of the store, when what is read ahead has been read."""
        for thread in list(self._ahead.values()):
            thread.join()
        self.search.close()
        self.store.close()

    def refresh(self) -> None:
        """Open the store anew where another file has taken its place.

        Raises
        ------
        UsageError, RunError
            If what lies there now is no store; the next call looks again.
        """
        mark = _mark(self.place)
        if mark == self._mark:
            return
        with self._lock:
            if mark == self._mark:  # another page was quicker
                return
            fresh = Store.open(self.place, readonly=True, timeout=PATIENCE)
            before = self.store, self.search
            self.store, self.search = fresh, Search(fresh, self.place)
            self._kept.clear()
            self._mark = mark
        for each in reversed(before):
            each.close()

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
        cells, spec = self._asked(run, task, score)
        found: Grid = self._once(
            ("grid", run["id"], task, score),
            lambda: Grid.read(self.store, cells, spec),
            lambda grid: grid.nbytes,
        )
        return found

    def grid_of_first(self, run: Mapping[str, Any], task: str, score: str, units: int) -> Grid:
        """Return a grid of the first units alone, which is read at once and not kept."""
        return Grid.read(self.store, *self._asked(run, task, score), below=units)

    def kept_grid(self, run: Mapping[str, Any], task: str, score: str) -> Grid | None:
        """Return the grid if it is in memory and nothing was added since."""
        version = self.version()
        with self._lock:
            kept = self._kept.get(("grid", run["id"], task, score))
        return kept[1] if kept is not None and kept[0] == version else None

    def begin_grid(self, run: Mapping[str, Any], task: str, score: str) -> None:
        """Read the grid in the background, unless that is being done or much else is."""
        self._asked(run, task, score)  # what is not there is said now
        key = ("grid", run["id"], task, score)
        with self._lock:
            self._ahead = {k: each for k, each in self._ahead.items() if each.is_alive()}
            if key in self._ahead or len(self._ahead) >= AHEAD:
                return
            thread = threading.Thread(target=self._read_ahead, args=(run, task, score))
            self._ahead[key] = thread
            thread.start()

    def read_ahead(self, run: Mapping[str, Any]) -> None:
        """Begin to read the grid that a run's units are first shown with."""
        for task in tasks_of(run)[:1]:
            number = next(iter(cells_of(run, task).values()))["task"]
            for spec in self.store.specs(number)[:1]:
                if self.kept_grid(run, task, spec.name) is None:
                    self.begin_grid(run, task, spec.name)

    def once(self, key: Key, make: Callable[[], Any]) -> Any:
        """Return what a page shows, made once while nothing is added to the store.

        It is counted as a megabyte: pages are of that size at most.
        """
        return self._once(key, make, lambda _: 1_000_000)

    def version(self) -> tuple[Any, ...]:
        """Return what changes whenever outcomes are added, or the store is another one."""
        return self.store.written(), self.store.first_run()

    def strata(self, task: int) -> list[str]:
        """Return the names of a task's first strata."""
        found: list[str] = self._once(
            ("strata", task), lambda: self.store.strata(task), lambda names: 100 * len(names)
        )
        return found

    def _read_ahead(self, run: Mapping[str, Any], task: str, score: str) -> None:
        with contextlib.suppress(EquipoiseError):  # the page that needs it will say
            self.grid(run, task, score)

    def _asked(
        self, run: Mapping[str, Any], task: str, score: str
    ) -> tuple[Mapping[str, Mapping[str, Any]], ScoreSpec]:
        """Return the cells of a task and how a score of it is read."""
        cells = cells_of(run, task)
        if not cells:
            raise UsageError(f'No task "{task}" in run {run["id"]}.{nearest(task, tasks_of(run))}')
        specs = self.store.specs(next(iter(cells.values()))["task"])
        spec = next((each for each in specs if each.name == score), None)
        if spec is None:
            names = [each.name for each in specs]
            raise UsageError(f'No score "{score}" in task {task}.{nearest(score, names)}')
        return cells, spec

    def _once(self, key: Key, read: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:  # pages that open at once read once
            written = self.version()
            with self._lock:
                kept = self._kept.get(key)
                if kept is not None and kept[0] == written:
                    self._kept.move_to_end(key)
                    return kept[1]
                self._kept.pop(key, None)  # what is old need not be held while it is read anew
            found = read()
            self._keep(key, written, found, size(found))
            return found

    def _keep(self, key: Key, written: Any, found: Any, size: int) -> None:
        with self._lock:
            self._kept[key] = (written, found, size)
            while len(self._kept) > 1 and sum(n for *_, n in self._kept.values()) > KEPT_BYTES:
                gone, _ = self._kept.popitem(last=False)
                self._reading.pop(gone, None)


def _mark(place: str | Path) -> tuple[int, int] | None:
    """Return what tells a file from another one under its name; None for a database."""
    if "://" in str(place):
        return None
    try:
        found = Path(place).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(outcomes: Outcomes) -> int:
    columns = [outcomes.unit, outcomes.failed, outcomes.build, outcomes.repeat]
    maybe = (outcomes.cluster, outcomes.stratum, outcomes.excused)
    columns += [each for each in maybe if each is not None]
    return sum(each.nbytes for each in (*columns, *outcomes.scores.values()))
