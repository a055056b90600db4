"""What every treatment must do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from equipoise.checks._probe import RNG, probe, stock_subject
from equipoise.checks._run import Case
from equipoise.core import Rng, Task, Unit, capabilities, capability_names, parameters

CAPABILITIES = [
    each
    for each in vars(capabilities).values()
    if getattr(each, "_is_protocol", False) and each.__module__ == capabilities.__name__
]


def check_control_is_left_alone(case: Case) -> None:
    """The untreated subject answers as before."""
    subject = stock_subject(case.cls)
    before = probe(subject, case.cls)
    case.part.apply(subject, RNG)
    case.need(probe(subject, case.cls) == before, "changes the subject it is given")


def check_capabilities_survive(case: Case) -> None:
    """The treated subject has what the subject had, less what is declared as removed."""
    subject = stock_subject(case.cls)
    treated = case.part.apply(subject, RNG)
    had = {each for each in CAPABILITIES if isinstance(subject, each)}
    has = {each for each in CAPABILITIES if isinstance(treated, each)}
    lost = had - has - case.part.removes
    case.need(not lost, f"loses {capability_names(frozenset(lost))}")
    lacking = frozenset(each for each in case.part.adds if not isinstance(treated, each))
    case.need(not lacking, f"does not add {capability_names(lacking)}")


def check_null_setting_is_the_identity(case: Case) -> None:
    """The setting that changes nothing changes nothing."""
    null = case.cls.null()
    if null is None:
        return
    subject = stock_subject(case.cls)
    treated = null.apply(subject, RNG)
    same = probe(treated, case.cls) == probe(subject, case.cls)
    case.need(same, "its null setting changes the subject")


def check_held_out_data_does_not_leak(case: Case) -> None:
    """Poisoning the test units of a task it learns from changes nothing."""
    part = case.part
    fields = {p.name: getattr(part, p.name) for p in parameters(case.cls)}
    learnt = {name: value for name, value in fields.items() if isinstance(value, Task)}
    for name, task in learnt.items():
        poisoned = dataclasses.replace(part, **{name: _Poisoned(task)})
        subject = stock_subject(case.cls)
        clean, dirty = (probe(each.apply(subject, RNG), case.cls) for each in (part, poisoned))
        case.need(clean == dirty, f"test units of {name} leak into the treated subject")


@dataclasses.dataclass(frozen=True)
class _Poisoned(Task):
    """A task whose test units hold rubbish; the others are as they were."""

    task: Task

    def check(self) -> None:
        # A treatment may let the task score train or calibration units.
        for name in ("scores", "needs", "converses", "perform", "attempt"):
            object.__setattr__(self, name, getattr(self.task, name))

    def units(self, rng: Rng) -> Iterator[Unit]:
        for unit in self.task.units(rng):
            if unit.split == "test":
                unit = dataclasses.replace(unit, content=_rubbish(unit.content), target=None)
            yield unit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)


def _rubbish(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rubbish(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rubbish(each) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    return -987654.0 if isinstance(value, (int, float)) else "rubbish"
