"""A plan for a trial's size, in words and as a curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.report import words
from equipoise.report._text import visible, write_file

if TYPE_CHECKING:
    from rich.console import Console

FEW = 6
"""Claims up to which each is told at length."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_FROM = {
    "given": "as given",
    "pilot": "as in the pilot",
    "no difference": "if the arms are alike",
}


def terminal(plan: Mapping[str, Any], console: Console) -> None:
    """Print a plan: for each claim the units it needs, what it rests on, what it costs."""
    from rich.padding import Padding

    console.print()
    if len(plan["claims"]) > FEW:
        console.print(_table(plan["claims"]))
        console.print(
            "units: for power 0.8, in brackets how far a pilot of this size may be off; shows:"
            " what the pilot's own size shows with power 0.8. --json tells all.",
            style="dim",
        )
    for row in plan["claims"] if len(plan["claims"]) <= FEW else ():
        console.print(visible(row["claim"]), style="bold")
        for line in _lines(row):
            console.print(Padding(visible(line), (0, 0, 0, 2), expand=False))
        for note in row["notes"]:
            console.print(Padding(visible(note), (0, 0, 0, 2), expand=False), style="dim")
        console.print()
    for notice in plan.get("notices", ()):
        console.print(f"Note: {visible(notice)}", style="dim")


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    alike = len({(row["arm"], row["relation"], row["other"]) for row in rows}) == 1
    label = "on" if alike else "claim"
    if alike:
        row = rows[0]
        said = f"{row['arm']} {row['relation'].replace('_', ' ')} {row['other']}"
        table.title, table.title_justify, table.title_style = visible(said), "left", "bold"
    table.add_column(label, header_style="dim", overflow="fold")
    for name in ("effect", "units", "for power 0.9", "shows"):
        table.add_column(name, header_style="dim", justify="right")
    for row in rows:
        if "needs" not in row:
            table.add_row(visible(row[label]), *("–",) * 4)
            continue
        first, second = row["needs"][:2]
        shows = row.get("now", {}).get("detectable")
        table.add_row(
            visible(row[label]),
            _signed(row["assumed"]),
            "none would do" if first["units"] is None else _need(first).replace(" units", "", 1),
            "" if second["units"] is None else f"{second['units']:,}",
            words.number(shows),
        )
    return table


def _lines(row: Mapping[str, Any]) -> list[str]:
    if "needs" not in row:
        return []
    said = [f"true effect {_signed(row['assumed'])}, {_FROM[row['assumed_from']]};"
            f" level {row['level']:.4g}"]  # fmt: skip
    for need in row["needs"]:
        if need["units"] is not None:
            said.append(f"for power {need['power']:g}: {_need(need)}{_costs(need)}")
    for name, word in (("now", "the pilot's"), ("planned", "the planned")):
        if name in row:
            here = row[name]
            can = []
            if "power" in here:
                can.append(f"have power {here['power']:.2f}")
            if "detectable" in here:
                can.append(f"would show {words.number(here['detectable'])} with power 0.8")
            said.append(f"{word} {here['units']:,} units {', and '.join(can)}")
    pilot = row.get("pilot", {})
    rests = []
    if "discordant" in pilot:
        rests.append(f"arms differ on {pilot['discordant']:.1%} of the units")
    elif pilot:
        rests.append(f"one unit's difference has standard deviation {words.number(pilot['sd'])}")
    if "design_effect" in pilot:
        rests.append(f"clusters multiply the variance by {pilot['design_effect']:.2f}")
    if rests:
        said.append(f"in the pilot {'; '.join(rests)}")
    if "repeats" in row:
        said.append(_repeats(row["repeats"]))
    curve = row["curve"]
    marks = "".join(_BLOCKS[min(7, int(8 * power))] for _, power in curve)
    said.append(f"power {marks} from {curve[0][0]:,} to {curve[-1][0]:,} units")
    return said


