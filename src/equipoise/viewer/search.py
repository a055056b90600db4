"""Full-text search in what subjects answered: an index beside the store, made when first asked.

The index is SQLite's FTS5. It holds words and no texts, and it only grows: what runs have added
since is indexed at the next search. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.core import UsageError
from equipoise.report._text import as_text

MOST = 250_000
"""Most outcomes of an arm that one search gives; a commoner word tells little."""

_VERSION = 1
_STEP = 2_000
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
        self._at_work: dict[Any, threading.Thread] = {}
        self._fresh: dict[Any, int] = {}
        self.shares: dict[Any, float] = {}

    def close(self) -> None:
        """Remove what was made for this process alone."""
        if self._folder is not None:
            self._folder.cleanup()

    def ready(self, key: Any, cells: Sequence[Cell], wait: float = 0.3) -> bool:
        """Say whether these cells are indexed; else see to it in the background.

        ``shares[key]`` tells how far that is, from 0 to 1.
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
        return bool(self._fresh.get(key) == written)

    def find(self, words: str, cells: Sequence[Cell]) -> dict[int, np.ndarray]:
        """Return the units that have an outcome with all the words, by the number of the arm.

        Case and accents do not matter; the last word may be a beginning; a phrase
        stands in double quotes.
        """
        asked = query(words)
        found: dict[int, np.ndarray] = {}
        with self._connected() as connection:
            for cell in cells:
                numbers = connection.execute(
                    "SELECT id FROM cells WHERE arm = ? AND task = ?", (cell["arm"], cell["task"])
                )
                hits = [_hits(connection, asked, number) for (number,) in numbers.fetchall()]
                units = np.concatenate(hits) if hits else np.empty(0, np.int64)
                found[cell["arm"]] = np.unique(units & _UNIT)
        return found

    def _index(self, key: Any, cells: list[Cell], written: int) -> None:
        counts = [self.store.count(cell["arm"], cell["task"]) for cell in cells]
        done, total = 0, max(1, sum(counts))
        with self._connected() as connection:
            for cell, count in zip(cells, counts, strict=True):
                if count != _indexed(connection, cell):
                    for n in self._add(connection, cell["arm"], cell["task"]):
                        self.shares[key] = (done + n) / total
                    connection.commit()
                done += count
                self.shares[key] = done / total
        self._fresh[key] = written

    def _add(self, connection: sqlite3.Connection, arm: int, task: int) -> Iterator[int]:
        """Index what is new in a cell, some thousand outcomes at a time."""
        numbers: dict[tuple[int, int], int] = {}
        known: dict[int, set[int]] = {}
        seen = 0
        for rows in self.store.texts(arm, task, _STEP):
            fresh = []
            for build, repeat, unit, attempt, output, error in rows:
                number = numbers.get((build, repeat))
                if number is None:
                    number = numbers[build, repeat] = _number(connection, arm, task, build, repeat)
                    known[number] = _known(connection, number)
                row = number << _CELL | min(attempt, 255) << 32 | unit
                if row not in known[number]:
                    fresh.append((row, f"{as_text(output)}\n{error or ''}"))
            connection.executemany("INSERT INTO words (rowid, said) VALUES (?, ?)", fresh)
            seen += len(rows)
            yield seen

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._open()
        except sqlite3.DatabaseError:  # half written at a power cut: it is made anew
            self.path.unlink(missing_ok=True)
            connection = self._open()
        with contextlib.closing(connection):
            yield connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            connection.execute("PRAGMA synchronous=OFF")
            connection.executescript(_TABLES)
            mark = f"{_VERSION} {_fingerprint(self.store)}"
            found = connection.execute("SELECT value FROM about WHERE key = 'mark'").fetchone()
            if found is None:
                connection.execute("INSERT INTO about VALUES ('mark', ?)", (mark,))
                connection.commit()
            elif found[0] != mark:
                raise sqlite3.DatabaseError("the index of another store")
        except BaseException:
            connection.close()
            raise
        return connection


def query(words: str) -> str:
    """Return what FTS5 is asked: every word and phrase, quoted, the last word as a beginning.

    Raises
    ------
    UsageError
        If there is no word to look for.

    Examples
    --------
    >>> query('the "last train" lea')
    '"the" "last train" "lea"*'
    """
    parts = [a or b for a, b in re.findall(r'"([^"]*)"|([^\s"]+)', words)]
    parts = [each for each in parts if re.search(r"\w", each)]
    if not parts:
        raise UsageError("Give a word to look for.")
    quoted = " ".join(f'"{each}"' for each in parts)
    return quoted if words.rstrip().endswith('"') else f"{quoted}*"


def _hits(connection: sqlite3.Connection, asked: str, number: int) -> np.ndarray:
    rows = connection.execute(
        "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? LIMIT ?",
        (asked, number << _CELL, (number + 1) << _CELL, MOST),
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def _number(connection: sqlite3.Connection, *key: int) -> int:
    connection.execute(
        "INSERT OR IGNORE INTO cells (arm, task, build, repeat) VALUES (?, ?, ?, ?)", key
    )
    query = "SELECT id FROM cells WHERE arm = ? AND task = ? AND build = ? AND repeat = ?"
    return int(connection.execute(query, key).fetchone()[0])


def _known(connection: sqlite3.Connection, number: int) -> set[int]:
    rows = connection.execute(
        "SELECT id FROM words_docsize WHERE id >= ? AND id < ?",
        (number << _CELL, (number + 1) << _CELL),
    )
    return {row[0] for row in rows}


def _indexed(connection: sqlite3.Connection, cell: Cell) -> int:
    rows = connection.execute(
        "SELECT id FROM cells WHERE arm = ? AND task = ?", (cell["arm"], cell["task"])
    )
    return sum(
        connection.execute(
            "SELECT count(*) FROM words_docsize WHERE id >= ? AND id < ?",
            (number << _CELL, (number + 1) << _CELL),
        ).fetchone()[0]
        for (number,) in rows.fetchall()
    )


def _fingerprint(store: Any) -> str:
    """Return what tells a store from another one at the same place: how its first run began."""
    first = store.first_run()
    return hashlib.sha256(repr(first).encode()).hexdigest()[:16]


def _beside(place: str | Path) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    path = Path(place)
    if "://" not in str(place) and os.access(path.parent, os.W_OK):
        return path.with_name(path.name + "-search"), None
    folder = tempfile.TemporaryDirectory(prefix="equipoise-search-")
    return Path(folder.name) / "index", folder
