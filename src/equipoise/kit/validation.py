"""What a treatment learns about a subject from units that are not for testing."""

from __future__ import annotations

from typing import Any

import numpy as np

from equipoise.core import Outcome, Rng, Split, Task, Unit, UsageError, capability_names, learnable

_TOGETHER = 512


def validation_score(subject: Any, task: Task, rng: Rng, split: Split = "calibration") -> float:
    """Return the mean of a task's first score on its calibration units.

    A failed unit counts as the worst value; the task needs bounds for that.

    Parameters
    ----------
    subject
        Live, with what the task needs.
    task
        Any task with units in ``split``.
    rng
        A stream of the trial; two subjects are compared under the same one.
    split
        ``"calibration"`` or ``"train"``; test units are refused.

    Raises
    ------
    UsageError
        If the subject lacks what the task needs, the task has no such units, or a
        unit fails whose score has no bounds.

    Examples
    --------
    >>> from equipoise.kit.worlds.coins import Coin, Tosses
    >>> validation_score(Coin(), Tosses(), Rng(0))
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: Tosses has no calibration units to choose by.
    """
    lacking = [need for need in task.needs if not isinstance(subject, need)]
    if lacking:
        raise UsageError(
            f"{type(task).__name__} needs {', '.join(capability_names(lacking))}, which"
            f" {type(subject).__name__} does not have."
        )
    units = learnable(task, rng, split)
    if not units:
        raise UsageError(f"{type(task).__name__} has no {split} units to choose by.")
    spec, stream = task.scores[0], rng.child("validation")
    outcomes = [
        outcome
        for start in range(0, len(units), _TOGETHER)
        for outcome in _perform(task, subject, units[start : start + _TOGETHER], stream)
    ]
    values = []
    for outcome in outcomes:
        value = spec.worst if outcome.status == "error" else outcome.scores.get(spec.name)
        if value is None:
            raise UsageError(
                f"{type(task).__name__}: {spec.name} of {split} unit {outcome.unit} is missing"
                f" ({outcome.error or 'no such score'})."
            )
        values.append(value)
    return float(np.mean(values))


def _perform(task: Task, subject: Any, units: list[Unit], rng: Rng) -> list[Outcome]:
    if task.converses():
        from equipoise.kit.language.loop import run
        from equipoise.kit.language.talk import hold

        return run(hold(task, subject, units, lambda unit: rng.child(unit.id)))
    return list(task.perform(subject, units, rng))
