"""What every task must do."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np

from equipoise.checks._probe import RNG, perform, plain, some_units
from equipoise.checks._run import Case
from equipoise.core import Generates, Outcome, Request

MOST = 2_000


def check_scores_are_declared(case: Case) -> None:
    """Every score says its name; bounds are in order."""
    scores = case.part.scores
    case.need(bool(scores), "declares no scores")
    names = [score.name for score in scores]
    case.need(len(names) == len(set(names)), "declares a score twice")
    for score in scores:
        bounded = score.low is not None and score.high is not None
        case.need(not bounded or score.low < score.high, f"{score.name} has bounds out of order")


def check_unit_ids_are_unique_and_stable(case: Case) -> None:
    """Unit ids are unique, and the same when asked for again."""
    one, two = (_ids(case) for _ in range(2))
    case.need(len(set(one)) == len(one), "gives an id twice")
    case.need(one == two, "gives other ids the second time")
    case.need(bool(one), "gives no units")


def check_splits_are_disjoint(case: Case) -> None:
    """No content stands in two splits, and there are test units."""
    seen: dict[str, set[str]] = {}
    for unit in itertools.islice(case.part.units(RNG), MOST):
        key = repr(plain([unit.content, unit.target]))
        seen.setdefault(key, set()).add(unit.split)
    shared = [key for key, splits in seen.items() if len(splits) > 1]
    case.need(not shared, f"a unit stands in two splits: {shared[:1]}")
    case.need(any("test" in splits for splits in seen.values()), "has no test units")


def check_oracle_beats_constant(case: Case) -> None:
    """A subject that knows the answers scores better than one that always says the same."""
    task = case.part
    units = some_units(task)
    score = task.scores[0]
    right = _mean(perform(task, task.oracle(), units), score.name)
    constant = _mean(perform(task, _constant(task), units), score.name)
    sign = -1 if score.higher_is_better is False else 1
    case.need(sign * (right - constant) > 0, f"the oracle's {right} is no better than {constant}")
    if sign > 0 and score.high is not None:
        case.need(np.isclose(right, score.high), f"the oracle gets {right}, not {score.high}")


def check_unit_order_is_irrelevant(case: Case) -> None:
    """Each unit's outcome is the same in any order, alone or together."""
    task = case.part
    units = some_units(task, 8)
    forward = {o.unit: plain(o.scores) for o in perform(task, task.oracle(), units)}
    backward = {o.unit: plain(o.scores) for o in perform(task, task.oracle(), units[::-1])}
    alone = {o.unit: plain(o.scores) for u in units for o in perform(task, task.oracle(), [u])}
    case.need(forward == backward, "scores depend on the order of units")
    case.need(forward == alone, "scores depend on which units are asked together")


def check_inputs_come_back_unchanged(case: Case) -> None:
    """Units are not written to."""
    task = case.part
    units = some_units(task, 8)
    before = copy.deepcopy(units)
    perform(task, task.oracle(), units)
    case.need(units == before, "writes to the units it is given")


def check_outcomes_are_whole(case: Case) -> None:
    """Outcomes come one a unit, in order, with declared scores within their bounds."""
    task = case.part
    units = some_units(task)
    outcomes = perform(task, task.oracle(), units)
    case.need([o.unit for o in outcomes] == [u.id for u in units], "outcomes do not match units")
    specs = {score.name: score for score in task.scores}
    for outcome in outcomes:
        case.need(outcome.status == "ok", f"the oracle fails: {outcome.error}")
        for name, value in outcome.scores.items():
            case.need(name in specs, f"gives the score {name}, which it does not declare")
            low, high = specs[name].low, specs[name].high
            case.need(low is None or value >= low, f"{name} is {value}, below {low}")
            case.need(high is None or value <= high, f"{name} is {value}, above {high}")


def _ids(case: Case) -> list[str]:
    return [unit.id for unit in itertools.islice(case.part.units(RNG), MOST)]


def _mean(outcomes: list[Outcome], score: str) -> float:
    return float(np.mean([outcome.scores[score] for outcome in outcomes]))


def _constant(task: Any) -> Any:
    """Return a subject that answers every unit alike; a task may bring its own."""
    own = getattr(task, "constant", None)
    if own is not None:
        return own()
    if task.needs <= {Generates}:
        from equipoise.kit.language.canned import Canned

        return Canned(_nothing)
    raise NotImplementedError(f"{type(task).__name__} needs a `constant` method for this check")


def _nothing(request: Request) -> str:
    return "nothing"
