"""Two runs side by side: what differs, by how much, and what may be noise."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.report import words
from equipoise.report._text import as_text, one_line, visible, write_file
from equipoise.report.markdown import plain

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["markdown", "sentence", "table", "terminal", "write_file"]

SAYS = {"better": "green", "worse": "red", "unclear": "yellow"}
FEW = 8
"""Rows up to which none is folded away."""

MOST_ROWS = 200
"""Rows of a Markdown table; a comment may hold 65,536 characters."""

_CORRECTED = {"holm": "after Holm's correction", "bh": "after Benjamini and Hochberg's correction",
              "none": "uncorrected"}  # fmt: skip


def amount(value: float | None, row: Mapping[str, Any], *, sign: bool = True) -> str:
    """Return a difference of scores, in points (hundredths) where the score is from 0 to 1.

    Examples
    --------
    >>> amount(0.0213, {"bounds": [0, 1]}), amount(-1.5, {"bounds": [None, None]}, sign=False)
    ('+2.1', '1.500')
    """
    if value is None:
        return "–"
    size = abs(value)
    text = f"{100 * size:.1f}" if in_points(row) else words.number(size)
    if not sign:
        return text
    return f"{'−' if value < 0 else '+'}{text}"


def in_points(row: Mapping[str, Any]) -> bool:
    """Say whether a row's score is from 0 to 1."""
    return list(row["bounds"]) == [0, 1]


def reach(row: Mapping[str, Any]) -> str:
    """Return the interval in words."""
    if row.get("low") is None or row.get("high") is None:
        return ""
    return f"{amount(row['low'], row)} to {amount(row['high'], row)}"


def sentence(row: Mapping[str, Any]) -> str:
    """Return what a row found in plain words.

    Examples
    --------
    >>> sentence({"arm": "b", "versus": "a", "value": 0.021, "low": 0.004, "high": 0.038,
    ...           "says": "better", "bounds": [0, 1]})
    'b is better than a by 2.1 points (0.4 to 3.8).'
    >>> sentence({"arm": "b", "versus": "a", "value": 0.011, "low": -0.004, "high": 0.028,
    ...           "says": "unclear", "bounds": [0, 1]})
    'b against a: +1.1 points (−0.4 to +2.8), which may be noise.'
    """
    value = row["value"]
    if value is None:
        return f"{row['arm']} against {row['versus']}: there is no estimate."
    unit = " points" if in_points(row) else ""
    where = f" ({reach(row)})" if reach(row) else ""
    if row["says"] == "unclear":
        return (
            f"{row['arm']} against {row['versus']}: {amount(value, row)}{unit}{where},"
            " which may be noise."
        )
    if where and row["low"] * row["high"] > 0:  # the same sign as what is said
        ends = sorted((abs(row["low"]), abs(row["high"])))
        where = f" ({' to '.join(amount(each, row, sign=False) for each in ends)})"
    return (
        f"{row['arm']} is {row['says']} than {row['versus']} by"
        f" {amount(value, row, sign=False)}{unit}{where}."
    )


def outlook(row: Mapping[str, Any]) -> str:
    """Return what a comparison of this size can show, and what would settle an unclear one."""
    said = []
    if row.get("detectable") is not None:
        unit = " points" if in_points(row) else ""
        said.append(
            f"so many units show a difference of {amount(row['detectable'], row, sign=False)}{unit}"
            " with probability 0.8"
        )
    if row["says"] == "unclear" and "more_units" in row:
        more = row["more_units"]
        if more is None:
            said.append("no number of units would settle a difference of nothing")
        elif more:
            said.append(f"about {more:,} more units would settle it if this is the difference")
    return "; ".join(said)


def _weight(row: Mapping[str, Any]) -> str:
    text = _many(row["n"])
    if row.get("clusters"):
        text += f" in {row['clusters']:,} clusters"
    if row.get("tasks"):
        text = f"{row['tasks']} tasks, {text}"
    return text


def _many(units: int) -> str:
    return "1 unit" if units == 1 else f"{units:,} units"


def _p(row: Mapping[str, Any]) -> str:
    p = row.get("p_adjusted")
    return "" if p is None else words.p_value(p)


