r"""AUROC and F1: how well a score tells two classes apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between
from equipoise.kit.statistics import resampling, single
from equipoise.kit.statistics.columns import (
    clusters_of,
    complete,
    enclosing,
    noted,
    rows_of,
)

Column = np.ndarray | Sequence[float]


def auroc(
    score: Column, label: Column, *, clusters: Column | None = None, level: float = 0.95
) -> Estimate:
    r"""Area under the ROC curve: the chance that a positive outranks a negative.

    Ties count half. The variance is DeLong's, with clusters Obuchowski's, and
    the interval is made on the logit scale. Where the classes do not overlap
    that variance is zero; the interval is then Newcombe's method 5, from the
    area's variance at each candidate value.

    Parameters
    ----------
    score
        The larger, the likelier label 1; shape ``(n,)``. Probabilities will do.
    label
        0 or 1.
    clusters
        Cluster of each row, where units are not independent.
    level
        Coverage the interval aims for.

    Raises
    ------
    UsageError
        If a class is absent.

    References
    ----------
    DeLong et al. 1988; Obuchowski 1997; Newcombe 2006.

    Examples
    --------
    >>> print(auroc([0.9, 0.8, 0.4, 0.6, 0.3, 0.1], [1, 1, 1, 0, 0, 0]))
    0.889 [0.261, 0.995]
    """
    x, y = _labelled("auroc", score, label)
    value, right, wrong = _placements(x, y)
    codes = np.arange(len(x)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    groups = int(codes.max()) + 1
    positives, negatives = len(right), len(wrong)
    counts = [len(np.unique(codes[y == each])) for each in (1, 0)]
    if min(counts) < 2:
        raise UsageError(
            f"auroc: an interval needs at least 2 {'clusters' if clusters is not None else 'units'}"
            f" of each label, got {counts[0]} and {counts[1]}."
        )
    # Obuchowski's sums of placements a cluster; DeLong's when each row is its own.
    of_right = np.bincount(codes[y == 1], weights=right - value, minlength=groups)
    of_wrong = np.bincount(codes[y == 0], weights=wrong - value, minlength=groups)
    s10 = counts[0] / ((counts[0] - 1) * positives) * float(of_right @ of_right)
    s01 = counts[1] / ((counts[1] - 1) * negatives) * float(of_wrong @ of_wrong)
    both = max(groups / (groups - 1), 1.0) / (positives * negatives) * float(of_right @ of_wrong)
    shared = 2 * both if clusters is not None else 0.0
    variance = max(s10 / positives + s01 / negatives + shared, 0.0)
    note, method = "", "delong" if clusters is None else "obuchowski"
    if 0 < value < 1 and variance > 0:
        middle = float(logit(value))
        reach = float(ndtri((1 + level) / 2)) * math.sqrt(variance) / (value * (1 - value))
        low, high = float(expit(middle - reach)), float(expit(middle + reach))
    else:
        low, high = _newcombe(value, counts[0], counts[1], level)
        method, note = "newcombe 5", "The classes do not overlap, or all scores are alike."
    return Estimate(
        value,
        low,
        high,
        level=level,
        n=len(x),
        clusters=None if clusters is None else groups,
        method=method,
        note=note,
        details={"se": math.sqrt(variance), "positives": positives, "negatives": negatives},
    )


def f1(
    predicted: Column,
    label: Column,
    *,
    clusters: Column | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""F1: harmonic mean of precision and recall of label 1, :math:`2TP/(2TP+FP+FN)`.

    Parameters
    ----------
    predicted, label
        Zeros and ones, shape ``(n,)``.
    clusters
        Cluster of each row, where units are not independent.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    Raises
    ------
    UsageError
        If label 1 neither occurs nor is predicted.

    Examples
    --------
    >>> f1([1, 1, 0, 0] * 10, [1, 0, 1, 0] * 10).value
    0.5
    """
    hat, y = np.asarray(predicted, float), np.asarray(label, float)
    if hat.shape != y.shape or hat.ndim != 1:
        raise UsageError(f"f1: give one label a row, got {y.shape} for {hat.shape}.")
    if not (np.isin(hat, (0, 1)).all() and np.isin(y, (0, 1)).all()):
        raise UsageError("f1: predictions and labels must be 0 or 1.")
    if not (hat.any() or y.any()):
        raise UsageError("f1: label 1 neither occurs nor is predicted, so F1 is undefined.")
    rng = Rng(0) if rng is None else rng
    found = resampling.bootstrap(
        _f1, (hat, y), clusters=clusters, level=level, draws=draws, rng=rng
    )
    if found.value in (0.0, 1.0):
        # Rows that F1 looks at all agree: Wilson's interval on them, one a cluster.
        counted = (hat == 1) | (y == 1)
        size = int(counted.sum())
        if clusters is not None:
            size = len(np.unique(np.asarray(clusters)[counted]))
        low, high = single.wilson(found.value * size, size, level)
        return Estimate(
            found.value, low, high, level=level, n=len(y), clusters=found.clusters,
            method="wilson", note="Every row with a 1 agrees: Wilson's interval on those rows.",
        )  # fmt: skip
    return enclosing(found)


