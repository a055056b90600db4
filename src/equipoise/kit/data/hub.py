"""Data sets of the Hugging Face hub or in its folder layout, by the package datasets."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from equipoise.core import UsageError, nearest
from equipoise.kit.data.source import Row, one_line


def rows(data: str, limit: int | None = None) -> list[Row]:
    """Return rows of ``hf:NAME_OR_FOLDER[:SPLIT]`` or ``hf:NAME:CONFIG:SPLIT``."""
    found = _load(data)
    if limit is not None:
        found = found.select(range(min(limit, len(found))))
    return [{name: _plain(value) for name, value in row.items()} for row in found]


@functools.lru_cache(maxsize=8)
def content(data: str) -> dict[str, Any]:
    """Return what identifies the set: its split, and the hash of its rows."""
    digest = hashlib.sha256()
    for row in rows(data):
        digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True, default=repr).encode())
    return {"hf": digest.hexdigest()}


@functools.lru_cache(maxsize=4)
def _load(data: str) -> Any:
    name, config, split = _parse(data)
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            f"{data}: needs the package datasets, which is not installed: "
            f"pip install 'equipoise[datasets]'."
        ) from error
    folder = Path(name).expanduser()
    try:
        if folder.is_dir() and any(
            (folder / each).exists() for each in ("dataset_dict.json", "state.json")
        ):
            found = datasets.load_from_disk(str(folder))
        else:
            place = str(folder) if folder.is_dir() else name
            found = datasets.load_dataset(place, config)
    except Exception as error:  # the package raises many kinds, all mean "not to be had"
        where = "" if folder.is_dir() else "; without a network name a local folder or file"
        raise UsageError(f"{data}: cannot be loaded ({one_line(error)}){where}.") from error
    return _one_split(data, found, split)


def _parse(data: str) -> tuple[str, str | None, str | None]:
    name, *rest = data.removeprefix("hf:").split(":")
    if not name or len(rest) > 2 or not all(rest):
        raise UsageError(
            f"{data}: write hf:NAME_OR_FOLDER, hf:NAME_OR_FOLDER:SPLIT or hf:NAME:CONFIG:SPLIT."
        )
    return name, (rest[0] if len(rest) == 2 else None), (rest[-1] if rest else None)


def _one_split(data: str, found: Any, split: str | None) -> Any:
    if not isinstance(found, dict):
        if split is None or split == str(found.split):
            return found
        raise UsageError(f'{data}: has one split only; leave out ":{split}".')
    names = list(found)
    if split is None:
        if len(names) == 1:
            return found[names[0]]
        raise UsageError(f"{data}: name a split, as in {data}:{names[-1]}: {', '.join(names)}.")
    if split not in found:
        raise UsageError(
            f'{data}: there is no split "{split}".{nearest(split, names)} '
            f"There are: {', '.join(names)}."
        )
    return found[split]


def _plain(value: Any) -> Any:
    """Make dates text; leave what JSON has."""
    return value.isoformat() if hasattr(value, "isoformat") else value
