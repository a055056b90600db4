"""Everything known of a part: its class, its card, and the latest replication of its paper."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.catalog import Card, Entry

_LEDGERS = (Path(__file__).parents[1] / "replications", Path(__file__).parents[3] / "replications")
"""Where an installed package has the ledger, and where a checkout has it."""


def describe(entry: Entry) -> dict[str, Any]:
    """Return everything known of a part, as JSON."""
    from equipoise.catalog import recipe
    from equipoise.core import Part, capability_names, parameters

    cls: Any = entry.load()
    rows = [
        {
            "name": each.name,
            "expected": each.expected(),
            "required": each.required,
            "default": None
            if each.required
            else recipe(each.default)
            if isinstance(each.default, Part)
            else each.default,
            "setting": not each.in_identity,
        }
        for each in parameters(cls)
    ]
    found: dict[str, Any] = {
        "id": entry.id,
        "kind": entry.kind,
        "field": entry.card.field,
        "paper": entry.card.paper,
        "reference": entry.card.reference,
        "summary": entry.summary,
        "version": entry.card.version,
        "requires": list(entry.card.requires),
        "doc": inspect.getdoc(cls) or "",
        "parameters": rows,
        "exempt": dict(cls.exempt),
        "example": _example(entry, rows),
    }
    for name in ("needs", "provides", "adds", "removes"):
        capabilities = getattr(cls, name, None)
        if isinstance(capabilities, frozenset) and capabilities:
            found[name] = capability_names(capabilities)
    if entry.kind == "task":
        found["scores"] = [
            {"name": s.name, "higher_is_better": s.higher_is_better, "low": s.low, "high": s.high}
            for s in cls.scores
        ]
    row = ledger(entry.card)
    if row is not None:
        found["replication"] = {
            "outcome": row["outcome"],
            "date": row["provenance"]["date"],
            "claims": [{k: c[k] for k in ("claim", "verdict")} for c in row["claims"]],
        }
    return found


def _example(entry: Entry, rows: list[dict[str, Any]]) -> str:
    shown = [row for row in rows if row["required"]]
    shown = shown or [row for row in rows if row["default"] not in (None, [], "")][:2]
    values = ", ".join(
        f"{row['name']}: {json.dumps(row['default'], default=str) if not row['required'] else '…'}"
        for row in shown
    )
    spec = f"{{{entry.id}: {{{values}}}}}" if values else entry.id
    return {
        "subject": f"subject: {spec}",
        "treatment": f"arms:\n  control: []\n  treated: [{spec}]",
        "task": f"tasks:\n  mine: {spec}",
        "measure": f"measures:\n  mine: [{spec}]",
    }[entry.kind]


def ledger(card: Card) -> dict[str, Any] | None:
    """Return the row of the ledger about a card's replication, or None where there is none."""
    if not card.replicates:
        return None
    name = card.paper or card.title.lower().replace(" ", "-")
    for folder in _LEDGERS:
        path = folder / f"{name}.json"
        if path.exists():
            row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return row
    return None


def trial_text(card: Card) -> str:
    """Return a card's replication as a trial file, as it is written on the card."""
    text = card.path.read_text(encoding="utf-8")
    match = re.search(r"^replication:[^\n]*\n((?:[ #][^\n]*\n|\n)+)", text + "\n", flags=re.M)
    body = textwrap.dedent(match[1]).strip("\n") + "\n" if match else ""
    name = card.paper or next(iter(card.parts))
    return body if "trial" in (card.replication or {}) else f"trial: replicate {name}\n{body}"
