r"""Size of intervals and sets: what coverage costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    ScoreSpec,
    Series,
    UsageError,
    between,
    one_of,
)
from equipoise.kit.statistics import bonferroni_level, single
from equipoise.kit.statistics.columns import clusters_of, complete, noted
from equipoise.methods.conformal._columns import share_outcomes

__all__ = ["IntervalSize", "SetSizes", "interval_size", "set_sizes"]

Column = np.ndarray | Sequence[float]

_MOST_INFINITE = 0.01  # of widths, as of pairs that a verdict may lose


def interval_size(
    width: Column,
    *,
    which: Literal["mean", "median"] = "mean",
    units: Column | None = None,
    clusters: Column | None = None,
    level: float = 0.95,
    rng: Rng | None = None,
) -> Estimate:
    r"""Mean or median width of intervals.

    Infinite widths have no mean. Up to one in a hundred are left out of it, and the note counts
    them; more are refused, so that no one looks narrow who is often infinite. The median takes
    them for the largest, and is refused where half of them are.

    Parameters
    ----------
    width
        ``(n,)``, not negative; may be infinite.
    which
        ``mean`` or ``median``.
    units, clusters
        Unit and cluster of each row, where rows are not independent.
    level
        Coverage the interval aims for.
    rng
        Stream of the bootstrap of a median with clusters; ``Rng(0)`` if absent.

    Raises
    ------
    UsageError
        If too many widths are infinite, or there are none.

    Examples
    --------
    >>> print(interval_size([2.0, 3.0, 4.0]))
    3.000 [0.516, 5.484]
    >>> interval_size([2.0, 3.0, 4.0, np.inf], which="median").value
    3.5
    """
    w = np.asarray(width, float)
    endless = np.isinf(w)
    count = int(endless.sum())
    note = f"{count:,} of {len(w):,} intervals are infinite" if count else ""
    _refuse(w, which)
    if which == "median":
        # Any number above all finite ones keeps every order statistic in its place.
        highest = float(w[~endless].max())
        ranked = np.where(endless, 2 * highest + 1, w)
        groups = clusters if clusters is not None or units is None else units
        found = single.quantile(ranked, 0.5, clusters=groups, level=level, rng=rng or Rng(0))
        high = math.inf if found.high > highest else found.high
        return noted(replace(found, high=high), note and f"{note} and count as the largest.")
    kept = ~endless
    found = single.mean(
        w[kept],
        units=None if units is None else np.asarray(units)[kept],
        clusters=None if clusters is None else np.asarray(clusters)[kept],
        level=level,
    )
    return noted(found, note and f"{note} and left out.")


def set_sizes(
    sizes: Column, *, clusters: Column | None = None, level: float = 0.95
) -> dict[int, Estimate]:
    """Share of sets of each size, with intervals that hold together (Bonferroni).

    Parameters
    ----------
    sizes
        Labels in each set, ``(n,)``, whole numbers from 0.
    clusters
        Cluster of each row, where rows are not independent.
    level
        Coverage that all intervals together aim for.

    Returns
    -------
    dict
        Estimates by size, from 0 to the largest met.

    Raises
    ------
    UsageError
        If a size is not a whole number from 0.

    Examples
    --------
    >>> {size: found.value for size, found in set_sizes([1, 1, 1, 3]).items()}
    {0: 0.0, 1: 0.75, 2: 0.0, 3: 0.25}
    """
    x = np.asarray(sizes, float)
    if not len(x) or (x < 0).any() or not (x == np.floor(x)).all() or np.isinf(x).any():
        raise UsageError("set_sizes: sizes must be whole numbers from 0, and at least one.")
    most = int(x.max())
    each = bonferroni_level(level, most + 1)
    return {
        size: single.proportion((x == size).astype(float), clusters=clusters, level=each)
        for size in range(most + 1)
    }


@dataclass(frozen=True)
class IntervalSize(Measure):
    """Mean or median width of intervals; says how many are infinite.

    Parameters
    ----------
    which
        ``mean``, which more than one infinite width in a hundred is refused; or ``median``, for
        which infinite ones are the largest.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> rows = Outcomes.of(width=[2.0, 3.0, 4.0, np.nan], unbounded=[0, 0, 0, 1])
    >>> IntervalSize("median").measure(rows, Rng(0)).value
    3.5
    """

    which: Literal["mean", "median"] = one_of("mean", "median", default="mean")
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better = False

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 120 widths around 5."""
        width = 5 + rng.numpy().normal(size=120)
        specs = [
            ScoreSpec("width", higher_is_better=False, low=0.0),
            ScoreSpec("unbounded", higher_is_better=False, low=0.0, high=1.0),
        ]
        return Outcomes.of(specs=specs, width=width, unbounded=np.zeros(120)), 5.0

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the size; ``rng`` serves the median with clusters."""
        rows, note = complete("IntervalSize", _widths(outcomes), "width")
        repeated = len(np.unique(rows.unit)) < len(rows)
        found = interval_size(
            rows.score("width"), which=self.which, units=rows.unit if repeated else None,
            clusters=rows.cluster, level=self.level, rng=rng,
        )  # fmt: skip
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the size alone."""
        width = _widths(outcomes).score("width")
        width = width[~np.isnan(width)]
        _refuse(width, self.which)
        found = np.median(width) if self.which == "median" else np.mean(width[np.isfinite(width)])
        return float(found)


