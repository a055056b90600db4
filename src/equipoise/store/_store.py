"""The store: what came of every unit, kept as it ends and never rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, Engine, Table, inspect, select, update
from sqlalchemy.exc import DBAPIError

from equipoise.core import Json, Outcome, Outcomes, RunError, ScoreSpec, Unit, UsageError
from equipoise.store import _compare as compare
from equipoise.store import _dialect as dialect
from equipoise.store import _packing as packing
from equipoise.store import _read as read
from equipoise.store import _write as write
from equipoise.store._tables import (
    SCHEMA,
    about,
    arms,
    blobs,
    metadata,
    outcomes,
    runs,
    tasks,
    units,
)

_REMEMBERED = 50_000  # digests known to be in the store

Status = Literal["finished", "interrupted", "failed"]


class Store:
    """Outcomes, transcripts and runs in one SQLite file, or in a database by its URL.

    Outcomes are only ever added, each shard in one transaction: what `add` has
    returned from is on disk. Readers never block the writer, and several
    processes may write at once. Open one with `open`.

    Examples
    --------
    >>> import tempfile
    >>> from equipoise.core import Outcome, ScoreSpec, Unit
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Store.open(f"{folder.name}/store.sqlite") as store:
    ...     run = store.begin_run("sums", file="", provenance={})
    ...     arm = store.arm("a1", "plain", {})
    ...     task = store.task("t1", "sums", {}, [ScoreSpec("correct", low=0, high=1)])
    ...     numbers = store.add_units(task, [Unit("one", "1 + 1"), Unit("two", "2 + 2")])
    ...     rows = [(int(numbers[0]), Outcome("one", {"correct": 1}, output="2"))]
    ...     added = store.add(run, arm, task, 0, rows)
    ...     todo = store.done(arm, task, 0, numbers, repeats=1)
    ...     store.outcomes(arm, task).score("correct"), todo
    (array([1.]), {(0, 0)})
    >>> folder.cleanup()
    """

    def __init__(self, engine: Engine, place: str) -> None:
        self.place = place
        self._engine = engine
        self._digests: set[str] = set()
        self._covered: set[tuple[int, int, int]] = set()
        self._declared: dict[int, set[str]] = {}
        self._quoted: dict[str, str] = {}

    @classmethod
    def open(cls, place: str | Path, *, readonly: bool = False, timeout: float = 30.0) -> Store:
        """Open a store, making it where there is none.

        Parameters
        ----------
        place
            Path of a file, or a database URL such as ``postgresql+psycopg://host/name``.
        readonly
            Refuse to write, and to make a store.
        timeout
            Seconds to wait for another process that is writing.

        Raises
        ------
        UsageError
            If the file is no store, was written by a newer version, or may
            not be written.
        RunError
            If another process holds it, or it is damaged.
        """
        engine = dialect.engine_for(place, readonly, timeout)
        shown = engine.url.render_as_string() if "://" in str(place) else str(place)
        store = cls(engine, shown)
        try:
            store._prepare(readonly)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Let go of the file; the last one to do so tidies its log away."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Writing

    def arm(self, identity: str, label: str, recipe: Json) -> int:
        """Return the number of an arm, adding it the first time."""
        return self._registered(arms, identity, label, recipe)

    def task(self, identity: str, label: str, recipe: Json, scores: Sequence[ScoreSpec]) -> int:
        """Return the number of a task, adding it the first time."""
        specs = packing.dumps([asdict(each) for each in scores])
        return self._registered(tasks, identity, label, recipe, scores=specs)

    def add_units(self, task: int, given: Sequence[Unit]) -> np.ndarray:
        """Return the numbers of units, in order, adding those that are new.

        Numbers count from 0 in each task, in the order in which units first came.

        Raises
        ------
        UsageError
            If an id comes twice, or stands for other content than before:
            outcomes under it would be mistaken for one another.
        """
        with self._connected(write=True) as connection:
            return write.add_units(connection, task, given)

    def begin_run(self, trial: str, file: str, provenance: Json, paper: str | None = None) -> int:
        """Note that a run begins and return its number; ``file`` is the trial file's text."""
        row = {
            "trial": packing.text(trial),
            "paper": packing.text_or_none(paper),
            "status": "running",
            "started": _now(),
            "written": 0,
            "file": packing.text(file),
            "provenance": packing.dumps(provenance),
        }
        with self._connected(write=True) as connection:
            key = connection.execute(runs.insert().values(row)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def cover(
        self,
        run: int,
        arm: int,
        task: int,
        *,
        arm_label: str | None = None,
        task_label: str | None = None,
        units: int | None = None,
        builds: int | None = None,
        repeats: int | None = None,
    ) -> None:
        """Note that a run is about an arm on a task, whoever computed its outcomes.

        A run that finds everything in the store adds nothing, and is still
        about it: `rows`, `summary` and export go by this. `add` notes by
        itself what was not noted, under the labels of arm and task.

        Parameters
        ----------
        run, arm, task
            Numbers.
        arm_label, task_label
            What the trial calls them; two labels may stand for one arm.
        units
            The first so many unit numbers; None for all.
        builds, repeats
            How many of each; None for all.
        """
        with self._connected(write=True) as connection:
            write.cover(
                connection,
                run,
                arm,
                task,
                arm_label or read.label_of(connection, arms, arm),
                task_label,
                units=units,
                builds=builds,
                repeats=repeats,
            )
        self._covered.add((run, arm, task))

    def end_run(self, run: int, status: Status, result: Json | None = None) -> None:
        """Note how a run ended and what it found."""
        values = {
            "status": status,
            "ended": _now(),
            "result": None if result is None else packing.dumps(result),
        }
        with self._connected(write=True) as connection:
            connection.execute(update(runs).where(runs.c.id == run).values(values))

    def add(
        self,
        run: int,
        arm: int,
        task: int,
        build: int,
        rows: Sequence[tuple[int, Outcome]],
        repeat: int = 0,
    ) -> int:
        """Keep outcomes, all or none, and return how many were new.

        An outcome for a key that has one that is ok, or ended by a limit, is
        ignored. After an error it is the next attempt.

        Parameters
        ----------
        run, arm, task, build, repeat
            Where the outcomes belong.
        rows
            Pairs of unit number and outcome.

        Raises
        ------
        RunError
            If they could not be kept; nothing kept before is lost.
        """
        if not rows:
            return 0
        # Everything slow happens before the lock is taken.
        found: dict[str, bytes] = {}
        values = [
            write.outcome_row(run, arm, task, build, repeat, *row, found, self._quoted)
            for row in rows
        ]
        fresh = [
            {"digest": name, "codec": "zlib" if small else "raw", "data": small or data}
            for name, data in found.items()
            if name not in self._digests
            for small in (packing.deflate(data),)
        ]
        names = {name for _, outcome in rows for name in outcome.scores}
        with self._connected(write=True) as connection:
            values = write.number_attempts(connection, values)
            if values:
                dialect.insert_once(connection, blobs, fresh)
                dialect.insert_once(connection, outcomes, values)
                more = runs.c.written + len(values)
                connection.execute(update(runs).where(runs.c.id == run).values(written=more))
            if (run, arm, task) not in self._covered:
                write.cover(connection, run, arm, task)
            declared = self._declared.get(task, set())
            if not names <= declared:
                declared = write.declare(connection, task, names)
        self._declared[task] = declared
        self._covered.add((run, arm, task))
        if values:
            if len(self._digests) > _REMEMBERED:
                self._digests.clear()
            self._digests.update(found)
        return len(values)

    # Reading

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
        """Yield all outcomes that a run is about, some thousands at a time."""
        with self._connected() as connection:
            for rows in read.chunks(connection, read.rows_query(run, None, None)):
                yield [read.as_row(row) for row in rows]

    def unit(
        self, arm: int, task: int, unit_id: str, repeat: int = 0, build: int = 0
    ) -> dict[str, Any]:
        """Return everything about one unit in one arm: transcript, artifacts, past attempts.

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
            row["transcript"] = read.read_transcript(connection, values[-2])
            row["artifacts"] = read.read_artifacts(connection, values[-1])
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
    ) -> dict[str, Any]:
        """Return units, outcomes, errors, attempts, tokens, dollars and seconds.

        ``errors`` counts outcomes whose last attempt failed; the rest sums
        over all attempts, since each was paid for.
        """
        with self._connected() as connection:
            which = read.size_of(arm, task, builds, repeats, units)
            return read.read_costs(connection, which)

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
                    | read.read_costs(connection, which)
                    | {"scores": read.read_means(connection, which, names)}
                )
        return found

    def disagreements(
        self, arm_a: int, arm_b: int, task: int, score: str, limit: int = 20
    ) -> list[dict[str, Any]]:
        """Return the units on which two arms differ most, both answers side by side.

        Units are ranked by the difference of their mean scores over builds and
        repeats; a failed unit counts as the worst value where the score has
        one. The answers shown are those of the first pair that differs as the
        means do.
        """
        with self._connected() as connection:
            return compare.disagreements(connection, (arm_a, arm_b), task, score, limit)

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
                read.read_blobs(connection, [row[0] for row in rows])
        return found

    # Inside

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
        except packing.DAMAGED as error:
            raise RunError(
                f"{self.place}: the store is damaged; restore it from a backup."
            ) from error

    def _prepare(self, readonly: bool) -> None:
        with self._connected() as connection:
            if self._is_current(connection):
                return
        if readonly:
            raise UsageError(f"{self.place} holds no outcomes: run a trial first.")
        from equipoise import __version__

        with self._connected(write=True) as connection:
            if not self._is_current(connection):  # nobody was quicker
                metadata.create_all(connection)
                made = {"schema": str(SCHEMA), "made by": f"equipoise {__version__}"}
                rows = [{"key": key, "value": value} for key, value in made.items()]
                connection.execute(about.insert(), rows)

    def _is_current(self, connection: Connection) -> bool:
        """Say whether the tables are there, and refuse what is not ours or too new."""
        names = inspect(connection).get_table_names()
        if about.name not in names:
            if names:
                raise UsageError(f"{self.place} is a database, but not an equipoise store.")
            return False
        query = select(about.c.value).where(about.c.key == "schema")
        version = int(connection.execute(query).scalar() or 0)
        if version > SCHEMA:
            raise UsageError(
                f"{self.place} was written by a newer equipoise (store version {version},"
                f" this one reads {SCHEMA}): pip install --upgrade equipoise."
            )
        return version == SCHEMA

    def _registered(
        self, table: Table, identity: str, label: str, recipe: Json, **more: Any
    ) -> int:
        identity = packing.text(identity)
        row = {"identity": identity, "label": packing.text(label), **more}
        row["recipe"] = packing.dumps(recipe)
        query = select(table.c.id).where(table.c.identity == identity)
        with self._connected(write=True) as connection:
            dialect.insert_once(connection, table, [row])
            return int(connection.execute(query).scalar_one())

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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
