"""Text, messages and artifacts of one unit, laid out for a template; none of it is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from equipoise.report import charts
from equipoise.report._text import as_text, clip, visible

MOST = 60_000
"""Most characters of one text on a page; the download has the rest."""

_FENCE = re.compile(
    r"^```([\w+#.-]{0,20})[^\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+\Z")
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def rich(text: str) -> Markup:
    """Return text as HTML: fenced code in blocks, everything escaped.

    Examples
    --------
    >>> rich("See:\\n```python\\nprint(1 < 2)\\n```")
    Markup('<span class="prose-text">See:\\n</span><pre class="code" data-language="python"
    tabindex="0"><code>print(1 &lt; 2)\\n</code></pre>')
    """
    text = visible(clip(text, MOST))
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


def conversation(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a transcript as turns: who, what was said, pictures, calls of tools."""
    return [_turn(each) for each in messages]


def _turn(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        message = {"role": "?", "content": as_text(message)}
    texts, pictures = [], []
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, Mapping) and part.get("type") == "image_url":
            address = part.get("image_url")
            address = address.get("url") if isinstance(address, Mapping) else address
            if isinstance(address, str) and _PICTURE.match(address):
                pictures.append(address)
            else:
                texts.append(f"[picture at {clip(str(address), 200)}]")
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif part is not None:
            texts.append(as_text(part))
    return {
        "role": str(message.get("role", "?")),
        "name": str(message.get("name") or ""),
        "said": shaded(message) or rich("\n".join(texts)),
        "shaded": bool(_log_probs(message)),
        "pictures": pictures,
        "calls": [_call(each) for each in message.get("tool_calls") or ()],
    }


def _call(call: Any) -> dict[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    given = function.get("arguments") if isinstance(function, Mapping) else call
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {"name": str(function.get("name", "?")), "given": clip(given, MOST)}
    name = function.get("name", "?") if isinstance(function, Mapping) else "?"
    text = json.dumps(given, ensure_ascii=False, indent=1, default=str)
    return {"name": str(name), "given": clip(text, MOST)}


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
    return Markup("").join(
        span.format(_depth(value), f"{np.exp(value):.1%}", value, visible(token))
        for token, value in tokens[:4_000]
    )


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


def exhibits(artifacts: Mapping[str, bytes | np.ndarray]) -> list[Exhibit]:
    """Return what can be shown of artifacts; every one can be downloaded."""
    return [_exhibit(name, value) for name, value in artifacts.items()]


def picture_type(data: bytes) -> str | None:
    """Return the media type of a picture that is safe to show, by its first bytes."""
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)


def _exhibit(name: str, value: bytes | np.ndarray) -> Exhibit:
    if isinstance(value, bytes):
        about = f"{len(value):,} bytes"
        if kind := picture_type(value):
            return Exhibit(name, about, picture=kind)
        try:
            return Exhibit(name, about, text=clip(value[: 4 * MOST].decode(), 4_000))
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
