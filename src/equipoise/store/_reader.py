"""Reading a store; writing is in `_store`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np
from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from equipoise.core import Outcomes, RunError, UsageError
from equipoise.store import _blobs as blobs_
from equipoise.store import _compare as compare
from equipoise.store import _dialect as dialect
from equipoise.store import _packing as packing
from equipoise.store import _read as read
from equipoise.store._costs import read_costs
from equipoise.store._pages import Pages
from equipoise.store._tables import arms, blobs, outcomes, runs, tasks, units


class Reader(Pages):
    """What can be asked of a store."""

    def __init__(self, engine: Engine, place: str) -> None:
        self.place = place
        self._engine = engine

    def close(self) -> None:
        """Let go of the file; the last one to do so tidies its log away."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def done(
        self,
        arm: int,
        task: int,
        build: int,
        numbers: np.ndarray,
        repeats: int,
        *,
        include_errors: bool = False,
    ) -> set[tuple[int, int]]:
        """Return the (unit number, repeat) pairs that need not be run again.

        For many units prefer `done_mask`, which holds a byte for each.
        """
        mask = self.done_mask(arm, task, build, numbers, repeats, include_errors=include_errors)
        where, which = np.nonzero(mask)
        pairs = zip(np.asarray(numbers)[where].tolist(), which.tolist(), strict=True)
        return set(pairs)

    def done_mask(
        self,
        arm: int,
        task: int,
        build: int,
        numbers: np.ndarray,
        repeats: int,
        *,
        include_errors: bool = False,
    ) -> np.ndarray:
        """Return which units and repeats need not be run again, shape ``(units, repeats)``.

        Units that ended in an error are to be tried again, unless
        ``include_errors`` counts them as done.
        """
        wanted = np.asarray(numbers, np.int64)
        with self._connected() as connection:
            return read.read_done(connection, arm, task, build, wanted, repeats, include_errors)

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
        """Return one arm on one task as columns, ordered by unit, build and repeat.

        Only the last attempt at each unit counts.

        Parameters
        ----------
        arm, task
            Numbers.
        builds, repeats
            The first so many of each; None for all.
        units
            The first so many unit numbers; None for all.
        score_names
            Scores to read; None for all.
        """
        with self._connected() as connection:
            return read.read_outcomes(
                connection,
                arm,
                task,
                builds=builds,
                repeats=repeats,
                unit_count=units,
                score_names=score_names,
            )

    def rows(
        self,
        run: int | None = None,
        *,
        arm: int | None = None,
        task: int | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Return outcomes for viewing, without transcripts.

        Parameters
        ----------
        run, arm, task
            Numbers that the outcomes must belong to.
        where
            Column to value, or to a pair of comparison and value:
            ``{"status": "error", "score.correct": ("<", 0.5)}``. Columns are
            status, build, repeat, error_kind, unit, cluster, stratum, split
            and ``score.NAME``.
        limit, offset
            Which stretch of the rows.
        """
        with self._connected() as connection:
            query = read.rows_query(run, arm, task).offset(offset)
            query = query.where(*read.conditions(connection, where or {}))
            query = query if limit is None else query.limit(limit)
            return [read.as_row(row) for row in connection.execute(query)]

    def stream(self, run: int) -> Iterator[list[dict[str, Any]]]:
        """Yield all outcomes that a run is about, a few thousand at a time."""
        with self._connected() as connection:
            for rows in read.chunks(connection, read.rows_query(run, None, None), 2_000):
                yield [read.as_row(row) for row in rows]

    def unit(
        self,
        arm: int,
        task: int,
        unit_id: str,
        repeat: int = 0,
        build: int = 0,
        *,
        largest: int | None = None,
    ) -> dict[str, Any]:
        """Return everything about one unit in one arm: transcript, artifacts, past attempts.

        Of artifacts that take more than ``largest`` bytes in the store the first bytes come
        alone, as `Large`.

        Raises
        ------
        UsageError
            If there is no such unit, or no outcome for it yet.
        """
        name = packing.text(unit_id)
        c = outcomes.c
        with self._connected() as connection:
            query = read.rows_query(None, arm, task, c.transcript, c.artifacts).where(
                units.c.unit == name, units.c.task == task, c.repeat == repeat, c.build == build
            )
            values = connection.execute(query).first()
            if values is None:
                raise self._no_outcome(connection, arm, task, name, repeat, build)
            row = read.as_row(values)
            row["transcript"] = blobs_.read_transcript(connection, values[-2])
            row["artifacts"] = blobs_.read_artifacts(connection, values[-1], largest)
            number = select(units.c.number).where(units.c.task == task, units.c.unit == name)
            past = select(c.attempt, c.status, c.error_kind, c.error, c.run).where(
                c.arm == arm,
                c.task == task,
                c.build == build,
                c.repeat == repeat,
                c.unit == number.scalar_subquery(),
            )
            tried = connection.execute(past.order_by(c.attempt)).mappings()
            row["attempts"] = [dict(each) for each in tried]
        return row

    def costs(
        self,
        arm: int,
        task: int,
        *,
        builds: int | None = None,
        repeats: int | None = None,
        units: int | None = None,
        numbers: np.ndarray | None = None,
    ) -> dict[str, Any]:
        """Return units, outcomes, errors, attempts, tokens, dollars and seconds.

        ``errors`` counts outcomes whose last attempt failed; the rest sums over all
        attempts, since each was paid for. ``numbers`` asks for these units only.
        """
        with self._connected() as connection:
            which = read.size_of(arm, task, builds, repeats, units)
            return read_costs(connection, which, numbers)

    def find(self, arm: str, task: str) -> tuple[int | None, int | None]:
        """Return the numbers of an arm and a task by identity, None for what is not here."""
        with self._connected() as connection:
            one, two = (
                connection.execute(select(table.c.id).where(table.c.identity == name)).scalar()
                for table, name in ((arms, arm), (tasks, task))
            )
        return one, two

    def summary(self, run: int | str) -> list[dict[str, Any]]:
        """Return, for each arm and task of a run, its costs and the mean of each score."""
        found = []
        with self._connected() as connection:
            for each in read.read_run(connection, run)["covers"]:
                which = read.size_of(
                    each["arm"], each["task"], each["builds"], each["repeats"], each["units"]
                )
                names = [spec.name for spec in read.specs_of(connection, each["task"])]
                found.append(
                    {"arm": each["arm_label"], "task": each["task_label"]}
                    | read_costs(connection, which)
                    | {"scores": read.read_means(connection, which, names)}
                )
        return found

    def disagreements(
        self,
        arm_a: int,
        arm_b: int,
        task: int,
        score: str,
        limit: int = 20,
        *,
        builds: int | None = None,
        repeats: int | None = None,
        units: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the units on which two arms differ most, both answers side by side.

        Units are ranked by the difference of their mean scores over builds and
        repeats; a failed unit counts as the worst value where the score has
        one. The answers shown are those of the first pair that differs as the
        means do.
        """
        with self._connected() as connection:
            size = {"builds": builds, "repeats": repeats, "unit_count": units}
            return compare.disagreements(connection, (arm_a, arm_b), task, score, limit, size)

    def score_names(self, run: int | str) -> list[str]:
        """Return the names of all scores in what a run is about."""
        names: dict[str, None] = {}
        with self._connected() as connection:
            for each in read.read_run(connection, run)["covers"]:
                names.update(dict.fromkeys(s.name for s in read.specs_of(connection, each["task"])))
        return list(names)

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs, the newest first, without their files and results."""
        names = ("id", "trial", "paper", "status", "started", "ended", "written")
        query = select(*(runs.c[name] for name in names)).order_by(runs.c.id.desc())
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def run(self, which: int | str = "last") -> dict[str, Any]:
        """Return a run by number, ``"last"``, or the name of a trial (its last run).

        ``covers`` lists its arms and tasks: numbers, labels and sizes.
        """
        with self._connected() as connection:
            return read.read_run(connection, which)

    def check(self) -> list[str]:
        """Return what is wrong with the store, one sentence each; nothing when it is sound."""
        with self._connected() as connection:
            found = dialect.faults(connection)
            for rows in read.chunks(connection, select(blobs.c.digest)):
                blobs_.read_blobs(connection, [row[0] for row in rows])
        return found

    @contextmanager
    def _connected(self, write: bool = False) -> Iterator[Connection]:
        """Yield a connection inside one transaction; a database's error becomes a sentence."""
        raised: Any = (DBAPIError, self._engine.dialect.loaded_dbapi.Error)
        try:
            with self._engine.connect() as connection:
                chosen = dialect.writing(connection) if write else connection
                with chosen.begin():
                    yield chosen
        except raised as error:
            raise dialect.fault(error, self.place) from error
        except PoolTimeoutError as error:
            raise RunError(f"{self.place}: too many read it at once; try again.") from error
        except packing.DAMAGED as error:
            raise RunError(
                f"{self.place}: the store is damaged; restore it from a backup."
            ) from error

    def _no_outcome(
        self, connection: Connection, arm: int, task: int, name: str, repeat: int, build: int
    ) -> UsageError:
        there = select(units.c.number).where(units.c.task == task, units.c.unit == name)
        label = read.label_of(connection, tasks, task)
        if connection.execute(there).scalar() is None:
            some = select(units.c.unit).where(units.c.task == task).limit(3)
            names = ", ".join(connection.execute(some).scalars())
            return UsageError(f'Task {label} has no unit "{name}"; it has such as: {names}.')
        arm_label = read.label_of(connection, arms, arm)
        return UsageError(
            f'Unit "{name}" of task {label} has no outcome in arm {arm_label}'
            f" (build {build}, repeat {repeat}) yet."
        )
