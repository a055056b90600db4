"""Figures of measures: as SVG in the page, as Altair charts in a notebook.

>>> from equipoise.core import Figure, Series
>>> figure = Figure("Coverage", "1 − α", "coverage", (Series("split", (0.8, 0.9), (0.79, 0.91)),))
>>> draw(figure).count("<path")
1
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from equipoise.core import Figure, Series
from equipoise.report import svg
from equipoise.report.charts import MARGIN, Scale, tick_label

if TYPE_CHECKING:
    import altair as alt

_LEFT, _RIGHT = 12.0, 97.0  # per cent of the width
_TOP, _ROOM, _HEIGHT = 10.0, 200.0, 236.0
HUES = 7
"""How many hues there are before they come again; then lines are dashed."""


def panels(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the page shows of a result's figures, in its order."""
    found = []
    for each in row.get("figures") or ():
        figure = Figure.from_json(each["figure"])
        found.append(
            {
                "task": each["task"],
                "measure": each["measure"],
                "title": figure.title,
                "caption": figure.caption,
                "chart": draw(figure),
                "legend": [
                    {"name": name, "key": swatch(look, place)}
                    for name, look, place in _legend(figure)
                ],
            }
        )
    return found


def draw(figure: Figure) -> Markup:
    """Return a figure as SVG that stretches with the page."""
    drawn = [each for each in figure.series if len(each.x)]
    if not drawn:
        return Markup("")
    bars = [each for each in drawn if each.look == "bars"]
    wide = _bar_width(bars)
    across = _across(drawn, bars, wide)
    heights = [v for each in drawn for v in (*each.y, *each.low, *each.high)]
    up = Scale.over([*heights, *([0.0] if bars else [])])
    space = _Space(across, up)
    parts: list[Markup] = []
    for tick in up.ticks:
        parts.append(svg.level(space.y(tick), "grid"))
        parts.append(svg.text(_LEFT - 2, space.y(tick) + 4, tick_label(tick, up), "end", "tick"))
    for tick in across.ticks:
        parts.append(
            svg.text(
                space.x(tick),
                _ROOM + 16,
                f"{tick:g}" if bars else tick_label(tick, across),
                "middle",
                "tick",
            )
        )
    lines: list[Markup] = []  # paths know no per cent: they are drawn on 100 stretched units
    marks: list[Markup] = []
    turn = 0
    for each, place in zip(drawn, _places(figure, drawn), strict=True):
        if each.look == "bars":
            marks += _bars(each, space, place, turn, len(bars), wide)
            turn += 1
        elif each.look == "points" or len(each.x) == 1:  # a line of one point is not seen
            marks += _points(each, space, place)
        else:
            lines += _line(each, space, place)
    box: dict[str, Any] = {"viewBox": f"0 0 100 {_HEIGHT:g}", "preserveAspectRatio": "none"}
    parts.append(svg.tag("svg", lines, **box, x="0", y="0", width="100%", height=f"{_HEIGHT:g}"))
    parts += marks
    parts.append(svg.text(_LEFT, _TOP - 12, f"↑ {figure.y}", "start", "direction"))
    parts.append(svg.text(_RIGHT, _ROOM + 32, f"{figure.x} →", "end", "direction"))
    return svg.picture(parts, _HEIGHT, _said(figure), "chart")


def _across(drawn: Sequence[Series], bars: Sequence[Series], wide: float) -> Scale:
    """Return the scale across; bars have a tick each, or every second, third, ..."""
    found = sorted({x for each in drawn for x in each.x})
    if not bars:
        return Scale.over(found)
    every = math.ceil(len(found) / 12)
    ticks = tuple(found[::every])
    ends = found[0] - wide / 2, found[-1] + wide / 2
    return Scale(*ends, ticks if len(ticks) > 1 else (*ticks, ends[1]))


