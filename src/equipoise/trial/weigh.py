"""Weighs what a run brought: estimates, effects, claims, costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from equipoise.catalog import entry_of, recipe
from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError
from equipoise.trial.compare import describe, effect, filled, measure_effect, pair, table
from equipoise.trial.result import ClaimResult, Result, Row, Status
from equipoise.trial.trial import Claim, Trial
from equipoise.trial.verdict import claim_level, correct, judge

if TYPE_CHECKING:
    from equipoise.trial.allocated import Allocated
    from equipoise.trial.engine import Runner


def weigh(
    trial: Trial,
    run: Runner,
    status: Status,
    sequences: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> Result:
    """Return the result of a run whose outcomes are in the store."""
    outcomes = {cell: run.outcomes(*cell) for cell in trial.cells()}
    costs = [{"arm": arm, "task": task, **run.costs(arm, task)} for arm, task in trial.cells()]
    estimates, effects = summarise(trial, outcomes, run.allocated)
    claims = early_claims(trial, sequences, outcomes) or weigh_claims(trial, outcomes)
    units = sum(len(each) for each in outcomes.values())
    errors = sum(int(each.failed.sum()) for each in outcomes.values())
    return Result(
        trial=trial.name,
        status=status,
        units=units,
        errors=errors,
        first_error=_first_error(run) if errors else "",
        seconds=time.monotonic() - run.began,
        claims=claims,
        estimates=estimates,
        effects=effects,
        control=trial.control,
        question=trial.question,
        paper=trial.paper,
        differs=trial.differs,
        reused=units - run.spent.units,
        arms={label: arm.as_json() for label, arm in trial.arms.items()},
        tasks={label: recipe(task) for label, task in trial.tasks.items()},
        costs=costs,
        edits=edits(trial, run),
        figures=figures(trial, outcomes),
        notices=notices(trial),
        allocation=None if run.allocated is None else run.allocated.as_json(costs),
        sequences=sequences,
        provenance=about,
        level=trial.level,
        policy=trial.errors,
        run=run.number,
    )


def _first_error(run: Runner) -> str:
    rows = run.store.rows(run.number, where={"status": "error"}, limit=1)
    return f"{rows[0]['error_kind']}: {rows[0]['error']}" if rows else ""


def edits(trial: Trial, run: Runner) -> list[dict[str, Any]]:
    """Return what the edit report found of each arm as a whole."""
    found = []
    for arm, task in trial.cells():
        if trial.is_edit(task):
            rows = run.store.rows(
                run.number, arm=run.arms[arm], task=run.tasks[task], where={"status": "ok"}
            )
            if not rows:
                continue
            told = next((row for row in rows if row["output"]["curves"]), rows[0])["output"]
            costs = run.costs(arm, task)
            pace = costs["seconds"] / costs["input_tokens"]
            found.append({"arm": arm, "task": task, "seconds_per_token": pace, **told})
    return found


def notices(trial: Trial) -> list[str]:
    """Return what every report on these subjects must say, each once."""
    found = dict.fromkeys(arm.subject.notice() for arm in trial.arms.values())
    if trial.allocate is not None and any(trial.measures_of(task) for task in trial.tasks):
        found["Which units ran followed from their scores; intervals of measures other than means "
              "do not allow for that."] = None  # fmt: skip
    return [notice for notice in found if notice]


def figures(trial: Trial, outcomes: Mapping[tuple[str, str], Outcomes]) -> list[dict[str, Any]]:
    """Return what the measures of each task draw, all arms in one picture."""
    found = []
    for task in trial.tasks:
        if trial.is_edit(task):
            continue
        here = {
            a: filled(o, trial.errors) for (a, t), o in outcomes.items() if t == task and len(o)
        }
        for measure in trial.measures_of(task):
            name = _name_of(measure)
            try:
                drawn = measure.figure(here, trial.rng.child("figures", task, name))
            except UsageError:  # the estimate beside it says why
                continue
            if drawn is not None:
                found.append({"task": task, "measure": name, "figure": drawn.as_json()})
    return found


def summarise(
    trial: Trial,
    outcomes: Mapping[tuple[str, str], Outcomes],
    allocated: Allocated | None = None,
) -> tuple[list[Row], list[Row]]:
    """Return the estimates of every arm and its effects against the control."""
    estimates: list[Row] = []
    effects: list[Row] = []
    preferred = {} if allocated is not None else _preferred(trial, outcomes)
    for (arm, task), found in outcomes.items():
        if not len(found):
            continue
        rng = trial.rng.child("statistics", arm, task)
        spec = trial.tasks[task].scores[0]
        if allocated is None:
            mean = describe(found, spec.name, level=trial.level, errors=trial.errors)
        else:
            mean = allocated.estimate(arm, task)
        if task in preferred:
            estimates += preferred[task].rows[arm]
        estimates.append(Row(arm, task, spec.name, mean, None, spec.higher_is_better, spec.unit))
        if trial.is_edit(task):  # both scores are its answer, and it has no control
            (other,) = trial.tasks[task].scores[1:]
            mean = describe(found, other.name, level=trial.level, errors=trial.errors)
            better = other.higher_is_better
            estimates.append(Row(arm, task, other.name, mean, None, better, other.unit))
            continue
        for measure in trial.measures_of(task):
            if task not in preferred or measure != preferred[task].measure:
                estimates += _measured(measure, trial, arm, task, outcomes, rng)
        control = outcomes.get((trial.control, task))
        if arm != trial.control and control is not None and spec.higher_is_better is not None:
            how: dict[str, Any] = {"level": trial.level, "errors": trial.errors, "rng": rng}
            name = spec.name
            if allocated is not None:
                against = allocated.effect(arm, trial.control, task)
            elif task in preferred:
                measure = preferred[task].measure
                name = _name_of(measure)
                against = measure_effect(measure, found, control, **how).estimate
            else:
                against = effect(found, control, spec.name, **how).estimate
            effects.append(Row(arm, task, name, against, trial.control, True, spec.unit))
    return estimates, effects


@dataclass(frozen=True)
class _Preferred:
    """The measure that a task prefers to a mean, and what it found of each arm."""

    measure: Measure
    rows: Mapping[str, list[Row]]


def _preferred(trial: Trial, outcomes: Mapping[tuple[str, str], Outcomes]) -> dict[str, _Preferred]:
    """Return what tasks prefer to a mean, where it has an answer in every arm."""
    found = {}
    for task, spec in trial.tasks.items():
        measure = spec.claimed()
        if measure is None:
            continue
        rows = {
            arm: _measured(
                measure, trial, arm, task, outcomes, trial.rng.child("statistics", arm, task)
            )
            for (arm, of), each in outcomes.items()
            if of == task and len(each)
        }
        if all(len(each) == 1 and each[0].estimate.has_interval for each in rows.values()):
            found[task] = _Preferred(measure, rows)
    return found


def _measured(
    measure: Measure,
    trial: Trial,
    arm: str,
    task: str,
    outcomes: Mapping[tuple[str, str], Outcomes],
    rng: Rng,
) -> list[Row]:
    name = _name_of(measure)
    versus = None
    here: Any = filled(outcomes[arm, task], trial.errors)
    if measure.scope == "pair":
        if arm == trial.control or (trial.control, task) not in outcomes:
            return []
        versus = trial.control
        here = pair(here, filled(outcomes[trial.control, task], trial.errors))
    elif measure.scope == "arms":
        if arm != trial.control:
            return []
        here = {a: filled(o, trial.errors) for (a, t), o in outcomes.items() if t == task}
    better = measure.higher_is_better if measure.scope == "arms" else None
    if measure.scope == "arm":
        better = measure.better(here)
    try:
        found = table(measure.measure(here, rng.child(name)), name)
    except UsageError as error:
        found = {name: Estimate(float("nan"), level=trial.level, note=str(error))}
    label = "all arms" if measure.scope == "arms" else arm
    return [Row(label, task, key, each, versus, better) for key, each in found.items()]


def _name_of(measure: Measure) -> str:
    entry = entry_of(measure)
    return entry.id if entry else type(measure).__name__


def weigh_claims(trial: Trial, outcomes: Mapping[tuple[str, str], Outcomes]) -> list[ClaimResult]:
    """Return the verdict on every claim, corrected for their number."""
    return correct([_weigh_or_say_why(trial, claim, outcomes) for claim in trial.claims])


def _weigh_or_say_why(
    trial: Trial, claim: Claim, outcomes: Mapping[tuple[str, str], Outcomes]
) -> ClaimResult:
    """Weigh a claim; a measure that refuses these outcomes leaves it open and says why."""
    try:
        return _weigh_claim(trial, claim, outcomes)
    except UsageError as error:
        return judge(claim, Estimate(float("nan"), level=trial.level, note=str(error)))


def _weigh_claim(
    trial: Trial, claim: Claim, outcomes: Mapping[tuple[str, str], Outcomes]
) -> ClaimResult:
    level = claim_level(claim, trial.level, len(trial.claims))
    rng = trial.rng.child("claim", str(claim))
    arm = outcomes[claim.arm, claim.on]
    sides = [arm, *([outcomes[claim.other, claim.on]] if isinstance(claim.other, str) else [])]
    dead = _dead(claim, outcomes)
    if not all(len(side) for side in sides):
        raise UsageError("not one unit of this claim was done")
    score = claim.score or trial.tasks[claim.on].scores[0].name
    if isinstance(claim.other, str):
        other = outcomes[claim.other, claim.on]
        if claim.measure is None:
            found = effect(arm, other, score, level=level, errors=trial.errors, rng=rng)
        else:
            found = measure_effect(
                claim.measure, arm, other, level=level, errors=trial.errors, rng=rng
            )
        return judge(claim, found.estimate, 1.0 if dead else found.lost)
    if claim.measure is None:
        value = describe(arm, score, level=level, errors=trial.errors)
    else:
        value = measure_at(level, claim.measure, filled(arm, trial.errors), rng)
    bounded = arm.spec(score).worst is not None and trial.errors == "worst"
    lost = arm.failed & ~arm.blamed if bounded else arm.failed
    return judge(claim, value, 1.0 if dead else float(lost.mean()))


def measure_at(level: float, measure: Measure, outcomes: Outcomes, rng: Rng) -> Estimate:
    """Return what a measure of an arm finds, with an interval of this level."""
    at_level = replace(measure, level=level) if hasattr(measure, "level") else measure  # type: ignore[type-var]
    found = at_level.measure(outcomes, rng)
    if not isinstance(found, Estimate):
        raise UsageError(f"{type(measure).__name__} gives a table and cannot be claimed.")
    return found


def early_claims(
    trial: Trial,
    sequences: Sequence[Mapping[str, Any]],
    outcomes: Mapping[tuple[str, str], Outcomes],
) -> list[ClaimResult] | None:
    """Return the claims as their confidence sequences ended, or None without sequences."""
    if not sequences:
        return None
    found = []
    for claim, sequence in zip(trial.claims, sequences, strict=True):
        last = sequence["steps"][-1]
        if not last["n"]:
            why = "not one unit of this claim was done"
            found.append(judge(claim, Estimate(float("nan"), level=trial.level, note=why)))
            continue
        value, low, high = (
            float("nan") if last[name] is None else last[name] for name in ("value", "low", "high")
        )
        estimate = Estimate(
            value,
            low,
            high,
            level=sequence["level"],
            n=last["n"],
            method=sequence["method"],
            note=sequence["note"],
        )
        found.append(judge(claim, estimate, 1.0 if _dead(claim, outcomes) else sequence["lost"]))
    return found


def _dead(claim: Claim, outcomes: Mapping[tuple[str, str], Outcomes]) -> bool:
    """Say whether an arm of a claim has outcomes, and every one of them failed.

    That says something about the set-up, and not about the claim.
    """
    sides = [claim.arm, *([claim.other] if isinstance(claim.other, str) else [])]
    found = [outcomes[side, claim.on] for side in sides]
    return any(len(side) and side.failed.all() for side in found)
