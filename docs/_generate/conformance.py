"""The page of conformance checks, from the checks themselves."""

from __future__ import annotations

from equipoise.catalog import KINDS
from equipoise.checks import checks_for
from equipoise.report.docstrings import table

HEAD = """\
# Conformance checks

What every part of a kind must do. `tests/test_conformance.py` runs each check on each part;
`equipoise.checks` lets other packages do the same. A part that cannot pass a check names it in
`exempt`, with the reason.
"""


def page() -> str:
    """Return the checks of all parts, then those of each kind."""
    of = {kind: {each.name: each.demand for each in checks_for(kind)} for kind in KINDS}
    shared = {
        name: demand
        for name, demand in of[KINDS[0]].items()
        if all(checks.get(name) == demand for checks in of.values())
    }
    groups = {"Every part": shared} | {
        kind.capitalize(): {n: d for n, d in of[kind].items() if n not in shared} for kind in KINDS
    }
    lines = [HEAD]
    for title, checks in groups.items():
        rows = [(f"`{name}`", demand) for name, demand in checks.items()]
        lines += [f"## {title}", "", table(("check", "demand"), rows), ""]
    return "\n".join(lines)
