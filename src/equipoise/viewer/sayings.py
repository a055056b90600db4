"""Text, messages and artifacts of one unit, laid out for a template; none of it is trusted."""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from equipoise.report import charts
from equipoise.report._text import as_text, clip, visible
from equipoise.store._blobs import Large

MOST = 60_000
"""Most characters of one text on a page; the download has the rest."""

PICTURES = 2_000_000
"""Most characters of one message's pictures."""

TOKENS = 4_000
"""Most tokens that are shaded."""

_FENCE = re.compile(
    r"^```([\w+#.-]{0,20})[^\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+\Z")
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


def rich(text: str, most: int = MOST) -> Markup:
    """Return text as HTML, at most so much: fenced code in blocks, everything escaped.

    Examples
    --------
    >>> rich("See:\\n```python\\nprint(1 < 2)\\n```")
    Markup('<span class="prose-text">See:\\n</span><pre class="code" data-language="python"
    tabindex="0"><code>print(1 &lt; 2)\\n</code></pre>')
    """
    text = visible(clip(text, most))
    parts, at = [], 0
    for found in _FENCE.finditer(text):
        parts.append(_plain(text[at : found.start()]))
        block = Markup('<pre class="code" data-language="{}" tabindex="0"><code>{}</code></pre>')
        parts.append(block.format(found.group(1), found.group(2)))
        at = found.end()
    parts.append(_plain(text[at:]))
    return Markup("").join(parts)


def _plain(text: str) -> Markup:
    return Markup('<span class="prose-text">{}</span>').format(text) if text.strip() else Markup("")


def given(content: Any) -> Markup | dict[str, Markup]:
    """Return what a unit asks or holds as right; field by field where it has several."""
    if not isinstance(content, Mapping) or len(content) < 2:
        return _field(content)
    return {str(name): _field(value) for name, value in content.items()}


def _field(value: Any) -> Markup:
    text = as_text(value)
    if isinstance(value, str) or text[:1] not in ("{", "["):
        return rich(text)
    block = Markup('<pre tabindex="0"><code>{}</code></pre>')
    return block.format(visible(clip(text, MOST)))


def gist(content: Any) -> str:
    """Return what a line shows of a unit: of several fields of data, the longest text.

    Examples
    --------
    >>> gist({"id": "u1", "ask": "How much did I pay?", "answers": {}})
    'How much did I pay?'
    """
    text = as_text(content)
    if isinstance(content, Mapping) and text.startswith("{"):
        text = max((each for each in content.values() if isinstance(each, str)), key=len,
                   default=text)  # fmt: skip
    return text


def conversation(messages: Sequence[Any], room: int = 5 * MOST) -> list[dict[str, Any]]:
    """Return a transcript as turns: who, what was said, pictures, calls of tools.

    When so many characters are shown, the rest is counted.
    """
    turns: list[dict[str, Any]] = []
    for place, each in enumerate(messages):
        if room <= 0:
            left = len(messages) - place
            said = f"{left:,} more message{'s are' if left > 1 else ' is'} in the store."
            return [*turns, _turn({"role": "…", "content": said}, MOST)]
        turn = _turn(each, room)
        room -= len(turn["said"]) + sum(map(len, turn["pictures"]))
        room -= sum(len(call["given"]) for call in turn["calls"])
        turns.append(turn)
    return turns


def _turn(message: Any, room: int) -> dict[str, Any]:
    most = min(MOST, max(room, 1_000))
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping):
        message = {"role": "?", "content": as_text(message)}
    texts: list[str] = []
    pictures: list[str] = []
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, Mapping) and part.get("type") == "image_url":
            address = part.get("image_url")
            address = address.get("url") if isinstance(address, Mapping) else address
            if not (isinstance(address, str) and _PICTURE.match(address)):
                texts.append(f"[picture at {clip(str(address), 200)}]")
            elif len(address) + sum(map(len, pictures)) <= PICTURES:
                pictures.append(address)
            else:
                texts.append(f"[picture of {len(address):,} characters, too large to show]")
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif part is not None:
            texts.append(as_text(part))
    return {
        "role": clip(str(message.get("role", "?")), 100),
        "name": clip(str(message.get("name") or ""), 200),
        "said": shaded(message) or _said("\n".join(texts), most),
        "shaded": bool(_log_probs(message)),
        "pictures": pictures,
        "calls": [_call(each, most) for each in calls[:100]] if isinstance(calls, list) else [],
    }


