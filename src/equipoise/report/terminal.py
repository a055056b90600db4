"""Terminal reports: progress while a run goes on, tables that fit 80 columns."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from equipoise.report import _budget, words
from equipoise.report._edits import COLUMNS, edits, without_edits

if TYPE_CHECKING:
    from rich.console import Console

    from equipoise.trial.planning import Plan

ARMS = 12
"""Arms whose share of a budget is shown; the page has them all."""

PLAIN_EVERY = 15.0
"""Seconds between lines of progress where there is no terminal to draw on."""


@contextlib.contextmanager
def progress(console: Console, *, quiet: bool = False) -> Iterator[Any]:
    """Yield a watcher that shows arm, task, units done, rate and time left."""
    from equipoise.trial.watch import Silent

    if quiet:
        yield Silent()
    elif not console.is_terminal:
        yield _Lines(console)
    else:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[pace]}", style="dim"),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            yield _Bar(bar, console)


class _Counter:
    """Counts units and tells rate and time left."""

    def __init__(self) -> None:
        self.total = self.done = self.errors = 0
        self.began: float | None = None
        self.first = 0
        self.cell = "starting"

    def add(self, units: int, errors: int) -> None:
        self.done += units
        self.errors += errors
        if self.began is None:  # loading or training a subject is no measure of units
            self.began, self.first = time.monotonic(), self.done

    def pace(self) -> str:
        spent = 0.0 if self.began is None else time.monotonic() - self.began
        if self.done == self.first or spent <= 0:
            return ""
        rate = (self.done - self.first) / spent
        left = (self.total - self.done) / rate
        speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        failed = f", {self.errors} errors" if self.errors else ""
        return f"{speed}, {words.seconds(left)} left{failed}"


class _Bar:
    def __init__(self, bar: Any, console: Console) -> None:
        self.bar, self.console, self.count = bar, console, _Counter()
        self.id = bar.add_task("starting", total=1, pace="")

    def start(self, total: int, reused: int) -> None:
        self.count.total = total
        self.bar.update(self.id, total=max(1, total), completed=0)
        if reused:
            self.note(f"{reused:,} units are in the store already; {total:,} to do.")

    def doing(self, arm: str, task: str) -> None:
        self.bar.update(self.id, description=f"{arm} · {task}")

    def making(self, what: str, done: int, total: int) -> None:
        if not total:
            self.note(what)
        else:
            self.bar.update(self.id, description=what, pace=f"step {done:,} of {total:,}")

    def advance(self, units: int, errors: int) -> None:
        self.count.add(units, errors)
        self.bar.update(self.id, completed=self.count.done, pace=self.count.pace())

    def note(self, text: str) -> None:
        self.console.print(text, style="dim")


class _Lines:
    def __init__(self, console: Console) -> None:
        self.console, self.count = console, _Counter()
        self.said = 0.0

    def start(self, total: int, reused: int) -> None:
        self.count.total = total
        self.said = time.monotonic()
        if reused:
            self.note(f"{reused:,} units are in the store already; {total:,} to do.")

    def doing(self, arm: str, task: str) -> None:
        self.count.cell = f"{arm} · {task}"

    def making(self, what: str, done: int, total: int) -> None:
        if not total:
            self.note(what)
        elif time.monotonic() - self.said > PLAIN_EVERY:
            self.said = time.monotonic()
            cell = "" if self.count.cell == "starting" else f"{self.count.cell}: "
            self.note(f"{cell}{what}, step {done:,} of {total:,}")

    def advance(self, units: int, errors: int) -> None:
        self.count.add(units, errors)
        if time.monotonic() - self.said > PLAIN_EVERY:
            self.said = time.monotonic()
            count = self.count
            self.note(f"{count.cell}: {count.done:,}/{count.total:,} units, {count.pace()}")

    def note(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


def result_page(row: dict[str, Any], console: Console) -> None:
    """Print verdicts, then arms × tasks, then what a reader must know.

    ``row`` is a result's JSON.
    """
    from rich.text import Text

    console.print()
    question = f": {row['question']}" if row.get("question") else ""
    console.print(Text.assemble((row["trial"], "bold"), question))
    console.print()
    for claim in row["claims"]:
        _claim(claim, console)
    _allocation(row, console)
    rest = without_edits(row)
    _estimates(rest, console)
    _effects(rest, console)
    _edits(row, console)
    _footer(row, console)


def bare_page(run: dict[str, Any], console: Console) -> None:
    """Print a run without a result of its own: imported, or stopped before its end."""
    console.print(f"Run {run['id']} of {run['trial']}: {run['status']}, no claims weighed.\n")
    _estimates(
        {
            "tasks": list(dict.fromkeys(cell["task_label"] for cell in run["covers"])),
            "arms": list(dict.fromkeys(cell["arm_label"] for cell in run["covers"])),
            "estimates": run["estimates"],
        },
        console,
    )


def _claim(claim: dict[str, Any], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    verdict = claim["verdict"]
    head = Text.assemble(
        (f"{words.MARKS[verdict]} {verdict.upper():13}", f"bold {words.COLOURS[verdict]}"),
        (claim["claim"], "bold"),
    )
    console.print(head)
    console.print(Padding(words.evidence(claim), (0, 0, 0, 15)))
    outlook = words.outlook(claim)
    if outlook:
        console.print(Padding(outlook, (0, 0, 0, 15)), style="dim")
    console.print()


def _allocation(row: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    spent = row.get("allocation")
    if not spent:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), title="budget", title_justify="left",
                  title_style="bold")  # fmt: skip
    for name in _budget.HEAD:
        right = name in ("outcomes", "share")
        table.add_column(name, header_style="dim", justify="right" if right else "left")
    lines = _budget.table(spent)
    for line in lines[:ARMS]:
        table.add_row(*map(_text, line))
    console.print(table)
    if len(lines) > ARMS:
        console.print(f"and {len(lines) - ARMS} more arms", style="dim")
    console.print()
    for each in _budget.sentences(row):
        console.print(_text(each))
    console.print()


def _estimates(row: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    for task in row["tasks"]:
        rows = [each for each in row["estimates"] if each["task"] == task]
        if not rows:
            continue
        names = list(dict.fromkeys(each["name"] for each in rows))
        table = Table(box=None, padding=(0, 2, 0, 0), title=task, title_justify="left",
                      title_style="bold")  # fmt: skip
        table.add_column("arm", header_style="dim")
        if len(names) <= 2:
            for name in names:
                first = next(each for each in rows if each["name"] == name)
                header = f"{name} {words.arrow(first.get('higher_is_better'))}".rstrip()
                table.add_column(header, header_style="dim")
            for arm in dict.fromkeys(each["arm"] for each in rows):
                cells = {each["name"]: each for each in rows if each["arm"] == arm}
                table.add_row(arm, *(_cell(cells.get(name)) for name in names))
        else:
            table.add_column("measure", header_style="dim")
            table.add_column("value", header_style="dim")
            shown = ""
            for each in sorted(rows, key=lambda r: list(row["arms"]).index(r["arm"])
                               if r["arm"] in row["arms"] else -1):  # fmt: skip
                name = f"{each['name']} {words.arrow(each.get('higher_is_better'))}".rstrip()
                table.add_row("" if each["arm"] == shown else each["arm"], name, _cell(each))
                shown = each["arm"]
        console.print(table)
        console.print()


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{words.number(row.get('value'))} {words.interval(row)}".rstrip()


def _effects(row: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    if not row["effects"]:
        return
    title = f"better than {row['control']} by"
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left",
                  title_style="bold")  # fmt: skip
    for name in ("arm", "task", "score", "effect"):
        table.add_column(name, header_style="dim")
    for each in row["effects"]:
        table.add_row(each["arm"], each["task"], each["name"], _cell(each))
    console.print(table)
    console.print()


def _edits(row: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    lines = edits(row)
    if not lines:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), title="edits, against the model before",
                  title_justify="left", title_style="bold")  # fmt: skip
    table.add_column("arm", header_style="dim")
    for _, name in COLUMNS:
        table.add_column(name, header_style="dim")
    for line in lines:
        table.add_row(line["arm"], *(line[key] for key, _ in COLUMNS))
    console.print(table)
    for line in lines:
        for note in line["notes"]:
            console.print(f"Note on {line['arm']}: {_text(note)}", style="yellow")
    console.print()


def _footer(row: dict[str, Any], console: Console) -> None:
    for notice in row["notices"]:
        console.print(f"Note: {notice}", style="dim")
    if row.get("differs"):
        console.print(f"Differs from the paper: {row['differs']}", style="dim")
    status = {
        "finished": "",
        "early": " Ended early: every claim was decided. Verdicts allow for every look; "
        "the other intervals do not.",
        "budget": " Ended by the budget: raise it to go on.",
    }.get(row["status"], "")
    if row.get("allocation"):
        status = f" {_budget.ended(row)}".rstrip()
    reused = f", {row['reused']:,} of them from before" if row.get("reused") else ""
    if row.get("first_error"):
        console.print(f"First error: {_text(row['first_error'])}", style="red", soft_wrap=True)
    console.print(
        f"{row['units']:,} units{reused}, {row['errors']:,} errors, "
        f"{words.seconds(row['seconds'])}.{status}"
    )


def plan_table(plan: Plan, console: Console) -> None:
    """Print what would run."""
    from rich.table import Table

    row = plan.as_json()
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("arm", header_style="dim")
    table.add_column("task", header_style="dim")
    for name in ("units", "done", "time", "tokens"):
        table.add_column(name, header_style="dim", justify="right")
    for cell in row["cells"]:
        left = cell["units"] > cell["done"]
        table.add_row(
            cell["arm"],
            cell["task"],
            f"{cell['units']:,}",
            f"{cell['done']:,}",
            "" if not left else _known(cell["seconds"], words.seconds),
            "" if not left else _known(cell["tokens"], lambda n: f"{n:,.0f}"),
        )
    console.print(f"{row['trial']}: {row['question']}".rstrip(": "), style="bold")
    console.print(table)
    for claim in row["claims"]:
        console.print(f"claim: {claim}")
    most, allocate = row.get("most"), row.get("allocate")
    todo = f"{row['todo']:,} units to do"
    if most is not None:
        todo = f"At most {most:,} of {row['units']:,} units, as `allocate: {allocate}` chooses"
    if not row["todo"]:
        console.print("Everything is in the store; `run` answers at once.")
    elif row["seconds"] is None:
        console.print(
            f"{todo}. Their cost is not known yet: `run --units 5` makes a pilot to reckon from."
        )
    else:
        console.print(f"{todo}, about {words.seconds(row['seconds'])}.")


def runs_table(runs: list[dict[str, Any]], console: Console) -> None:
    """Print every run in a store, newest first."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("run", "trial", "status", "new units", "started"):
        table.add_column(name, header_style="dim")
    for run in runs:
        table.add_row(
            str(run["id"]),
            run["trial"],
            run["status"],
            f"{run['written']:,}",
            str(run["started"])[:16].replace("T", " "),
        )
    console.print(table if runs else "No runs yet.")


