"""Charts drawn as SVG by hand: they cost milliseconds and no memory to speak of.

A Vega renderer takes half a second and 70 MB, more than the run of a small
trial. These need none, follow the page's colours in light and dark, and
stretch with the window: everything across is in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from equipoise.report import svg

MARGIN = 3.0
"""Per cent of the width left free at both ends, for the labels there."""

BINS = 40

_ALIKE = 1e-12
"""Scores no further apart than this share of their size are one."""


@dataclass(frozen=True)
class Scale:
    """Maps values to per cent of a chart's width.

    Examples
    --------
    >>> Scale.over([0.0, 0.93]).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, values: Iterable[float | None], wanted: int = 5) -> Scale:
        """Return a scale that holds the values, with round ticks."""
        finite = [v for v in values if v is not None and math.isfinite(v)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if high - low <= 1e-12 * max(abs(low), abs(high), 1e-12):
            spread = max(abs(low) * 0.1, 1e-9) if low else 1.0
            low, high = low - spread, high + spread
        step = _round_step((high - low) / wanted)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))
        return cls(ticks[0], ticks[-1], ticks)

    def at(self, value: float) -> float:
        """Return where a value is, in per cent from the left; those beyond are at the end."""
        share = (value - self.low) / (self.high - self.low)
        return MARGIN + (100 - 2 * MARGIN) * min(1.0, max(0.0, share))


def _round_step(step: float) -> float:
    size = 10.0 ** math.floor(math.log10(step))
    return size * next((each for each in (1, 2, 2.5, 5) if each * size >= step * 0.999), 10)


def tick_label(value: float, scale: Scale) -> str:
    """Return a tick's number with the decimals that its neighbours need."""
    step = scale.ticks[1] - scale.ticks[0]
    largest = max(abs(scale.low), abs(scale.high))
    if largest >= 1e6 or step < 1e-4:
        digits = 1 + math.ceil(math.log10(largest / step))
        return f"{value:.{digits}g}".replace("-", "−")
    places = next((p for p in range(5) if abs(step - round(step, p)) < step * 1e-6), 5)
    return f"{value:,.{places}f}".replace("-", "−")


def interval(
    row: Mapping[str, Any],
    scale: Scale,
    *,
    value: str = "value",
    tone: str = "mark",
    zero: bool = False,
    bounds: Sequence[float] = (),
    region: tuple[float | None, float | None] | None = None,
    label: str = "",
) -> Markup:
    """Draw a value and its interval.

    Parameters
    ----------
    row
        With ``low``, ``high`` and the point under ``value``; an end that is
        None runs on beyond the chart.
    scale
        Of all charts that are to be compared.
    tone
        Class of the marks: good, bad, open or mark.
    zero
        Draw the line of no difference.
    bounds
        Where a verdict turns, drawn as dashed lines.
    region
        The stretch that would support the claim, shaded; None is no end.
    label
        The chart in words, for those who do not see it.
    """
    middle = 15
    parts = [svg.upright(scale.at(tick), 0, 30, "grid") for tick in scale.ticks]
    if region is not None:
        left, right = scale.at(_or(region[0], -math.inf)), scale.at(_or(region[1], math.inf))
        shade: dict[str, Any] = {
            "x": svg.percent(left),
            "width": svg.percent(right - left),
            "y": 0,
            "height": 30,
        }
        parts.append(svg.tag("rect", **shade, cls="region"))
    if zero and scale.low <= 0 <= scale.high:
        parts.append(svg.upright(scale.at(0), 0, 30, "zero"))
    parts += [svg.upright(scale.at(bound), 0, 30, "bound") for bound in bounds]
    low, high = _or(row.get("low"), -math.inf), _or(row.get("high"), math.inf)
    if low > -math.inf or high < math.inf:
        ends: dict[str, Any] = {
            "x1": svg.percent(scale.at(low)),
            "x2": svg.percent(scale.at(high)),
            "y1": middle,
            "y2": middle,
        }
        parts.append(svg.tag("line", **ends, cls="whisker"))
        caps = [each for each in (low, high) if math.isfinite(each)]
        parts += [svg.upright(scale.at(each), middle - 5, middle + 5, "cap") for each in caps]
    point = _or(row.get(value), math.inf)
    if math.isfinite(point):
        parts.append(
            svg.tag("circle", cx=svg.percent(scale.at(point)), cy=middle, r=5, cls="point")
        )
    return svg.picture(parts, 30, label, f"interval {tone}")


def axis(scale: Scale, left: str = "", right: str = "") -> Markup:
    """Draw a scale's ticks; ``left`` and ``right`` say what the two directions mean."""
    parts = _ticks(scale, 14)
    height = 20
    if left or right:
        height = 38
        parts.append(svg.text(MARGIN, 32, left, "start", "direction"))
        parts.append(svg.text(100 - MARGIN, 32, right, "end", "direction"))
    return svg.picture(parts, height, "", "axis")


