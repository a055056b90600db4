"""Vega-Lite charts of the viewer, in the theme that reports and notebooks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from equipoise.core import Figure
from equipoise.report import theme
from equipoise.report.figures import HUES
from equipoise.viewer.standing import Standing

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_TIP = {"type": "quantitative", "format": ".4~g"}


def dressed(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a chart with its theme in light and in dark; the page takes the one that fits."""
    return {
        "spec": {"$schema": _SCHEMA, **spec},
        "light": theme.config(theme.LIGHT),
        "dark": theme.config(theme.DARK),
    }


def board(found: Sequence[Standing], tasks: Sequence[str]) -> dict[str, Any]:
    """Return the leaderboard: a point and an interval for each arm, on each task."""
    rows = []
    for each in found:
        name = f"{each.arm} (run {each.run})"
        parts = {"all tasks": each.overall, **each.tasks} if len(tasks) > 1 else each.tasks
        for task, mean in parts.items():
            row = {"arm": name, "task": task, "mean": mean.value, "units": mean.n}
            ends = {"low": mean.low, "high": mean.high} if mean.has_interval else {}
            rows.append(row | ends)
    order = [f"{each.arm} (run {each.run})" for each in found]
    y = {"field": "arm", "type": "nominal", "sort": order, "title": None}
    tips = [{"field": name, **_TIP} for name in ("mean", "low", "high")]
    tips = [{"field": "arm"}, *tips, {"field": "units", "type": "quantitative", "format": ","}]
    return {
        "data": {"values": rows},
        "facet": {
            "row": {
                "field": "task",
                "title": None,
                "header": {"labelAnchor": "start", "labelOrient": "top", "labelAngle": 0},
            }
        },
        "spec": {
            "width": 520,
            "encoding": {"y": y, "tooltip": tips},
            "layer": [
                {
                    "mark": "rule",
                    "encoding": {
                        "x": {
                            "field": "low",
                            "type": "quantitative",
                            "title": None,
                            "scale": {"zero": False},
                        },
                        "x2": {"field": "high"},
                    },
                },
                {
                    "mark": "point",
                    "encoding": {
                        "x": {
                            "field": "mean",
                            "type": "quantitative",
                            "title": None,
                            "scale": {"zero": False},
                        }
                    },
                },
            ],
        },
        "resolve": {"scale": {"x": "independent"}},
    }


def figure(drawn: Figure) -> dict[str, Any]:
    """Return a measure's figure; the picture is that of the report, with values to point at."""
    names = [each.name for each in drawn.series if each.look != "guide"]
    return {
        "width": "container",
        "height": 260,
        "layer": [
            layer for each in drawn.series if len(each.x) for layer in _layers(each, drawn, names)
        ],
    }


def _layers(each: Any, drawn: Figure, names: Sequence[str]) -> list[dict[str, Any]]:
    ends = bool(len(each.low))
    rows = [
        {"series": each.name, "x": x, "y": y}
        | ({"low": each.low[i], "high": each.high[i]} if ends else {})
        for i, (x, y) in enumerate(zip(each.x, each.y, strict=True))
    ]
    bars = each.look == "bars"
    x: dict[str, Any] = {
        "field": "x",
        "title": drawn.x,
        "type": "ordinal" if bars else "quantitative",
    }
    if not bars:
        x["scale"] = {"zero": False}
    y: dict[str, Any] = {
        "field": "y",
        "title": drawn.y,
        "type": "quantitative",
        "scale": {"zero": bars},
    }
    data = {"values": rows}
    if each.look == "guide":
        mark = {"type": "line", "strokeDash": [4, 4], "color": "gray", "tooltip": False}
        return [{"data": data, "mark": mark, "encoding": {"x": x, "y": y}}]
    hue = {"field": "series", "type": "nominal", "legend": None, "sort": list(names)}
    tips = [{"field": "series", "type": "nominal"}]
    tips += [{"field": name, **_TIP} for name in ("x", "y", *(("low", "high") if ends else ()))]
    step: dict[str, Any] = {"interpolate": "step-after"} if each.look == "step" else {}
    dashed = {"strokeDash": [6, 3]} if names.index(each.name) >= HUES else {}
    kind = {"bars": "bar", "points": "point"}.get(each.look, "line")
    shown: dict[str, Any] = {"x": x, "y": y, "color": hue, "tooltip": tips}
    span: dict[str, Any] = {
        "x": x,
        "y": {**y, "field": "low"},
        "y2": {"field": "high"},
        "color": hue,
    }
    if bars:
        shown["xOffset"] = span["xOffset"] = {"field": "series", "sort": list(names)}
    mark = {"type": kind, **step, **dashed}
    found = [
        {
            "data": data,
            "mark": mark | ({"point": True} if kind == "line" else {}),
            "encoding": shown,
        }
    ]
    if not ends:
        return found
    rule = {"type": "rule"} if bars or kind == "point" else {"type": "area", "opacity": 0.2, **step}
    band = {"data": data, "mark": rule | {"tooltip": False}, "encoding": span}
    return [*found, band] if bars else [band, *found]
