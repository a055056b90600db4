"""Full-text search in what subjects answered: an index beside the store, made when first asked.

The index is SQLite's FTS5. It holds words and no texts, and it only grows: what runs have added
since is indexed at the next search. It may be deleted at any time, and is made anew where it is
damaged or belongs to another store.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.core import EquipoiseError, RunError, UsageError
from equipoise.report._text import as_text

_VERSION = 2
_STEP = 250
_CELL = 40  # bits below a cell's number: 8 for the attempt, 32 for the unit
_UNIT = (1 << 32) - 1

_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS cells (
  id INTEGER PRIMARY KEY, arm INTEGER, task INTEGER, build INTEGER, repeat INTEGER,
  UNIQUE (arm, task, build, repeat)
);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
  said, content='', tokenize='unicode61 remove_diacritics 2'
);
"""

Cell = Mapping[str, Any]


class Search:
    """Finds outcomes by the words of their output or error.

    Parameters
    ----------
    store
        Where the outcomes are, open for reading.
    place
        Its path or address. The index of a file lies beside it; that of a database, or of a
        file in a folder that may not be written, in a temporary one.
    """

    def __init__(self, store: Any, place: str | Path) -> None:
        self.store = store
        self.path, self._folder = _beside(place)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._at_work: dict[Any, threading.Thread] = {}
        self._fresh: dict[Any, int] = {}
        self._faults: dict[Any, str] = {}
        self._made = ""
        self.shares: dict[Any, float] = {}

    def close(self) -> None:
        """Remove what was made for this process alone."""
        if self._folder is not None:
            self._folder.cleanup()

    def ready(self, key: Any, cells: Sequence[Cell], wait: float = 0.3) -> bool:
        """Say whether these cells are indexed; else see to it in the background.

        ``shares[key]`` tells how far that is, from 0 to 1.

        Raises
        ------
        RunError
            If they could not be indexed; the next call tries again.
        """
        written = self.store.written()
        with self._lock:
            if self._fresh.get(key) == written:
                return True
            thread = self._at_work.get(key)
            if thread is None or not thread.is_alive():
                self.shares[key] = 0.0
                thread = threading.Thread(
                    target=self._index, args=(key, list(cells), written), daemon=True
                )
                self._at_work[key] = thread
                thread.start()
        thread.join(wait)
        if fault := self._faults.pop(key, ""):
            raise RunError(fault)
        return bool(self._fresh.get(key) == written)

    def find(self, words: str, cells: Sequence[Cell]) -> np.ndarray | None:
        """Return the units of which an outcome has all the words, rising.

        Case and accents do not matter; the last word may be a beginning; a phrase stands in
        double quotes. None means that the index is another one than `ready` saw, or damaged:
        it is to be asked again, and makes it anew.
        """
        asked = query(words)
        try:
            with self._connected() as connection:
                if _made(connection) != self._made:  # somebody deleted it, or it was damaged
                    self._fresh.clear()
                    return None
                found = [
                    _hits(connection, asked, first, last)
                    for first, last in _stretches(connection, cells)
                ]
        except sqlite3.DatabaseError as error:
            if not _damaged(error):
                raise RunError(f"{self.path}: the index cannot be read: {error}.") from error
            self._forget()
            return None
        return np.unique(np.concatenate([*found, np.empty(0, np.int64)]) & _UNIT)

    def _index(self, key: Any, cells: list[Cell], written: int) -> None:
        """Index what is new in some cells; runs in a thread of its own."""
        try:
            counts = [self.store.count(cell["arm"], cell["task"]) for cell in cells]
            done, total = 0, max(1, sum(counts))
            with self._writing, self._connected() as connection:
                for cell, count in zip(cells, counts, strict=True):
                    if count != _indexed(connection, cell):
                        for n in self._add(connection, cell["arm"], cell["task"]):
                            self.shares[key] = (done + n) / total
                    done += count
                    self.shares[key] = done / total
                self._made = _made(connection)
            self._fresh[key] = written
        except sqlite3.DatabaseError as error:
            if _damaged(error):
                self._forget()  # the next look begins anew
            else:  # a full disk, above all
                self._faults[key] = f"{self.path}: the answers cannot be indexed: {error}."
        except EquipoiseError as error:
            self._faults[key] = str(error)

    def _add(self, connection: sqlite3.Connection, arm: int, task: int) -> Iterator[int]:
        """Index what is new in a cell, some at a time, and yield how many outcomes were seen."""
        keys = self.store.keys(arm, task)
        numbers = {
            (build, repeat): _number(connection, arm, task, build, repeat)
            for build, repeat in np.unique(keys[:, :2], axis=0).tolist()
        }
        known = np.concatenate([_known(connection, each) for each in numbers.values()])
        wanted: set[int] | None = None
        units: np.ndarray | None = None
        if len(known):
            cell = np.array([numbers[build, repeat] for build, repeat in keys[:, :2].tolist()])
            rows = _row(cell, keys[:, 3], keys[:, 2])
            new = ~np.isin(rows, known)
            wanted, units = set(rows[new].tolist()), np.unique(keys[new, 2])
        seen = len(known)
        for part in self.store.texts(arm, task, _STEP, units=units):
            fresh = (
                (row, f"{as_text(output)}\n{error or ''}")
                for build, repeat, unit, attempt, output, error in part
                for row in (int(_row(numbers[build, repeat], attempt, unit)),)
                if wanted is None or row in wanted
            )
            # A second outcome of one key can only be an attempt beyond the 255th.
            connection.executemany("INSERT OR IGNORE INTO words (rowid, said) VALUES (?, ?)", fresh)
            seen += _STEP
            connection.commit()
            yield seen

    def _forget(self) -> None:
        with self._lock:
            self._fresh.clear()
            _remove(self.path)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                connection = self._open()
            except sqlite3.DatabaseError as error:
                if not _damaged(error):
                    raise
                _remove(self.path)
                connection = self._open()
        with contextlib.closing(connection):
            yield connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA journal_mode=WAL")  # to search while another task is read
            connection.executescript(_TABLES)
            mark = f"{_VERSION} {_fingerprint(self.store)}"
            found = connection.execute("SELECT value FROM about WHERE key = 'mark'").fetchone()
            if found is None:
                rows = [("mark", mark), ("made", secrets.token_hex(8))]
                connection.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", rows)
                connection.commit()
            elif found[0] != mark:
                raise sqlite3.DatabaseError("the index of another store")
        except BaseException:
            connection.close()
            raise
        return connection


