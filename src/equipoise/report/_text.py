"""Text from models and data, made safe to read: nothing in it hides or misleads."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equipoise.core import UsageError

# Control characters, invisible ones, those that turn the direction of text,
# halves of characters, and noncharacters. Joiners stay: emoji, Persian and
# Hindi are written with them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    r"""Return text with every character that hides, turned into one that shows.

    Newlines and tabs stay.

    Examples
    --------
    >>> visible("a\x1b[31m\u202eb\r\n")
    'a␛[31m⟨U+202E⟩b\n'
    """
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def _shown(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def clip(text: str, most: int) -> str:
    """Return the start of a long text, and say how much is left out.

    Examples
    --------
    >>> clip("one two three", 7)
    'one two … (6 characters more)'
    """
    left = len(text) - most
    return text if left <= 0 else f"{text[:most].rstrip()} … ({left:,} characters more)"


def as_text(value: Any) -> str:
    """Return what a unit asks, holds as right, or got as an answer, as people read it.

    Examples
    --------
    >>> as_text({"question": "6 x 7?"})
    '6 x 7?'
    >>> as_text([{"role": "user", "content": "Hello"}])
    'user: Hello'
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        if len(value) == 1 and isinstance(only := next(iter(value.values())), str):
            return only
        if all(isinstance(each, str | int | float | None) for each in value.values()):
            return "\n".join(f"{key}: {as_text(each)}" for key, each in value.items())
    if isinstance(value, list) and value:
        if all(isinstance(each, Mapping) and "role" in each for each in value):
            return "\n".join(f"{each['role']}: {as_text(each.get('content'))}" for each in value)
        if all(isinstance(each, str | int | float) for each in value):
            return "\n".join(map(as_text, value))
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def one_line(text: str, most: int) -> str:
    """Return the start of a text on one line."""
    flat = " ".join(text[: 4 * most].split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all, making the folders it needs.

    Raises
    ------
    UsageError
        If it cannot be written.
    """
    data = text.encode()
    target = Path(path).resolve()
    beside = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not (target.is_file() or target.is_dir()):
            target.write_bytes(data)  # a pipe or a device
            return
        beside.write_bytes(data)
        beside.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        said = error.strerror or str(error)
        raise UsageError(
            f"The report {path} cannot be written: {said}; give a path elsewhere."
        ) from error
