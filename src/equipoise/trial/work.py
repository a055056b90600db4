"""What a worker does: make an arm's subject once, put units to it, return outcomes.

Local and remote executors run the same `run_shard`; nothing here writes.
"""

from __future__ import annotations

import functools
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.core import (
    EquipoiseError,
    Generates,
    GeneratesAsync,
    Outcome,
    Rng,
    RunError,
    Task,
    Unit,
    UsageError,
)
from equipoise.kit.language.loop import run as run_async
from equipoise.kit.language.talk import as_batch, error_outcome, hold
from equipoise.trial.subjects import bare, treated
from equipoise.trial.trial import Arm

Emit = Callable[[Outcome], None]
Work = Callable[[Sequence[Unit], Rng], list[Outcome]]


@dataclass(frozen=True)
class Shard:
    """A picklable piece of work: some units of one task, for one build of one arm.

    ``numbers`` are the store's numbers of ``units``, in the same order.
    """

    arm_label: str
    arm: Arm
    arm_identity: str
    build: int
    task_label: str
    task: Task
    task_identity: str
    repeat: int
    units: tuple[Unit, ...]
    numbers: tuple[int, ...]
    seed: int
    keep: int = 1

    def rng(self) -> Rng:
        """Return the stream of this arm, build, task and repeat; a unit's is its child."""
        return Rng(self.seed).child(
            "arm", self.arm_identity, self.build, "task", self.task_identity, self.repeat
        )


class ArmError(EquipoiseError):
    """An arm's subject could not be made; the run cannot go on."""

    exit_code = 4


_subjects: OrderedDict[tuple[str, int], Any] = OrderedDict()


def subject_of(shard: Shard) -> Any:
    """Return the live subject of a shard's arm, made at most once while it is kept."""
    key = (shard.arm_identity, shard.build)
    if key in _subjects:
        _subjects.move_to_end(key)
        return _subjects[key]
    while len(_subjects) >= shard.keep:
        _subjects.popitem(last=False)
    try:
        _subjects[key] = treated(shard.arm, Rng(shard.seed), shard.build)
    except EquipoiseError:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ArmError(
            f"Arm {shard.arm_label} could not be made: {type(error).__name__}: "
            f"{_one_line(error)} ({where.name}, line {where.lineno})."
        ) from error
    return _subjects[key]


def run_shard(shard: Shard, emit: Emit | None = None) -> list[Outcome]:
    """Return one outcome a unit, in order; a failing unit becomes an error outcome.

    Parameters
    ----------
    shard
        The work.
    emit
        Called with each outcome of a conversation as it ends, so that a long
        shard can be stored before it is whole.
    """
    subject = subject_of(shard)
    began = time.perf_counter()
    if type(shard.task).converses():
        outcomes = _converse(shard, subject, emit)
    else:
        if not isinstance(subject, Generates) and isinstance(subject, GeneratesAsync):
            subject = as_batch(subject)
        outcomes = _perform(shard.task, _work(shard, subject), shard.units, shard.rng())
    each = (time.perf_counter() - began) / max(1, len(outcomes))
    for outcome in outcomes:
        if outcome.seconds is None:
            outcome.seconds = each
    return outcomes


def _converse(shard: Shard, subject: Any, emit: Emit | None) -> list[Outcome]:
    rng = shard.rng()
    names = {score.name for score in shard.task.scores}

    def check(outcome: Outcome) -> None:
        _check_scores(shard.task, outcome, names)
        if emit is not None:
            emit(outcome)

    return run_async(
        hold(shard.task, subject, shard.units, lambda u: rng.child(u.id), on_outcome=check)
    )


def _work(shard: Shard, subject: Any) -> Work:
    task = shard.task
    if not type(task).contrasts():
        return functools.partial(task.perform, subject)
    reference = bare(task.reference, Rng(shard.seed))  # type: ignore[attr-defined]
    return functools.partial(task.contrast, subject, reference)


def _perform(task: Task, work: Work, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
    try:
        outcomes = work(units, rng)
        _check(task, units, outcomes)
    except RunError:
        raise
    except Exception as error:
        if len(units) == 1:
            return [error_outcome(units[0], error)]
        # Halving finds the units at fault and keeps the others together.
        middle = len(units) // 2
        return _perform(task, work, units[:middle], rng) + _perform(task, work, units[middle:], rng)
    return outcomes


def _check(task: Task, units: Sequence[Unit], outcomes: Sequence[Outcome]) -> None:
    ids, wanted = [outcome.unit for outcome in outcomes], [unit.id for unit in units]
    if ids != wanted:
        raise UsageError(
            f"{type(task).__name__}: perform must return one outcome a unit in order, "
            f"got {len(ids)} for {len(wanted)} units."
        )
    names = {score.name for score in task.scores}
    for outcome in outcomes:
        _check_scores(task, outcome, names)


def _check_scores(task: Task, outcome: Outcome, names: set[str]) -> None:
    if outcome.status == "error":
        return
    extra = outcome.scores.keys() - names
    if extra:
        raise UsageError(f"{type(task).__name__}: score {sorted(extra)[0]} is not declared.")
    for name, value in outcome.scores.items():
        if value != value or value in (float("inf"), float("-inf")):
            outcome.status = "error"
            outcome.error_kind = "not_finite"
            outcome.error = f"The score {name} is {value}."


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
