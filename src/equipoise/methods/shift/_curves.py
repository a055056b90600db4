"""Performance at each threshold, of many resamples at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from equipoise.core import Outcomes, Rng, UsageError

Metric = Literal["spearman", "pearson", "r2", "mcc", "accuracy", "rmse", "mae"]

Scorer = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Maps targets ``(n,)``, predictions ``(n,)`` and counts ``(draws, n)`` to scores ``(draws,)``."""

_CELLS = 4_000_000  # counts held at once


@dataclass(frozen=True, slots=True)
class Curves:
    """One arm's rows by threshold, and how much each threshold weighs.

    A row of several builds or repeats is scored within each, and the scores are averaged.
    """

    thresholds: np.ndarray
    weights: np.ndarray
    weighted: bool
    rows: int
    groups: int
    cells: tuple[tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...], ...]
    """By threshold, by build: targets, predictions, and the cluster of each row."""

    @classmethod
    def of(
        cls,
        part: str,
        outcomes: Outcomes,
        names: tuple[str, str, str, str],
        weighting: str,
    ) -> Curves:
        """Read the columns threshold, target, predicted and weight; incomplete rows are left out.

        Raises
        ------
        UsageError
            If no row is whole, or weights are asked for and there are none.
        """
        threshold, target, predicted, weight = names
        columns = [outcomes.score(each) for each in (threshold, target, predicted)]
        whole = np.asarray(~np.isnan(columns).any(axis=0))
        if not whole.any():
            where = f" in arm {outcomes.arm}" if outcomes.arm else ""
            raise UsageError(f"{part}: no row{where} has a {threshold}, {target} and {predicted}.")
        t, y, found = (each[whole] for each in columns)
        rows = outcomes.take(whole)
        owner = rows.unit if rows.cluster is None else rows.cluster
        cluster = np.unique(owner, return_inverse=True)[1]
        grid, at = np.unique(np.round(t, 9), return_inverse=True)
        run = rows.build * (int(rows.repeat.max()) + 1) + rows.repeat
        cells = []
        for place in range(len(grid)):
            here = np.flatnonzero(at == place)
            runs = np.unique(run[here]) if run.any() else (0,)
            picked = [here if len(runs) == 1 else here[run[here] == each] for each in runs]
            cells.append(tuple((y[each], found[each], cluster[each]) for each in picked))
        shares = _weights(part, rows, weight, at, len(grid), weighting)
        weights = np.full(len(grid), 1 / len(grid)) if shares is None else shares
        return cls(grid, weights, shares is not None, len(t), int(cluster.max()) + 1, tuple(cells))

    def values(self, metric: Metric, counts: np.ndarray | None = None) -> np.ndarray:
        """Return the metric at each threshold, ``(draws, thresholds)``.

        ``counts`` says how often each cluster is drawn, ``(draws, clusters)``; once by default.
        """
        if counts is None:
            counts = np.ones((1, self.groups))
        score = SCORERS[metric]
        found = np.empty((len(counts), len(self.thresholds)))
        for place, builds in enumerate(self.cells):
            found[:, place] = np.mean(
                [_in_steps(score, y, hat, cluster, counts) for y, hat, cluster in builds], axis=0
            )
        return found

    def draws(self, number: int, rng: Rng) -> np.ndarray:
        """Return how often each cluster is drawn in each resample, ``(number, clusters)``."""
        if self.groups < 2:
            raise UsageError("One row gives no interval; at least two are needed.")
        share = np.full(self.groups, 1 / self.groups)
        return rng.numpy().multinomial(self.groups, share, size=number).astype(float)

    def area(self, values: np.ndarray) -> np.ndarray:
        """Return the weighted mean over thresholds; those without weight may be undefined."""
        used = self.weights > 0
        return np.asarray(values[..., used] @ self.weights[used])