@dataclass(frozen=True)
class Bins:
    """How often scores fall between edges; ``below`` and ``above`` lie outside of all."""

    edges: np.ndarray
    counts: np.ndarray
    below: int = 0
    above: int = 0


def bin_edges(columns: Sequence[np.ndarray], low: float | None, high: float | None) -> np.ndarray:
    """Return the edges that the histograms of several arms share.

    A score's bounds are used where it has both. Otherwise the outermost 0.2 %
    at either end are left out when they would squeeze the rest into a corner.
    """
    values = np.concatenate([each[np.isfinite(each)] for each in columns] or [np.empty(0)])
    if not len(values):
        return np.linspace(0.0, 1.0, 3)
    distinct = np.unique(values)
    step = np.diff(distinct)
    if 1 < len(distinct) <= 12 and np.ptp(step) < 1e-6 * step[0] and step[0] > _ALIKE:
        step = step[0]
        return np.append(distinct - step / 2, distinct[-1] + step / 2)
    if low is None or high is None:
        least, q_low, q_high, most = np.quantile(values, [0, 0.002, 0.998, 1])
        keep = 0.6 * (most - least) > q_high - q_low
        low, high = (q_low, q_high) if keep and q_high > q_low else (least, most)
    if high - low <= _ALIKE * max(1.0, abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, BINS + 1)


def count(values: np.ndarray, edges: np.ndarray) -> Bins:
    """Count scores into bins."""
    finite = values[np.isfinite(values)]
    counts = np.histogram(finite, edges)[0]
    return Bins(edges, counts, int((finite < edges[0]).sum()), int((finite > edges[-1]).sum()))


def histogram(
    bins: Bins, top: int, scale: Scale, mean: Mapping[str, Any] | None = None, label: str = ""
) -> Markup:
    """Draw one arm's scores; ``top`` is the highest count that has to fit, for all arms."""
    height, room = 64, 50
    parts = [svg.upright(scale.at(tick), 0, room, "grid") for tick in scale.ticks]
    for edge, following, n in zip(bins.edges[:-1], bins.edges[1:], bins.counts, strict=True):
        if n:
            left, right = scale.at(float(edge)), scale.at(float(following))
            tall = max(1.0, (room - 4) * n / max(top, 1))
            parts.append(
                svg.tag(
                    "rect",
                    x=svg.percent(left),
                    width=svg.percent(max(0.3, right - left - 0.15)),
                    y=round(room - tall, 2),
                    height=round(tall, 2),
                    cls="bar",
                )
            )
    parts.append(
        svg.tag(
            "line",
            x1=svg.percent(MARGIN),
            x2=svg.percent(100 - MARGIN),
            y1=room,
            y2=room,
            cls="base",
        )
    )
    point, low, high = (_or((mean or {}).get(key), math.inf) for key in ("value", "low", "high"))
    if math.isfinite(point):
        if math.isfinite(low) and math.isfinite(high):
            ends: dict[str, Any] = {
                "x1": svg.percent(scale.at(low)),
                "x2": svg.percent(scale.at(high)),
                "y1": 57,
                "y2": 57,
            }
            parts.append(svg.tag("line", **ends, cls="whisker"))
        parts.append(svg.tag("circle", cx=svg.percent(scale.at(point)), cy=57, r=4, cls="point"))
    return svg.picture(parts, height, label, "histogram mark")


def shares(parts: Sequence[tuple[int, str]], label: str = "") -> Markup:
    """Draw counts as one bar; each has a class: yes, no or failed."""
    total = sum(n for n, _ in parts)
    drawn, start = [], 0.0
    for n, cls in parts:
        if n:
            width = 100 * n / total
            drawn.append(
                svg.tag(
                    "rect", x=svg.percent(start), y=2, width=svg.percent(width), height=20, cls=cls
                )
            )
            start += width
    return svg.picture(drawn, 24, label, "shares")


