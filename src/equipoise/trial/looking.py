"""What keeps a trial from being looked at while it runs: by `stop: early`, or by `allocate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from equipoise.trial.trial import Trial

Fault = tuple[tuple[str | int, ...], str]


def looking_faults(trial: Trial) -> list[Fault]:
    """Return what `stop: early` and `allocate` cannot do in this trial, as (place, sentence)."""
    found: list[Fault] = []
    for key, value in (("stop", trial.stop), ("allocate", trial.allocate)):
        if value is None:
            continue
        what = f"{key}: {value}"
        if any(claim.measure is not None for claim in trial.claims):
            found.append(
                ((key,), f"{what} works for claims about means; name a `score`, no `measure`.")
            )
        if any(trial.builds_of(arm) > 1 for arm in trial.arms):
            found.append(((key,), f"{what} and builds do not go together; drop one of them."))
    if trial.stop == "early" and trial.allocate is None and not trial.claims:
        found.append((("stop",), "stop: early needs claims to stop for."))
    if trial.allocate is not None:
        what = f"allocate: {trial.allocate}"
        found += [(("allocate",), f"{what} {fault}") for fault in _allocate_faults(trial)]
    return found


def _allocate_faults(trial: Trial) -> Iterator[str]:
    modelled = trial.allocate == "low_rank"
    if len(trial.arms) < 2:
        yield "chooses between arms; give at least two."
    if modelled and trial.stop == "early":
        yield (
            "and stop: early do not go together: units that a model picks give no confidence "
            "sequence; use `allocate: bandit`."
        )
    if trial.budget.units is None and (modelled or trial.stop is None):
        also = "" if modelled else " or `stop: early`"
        yield f"needs an end: give `budget: {{units: N}}`{also}."
    least = len(trial.arms) * trial.repeats
    if trial.budget.units is not None and trial.budget.units < least:
        yield (
            f"asks every arm once before it chooses, which takes {least:,} outcomes; "
            f"budget.units is {trial.budget.units:,}."
        )
    done = set(trial.cells())
    undone = [(arm, task) for arm in trial.arms for task in trial.tasks if (arm, task) not in done]
    if undone:
        yield "needs every arm on every task; arm {} does not do task {}.".format(*undone[0])
    for label, task in trial.tasks.items():
        first = task.scores[0]
        if first.worst is None:
            lacks = "a better direction" if first.higher_is_better is None else "bounds"
            yield (
                f"needs a first score with bounds and a better direction; {first.name} of task "
                f"{label} lacks {lacks}."
            )
