"""The catalogue: a page a card, and an index by field and by kind."""

from __future__ import annotations

import ast
import html
import json
import re
import textwrap
from collections.abc import Mapping
from doctest import DocTestParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from _generate.python import entry as described
from equipoise.catalog import KINDS, Card, Entry, catalog
from equipoise.core import Part, UsageError
from equipoise.report.docstrings import Docstring, examples, flat, markdown, table
from equipoise.report.figures import panels
from equipoise.report.parts import describe, trial_text
from equipoise.report.words import interval, number, seconds
from equipoise.trial.replication import WORDS


def pages(ledger: Path) -> dict[str, str]:
    """Return the page of every card of equipoise's own, and the index."""
    cards = sorted(
        (card for card in catalog().cards if card.module.startswith("equipoise.methods.")),
        key=lambda card: (card.field, card.title.lower()),
    )
    found = {"catalogue/index.md": _index(cards)}
    found |= {place(card): _page(card, ledger) for card in cards}
    for field in dict.fromkeys(card.field for card in cards):
        text = _functions(field)
        if text:
            found[f"catalogue/{field}/functions.md"] = text
    return found


def _functions(field: str) -> str:
    """Return the page of what a field's package exports beside its parts, or nothing."""
    package = f"equipoise.methods.{field}"
    exported = getattr(import_module(package), "__all__", ())
    lines = [
        f"# Plain functions: {field}",
        "",
        f"From `{package}`, without a trial or a store.",
        "",
    ]
    entries = []
    for name in sorted(exported):
        try:
            thing = getattr(import_module(package), name)
        except ModuleNotFoundError as error:
            entries.append(
                f"## `{name}` {{ #{name} }}\n\nNot described here: needs {error.name}.\n"
            )
            continue
        if not (isinstance(thing, type) and issubclass(thing, Part)):
            entries.append(described(thing, name, package, depth=2))
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, *entries])) if entries else ""


def place(card: Card) -> str:
    """Return a card's page."""
    return f"catalogue/{card.field}/{card.module.rpartition('.')[2]}.md"


def _entries(card: Card) -> list[Entry]:
    return [entry for entry in catalog() if entry.card is card]


def _index(cards: list[Card]) -> str:
    lines = [
        "# Catalogue",
        "",
        "Every part that a trial file can name. `equipoise list` shows the same, "
        "`equipoise describe ID` explains one.",
        "",
        "## By kind",
    ]
    for kind in KINDS:
        rows = [
            (f"[`{entry.id}`]({_link(card)}#{entry.id})", card.field, entry.summary)
            for card in cards
            for entry in _entries(card)
            if entry.kind == kind
        ]
        head = ("id", "field", "what it is")
        lines += ["", f"### {kind.capitalize()}s", "", table(head, sorted(rows))]
    lines += ["", "## By field"]
    for field in dict.fromkeys(card.field for card in cards):
        rows = [
            (
                f"[{card.title}]({_link(card)})",
                ", ".join(f"`{entry.id}`" for entry in _entries(card)),
                card.summary,
            )
            for card in cards
            if card.field == field
        ]
        title = field.replace("_", " ").capitalize()
        lines += ["", f"### {title}", "", table(("page", "parts", "what it is"), rows)]
    papers = [card for card in cards if card.replication]
    lines += ["", "## Papers with a replication", ""]
    lines += [
        f"- [{card.title}]({_link(card)}#replication): `equipoise replicate {card.paper}`"
        for card in papers
    ]
    return "\n".join(lines) + "\n"


def _link(card: Card) -> str:
    return place(card).removeprefix("catalogue/")


def _page(card: Card, ledger: Path) -> str:
    lines = [f"# {card.title}", "", card.summary]
    if card.reference:
        lines += ["", f"*{card.reference}*"]
    if card.requires:
        extras = ",".join(card.requires)
        lines += ["", f"Needs `pip install 'equipoise[{extras}]'`."]
    entries = _entries(card)
    for entry in entries:
        lines += ["", *_part(entry, alone=len(entries) == 1)]
    if card.replication:
        lines += ["", *_replication(card, ledger)]
    if _functions(card.field):
        lines += ["", "[Plain functions of this field](functions.md), for use without a trial."]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _part(entry: Entry, *, alone: bool) -> list[str]:
    kind = f'<span class="kind">{entry.kind}</span>'
    lines = [f"## `{entry.id}` {{ #{entry.id} }}", "", kind, ""]
    if not alone and entry.summary != entry.card.summary:
        lines += [entry.summary, ""]
    try:
        found = describe(entry)
    except UsageError as error:
        return [*lines, f"Not described here: {error}"]
    doc = Docstring.of(found["doc"])
    lines += [f"**{markdown(doc.summary)}**", "", doc.rest, "", *_parameters(found, doc)]
    lines += ["", "In a trial file:", "", "```yaml", found["example"], "```", ""]
    lines += _contract(found)
    if "Notes" in doc.sections:
        lines += ["", doc.sections["Notes"]]
    if "Examples" in doc.sections:
        lines += ["", "In Python:", "", session(doc.sections["Examples"], entry.card.module)]
    if "References" in doc.sections and _new(doc.sections["References"], found["reference"] or ""):
        lines += ["", "Reference: " + flat(doc.sections["References"])]
    return lines


def _new(references: str, known: str) -> bool:
    """Say whether references tell more than the card's, which stands at the top."""
    ours, theirs = (re.sub(r"\W+", " ", each).strip() for each in (references, known))
    return ours not in theirs


def session(text: str, module: str) -> str:
    """Return an example in a fence, with the imports that its module makes for it."""
    lines = imports(text, vars(import_module(module)), module)
    before, start, after = text.partition(">>>")
    return examples(before + "".join(f">>> {line}\n" for line in lines) + start + after)


