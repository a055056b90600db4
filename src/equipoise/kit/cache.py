"""The folder for what can be made again, and hashes of files that are remembered there."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_BLOCK = 1 << 20
_REMEMBERED = 64 << 20  # smaller files are hashed faster than they are looked up twice


def cache_folder() -> Path:
    """Return the cache folder; it is not created.

    ``EQUIPOISE_CACHE`` names it, else it is ``equipoise`` under
    ``XDG_CACHE_HOME``, else under ``~/.cache``. Deleting it loses time only.
    """
    named = os.environ.get("EQUIPOISE_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "equipoise"


def file_hash(path: Path | str) -> str:
    """Return the SHA-256 of a file.

    The hash of a large file is remembered by its path, size and time of
    change, in this process and in the cache folder.
    """
    found = Path(path).resolve()
    stat = found.stat()
    return _hash(found, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _hash(path: Path, size: int, changed: int) -> str:
    if size < _REMEMBERED:
        return _digest(path)
    key = hashlib.sha256(f"{path}\0{size}\0{changed}".encode()).hexdigest()
    note = cache_folder() / "hashes" / key
    try:
        text = note.read_text(encoding="ascii")
        if len(text) == 64 and set(text) <= set("0123456789abcdef"):
            return text
    except (OSError, UnicodeDecodeError):
        pass
    found = _digest(path)
    with suppress(OSError):  # a full or read-only disk costs the time to hash again, no more
        write_atomically(note, found.encode())
    return found


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that others see the whole of it or nothing; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