class _Space:
    """Where a point of the figure is: per cent across, pixels down."""

    def __init__(self, across: Scale, up: Scale) -> None:
        self.across, self.up = across, up

    def x(self, value: float) -> float:
        share = (self.across.at(value) - MARGIN) / (100 - 2 * MARGIN)
        return round(_LEFT + (_RIGHT - _LEFT) * share, 3)

    def y(self, value: float) -> float:
        share = (self.up.at(value) - MARGIN) / (100 - 2 * MARGIN)
        return round(_ROOM - (_ROOM - _TOP) * share, 2)


def _places(figure: Figure, drawn: Sequence[Series]) -> list[int]:
    """Return the hue of each series; one name has one hue, guides have none."""
    names = list(dict.fromkeys(each.name for each in figure.series if each.look != "guide"))
    return [-1 if each.look == "guide" else names.index(each.name) for each in drawn]


def _cls(name: str, place: int) -> str:
    if place < 0:
        return f"{name} guide"
    return f"{name} s{place % HUES}" + (" dashed" if place >= HUES else "")


def _steps(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
    """Return the corners of a curve that is constant to the right of each point."""
    found: list[tuple[float, float]] = []
    for here, height in zip(x, y, strict=True):
        if found:
            found.append((here, found[-1][1]))
        found.append((here, height))
    return found


def _line(each: Series, space: _Space, place: int) -> list[Markup]:
    def run(y: Sequence[float]) -> list[tuple[float, float]]:
        points = _steps(each.x, y) if each.look == "step" else list(zip(each.x, y, strict=True))
        return [(space.x(a), space.y(b)) for a, b in points]

    parts = []
    if len(each.low):
        around = [*run(each.high), *reversed(run(each.low))]
        parts.append(svg.tag("path", d=svg.path(around) + "Z", cls=_cls("band", place)))
    parts.append(svg.tag("path", d=svg.path(run(each.y)), cls=_cls("path", place)))
    return parts


def _whiskers(x: float, each: Series, index: int, space: _Space, place: int) -> list[Markup]:
    if not len(each.low):
        return []
    ends: dict[str, Any] = {
        "x1": svg.percent(x),
        "x2": svg.percent(x),
        "y1": space.y(each.low[index]),
        "y2": space.y(each.high[index]),
    }
    return [svg.tag("line", **ends, cls=_cls("whisker", place))]


def _points(each: Series, space: _Space, place: int) -> list[Markup]:
    parts = []
    for index, (x, y) in enumerate(zip(each.x, each.y, strict=True)):
        parts += _whiskers(space.x(x), each, index, space, place)
        parts.append(
            svg.tag(
                "circle", cx=svg.percent(space.x(x)), cy=space.y(y), r=3.5, cls=_cls("point", place)
            )
        )
    return parts


def _bar_width(bars: Sequence[Series]) -> float:
    """Return the room of all bars at one place, by the least distance between places."""
    xs = sorted({x for each in bars for x in each.x})
    gaps = [after - before for before, after in itertools.pairwise(xs)]
    return 0.8 * min(gaps, default=1.0) if xs else 0.0


def _bars(
    each: Series, space: _Space, place: int, turn: int, turns: int, wide: float
) -> list[Markup]:
    parts = []
    for index, (x, y) in enumerate(zip(each.x, each.y, strict=True)):
        left = space.x(x - wide / 2 + wide * turn / turns)
        right = space.x(x - wide / 2 + wide * (turn + 1) / turns)
        top, base = sorted((space.y(y), space.y(0.0)))
        box: dict[str, Any] = {
            "x": svg.percent(left),
            "width": svg.percent(0.94 * (right - left)),
            "y": top,
            "height": round(max(base - top, 0.5), 2),
        }
        parts.append(svg.tag("rect", **box, cls=_cls("column", place)))
        parts += _whiskers((left + right) / 2, each, index, space, place)
    return parts


def _legend(figure: Figure) -> list[tuple[str, str, int]]:
    """Return name, look and hue of each entry; a name stands once."""
    found: dict[str, tuple[str, str, int]] = {}
    for each, place in zip(figure.series, _places(figure, figure.series), strict=True):
        found.setdefault(each.name, (each.name, each.look, place))
    return list(found.values())


def swatch(look: str, place: int) -> Markup:
    """Return the small sign that stands for a series in the legend."""
    if look == "bars":
        inside = svg.tag("rect", x=2, y=3, width=14, height=8, cls=_cls("column", place))
    elif look == "points":
        inside = svg.tag("circle", cx=9, cy=7, r=3.5, cls=_cls("point", place))
    else:
        inside = svg.tag("path", d="M1 7L17 7", cls=_cls("path", place))
    return svg.tag("svg", [inside], width=18, height=14, cls="chart swatch", aria_hidden="true")


def _said(figure: Figure) -> str:
    """Return the figure in words, for those who do not see it."""
    ends = []
    for each in figure.series:
        if each.look != "guide" and len(each.x):
            ends.append(
                f"{each.name} from {each.y[0]:.3g} at {each.x[0]:.3g} "
                f"to {each.y[-1]:.3g} at {each.x[-1]:.3g}"
            )
    return f"{figure.title}: {figure.y} by {figure.x}; {'; '.join(ends[:12])}"


def chart(figure: Figure | Mapping[str, Any]) -> alt.TopLevelMixin:
    """Return a figure as an Altair chart, for notebooks and files.

    Parameters
    ----------
    figure
        A `Figure`, or an entry of ``figures`` in a result's JSON.

    Raises
    ------
    UsageError
        If Altair is not installed.

    Examples
    --------
    >>> figure = Figure("Coverage", "1 − α", "coverage", (Series("split", (0.8,), (0.79,)),))
    >>> chart(figure).to_dict()["title"]["text"]
    'Coverage'
    """
    try:
        import altair as alt
    except ImportError as error:
        from equipoise.core import UsageError

        raise UsageError(
            "Charts for notebooks are drawn by Altair: pip install 'equipoise[plots]'."
        ) from error
    if not isinstance(figure, Figure):
        figure = Figure.from_json(figure.get("figure", figure))
    names = [name for name, look, _ in _legend(figure) if look != "guide"]
    hue = alt.Color("series:N", title=None, sort=names)
    layers = []
    for each in figure.series:
        if len(each.x):
            layers += _layers(alt, each, figure, hue)
    title = alt.TitleParams(figure.title, subtitle=figure.caption.splitlines())
    return alt.layer(*layers).properties(title=title)


def _layers(alt: Any, each: Series, figure: Figure, hue: Any) -> list[Any]:
    ends = (each.low, each.high) if len(each.low) else ((math.nan,) * len(each.x),) * 2
    rows = [
        {"series": each.name, "x": x, "y": y, "low": low, "high": high}
        for x, y, low, high in zip(each.x, each.y, *ends, strict=True)
    ]
    zero = alt.Scale(zero=each.look == "bars")
    x = alt.X("x:Q", title=figure.x, scale=zero)
    y = alt.Y("y:Q", title=figure.y, scale=zero)
    base = alt.Chart(alt.Data(values=rows))
    if each.look == "guide":
        return [base.mark_line(strokeDash=[4, 4], color="gray").encode(x, y)]
    if each.look == "bars":
        place = alt.X("x:O", title=figure.x)
        side = alt.XOffset("series:N", sort=hue.to_dict()["sort"])
        found = [base.mark_bar().encode(place, y, hue, side)]
        ruled = base.mark_rule().encode(place, alt.Y("low:Q"), alt.Y2("high:Q"), side)
        return [*found, ruled] if len(each.low) else found
    shape = {"interpolate": "step-after"} if each.look == "step" else {}
    if each.look == "points":
        found = [base.mark_point().encode(x, y, hue)]
        span = base.mark_rule()
    else:
        found = [base.mark_line(**shape).encode(x, y, hue)]
        span = base.mark_area(opacity=0.2, **shape)
    low = alt.Y("low:Q", title=figure.y, scale=zero)
    return [span.encode(x, low, alt.Y2("high:Q"), hue), *found] if len(each.low) else found
