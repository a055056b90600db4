"""Outcomes, transcripts and runs, kept: one SQLite file by default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.store._store import Store

__all__ = ["Store", "default_store"]


def default_store() -> Path | str:
    """Return where outcomes are kept when nothing else is said.

    The environment variable ``EQUIPOISE_STORE`` (a path or a database URL),
    else ``.equipoise/store.sqlite`` in the current folder.
    """
    said = os.environ.get("EQUIPOISE_STORE", "")
    if "://" in said:
        return said
    return Path(said or Path(".equipoise") / "store.sqlite")


def __getattr__(name: str) -> Any:
    # SQLAlchemy takes a quarter of a second to import; only a store needs it.
    if name == "Store":
        from equipoise.store._store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_there(place: str | Path) -> bool:
    """Say whether there may be a store; a database is asked only when it is opened."""
    return "://" in str(place) or Path(place).exists()
