"""Ratings of models as a table on the terminal and as a picture: SVG, PNG or a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from equipoise.core import UsageError
from equipoise.report import svg, theme, words
from equipoise.report._text import clip, visible, write_file
from equipoise.report.charts import Scale, tick_label

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = (".svg", ".png", ".html")

_ROW, _LETTER, _NAME = 26, 7.6, 28
"""Height of a line, width of a letter, letters of a name."""

Table = Mapping[str, Any]
"""One method: ``by``, ``level``, ``note`` and ``rows``, one a model, the best first."""


def print_tables(tables: Sequence[Table], console: Console, *, top: int | None = None) -> None:
    """Print models by the first method's rating; others stand beside it, where there is room."""
    if len(tables) == 1 or console.width < 22 + 25 * len(tables):
        for table in tables:
            if len(tables) > 1:
                console.print(table["by"], style="bold")
            _print_one(table, console, top)
    else:
        _print_beside(tables, console, top)


def _print_one(table: Table, console: Console, top: int | None) -> None:
    from rich.table import Table as Grid

    rows = table["rows"][:top]
    grid = Grid(box=None, padding=(0, 2, 0, 0))
    marks = _marks(rows, max(0, min(40, console.width - 62)))
    heads = ["rank", "model", "rating", interval_of(table)]
    for name in (*heads, *([""] if marks else []), "games", "wins"):
        right = name in ("rating", "games", "wins")
        grid.add_column(
            name,
            header_style="dim",
            justify="right" if right else "left",
            no_wrap=name != "model",
            overflow="fold",
        )
    for place, row in enumerate(rows):
        cells = [_rank(row), clip(visible(row["model"]), 40), *_value(row), *marks[place:][:1]]
        grid.add_row(*cells, f"{row['games']:,}", _share(row))
    console.print(grid)
    _print_rest(table, len(rows), console)
    if table["note"]:
        console.print(table["note"])


def _print_beside(tables: Sequence[Table], console: Console, top: int | None) -> None:
    from rich.table import Table as Grid

    rows = tables[0]["rows"][:top]
    grid = Grid(box=None, padding=(0, 2, 0, 0))
    grid.add_column("model", header_style="dim", overflow="fold")
    for table in tables:
        grid.add_column(table["by"], header_style="dim", justify="right", overflow="fold")
        grid.add_column("rank", header_style="dim", no_wrap=True)
    found = [{row["model"]: row for row in table["rows"]} for table in tables]
    for row in rows:
        cells = [clip(visible(row["model"]), 40)]
        for each in found:
            one = each[row["model"]]
            cells += [" ".join(_value(one)), _rank(one)]
        grid.add_row(*cells)
    console.print(grid)
    _print_rest(tables[0], len(rows), console)
    for table in tables:
        if table["note"]:
            console.print(f"{table['by']}: {table['note']}")


def _print_rest(table: Table, shown: int, console: Console) -> None:
    left = len(table["rows"]) - shown
    if left:
        console.print(f"and {left} more", style="dim")


def interval_of(table: Table) -> str:
    """Return what a method's intervals are called, such as ``95% interval``."""
    return f"{100 * table['level']:.9g}% interval"


def _rank(row: Mapping[str, Any]) -> str:
    low, high = row["rank_low"], row["rank_high"]
    return f"{low}" if low == high else f"{low}–{high}"


def _share(row: Mapping[str, Any]) -> str:
    return "–" if row["win_rate"] is None else f"{row['win_rate']:.0%}"


def _value(row: Mapping[str, Any]) -> tuple[str, str]:
    value, low, high = (row[key] for key in ("value", "low", "high"))
    if low is None or high is None:
        return _number(value), ""
    return _number(value), f"[{_number(low)}, {_number(high)}]"


def _number(value: float | None) -> str:
    """Return points without decimals and without commas, which an interval has enough of."""
    if value is not None and math.isfinite(value) and abs(value) >= 100:
        return f"{value:.0f}".replace("-", "−")
    return words.number(value)


