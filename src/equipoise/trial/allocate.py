"""``allocate``: a policy chooses which arm runs which units next, and the budget ends it.

What the policy asks follows from the scores of the cells it chose before, and from nothing else.
So a run that was stopped chooses the same cells again, reads those that the store has, and goes
on; the budget counts chosen cells, wherever they come from.

How far an arm gets on the common order of units depends on scores, but the order does not. A
confidence sequence holds at all times at once, so also at the time at which the policy left it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.statistics.allocation import UCBE, Allocation, UCBELowRank
from equipoise.kit.statistics.sequences import BettingSequence
from equipoise.trial.allocated import Allocated
from equipoise.trial.early import Watched
from equipoise.trial.grid import Grid
from equipoise.trial.result import Status
from equipoise.trial.trial import Trial

if TYPE_CHECKING:
    from equipoise.trial.engine import Runner

BATCH = 32
"""Units of a decision at most."""

FIRST_ROUND = 25
"""The first round over all arms takes at most one part in so many of all cells."""

WARM_UP = 0.05
"""Share of all cells that `low_rank` draws at random first; at most half the budget."""


def allocate(run: Runner) -> Allocated:
    """Choose and run cells until the budget is spent, all is decided or nothing is left."""
    trial = run.trial
    for task, units in run.units.items():
        if units.held is None:
            raise UsageError(
                f"allocate: {trial.allocate} holds the units of {task}; cap them with `units`."
            )
    scores: dict[str, set[str]] = {task: set() for task in trial.tasks}
    for claim in trial.claims:
        scores[claim.on] |= {claim.score} if claim.score else set()
    every = sum(len(units) for units in run.units.values()) * trial.repeats * len(trial.arms)
    most = min(trial.budget.units or every, every)
    found = choose(Grid(run, scores, most), run.over_budget)
    found.grid.end()
    return found


def choose(grid: Grid, over_budget: Callable[[int], bool]) -> Allocated:
    """Let the policy choose from a grid to the end; ``over_budget`` says when something ran out.

    It is told how many outcomes were chosen.
    """
    choosing = Choosing(grid.trial, grid.cost, grid.most)
    looking = Looking(grid, choosing)
    decided = False
    while not decided and not over_budget(choosing.spent):
        arms, columns = choosing.next()
        if not len(arms):
            break
        choosing.tell(arms, columns, grid.ask(arms, columns))
        decided = grid.trial.stop == "early" and looking.decided(arms)
    left: Status = "early" if decided else "budget"
    return looking.result("finished" if grid.asked.all() else left)


class Choosing:
    """A policy with its budget: batches that fit, the same whatever the store holds.

    Parameters
    ----------
    trial
        Says which policy; its seed is all that the policy draws from.
    cost
        Outcomes of each column.
    most
        Outcomes that may be chosen in all.
    """

    def __init__(self, trial: Trial, cost: np.ndarray, most: int) -> None:
        self.cost, self.most = cost, most
        self.spent = self.decisions = 0
        arms, columns = len(trial.arms), len(cost)
        each = float(cost.mean())
        # A round over all arms must leave most of the budget to the choice between them.
        affordable = int(most / each / (4 * arms))
        wanted = min(BATCH * trial.repeats / each, columns // FIRST_ROUND, affordable)
        self.batch = max(1, int(wanted))
        self.policy: Allocation
        self.drawn: np.ndarray | None = None
        self._warm = 0
        if trial.allocate == "bandit":
            self.policy = UCBE(arms, np.arange(columns), batch=self.batch)
        else:
            warm_up = min(WARM_UP, most / each / (2 * arms * columns))
            stream = trial.rng.child("allocate")
            self.policy = UCBELowRank(arms, columns, stream, warm_up=warm_up, batch=self.batch)
            self.drawn = np.zeros((arms, columns), bool)
            self._warm = math.ceil(warm_up * arms * columns)

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the next cells, as many as the budget has room for; none ends the run."""
        arms, columns = self.policy.next()
        while len(arms) < self._warm:  # what is drawn at random needs no score in between
            more = self.policy.next()
            arms, columns = np.append(arms, more[0]), np.append(columns, more[1])
        fits = self.spent + np.cumsum(self.cost[columns]) <= self.most
        arms, columns = arms[fits], columns[fits]
        if self._warm and self.drawn is not None:
            self.drawn[arms, columns] = True
        self._warm = 0
        self.spent += int(self.cost[columns].sum())
        self.decisions += bool(len(arms))
        return arms, columns

    def tell(self, arms: np.ndarray, columns: np.ndarray, scores: np.ndarray) -> None:
        """Take the scores of the cells that were asked last."""
        self.policy.tell(arms, columns, scores)


