"""Trial files: YAML to a checked `Trial`, with every mistake reported at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from equipoise.catalog import yaml_loader
from equipoise.core import Measure, Subject, Task, Treatment, UsageError, nearest
from equipoise.trial.build import BuildFault, build
from equipoise.trial.schema import ArmFile, BudgetFile, ClaimFile, PartFile, TrialFile
from equipoise.trial.trial import Arm, Budget, Claim, Trial

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in a trial file, and where. ``line`` counts from 1."""

    line: int
    message: str


class TrialFileError(UsageError):
    """A trial file with mistakes; its text lists them all, one a line."""

    def __init__(self, name: str, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = sorted(set(mistakes), key=lambda each: (each.line, each.message))
        super().__init__("\n".join(f"{name}:{each.line}: {each.message}" for each in self.mistakes))


def load(path: str | Path, *, quick: bool = False) -> Trial:
    """Read a trial file and check everything in it; nothing runs.

    Parameters
    ----------
    path
        A YAML file.
    quick
        Apply the file's ``quick`` overrides, which make it run in seconds.

    Raises
    ------
    TrialFileError
        With every mistake, its line and the mend.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        near = nearest(path.name, [each.name for each in path.parent.glob("*.y*ml")])
        raise UsageError(f"No file {path}.{near}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder; a trial is a YAML file.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text, byte {error.start} is wrong.") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}.") from error
    return loads(text, name=str(path), quick=quick, folder=path.parent)


def loads(
    text: str, *, name: str = "trial", quick: bool = False, folder: Path | None = None
) -> Trial:
    """Read a trial from YAML text; paths in it are taken from ``folder``."""
    try:
        node = yaml.compose(text, Loader=yaml_loader())
        raw = yaml.load(text, Loader=yaml_loader())  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise TrialFileError(name, [Mistake(line, f"YAML: {error.problem}.")]) from error
    except yaml.YAMLError as error:
        raise TrialFileError(name, [Mistake(1, f"YAML: {error}.")]) from error
    lines: dict[Place, int] = {}
    repeated = list(_walk(node, (), lines)) if node is not None else []
    return from_raw(
        raw, name=name, lines=lines, mistakes=repeated, quick=quick, folder=folder, text=text
    )


def from_raw(
    raw: Any,
    *,
    name: str,
    lines: Mapping[Place, int] | None = None,
    mistakes: Sequence[Mistake] = (),
    quick: bool = False,
    folder: Path | None = None,
    text: str = "",
) -> Trial:
    """Make a trial of what YAML gave, or raise `TrialFileError`."""
    found = list(mistakes)
    lines = lines or {}

    def note(place: Place, message: str) -> None:
        # The nearest place that has a line: a missing key is reported at its parent.
        while place and place not in lines:
            place = place[:-1]
        found.append(Mistake(lines.get(place, 1), message))

    if not isinstance(raw, dict):
        raise TrialFileError(
            name, [Mistake(1, "a trial file is a mapping with trial, arms, tasks.")]
        )
    if quick:
        for path, value in (raw.get("quick") or {}).items():
            fault = _override(raw, str(path), value)
            if fault:
                note(("quick", path), fault)
    try:
        file = TrialFile.model_validate(raw)
    except ValidationError as error:
        for each in error.errors():
            place, message = _explain(each, raw)
            note(place, message)
        raise TrialFileError(name, found) from error
    trial = _Resolver(file, note, folder).trial(text)
    if trial is not None:
        for place, fault in trial.faults():
            note(place, fault)
    if found or trial is None:
        raise TrialFileError(name, found)
    return trial


class _Resolver:
    """Turns the file's parts into objects, noting each that cannot be."""

    def __init__(self, file: TrialFile, note: Any, folder: Path | None) -> None:
        self.file, self.note, self.folder = file, note, folder
        self.families: dict[str, list[str]] = {}

    def trial(self, text: str) -> Trial | None:
        file = self.file
        arms = self._arms()
        tasks: dict[str, Task] = {}
        for label, spec in file.tasks.items():
            built = self._part(spec, Task, ("tasks", label))
            if isinstance(built, Task):
                tasks[label] = built
        measures: dict[str, list[Measure]] = {}
        for label, specs in file.measures.items():
            if label not in file.tasks:
                self.note(("measures", label), f'No task "{label}".{nearest(label, file.tasks)}')
            made = [self._part(s, Measure, ("measures", label, i)) for i, s in enumerate(specs)]
            measures[label] = [each for each in made if isinstance(each, Measure)]
        claims = [claim for i, spec in enumerate(file.claims) for claim in self._claims(spec, i)]
        if arms is None or len(tasks) < len(file.tasks) or None in claims:
            return None
        return Trial(
            name=file.trial,
            arms=arms,
            tasks=tasks,
            claims=[claim for claim in claims if claim is not None],
            measures=measures,
            budget=Budget(**file.budget.model_dump()),
            edit_report=file.edit_report
            if isinstance(file.edit_report, bool)
            else file.edit_report.model_dump(exclude_none=True),
            text=text,
            **file.model_dump(
                include={
                    "question", "seed", "repeats", "builds", "units", "level", "errors", "stop",
                    "allocate", "paper", "differs",
                }
            ),
        )  # fmt: skip

    def _arms(self) -> dict[str, Arm] | None:
        arms: dict[str, Arm] = {}
        whole = True
        for label, given in self.file.arms.items():
            spec = given if isinstance(given, ArmFile) else ArmFile(treatments=given or [])
            own = ("arms", label, "subject") if spec.subject is not None else ("subject",)
            source = self.file.subject if spec.subject is None else spec.subject
            if source is None:
                self.note(("arms", label), f"Arm {label} has no subject and the trial names none.")
                whole = False
                continue
            variants = list(_sweep([source, *spec.treatments]))
            self.families[label] = []
            for values, (source_, *treatments) in variants:
                subject = self._part(source_, Subject, own)
                made = [
                    self._part(each, Treatment, ("arms", label, i))
                    for i, each in enumerate(treatments)
                ]
                if not isinstance(subject, Subject) or None in made:
                    whole = False
                    continue
                name = label + "".join(f" {key}={value}" for key, value in values)
                self.families[label].append(name)
                arms[name] = Arm(
                    subject,
                    tuple(each for each in made if isinstance(each, Treatment)),
                    None if spec.tasks is None else tuple(spec.tasks),
                )
        return arms if whole else None

    def _claims(self, spec: ClaimFile, index: int) -> list[Claim | None]:
        relation, other = spec.relation()
        measure = None
        if spec.measure is not None:
            measure = self._part(spec.measure, Measure, ("claims", index, "measure"))
            if measure is None:
                return [None]
        arms = self.families.get(spec.arm) or [spec.arm]
        others: list[str | float] = [other]
        if isinstance(other, str):
            others = list(self.families.get(other) or [other])
        return [
            Claim(
                arm=arm,
                relation=relation,
                other=against,
                on=spec.on,
                margin=spec.by or spec.within or 0.0,
                score=spec.score,
                measure=measure,
            )
            for arm, against in itertools.product(arms, others)
        ]

    def _part(self, spec: PartFile, kind: type, place: Place) -> Any:
        try:
            return build(spec, kind, folder=self.folder)
        except BuildFault as fault:
            for inner, message in fault.faults:
                self.note(place + inner, message)
        return None


def _sweep(parts: list[Any]) -> list[tuple[list[tuple[str, Any]], list[Any]]]:
    """Expand every ``{each: [...]}`` into one variant a value."""
    holes: list[tuple[Place, list[Any]]] = []

    def look(value: Any, place: Place) -> None:
        if isinstance(value, dict):
            if set(value) == {"each"} and isinstance(value["each"], list):
                holes.append((place, value["each"]))
                return
            for key, inner in value.items():
                look(inner, (*place, key))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                look(inner, (*place, index))

    look(parts, ())
    variants = []
    for values in itertools.product(*(choices for _, choices in holes)):
        filled: Any = parts
        for (place, _), value in zip(holes, values, strict=True):
            filled = _put(filled, place, value)
        names = [(str(place[-1]), value) for (place, _), value in zip(holes, values, strict=True)]
        variants.append((names, filled))
    return variants


def _put(value: Any, place: Place, new: Any) -> Any:
    if not place:
        return new
    copy = value.copy()
    copy[place[0]] = _put(value[place[0]], place[1:], new)
    return copy


def _override(raw: dict[str, Any], path: str, value: Any) -> str | None:
    """Set ``tasks.prose.windows``: a part's id may be left out of the path."""
    *steps, last = path.split(".")
    here: Any = raw
    for step in steps:
        here = _inside(here, step)
        key = int(step) if isinstance(here, list) and step.isdigit() else step
        try:
            here = here[key]
        except (LookupError, TypeError):
            known = map(str, here) if isinstance(here, dict) else ()
            return f'quick: no "{step}" on the way to {path}.{nearest(step, known)}'
    here = _inside(here, last)
    if not isinstance(here, dict):
        return f"quick: {path} does not lead to a parameter."
    here[last] = value
    return None


def _inside(here: Any, step: str) -> Any:
    """Step into a part, ``{id: {parameters}}``, unless the path names the id."""
    while isinstance(here, dict) and len(here) == 1 and step not in here:
        (inner,) = here.values()
        if not isinstance(inner, (dict, list)):
            break
        here = inner
    return here


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int]) -> list[Mistake]:
    """Note the line of every key and item; return repeated keys."""
    lines.setdefault(place, node.start_mark.line + 1)
    repeated: list[Mistake] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                repeated.append(Mistake(line, f'"{key.value}" is given twice.'))
            seen.add(key.value)
            lines[(*place, key.value)] = line
            repeated += _walk(value, (*place, key.value), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            repeated += _walk(value, (*place, index), lines)
    return repeated


def _explain(error: Any, raw: Any) -> tuple[Place, str]:
    """Turn one of pydantic's errors into a place in the file and a sentence."""
    # Pydantic names the branch of a union in the place; those are not in the file.
    place = tuple(step for step in error["loc"] if not _is_branch(step))
    key = str(place[-1]) if place else ""
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _known_keys(place)
        return place, f'unknown key "{key}".{nearest(key, known)} There are: {", ".join(known)}.'
    if kind == "missing":
        return place[:-1], f'the key "{key}" is missing.'
    if kind == "value_error":
        return place, str(error["ctx"]["error"]) + "."
    if kind == "string_pattern_mismatch":
        return (
            place,
            f"{key} must be letters, digits, spaces, dots and dashes, got {error['input']!r}.",
        )
    text = re.sub(r"^Input should be", "must be", error["msg"])
    return place, f"{key} {text}, got {_short(error['input'])}."


def _is_branch(step: str | int) -> bool:
    return isinstance(step, str) and (
        step in ("ArmFile", "str", "float", "int") or step.startswith(("list[", "dict["))
    )


def _known_keys(place: Place) -> list[str]:
    models: dict[str, type[BaseModel]] = {
        "claims": ClaimFile,
        "arms": ArmFile,
        "budget": BudgetFile,
    }
    model = models.get(str(place[0]), TrialFile) if len(place) > 1 else TrialFile
    return list(model.model_fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
