"""What identifies data: the hash of its content, the ids of its rows, their splits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equipoise.core import Split, UsageError
from equipoise.kit.data import builtin, hub
from equipoise.kit.data.source import existing, scheme, unreadable

_known: dict[tuple[str, int, int], str] = {}


def content_hash(data: str) -> Any:
    """Return, as JSON, what identifies the content of ``data`` whatever its place.

    Parameters
    ----------
    data
        As in `read_rows`; a file of any kind, or a folder of ``.txt`` files.

    Returns
    -------
    Json
        A file: the SHA-256 of its bytes. A folder: that of its ``.txt`` names
        and bytes. ``builtin:``: name, package with version, hash of the rows.
        ``hf:``: name, split and hash of the rows.

    Raises
    ------
    UsageError
        If there is no such data.
    """
    kind, name = scheme(data)
    if kind == "builtin":
        return builtin.content(name)
    if kind == "hf":
        return hub.content(data)
    path = existing(data)
    try:
        if not path.is_dir():
            return _file_hash(path)
        digest = hashlib.sha256()
        for each in sorted(path.glob("*.txt")):
            digest.update(f"{each.name}\0{_file_hash(each)}\n".encode())
        return digest.hexdigest()
    except OSError as error:
        raise unreadable(data, error) from error


def _file_hash(path: Path) -> str:
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _known:
        with path.open("rb") as file:
            _known[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _known[key]


def unit_id(row: Mapping[str, Any], index: int) -> str:
    """Return the id of a row: its ``id`` column as text, else its number from 0.

    Both stay as they are when rows are appended. Insert or delete rows in the
    middle only when they carry ids of their own.

    Examples
    --------
    >>> unit_id({"id": 7}, 0), unit_id({"text": "a"}, 12)
    ('7', '000012')
    """
    found = row.get("id")
    return f"{index:06d}" if found is None else str(found)


def split_of(key: str, *, train: float, calibration: float = 0.0, seed: int = 0) -> Split:
    """Return the split of a key, by a hash: the same in every process and file order.

    Parameters
    ----------
    key
        What must stay together: a unit's id, a cluster, or a row's content.
    train, calibration
        Fractions in [0, 1]; the rest is ``test``.
    seed
        Another seed, another split.

    Examples
    --------
    >>> {split_of(str(n), train=0.5, calibration=0.5) for n in range(50)} <= {
    ...     "train", "calibration"}
    True
    """
    if not (train >= 0 and calibration >= 0 and train + calibration <= 1):
        raise UsageError(
            f"Fractions of train and calibration must be from 0 to 1 together, "
            f"got {train!r} and {calibration!r}."
        )
    place = position(key, seed)
    if place < train:
        return "train"
    return "calibration" if place < train + calibration else "test"


def position(key: str, seed: int = 0) -> float:
    """Return the place of a key in [0, 1), uniform over keys."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
