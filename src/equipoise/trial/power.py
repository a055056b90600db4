"""How large a trial has to be, from a pilot or from nothing but rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.statistics._common import critical, is_binary
from equipoise.kit.statistics.power import PairedDesign, Repeats, split_repeats, variance_range
from equipoise.kit.statistics.single import wilson
from equipoise.store import Store
from equipoise.trial._joining import Joined, join
from equipoise.trial.compare import Effect, describe, effect, fill, filled, measure_effect
from equipoise.trial.sides import Cell, Side, run_side
from equipoise.trial.trial import Claim, Trial
from equipoise.trial.verdict import claim_level
from equipoise.trial.weigh import measure_at

POWERS = (0.8, 0.9)
"""The powers that a plan tells the units for."""

_REPEATS = (1, 2, 4, 8)
_FEW = 100  # pilot units below which a plan is loose
_COSTS = ("tokens", "seconds", "dollars")


@dataclass(frozen=True)
class Knowledge:
    """What a pilot, or a guess, says about one claim.

    Parameters
    ----------
    design
        What a unit brings.
    factors
        By what the variance may be smaller and larger than the pilot's; None
        where there was no pilot.
    about
        Numbers of the pilot, as JSON.
    effect
        As the pilot estimates it.
    costs
        What one unit, asked once in every arm of the claim, costs.
    repeats
        Units and outcomes by repeats, as far as the pilot repeated.
    """

    design: PairedDesign
    factors: tuple[float, float] | None
    about: Mapping[str, Any]
    effect: Estimate | None
    costs: Mapping[str, float | None]
    repeats: Repeats | None = None


def pilot_of(trial: Trial, store: Store) -> Side:
    """Return what a store has of a trial as a side; cells without outcomes are left out."""
    covers = []
    for arm, task in trial.cells():
        of_arm, of_task = store.find(trial.arm_identities[arm], trial.task_identities[task])
        if of_arm is None or of_task is None or not store.count(of_arm, of_task):
            continue
        covers.append(
            {
                "arm": of_arm, "task": of_task, "arm_label": arm, "task_label": task,
                "units": None, "builds": trial.builds_of(arm), "repeats": trial.repeats,
            }
        )  # fmt: skip
    return run_side(store, {"id": f"of {trial.name}", "covers": covers})


def plan_claims(
    side: Side,
    claims: Sequence[Claim],
    *,
    level: float = 0.95,
    planned: Mapping[str, int] | None = None,
    repeats: int | None = None,
    errors: str = "worst",
    assumed: float | None = None,
    family: int | None = None,
) -> list[dict[str, Any]]:
    """Return, for each claim, how many units it needs.

    Parameters
    ----------
    side
        The pilot.
    claims
        What is to be shown.
    level
        Of the trial; each claim gets Bonferroni's share of its error.
    planned
        Units planned, by task.
    repeats
        Times each unit is to be asked; as often as in the pilot by default.
    errors
        What failed units count as.
    assumed
        The true effect to plan for. None takes the pilot's for ``beats``,
        ``above`` and ``below``, and no difference for the others.
    family
        How many claims share the error; their number by default.
    """
    rows = []
    for claim in claims:
        share = claim_level(claim, level, family or len(claims))
        try:
            known = _knowledge(side, claim, errors)
        except UsageError as error:
            rows.append(_about(claim, share) | {"notes": [str(error)]})
            continue
        size = (planned or {}).get(claim.on)
        rows.append(plan_row(claim, known, share, assumed=assumed, planned=size, repeats=repeats))
    return rows


def plan_row(
    claim: Claim,
    known: Knowledge,
    level: float,
    *,
    assumed: float | None = None,
    planned: int | None = None,
    repeats: float | None = None,
) -> dict[str, Any]:
    """Return the plan for one claim as JSON."""
    design, notes = known.design, []
    if repeats is None:
        repeats = known.about.get("repeats", 1)
    if known.repeats is not None:
        design = design.scaled(known.repeats.factor(repeats))
    whence: Literal["given", "pilot", "no difference"] = "given"
    sign = -1.0 if claim.relation == "below" else 1.0
    if assumed is not None:
        true = assumed
    elif claim.relation in ("no_worse_than", "matches"):
        true, whence = 0.0, "no difference"
    elif known.effect is not None:
        true, whence = known.effect.value, "pilot"
    else:
        raise UsageError("Give the effect to plan for: --effect.")
    bound = _bound(claim)
    within = claim.margin if claim.relation == "matches" else None

    def power(n: float, of: PairedDesign = design) -> float:
        return of.power(n, sign * true, above=sign * bound, within=within, level=level)

    def units(goal: float, of: PairedDesign = design) -> int | None:
        return of.units(sign * true, above=sign * bound, within=within, level=level, power=goal)

    needs = []
    for goal in POWERS:
        n = units(goal)
        need: dict[str, Any] = {"power": goal, "units": n}
        if known.factors is not None:
            need |= {
                name: units(goal, design.scaled(factor))
                for name, factor in zip(("units_low", "units_high"), known.factors, strict=True)
            }
        if n is not None:
            if design.clusters_per_unit < 1:
                need["clusters"] = math.ceil(n * design.clusters_per_unit)
            need |= {
                name: None if c is None else c * n * repeats for name, c in known.costs.items()
            }
        needs.append(need)
    row = _about(claim, level) | {"assumed": true, "assumed_from": whence, "needs": needs}
    if known.about:
        row["pilot"] = dict(known.about)
    for name, n, of in (
        ("now", known.about.get("units"), known.design),
        ("planned", planned, design),
    ):
        if n:
            row[name] = {"units": n}
            if (name, whence) != ("now", "pilot"):  # that would be the pilot's p-value again
                row[name]["power"] = power(n, of)
            if within is None:
                row[name]["detectable"] = of.detectable(n, level=level)
    if known.repeats is not None:
        options = []
        for times in _REPEATS:
            n = units(POWERS[0], known.design.scaled(known.repeats.factor(times)))
            options.append(
                {"repeats": times, "units": n, "outcomes": None if n is None else n * times}
            )
        row["repeats"] = {"share_within": known.repeats.share, "options": options}
    row["curve"] = _curve(power, [n["units"] for n in needs], planned)
    if whence == "pilot":
        notes += _loose_effect(known.effect, bound)
    if 0 < known.about.get("units", 0) < _FEW:
        notes.append(
            f"A pilot of {known.about['units']} units says little about the variance: read the"
            " range, not the number."
        )
    if 0 < known.about.get("clusters", math.inf) < 10:
        notes.append(f"Only {known.about['clusters']} clusters: the range is wide for a reason.")
    if needs[0]["units"] is None:
        notes.append(
            "No number of units would do: the assumed effect is on the wrong side, or on the"
            " edge, of what is claimed."
            if not design.floor
            else "No number of units would do: the builds alone vary too much; add builds."
        )
    elif planned and needs[0]["units"] > planned:
        notes.append(f"The plan's {planned:,} units are too few.")
    return row | {"notes": notes}


def _about(claim: Claim, level: float) -> dict[str, Any]:
    found = {
        "claim": str(claim), "arm": claim.arm, "relation": claim.relation, "other": claim.other,
        "on": claim.on, "margin": claim.margin, "score": claim.score, "level": level,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _bound(claim: Claim) -> float:
    if not isinstance(claim.other, str):
        return float(claim.other)
    return claim.margin if claim.relation == "beats" else -claim.margin


def _loose_effect(found: Estimate | None, bound: float) -> list[str]:
    """Say how far off the pilot's own effect may be."""
    if found is None or not found.has_interval:
        return []
    text = f"The pilot's effect may be anything from {found.low:.3g} to {found.high:.3g}"
    if found.low <= bound <= found.high:
        text += ", so this plan may be far off"
    return [f"{text}; plan for the smallest effect that matters with --effect."]


