"""A trial as objects: arms, tasks, and the claims stated beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from equipoise.catalog import digest, entry_of, identity, part, recipe
from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    HasModule,
    Measure,
    Rng,
    ScoresText,
    Subject,
    Task,
    Treatment,
    UsageError,
    capability_names,
    nearest,
)
from equipoise.trial.looking import looking_faults

Relation = Literal["beats", "no_worse_than", "matches", "above", "below"]

EDIT = "edit"
"""Label of the task that is added where an arm edits a language model's module."""


@dataclass(frozen=True)
class Arm:
    """One arm: a subject and what is done to it, in order.

    Parameters
    ----------
    subject
        The recipe of the subject.
    treatments
        Applied one after another; none makes a control.
    tasks
        Labels of the tasks this arm does; None means all.
    """

    subject: Subject
    treatments: tuple[Treatment, ...] = ()
    tasks: tuple[str, ...] | None = None

    def capabilities(self) -> frozenset[Capability]:
        """Return what the treated subject can do.

        Raises
        ------
        UsageError
            If a treatment needs what the subject before it lacks, or edits
            what a treatment before it has replaced.
        """
        have = frozenset(self.subject.provides)
        name = _name(self.subject)
        replaced = dict.fromkeys(self.subject.replaces, name)
        for treatment in self.treatments:
            lack(name, have, treatment)
            for what in sorted(treatment.edits & replaced.keys()):
                raise UsageError(
                    f"{_name(treatment)} edits the {what} of the model, which {replaced[what]}"
                    f" before it has replaced; {_mend(replaced[what], self.subject)}."
                )
            have = (have - treatment.removes) | treatment.adds
            replaced |= dict.fromkeys(treatment.replaces, _name(treatment))
            name = f"{name} after {_name(treatment)}"
        return have

    @property
    def open(self) -> bool:
        """Whether its subject is a language model whose module can be looked into."""
        return {HasModule, ScoresText} <= set(self.subject.provides)

    @property
    def random(self) -> bool:
        """Whether making it again with another seed could give another subject."""
        return any(treatment.random for treatment in self.treatments)

    def identity(self, seed: int) -> str:
        """Return the SHA-256 of everything that makes it in a trial of this seed."""
        return digest(
            {
                "subject": identity(self.subject),
                "treatments": [identity(treatment) for treatment in self.treatments],
                "seed": seed,
            }
        )

    def as_json(self) -> dict[str, Any]:
        """Return the recipe as JSON."""
        return {
            "subject": recipe(self.subject),
            "treatments": [recipe(treatment) for treatment in self.treatments],
        }


@dataclass(frozen=True)
class Claim:
    """What is said beforehand about an arm.

    Parameters
    ----------
    arm
        Label of the arm the claim is about.
    relation
        ``beats``, ``no_worse_than`` and ``matches`` compare with another arm,
        ``above`` and ``below`` with a number.
    other
        Label of the other arm, or the number.
    on
        Label of the task.
    margin
        ``by`` of beats, ``within`` of the others; in units of the score.
    score
        Name of the score; None is the task's first.
    measure
        A measure other than the mean of the score.
    """

    arm: str
    relation: Relation
    other: str | float
    on: str
    margin: float = 0.0
    score: str | None = None
    measure: Measure | None = None

    def __str__(self) -> str:
        words = {"beats": "beats", "no_worse_than": "is no worse than", "matches": "matches"}
        what = f" in {_name(self.measure)}" if self.measure else ""
        what += f" ({self.score})" if self.score else ""
        if isinstance(self.other, str):
            text = f"{self.arm} {words[self.relation]} {self.other} on {self.on}{what}"
            if self.margin:
                joint = "by more than" if self.relation == "beats" else "within"
                text += f" {joint} {self.margin:g}"
            return text
        return f"{self.arm} is {self.relation} {self.other:g} on {self.on}{what}"


