"""What differs between databases, and nothing else."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Float,
    Table,
    cast,
    create_engine,
    event,
    func,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from equipoise.core import EquipoiseError, RunError, UsageError
from equipoise.store._packing import score_key, text

_WRITES = "equipoise_writes"


def engine_for(place: str | Path, readonly: bool, timeout: float) -> Engine:
    """Return an engine for a file path or a database URL."""
    if "://" in str(place):
        try:
            return create_engine(str(place))
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise UsageError(f"No database at this address: {error}.") from error
    return _sqlite(Path(place), readonly, timeout)


def writing(connection: Connection) -> Connection:
    """Mark a connection as one that will write."""
    return connection.execution_options(**{_WRITES: True})


def _sqlite(path: Path, readonly: bool, timeout: float) -> Engine:
    address = _address(path, readonly)

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, timeout=timeout, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            if readonly:
                connection.execute("PRAGMA query_only=ON")
            else:
                _write_ahead(connection, timeout)
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("PRAGMA journal_size_limit=16777216")
                connection.execute("PRAGMA cache_size=-16384")  # KiB; names arrive unsorted
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that starts by reading and then writes can fail however
        # long it waits; one that takes the write lock at once only waits.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _address(path: Path, readonly: bool) -> str:
    """Check what the file system says about a path and return SQLite's address of it."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the path of a store, such as {path}/x.sqlite.")
    if readonly:
        if not path.exists():
            raise UsageError(f"No store at {path}: run a trial first, or say --store PATH.")
        # Where nothing may be written, SQLite cannot make the small file that
        # readers and writers share; a store that nobody can change needs none.
        log = path.with_name(path.name + "-wal")
        if all(os.access(part, os.W_OK) for part in (path, path.parent)):
            mode = "mode=rw"  # so that the last reader can tidy the log away
        elif log.exists() and log.stat().st_size:
            mode = "mode=ro"
        else:
            mode = "immutable=1"
        return f"{path.absolute().as_uri()}?{mode}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder of {path} cannot be made: {error.strerror}.") from error
    for part in (path.parent, path):
        if part.exists() and not os.access(part, os.W_OK):
            raise UsageError(f"{part} may not be written; say --store PATH for a store elsewhere.")
    return path.absolute().as_uri()


def _write_ahead(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to write-ahead logging, for which SQLite does not wait by itself."""
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)


def insert_once(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same keys; one whose key is there is left alone.

    The statement is SQLAlchemy's, its parameters go straight to the driver:
    that doubles the rate, since nothing here needs converting.
    """
    if not rows:
        return
    insert = import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert
    statement = insert(table).on_conflict_do_nothing()
    compiled = statement.compile(dialect=connection.dialect, column_keys=list(rows[0]))
    if compiled.positional:
        values: Any = list(map(itemgetter(*compiled.positiontup), rows))
    else:
        values = list(rows)
    connection.exec_driver_sql(str(compiled), values)


def score_value(dialect: Dialect, scores: ColumnElement[str], name: str) -> ColumnElement[float]:
    """Return one score of a column of JSON text as a number."""
    if dialect.name == "sqlite":
        return cast(func.json_extract(scores, f'$."{score_key(name)}"'), Float(53))
    found = func.json_extract_path_text(cast(scores, JSON), text(name))
    return cast(func.replace(found, "1e999", "Infinity"), Float(53))


def json_value(dialect: Dialect, column: ColumnElement[str], name: str) -> ColumnElement[Any]:
    """Return what stands under a name at the top of a column of JSON text.

    Text, numbers and truth values come as they are, lists and mappings as JSON text.
    """
    if dialect.name == "sqlite":
        return func.json_extract(column, f'$."{name}"')
    return func.json_extract_path_text(cast(column, JSON), name)


def faults(connection: Connection) -> list[str]:
    """Return what is wrong with the file, as the database sees it."""
    if connection.dialect.name != "sqlite":
        return []
    found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check")]
    keys = [tuple(row) for row in connection.exec_driver_sql("PRAGMA foreign_key_check")]
    return [each for each in found if each != "ok"] + [f"lost reference {each}" for each in keys]


_SENTENCES: tuple[tuple[str, type[EquipoiseError], str], ...] = (
    ("is full", RunError, "the disk is full; what was finished is kept: make room, then run again"),
    ("locked", RunError, "another process holds the store; try again when it is done"),
    ("busy", RunError, "another process holds the store; try again when it is done"),
    ("not a database", UsageError, "this file is not an equipoise store"),
    ("malformed", RunError, "the store is damaged; keep a copy, and restore it from a backup"),
    ("readonly", UsageError, "the store may not be written; say --store PATH for one elsewhere"),
    ("unable to open", UsageError, "the store cannot be opened; look at its path and permissions"),
    ("disk i/o", RunError, "the disk refused to read or write; what was finished is kept"),
)


def fault(error: BaseException, place: str) -> EquipoiseError:
    """Return one sentence for what a database raised."""
    said = " ".join(str(getattr(error, "orig", None) or error).split())
    for sign, kind, sentence in _SENTENCES:
        if sign in said.lower():
            return kind(f"{place}: {sentence}.")
    return RunError(f"{place}: the database refused: {said.rstrip('.')}.")
