"""Turns outcomes into bytes and back: safe text, packed JSON, content addresses."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from equipoise.core import Json, Message, UsageError

DAMAGED = (UnicodeDecodeError, json.JSONDecodeError, zlib.error)
"""What reading bytes that nobody wrote may raise."""

_WORTH_DEFLATING = 256  # bytes; below, deflating costs more time than it saves room
_WORTH_SHARING = 200  # characters; a shorter message is smaller than a reference and its row


def _known(value: Any) -> Any:
    """Make plain JSON of what methods put in outputs without thinking of JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, Sequence) else str(value)


def _strict(value: Any) -> Any:
    """Rebuild a value so that nothing in it lies outside JSON; NaN and infinities become null."""
    if isinstance(value, Mapping):
        return {str(key): _strict(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    return _strict(_known(value))


def _encoder(ascii_only: bool) -> Callable[[Any], str]:
    return json.JSONEncoder(
        ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"), default=_known
    ).encode


_encode, _encode_ascii = _encoder(False), _encoder(True)


def dumps(value: Json) -> str:
    """Return compact JSON that is valid UTF-8 and free of NUL, whatever a model wrote."""
    try:
        text = _encode(value)
    except (TypeError, ValueError):
        try:
            value = _strict(value)
            text = _encode(value)
        except RecursionError:
            return '"(nested too deeply to keep)"'
    except RecursionError:
        return '"(nested too deeply to keep)"'
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate; as an escape it survives
        return _encode_ascii(value)
    return text


def deflate(data: bytes) -> bytes | None:
    """Return the data deflated, or None where that does not help."""
    if len(data) < _WORTH_DEFLATING:
        return None
    # A small window takes a third of the time to set up. Neither window makes a
    # first byte that JSON could begin with, which is how `unpack` tells.
    small = zlib.compress(data, 6, 12 if len(data) <= 4096 else 15)
    return small if len(small) < len(data) else None


def pack(value: Json) -> bytes | None:
    """Return JSON as bytes, deflated where that helps; None stays None."""
    if value is None:
        return None
    data = dumps(value).encode()
    return deflate(data) or data


def unpack(data: bytes | None) -> Json:
    """Undo `pack`."""
    if data is None:
        return None
    return json.loads(zlib.decompress(data) if data[:1] in b"xH" else data)


def text(value: str) -> str:
    """Return text that any database takes: lone surrogates and NUL as escapes."""
    if not value.isascii():
        value = value.encode("utf-8", "backslashreplace").decode()
    return value.replace("\0", "\\x00") if "\0" in value else value


def text_or_none(value: object) -> str | None:
    """Return safe text of a value, None staying None."""
    return None if value is None else text(str(value))


def score_key(name: str) -> str:
    """Return a score's name as it stands between quotes in JSON.

    Quotes and backslashes are spelt as code points, so that a path into the
    JSON can hold them.
    """
    spelt = {'\\"': "\\u0022", "\\\\": "\\u005c"}
    return re.sub(r'\\["\\]', lambda found: spelt[found[0]], dumps(text(name))[1:-1])


def scores_text(scores: Mapping[str, float], quoted: dict[str, str]) -> str:
    """Return scores as JSON, exact to the last bit; NaN is left out.

    ``quoted`` remembers names as JSON strings from call to call.
    """
    parts = []
    for name, value in scores.items():
        number = float(value)
        if number != number:
            continue
        key = quoted.get(name)
        if key is None:
            key = quoted[name] = f'"{score_key(name)}":'
        if number in (math.inf, -math.inf):  # JSON has no word for it, but it has the number
            parts.append(f"{key}{'' if number > 0 else '-'}1e999")
        else:
            parts.append(f"{key}{number!r}")
    return "{" + ",".join(parts) + "}"


def digest(data: bytes) -> str:
    """Return the SHA-256 of data, the name under which it is kept."""
    return hashlib.sha256(data).hexdigest()


def transcript(messages: Sequence[Message], blobs: dict[str, bytes]) -> bytes | None:
    """Return a packed transcript; long messages go to ``blobs``, each once."""
    if not messages:
        return None
    whole = dumps(messages if isinstance(messages, list) else list(messages))
    if len(whole) >= _WORTH_SHARING:
        parts = []
        for message in messages:
            part = dumps(message)
            if len(part) >= _WORTH_SHARING:
                data = part.encode()
                name = digest(data)
                blobs[name] = data
                part = f'"{name}"'
            parts.append(part)
        whole = f"[{','.join(parts)}]"
    data = whole.encode()
    return deflate(data) or data


def artifacts(
    found: Mapping[str, bytes | np.ndarray], blobs: dict[str, bytes], unit: str
) -> str | None:
    """Return JSON that names the blobs which hold a unit's artifacts."""
    if not found:
        return None
    named = {}
    for name, value in found.items():
        if isinstance(value, np.ndarray):
            buffer = io.BytesIO()
            try:
                np.save(buffer, value, allow_pickle=False)
            except ValueError as error:
                raise UsageError(
                    f'Artifact "{name}" of unit "{unit}" is an array of {value.dtype};'
                    " give numbers, truth values or text."
                ) from error
            kind, data = "array", buffer.getvalue()
        elif isinstance(value, (bytes, bytearray, memoryview)):
            kind, data = "bytes", bytes(value)
        else:
            raise UsageError(
                f'Artifact "{name}" of unit "{unit}" must be bytes or an array,'
                f" got {type(value).__name__}."
            )
        key = digest(data)
        blobs[key] = data
        named[name] = {"digest": key, "kind": kind}
    return dumps(named)


def artifact(data: bytes, kind: str) -> bytes | np.ndarray:
    """Undo what `artifacts` did to one of them."""
    if kind == "bytes":
        return data
    loaded: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return loaded