def _f1(hat: np.ndarray, y: np.ndarray) -> float:
    marks = float(hat.sum() + y.sum())
    return 2 * float(hat @ y) / marks if marks else math.nan


def _labelled(part: str, score: Column, label: Column) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(score, float), np.asarray(label, float)
    if x.shape != y.shape or x.ndim != 1:
        raise UsageError(f"{part}: give one label a row, got {y.shape} for {x.shape}.")
    if not np.isfinite(x).all() or not np.isin(y, (0, 1)).all():
        raise UsageError(f"{part}: scores must be finite and labels 0 or 1.")
    if np.ptp(y) == 0:
        raise UsageError(f"{part}: all {len(y)} labels are {y[0]:g}; both must occur.")
    return x, y


def _placements(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the area, and each positive's and negative's share of rivals it is right with."""
    up, down = x[y == 1], x[y == 0]
    right = _share_below(np.sort(down), up)
    wrong = 1 - _share_below(np.sort(up), down)
    return float(right.mean()), right, wrong


def _share_below(ordered: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the share of ordered values below each x; equal ones count half."""
    below = np.searchsorted(ordered, x, "left") + np.searchsorted(ordered, x, "right")
    return np.asarray(below / (2 * len(ordered)))


def _newcombe(value: float, positives: int, negatives: int, level: float) -> tuple[float, float]:
    from scipy.optimize import brentq

    z, size = float(ndtri((1 + level) / 2)), (positives + negatives) / 2

    def spread(theta: float) -> float:
        shape = 2 * size - 1 - (3 * size - 3) / ((2 - theta) * (1 + theta))
        return z * math.sqrt(theta * (1 - theta) * shape / (positives * negatives))

    low, high = 0.0, 1.0
    if value > 0:
        low = float(brentq(lambda t: value - t - spread(t), 0.0, value - 1e-12))
    if value < 1:
        high = float(brentq(lambda t: t - value - spread(t), value + 1e-12, 1.0))
    return low, high


@dataclass(frozen=True)
class Auroc(Measure):
    """Area under the ROC curve, from the scores ``probability`` and ``label``.

    The plain function is `auroc`.

    Parameters
    ----------
    probability
        Score that is larger for likelier positives.
    label
        Score with the truth, 0 or 1.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(probability=[0.9, 0.8, 0.4, 0.6], label=[1, 1, 0, 0])
    >>> Auroc().statistic(outcomes)
    1.0
    """

    probability: str = "probability"
    label: str = "label"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 120 rows of two normal classes, a standard deviation apart."""
        generator = rng.numpy()
        y = (generator.random(120) < 0.4).astype(float)
        rows = rows_of({self.probability: generator.normal(y), self.label: y})
        return rows, float(ndtr(math.sqrt(0.5)))

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the area; ``rng`` is not used."""
        rows, note = complete("Auroc", outcomes, self.probability, self.label)
        found = auroc(
            rows.score(self.probability),
            rows.score(self.label),
            clusters=clusters_of(rows),
            level=self.level,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the area alone; NaN where a class is absent."""
        rows, _ = complete("Auroc", outcomes, self.probability, self.label)
        x, y = rows.score(self.probability), rows.score(self.label)
        return _placements(x, y)[0] if np.ptp(y) else math.nan


@dataclass(frozen=True)
class F1(Measure):
    """F1 of label 1, from the scores ``predicted`` and ``label``.

    The plain function is `f1`.

    Parameters
    ----------
    predicted, label
        Names of the scores, both zeros and ones.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> F1().statistic(Outcomes.of(predicted=[1, 1, 0, 0], label=[1, 0, 1, 0]))
    0.5
    """

    predicted: str = "predicted"
    label: str = "label"
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> F1:
        """Return few resamples."""
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 200 rows, 30 in 100 positive, of which 80 in 100 are called rightly."""
        generator = rng.numpy()
        y = (generator.random(200) < 0.3).astype(float)
        predicted = np.where(generator.random(200) < 0.8, y, 1 - y)
        rows = rows_of({self.predicted: predicted, self.label: y})
        return rows, 0.48 / (0.48 + 0.14 + 0.06)

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return F1 with its interval."""
        rows, note = complete("F1", outcomes, self.predicted, self.label)
        found = f1(
            rows.score(self.predicted),
            rows.score(self.label),
            clusters=clusters_of(rows),
            level=self.level,
            draws=self.draws,
            rng=rng,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return F1 alone; NaN where it is undefined."""
        rows, _ = complete("F1", outcomes, self.predicted, self.label)
        return _f1(rows.score(self.predicted), rows.score(self.label))