def unit_pages(answers: list[dict[str, Any]], console: Console) -> None:
    """Print one unit: what was asked, then what each arm made of it."""
    first = answers[0]
    console.print(f"{first['task']} · {first['unit']}", style="bold")
    if not first.get("transcript"):
        console.print(_text(first["content"]), soft_wrap=True)
    if first.get("target") is not None:
        console.print(f"Right: {_text(first['target'])}", soft_wrap=True)
    for row in answers:
        scores = ", ".join(f"{k} {words.number(v)}" for k, v in row["scores"].items())
        console.print()
        console.rule(f"{row['arm']}: {row['status']}", align="left", style="dim")
        for message in row.get("transcript") or ():
            who = " ".join(str(message[key]) for key in ("role", "name") if message.get(key))
            console.print(f"{_text(who or '?')}:", style="dim")
            console.print(_text(message.get("content")), soft_wrap=True)
            for call in message.get("tool_calls") or ():
                console.print(_text(call), soft_wrap=True)
        if row.get("error"):
            told = _text(f"{row['error_kind']}: {row['error']}")
            console.print(told, style="red", soft_wrap=True)
        elif not row.get("transcript"):
            console.print(_text(row["output"]), soft_wrap=True)
        console.print(scores, style="bold")


def _text(value: Any) -> str:
    """Return untrusted text without the control codes that a terminal obeys."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return "".join(c if c in "\n\t" or (c.isprintable()) else "\ufffd" for c in text)


def _known(value: float | None, say: Any) -> str:
    return "?" if value is None else str(say(value))
