"""Outcomes of two arms to an effect: pairing, failures, intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError
from equipoise.kit.statistics.columns import row_keys
from equipoise.kit.statistics.effects import paired_difference
from equipoise.kit.statistics.resampling import bootstrap
from equipoise.kit.statistics.single import mean, proportion

LOST_AT_MOST = 0.01
"""Share of pairs that may be lost to errors before a verdict is withheld."""

DRAWS_IN_TAILS = 40
"""Bootstrap draws outside an interval, on average; few would make its ends rough."""


@dataclass(frozen=True)
class Effect:
    """How much better one arm is than another, and the share of pairs lost to errors."""

    estimate: Estimate
    lost: float = 0.0


def fill(outcomes: Outcomes, score: str, errors: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a score's column with failures dealt with, and the mask of rows to keep.

    A failed unit of a bounded score takes the worst value, unless the subject is
    not to blame. A score that a unit which did not fail leaves out stays missing:
    it does not apply there.
    """
    values = outcomes.score(score).astype(float, copy=True)
    worst = outcomes.spec(score).worst
    values[outcomes.failed] = np.nan
    if errors == "worst" and worst is not None:
        values[outcomes.blamed] = worst
    return values, ~np.isnan(values)


def filled(outcomes: Outcomes, errors: str) -> Outcomes:
    """Return outcomes for a measure: bounded scores filled, rows that cannot be left out."""
    columns: dict[str, np.ndarray] = {}
    keep = np.ones(len(outcomes), bool)
    for name in outcomes.scores:
        columns[name], kept = fill(outcomes, name, errors)
        if outcomes.spec(name).worst is not None or errors == "exclude":
            keep &= kept
    # A failed unit whose every score is unbounded has nothing to say.
    keep &= ~(outcomes.failed & np.all([np.isnan(c) for c in columns.values()] or [False], axis=0))
    return replace(outcomes, scores=columns).take(keep)


def describe(outcomes: Outcomes, score: str, *, level: float, errors: str) -> Estimate:
    """Return the mean of a score on one arm with its interval."""
    values, keep = fill(outcomes, score, errors)
    if not keep.any():
        return Estimate(math.nan, level=level, note="no unit has this score")
    rows, values = outcomes.take(keep), values[keep]
    binary = outcomes.spec(score).binary and set(np.unique(values)) <= {0.0, 1.0}
    try:
        if binary and _once(rows):
            return proportion(values, clusters=rows.cluster, level=level)
        return mean(values, units=rows.unit, clusters=rows.cluster, builds=rows.build, level=level)
    except UsageError as error:
        return Estimate(float(values.mean()), level=level, n=_units(rows), note=str(error))


def effect(a: Outcomes, b: Outcomes, score: str, *, level: float, errors: str, rng: Rng) -> Effect:
    """Return how much better ``a`` is than ``b`` on a score, paired on units."""
    first, second = pair(a, b)
    x, keep_x = fill(first, score, errors)
    y, keep_y = fill(second, score, errors)
    keep = keep_x & keep_y
    lost = _lost(first, second, keep_x, keep_y)
    if not keep.any():
        return Effect(Estimate(math.nan, level=level, note="no unit is scored in both"), lost)
    sign = -1.0 if first.spec(score).higher_is_better is False else 1.0
    rows = first.take(keep)
    x, y = sign * x[keep], sign * y[keep]
    try:
        estimate = paired_difference(
            x,
            y,
            units=None if _once(rows) else rows.unit,
            clusters=rows.cluster,
            builds=rows.build,
            level=level,
            rng=rng,
        )
    except UsageError as error:
        estimate = Estimate(float((x - y).mean()), level=level, n=_units(rows), note=str(error))
    return Effect(estimate, lost)


def measure_effect(
    measure: Measure, a: Outcomes, b: Outcomes, *, level: float, errors: str, rng: Rng
) -> Effect:
    """Return how much better ``a`` is than ``b`` in a measure.

    A pair measure gives the effect itself, less its null value. The difference
    of an arm measure is bootstrapped over units, or clusters where there are any.
    """
    first, second = pair(a, b)
    keep = ~(first.failed | second.failed)
    lost = 1.0 - float(keep.mean()) if len(keep) else 0.0
    if errors == "worst":
        first, second = filled(first, errors), filled(second, errors)
        if len(first) != len(second):
            first, second = pair(first, second)
    else:
        first, second = first.take(keep), second.take(keep)
    if measure.scope == "pair":
        at_level = replace(measure, level=level) if hasattr(measure, "level") else measure  # type: ignore[type-var]
        found = at_level.measure((first, second), rng)
        if not isinstance(found, Estimate):
            raise UsageError(f"{type(measure).__name__} gives a table and cannot be claimed.")
        null = float(getattr(measure, "null", 0.0))
        return Effect(
            replace(found, value=found.value - null, low=found.low - null, high=found.high - null),
            lost,
        )
    sign = -1.0 if measure.better(first) is False else 1.0

    def difference(rows: np.ndarray) -> float:
        picked = rows.astype(int)
        return sign * (
            measure.statistic(first.take(picked)) - measure.statistic(second.take(picked))
        )

    groups = first.unit if first.cluster is None else first.cluster
    return Effect(
        bootstrap(
            difference,
            (np.arange(len(first)),),
            clusters=groups,
            level=level,
            draws=max(2_000, round(DRAWS_IN_TAILS / (1 - level))),
            rng=rng,
        ),
        lost,
    )


def pair(a: Outcomes, b: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Return the rows both arms have, in the same order.

    An arm that was built once is set against every build of the other.
    """
    a, b = _spread(a, b), _spread(b, a)
    _, rows_a, rows_b = np.intersect1d(
        row_keys(a), row_keys(b), assume_unique=True, return_indices=True
    )
    return a.take(rows_a), b.take(rows_b)


def _spread(outcomes: Outcomes, other: Outcomes) -> Outcomes:
    builds = np.unique(other.build)
    if len(builds) <= 1 or len(np.unique(outcomes.build)) > 1:
        return outcomes
    repeated = outcomes.take(np.tile(np.arange(len(outcomes)), len(builds)))
    return replace(repeated, build=np.repeat(builds, len(outcomes)))


def _lost(a: Outcomes, b: Outcomes, kept_a: np.ndarray, kept_b: np.ndarray) -> float:
    """Return the share of pairs lost; a score that neither side was to have is no loss."""
    excused = ~kept_a & ~kept_b & ~a.failed & ~b.failed
    due = int((~excused).sum())
    return 1.0 - int((kept_a & kept_b).sum()) / due if due else 0.0


def _once(outcomes: Outcomes) -> bool:
    """Say whether every unit stands in one row."""
    return not outcomes.repeat.any() and not outcomes.build.any()


def _units(outcomes: Outcomes) -> int:
    return len(np.unique(outcomes.unit))


def table(found: Estimate | Mapping[str, Estimate], name: str) -> dict[str, Estimate]:
    """Return a measure's answer as named estimates."""
    if isinstance(found, Estimate):
        return {name: found}
    return {f"{name} {key}": each for key, each in found.items()}
