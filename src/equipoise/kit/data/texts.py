"""Documents of prose, for perplexity and calibration."""

from __future__ import annotations

from pathlib import Path

from equipoise.core import UsageError
from equipoise.kit.data.formats import text_of
from equipoise.kit.data.rows import kind_of, load
from equipoise.kit.data.source import existing, scheme, unreadable


def read_texts(data: str, *, column: str = "text") -> list[str]:
    """Return the documents of a data set, in order.

    Parameters
    ----------
    data
        As in `read_rows`, or a ``.txt`` file (one document), or a folder of
        ``.txt`` files (one document each, by name).
    column
        Column that holds the text, where there are columns. Rows that are
        blank, as WikiText has between paragraphs, are left out.

    Raises
    ------
    UsageError
        If there is no text, or it is not UTF-8; the sentence names the file.

    Examples
    --------
    >>> len(read_texts("builtin:sklearn_descriptions")) > 10
    True
    """
    kind, _ = scheme(data)
    if kind == "file":
        path = existing(data)
        if path.is_dir():
            return _folder(data, path)
        if path.name.lower().removesuffix(".gz").endswith(".txt"):
            return _documents(data, [_text(data, path)])
    source = load(data, columns=[column])
    found = source.rows[0][column]
    if not isinstance(found, str):
        raise UsageError(f'{data}: "{column}" must be text, got {kind_of(found)}.')
    return _documents(data, [row[column] for row in source.rows])


def _folder(data: str, folder: Path) -> list[str]:
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise UsageError(f"{data}: the folder has no .txt files; name a file, or hf:{data}.")
    return _documents(data, [_text(str(Path(data) / path.name), path) for path in paths])


def _text(data: str, path: Path) -> str:
    try:
        return text_of(data, path)
    except OSError as error:
        raise unreadable(data, error) from error


def _documents(data: str, texts: list[str]) -> list[str]:
    found = [text for text in texts if text.strip()]
    if not found:
        raise UsageError(f"{data}: there is no text in it.")
    return found