@dataclass(frozen=True)
class SetSizes(Measure):
    """Share of sets of each size, with intervals that hold together.

    Parameters
    ----------
    level
        Coverage that all intervals together aim for.

    Examples
    --------
    >>> found = SetSizes().measure(Outcomes.of(set_size=[1, 1, 1, 3]), Rng(0))
    >>> {size: each.value for size, each in found.items()}
    {'0': 0.0, '1': 0.75, '2': 0.0, '3': 0.25}
    """

    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better = None

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 150 sets of one to three labels."""
        sizes = rng.numpy().choice([1.0, 2.0, 3.0], p=[0.6, 0.3, 0.1], size=150)
        return share_outcomes({"set_size": sizes}), {"1": 0.6, "2": 0.3, "3": 0.1}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return one estimate for each size; ``rng`` is not used."""
        return {str(size): found for size, found in self._sizes(outcomes).items()}

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the share of sets of each size, an arm's bars beside another's."""
        series = []
        for arm, rows in outcomes.items():
            found = self._sizes(rows)
            shares = list(found.values())
            series.append(
                Series(
                    arm, list(found), [e.value for e in shares], [e.low for e in shares],
                    [e.high for e in shares], look="bars",
                )
            )  # fmt: skip
        return Figure(
            "Set sizes",
            "labels in the set",
            "share of rows",
            series,
            f"Whiskers are intervals that hold together at {self.level:g}.",
        )

    def _sizes(self, outcomes: Outcomes) -> dict[int, Estimate]:
        rows, note = complete("SetSizes", outcomes, "set_size")
        found = set_sizes(rows.score("set_size"), clusters=clusters_of(rows), level=self.level)
        return {size: noted(each, note) for size, each in found.items()}


def _widths(outcomes: Outcomes) -> Outcomes:
    """Return the outcomes with infinite widths said as such, not left out."""
    width = outcomes.score("width")
    if "unbounded" in outcomes.scores:
        width = np.where(outcomes.score("unbounded") == 1, np.inf, width)
    return replace(outcomes, scores={**outcomes.scores, "width": width})


def _refuse(width: np.ndarray, which: str) -> None:
    if not len(width):
        raise UsageError("interval_size: there are no widths.")
    count = int(np.isinf(width).sum())
    half = 2 * count >= len(width)
    if half or (which == "mean" and count > _MOST_INFINITE * len(width)):
        other = ", or take the median" if which == "mean" and not half else ""
        raise UsageError(
            f"interval_size: {count:,} of {len(width):,} intervals are infinite, so there is no "
            f"{which} width; calibrate on more rows{other}."
        )