def imports(text: str, known: Mapping[str, Any], module: str) -> list[str]:
    """Return the imports of names that a doctest takes from its module."""
    tree = ast.parse("".join(each.source for each in DocTestParser().get_examples(text)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            names.discard(node.asname or node.name.split(".")[0])
    wanted: dict[str, list[str]] = {}
    plain = []
    for name in sorted(names & set(known)):
        found = known[name]
        if isinstance(found, ModuleType):
            own = found.__name__
            plain.append(f"import {own}" if own == name else f"import {own} as {name}")
        else:
            home = getattr(found, "__module__", None) or module
            home = "equipoise.core" if home.startswith("equipoise.core.") else home
            wanted.setdefault(home, []).append(name)
    return plain + [_from(home, names) for home, names in sorted(wanted.items())]


def _from(home: str, names: list[str]) -> str:
    line = f"from {home} import {', '.join(names)}"
    if len(line) <= 74:  # what a page shows without scrolling
        return line
    return f"from {home} import (\n...     " + ",\n...     ".join(names) + ",\n... )"


def _parameters(found: dict[str, Any], doc: Docstring) -> list[str]:
    if not found["parameters"]:
        return ["No parameters."]
    told = doc.items("Parameters")
    rows = []
    for each in found["parameters"]:
        default = "required" if each["required"] else f"`{_json(each['default'])}`"
        what = told.get(each["name"], "")
        name = f"`{each['name']}`" + (" †" if each["setting"] else "")
        rows.append((name, what, each["expected"], default))
    lines = [table(("parameter", "what it is", "must be", "default"), rows)]
    if any(each["setting"] for each in found["parameters"]):
        lines += [
            "",
            "† Stays out of the part's identity; what a file or data set holds enters it.",
        ]
    return lines


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _contract(found: dict[str, Any]) -> list[str]:
    """Return what a part asks for and gives, and the checks it is let off."""
    words = {
        "needs": "Needs a subject that has",
        "provides": "Provides",
        "adds": "Adds",
        "removes": "Takes away",
    }
    lines = [
        f"{word} {', '.join(f'`{each}`' for each in found[name])}.\n"
        for name, word in words.items()
        if found.get(name)
    ]
    if found.get("scores"):
        arrows = {True: "higher is better", False: "lower is better", None: "no direction"}
        rows = [
            (
                f"`{each['name']}`",
                arrows[each["higher_is_better"]],
                _bounds(each["low"], each["high"]),
            )
            for each in found["scores"]
        ]
        lines += ["Scores; claims are about the first when they name none:", ""]
        lines += [table(("score", "direction", "from, to"), rows), ""]
    for check, reason in sorted(found["exempt"].items()):
        lines += [f"Exempt from the check `{check}`: {reason}", ""]
    return lines


def _bounds(low: float | None, high: float | None) -> str:
    ends = ["" if end is None else f"{end:g}" for end in (low, high)]
    return ", ".join(end or "–" for end in ends) if any(ends) else "unbounded"


def _replication(card: Card, ledger: Path) -> list[str]:
    name = card.paper or next(iter(card.parts))
    lines = ["## Replication { #replication }", ""]
    raw = card.replication or {}
    lines += [str(raw.get("question", "")), "", f"`equipoise replicate {name}` runs it.", ""]
    lines += [f"What differs from the paper: {flat(str(raw.get('differs', '')))}", ""]
    path = ledger / f"{card.paper or card.title.lower().replace(' ', '-')}.json"
    if path.exists():
        lines += _ledger(json.loads(path.read_text(encoding="utf-8")), card)
    else:
        lines += ["No result of the full size is recorded yet.", ""]
    lines += ['??? note "The trial"', ""]
    lines += [textwrap.indent(f"```yaml\n{trial_text(card)}```", "    ")]
    return lines


def _ledger(row: dict[str, Any], card: Card) -> list[str]:
    about = row["provenance"]
    machine = f"{about['cores']} cores, {about['memory_gib']} GiB, {about['platform']}"
    before, took = row.get("reused", 0), f"{seconds(row['seconds'])} on {machine}"
    if before:  # the time is that of the last run alone
        took = f"{before:,} of them from runs before; the last one took {took}"
    lines = [
        f"**{row['outcome'].capitalize()}** on {about['date'][:10]}: {row['units']:,} units, "
        f"{row['errors']:,} errors, {took}.",
        "",
    ]
    if row.get("card_version") != card.version:
        lines += [f"This result is of version {row.get('card_version')} of the card.", ""]
    rows = [
        (
            each["claim"],
            WORDS[each["verdict"]],
            number(each["estimate"]),
            interval(each),
            f"{each['level']:.4g}",
            f"{each['n']:,}",
        )
        for each in row["claims"]
    ]
    lines += [table(("claim", "verdict", "estimate", "interval", "level", "units"), rows), ""]
    lines += [
        "An estimate is how much better the arm is than the one it is compared with, or its "
        "value where it is held against a number.",
        "",
    ]
    return lines + [line for panel in panels(row) for line in (_figure(panel), "")]


def _figure(panel: dict[str, Any]) -> str:
    """Return a figure as one line of HTML, which Markdown leaves alone."""
    legend = "".join(
        f"<li>{entry['key']}{html.escape(entry['name'])}</li>" for entry in panel["legend"]
    )
    title = f"{html.escape(panel['title'])} <small>{html.escape(panel['task'])}</small>"
    caption = html.escape(panel["caption"])
    return (
        f'<figure class="measured"><figcaption>{title}</figcaption>'
        f'<ul class="legend">{legend}</ul>{panel["chart"]}<p>{caption}</p></figure>'
    )
