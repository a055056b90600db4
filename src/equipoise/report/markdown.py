"""Markdown for a comment on a pull request: verdicts first, numbers folded away."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.report import _budget, words
from equipoise.report._edits import COLUMNS, edits, without_edits
from equipoise.report._text import clip, visible, write_file

MOST_ROWS = 200
"""Estimates listed; a comment may hold 65,536 characters."""

_SPECIAL = re.compile(r"([\\`*_\[\]#|~$]|:(?=\S)|(?<=www)\.)", re.IGNORECASE)


def write(row: Mapping[str, Any], path: Path) -> None:
    """Write a result as GitHub-flavoured Markdown.

    Parameters
    ----------
    row
        A result's JSON.
    path
        Of the file; folders are made, an older file is replaced.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    write_file(path, render(row))


def render(row: Mapping[str, Any]) -> str:
    """Return a result as Markdown.

    Examples
    --------
    >>> print(render({"trial": "t", "claims": [], "estimates": [], "effects": [], "units": 2,
    ...               "errors": 0, "seconds": 1.5}))
    ### equipoise: t
    <BLANKLINE>
    No claims were stated beforehand: this describes, it does not test.
    <BLANKLINE>
    2 units, 0 errors, 1.5 s
    <BLANKLINE>
    """
    parts = [f"### equipoise: {plain(row['trial'])}"]
    if row.get("question"):
        parts.append(f"> **Question:** {plain(row['question'])}")
    verdict = row.get("verdict")
    mark = f"{words.MARKS[verdict]} " if verdict else ""
    said = plain(words.headline(row))
    parts.append(f"**{mark}{said}**" if verdict else said)
    if row["claims"]:
        parts.append(_table(("", "Claim", "Evidence", "Outlook"), map(_claim, row["claims"])))
    parts += [f"> **Note:** {plain(notice)}" for notice in row.get("notices", ())]
    if row.get("differs"):
        parts.append(f"> **Differs from the paper:** {plain(row['differs'])}")
    spent = row.get("allocation")
    if spent:
        parts.append("\n".join(f"- {plain(each)}" for each in _budget.sentences(row)))
        lines = [[plain(cell) for cell in line] for line in _budget.table(spent)]
        parts.append(_folded("Budget, arm by arm", _budget.HEAD, lines))
    edited = edits(row)
    kept = without_edits(row)
    estimates, effects = kept["estimates"], kept["effects"]
    if estimates:
        parts.append(_folded("Estimates", ("Arm", "Task", "Measure", "Value", "Interval"),
                             [_estimate(each) for each in estimates]))  # fmt: skip
    if effects:
        # Inside a tag Markdown takes no backslashes, but people can still be called.
        control = re.sub(r"([@#])(?=\w)", r"\1&#8203;", _html(row.get("control", "")))
        title = f"Effects against {control}"
        parts.append(_folded(title, ("Arm", "Task", "Score", "Better by", "Interval"),
                             [_estimate(each) for each in effects]))  # fmt: skip
    if edited:
        head = ("Arm", *(name for _, name in COLUMNS))
        lines = [[plain(line["arm"]), *(line[key] for key, _ in COLUMNS)] for line in edited]
        parts.append(_folded("What the edits did to the model", head, lines))
        parts += [
            f"> **{plain(line['arm'])}:** {plain(note)}"
            for line in edited
            for note in line["notes"]
        ]
    parts.append(_foot(row))
    return "\n\n".join(parts) + "\n"


def plain(text: Any) -> str:
    r"""Return text that Markdown shows as it is, on one line.

    It makes no table cell, link, heading or HTML, and calls no person and no
    issue by name.

    Examples
    --------
    >>> plain("a|b <script> @you #1")
    'a\\|b &lt;script&gt; @&#8203;you \\#&#8203;1'
    """
    escaped = _SPECIAL.sub(r"\\\1", _html(text))
    return re.sub(r"(@|\\#)(?=\w)", r"\1&#8203;", escaped)


def _html(text: Any) -> str:
    one = " ".join(clip(visible(str(text)), 2_000).split())
    return one.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _claim(claim: Mapping[str, Any]) -> tuple[str, ...]:
    verdict = claim["verdict"]
    return (
        f"{words.MARKS[verdict]} **{verdict}**",
        plain(claim["claim"]),
        plain(words.evidence(claim)),
        plain(words.outlook(claim)),
    )


def _estimate(row: Mapping[str, Any]) -> tuple[str, ...]:
    arrow = "" if row.get("versus") else words.arrow(row.get("higher_is_better"))
    name = f"{plain(row['name'])} {arrow}".rstrip()
    if row.get("unit"):
        name += f" ({plain(row['unit'])})"
    value = words.number(row.get("value"))
    return plain(row["arm"]), plain(row["task"]), name, value, plain(words.interval(row))


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _folded(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = _table(head, rows[:MOST_ROWS])
    left = len(rows) - MOST_ROWS
    more = f"\n\n{left:,} more are in the HTML report." if left > 0 else ""
    return f"<details><summary>{title}</summary>\n\n{table}{more}\n\n</details>"


def _foot(row: Mapping[str, Any]) -> str:
    about = row.get("provenance") or {}
    said = [f"{row['units']:,} units", f"{row['errors']:,} errors", words.seconds(row["seconds"])]
    if row.get("run") is not None:
        said.append(f"run {row['run']}")
    version = (about.get("versions") or {}).get("equipoise")
    if version:
        said.append(f"equipoise {plain(version)}")
    commit = (about.get("git") or {}).get("commit")
    if commit:
        said.append(f"commit {plain(str(commit)[:12])}")
    return ", ".join(said)
