"""Slopes of accuracy and effects of order, as functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, UsageError
from equipoise.methods.reasoning._logistic import logistic

Array = np.ndarray[Any, np.dtype[Any]]


def accuracy_slope(
    correct: npt.ArrayLike,
    complexity: npt.ArrayLike,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Estimate how the log-odds of a right answer change with each step of complexity.

    The slope $\beta$ of $\mathrm{logit}\, P(\text{right}) = \alpha + \beta c$, by
    Firth's penalised likelihood, which stays finite when all answers are right
    below some complexity and wrong above it. Independent rows get the profile
    interval; rows that share units, clusters or builds a robust one.

    Parameters
    ----------
    correct
        Zeros and ones, shape ``(n,)``.
    complexity
        Depth, width or any other number, ``(n,)``, of at least two values.
    units, clusters, builds
        What rows hang together by, each ``(n,)``.
    level
        Coverage aimed for.

    Returns
    -------
    Estimate
        In logits a step; ``details`` hold the accuracy at each complexity.

    Raises
    ------
    UsageError
        If complexity does not vary or lengths differ.

    Examples
    --------
    >>> found = accuracy_slope([1, 1, 1, 0, 1, 0, 0, 0], [1, 1, 2, 2, 3, 3, 4, 4])
    >>> print(found)
    -1.118 [-3.338, 0.133]
    """
    y, c = _columns("accuracy_slope", correct, complexity)
    if len(np.unique(c)) < 2:
        raise UsageError("accuracy_slope: complexity has one value, and a slope takes two.")
    x = np.column_stack([np.ones(len(y)), c - c.mean()])
    found = logistic(
        y, x, 1, "accuracy_slope",
        units=_array(units), clusters=_array(clusters), builds=_array(builds), level=level,
    )  # fmt: skip
    at = {f"accuracy_at_{v:g}": float(y[c == v].mean()) for v in np.unique(c)[:100]}
    return replace(found, details={**found.details, **at})


def slope_difference(
    correct: npt.ArrayLike,
    complexity: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Estimate how much steeper accuracy falls in one group of problems than in the rest.

    The interaction $\delta$ of $\mathrm{logit}\,P = \alpha + \gamma g + \beta c + \delta g c$;
    below zero when the group's slope is the more negative one. Method and
    intervals as in `accuracy_slope`.

    Parameters
    ----------
    correct, complexity
        As in `accuracy_slope`; each group needs two complexities.
    group
        1 in the group of interest and 0 elsewhere, ``(n,)``.
    units, clusters, builds, level
        As in `accuracy_slope`.

    Raises
    ------
    UsageError
        If a group is missing or has one complexity only.

    Examples
    --------
    >>> right, depth = [1, 1, 1, 0, 1, 0, 0, 0], [1, 1, 2, 2, 1, 1, 2, 2]
    >>> slope_difference(right, depth, [0, 0, 0, 0, 1, 1, 1, 1]).value < 0
    False
    """
    who = "slope_difference"
    y, c = _columns(who, correct, complexity)
    _, g = _columns(who, correct, group)
    if set(np.unique(g)) != {0.0, 1.0}:
        raise UsageError(f"{who}: group must hold both 0 and 1 and nothing else.")
    if min(len(np.unique(c[g == each])) for each in (0, 1)) < 2:
        raise UsageError(f"{who}: each group needs two values of complexity.")
    centred = c - c.mean()
    x = np.column_stack([np.ones(len(y)), g, centred, g * centred])
    return logistic(
        y, x, 3, who,
        units=_array(units), clusters=_array(clusters), builds=_array(builds), level=level,
    )  # fmt: skip


def movement_effect(
    correct: npt.ArrayLike,
    movement: npt.ArrayLike,
    problems: npt.ArrayLike | Sequence[object],
    *,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """Estimate what moving a sentence to the front does to accuracy, within problems.

    The mean over problems of accuracy over all moved orders less accuracy in
    the canonical order.

    Parameters
    ----------
    correct
        Zeros and ones, shape ``(n,)``.
    movement
        0 in the canonical order, else which sentence was moved, ``(n,)``.
    problems
        Which problem a row belongs to, ``(n,)``.
    builds
        Build of each row, where there are several.
    level
        Coverage aimed for.

    Returns
    -------
    Estimate
        A difference of proportions; ``details`` hold it for each movement.

    Raises
    ------
    UsageError
        If no problem was asked in both a canonical and a moved order.

    Examples
    --------
    >>> found = movement_effect([1, 0, 1, 1, 1, 0], [0, 2, 0, 2, 0, 2], [1, 1, 2, 2, 3, 3])
    >>> round(found.value, 3), round(found.details["effect_of_2"], 3)
    (-0.667, -0.667)
    """
    from equipoise.kit.statistics.robust import reduce_rows, sampling

    who = "movement_effect"
    y, moved = _columns(who, correct, movement)
    problem = np.unique(np.asarray(problems), return_inverse=True)[1].reshape(-1)
    build = np.zeros(len(y), int) if builds is None else np.asarray(builds)
    if len(problem) != len(y) or len(build) != len(y):
        raise UsageError(f"{who}: columns have different lengths.")
    _, cell = np.unique(np.column_stack([problem, build]), axis=0, return_inverse=True)
    cell = cell.reshape(-1)

    def mean_of(chosen: Array) -> Array:
        count = np.bincount(cell[chosen], minlength=cell.max() + 1)
        with np.errstate(invalid="ignore"):
            found: Array = np.bincount(cell[chosen], y[chosen], cell.max() + 1) / count
        return found

    still = mean_of(moved == 0)
    effect = mean_of(moved != 0) - still
    first = np.unique(cell, return_index=True)[1]
    both = ~np.isnan(effect)
    if both.sum() < 2:
        raise UsageError(
            f"{who}: at least two problems must be asked both as they are and with a sentence"
            " moved; give the task several movements, 0 among them."
        )
    rows = reduce_rows(
        effect[both],
        who,
        units=problem[first][both],
        builds=None if builds is None else build[first][both],
    )
    found = sampling(rows, who).estimate(level)
    each = {
        f"effect_of_{v:g}": float(np.nanmean(mean_of(moved == v) - still))
        for v in np.unique(moved[moved != 0])
    }
    return replace(found, details={**found.details, **each})


def _columns(who: str, correct: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Array, Array]:
    one, two = np.asarray(correct, float), np.asarray(other, float)
    if one.ndim != 1 or one.shape != two.shape or not len(one):
        raise UsageError(f"{who}: columns must have one length, got {one.shape} and {two.shape}.")
    return one, two


def _array(values: npt.ArrayLike | None) -> Array | None:
    return None if values is None else np.asarray(values)
