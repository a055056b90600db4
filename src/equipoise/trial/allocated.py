"""What a run that allocated its budget ends with: estimates, the ranking, what was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import Estimate, ScoreSpec
from equipoise.trial.early import sequence_for
from equipoise.trial.grid import Grid
from equipoise.trial.result import Status

_COSTS = ("seconds", "tokens", "dollars")


@dataclass(frozen=True)
class Allocated:
    """The chosen cells and what follows from them.

    Parameters
    ----------
    usable
        Cells that intervals may rest on, shape (arms, columns).
    means
        The policy's estimate of each arm, scaled to [0, 1], 1 the best.
    intervals
        Of each arm's mean, for all arms at once, on the same scale; shape (arms, 2).
    open
        Arms that may still be the best.
    leader
        Place of the arm with the highest estimate, None where no cell has a score.
    """

    status: Status
    sequences: list[dict[str, object]]
    grid: Grid
    usable: np.ndarray
    means: np.ndarray
    intervals: np.ndarray
    open: np.ndarray
    leader: int | None
    decisions: int
    batch: int

    def numbers(self, arm: str, task: str) -> np.ndarray:
        """Return the store's numbers of the units of a task that an arm was chosen for."""
        walk = self.grid.walks[task]
        columns = walk.columns[self.grid.asked[self.grid.arms.index(arm), walk.columns]]
        found: np.ndarray = self.grid.run.units[task].numbers[walk.stretch(columns)[0]]
        return found

    def estimate(self, arm: str, task: str) -> Estimate:
        """Return the mean of a task's first score, with an interval for all arms at once."""
        return self._sequence(task, [self.grid.arms.index(arm)], len(self.grid.arms))

    def effect(self, arm: str, control: str, task: str) -> Estimate:
        """Return how much better an arm is than the control, on the columns both have."""
        both = [self.grid.arms.index(each) for each in (arm, control)]
        return self._sequence(task, both, len(self.grid.arms) - 1)

    def _sequence(self, task: str, arms: Sequence[int], among: int) -> Estimate:
        grid, walk = self.grid, self.grid.walks[task]
        spec = grid.trial.tasks[task].scores[0]
        level = 1 - (1 - grid.trial.level) / among
        usable = np.all(self.usable[arms], axis=0)
        columns = walk.columns[usable[walk.columns]]
        paired = len(arms) == 2
        values = grid.column_values(arms, task, spec.name, columns)
        values = values[~np.isnan(values)] * (-1 if paired and not spec.higher_is_better else 1)
        sequence = sequence_for(spec, paired, level)
        sequence.update_many(values)
        if not len(values):
            why = "no unit is scored in both" if paired else "no unit has this score"
            return Estimate(float("nan"), level=level, note=why)
        low, high = sequence.interval
        return Estimate(
            sequence.value,
            low,
            high,
            level=level,
            n=len(walk.stretch(columns)[0]),
            clusters=len(values) if walk.clustered else None,
            method="confidence sequence, betting",
            note=_NOTES[grid.trial.allocate or "bandit"],
        )

    def as_json(self, costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the JSON contract of ``allocation``; ``costs`` are the result's."""
        grid, trial = self.grid, self.grid.trial
        spent = grid.asked @ grid.cost
        each = int(grid.cost.sum())
        scale = _Scale([trial.tasks[task].scores[0] for task in trial.tasks])
        arms = []
        modelled = trial.allocate == "low_rank"
        for place, label in enumerate(grid.arms):
            low, high = scale.interval(*self.intervals[place])
            values = grid.first[place, self.usable[place]]
            values = values[~np.isnan(values)]
            found = {
                "arm": label,
                "units": int(spent[place]),
                "value": scale.value(float(values.mean())) if len(values) else None,
                "low": low,
                "high": high,
                "open": bool(self.open[place]),
            }
            model = scale.value(float(self.means[place])) if modelled else None
            arms.append(found | ({"model": model} if modelled else {}))
        return {
            "policy": trial.allocate,
            "units": int(spent.sum()),
            "of": each * len(arms),
            "budget": trial.budget.units,
            "decisions": self.decisions,
            "batch": self.batch,
            "score": scale.name,
            "higher_is_better": scale.higher_is_better,
            "level": trial.level,
            "leader": None if self.leader is None else grid.arms[self.leader],
            "risk": self._risk(scale),
            "arms": arms,
            "saved": self._saved(costs),
        }

    def _risk(self, scale: _Scale) -> float | None:
        """Return by how much another arm may be better than the leader."""
        if self.leader is None:
            return None
        others = np.delete(self.intervals[:, 1], self.leader)
        return scale.width * max(0.0, float(others.max() - self.intervals[self.leader, 0]))

    def _saved(self, costs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return what the cells that were not run would have cost, by each arm's own pace."""
        found: dict[str, float] = {"units": 0, "seconds": 0.0, "tokens": 0.0, "dollars": 0.0}
        rates = {(cell["arm"], cell["task"]): _rate(cell) for cell in costs}
        for (arm, task), rate in rates.items():
            walk = self.grid.walks[task]
            left = ~self.grid.asked[self.grid.arms.index(arm), walk.columns]
            units = int(self.grid.cost[walk.columns][left].sum())
            found["units"] += units
            if rate is None:  # not asked here: as arms do on average, on this task or on any
                known = [r for (_, t), r in rates.items() if r and t == task]
                known = known or [r for r in rates.values() if r]
                rate = {k: sum(r[k] for r in known) / max(1, len(known)) for k in _COSTS}
            for kind in _COSTS:
                found[kind] += units * rate[kind]
        return found


_NOTES = {
    "bandit": "How many units followed from the scores: the interval allows for it and holds for "
    "all arms at once; the value of an arm that won is probably too high.",
    "low_rank": "On the units drawn at random before the choice began; the interval holds for all "
    "arms at once.",
}


class _Scale:
    """From [0, 1] with 1 the best to the tasks' first score, where all have the same one."""

    def __init__(self, specs: Sequence[ScoreSpec]) -> None:
        kinds = {(spec.low, spec.high, spec.higher_is_better) for spec in specs}
        names = list(dict.fromkeys(spec.name for spec in specs))
        self.low, self.width, self.higher_is_better = 0.0, 1.0, True
        self.name = "share of the way from worst to best"
        if len(kinds) == 1:
            low, high, better = kinds.pop()
            self.low, self.width = float(low or 0.0), float(high or 0.0) - float(low or 0.0)
            self.higher_is_better = bool(better)
            self.name = ", ".join(names)

    def value(self, scaled: float) -> float | None:
        if np.isnan(scaled):
            return None
        return self.low + self.width * (scaled if self.higher_is_better else 1 - scaled)

    def interval(self, low: float, high: float) -> tuple[float | None, float | None]:
        ends = self.value(float(low)), self.value(float(high))
        return ends if self.higher_is_better else (ends[1], ends[0])


def _rate(cell: Mapping[str, Any]) -> dict[str, float] | None:
    """Return what an outcome of a cell cost."""
    if not cell["outcomes"]:
        return None
    tokens = cell["input_tokens"] + cell["output_tokens"]
    totals = {"seconds": cell["seconds"], "tokens": tokens, "dollars": cell["dollars"]}
    return {kind: total / cell["outcomes"] for kind, total in totals.items()}