@dataclass(frozen=True)
class Budget:
    """Most a run may spend; what runs out first ends it cleanly."""

    units: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    dollars: float | None = None


@dataclass(frozen=True)
class Trial:
    """Subject × arms × tasks × measures, and the claims stated beforehand.

    Parameters
    ----------
    name
        A short name.
    arms, tasks
        By label; the first arm is the control that effects are shown against.
    claims
        What the verdicts are about.
    measures
        Task label to measures reported beside the mean of its first score.
    question
        What the trial is to answer, in a sentence.
    seed
        A non-negative integer; everything random follows from it.
    repeats
        How often each unit is asked.
    builds
        How often an arm with random treatments is made.
    units
        Most units a task; None takes all.
    level
        Coverage of intervals, in (0.5, 1).
    errors
        ``worst`` scores a failed unit as the worst value where the score has
        bounds; ``exclude`` leaves it out, in pairs.
    stop
        ``early`` ends when every claim is decided, by confidence sequences.
    budget
        Most the run may spend.
    allocate
        ``bandit`` (UCB-E) or ``low_rank`` (UCB-E-LRF) choose which arm runs which units next,
        to find the best arm within the budget; None runs every arm on every unit.
    edit_report
        Settings of the task ``edit``, which is added where an arm edits the
        module of a language model; False leaves it out.
    paper, differs
        Of a replication: its paper's slug, and what differs from the paper.
    """

    name: str
    arms: Mapping[str, Arm]
    tasks: Mapping[str, Task]
    claims: Sequence[Claim] = ()
    measures: Mapping[str, Sequence[Measure]] = field(default_factory=dict)
    question: str = ""
    seed: int = 0
    repeats: int = 1
    builds: int = 1
    units: int | None = None
    level: float = 0.95
    errors: Literal["worst", "exclude"] = "worst"
    stop: Literal["early"] | None = None
    budget: Budget = Budget()
    allocate: Literal["bandit", "low_rank"] | None = None
    edit_report: bool | Mapping[str, Any] = True
    paper: str | None = None
    differs: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", [self._completed(claim) for claim in self.claims])
        reference = next((arm.subject for arm in self.arms.values() if arm.open), None)
        if self.edit_report is False or reference is None or EDIT in self.tasks:
            return
        if self.allocate is not None:  # the report is about whole arms, and would run them all
            return
        if any(_edits(arm, reference) for arm in self.arms.values()):
            given = self.edit_report if isinstance(self.edit_report, Mapping) else {}
            added = part("edit_report", reference=reference, **given)
            object.__setattr__(self, "tasks", {**self.tasks, EDIT: added})

    def _completed(self, claim: Claim) -> Claim:
        """Return a claim with the measure that its task prefers, where it names none."""
        if claim.measure is not None or claim.score is not None or claim.on not in self.tasks:
            return claim
        return replace(claim, measure=self.tasks[claim.on].claimed())

    @property
    def control(self) -> str:
        """Label of the first arm."""
        return next(iter(self.arms))

    @property
    def rng(self) -> Rng:
        """The stream everything random in this trial comes from."""
        return Rng(self.seed)

    @cached_property
    def arm_identities(self) -> dict[str, str]:
        """SHA-256 of everything that makes each arm, the trial's seed included."""
        return {label: arm.identity(self.seed) for label, arm in self.arms.items()}

    @cached_property
    def task_identities(self) -> dict[str, str]:
        """SHA-256 of everything that makes each task's units and scores."""
        return {
            label: digest({"task": identity(task), "seed": self.seed})
            for label, task in self.tasks.items()
        }

    def cells(self) -> list[tuple[str, str]]:
        """Return the (arm, task) pairs that run."""
        return [
            (arm, task)
            for arm, spec in self.arms.items()
            for task in self.tasks
            if (spec.open if self.is_edit(task) else spec.tasks is None or task in spec.tasks)
        ]

    def is_edit(self, task: str) -> bool:
        """Say whether a task is the edit report, which every open language model gets."""
        return task == EDIT and type(self.tasks[task]).contrasts()

    def builds_of(self, arm: str) -> int:
        """Return how often an arm is made: once unless its treatments are random."""
        return self.builds if self.arms[arm].random else 1

    def measures_of(self, task: str) -> list[Measure]:
        """Return the task's own measures and those the trial asks for."""
        return [*self.tasks[task].measures(), *self.measures.get(task, ())]

    def faults(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Return everything that would keep the trial from working, as (place, sentence)."""
        found: list[tuple[tuple[str | int, ...], str]] = []
        cells = self.cells()
        for label, arm in self.arms.items():
            for task in arm.tasks or ():
                if task not in self.tasks:
                    found.append((("arms", label), f'No task "{task}".{nearest(task, self.tasks)}'))
            try:
                have = arm.capabilities()
            except UsageError as error:
                found.append((("arms", label), str(error)))
                continue
            for task in (task for mine, task in cells if mine == label):
                try:
                    lack(f"arm {label}", have, self.tasks[task])
                except UsageError as error:
                    found.append((("tasks", task), str(error)))
        for index, claim in enumerate(self.claims):
            found += [(("claims", index), fault) for fault in self._claim_faults(claim, set(cells))]
        return found + looking_faults(self)

    def _claim_faults(self, claim: Claim, cells: set[tuple[str, str]]) -> list[str]:
        if claim.on not in self.tasks:
            return [f'No task "{claim.on}".{nearest(claim.on, self.tasks)}']
        arms = [claim.arm, *([claim.other] if isinstance(claim.other, str) else [])]
        found = [
            f'No arm "{arm}".{nearest(arm, self.arms)}' for arm in arms if arm not in self.arms
        ]
        found += [
            f"Arm {arm} does not do task {claim.on}."
            for arm in arms
            if arm in self.arms and (arm, claim.on) not in cells
        ]
        names = [spec.name for spec in self.tasks[claim.on].scores]
        if claim.score and claim.score not in names:
            found.append(
                f'Task {claim.on} has no score "{claim.score}".{nearest(claim.score, names)}'
                f" There are: {', '.join(names)}."
            )
        if claim.arm == claim.other:
            found.append(f"Arm {claim.arm} is compared with itself.")
        if claim.measure and claim.measure.scope == "arms":
            found.append(f"{_name(claim.measure)} ranks arms and cannot be claimed about one.")
        spec = None
        if claim.measure is None:
            wanted = claim.score or (names[0] if names else None)
            spec = next((each for each in self.tasks[claim.on].scores if each.name == wanted), None)
        if spec and spec.higher_is_better is None and isinstance(claim.other, str):
            found.append(f"Score {spec.name} of task {claim.on} has no better direction.")
        return found

    def with_units(self, units: int | None) -> Trial:
        """Return the trial with another cap on units."""
        return replace(self, units=units)


def _mend(who: str, subject: Subject) -> str:
    if who != _name(subject):
        return "put it first, or leave one of them out"
    return "open the subject with plain: true, or leave the treatment out"


def _edits(arm: Arm, reference: Subject) -> bool:
    """Say whether an arm's module may differ from the reference's."""
    treated = any(HasModule in treatment.needs for treatment in arm.treatments)
    return arm.open and (treated or arm.subject != reference)


def lack(name: str, have: frozenset[Capability], part: Treatment | Task) -> None:
    """Raise `UsageError` when ``part`` needs a capability that is not there."""
    needs = set(part.needs) - have
    if GeneratesAsync in have:
        needs -= {Generates}  # the engine turns one into the other
    if needs:
        raise UsageError(
            f"{_name(part)} needs {', '.join(capability_names(sorted(needs, key=str)))}, which "
            f"{name} does not have; it has {', '.join(capability_names(have)) or 'none'}."
        )


def _name(part: object) -> str:
    entry = entry_of(part)  # type: ignore[arg-type]
    return entry.id if entry else type(part).__name__