def terminal(found: Mapping[str, Any], console: Console, *, everything: bool = False) -> None:
    """Print a comparison: overall first, then what is clear, the rest folded.

    Parameters
    ----------
    found
        A comparison's JSON.
    console
        Where to.
    everything
        Print every row.
    """
    from rich.padding import Padding
    from rich.text import Text

    console.print()
    rows = found["comparisons"]
    console.print(visible(title(rows)), style="bold")
    console.print()
    for claim in found["claims"]:
        verdict = claim["verdict"]
        head = (f"{words.MARKS[verdict]} {verdict.upper():13}", f"bold {words.COLOURS[verdict]}")
        console.print(Text.assemble(head, (visible(claim["claim"]), "bold")))
        console.print(Padding(words.evidence(claim), (0, 0, 0, 15), expand=False))
        if said := words.outlook(claim):
            console.print(Padding(said, (0, 0, 0, 15), expand=False), style="dim")
        console.print()
    for row in found["overall"] or (rows if len(rows) == 1 else ()):
        _headline(row, console)
    if found["overall"] or len(rows) > 1:
        _folded(found, console, everything or len(rows) <= FEW)
    for flip in found.get("flips", ()):
        _flip(flip, console)
    for notice in found["notices"]:
        console.print(f"Note: {visible(notice)}", style="dim")


def _headline(row: Mapping[str, Any], console: Console) -> None:
    from rich.padding import Padding

    where = f"On {row['task']}" if row.get("task") else f"Over {row['tasks']} tasks, each once"
    console.print(f"{visible(where)}, {visible(row['score'])}:", style="bold")
    console.print(
        Padding(visible(sentence(row)), (0, 0, 0, 2), expand=False), style=SAYS[row["says"]]
    )
    told = [f"{words.number(row['first_mean'])} → {words.number(row['second_mean'])}"]
    if row.get("p_adjusted") is not None:
        told.append(f"{_p(row)} ({row['test']})")
    told.append(_weight(row))
    if "units_better" in row:
        told.append(f"{_many(row['units_better'])} better, {row['units_worse']:,} worse")
    if row["lost"]:
        told.append(f"{row['lost']:.1%} of the pairs lost to errors")
    for line in ("; ".join(told), outlook(row), row.get("note", "")):
        if line:
            console.print(Padding(line, (0, 0, 0, 2), expand=False), style="dim")
    console.print()


