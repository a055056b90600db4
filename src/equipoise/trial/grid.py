"""The cells that `allocate` chooses from, in memory: arms by units, and what came of each.

All arms walk one random order of the units of all tasks, whole clusters together. A column is
one unit with all its repeats, or one cluster; a cell is an arm on a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from equipoise.core import EXCUSED, Outcome, ScoreSpec, UsageError
from equipoise.trial.compare import fill
from equipoise.trial.trial import Trial
from equipoise.trial.work import Shard

if TYPE_CHECKING:
    from equipoise.trial.engine import Runner
    from equipoise.trial.units import TaskUnits

SHARD_MOST = 500
"""Units of a shard at most, so that a long batch is written and counted as it goes."""


@dataclass(frozen=True)
class Walk:
    """The units of one task in the order of the walk.

    Parameters
    ----------
    positions
        Of the units in the task, column after column.
    starts
        Where each of its columns begins in ``positions``, and the end of the last.
    columns
        Its columns' places among those of all tasks, rising.
    """

    positions: np.ndarray
    starts: np.ndarray
    columns: np.ndarray

    @property
    def clustered(self) -> bool:
        """Whether a column holds more than one unit."""
        return len(self.positions) > len(self.columns)

    def stretch(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of some columns' units, and for each the column it is of."""
        places = np.searchsorted(self.columns, columns)
        sizes = self.starts[places + 1] - self.starts[places]
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        rows = np.repeat(self.starts[places], sizes) + within
        return self.positions[rows], np.repeat(np.arange(len(columns)), sizes)


def walks(units: dict[str, TaskUnits], trial: Trial) -> dict[str, Walk]:
    """Return the one random order that all arms walk, task by task."""
    groups = [(task, group) for task, each in units.items() for group in each.groups()]
    if len(units) > 1:  # those of one task are in random order
        order = trial.rng.child("order of all tasks").numpy().permutation(len(groups))
        groups = [groups[place] for place in order]
    found = {}
    for task in units:
        columns = np.array([k for k, (of, _) in enumerate(groups) if of == task], int)
        mine = [groups[k][1] for k in columns]
        starts = np.concatenate([[0], np.cumsum([len(group) for group in mine])]).astype(int)
        found[task] = Walk(np.concatenate(mine), starts, columns)
    return found