def _said(text: str, most: int) -> Markup:
    """Return text as HTML, the data that tools answer with set as data."""
    if text[:1] in ("{", "[") and len(text) <= most:
        with contextlib.suppress(ValueError, RecursionError):
            return _field(json.loads(text))
    return rich(text, most)


def _call(call: Any, most: int) -> dict[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    told = function if isinstance(function, Mapping) else {"arguments": call}
    given = told.get("arguments")
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            given = json.loads(given)
    if not isinstance(given, str):
        given = json.dumps(given, ensure_ascii=False, indent=1, default=str)
    return {"name": clip(str(told.get("name", "?")), 200), "given": clip(given, most)}


def _log_probs(message: Mapping[str, Any]) -> list[tuple[str, float]]:
    found = message.get("logprobs")
    tokens = found.get("content") if isinstance(found, Mapping) else None
    if not isinstance(tokens, list):
        return []
    return [
        (str(each["token"]), float(each["logprob"]))
        for each in tokens
        if isinstance(each, Mapping)
        and isinstance(each.get("logprob"), int | float)
        and "token" in each
    ]


def shaded(message: Mapping[str, Any]) -> Markup | None:
    """Return an answer token by token, the less likely the deeper shaded; None without log-probs.

    Examples
    --------
    >>> shaded({"logprobs": {"content": [{"token": "Hi", "logprob": -1.2}]}})
    Markup('<span class="p2" title="30.1%, log-probability -1.20">Hi</span>')
    """
    tokens = _log_probs(message)
    if not tokens:
        return None
    span = Markup('<span class="p{}" title="{}, log-probability {:.2f}">{}</span>')
    text = Markup("").join(
        span.format(_depth(value), f"{np.exp(value):.1%}", value, visible(clip(token, 200)))
        for token, value in tokens[:TOKENS]
    )
    left = len(tokens) - TOKENS
    return text + f" … ({left:,} tokens more)" if left > 0 else text


def _depth(log_prob: float) -> int:
    """Return 0 for a token that was nearly sure to 5 for one that was not to be expected."""
    return int(np.searchsorted([0.1, 0.7, 1.6, 3.0, 5.0], -log_prob))


@dataclass(frozen=True)
class Exhibit:
    """An artifact as a page shows it."""

    name: str
    about: str
    picture: str = ""
    chart: Markup | None = None
    text: str = ""


def exhibits(artifacts: Mapping[str, bytes | np.ndarray | Large]) -> list[Exhibit]:
    """Return what can be shown of artifacts; every one can be downloaded."""
    return [_exhibit(name, value) for name, value in artifacts.items()]


def picture_type(data: bytes) -> str | None:
    """Return the media type of a picture that is safe to show, by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":  # sound and films are in RIFF too
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)


def _exhibit(name: str, value: bytes | np.ndarray | Large) -> Exhibit:
    if isinstance(value, Large):
        about = f"{value.stored:,} bytes as it is kept"
        return Exhibit(name, about, picture=picture_type(value.head) or "")
    if isinstance(value, bytes):
        about = f"{len(value):,} bytes"
        if kind := picture_type(value):
            return Exhibit(name, about, picture=kind)
        try:
            start = codecs.getincrementaldecoder("utf-8")().decode(value[: 4 * MOST])
            return Exhibit(name, about, text=visible(clip(start, 4_000)))
        except UnicodeDecodeError:
            return Exhibit(name, about)
    about = f"{value.dtype}, shape {'×'.join(map(str, value.shape)) or 'scalar'}"
    if value.dtype.kind not in "biuf" or value.size == 0:
        return Exhibit(name, about, text=clip(as_text(value.ravel()[:200].tolist()), 2_000))
    if value.ndim == 1 and value.size > 1:
        every = max(1, value.size // 400)
        points = [(i, float(v)) for i, v in enumerate(value) if i % every == 0 and np.isfinite(v)]
        return Exhibit(name, about, chart=charts.curve(points, f"{name}, {about}"))
    return Exhibit(
        name, about, text=clip(np.array2string(value, precision=4, threshold=400), 4_000)
    )
