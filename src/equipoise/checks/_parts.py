"""What every part must do, whatever its kind."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import pickle
from typing import Any

from equipoise.catalog import catalog, identity, recipe
from equipoise.checks._fresh import fresh
from equipoise.checks._probe import fingerprint
from equipoise.checks._run import Case
from equipoise.core import Measure, Subject, Task, Treatment, UsageError, parameters

_KINDS = {"subject": Subject, "treatment": Treatment, "task": Task, "measure": Measure}


def check_card_and_module_agree(case: Case) -> None:
    """The card names a class of its kind, and that class is final."""
    kind = _KINDS[case.entry.kind]
    case.need(issubclass(case.cls, kind), f"is not a {case.entry.kind}")
    case.need(case.cls.__module__ == case.entry.card.module, "is defined in another module")
    below = [each.__name__ for each in case.cls.__subclasses__()]
    case.need(not below, f"is not final: {below} derive from it")
    case.need(not inspect.isabstract(case.cls), "is abstract")


def check_import_is_silent(case: Case) -> None:
    """Importing the module prints nothing and seeds nothing."""
    found = _fresh(case)["import"]
    case.need(not found["said"], f"importing prints {found['said'][:200]!r}")
    case.need(not found["seeded"], "importing moves a global random generator")


def check_parameters_are_frozen_and_documented(case: Case) -> None:
    """Parameters are typed, documented and immutable."""
    case.need(dataclasses.is_dataclass(case.cls), "is not a dataclass")
    case.need(case.cls.__dataclass_params__.frozen, "is not frozen")
    text = _documented(inspect.getdoc(case.cls) or "")
    for each in parameters(case.cls):
        case.need(each.name in text, f"parameter {each.name} is not documented")
        case.need(not isinstance(each.default, (list, dict, set)), f"{each.name} is mutable")


def check_survives_storing(case: Case) -> None:
    """The part survives repr, pickle, and its recipe."""
    part = case.part
    case.need(case.cls.__name__ in repr(part), "repr does not name the class")
    case.need(pickle.loads(pickle.dumps(part)) == part, "pickle gives another part")  # noqa: S301
    from equipoise.trial.build import build

    again = build(_from_recipe(recipe(part)), _KINDS[case.entry.kind])
    case.need(identity(again) == identity(part), "its recipe builds a part of another identity")


def check_bad_values_are_refused(case: Case) -> None:
    """A value out of range raises one sentence that names part, parameter and range."""
    part = case.part
    for each in parameters(case.cls):
        for bad in _bad_values(each):
            try:
                dataclasses.replace(part, **{each.name: bad})
            except UsageError as error:
                start = f"{case.cls.__name__}: {each.name} must be"
                case.need(str(error).startswith(start), f"says {error} for {each.name}={bad!r}")
                case.need(str(error).endswith("."), f"{error} is not a sentence")
            else:
                case.need(False, f"takes {each.name}={bad!r}")


def check_docstring_teaches(case: Case) -> None:
    """The docstring has a summary, and an example that doctest finds."""
    doc = inspect.getdoc(case.cls) or ""
    first = doc.splitlines()[0] if doc else ""
    case.need(bool(first) and first.endswith("."), "the docstring has no summary line")
    examples = doctest.DocTestParser().get_examples(doc)
    case.need(bool(examples), "the docstring has no example")


def check_replication_is_registered(case: Case) -> None:
    """A paper's card has a trial with claims, which plans in both sizes."""
    card = case.entry.card
    if card.paper is None:
        return
    case.need(bool(card.reference), "the card has no reference")
    case.need(card.replication is not None, "the card has no replication")
    from equipoise.trial.replication import replication

    for quick in (False, True):
        trial = replication(card.paper, quick=quick)
        case.need(bool(trial.claims), "the replication claims nothing")
        case.need(bool(trial.differs), "the card does not say what differs from the paper")


def check_same_seed_same_result(case: Case) -> None:
    """The same stream gives the same result in a fresh process with scrambled generators."""
    found = _fresh(case)
    case.need("error" not in found, f"fails in a fresh process: {found.get('error')}")
    here = fingerprint(case.entry)
    case.need(found["fingerprint"] == here, "does something else in a fresh process")
    case.need(fingerprint(case.entry) == here, "does something else the second time")


def check_global_generators_are_left_alone(case: Case) -> None:
    """Working moves no global random generator."""
    case.need(not _fresh(case).get("touched", False), "moves a global random generator")


def _fresh(case: Case) -> dict[str, Any]:
    # One process a field: a check of one part does not wait for all the others.
    field = case.entry.card.field
    names = tuple(sorted(entry.id for entry in catalog() if entry.card.field == field))
    names = names if case.entry.id in names else (case.entry.id,)
    return dict(fresh(names)[case.entry.id])


def _documented(doc: str) -> set[str]:
    """Return the parameter names that a NumPy-style docstring describes."""
    lines = doc.splitlines()
    if "Parameters" not in lines:
        return set()
    start = lines.index("Parameters") + 2
    names: set[str] = set()
    for index in range(start, len(lines)):
        line = lines[index]
        if index + 1 < len(lines) and set(lines[index + 1]) == {"-"}:
            break
        if line and not line.startswith(" "):
            names |= {name.strip() for name in line.split(":")[0].split(",")}
    return names


def _bad_values(parameter: Any) -> list[Any]:
    found: list[Any] = []
    if "low" in parameter.metadata:
        low, high = parameter.metadata["low"], parameter.metadata["high"]
        found += [low - 1] if low != float("-inf") else []
        found += [high + 1] if high != float("inf") else []
        if parameter.type in (int, float):
            found.append("much")
    elif "choices" in parameter.metadata:
        found.append("no such choice")
    elif parameter.type in (int, float, bool):
        found.append("much")
    elif parameter.type is str:
        found.append(3)
    return found


def _from_recipe(spec: dict[str, Any]) -> dict[str, Any]:
    """Drop what a file would leave out: parameters that are None."""
    ((name, given),) = spec.items()
    return {name: {key: _inner(value) for key, value in given.items() if value is not None}}


def _inner(value: Any) -> Any:
    known = catalog().entries
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in known:
        return _from_recipe(value)
    return [_inner(each) for each in value] if isinstance(value, list) else value
