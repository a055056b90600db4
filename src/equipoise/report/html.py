"""The HTML page: one file that opens offline, asks for nothing and runs no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.report._text import visible, write_file

if TYPE_CHECKING:
    from jinja2 import Environment

    from equipoise.store import Store

TEMPLATES = Path(__file__).parent / "templates"


def write(row: Mapping[str, Any], store: Store, path: Path) -> None:
    """Write the page of a run.

    Parameters
    ----------
    row
        A result's JSON.
    store
        Where the run's outcomes are; a run that is not there gets a page
        without its units.
    path
        Of the file; folders are made, an older page is replaced.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    write_file(path, render(row, store))


def render(row: Mapping[str, Any], store: Store) -> str:
    """Return the page of a run as text."""
    from markupsafe import Markup

    from equipoise import __version__
    from equipoise.report import theme
    from equipoise.report._edits import without_edits
    from equipoise.report._page import page
    from equipoise.report._units import gather

    style = theme.css() + (TEMPLATES / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page(row),
            found=gather(without_edits(row), store),
            style=Markup(style),  # noqa: S704 - our own file
            digest=digest,
            version=__version__,
        )
    )


def environment() -> Environment:
    """Return the templates' environment: everything escaped, nothing hidden, no gap unseen."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    from equipoise.report.words import number

    def score(value: float | None) -> str:
        """Return a score, a whole one without decimals."""
        return f"{value:.0f}" if value in (0, 1, -1) else number(value)

    def shown(value: Any) -> Any:
        """Make hidden characters visible in everything that is printed."""
        if isinstance(value, str) and not isinstance(value, Markup):
            return visible(value)
        return "" if value is None else value

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.filters["score"] = score
    return environment
