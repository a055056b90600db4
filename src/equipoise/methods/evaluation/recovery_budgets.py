r"""The budget at which the best method is found, and what an arm saves of another's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Figure, Measure, Outcomes, Rng, Series, UsageError, between
from equipoise.kit.statistics.columns import clusters_of, complete, noted, rows_of
from equipoise.kit.statistics.single import proportion
from equipoise.methods.evaluation._adaptive_search import FOUND, found_score

__all__ = ["BudgetSaved", "BudgetToFind", "budget_to_find"]

Array = npt.NDArray[np.float64]


def budget_to_find(
    found: Mapping[float, npt.ArrayLike],
    *,
    target: float = 0.9,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Return the share of cells from which on the best method is found with a probability.

    Precision is taken as linear between the budgets, and is 1 at the budget 1, where all cells
    are known. The interval holds the budgets at which the interval of the precision (Wilson's,
    or that for clusters) holds the target. A value at the lowest budget means that or less.

    Parameters
    ----------
    found
        Budget, a share of all cells in (0, 1], to zeros and ones, one a draw, ``(n,)``.
    target
        Precision to reach, in (0, 1).
    clusters
        Cluster of each draw, where draws are not independent.
    level
        Coverage the interval aims for.

    Raises
    ------
    UsageError
        On no budget, one outside (0, 1], a target outside (0, 1), or columns that do not fit.

    Examples
    --------
    >>> found = {0.05: [0] * 50 + [1] * 50, 0.1: [1] * 98 + [0] * 2}
    >>> print(budget_to_find(found))
    0.092 [0.088, 0.097]
    """
    grid = np.array(sorted(found), dtype=np.float64)
    if not grid.size or grid[0] <= 0 or grid[-1] > 1:
        raise UsageError("budget_to_find: budgets must be shares of all cells in (0, 1].")
    if not 0 < target < 1:
        raise UsageError(f"budget_to_find: target must be between 0 and 1, got {target}.")
    each = [proportion(np.asarray(found[b], float), clusters=clusters, level=level) for b in grid]
    curves = np.array([[one.value, one.high, one.low] for one in each]).T
    value, low, high = _crossing(grid, curves, target).tolist()
    note = "" if (curves[0] < target).any() else f"The lowest budget, {grid[0]:g}, is enough."
    return Estimate(
        value, low, high, level, each[0].n, clusters=each[0].clusters,
        method="inverted " + each[0].method, note=note,
    )  # fmt: skip


def _crossing(grid: Array, curves: Array, target: float) -> Array:
    """Return from where on curves, shape (curves, budgets), are at least the target."""
    if grid[-1] < 1:
        grid = np.append(grid, 1.0)
        curves = np.column_stack([curves, np.ones(len(curves))])
    below = curves < target
    below[:, -1] = False
    last = below.shape[1] - 1 - below[:, ::-1].argmax(axis=1)  # the last budget that falls short
    none = ~below.any(axis=1)
    last[none] = 0
    rows, after = np.arange(len(curves)), np.minimum(last + 1, len(grid) - 1)
    start, end = curves[rows, last], np.maximum(curves[rows, after], target)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (target - start) / (end - start)
    found: Array = np.where(none, grid[0], grid[last] + share * (grid[after] - grid[last]))
    return found