def _marks(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Return each interval as a line of text with the rating on it."""
    if width < 8 or any(row["low"] is None or row["high"] is None for row in rows):
        return []
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    scale = (width - 1) / (high - low) if high > low else 0.0
    found = []
    for row in rows:
        start, at, end = (round((row[key] - low) * scale) for key in ("low", "value", "high"))
        line = [" "] * width
        line[start : end + 1] = "─" * (end + 1 - start)
        line[at] = "●"
        found.append("".join(line))
    return found


def write(
    tables: Sequence[Table], title: str, caption: str, path: Path, *, top: int | None = None
) -> None:
    """Write a picture of ratings with their intervals, a panel a method.

    Parameters
    ----------
    tables
        One a method; models stand in the order of the first.
    title, caption
        Above and below the picture.
    path
        Ends in ``.svg``, ``.png`` or ``.html``.
    top
        Show the first so many models.

    Raises
    ------
    UsageError
        If the file cannot be written, its name ends otherwise, or a PNG is asked for and what
        draws it is not installed.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: the name must end in {', '.join(FORMATS)}.")
    picture = draw(tables, "" if path.suffix == ".html" else title, caption, top=top)
    if path.suffix == ".svg":
        write_file(path, str(picture) + "\n")
    elif path.suffix == ".html":
        write_file(path, _page(tables, title, picture, top))
    else:
        try:
            import vl_convert
        except ImportError as error:
            raise UsageError(
                "PNG pictures are drawn by vl-convert: pip install 'equipoise[plots]'."
            ) from error
        try:
            path.write_bytes(vl_convert.svg_to_png(str(picture), scale=2))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def draw(
    tables: Sequence[Table], title: str = "", caption: str = "", *, top: int | None = None
) -> Markup:
    """Return the picture as a document of its own, light or dark as the reader prefers.

    Examples
    --------
    >>> row = {"model": "a", "value": 1000.0, "low": 990.0, "high": 1010.0}
    >>> draw([{"by": "elo_ratings", "rows": [row]}], "Ratings").count("<circle")
    1
    """
    names = [row["model"] for row in tables[0]["rows"]][:top]
    longest = max(len(clip(visible(name), _NAME)) for name in names)
    left = 24 + _LETTER * max(longest, 5)
    several = len(tables) > 1
    wide = 330 if several else 560
    top_of = (40 if title else 12) + (26 if several else 4)
    bottom = top_of + _ROW * len(names)
    lines = caption.splitlines()
    width, height = left + len(tables) * (wide + 20), bottom + 32 + 18 * len(lines)
    parts = [
        svg.tag("style", [Markup(_style())]),  # noqa: S704 - of the theme alone
        svg.tag("rect", width=f"{width:g}", height=height, cls="paper"),
    ]
    if title:
        parts.append(_text(16, 28, title, "start", "title"))
    for place, name in enumerate(names):
        y = top_of + _ROW * place + _ROW / 2
        parts.append(_text(left - 8, y + 4, clip(visible(name), _NAME), "end", "name"))
    for number, table in enumerate(tables):
        here = left + number * (wide + 20)
        rows = {row["model"]: row for row in table["rows"]}
        if several:
            parts.append(_text(here + 10, top_of - 10, table["by"], "start", "panel"))
        parts += _panel([rows[name] for name in names], here, wide, top_of)
    for place, line in enumerate(lines):
        parts.append(_text(16, bottom + 42 + 18 * place, line, "start", "tick"))
    said = "; ".join(
        f"{name} {_number(row['value'])}"
        for name, row in zip(names[:12], tables[0]["rows"], strict=False)
    )
    label = f"{title or 'Ratings'}: {said}"
    box: dict[str, Any] = {"viewBox": f"0 0 {width:g} {height:g}", "aria_label": label}
    return svg.tag(
        "svg", parts, xmlns="http://www.w3.org/2000/svg", width=f"{width:g}", height=f"{height:g}",
        role="img", **box,
    )  # fmt: skip


def _panel(rows: Sequence[Mapping[str, Any]], left: float, wide: float, top: float) -> list[Markup]:
    ends = [row[key] for row in rows for key in ("value", "low", "high")]
    scale = Scale.over([each for each in ends if each is not None], 4)
    bottom = top + _ROW * len(rows)

    def at(value: float) -> float:
        return round(left + 10 + (wide - 20) * (value - scale.low) / (scale.high - scale.low), 2)

    parts = []
    for tick in scale.ticks:
        x = at(tick)
        parts.append(svg.tag("line", x1=x, x2=x, y1=top, y2=bottom, cls="grid"))
        parts.append(_text(x, bottom + 18, tick_label(tick, scale), "middle", "tick"))
    for place, row in enumerate(rows):
        y = top + _ROW * place + _ROW / 2
        if row["low"] is not None and row["high"] is not None:
            span: dict[str, Any] = {"x1": at(row["low"]), "x2": at(row["high"]), "y1": y, "y2": y}
            parts.append(svg.tag("line", **span, cls="span"))
        if row["value"] is not None:
            parts.append(svg.tag("circle", cx=at(row["value"]), cy=y, r=5, cls="dot"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, cls: str) -> Markup:
    return svg.tag("text", [text], x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, cls=cls)


def _style() -> str:
    rules = []
    for palette in (theme.LIGHT, theme.DARK):
        hue = asdict(palette)
        rules.append(
            f".paper{{fill:{hue['panel']}}}.grid{{stroke:{hue['grid']}}}"
            f".span{{stroke:{hue['mark']};stroke-width:3;stroke-linecap:round;opacity:.55}}"
            f".dot{{fill:{hue['mark']}}}.title,.name,.panel{{fill:{hue['ink']}}}"
            f".tick{{fill:{hue['muted']}}}"
        )
    light, dark = rules
    font = "text{font:13px system-ui,'Noto Sans','Liberation Sans',sans-serif}"
    sizes = ".title{font-size:16px;font-weight:600}.panel{font-weight:600}.tick{font-size:12px}"
    return f"{font}{sizes}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def _page(tables: Sequence[Table], title: str, picture: Markup, top: int | None) -> str:
    """Return a page of its own: the picture, and the numbers of every method."""
    parts = [svg.tag("h1", [title]), picture]
    for table in tables:
        heads = ("rank", "model", "rating", interval_of(table), "games", "wins")
        lines = [svg.tag("tr", [svg.tag("th", [each]) for each in heads])]
        for row in table["rows"][:top]:
            cells = (_rank(row), row["model"], *_value(row), f"{row['games']:,}", _share(row))
            lines.append(svg.tag("tr", [svg.tag("td", [each]) for each in cells]))
        parts += [svg.tag("h2", [table["by"]]), svg.tag("table", lines)]
        if table["note"]:
            parts.append(svg.tag("p", [table["note"]]))
    look = theme.css() + (
        "body{font:15px var(--sans);background:var(--paper);color:var(--ink);max-width:60rem;"
        "margin:2rem auto;padding:0 1rem}svg{max-width:100%;height:auto}"
        "table{border-collapse:collapse}th,td{text-align:left;padding:.25rem 1rem .25rem 0;"
        "border-bottom:1px solid var(--rule);font-variant-numeric:tabular-nums}"
        "th{color:var(--muted);font-weight:500}"
    )
    head = [
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width">'),
        svg.tag("title", [title]),
        svg.tag("style", [Markup(look)]),  # noqa: S704 - of the theme alone
    ]
    whole = svg.tag("html", [svg.tag("head", head), svg.tag("body", parts)], lang="en")
    return f"<!doctype html>\n{whole}\n"
