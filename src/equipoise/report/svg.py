"""SVG in words: elements whose text is escaped, places in per cent, paths of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from equipoise.report._text import visible


def level(y: float, cls: str) -> Markup:
    """Return a line across the plot at one height."""
    return tag("line", x1="8%", x2="100%", y1=y, y2=y, cls=cls)


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the ``d`` of a path through points."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def percent(value: float) -> str:
    """Return a length in per cent."""
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def upright(x: float, top: float, bottom: float, cls: str) -> Markup:
    """Return a vertical line."""
    return tag("line", x1=percent(x), x2=percent(x), y1=top, y2=bottom, cls=cls)


def text(x: float, y: float, text: str, anchor: str, cls: str) -> Markup:
    """Return a line of text."""
    return tag("text", [text], x=percent(x), y=y, text_anchor=anchor, cls=cls)


def picture(parts: Sequence[Markup], height: float, label: str, cls: str) -> Markup:
    """Return the whole picture; without a label it is hidden from those who do not see it."""
    known = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return tag("svg", parts, width="100%", height=height, cls=cls, **known)


def tag(name: str, inside: Sequence[str] = (), **attributes: Any) -> Markup:
    """Return an element; ``inside`` is escaped unless it is markup."""
    said = "".join(
        f' {key.replace("cls", "class").replace("_", "-")}="{escape(visible(str(value)))}"'
        for key, value in attributes.items()
    )
    body = "".join(escape(each if isinstance(each, Markup) else visible(each)) for each in inside)
    return Markup(f"<{name}{said}>{body}</{name}>" if body else f"<{name}{said}/>")  # noqa: S704