@dataclass(frozen=True)
class BudgetToFind(Measure):
    """The share of cells from which on the best method is found with a probability.

    The plain function is `budget_to_find`. The figure has precision against budget, a line an arm.

    Parameters
    ----------
    target
        Precision to reach.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> rows = Outcomes.of(**{"found_at_0.05": [0, 1] * 50, "found_at_0.1": [1] * 100})
    >>> round(BudgetToFind().statistic(rows), 3)
    0.09
    """

    target: float = between(0.01, 0.99, default=0.9)
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better = False

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 200 draws that find the best at budgets spread evenly from 0.05 to 0.25."""
        settled = rng.numpy().uniform(0.05, 0.25, 200)
        grid = (0.1, 0.15, 0.2, 0.25)
        precision = np.array([[(b - 0.05) / 0.2 for b in grid]])
        truth = _crossing(np.array(grid), precision, self.target)[0]
        columns = {found_score(b): (settled <= b).astype(float) for b in grid}
        return rows_of(columns), float(truth)

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the budget with its interval; ``rng`` is not used."""
        rows, grid, note = _columns("BudgetToFind", outcomes)
        found = {b: rows.score(found_score(b)) for b in grid}
        return noted(
            budget_to_find(found, target=self.target, clusters=clusters_of(rows), level=self.level),
            note,
        )

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the budget alone."""
        rows, grid, _ = _columns("BudgetToFind", outcomes)
        return float(_budget(rows, grid, self.target))

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure:
        """Return precision against budget, with intervals."""
        series = []
        for arm, each in outcomes.items():
            rows, grid, _ = _columns("BudgetToFind", each)
            curve = [
                proportion(rows.score(found_score(b)), clusters=clusters_of(rows), level=self.level)
                for b in grid
            ]
            value, low, high = zip(*((one.value, one.low, one.high) for one in curve), strict=True)
            series.append(Series(arm, [100 * b for b in grid], value, low, high))
        ends = (min(min(each.x) for each in series), max(max(each.x) for each in series))
        series.append(Series("target", ends, (self.target, self.target), look="guide"))
        return Figure(
            "Finding the best method from a part of all cells",
            "budget, % of all cells",
            "share of draws that find the best",
            series,
            caption="Left of a line is cheaper; bands are intervals of each point by itself.",
        )


@dataclass(frozen=True)
class BudgetSaved(Measure):
    r"""The share of the other arm's budget that an arm saves in finding the best method.

    .. math:: 1 - B / B', \quad B = \text{budget to find}

    Parameters
    ----------
    target
        Precision to reach.
    level, draws
        Coverage and bootstrap resamples, of paired draws.

    Examples
    --------
    >>> grid = ("found_at_0.1", "found_at_0.4")
    >>> quick = Outcomes.of(**dict.fromkeys(grid, [1] * 100))
    >>> slow = Outcomes.of(**{grid[0]: [0] * 100, grid[1]: [1] * 90 + [0] * 10})
    >>> BudgetSaved(draws=100).measure((quick, slow), Rng(0)).value
    0.75
    """

    scope = "pair"

    target: float = between(0.01, 0.99, default=0.9)
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 1_000_000, default=10_000)

    @classmethod
    def tiny(cls) -> BudgetSaved:
        """Return few resamples."""
        return cls(draws=500)

    def simulate(self, rng: Rng) -> tuple[tuple[Outcomes, Outcomes], float]:
        """Return 200 draws, one arm at half of the other's budget."""
        settled = rng.numpy().uniform(0.1, 0.5, 200)
        grid = np.array([0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])

        def arm(at: Array) -> Outcomes:
            return Outcomes.of(**{found_score(b): (at <= b).astype(float) for b in grid})

        curves = np.array([np.clip((grid - low) / (4 * low), 0, 1) for low in (0.05, 0.1)])
        mine, other = _crossing(grid, curves, self.target)
        return (arm(settled / 2), arm(settled)), float(1 - mine / other)

    def measure(self, outcomes: tuple[Outcomes, Outcomes], rng: Rng) -> Estimate:
        """Return the share saved with a percentile interval."""
        who = "BudgetSaved"
        (a, grid, note), (b, other, more) = (_columns(who, each) for each in outcomes)
        if grid != other or not np.array_equal(a.unit, b.unit):
            raise UsageError(f"{who}: both arms must be scored on the same draws and budgets.")
        groups = clusters_of(a)
        codes = np.arange(len(a)) if groups is None else np.unique(groups, return_inverse=True)[1]
        count = int(codes.max()) + 1
        if count < 2:
            raise UsageError(f"{who}: one draw gives no interval; at least two are needed.")
        size = np.bincount(codes, minlength=count).astype(float)
        weights = rng.numpy().multinomial(count, np.full(count, 1 / count), size=self.draws)
        saved = []
        for picked in (np.ones((1, count)), weights.astype(float)):
            mine, theirs = (
                _crossing(np.array(grid), _precision(rows, grid, codes, size, picked), self.target)
                for rows in (a, b)
            )
            saved.append(1 - mine / theirs)
        value = float(saved[0][0])
        tail = (1 - self.level) / 2
        low, high = np.quantile(saved[1], [tail, 1 - tail])
        return noted(
            Estimate(
                value, min(float(low), value), max(float(high), value), self.level, count,
                method="bootstrap percentile",
            ),
            note or more,
        )  # fmt: skip


def _columns(who: str, outcomes: Outcomes) -> tuple[Outcomes, list[float], str]:
    """Return complete rows, the budgets they are scored at, and a note on the others."""
    names = [name for name in outcomes.scores if name.startswith(FOUND)]
    if not names:
        raise UsageError(
            f"{who}: there is no score {FOUND}BUDGET; the task best_arm_recovery gives them."
        )
    rows, note = complete(who, outcomes, *names)
    return rows, sorted(float(name.removeprefix(FOUND)) for name in names), note


def _budget(rows: Outcomes, grid: list[float], target: float) -> float:
    curve = [float(rows.score(found_score(b)).mean()) for b in grid]
    return float(_crossing(np.array(grid), np.array([curve]), target)[0])


def _precision(
    rows: Outcomes, grid: list[float], codes: np.ndarray, size: Array, picked: Array
) -> Array:
    """Return the precision at each budget when clusters are picked so often."""
    sums = np.stack(
        [np.bincount(codes, rows.score(found_score(b)), minlength=len(size)) for b in grid],
        axis=1,
    )
    means: Array = (picked @ sums) / (picked @ size)[:, np.newaxis]
    return means
