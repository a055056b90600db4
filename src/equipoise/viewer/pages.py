"""Templates to pages: one environment, shared with the report."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, FileSystemLoader
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from equipoise import __version__
from equipoise.report import html, theme

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

HERE = Path(__file__).parent
VENDORED = HERE / "static" / "vendor"

AS_IT_IS = {"content-encoding": "identity"}
"""For what must not be packed on its way: streams, and files that are large or packed already."""


@functools.cache
def environment() -> Environment:
    """Return the report's environment with the viewer's templates before its own."""
    found = html.environment()
    found.loader = ChoiceLoader([FileSystemLoader(HERE / "templates"), found.loader])  # type: ignore[list-item]
    found.globals["asset"] = asset
    found.globals["version"] = __version__
    return found


@functools.cache
def style() -> bytes:
    """Return the one style sheet: the palettes, the report's rules and the viewer's."""
    parts = (
        theme.css(choice=True),
        (html.TEMPLATES / "report.css").read_text(encoding="utf-8"),
        (HERE / "static" / "viewer.css").read_text(encoding="utf-8"),
    )
    return "".join(parts).encode()


@functools.cache
def asset(name: str) -> str:
    """Return the address of a static file; it changes with the content, so that it may be kept."""
    if name == "style.css":
        data = style()
    else:
        file = HERE / "static" / name
        data = file.read_bytes() if file.is_file() else b""
    return f"/static/{name}?v={hashlib.sha256(data).hexdigest()[:12]}"


def page(request: Request, template: str, *, code: int = 200, **shown: Any) -> Response:
    """Return a page, or the part of it that htmx asked for.

    A template's block ``part`` alone is sent to requests of htmx.
    """
    found = environment().get_template(template)
    context = {"request": request, "path": request.url.path, "query": _Query(request), **shown}
    partial = request.headers.get("hx-request") == "true" and "part" in found.blocks
    if partial:
        text = "".join(found.blocks["part"](found.new_context(context)))
    else:
        text = found.render(context)
    headers = {"cache-control": "no-store", "vary": "HX-Request"}
    return HTMLResponse(text, code, headers)


def refusal(request: Request, status: int, sentence: str) -> Response:
    """Return a page that says in one sentence what is wrong."""
    if request.headers.get("hx-request") == "true":
        return HTMLResponse(
            Markup('<p class="status bad" role="alert">{}</p>').format(sentence), status
        )
    return page(request, "refusal.html.j2", code=status, sentence=sentence)


class _Query:
    """The state of a view, which is all in its address."""

    def __init__(self, request: Request) -> None:
        self.path = request.url.path
        self.given = dict(request.query_params)

    def get(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.given.get(name, default)

    def __call__(self, **changes: Any) -> str:
        """Return this view's address with some parameters changed, empty ones left out."""
        kept = {k: v for k, v in {**self.given, **changes}.items() if v not in ("", None)}
        return f"{self.path}?{urlencode(kept)}" if kept else self.path


def as_json(value: Any) -> Markup:
    """Return JSON that may stand inside a page's ``<script type="application/json">``."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 - nothing in it can end the element