def _weights(
    part: str, rows: Outcomes, name: str, at: np.ndarray, size: int, weighting: str
) -> np.ndarray | None:
    """Return the deployment's share at each threshold, None for equal shares."""
    column = rows.scores.get(name)
    there = column is not None and not np.isnan(column).all()
    if weighting == "uniform" or (weighting == "auto" and not there):
        return None
    if column is None or not there or np.isnan(column).any():
        raise UsageError(
            f"{part}: not every row has a {name}; give the task a deployment, or take uniform "
            f"weights."
        )
    found = np.bincount(at, weights=column, minlength=size) / np.bincount(at, minlength=size)
    if (found < 0).any() or not found.sum() > 0:
        raise UsageError(f"{part}: weights must be positive somewhere and negative nowhere.")
    return np.asarray(found / found.sum())


def _in_steps(
    score: Scorer, y: np.ndarray, hat: np.ndarray, cluster: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    step = max(1, _CELLS // len(y))
    parts = [
        score(y, hat, counts[start : start + step, cluster])
        for start in range(0, len(counts), step)
    ]
    return np.concatenate(parts)


def _ratio(top: np.ndarray, bottom: np.ndarray, otherwise: float) -> np.ndarray:
    whole = bottom > 1e-12 * np.max(np.abs(bottom), initial=1e-300)
    found = np.divide(top, bottom, out=np.full(top.shape, otherwise), where=whole)
    return np.asarray(found)


def _pearson(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return correlations; of what does not vary it is 0. ``x``, ``y``: ``(n,)`` or as ``w``."""
    total = w.sum(axis=1, keepdims=True)
    total[total == 0] = np.nan
    x = x - (w * x).sum(axis=1, keepdims=True) / total
    y = y - (w * y).sum(axis=1, keepdims=True) / total
    spread = np.sqrt((w * x * x).sum(axis=1) * (w * y * y).sum(axis=1))
    both = (w * x * y).sum(axis=1)
    found = np.where(np.isnan(both), np.nan, _ratio(both, np.nan_to_num(spread), 0.0))
    return np.asarray(np.clip(found, -1.0, 1.0))


def _ranks(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the middle rank of each value where each stands ``w`` times."""
    order = np.argsort(x, kind="stable")
    first = np.diff(x[order], prepend=np.nan) != 0  # NaN differs from all: the first value begins
    starts = np.flatnonzero(first)
    held = np.add.reduceat(w[:, order], starts, axis=1)
    code = np.empty(len(x), np.intp)
    code[order] = np.cumsum(first) - 1
    return np.asarray((np.cumsum(held, axis=1) - held + (held + 1) / 2)[:, code])


def _spearman(y: np.ndarray, hat: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _pearson(_ranks(y, w), _ranks(hat, w), w)


def _mean(values: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _ratio(w @ values, w.sum(axis=1), np.nan)


def _accuracy(y: np.ndarray, hat: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _mean((y == hat).astype(float), w)


def _rmse(y: np.ndarray, hat: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(_mean((hat - y) ** 2, w)))


def _mae(y: np.ndarray, hat: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _mean(np.abs(hat - y), w)


def _r2(y: np.ndarray, hat: np.ndarray, w: np.ndarray) -> np.ndarray:
    centred = y - y.mean()
    total = w @ centred**2 - _ratio((w @ centred) ** 2, w.sum(axis=1), np.nan)
    return 1 - _ratio(w @ (hat - y) ** 2, total, np.nan)


def _mcc(y: np.ndarray, hat: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return Matthews' correlation of any number of classes (Gorodkin, 2004); 0 if undefined."""
    names = np.union1d(y, hat)
    truth = w @ (y[:, None] == names).astype(float)
    said = w @ (hat[:, None] == names).astype(float)
    right, total = w @ (y == hat).astype(float), w.sum(axis=1)
    top = right * total - (truth * said).sum(axis=1)
    spread = (total**2 - (truth**2).sum(axis=1)) * (total**2 - (said**2).sum(axis=1))
    return _ratio(top, np.sqrt(np.clip(spread, 0, None)), 0.0)


SCORERS: dict[Metric, Scorer] = {
    "spearman": _spearman,
    "pearson": _pearson,
    "r2": _r2,
    "mcc": _mcc,
    "accuracy": _accuracy,
    "rmse": _rmse,
    "mae": _mae,
}

METRICS = tuple(SCORERS)

LOWER_IS_BETTER = frozenset({"rmse", "mae"})
