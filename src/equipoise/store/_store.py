"""The store: what came of every unit, kept as it ends and never rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, Engine, Table, inspect, select, update

from equipoise.core import Json, Outcome, ScoreSpec, Unit, UsageError
from equipoise.store import _dialect as dialect
from equipoise.store import _packing as packing
from equipoise.store import _read as read
from equipoise.store import _write as write
from equipoise.store._reader import Reader
from equipoise.store._tables import (
    SCHEMA,
    about,
    arms,
    blobs,
    metadata,
    outcomes,
    runs,
    tasks,
)

_REMEMBERED = 50_000  # digests known to be in the store

Status = Literal["finished", "interrupted", "failed"]


class Store(Reader):
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
        super().__init__(engine, place)
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