def _curve(
    power: Callable[[float], float], needs: Sequence[int | None], planned: int | None
) -> list[list[float]]:
    known = [n for n in (*needs, planned) if n]
    most = 1.5 * max(known, default=1_000)
    sizes = np.unique(np.linspace(max(2, most / 40), max(8, most), 40).round().astype(int))
    return [[int(n), power(int(n))] for n in sizes]


def _knowledge(side: Side, claim: Claim, errors: str) -> Knowledge:
    mine = _cell(side, claim.arm, claim.on)
    if not isinstance(claim.other, str):
        return _of_one(mine, claim, errors)
    theirs = _cell(side, claim.other, claim.on)
    joined = join(theirs, mine, (claim.other, claim.arm))
    if len(joined.first) < 2:
        raise UsageError("the pilot has fewer than two units in common between the arms")
    score = claim.score or joined.first.specs[0].name
    rng = Rng(0).child("power", str(claim))
    # The pilot is judged at the usual level; the claim's level is the plan's.
    if claim.measure is None:
        found = effect(joined.second, joined.first, score, level=0.95, errors=errors, rng=rng)
    else:
        found = measure_effect(
            claim.measure, joined.second, joined.first, level=0.95, errors=errors, rng=rng
        )
    if not found.estimate.has_interval:
        raise UsageError(found.estimate.note or "the pilot gives no interval")
    costs = _costs((mine, theirs))
    if claim.measure is not None:
        return _plain(found.estimate, costs)
    return _paired(joined, score, found, errors, costs)