@dataclass
class _Ranked:
    """An arm's confidence sequence for the ranking, and how many columns it has seen."""

    sequence: BettingSequence
    fed: int = 0


@dataclass
class _Claimed:
    """A claim's confidence sequence, how many columns it has seen, and when to look again."""

    watched: Watched
    arms: list[int]
    fed: int = 0
    due: int = BATCH


class Looking:
    """What can be said at any moment, from the columns that arms have in common."""

    def __init__(self, grid: Grid, choosing: Choosing) -> None:
        self.grid, self.choosing, self.trial = grid, choosing, grid.trial
        share = (1 - self.trial.level) / len(grid.arms)
        self.ranked = [_Ranked(BettingSequence(0, 1, 1 - share)) for _ in grid.arms]
        self.claimed = []
        for claim in self.trial.claims:
            labels = [claim.arm, *([claim.other] if isinstance(claim.other, str) else [])]
            arms = [grid.arms.index(label) for label in labels]
            self.claimed.append(_Claimed(Watched(self.trial, claim), arms))

    @property
    def usable(self) -> np.ndarray:
        """Cells whose choice did not follow from scores, but for how far an arm got."""
        drawn = self.choosing.drawn
        return self.grid.asked if drawn is None else drawn

    def decided(self, arms: np.ndarray) -> bool:
        """Say whether all claims are decided; without claims, whether the best arm is.

        It is when one arm is left, or when more units can tell those that are left no further
        apart. ``arms`` are those that have new scores.
        """
        new = set(arms.tolist())
        if not self.claimed:
            for arm in new:
                self._rank(arm)
            left = self._open()
            return bool(left.sum() == 1 or self.grid.asked[left].all())
        for each in self.claimed:
            if new & set(each.arms):
                self._look(each)
        return all(each.watched.steps and each.watched.decided() for each in self.claimed)

    def result(self, status: Status) -> Allocated:
        """Return all there is to say at the end."""
        for each in self.claimed:
            self._look(each, last=True)
        for arm in range(len(self.grid.arms)):
            self._rank(arm)
        means = self.choosing.policy.means()
        return Allocated(
            status=status,
            sequences=[each.watched.as_json() for each in self.claimed],
            grid=self.grid,
            usable=self.usable,
            means=means,
            intervals=np.array([each.sequence.interval for each in self.ranked]),
            open=self._open(),
            leader=None if np.isnan(means).all() else self.choosing.policy.best(),
            decisions=self.choosing.decisions,
            batch=self.choosing.batch,
        )

    def _rank(self, arm: int) -> None:
        """Feed an arm's sequence with its new columns."""
        each = self.ranked[arm]
        columns = np.flatnonzero(self.usable[arm])[each.fed :]
        each.fed += len(columns)
        values = self.grid.first[arm, columns]
        each.sequence.update_many(values[~np.isnan(values)])

    def _open(self) -> np.ndarray:
        """Return which arms may still be the best."""
        ends = np.array([each.sequence.interval for each in self.ranked])
        return np.asarray(ends[:, 1] >= ends[:, 0].max())

    def _look(self, each: _Claimed, last: bool = False) -> None:
        """Feed a claim's sequence where it has enough new columns, about 6 looks a doubling."""
        walk = self.grid.walks[each.watched.claim.on]
        common = np.all(self.usable[each.arms], axis=0)
        columns = walk.columns[common[walk.columns]]
        if len(columns) < each.due and not last:
            return
        new = columns[each.fed :]
        if len(new) or not each.watched.steps:
            self._feed(each, new)
            each.watched.look()
        each.fed = len(columns)
        each.due = each.fed + max(self.choosing.batch, each.fed // 8)

    def _feed(self, each: _Claimed, columns: np.ndarray) -> None:
        watched, grid = each.watched, self.grid
        walk = grid.walks[watched.claim.on]
        positions, of = walk.stretch(columns)
        sides = [
            grid.unit_values(arm, watched.claim.on, watched.spec.name, positions)
            for arm in each.arms
        ]
        values = watched.sign * (sides[0] - sides[1]) if watched.paired else sides[0]
        asked = np.ones(len(values), bool)
        watched.feed(values, ~np.isnan(values), asked, of if walk.clustered else None)
