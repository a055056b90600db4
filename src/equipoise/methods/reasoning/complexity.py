r"""How accuracy falls with the complexity of what is asked.

The plain functions take arrays: `accuracy_slope`, `slope_difference`, `movement_effect`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, ScoreSpec, UsageError, between
from equipoise.methods.reasoning._slopes import (
    Array,
    accuracy_slope,
    movement_effect,
    slope_difference,
)

__all__ = [
    "AccuracyVsComplexity",
    "MovementEffect",
    "SlopeDifference",
    "accuracy_slope",
    "movement_effect",
    "slope_difference",
]


@dataclass(frozen=True)
class AccuracyVsComplexity(Measure):
    """How the log-odds of a right answer change with each step of complexity.

    Negative when accuracy falls; the plain function is `accuracy_slope`.

    Parameters
    ----------
    complexity
        The score that says how complex a unit is, such as depth or width.
    score
        A score from 0 to 1; the task's first when left out.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(correct=[1, 1, 0, 1, 0, 0], depth=[1, 1, 2, 2, 3, 3])
    >>> AccuracyVsComplexity().measure(outcomes, Rng(0)).value < 0
    True
    """

    complexity: str = "depth"
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 200 units of four depths whose log-odds fall by 0.7 a step."""
        draws = rng.numpy()
        depth = draws.integers(1, 5, 200)
        right = draws.random(200) < _chance(1.5 - 0.7 * depth)
        return _drawn(self.score, right, **{self.complexity: depth}), -0.7

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        rows, note = _complete("AccuracyVsComplexity", outcomes, self.score, self.complexity)
        found = accuracy_slope(
            _right(rows, self.score), rows.score(self.complexity), **_design(rows), level=self.level
        )
        return _noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        rows, _ = _complete("AccuracyVsComplexity", outcomes, self.score, self.complexity)
        return accuracy_slope(_right(rows, self.score), rows.score(self.complexity)).value


@dataclass(frozen=True)
class SlopeDifference(Measure):
    """How much steeper accuracy falls with complexity in one group of units than in the rest.

    Below zero when the group falls faster; the plain function is
    `slope_difference`. One task holds both groups, as
    ``{mathgap: {shape: [linear_comparison, nonlinear], depth: [1, 2, 3]}}`` does.

    Parameters
    ----------
    group
        A score that is 1 in the group and 0 elsewhere.
    complexity, score, level
        As in `AccuracyVsComplexity`.

    Examples
    --------
    >>> outcomes = Outcomes.of(
    ...     correct=[1, 1, 1, 0, 1, 1, 0, 0], depth=[1, 1, 2, 2, 1, 1, 2, 2],
    ...     nonlinear=[0, 0, 0, 0, 1, 1, 1, 1])
    >>> SlopeDifference().measure(outcomes, Rng(0)).value < 0
    True
    """

    group: str = "nonlinear"
    complexity: str = "depth"
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better: ClassVar[bool | None] = None

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 300 units; log-odds fall by 0.4 a step, and by 0.5 more in the group."""
        draws = rng.numpy()
        depth, group = draws.integers(1, 5, 300), draws.integers(0, 2, 300)
        right = draws.random(300) < _chance(1.5 - (0.4 + 0.5 * group) * depth)
        return _drawn(self.score, right, **{self.complexity: depth, self.group: group}), -0.5

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        rows, note = _complete("SlopeDifference", outcomes, self.score, self.complexity, self.group)
        found = slope_difference(
            _right(rows, self.score),
            rows.score(self.complexity),
            rows.score(self.group),
            **_design(rows),
            level=self.level,
        )
        return _noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        rows, _ = _complete("SlopeDifference", outcomes, self.score, self.complexity, self.group)
        right = _right(rows, self.score)
        return slope_difference(right, rows.score(self.complexity), rows.score(self.group)).value


@dataclass(frozen=True)
class MovementEffect(Measure):
    """What moving a sentence to the front does to accuracy, within problems.

    The plain function is `movement_effect`. The task must ask each problem in
    several orders, as ``{mathgap: {depth: 5, movement: [0, 2, 4]}}`` does, and
    its clusters say which units are one problem.

    Parameters
    ----------
    score
        A score from 0 to 1; the task's first when left out.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(
    ...     correct=[1, 0, 1, 1], movement=[0, 2, 0, 2], cluster=["a", "a", "b", "b"])
    >>> MovementEffect().measure(outcomes, Rng(0)).value
    -0.5
    """

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 problems, right with chance 0.8 as they are and 0.6 when moved."""
        moved = np.tile([0, 2], 80)
        right = rng.numpy().random(160) < np.where(moved > 0, 0.6, 0.8)
        rows = _drawn(self.score, right, movement=moved)
        return replace(rows, cluster=np.repeat(np.arange(80), 2)), -0.2

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        rows, note = _complete("MovementEffect", outcomes, self.score, "movement")
        builds = rows.build if len(np.unique(rows.build)) > 1 else None
        found = movement_effect(
            _right(rows, self.score), rows.score("movement"), _problems(rows),
            builds=builds, level=self.level,
        )  # fmt: skip
        return _noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        rows, _ = _complete("MovementEffect", outcomes, self.score, "movement")
        return movement_effect(
            _right(rows, self.score), rows.score("movement"), _problems(rows)
        ).value


