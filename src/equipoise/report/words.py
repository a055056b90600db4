"""Numbers and verdicts in words, the same in every report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MARKS = {"supported": "✓", "refuted": "✗", "inconclusive": "?"}
COLOURS = {"supported": "green", "refuted": "red", "inconclusive": "yellow"}


def number(value: float | None) -> str:
    """Return a number with three significant digits or three decimals.

    Examples
    --------
    >>> number(0.12345), number(1234.5), number(None)
    ('0.123', '1,234', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1000:
        text = f"{value:,.0f}"
    elif size >= 100:
        text = f"{value:.1f}"
    elif size >= 10:
        text = f"{value:.2f}"
    elif size >= 0.001 or size == 0:
        text = f"{value:.3f}"
    else:
        text = f"{value:.1e}"
    return f"−{text[1:]}" if text.startswith("-") else text


def interval(row: Mapping[str, Any]) -> str:
    """Return ``[low, high]``, or nothing where there is no interval."""
    low, high = row.get("low"), row.get("high")
    if low is None and high is None:
        return ""
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    return f"[{number(low)}, {number(high)}]"


def p_value(p: float) -> str:
    """Return a p-value as people write it."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def seconds(value: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> seconds(0.4), seconds(75), seconds(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def evidence(claim: Mapping[str, Any]) -> str:
    """Return one line on what a claim's verdict rests on.

    ``claim`` is one of the claims of a result's JSON.
    """
    compared = isinstance(claim.get("other"), str)
    value = claim.get("estimate")
    text = f"effect {number(value)}" if compared else f"value {number(value)}"
    text += f" {interval(claim)}".rstrip()
    if claim.get("level"):
        text += f" at {claim['level']:.4g}"
    text += f", {claim['n']:,} units"
    if claim.get("clusters"):
        text += f" in {claim['clusters']:,} clusters"
    if claim.get("builds"):
        text += f", {claim['builds']} builds"
    adjusted = claim.get("p_adjusted")
    if adjusted is not None:
        text += f", {p_value(adjusted)}"
    return text


def outlook(claim: Mapping[str, Any]) -> str:
    """Return what would settle an open claim, and what to keep in mind, or nothing."""
    parts = []
    if claim.get("reason"):
        parts.append(str(claim["reason"]))
    if claim.get("more_units"):
        parts.append(f"about {claim['more_units']:,} more units would probably settle it")
    return "; ".join(parts)


def arrow(higher_is_better: bool | None) -> str:
    """Return an arrow towards the better end."""
    return {True: "↑", False: "↓", None: ""}[higher_is_better]
