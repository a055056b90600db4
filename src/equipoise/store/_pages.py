"""What pages ask of a store, as methods of it; the questions themselves are in `_browse`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from equipoise.core import ScoreSpec
from equipoise.store import _browse as browse
from equipoise.store import _packing as packing
from equipoise.store import _read as read
from equipoise.store._browse import UnitScores
from equipoise.store._tables import runs, units


class Pages:
    """The part of a reader that lists runs and units, and gives columns to pages."""

    def _connected(self, write: bool = False) -> AbstractContextManager[Connection]:
        raise NotImplementedError

    def browse(self, **asked: Any) -> tuple[int, list[dict[str, Any]]]:
        """Return how many runs match, and one stretch of them with verdicts and costs.

        Parameters
        ----------
        asked
            ``search`` (in names, papers and questions), ``verdict``, ``status``, ``sort``,
            ``limit`` and ``offset``.
        """
        with self._connected() as connection:
            return browse.list_runs(connection, **asked)

    def unit_scores(
        self,
        arm: int,
        task: int,
        score: str,
        *,
        builds: int | None = None,
        repeats: int | None = None,
        units: int | None = None,
        below: int | None = None,
    ) -> UnitScores:
        """Return one score of an arm on a task as columns, a row a unit.

        ``below`` reads the units with a smaller number alone, which is quick where the
        number of builds and repeats is given and small.
        """
        with self._connected() as connection:
            which = read.size_of(arm, task, builds, repeats, units)
            return browse.unit_scores(connection, which, score, below=below)

    def units_like(
        self, task: int, *, stratum: str = "", cluster: str = "", name: str = ""
    ) -> np.ndarray:
        """Return the numbers of a task's units in a stratum or cluster, or with a part of an id."""
        with self._connected() as connection:
            return browse.units_like(connection, task, stratum=stratum, cluster=cluster, name=name)

    def units_named(self, task: int, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return some units of a task, in the order asked; numbers that are not there are left."""
        with self._connected() as connection:
            return browse.units_named(connection, task, numbers)

    def number_of(self, task: int, unit_id: str) -> int:
        """Return a unit's number; -1 where there is no such unit."""
        query = select(units.c.number).where(
            units.c.unit == packing.text(unit_id), units.c.task == task
        )
        with self._connected() as connection:
            found = connection.execute(query).scalar()
            return -1 if found is None else int(found)

    def strata(self, task: int) -> list[str]:
        """Return the names of a task's first strata."""
        with self._connected() as connection:
            return browse.strata(connection, task)

    def specs(self, task: int) -> tuple[ScoreSpec, ...]:
        """Return how the scores of a task are read."""
        with self._connected() as connection:
            return read.specs_of(connection, task)

    def texts(
        self, arm: int, task: int, size: int = 250, *, units: np.ndarray | None = None
    ) -> Iterator[Iterator[tuple[int, int, int, int, Any, str | None]]]:
        """Yield build, repeat, unit, attempt, output and error of outcomes, some at a time.

        ``units`` asks for the outcomes of some units alone.
        """
        with self._connected() as connection:
            yield from browse.texts(connection, arm, task, size, units)

    def keys(self, arm: int, task: int) -> np.ndarray:
        """Return build, repeat, unit and attempt of an arm's outcomes, ``(outcomes, 4)``."""
        with self._connected() as connection:
            return browse.keys(connection, arm, task)

    def count(self, arm: int, task: int) -> int:
        """Return how many outcomes an arm has on a task, every attempt counted."""
        with self._connected() as connection:
            return browse.count(connection, arm, task)

    def first_run(self) -> tuple[Any, ...] | None:
        """Return trial and start of the first run: what tells this store from another one."""
        query = select(runs.c.trial, runs.c.started).order_by(runs.c.id).limit(1)
        with self._connected() as connection:
            row = connection.execute(query).first()
            return None if row is None else tuple(row)

    def written(self) -> int:
        """Return how many outcomes all runs have added: it moves whenever there are new ones."""
        with self._connected() as connection:
            return int(connection.execute(select(func.sum(runs.c.written))).scalar() or 0)
