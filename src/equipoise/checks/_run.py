"""Finds the checks of a kind and runs one on a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from equipoise.catalog import Entry


class CheckFailure(AssertionError):
    """A part does not do what every part of its kind does; the text says what."""


@dataclass(frozen=True)
class Case:
    """A part under check: its catalogue entry, its class, and its smallest instance."""

    entry: Entry
    cls: Any

    @property
    def part(self) -> Any:
        """A fresh smallest instance."""
        return self.cls.tiny()

    def need(self, condition: bool, message: str) -> None:
        """Raise `CheckFailure` with ``message`` unless ``condition`` holds."""
        if not condition:
            raise CheckFailure(f"{self.entry.id}: {message}")


@dataclass(frozen=True)
class Check:
    """One check: a name to exempt by, and what it demands."""

    name: str
    demand: str
    run: Callable[[Case], None]


def checks_for(kind: str) -> list[Check]:
    """Return the checks that a part of this kind must pass."""
    from equipoise.checks import _measures, _parts, _subjects, _tasks, _treatments

    own = {
        "subject": _subjects,
        "treatment": _treatments,
        "task": _tasks,
        "measure": _measures,
    }[kind]
    found = []
    for module in (_parts, own):
        for name, function in vars(module).items():
            if name.startswith("check_"):
                demand = (function.__doc__ or "").strip().splitlines()[0]
                found.append(Check(name.removeprefix("check_"), demand, function))
    return found


def verify(entry: Entry, check: Check) -> str:
    """Run one check on one part; return "passed", or the reason of its exemption.

    Raises
    ------
    CheckFailure
        If the part fails without an exemption, or passes with one.
    """
    cls = entry.load()
    reason = cls.exempt.get(check.name)
    if reason is None:
        check.run(Case(entry, cls))
        return "passed"
    try:
        check.run(Case(entry, cls))
    except Exception:
        return reason
    raise CheckFailure(f"{entry.id}: passes {check.name}, so its exemption ({reason}) has to go.")