def query(words: str) -> str:
    """Return what FTS5 is asked: every word and phrase, quoted, the last word as a beginning.

    A single letter is no beginning: most words would be found.

    Raises
    ------
    UsageError
        If there is no word to look for.

    Examples
    --------
    >>> query('the "last train" lea')
    '"the" "last train" "lea"*'
    """
    parts = [a or b for a, b in re.findall(r'"([^"]*)"|([^\s"]+)', words.replace("\0", " "))]
    parts = [each for each in parts if re.search(r"[^\W_]", each)]
    if not parts:
        raise UsageError("Give a word to look for.")
    quoted = " ".join(f'"{each}"' for each in parts)
    letters = re.findall(r"[^\W_]", parts[-1])
    whole = words.rstrip().endswith('"') or len(letters) < 2
    return quoted if whole else f"{quoted}*"


def _hits(connection: sqlite3.Connection, asked: str, first: int, last: int) -> np.ndarray:
    rows = connection.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ?",
        (asked, first << _CELL, (last + 1) << _CELL),
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def _made(connection: sqlite3.Connection) -> str:
    """Return what tells an index from one made later."""
    row = connection.execute("SELECT value FROM about WHERE key = 'made'").fetchone()
    return str(row[0])


def _stretches(connection: sqlite3.Connection, cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return the first and last of numbers that follow each other.

    The cells of a task mostly do, and to ask for all of them at once is quicker: FTS5 gathers
    the words of a beginning anew for each question.
    """
    numbers = sorted({number for cell in cells for number in _numbers(connection, cell)})
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _numbers(connection: sqlite3.Connection, cell: Cell) -> list[int]:
    rows = connection.execute(
        "SELECT id FROM cells WHERE arm = ? AND task = ?", (cell["arm"], cell["task"])
    )
    return [number for (number,) in rows.fetchall()]


def _row(cell: Any, attempt: Any, unit: Any) -> Any:
    """Return the number of an outcome in the index; of arrays an array."""
    return cell << _CELL | np.minimum(attempt, 255) << 32 | unit


def _number(connection: sqlite3.Connection, *key: int) -> int:
    connection.execute(
        "INSERT OR IGNORE INTO cells (arm, task, build, repeat) VALUES (?, ?, ?, ?)", key
    )
    query = "SELECT id FROM cells WHERE arm = ? AND task = ? AND build = ? AND repeat = ?"
    return int(connection.execute(query, key).fetchone()[0])


def _known(connection: sqlite3.Connection, number: int) -> np.ndarray:
    rows = connection.execute(
        "SELECT id FROM words_docsize WHERE id >= ? AND id < ?",
        (number << _CELL, (number + 1) << _CELL),
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def _indexed(connection: sqlite3.Connection, cell: Cell) -> int:
    return sum(
        connection.execute(
            "SELECT count(*) FROM words_docsize WHERE id >= ? AND id < ?",
            (number << _CELL, (number + 1) << _CELL),
        ).fetchone()[0]
        for number in _numbers(connection, cell)
    )


def _fingerprint(store: Any) -> str:
    """Return what tells a store from another one at the same place: how its first run began."""
    first = store.first_run()
    return hashlib.sha256(repr(first).encode()).hexdigest()[:16]


def _beside(place: str | Path) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    path = Path(place)
    if "://" not in str(place) and os.access(path.parent, os.W_OK):
        index = path.with_name(path.name + "-search")
        if not index.exists() or os.access(index, os.W_OK):
            return index, None
    folder = tempfile.TemporaryDirectory(prefix="equipoise-search-")
    return Path(folder.name) / "index", folder


def _damaged(error: sqlite3.DatabaseError) -> bool:
    """Say whether an index must be made anew: it is half written, or of another store.

    What SQLite has a name of its own for is mostly no damage: it is held, or the disk is full.
    """
    said = str(error).lower()
    whole = type(error) is sqlite3.DatabaseError
    return whole or "i/o error" in said or "no such table" in said


def _remove(index: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        index.with_name(index.name + end).unlink(missing_ok=True)
