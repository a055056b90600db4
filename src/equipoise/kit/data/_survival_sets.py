"""Survival sets that lifelines and scikit-survival carry, as rows of numbers.

Every set has the columns ``time`` and ``event`` (1 where it was seen); categories are numbered
from 0 in the order given here, and truth values are 1 and 0. Their files are read as they lie,
because importing the packages takes a second.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from equipoise.core import UsageError
from equipoise.kit.data.source import Row


@dataclass(frozen=True, slots=True)
class _Set:
    package: str
    file: str
    time: str
    event: str
    codes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Left out: what was mostly not measured, or known only after the event.
    without: Sequence[str] = ()


_NO_YES = ("no", "yes")

_SETS = {
    "gbsg2": _Set(
        "lifelines", "gbsg2.csv", "time", "cens",
        {"horTh": _NO_YES, "menostat": ("Pre", "Post"), "tgrade": ("I", "II", "III")},
    ),
    "kidney_transplant": _Set("lifelines", "kidney_transplant.csv", "time", "death"),
    "larynx": _Set("lifelines", "larynx.csv", "time", "death"),
    "lung": _Set(
        "lifelines", "lung.csv", "time", "status", without=("inst", "meal.cal", "wt.loss"),
    ),
    "rossi": _Set("lifelines", "rossi.csv", "week", "arrest"),
    "flchain": _Set(
        "sksurv", "data/flchain.arff", "futime", "death",
        {"sex": ("F", "M"), "mgus": _NO_YES, "death": ("alive", "dead")},
        without=("chapter", "creatinine"),
    ),
    "veterans": _Set(
        "sksurv", "data/veteran.arff", "Survival_in_days", "Status",
        {
            "Treatment": ("standard", "test"), "Prior_therapy": _NO_YES,
            "Celltype": ("squamous", "smallcell", "adeno", "large"), "Status": ("censored", "dead"),
        },
    ),
    "whas500": _Set("sksurv", "data/whas500.arff", "lenfol", "fstat"),
}  # fmt: skip

PACKAGES = {name: each.package for name, each in _SETS.items()}
"""Package that carries each set: ``lifelines`` or ``sksurv``."""

_INSTALL = {
    "lifelines": "lifelines, which is not installed: pip install 'equipoise[survival]'",
    "sksurv": "scikit-survival, which is not installed: pip install 'equipoise[scikit-survival]'",
}


def survival_rows(name: str) -> list[Row]:
    """Return a set's rows; those with an empty cell are left out."""
    given = _SETS[name]
    spec = find_spec(given.package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"builtin:{name} comes with the package {_INSTALL[given.package]}.")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / given.file
    if not path.is_file():
        raise UsageError(f"builtin:{name}: this version of the package does not carry it.")
    text = path.read_text(encoding="utf-8")
    names, cells = _arff(text) if path.suffix == ".arff" else _csv(text)
    keep = [each for each in names if each not in given.without]
    renamed = {given.time: "time", given.event: "event"}
    found: list[Row] = []
    for line in cells:
        row = dict(zip(names, line, strict=True))
        values = {
            renamed.get(each, _plain(each)): _number(row[each], given.codes.get(each))
            for each in keep
        }
        if None not in values.values():
            found.append(values)
    return found


def _csv(text: str) -> tuple[list[str], list[list[str]]]:
    names, *cells = csv.reader(text.splitlines())
    return names, cells


def _arff(text: str) -> tuple[list[str], list[list[str]]]:
    names, cells, inside = [], [], False
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("%"):
            continue
        if inside:
            cells.append(next(csv.reader([line])))
        elif words[0].lower() == "@attribute":
            names.append(words[1])
        inside = inside or words[0].lower() == "@data"
    return names, cells


def _number(cell: str, codes: Sequence[str] | None) -> int | float | None:
    if cell in ("", "?", "NA"):
        return None
    if codes is not None:
        return codes.index(cell)
    value = float(cell)
    return int(value) if value.is_integer() else value


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