def _cell(side: Side, arm: str, task: str) -> Cell:
    if arm not in side.arms or task not in side.arms[arm]:
        raise UsageError(f"the pilot has no outcomes of {arm} on {task}")
    return side.arms[arm][task]


def _of_one(cell: Cell, claim: Claim, errors: str) -> Knowledge:
    outcomes = cell.read()
    score = claim.score or outcomes.specs[0].name
    if claim.measure is None:
        found = describe(outcomes, score, level=0.95, errors=errors)
    else:
        found = measure_at(0.95, claim.measure, filled(outcomes, errors), Rng(0).child("power"))
    if not found.has_interval:
        raise UsageError(found.note or "the pilot gives no interval")
    return _plain(found, _costs((cell,)))


def _plain(found: Estimate, costs: Mapping[str, float | None]) -> Knowledge:
    """Return what an estimate says by its interval alone."""
    n = max(found.n, 1)
    df = found.details.get("df", float((found.clusters or n) - 1)) or 1.0
    se = (found.high - found.low) / 2 / critical(found.level, found.details.get("df", math.inf))
    builds = found.details.get("share_builds", 0.0)
    design = PairedDesign(
        sd=se * math.sqrt(n * (1 - builds)),
        clusters_per_unit=1.0 if found.clusters is None else min(1.0, (df + 1) / n),
        floor=builds * se**2,
    )
    about = _pilot(found, n) | {"sd": design.sd}
    return Knowledge(design, variance_range(max(df, 1.0)), about, found, costs)


def _paired(
    joined: Joined, score: str, found: Effect, errors: str, costs: Mapping[str, float | None]
) -> Knowledge:
    x, keep_x = fill(joined.first, score, errors)
    y, keep_y = fill(joined.second, score, errors)
    keep = keep_x & keep_y
    x, y, units = x[keep], y[keep], joined.first.unit[keep]
    _, place, times = np.unique(units, return_inverse=True, return_counts=True)
    known = _plain(found.estimate, costs)
    about = dict(known.about)
    passes = joined.first.spec(score).binary and is_binary(x, y)
    clustered = found.estimate.clusters is not None
    if passes and times.max() == 1 and not clustered:
        n, differ = len(x), int(np.count_nonzero(x != y))
        low, high = wilson(differ, n, 0.95)
        share = differ / n or high / 2  # none differed: half of what there may be
        about["discordant"] = differ / n
        design = PairedDesign(discordant=share)
        return replace(known, design=design, factors=(low / share, high / share), about=about)
    repeated = None if joined.first.build.any() else split_repeats(y - x, units)
    if repeated is not None:
        about["repeats"] = repeated.repeats
    alone = float((np.bincount(place, y - x) / times).var(ddof=1))
    if clustered and alone:
        # Clusters that seem to help do so by chance: no plan leans on that.
        about |= {"sd": math.sqrt(alone), "design_effect": max(1.0, known.design.sd**2 / alone)}
        wide = max(known.design.sd, math.sqrt(alone))
        known = replace(known, design=replace(known.design, sd=wide))
    return replace(known, about=about, repeats=repeated)


def _pilot(found: Estimate, n: int) -> dict[str, Any]:
    about = {
        "units": n, "clusters": found.clusters, "builds": found.builds, "effect": found.value,
        "low": found.low, "high": found.high,
    }  # fmt: skip
    return {name: value for name, value in about.items() if value is not None}


def _costs(cells: Sequence[Cell]) -> dict[str, float | None]:
    """Return what asking a unit once costs, in all cells together; None where nobody noted it."""
    total = dict.fromkeys(_COSTS, 0.0)
    for cell in cells:
        costs = cell.costs()
        paid = costs.get("attempts") or costs["outcomes"] or 1
        total["tokens"] += (costs["input_tokens"] + costs["output_tokens"]) / paid
        total["seconds"] += costs["seconds"] / paid
        total["dollars"] += costs["dollars"] / paid
    return {name: value or None for name, value in total.items()}