def sequence(
    steps: Sequence[Mapping[str, float]],
    bounds: Sequence[float],
    region: tuple[float | None, float | None] | None = None,
    label: str = "",
) -> Markup:
    """Draw a confidence sequence: the interval as it narrowed, unit by unit.

    ``steps`` have ``n``, ``value``, ``low`` and ``high``; the rest is as for
    `interval`.
    """
    seen = [
        {
            "n": step["n"],
            "value": float(step["value"]),
            "low": _or(step["low"], -math.inf),
            "high": _or(step["high"], math.inf),
        }
        for step in steps
        if step["n"] > 0 and math.isfinite(_or(step["value"], math.inf))
    ]
    if not seen:
        return Markup("")
    across = _Across(seen[0]["n"], seen[-1]["n"])
    up = Scale.over([*(s[key] for s in seen for key in ("value", "low", "high")), *bounds], 4)
    height, room = 190, 160

    def y(value: float) -> float:
        return round(room - 8 - (room - 16) * (up.at(value) - MARGIN) / (100 - 2 * MARGIN), 2)

    parts = []
    for tick in up.ticks:
        parts.append(svg.level(y(tick), "grid"))
        parts.append(svg.text(7, y(tick) + 4, tick_label(tick, up), "end", "tick"))
    if region is not None:
        top, bottom = y(_or(region[1], math.inf)), y(_or(region[0], -math.inf))
        shade: dict[str, Any] = {
            "x": "8%",
            "width": "92%",
            "y": top,
            "height": round(bottom - top, 2),
        }
        parts.append(svg.tag("rect", **shade, cls="region"))
    parts += [svg.level(y(bound), "bound") for bound in bounds]
    band = [(across.at(s["n"]), y(s["high"])) for s in seen]
    band += [(across.at(s["n"]), y(s["low"])) for s in reversed(seen)]
    inner = [
        svg.tag("path", d=svg.path(band) + "Z", cls="band"),
        svg.tag("path", d=svg.path([(across.at(s["n"]), y(s["value"])) for s in seen]), cls="path"),
    ]
    # Paths know no per cent: they are drawn on 100 units that stretch with the page.
    box: dict[str, Any] = {"viewBox": f"0 0 100 {height}", "preserveAspectRatio": "none"}
    parts.append(svg.tag("svg", inner, **box, x="0", y="0", width="100%", height=height))
    last = across.at(seen[-1]["n"])
    parts.append(
        svg.tag("circle", cx=svg.percent(last), cy=y(seen[-1]["value"]), r=4.5, cls="point")
    )
    parts += [svg.text(across.at(n), room + 14, f"{n:,}", "middle", "tick") for n in across.ticks]
    parts.append(svg.text(last, height - 2, "units", "end", "direction"))
    return svg.picture(parts, height, label, "sequence mark")


def curve(points: Sequence[Sequence[float]], label: str = "") -> Markup:
    """Draw how something went, step by step: points ``[x, y]`` in order of x."""
    seen = [(float(x), float(y)) for x, y in points if math.isfinite(y)]
    if not seen:
        return Markup("")
    up = Scale.over([y for _, y in seen], 4)
    first, last = seen[0][0], max(seen[-1][0], seen[0][0] + 1e-9)
    height, room = 170, 140

    def place(x: float, y: float) -> tuple[float, float]:
        across = 12 + 84 * (x - first) / (last - first)
        upward = (up.at(y) - MARGIN) / (100 - 2 * MARGIN)
        return round(across, 3), round(room - 8 - (room - 16) * upward, 2)

    parts = []
    for tick in up.ticks:
        level = place(first, tick)[1]
        parts.append(svg.level(level, "grid"))
        parts.append(svg.text(7, level + 4, tick_label(tick, up), "end", "tick"))
    drawn = [svg.tag("path", d=svg.path([place(x, y) for x, y in seen]), cls="path")]
    box: dict[str, Any] = {"viewBox": f"0 0 100 {height}", "preserveAspectRatio": "none"}
    parts.append(svg.tag("svg", drawn, **box, x="0", y="0", width="100%", height=height))
    parts += [
        svg.text(place(x, 0)[0], room + 14, f"{x:g}", "middle", "tick")
        for x in {first, seen[-1][0]}
    ]
    return svg.picture(parts, height, label, "sequence mark")


class _Across:
    """Units on a logarithmic scale, from 12 to 96 per cent of the width."""

    def __init__(self, first: float, last: float) -> None:
        self.low, self.high = math.log(first), math.log(max(last, first + 1))
        decades = [k * 10**e for e in range(10) for k in (1, 2, 5)]
        inside = [n for n in decades if first <= n <= last]
        every = max(1, math.ceil(len(inside) / 6))
        self.ticks = inside[::every] or [int(last)]

    def at(self, n: float) -> float:
        return round(12 + 84 * (math.log(n) - self.low) / (self.high - self.low), 3)


def _ticks(scale: Scale, y: float) -> list[Markup]:
    parts = []
    for i, tick in enumerate(scale.ticks):
        anchor = "start" if i == 0 else "end" if i == len(scale.ticks) - 1 else "middle"
        nudge = {"start": -MARGIN, "end": MARGIN, "middle": 0.0}[anchor]
        text = tick_label(tick, scale)
        anchor = "middle" if len(text) < 5 else anchor
        place = scale.at(tick) + (nudge if anchor != "middle" else 0.0)
        parts.append(svg.text(place, y, text, anchor, "tick"))
    return parts


def _or(value: float | None, instead: float) -> float:
    """Return a number, or another where there is none."""
    return instead if value is None or math.isnan(value) else float(value)
