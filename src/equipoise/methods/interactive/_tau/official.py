"""Reads the folder that was released with the paper; its task files are read, never run."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.core import UsageError
from equipoise.methods.interactive._tau.records import Records
from equipoise.methods.interactive._tau.service import Case

SOURCE = "https://github.com/sierra-research/tau-bench"
TABLES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "retail": {
        "orders": ("order_id", "user_id", "address", "items", "status", "payment_history"),
        "products": ("name", "product_id", "variants"),
        "users": ("name", "address", "email", "payment_methods", "orders"),
    },
    "airline": {
        "flights": ("flight_number", "origin", "destination", "dates"),
        "reservations": ("user_id", "cabin", "flights", "passengers", "payment_history"),
        "users": ("name", "payment_methods", "membership", "reservations"),
    },
}
SPLITS = {"retail": ("test", "train", "dev"), "airline": ("test",)}


class Folder:
    """One domain of the released folder.

    Parameters
    ----------
    data
        A checkout of the repository, or its ``tau_bench/envs``.
    domain
        ``retail`` or ``airline``.
    who
        Part that asks, for messages.

    Raises
    ------
    UsageError
        If a file is missing, or holds something else than is expected.
    """

    def __init__(self, data: str, domain: str, who: str) -> None:
        self.data, self.domain, self.who = data, domain, who
        root = Path(data).expanduser()
        inner = root / "tau_bench" / "envs"
        self.path = (inner if inner.is_dir() else root) / domain

    def files(self, split: str) -> list[Path]:
        """Return the files that are read, or say which is missing."""
        names = [f"data/{table}.json" for table in TABLES[self.domain]]
        names += ["wiki.md", f"tasks_{split}.py"]
        found = [self.path / name for name in names]
        for name, path in zip(names, found, strict=True):
            if not path.is_file():
                raise UsageError(
                    f"{self.who}: {self.data} has no {self.domain}/{name}; data must be the folder"
                    f" tau_bench/envs of a checkout of {SOURCE}."
                )
        return found

    def digest(self, split: str) -> str:
        """Return what identifies the content of the files."""
        digest = hashlib.sha256()
        for path in self.files(split):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(self._bytes(path)).digest())
        return digest.hexdigest()

    def records(self) -> Records:
        """Return the database; one object for all who ask for the same files."""
        paths = [self.path / "data" / f"{table}.json" for table in TABLES[self.domain]]
        self.files("test")
        stamps = tuple((str(path), path.stat().st_mtime_ns) for path in paths)
        return _records(self, stamps)

    def policy(self) -> str:
        """Return what the agent must keep to."""
        return self._text(self.path / "wiki.md")

    def cases(self, split: str) -> list[Case]:
        """Return the customers of a task file, in order."""
        path = self.files(split)[-1]
        try:
            tree = ast.parse(self._text(path))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._strange(path, "is not Python that can be read") from error
        listed = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
        ]
        if len(listed) != 1 or not listed[0].elts:
            raise self._strange(path, "has not one list of tasks")
        return [self._case(path, node) for node in listed[0].elts]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def _case(self, path: Path, node: ast.expr) -> Case:
        given = dict(self._named(path, node, "Task"))
        actions = given.pop("actions", None)
        try:
            told = {name: ast.literal_eval(value) for name, value in given.items()}
            pairs = []
            for each in getattr(actions, "elts", ()):
                call = {
                    name: ast.literal_eval(value)
                    for name, value in self._named(path, each, "Action")
                }
                pairs.append((call["name"], call["kwargs"]))
            found = Case(told["user_id"], told["instruction"], pairs, told.get("outputs", []))
        except (ValueError, KeyError, TypeError) as error:
            raise self._strange(path, f"has no plain Task in line {node.lineno}") from error
        texts = [found.user_id, found.instruction, *found.outputs, *(name for name, _ in pairs)]
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(arguments, dict) for _, arguments in pairs
        ):
            raise self._strange(path, f"has no plain Task in line {node.lineno}")
        return found

    def _named(self, path: Path, node: ast.expr, name: str) -> Iterator[tuple[str, ast.expr]]:
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == name
            and not node.args
        ):
            raise self._strange(path, f"has no plain {name} in line {node.lineno}")
        for each in node.keywords:
            if each.arg is not None:
                yield each.arg, each.value

    def table(self, name: str) -> dict[str, Any]:
        """Return one table, checked for the fields that tools read."""
        path = self.path / "data" / f"{name}.json"
        try:
            found = json.loads(self._text(path))
        except (ValueError, RecursionError) as error:
            raise self._strange(path, "is not JSON") from error
        needed = TABLES[self.domain][name]
        if not isinstance(found, dict) or not found:
            raise self._strange(path, "is not a table of records")
        for key, record in found.items():
            lacking = [
                each for each in needed if not isinstance(record, dict) or each not in record
            ]
            if lacking:
                raise self._strange(path, f"has no {lacking[0]} in record {key}")
        return found

    def _text(self, path: Path) -> str:
        try:
            return self._bytes(path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._strange(path, "is not UTF-8 text") from error

    def _bytes(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._strange(path, "cannot be read") from error

    def _strange(self, path: Path, fault: str) -> UsageError:
        name = f"{self.domain}/{path.relative_to(self.path).as_posix()}"
        return UsageError(
            f"{self.who}: {name} in {self.data} {fault}; data must be the folder tau_bench/envs"
            f" of a checkout of {SOURCE}, not of its successors."
        )


@functools.lru_cache(maxsize=4)
def _records(folder: Folder, stamps: tuple[tuple[str, int], ...]) -> Records:
    return Records({table: folder.table(table) for table in TABLES[folder.domain]})
