"""Figures as data: what a picture shows, drawn by reports and notebooks each in their way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from equipoise.core.errors import UsageError

Look = Literal["line", "step", "points", "bars", "guide"]


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together, such as one arm's.

    Parameters
    ----------
    name
        For the legend; an arm's label where it is about an arm.
    x, y
        Of one length, finite, ``x`` not falling.
    low, high
        Ends of the interval of each ``y``, or empty; drawn as a band of lines and
        steps, as whiskers of points and bars.
    look
        ``line``, ``step`` (constant to the right, as Kaplan-Meier curves are),
        ``points``, ``bars``, or ``guide``: a thin dashed line for what is expected.

    Examples
    --------
    >>> Series("nominal", (0.0, 1.0), (1.0, 0.0), look="guide").look
    'guide'
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: Look = "line"

    def __post_init__(self) -> None:
        sizes = {len(self.x), len(self.y)} | {len(e) for e in (self.low, self.high) if len(e)}
        if len(sizes) != 1 or bool(len(self.low)) != bool(len(self.high)):
            raise UsageError(f"Series {self.name}: x, y, low and high must be of one length.")
        for column in ("x", "y", "low", "high"):
            values = tuple(map(float, getattr(self, column)))
            if not all(map(math.isfinite, values)):
                raise UsageError(f"Series {self.name}: {column} must be finite numbers.")
            object.__setattr__(self, column, values)


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture of outcomes: titles and series, no colours and no sizes.

    Parameters
    ----------
    title
        What it shows, a few words.
    x, y
        What the axes are, with units of measure.
    series
        In the order of the legend.
    caption
        A sentence on how to read it.

    Examples
    --------
    >>> figure = Figure("Coverage", "level", "coverage", (Series("split", (0.1,), (0.88,)),))
    >>> Figure.from_json(figure.as_json()) == figure
    True
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    caption: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "title": self.title,
            "x": self.x,
            "y": self.y,
            "caption": self.caption,
            "series": [
                {"name": each.name, "look": each.look}
                | {name: list(getattr(each, name)) for name in ("x", "y", "low", "high")}
                for each in self.series
            ],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Figure:
        """Return the figure that `as_json` told of."""
        rest = {name: found[name] for name in ("title", "x", "y", "caption")}
        return cls(series=tuple(Series(**each) for each in found["series"]), **rest)
