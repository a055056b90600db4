"""Colours and type that every plot and page shares, as CSS and as an Altair theme.

The hues are those of Okabe and Ito, which people with any common colour
vision tell apart, darkened or lightened until text in them meets WCAG AA.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif'
SERIF = '"Iowan Old Style", "Palatino Linotype", Palatino, "Noto Serif", Georgia, serif'
MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono", "Liberation Mono", monospace'


@dataclass(frozen=True)
class Palette:
    """The colours of one appearance, each as ``#rrggbb``.

    ``good``, ``bad`` and ``open`` are the three verdicts, each with a tint to
    write on; ``mark`` is data that is none of them; ``series`` are those of figures
    with several, in order.
    """

    paper: str
    panel: str
    ink: str
    muted: str
    rule: str
    grid: str
    mark: str
    mark_soft: str
    good: str
    good_soft: str
    bad: str
    bad_soft: str
    open: str
    open_soft: str
    series: tuple[str, ...]


LIGHT = Palette(
    paper="#f7f6f2",
    panel="#ffffff",
    ink="#1d1e22",
    muted="#5a5d66",
    rule="#d9d6cd",
    grid="#e9e6df",
    mark="#0a5f95",
    mark_soft="#d8e7f2",
    good="#006b54",
    good_soft="#dff1eb",
    bad="#ad3a00",
    bad_soft="#fbe8de",
    open="#735500",
    open_soft="#f6edd2",
    series=("#0069a8", "#b84a00", "#00805f", "#a3437c", "#8a6a00", "#2f7fae", "#5a5d66"),
)

DARK = Palette(
    paper="#14161a",
    panel="#1b1e24",
    ink="#e8e6e1",
    muted="#a6a9b2",
    rule="#383c46",
    grid="#2a2e36",
    mark="#74b9e6",
    mark_soft="#1f3a4d",
    good="#52cdae",
    good_soft="#14352d",
    bad="#ff9a73",
    bad_soft="#42251a",
    open="#e3c062",
    open_soft="#362e16",
    series=("#74b9e6", "#ff9a73", "#52cdae", "#e59ccb", "#e3c062", "#a9d4f0", "#a6a9b2"),
)


def css(*, choice: bool = False) -> str:
    """Return the palettes as CSS variables, light unless the reader prefers dark.

    Paper is printed on: print is always light. With ``choice`` the attribute
    ``data-theme`` of the page, ``light`` or ``dark``, comes before the preference.
    """
    light, dark = (_variables(palette) for palette in (LIGHT, DARK))
    system = ":root:not([data-theme=light])" if choice else ":root"
    rules = (
        f":root{{color-scheme:light dark;--sans:{SANS};--serif:{SERIF};--mono:{MONO};{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{{system}{{{dark}}}}}\n"
    )
    if choice:
        rules += (
            ":root[data-theme=light]{color-scheme:light}\n"
            f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
        )
    return rules


def _variables(palette: Palette) -> str:
    hues = asdict(palette)
    hues |= {f"s{place}": hue for place, hue in enumerate(hues.pop("series"))}
    return "".join(f"--{name.replace('_', '-')}:{hue};" for name, hue in hues.items())


def config(palette: Palette = LIGHT) -> dict[str, Any]:
    """Return the Vega-Lite ``config`` of the theme."""
    quiet = {
        "labelColor": palette.muted,
        "titleColor": palette.muted,
        "labelFont": SANS,
        "titleFont": SANS,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
    }
    return {
        "background": palette.panel,
        "font": SANS,
        "title": {
            "color": palette.ink,
            "subtitleColor": palette.muted,
            "anchor": "start",
            "fontSize": 15,
            "fontWeight": 600,
            "offset": 12,
        },
        "view": {"stroke": None, "continuousWidth": 520, "continuousHeight": 300},
        "axis": {
            **quiet,
            "domain": False,
            "ticks": False,
            "grid": True,
            "gridColor": palette.grid,
            "labelPadding": 6,
            "titlePadding": 10,
        },
        "axisBand": {"grid": False},
        "legend": {**quiet, "symbolStrokeWidth": 0, "symbolSize": 90},
        "header": quiet,
        "range": {
            "category": list(palette.series),
            "ordinal": {"scheme": "blues"},
            "ramp": {"scheme": "viridis"},
            "heatmap": {"scheme": "viridis"},
            "diverging": {"scheme": "blueorange"},
        },
        "mark": {"color": palette.mark, "tooltip": True},
        "point": {"filled": True, "size": 70},
        "line": {"strokeWidth": 2},
        "rule": {"color": palette.ink, "strokeWidth": 1.5},
        "text": {"color": palette.ink, "font": SANS, "fontSize": 12},
        "errorbar": {"thickness": 2},
        "bar": {"cornerRadiusEnd": 1},
    }


def enable(*, dark: bool = False) -> None:
    """Make ``equipoise`` the theme of every Altair chart in this process.

    Examples
    --------
    >>> enable()
    >>> import altair
    >>> altair.theme.active
    'equipoise'
    """
    import altair as alt

    palette = DARK if dark else LIGHT

    @alt.theme.register("equipoise", enable=True)
    def equipoise() -> alt.theme.ThemeConfig:
        return {"config": config(palette)}  # type: ignore[typeddict-item]