def _need(need: Mapping[str, Any]) -> str:
    text = f"{need['units']:,} units"
    low, high = need.get("units_low"), need.get("units_high")
    if low is not None and high is not None:
        text += f" ({low:,} to {high:,})"
    if "clusters" in need:
        text += f" in {need['clusters']:,} clusters"
    return text


def _costs(need: Mapping[str, Any]) -> str:
    costs = []
    if need.get("tokens"):
        costs.append(f"{need['tokens']:,.0f} tokens")
    if need.get("seconds"):
        costs.append(words.seconds(need["seconds"]))
    if need.get("dollars"):
        costs.append(f"${need['dollars']:,.2f}")
    return f", about {', '.join(costs)} for the arms together" if costs else ""


def _repeats(found: Mapping[str, Any]) -> str:
    text = f"repeats average away {found['share_within']:.0%} of one answer's variance"
    told = [
        f"{each['units']:,} units asked {_times(each['repeats'])}"
        for each in found["options"]
        if each["units"] is not None
    ]
    return f"{text}; alike at power 0.8: {', '.join(told)}" if told else text


def _times(repeats: int) -> str:
    return {1: "once", 2: "twice"}.get(repeats, f"{repeats} times")


def _signed(value: float) -> str:
    return f"{'' if value < 0 else '+'}{words.number(value)}"


def sketch(plan: Mapping[str, Any], path: Path) -> None:
    """Write the power curves as an SVG file.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    write_file(path, curves([row for row in plan["claims"] if "curve" in row]))


def curves(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the power curves of claims as an SVG picture of its own."""
    from markupsafe import escape

    wide, high, left, top, bottom = 720, 360, 60, 20, 50
    most = max((row["curve"][-1][0] for row in rows), default=1)
    hues = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

    def x(n: float) -> float:
        return left + (wide - left - 20) * n / most

    def y(power: float) -> float:
        return top + (high - top - bottom) * (1 - power)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high + 20 * len(rows)}"'
        ' font-family="sans-serif" font-size="12" role="img" aria-label="Power by units">',
        f'<rect width="{wide}" height="{high + 20 * len(rows)}" fill="white"/>',
    ]
    for power in (0, 0.2, 0.4, 0.6, 0.8, 1):
        dash = ' stroke-dasharray="4 3"' if power == 0.8 else ""
        parts.append(
            f'<line x1="{left}" x2="{wide - 20}" y1="{y(power):.1f}" y2="{y(power):.1f}"'
            f' stroke="#ccc"{dash}/>'
            f'<text x="{left - 8}" y="{y(power) + 4:.1f}" text-anchor="end">{power:g}</text>'
        )
    size = 10 ** math.floor(math.log10(most))
    step = next(size * share for share in (0.2, 0.5, 1, 2) if most / (size * share) <= 6)
    for place in range(int(most / step) + 1):
        n = place * step
        parts.append(
            f'<text x="{x(n):.1f}" y="{high - bottom + 18}" text-anchor="middle">{n:,.0f}</text>'
        )
    parts.append(
        f'<text x="{(left + wide) / 2}" y="{high - 10}" text-anchor="middle">units</text>'
        f'<text x="14" y="{high / 2}" transform="rotate(-90 14 {high / 2})"'
        ' text-anchor="middle">power</text>'
    )
    for place, row in enumerate(rows):
        hue = hues[place % len(hues)]
        points = " ".join(f"{x(n):.1f},{y(power):.1f}" for n, power in row["curve"])
        parts.append(f'<polyline points="{points}" fill="none" stroke="{hue}" stroke-width="2"/>')
        if planned := row.get("planned"):
            parts.append(
                f'<circle cx="{x(planned["units"]):.1f}" cy="{y(planned["power"]):.1f}" r="4"'
                f' fill="{hue}"/>'
            )
        parts.append(
            f'<text x="{left}" y="{high + 20 * place + 8}" fill="{hue}">'
            f"{escape(visible(row['claim']))}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