class Grid:
    """What is known of every cell, and a way to ask for more.

    Attributes
    ----------
    cost
        Outcomes of a column: its units times repeats.
    asked
        Cells that were chosen, shape (arms, columns).
    first
        The first score of each cell asked, the mean of its units scaled to [0, 1], 1 the best;
        NaN where it has none.
    replayed
        Outcomes that the store had.
    """

    def __init__(self, run: Runner, scores: dict[str, set[str]], most: int) -> None:
        self.run, self.trial = run, run.trial
        self.arms = list(run.trial.arms)
        self.walks = walks(run.units, run.trial)
        columns = sum(len(walk.columns) for walk in self.walks.values())
        self.cost = np.zeros(columns, int)
        self.task_of: np.ndarray = np.empty(columns, object)
        self.values: dict[tuple[str, str], np.ndarray] = {}
        self.specs: dict[str, list[ScoreSpec]] = {}
        for task, walk in self.walks.items():
            self.cost[walk.columns] = np.diff(walk.starts) * self.trial.repeats
            self.task_of[walk.columns] = task
            specs = self.trial.tasks[task].scores
            self.specs[task] = [s for s in specs if s.name in scores[task] | {specs[0].name}]
            shape = (len(self.arms), len(run.units[task]), self.trial.repeats)
            for spec in self.specs[task]:
                self.values[task, spec.name] = np.full(shape, np.nan)
        self.asked = np.zeros((len(self.arms), columns), bool)
        self.first = np.full((len(self.arms), columns), np.nan)
        self.most, self.replayed, self.started = most, 0, False
        self._known: dict[tuple[int, str], np.ndarray] = {}
        self._parts = max(1, getattr(run.executor, "workers", 1))

    def ask(self, arms: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Run what the store lacks of some cells and return their first scores, scaled."""
        kinds: dict[tuple[int, str], list[int]] = {}
        for place, kind in enumerate(zip(arms.tolist(), self.task_of[columns], strict=True)):
            kinds.setdefault(kind, []).append(place)
        work = []
        for (arm, task), cells in kinds.items():
            positions, _ = self.walks[task].stretch(columns[cells])
            work += [(arm, task, *each) for each in self._todo(arm, task, positions)]
        self._count(int(self.cost[columns].sum()) - sum(len(todo) for *_, todo in work))
        if work:
            self._run(work)
        found = np.empty(len(columns))
        for (arm, task), cells in kinds.items():
            spec = self.trial.tasks[task].scores[0]
            values = self.column_values([arm], task, spec.name, columns[cells])
            found[cells] = self._scaled(task, spec, values)
        self.asked[arms, columns] = True
        self.first[arms, columns] = found
        return found

    def unit_values(self, arm: int, task: str, score: str, positions: np.ndarray) -> np.ndarray:
        """Return a score of units, the mean of repeats; NaN where one of them has none."""
        found: np.ndarray = self.values[task, score][arm, positions].mean(axis=1)
        return found

    def column_values(
        self, arms: Sequence[int], task: str, score: str, columns: np.ndarray
    ) -> np.ndarray:
        """Return a score of columns, or by how much the first of two arms has more.

        A cluster's is the mean over those of its units that have a value.
        """
        positions, of = self.walks[task].stretch(columns)
        sides = [self.unit_values(arm, task, score, positions) for arm in arms]
        return _means(sides[0] if len(sides) == 1 else sides[0] - sides[1], of, len(columns))

    def end(self) -> None:
        """Tell the watcher, where nothing had to be run."""
        if not self.started:
            self.run.watcher.start(0, self.replayed)

    def _count(self, replayed: int) -> None:
        self.replayed += replayed
        if self.started and replayed:
            self.run.watcher.advance(replayed, 0)

    def _todo(self, arm: int, task: str, positions: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        if (arm, task) not in self._known:
            self._known[arm, task] = self._read(arm, task)
        known = self._known[arm, task][positions]
        for repeat in range(self.trial.repeats):
            todo = positions[~known[:, repeat]]
            if len(todo):
                yield repeat, todo

    def _read(self, arm: int, task: str) -> np.ndarray:
        """Take what the store has of an arm on a task; return what that is, a column a repeat."""
        label, numbers = self.arms[arm], self.run.units[task].numbers
        known = self.run.done(label, task, 0, numbers)
        if known.any():
            found = self.run.outcomes(label, task)
            place = np.full(int(numbers.max()) + 1, -1)
            place[numbers] = np.arange(len(numbers))
            found = found.take(place[found.unit] >= 0)
            for spec in self.specs[task]:
                values, _ = fill(found, spec.name, self.trial.errors)
                self.values[task, spec.name][arm, place[found.unit], found.repeat] = values
        return known

    def _run(self, work: Sequence[tuple[int, str, int, np.ndarray]]) -> None:
        if not self.started:
            self.started = True
            self.run.watcher.start(self.most - self.replayed, self.replayed)
        waiting: dict[int, tuple[int, str, int, np.ndarray]] = {}
        for shard, outcomes in self.run.stream(self._shards(work, waiting)):
            arm, task, repeat, positions = waiting.pop(id(shard))
            self._known[arm, task][positions, repeat] = True
            for spec in self.specs[task]:
                values = [_score(each, spec, self.trial.errors) for each in outcomes]
                self.values[task, spec.name][arm, positions, repeat] = values

    def _shards(
        self,
        work: Sequence[tuple[int, str, int, np.ndarray]],
        waiting: dict[int, tuple[int, str, int, np.ndarray]],
    ) -> Iterator[Shard]:
        for arm, task, repeat, todo in work:
            self.run.watcher.doing(self.arms[arm], task)
            units = self.run.units[task]
            parts = max(min(self._parts, len(todo)), -(-len(todo) // SHARD_MOST))
            for positions in np.array_split(todo, parts):
                chosen = [(units.held or ())[position] for position in positions]
                shard = self.run.shard(
                    self.arms[arm], task, 0, repeat, chosen, units.numbers[positions]
                )
                waiting[id(shard)] = (arm, task, repeat, positions)
                yield shard

    def _scaled(self, task: str, spec: ScoreSpec, values: np.ndarray) -> np.ndarray:
        low, high = float(spec.low or 0.0), float(spec.high or 0.0)
        if ((values < low) | (values > high)).any():
            raise UsageError(
                f"Task {task}: {spec.name} came to {np.nanmin(values):g} to {np.nanmax(values):g}, "
                f"outside its bounds {low:g} and {high:g}, so nothing can be allocated by it."
            )
        scaled = (values - low) / (high - low)
        return scaled if spec.higher_is_better else 1.0 - scaled


def _score(outcome: Outcome, spec: ScoreSpec, errors: str) -> float:
    """Return what `compare.fill` makes of a score."""
    if outcome.status != "error":
        return outcome.scores.get(spec.name, np.nan)
    blamed = errors == "worst" and outcome.error_kind not in EXCUSED
    return spec.worst if blamed and spec.worst is not None else np.nan


def _means(values: np.ndarray, of: np.ndarray, count: int) -> np.ndarray:
    """Return the mean of each column's units that have a value; NaN where none has."""
    kept = ~np.isnan(values)
    sums = np.bincount(of[kept], values[kept], count)
    counts = np.bincount(of[kept], minlength=count)
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.where(counts > 0, sums / counts, np.nan)
    return found
