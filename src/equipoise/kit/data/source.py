"""Where rows came from, so that a complaint can name file and line, and paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from equipoise.core import UsageError, nearest

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Rows with their places.

    Parameters
    ----------
    data
        What the user wrote.
    rows
        One mapping a row.
    places
        Number of each row's line or row, from 1.
    word
        ``"line"`` or ``"row"``: what ``places`` count.
    """

    data: str
    rows: list[Row]
    places: Sequence[int]
    word: str = "row"

    def at(self, index: int) -> str:
        """Say where a row is, as in ``items.jsonl, line 3``."""
        return f"{self.data}, {self.word} {self.places[index]}"


def scheme(data: str) -> tuple[Literal["builtin", "hf", "file"], str]:
    """Split ``builtin:NAME`` and ``hf:NAME`` from paths."""
    if not data.strip():
        raise UsageError("No data given: name a file, hf:NAME_OR_FOLDER or builtin:NAME.")
    if data.startswith("builtin:"):
        return "builtin", data.removeprefix("builtin:")
    if data.startswith("hf:"):
        return "hf", data.removeprefix("hf:")
    return "file", data


def existing(data: str) -> Path:
    """Return the path of a file or folder that exists, or raise with the nearest names."""
    path = Path(data).expanduser()
    try:
        if path.exists():
            return path
        folder = path.parent
        if not folder.is_dir():
            raise UsageError(f"{data}: there is no folder {folder}.")
        names = [each.name for each in folder.iterdir()]
    except (OSError, ValueError) as error:
        raise UsageError(f"{data}: cannot be opened ({_reason(error)}).") from error
    raise UsageError(f"{data}: there is no such file.{nearest(path.name, names)}")


def unreadable(data: str, error: Exception) -> UsageError:
    """Return the error for a file that the system does not let us read."""
    return UsageError(f"{data}: cannot be read ({_reason(error)}).")


def one_line(error: BaseException) -> str:
    """Return another library's message as the inside of one sentence."""
    text = " ".join(str(error).split()).rstrip(".")
    return (text[:200] + " …") if len(text) > 200 else (text or type(error).__name__)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or one_line(error)
