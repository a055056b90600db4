"""One arm against another: how much better, what that could have shown, and over all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from equipoise.core import Estimate, Rng
from equipoise.kit.statistics._common import is_binary
from equipoise.kit.statistics.effects import macro_mean
from equipoise.kit.statistics.planning import detectable, units_to_settle
from equipoise.trial._joining import Joined
from equipoise.trial.compare import Effect, effect, fill
from equipoise.trial.sides import Cell


@dataclass(frozen=True)
class Contrast:
    """One arm against another on one score of one task.

    Parameters
    ----------
    arm, versus
        What a report calls the second and the first.
    task, score
        Labels.
    joined
        The paired rows.
    sides
        The cells they come from, the first first.
    bounds
        Of the score.
    seed
        The stream of the sign flips.
    level
        Coverage of the interval.
    """

    arm: str
    versus: str
    task: str
    score: str
    joined: Joined
    sides: tuple[Cell, Cell]
    bounds: tuple[float | None, float | None]
    seed: Rng
    level: float

    def at(self, level: float) -> Effect:
        """Return how much better the arm is, with an interval of this level."""
        second, first = self.joined.second, self.joined.first
        return effect(second, first, self.score, level=level, errors="worst", rng=self.seed)

    @cached_property
    def found(self) -> Effect:
        """How much better the arm is, at the comparison's level."""
        return self.at(self.level)

    @cached_property
    def differences(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return units, both sides' mean scores and how much better the second is, a row a unit."""
        x, keep_x = fill(self.joined.first, self.score, "worst")
        y, keep_y = fill(self.joined.second, self.score, "worst")
        keep = keep_x & keep_y
        units, place = np.unique(self.joined.first.unit[keep], return_inverse=True)
        times = np.bincount(place)
        x, y = (np.bincount(place, each[keep]) / times for each in (x, y))
        less = self.joined.first.spec(self.score).higher_is_better is False
        return units, x, y, x - y if less else y - x

    @property
    def builds(self) -> bool:
        """Whether an arm was built several times."""
        return bool(self.joined.first.build.any())


def row_of(contrast: Contrast) -> dict[str, Any]:
    """Return what a comparison's JSON says of a contrast."""
    found = contrast.found
    _, x, y, d = contrast.differences
    return {
        "arm": contrast.arm,
        "versus": contrast.versus,
        "task": contrast.task,
        "score": contrast.score,
        "lost": found.lost,
        **outlook(found.estimate),
        "first_mean": float(x.mean()) if len(x) else None,
        "second_mean": float(y.mean()) if len(y) else None,
        "units_better": int((d > 0).sum()),
        "units_worse": int((d < 0).sum()),
        "test": _test(contrast, found.estimate, is_binary(x, y)),
        "only_first": contrast.joined.only_first,
        "only_second": contrast.joined.only_second,
        "bounds": list(contrast.bounds),
    }


def outlook(found: Estimate) -> dict[str, Any]:
    """Return an estimate as JSON with what it could have shown, and what would settle it."""
    row = found.as_json() | {"p_value": found.p_value}
    if found.has_interval:
        row["detectable"] = detectable(found)
        row["more_units"] = units_to_settle(found, [0.0])
    return row


def _test(contrast: Contrast, found: Estimate, binary: bool) -> str | None:
    if found.p_value is None:
        return None
    if contrast.builds:
        return "two-way t"
    if found.clusters is not None:
        return "sign flips of clusters"
    repeats = bool(contrast.joined.first.repeat.any())
    return "exact McNemar" if binary and not repeats else "sign flips of units"


def macro(group: Sequence[Contrast], level: float) -> tuple[Effect, list[str], tuple[float, float]]:
    """Return the mean effect over tasks, the tasks it is over and the means of both sides.

    A cluster's name stands for one cluster in all tasks: units about one document
    are not independent because two tasks ask about it.
    """
    known: dict[str, int] = {}
    columns: list[tuple[np.ndarray, np.ndarray]] = []
    used: list[str] = []
    means: list[tuple[float, float]] = []
    lost: list[float] = []
    alone = 0
    clustered = any(each.joined.groups for each in group)
    for each in group:
        units, x, y, d = each.differences
        names = each.joined.groups or {}
        codes = np.empty(len(units), np.int64)
        for place, unit in enumerate(units.tolist()):
            name = names.get(unit)
            if name is None:
                alone -= 1
                codes[place] = alone
            else:
                codes[place] = known.setdefault(name, len(known))
        if len(np.unique(codes)) < 2:
            continue
        columns.append((d, codes))
        used.append(each.task)
        means.append((float(x.mean()), float(y.mean())))
        lost.append(each.found.lost)
    if len(used) < 2:
        return Effect(Estimate(float("nan"), level=level)), used, (float("nan"),) * 2
    d, codes = (np.concatenate(each) for each in zip(*columns, strict=True))
    strata = np.repeat(np.arange(len(columns)), [len(each[0]) for each in columns])
    found = macro_mean(d, strata, clusters=codes if clustered else None, level=level)
    first, second = (float(np.mean(each)) for each in zip(*means, strict=True))
    return Effect(found, float(np.mean(lost))), used, (first, second)