def _chance(log_odds: Array) -> Array:
    chance: Array = 1 / (1 + np.exp(-log_odds))
    return chance


def _drawn(score: str | None, right: Array, **others: Array) -> Outcomes:
    name = score or "correct"
    specs = (ScoreSpec(name, True, 0, 1), *(ScoreSpec(each, None) for each in others))
    return Outcomes.of(specs=specs, **{name: right, **others})


def _problems(rows: Outcomes) -> Array:
    if rows.cluster is None:
        raise UsageError(
            "MovementEffect: units have no clusters to say which are one problem; give the task"
            " several movements, as in movement: [0, 2]."
        )
    return rows.cluster


def _right(rows: Outcomes, score: str | None) -> Array:
    return rows.score(score or _first(rows))


def _first(rows: Outcomes) -> str:
    return rows.specs[0].name if rows.specs else next(iter(rows.scores))


def _complete(
    who: str, outcomes: Outcomes, score: str | None, *needed: str
) -> tuple[Outcomes, str]:
    """Return the rows that can be used, failed ones as wrong answers, and a note on the rest."""
    name = score or _first(outcomes)
    columns = {each: outcomes.score(each) for each in (name, *needed)}
    worst = outcomes.spec(name).worst
    lost = outcomes.failed & np.isnan(columns[name])
    if worst is not None:
        columns[name] = np.where(lost, worst, columns[name])
    if outcomes.stratum is not None:
        for each in needed:
            columns[each] = _filled(columns[each], outcomes.stratum)
    whole = ~np.any([np.isnan(values) for values in columns.values()], axis=0)
    if not whole.any():
        raise UsageError(f"{who}: no row has a value for {' and '.join(columns)}.")
    left = int((~whole).sum())
    note = f"{left} of {len(outcomes)} rows lack a score and are left out." if left else ""
    rows = replace(outcomes, scores={**outcomes.scores, **columns}).take(whole)
    return rows.take(np.lexsort((rows.repeat, rows.build, rows.unit))), note


def _filled(values: Array, stratum: Array) -> Array:
    """Give failed units the value that all others of their stratum have."""
    filled = values.copy()
    for code in np.unique(stratum[np.isnan(values)]):
        here = stratum == code
        known = np.unique(values[here & ~np.isnan(values)])
        if len(known) == 1:
            filled[here] = known[0]
    return filled


def _design(rows: Outcomes) -> dict[str, Array | None]:
    return {
        "units": rows.unit,
        "clusters": rows.cluster,
        "builds": rows.build if len(np.unique(rows.build)) > 1 else None,
    }


def _noted(estimate: Estimate, note: str) -> Estimate:
    return replace(estimate, note=" ".join(filter(None, (estimate.note, note))))
