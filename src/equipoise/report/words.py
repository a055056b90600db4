"""Numbers and verdicts in words, the same in every report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MARKS = {"supported": "✓", "refuted": "✗", "inconclusive": "?"}
COLOURS = {"supported": "green", "refuted": "red", "inconclusive": "yellow"}

_REPLICATED = {
    "supported": "replicated",
    "refuted": "not replicated",
    "inconclusive": "inconclusive",
}


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


def size(count: float) -> str:
    """Return bytes in words.

    Examples
    --------
    >>> size(538_000_000), size(2_048)
    ('513 MiB', '2.0 KiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"


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


def turning_points(claim: Mapping[str, Any]) -> list[float]:
    """Return the values that a claim's interval must clear for a verdict."""
    margin = float(claim.get("margin") or 0.0)
    relation = claim.get("relation")
    if relation == "matches":
        return [-margin, margin]
    if relation == "no_worse_than":
        return [-margin]
    if relation == "beats":
        return [margin]
    other = claim.get("other")
    return [float(other)] if isinstance(other, int | float) else []


def plainly(claim: Mapping[str, Any], unit: str = "") -> str:
    """Return a claim's estimate and verdict as a sentence for people who read no tables.

    ``unit`` is the score's unit of measure.

    Examples
    --------
    >>> plainly({"arm": "b", "other": "a", "relation": "beats", "verdict": "supported",
    ...          "estimate": 0.2, "low": 0.1, "high": 0.3})
    'b did 0.200 better than a. Anything from 0.100 to 0.300 fits the data: all of it above 0.'
    """
    value, low, high = claim.get("estimate"), claim.get("low"), claim.get("high")
    if value is None:
        return "There is no estimate, and so no verdict."
    amount = f"{number(abs(value))} {unit}".rstrip()
    if not isinstance(claim.get("other"), str):
        text = f"{claim['arm']} came to {f'{number(value)} {unit}'.rstrip()}."
    elif value == 0:
        text = f"{claim['arm']} did as well as {claim['other']}."
    else:
        side = "better" if value > 0 else "worse"
        text = f"{claim['arm']} did {amount} {side} than {claim['other']}."
    if low is None and high is None:
        return f"{text} Without an interval there is no verdict."
    if low is None or high is None:
        end = f"below {number(high)}" if low is None else f"above {number(low)}"
        return f"{text} Anything {end} fits the data{_where(claim)}."
    return f"{text} Anything from {number(low)} to {number(high)} fits the data{_where(claim)}."


def _where(claim: Mapping[str, Any]) -> str:
    """Return where the interval lies, seen from the claim's turning points."""
    points = turning_points(claim)
    low = -math.inf if claim.get("low") is None else claim["low"]
    high = math.inf if claim.get("high") is None else claim["high"]
    if not points:
        return ""
    if len(points) == 2:
        band = f"{_short(points[0])} and {_short(points[1])}"
        if points[0] < low and high < points[1]:
            place = f"all of it between {band}"
        elif low > points[1] or high < points[0]:
            place = f"all of it outside {band}"
        else:
            return f", both inside and outside of {band}"
    elif low > points[0]:
        place = f"all of it above {_short(points[0])}"
    elif high < points[0]:
        place = f"all of it below {_short(points[0])}"
    else:
        return f", on both sides of {_short(points[0])}"
    withheld = ", but the verdict is withheld" if claim["verdict"] == "inconclusive" else ""
    return f": {place}{withheld}"


def _short(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def headline(row: Mapping[str, Any]) -> str:
    """Return the verdicts on all claims in one sentence.

    Examples
    --------
    >>> headline({"claims": [{"verdict": "supported"}, {"verdict": "refuted"}]})
    '1 of 2 claims supported, 1 refuted.'
    """
    claims = row["claims"]
    if not claims:
        return "No claims were stated beforehand: this describes, it does not test."
    counts = {v: sum(c["verdict"] == v for c in claims) for v in MARKS}
    if row.get("paper"):
        return f"Replication of {row['paper']}: {_REPLICATED[row['verdict']]}."
    if len(claims) == 1:
        return f"The claim is {claims[0]['verdict']}."
    whole = next((v for v, n in counts.items() if n == len(claims)), None)
    if whole:
        return f"{'Both' if len(claims) == 2 else f'All {len(claims)}'} claims are {whole}."
    (first, n), *others = [(v, n) for v, n in counts.items() if n]
    rest = "".join(f", {n} {v}" for v, n in others)
    return f"{n} of {len(claims)} claims {first}{rest}."
