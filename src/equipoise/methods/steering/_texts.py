"""The positive and negative texts that a task gives a control vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from equipoise.core import Rng, Task, Unit, UsageError, learnable
from equipoise.kit.language.talk import converse

_LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789 ")
_LONGEST = 64  # characters of a random string; more would only take longer to read


def task_texts(
    who: str,
    task: Task,
    subject: Any,
    rng: Rng,
    *,
    negatives: str,
    only_right: bool,
    samples: int,
) -> list[tuple[str, str]]:
    """Return pairs of a positive and a negative text from the train units of a task.

    ``who`` is named in errors; the rest is as in `ResidualControlVector`.
    """
    name = type(task).__name__
    if not hasattr(task, "example"):
        raise UsageError(
            f"{who}: {name} does not say how its units are shown: give a task with a method"
            " example(unit), or pairs."
        )
    units = learnable(task, rng)[:samples]
    if negatives == "answers":
        return _own_answers(who, task, _answered(who, task, subject, units, rng))
    if only_right:
        units = [unit for unit, right, _ in _answered(who, task, subject, units, rng) if right]
    if len(units) < 2:
        raise UsageError(
            f"{who}: {name} has {len(units)} train units"
            f"{' that the subject answers right' if only_right else ''}, and two are needed."
        )
    if negatives == "random_strings":
        return [(_positive(task, unit), _random_string(who, task, unit, rng)) for unit in units]
    if not hasattr(task, "negative"):
        raise UsageError(
            f"{who}: {name} has no negative texts of its own; set negatives to random_strings or"
            " answers."
        )
    return [(_positive(task, unit), str(task.negative(unit))) for unit in units]


def _positive(task: Any, unit: Unit) -> str:
    return _joined(*task.example(unit))


def _joined(question: str, answer: str) -> str:
    blank = not (question[-1:].isspace() or answer[:1].isspace())
    return f"{question}{' ' * blank}{answer}"


def _random_string(who: str, task: Any, unit: Unit, rng: Rng) -> str:
    size = min(len(_positive(task, unit)), _LONGEST)
    draws = Rng(rng.seed).child(who, "random_strings", unit.id).numpy()
    return "".join(draws.choice(_LETTERS, size)).strip() or _LETTERS[0]


def _answered(
    who: str, task: Task, subject: Any, units: Sequence[Unit], rng: Rng
) -> list[tuple[Unit, bool, Any]]:
    """Return units with whether the subject answers them right, and what it says."""
    if any(not isinstance(subject, need) for need in task.needs):
        raise UsageError(
            f"{who}: the subject cannot be asked {type(task).__name__}; set only_right: false."
        )
    # Not the treatment's own stream: arms of other strengths share what is answered.
    score, stream, found = task.scores[0], Rng(rng.seed).child(who, "answers"), []
    best = score.low if score.higher_is_better is False else score.high
    if best is None:
        raise UsageError(
            f"{who}: {type(task).__name__} has no best score to tell right answers by; set"
            " only_right: false."
        )
    for start in range(0, len(units), task.batch):
        some = units[start : start + task.batch]
        if task.converses():
            outcomes = converse(task, subject, some, stream)
        else:
            outcomes = task.perform(subject, some, stream)
        for unit, outcome in zip(some, outcomes, strict=True):
            right = outcome.status != "error" and outcome.scores.get(score.name) == best
            found.append((unit, right, outcome.output))
    return found


def _own_answers(
    who: str, task: Any, answered: Sequence[tuple[Unit, bool, Any]]
) -> list[tuple[str, str]]:
    """Pair questions with the subject's right answers and others with its wrong ones."""
    texts: dict[bool, list[str]] = {True: [], False: []}
    for unit, right, said in answered:
        if isinstance(said, str) and said.strip():
            texts[right].append(_joined(task.example(unit)[0], said))
    count = min(len(texts[True]), len(texts[False]))
    if count < 2:
        raise UsageError(
            f"{who}: negatives: answers needs two right and two wrong answers of the subject on"
            f" train units, got {len(texts[True])} and {len(texts[False])}."
        )
    return list(zip(texts[True][:count], texts[False][:count], strict=True))
