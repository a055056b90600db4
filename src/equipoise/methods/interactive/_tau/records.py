"""A database that many episodes share: what one of them changes is a copy of its own."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, TypeVar, cast

from equipoise.kit.language.environment import tool
from equipoise.kit.language.tools import ToolError

Record = dict[str, Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])


def canonical(value: Any) -> Any:
    """Return a value that is the same for equal JSON: dicts sorted by key, lists in order.

    Examples
    --------
    >>> canonical({"b": [1, 2], "a": "x"})
    (('a', 'x'), ('b', (1, 2)))
    """
    if isinstance(value, Mapping):
        return tuple((key, canonical(each)) for key, each in sorted(value.items()))
    if isinstance(value, list):
        return tuple(map(canonical, value))
    return value


def _digest(record: Any) -> str:
    # Text, and not the values: 5 and 5.0 are different in a database.
    return sha256(str(canonical(record)).encode("utf-8", "surrogatepass")).hexdigest()


class Records:
    """Tables of records by key; shared by all episodes, and never written."""

    def __init__(self, tables: Mapping[str, Mapping[str, Record]]) -> None:
        self.tables = tables
        self.flights_from = _by_origin(tables.get("flights", {}))
        self._digests: dict[tuple[str, str], str] = {}

    def digest(self, table: str, key: str) -> str:
        """Return the digest of one record, worked out once; empty where there is none."""
        if key not in self.tables[table]:
            return ""
        if (table, key) not in self._digests:
            self._digests[table, key] = _digest(self.tables[table][key])
        return self._digests[table, key]


def _by_origin(flights: Mapping[str, Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for flight in flights.values():
        found.setdefault(flight["origin"], []).append(flight)
    return found


class Database:
    """What one episode sees: the shared records, and its own changes to them.

    Changes are made in a `change`, which takes all of them back when something raises.

    Examples
    --------
    >>> shared = Records({"orders": {"W1": {"status": "pending"}}})
    >>> mine, other = Database(shared), Database(shared)
    >>> with mine.change():
    ...     mine.edit("orders", "W1")["status"] = "cancelled"
    >>> mine.find("orders", "W1"), other.find("orders", "W1")
    ({'status': 'cancelled'}, {'status': 'pending'})
    >>> mine.digest() == other.digest()
    False
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._own: dict[str, dict[str, Record]] = {table: {} for table in records.tables}
        self._draft: dict[tuple[str, str], Record] | None = None

    def find(self, table: str, key: str) -> Record | None:
        """Return a record to read, None where there is none."""
        if self._draft is not None and (table, key) in self._draft:
            return self._draft[table, key]
        return self._own[table].get(key) or self.records.tables[table].get(key)

    def has(self, table: str, key: str) -> bool:
        """Say whether there is such a record."""
        return self.find(table, key) is not None

    def rows(self, table: str) -> Iterator[tuple[str, Record]]:
        """Yield keys and records to read, in order."""
        own, shared = self._own[table], self.records.tables[table]
        for key, record in shared.items():
            yield key, own.get(key, record)
        for key, record in own.items():
            if key not in shared:
                yield key, record

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make the changes of the block, or none of them."""
        self._draft = {}
        try:
            yield
            for (table, key), record in self._draft.items():
                self._own[table][key] = record
        finally:
            self._draft = None

    def edit(self, table: str, key: str) -> Record:
        """Return a copy to write, which is kept when the change ends; KeyError if there is none."""
        assert self._draft is not None, "writing needs a change"
        if (table, key) not in self._draft:
            found = self.find(table, key)
            if found is None:
                raise KeyError(key)
            self._draft[table, key] = copy.deepcopy(found)
        return self._draft[table, key]

    def add(self, table: str, key: str, record: Record) -> None:
        """Write a record that may be new."""
        assert self._draft is not None, "writing needs a change"
        self._draft[table, key] = record

    def digest(self) -> str:
        """Return the same text for equal databases over one set of records.

        Only records that were written are looked at; one that is as it was does not count.
        """
        changed = sorted(
            (table, key, now)
            for table, own in self._own.items()
            for key, record in own.items()
            if (now := _digest(record)) != self.records.digest(table, key)
        )
        return sha256(str(changed).encode()).hexdigest()

    def whole(self) -> dict[str, dict[str, Record]]:
        """Return all tables as plain dictionaries; records are not copied."""
        return {table: dict(self.rows(table)) for table in self.records.tables}


def reads(method: _Method) -> _Method:
    """Mark a tool that changes nothing; whatever it raises, the agent is told."""
    return cast("_Method", tool(_told(method, writing=False)))


def writes(method: _Method) -> _Method:
    """Mark a tool that changes the environment's ``database``: wholly, or not at all."""
    return cast("_Method", tool(_told(method, writing=True)))


def _told(method: Any, *, writing: bool) -> Any:
    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        try:
            if not writing:
                return method(self, *given, **named)
            with self.database.change():
                return method(self, *given, **named)
        except ToolError:
            raise
        except Exception as error:  # records may lack what a tool looks for; the episode goes on
            raise ToolError(str(error)) from error

    return call
