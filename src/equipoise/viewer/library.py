"""The store as the pages read it: opened for reading, its columns kept while they are in use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equipoise.core import Outcomes
from equipoise.store import Store

KEPT_BYTES = 120_000_000
"""Most that columns may take in memory; the oldest go first."""


class Library:
    """A store whose columns are read once while nothing is added to them.

    It has everything a store opened for reading has.

    Parameters
    ----------
    place
        The store's path or address.
    """

    def __init__(self, place: str | Path) -> None:
        self.store = Store.open(place, readonly=True)
        self._columns: OrderedDict[tuple[Any, ...], tuple[int, Outcomes]] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[tuple[Any, ...], threading.Lock] = {}

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
        names = None if score_names is None else tuple(score_names)
        key = (arm, task, builds, repeats, units, names)
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:  # two pages that open at once read once
            written = self.store.written()
            with self._lock:
                kept = self._columns.get(key)
                if kept is not None and kept[0] == written:
                    self._columns.move_to_end(key)
                    return kept[1]
            found = self.store.outcomes(
                arm, task, builds=builds, repeats=repeats, units=units, score_names=names
            )
            with self._lock:
                self._columns[key] = (written, found)
                while len(self._columns) > 1 and self._bytes() > KEPT_BYTES:
                    self._columns.popitem(last=False)
            return found

    def _bytes(self) -> int:
        return sum(_size(outcomes) for _, outcomes in self._columns.values())


def _size(outcomes: Outcomes) -> int:
    columns = [outcomes.unit, outcomes.failed, outcomes.build, outcomes.repeat]
    columns += [each for each in (outcomes.cluster, outcomes.stratum) if each is not None]
    return sum(each.nbytes for each in (*columns, *outcomes.scores.values()))
