"""What every measure must do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from equipoise.checks._probe import RNG, plain
from equipoise.checks._run import Case
from equipoise.core import Estimate, Outcomes, UsageError

REPEATS = 120


def check_unit_order_is_irrelevant(case: Case) -> None:
    """Shuffling units moves no estimate, and its interval by simulation noise at most."""
    part = case.part
    outcomes, _ = part.simulate(RNG)
    size = len(outcomes if isinstance(outcomes, Outcomes) else _first(outcomes))
    order = RNG.child("order").numpy().permutation(size)
    one = _table(part.measure(outcomes, RNG))
    two = _table(part.measure(_take(outcomes, order), RNG))
    for name, estimate in one.items():
        near = np.isclose(estimate.value, two[name].value, rtol=1e-9, equal_nan=True)
        case.need(bool(near), f"{name} depends on the order of units")


def check_interval_holds_the_value(case: Case) -> None:
    """The value lies within its interval."""
    part = case.part
    for index in range(5):
        outcomes, _ = part.simulate(RNG.child(index))
        for name, each in _table(part.measure(outcomes, RNG)).items():
            if each.has_interval:
                inside = each.low - 1e-12 <= each.value <= each.high + 1e-12
                case.need(inside, f"{name} is {each.value}, outside [{each.low}, {each.high}]")


def check_interval_covers(case: Case) -> None:
    """In simulation the interval covers the truth as often as its level says."""
    part = case.part
    hits: dict[str, list[bool]] = {}
    levels: dict[str, float] = {}
    for index in range(REPEATS):
        rng = RNG.child("coverage", index)
        outcomes, truth = part.simulate(rng)
        truths = truth if isinstance(truth, dict) else {"": truth}
        for name, each in _table(part.measure(outcomes, rng.child("measure"))).items():
            if name in truths and each.has_interval:
                hits.setdefault(name, []).append(each.low <= truths[name] <= each.high)
                levels[name] = each.level
    case.need(bool(hits), "gives no interval in simulation")
    for name, found in hits.items():
        # Fewer hits than this come less than once in ten thousand when the level is met.
        least = stats.binom.ppf(1e-4, len(found), levels[name])
        case.need(sum(found) >= least, f"{name} covers {sum(found)} of {len(found)} times")


def check_missing_scores_are_refused_or_counted(case: Case) -> None:
    """Scores that are missing raise a sentence or are left out of n."""
    part = case.part
    outcomes, _ = part.simulate(RNG)
    if not isinstance(outcomes, Outcomes):
        return
    holes = np.zeros(len(outcomes), bool)
    holes[:3] = True
    scores = {name: np.where(holes, np.nan, v) for name, v in outcomes.scores.items()}
    whole = _table(part.measure(outcomes, RNG))
    try:
        found = _table(part.measure(replace(outcomes, scores=scores), RNG))
    except UsageError:
        return
    fewer = any(found[name].n < whole[name].n for name in found if name in whole)
    said = any(each.note for each in found.values())
    case.need(fewer or said, "missing scores are neither refused nor counted")


def check_inputs_come_back_unchanged(case: Case) -> None:
    """Outcomes are not written to."""
    part = case.part
    outcomes, _ = part.simulate(RNG)
    before = plain(outcomes)
    part.measure(outcomes, RNG)
    case.need(plain(outcomes) == before, "writes to the outcomes it is given")


def check_statistic_is_the_value(case: Case) -> None:
    """Where a point estimate is given alone, it is the measure's value."""
    part = case.part
    outcomes, _ = part.simulate(RNG)
    try:
        value = part.statistic(outcomes)
    except NotImplementedError:
        return
    found = part.measure(outcomes, RNG)
    if isinstance(found, Estimate):
        case.need(
            bool(np.isclose(value, found.value)), f"statistic gives {value}, not {found.value}"
        )


def _table(found: Any) -> dict[str, Estimate]:
    return {"": found} if isinstance(found, Estimate) else dict(found)


def _first(outcomes: Any) -> Outcomes:
    found = next(iter(outcomes.values())) if isinstance(outcomes, dict) else outcomes[0]
    assert isinstance(found, Outcomes)
    return found


def _take(outcomes: Any, order: np.ndarray) -> Any:
    if isinstance(outcomes, Outcomes):
        return outcomes.take(order)
    if isinstance(outcomes, dict):
        return {name: each.take(order) for name, each in outcomes.items()}
    return tuple(each.take(order) for each in outcomes)
