"""Searching for the best method with any policy: matrix or function in, what was found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.progress import report
from equipoise.kit.statistics.allocation import Allocates, Cells
from equipoise.kit.statistics.single import mean, proportion

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
FOUND = "found_at_"
Run = Callable[[int, Places], npt.ArrayLike]
"""Runs a method on items, both by their places, and returns their scores."""


def found_score(budget: float) -> str:
    """Return the name of the score that says whether the best method is found at a budget."""
    return f"{FOUND}{budget:g}"


class FixedOrder(Cells):
    """Cells in an order that no score changes; estimates are means of rows."""

    def __init__(self, arms: int, units: int, cells: Places, batch: int) -> None:
        super().__init__(arms, units, batch)
        self._rest = cells

    def next(self) -> tuple[Places, Places]:
        """Return the next cells of the order that were not told of already."""
        found: list[Places] = []
        wanted = self.batch
        while wanted and len(self._rest):
            ahead, self._rest = self._rest[:wanted], self._rest[wanted:]
            found.append(ahead[~self.asked.ravel()[ahead]])
            wanted -= len(found[-1])
        cells = np.concatenate(found) if found else self._rest
        arms, units = np.unravel_index(cells, self.scores.shape)
        return self._give(arms, units)


@dataclass(frozen=True)
class BestFound:
    """What a search for the best method came to.

    Parameters
    ----------
    best
        Place of the method with the highest estimate.
    means
        Estimates of all methods, shape (methods,); NaN where nothing is known.
    scores
        What was run, shape (methods, items); NaN elsewhere.
    cells
        Cells run in the search, those that gave no score among them.
    fresh
        The mean of the best method on the items kept apart, None where none were.
    """

    best: int
    means: Array
    scores: Array
    cells: int
    fresh: Estimate | None = None


def hardness(means: npt.ArrayLike, tolerance: float = 0.0) -> float:
    r"""How hard it is to find the best method, $H_1$.

    .. math:: H_1 = \sum_{i \ne *} \frac{1}{(\mu_* - \mu_i)^2}

    Parameters
    ----------
    means
        True means of the methods, at least two.
    tolerance
        Methods within it of the best are as good as the best, and are left out of the sum; at
        0 a tie makes it infinite.

    Raises
    ------
    UsageError
        With fewer than two means, or one that is NaN.

    Examples
    --------
    >>> hardness([0.75, 0.25, 0.5])
    20.0
    """
    mu = np.asarray(means, dtype=np.float64)
    if mu.ndim != 1 or len(mu) < 2 or np.isnan(mu).any():
        raise UsageError("hardness: means must be at least two numbers, without NaN.")
    gaps = np.delete(mu.max() - mu, mu.argmax())
    if tolerance > 0:
        gaps = gaps[gaps > tolerance]
    with np.errstate(divide="ignore"):
        return float((1 / gaps**2).sum())


def search(
    who: str,
    subject: Allocates,
    scores: npt.ArrayLike | Run,
    budget: float,
    shape: tuple[int, int] | None,
    fresh: int,
    rng: Rng | None,
) -> BestFound:
    """Run a policy until the budget is spent; `ucb_e` says what the parameters are."""
    run, methods, items = _source(who, scores, shape)
    if fresh != 0 and fresh not in range(2, items):
        raise UsageError(
            f"{who}: fresh must be 0, or at least 2 and below the {items} items, got {fresh}."
        )
    stream = rng or Rng(0)
    order = stream.child("fresh").numpy().permutation(items) if fresh else np.arange(items)
    kept, searched = order[:fresh], np.sort(order[fresh:])
    budgeted = _cells(who, budget, methods * len(searched))
    policy = subject.allocate(methods, len(searched), stream)
    matrix: Array = np.full((methods, items), np.nan)
    left = budgeted
    while left > 0:
        report(f"{who}: cells run", budgeted - left, budgeted)
        arms, units = (each[:left] for each in policy.next())
        values = np.empty(len(arms))
        for arm in np.unique(arms):  # a batch may hold several methods: each runs its own items
            mine = np.flatnonzero(arms == arm)
            values[mine] = _answer(who, run, int(arm), searched[units[mine]])
        policy.tell(arms, units, values)
        matrix[arms, searched[units]] = values
        left -= len(arms)
    best, again = policy.best(), None
    if fresh:
        matrix[best, kept] = _answer(who, run, best, kept)
        again = _fresh_mean(who, matrix[best, kept])
    return BestFound(best, policy.means(), matrix, budgeted, again)


def _source(
    who: str, scores: npt.ArrayLike | Run, shape: tuple[int, int] | None
) -> tuple[Run, int, int]:
    """Return what runs cells, and how many methods and items there are."""
    if callable(scores):
        if shape is None or min(shape) < 1:
            raise UsageError(
                f"{who}: with a function, shape must say how many methods and items there are, as "
                f"in shape=(20, 500), got {shape}."
            )
        return scores, *shape
    try:
        matrix = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{who}: scores must be a matrix of numbers, or a function.") from None
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(
            f"{who}: scores must be a matrix of methods and items, got the shape {matrix.shape}."
        )
    if shape is not None and tuple(shape) != matrix.shape:
        raise UsageError(f"{who}: shape is {shape}, but scores have the shape {matrix.shape}.")
    return lambda method, items: matrix[method, items], *matrix.shape


def _cells(who: str, budget: float, cells: int) -> int:
    """Return a budget as a number of cells."""
    whole = float(budget).is_integer() and not (isinstance(budget, float) and budget == 1)
    found = 0
    if whole or 0 < budget <= 1:
        found = int(budget) if whole else round(budget * cells)
    if not 0 < found <= cells:
        raise UsageError(
            f"{who}: budget must be a share of all cells in (0, 1], or a whole number of them from "
            f"1 to {cells}, got {budget}."
        )
    return found


def _answer(who: str, run: Run, method: int, items: Places) -> Array:
    values: Array = np.asarray(run(method, items), dtype=np.float64)
    if values.shape != items.shape:
        raise UsageError(
            f"{who}: method {method} was run on {len(items)} items and gave scores of the shape "
            f"{values.shape}; one score an item is needed, NaN where there is none."
        )
    return values


def _fresh_mean(who: str, values: Array) -> Estimate:
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return Estimate(
            float("nan"), n=len(known), note=f"{who}: too few fresh items have a score."
        )
    return proportion(known) if np.isin(known, (0, 1)).all() else mean(known)