def _folded(found: Mapping[str, Any], console: Console, everything: bool) -> None:
    rows = ordered(found["comparisons"])
    clear = [row for row in rows if row["says"] != "unclear"]
    shown = rows if everything else clear
    counts = {says: sum(row["says"] == says for row in rows) for says in SAYS}
    how = _CORRECTED[found["correct"]]
    console.print(
        f"{counts['better']} better, {counts['worse']} worse, {counts['unclear']} unclear of"
        f" {len(rows)}, {how}:",
        style="bold",
    )
    if shown:
        console.print(_table(shown, console))
    folded = len(rows) - len(shown)
    if folded:
        rest = [row for row in rows if row["says"] == "unclear" and row["value"] is not None]
        line = f"{folded} that may be noise are not shown; --all lists them."
        if rest and len({tuple(row["bounds"]) for row in rest}) == 1:
            low, high = (pick(rest, key=lambda row: row["value"]) for pick in (min, max))
            unit = " points" if in_points(low) else ""
            line = (
                f"{folded} from {amount(low['value'], low)} to {amount(high['value'], high)}{unit}"
            )
            line += " may be noise"
            shows = sorted(row["detectable"] for row in rest if "detectable" in row)
            if shows:
                middle = amount(shows[len(shows) // 2], low, sign=False)
                line += f" (half of them could show no less than {middle}{unit})"
            line += "; --all lists them."
        console.print(line, style="dim")
    console.print()


def title(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return which arms are compared."""
    pairs: dict[str, list[str]] = {}
    for row in rows:
        if row["arm"] not in pairs.setdefault(row["versus"], []):
            pairs[row["versus"]].append(row["arm"])
    return "; ".join(f"{', '.join(arms)} against {versus}" for versus, arms in pairs.items())


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows with the clear ones first, worse before better, the largest first."""
    place = {"worse": 0, "better": 1, "unclear": 2}
    return sorted(rows, key=lambda row: (place[row["says"]], -abs(row["value"] or 0.0)))


def _table(rows: Sequence[Mapping[str, Any]], console: Console) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    several = {name: len({row[name] for row in rows}) for name in ("score", "arm")}
    names = ["task", *(name for name, count in several.items() if count > 1)]
    if len({(row["arm"], row["versus"]) for row in rows}) > several["arm"]:
        names.append("versus")
    for name in names:
        table.add_column(name, header_style="dim", overflow="fold")
    points = all(in_points(row) for row in rows)
    for name in ("points" if points else "by", "interval", "p", "units", "better/worse"):
        table.add_column(name, header_style="dim", justify="right", no_wrap=True)
    for row in rows:
        p = _p(row).removeprefix("p ").removeprefix("= ")
        table.add_row(
            *(visible(row[name]) for name in names),
            Text(amount(row["value"], row), style=SAYS[row["says"]]),
            reach(row),
            p,
            f"{row['n']:,}",
            f"{row['units_better']:,}/{row['units_worse']:,}",
        )
    return table


def _flip(flip: Mapping[str, Any], console: Console) -> None:
    way = "up" if flip["difference"] > 0 else "down"
    first, second = flip["first"], flip["second"]
    console.print(
        f"{way}: {visible(flip['task'])} · {visible(flip['unit'])}, "
        f"{words.number(first['score'])} → {words.number(second['score'])}",
        style="bold",
    )
    for name, value in (
        ("asked", flip["content"]), ("right", flip["target"]),
        (flip["versus"], first["output"] or first["error"]),
        (flip["arm"], second["output"] or second["error"]),
    ):  # fmt: skip
        if value is not None:
            console.print(f"  {visible(name)}: {one_line(visible(as_text(value)), 300)}")
    console.print()


def markdown(found: Mapping[str, Any]) -> str:
    """Return a comparison as GitHub-flavoured Markdown, for a pull request."""
    rows = ordered(found["comparisons"])
    parts = [f"### {plain(title(rows))}"]
    for claim in found["claims"]:
        verdict, evidence = claim["verdict"], plain(words.evidence(claim))
        parts.append(f"{words.MARKS[verdict]} **{verdict}**: {plain(claim['claim'])} ({evidence})")
    for row in found["overall"] or (rows if len(rows) == 1 else ()):
        said = f"**{plain(sentence(row))}** {_p(row)}, {_weight(row)}"
        more = outlook(row)
        parts.append(f"{said}; {more}." if more else f"{said}.")
    clear = [row for row in rows if row["says"] != "unclear"]
    rest = [row for row in rows if row["says"] == "unclear"]
    if len(rows) > 1:
        parts.append(
            f"{len(clear)} of {len(rows)} differ, {_CORRECTED[found['correct']]}"
            f" at level {found['level']:g}."
        )
        if clear:
            parts.append(_grid(clear))
        if rest:
            grid = _grid(rest[:MOST_ROWS])
            parts.append(
                f"<details><summary>{len(rest)} may be noise</summary>\n\n{grid}\n\n</details>"
            )
    parts += [f"> {plain(notice)}" for notice in found["notices"]]
    return "\n\n".join(parts) + "\n"


def _grid(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("Task", "Score", "Arm", "By", "Interval", "p", "Units", "Better / worse")
    lines: list[Sequence[str]] = [head, ["---"] * len(head)]
    for row in rows[:MOST_ROWS]:
        points = " points" if in_points(row) else ""
        lines.append(
            (
                plain(row["task"]), plain(row["score"]), plain(row["arm"]),
                f"{amount(row['value'], row)}{points}", reach(row),
                _p(row).removeprefix("p ").removeprefix("= ").replace("<", "&lt;"),
                f"{row['n']:,}", f"{row['units_better']:,} / {row['units_worse']:,}",
            )
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_COLUMNS = (
    "arm", "versus", "task", "tasks", "score", "value", "low", "high", "level", "p_value",
    "p_adjusted", "says", "n", "clusters", "first_mean", "second_mean", "units_better",
    "units_worse", "test", "method", "detectable", "more_units", "lost", "only_first",
    "only_second",
)  # fmt: skip


def table(found: Mapping[str, Any]) -> str:
    """Return a comparison as CSV: the overall rows, whose task is empty, then the others."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in (*found["overall"], *found["comparisons"]):
        writer.writerow(["" if row.get(name) is None else row[name] for name in _COLUMNS])
    return out.getvalue()
