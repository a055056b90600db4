r"""The sampling variance of a mean: independent units, clusters, and builds crossed with units.

**Clusters.** CR2 of Bell & McCaffrey (2002) for the model with an intercept only, where its
square roots of matrices have a closed form. With $N$ rows, of which a share $w_g$ is in
cluster $g$ with residual sum $S_g$,

.. math::
    V = \frac{1}{N^2} \sum_g \frac{S_g^2}{1 - w_g}, \qquad
    \frac{1}{\nu} = \sum_g w_g^2 + \sum_{g \ne h} c_g c_h, \quad c_g = \frac{w_g^2}{1 - w_g}.

With equal sizes these are the variance of the mean of cluster means and $G - 1$.

**Builds and units.** $y_{bu} = \mu + \beta_b + \upsilon_u + \varepsilon_{bu}$, everything random.
$V = V_\beta + V_\upsilon - V_\varepsilon$, with the first two CR2 over builds and over units (or
their clusters) and the last from what an additive fit leaves; balanced, this is the variance from
the two-way table of mean squares. Few builds make Satterthwaite's degrees of freedom too large
(he assumes the estimates they are computed from), so the critical value is that of Cochran & Cox
(1957): the two sources' own t quantiles, weighted by their variances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics._common import (
    Array,
    Codes,
    bisect,
    cluster_codes,
    codes,
    column,
    critical,
    group_sums,
    join,
    size_note,
    two_sided,
)


@dataclass(frozen=True, slots=True)
class CrossedVariance:
    """Variance components of a build × unit table.

    Parameters
    ----------
    mean
        Mean of the cells.
    builds, units, residual
        Variance between builds, between units (or clusters of them) and of
        what is left, per cell; never below zero.
    variance
        Sampling variance of the mean.
    share_builds, share_units, share_residual
        What part of that variance each source brings; they sum to 1.
    """

    mean: float
    builds: float
    units: float
    residual: float
    variance: float
    share_builds: float
    share_units: float
    share_residual: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """A mean, its variance and the t laws that go with it, each with its weight."""

    value: float
    variance: float
    laws: tuple[tuple[float, float], ...]
    n: int
    clusters: int | None
    builds: int | None
    method: str
    crossed: CrossedVariance | None = None

    @property
    def se(self) -> float:
        return math.sqrt(self.variance)

    def multiplier(self, level: float) -> float:
        """Return how many standard errors the interval reaches to each side."""
        total = sum(weight for weight, _ in self.laws)
        return sum(weight * critical(level, df) for weight, df in self.laws) / total

    def p_value(self) -> float:
        """Return the two-sided p-value against zero that fits the interval."""
        if self.variance == 0:
            return 1.0 if self.value == 0 else 0.0
        t = abs(self.value) / self.se
        if len(self.laws) == 1:
            return two_sided(t, self.laws[0][1])
        # The level whose interval ends at zero; bisected on log p, where it is smooth.
        bound = [two_sided(t, df) for _, df in self.laws]
        low, high = math.log(max(min(bound), 1e-300)), math.log(max(max(bound), 1e-300))
        return math.exp(bisect(lambda x: self.multiplier(-math.expm1(x)) - t, low, high))

    def df(self, level: float) -> float:
        """Return the degrees of freedom of the one t law with the same multiplier."""
        found = [df for _, df in self.laws]
        low, high = min(found), max(found)
        if low == high:
            return low
        reach = self.multiplier(level)
        return math.exp(
            bisect(lambda x: critical(level, math.exp(x)) - reach, math.log(low), math.log(high))
        )

    def estimate(self, level: float, p_value: float | None = None, note: str = "") -> Estimate:
        reach = self.multiplier(level) * self.se
        details = {"se": self.se, "df": self.df(level)}
        if self.crossed is not None:
            details |= {
                "share_builds": self.crossed.share_builds,
                "share_units": self.crossed.share_units,
                "share_residual": self.crossed.share_residual,
            }
        flat = "All values are equal, so the interval has no width." if reach == 0 else ""
        return Estimate(
            self.value,
            self.value - reach,
            self.value + reach,
            level,
            self.n,
            self.clusters,
            self.builds,
            self.method,
            p_value,
            join([size_note(self.n, self.clusters), flat, note]),
            details,
        )


def cluster_variance(x: Array, groups: Codes, count: int) -> tuple[float, float]:
    """Return the CR2 variance of the mean of ``x`` and its degrees of freedom."""
    sums = group_sums(x - x.mean(), groups, count)
    return _cr2(sums, _counts(groups, count))


def _counts(groups: Codes, count: int) -> Array:
    return np.bincount(groups, minlength=count).astype(np.float64)


def _cr2(sums: Array, sizes: Array) -> tuple[float, float]:
    total = float(sizes.sum())
    w = sizes / total
    variance = float((sums**2 / (1 - w)).sum()) / total**2
    c = w**2 / (1 - w)
    df = 1 / float((w**2).sum() + c.sum() ** 2 - (c**2).sum())
    return variance, df


@dataclass(frozen=True, slots=True)
class Rows:
    """Values after repeats were averaged: one a unit, or one a unit and build."""

    x: Array
    unit: Codes
    units: int
    cluster: Codes | None
    clusters: int | None
    build: Codes | None
    builds: int | None


def reduce_rows(
    x: Array,
    who: str,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
) -> Rows:
    """Average repeats within units (and builds) and check that clusters hold whole units."""
    rows = x.size
    group, groups = (None, None) if clusters is None else cluster_codes(clusters, rows, who)
    build, count = (None, None) if builds is None else codes(builds, rows, who, "builds")
    if count == 1:  # one build is no sample of builds: the interval is about that build
        build, count = None, None
    if units is not None:
        unit, distinct = codes(units, rows, who, "units")
    elif build is not None and count is not None:
        unit, distinct = _positions(build, count, who)
    else:
        return Rows(x, np.arange(rows), rows, group, groups, None, None)
    cell = unit if build is None or count is None else unit * count + build
    _, first, inverse, times = np.unique(
        cell, return_index=True, return_inverse=True, return_counts=True
    )
    averaged = group_sums(x, inverse, times.size) / times
    if group is not None:
        home = np.empty(distinct, dtype=np.intp)
        home[unit] = group
        if (home[unit] != group).any():
            raise UsageError(f"{who}: a unit is in two clusters; a cluster must hold whole units.")
        group = group[first]
    return Rows(
        averaged,
        unit[first],
        distinct,
        group,
        groups,
        None if build is None else build[first],
        count,
    )


def _positions(build: Codes, count: int, who: str) -> tuple[Codes, int]:
    """Take row k of each build for the same unit, where all builds are equally long."""
    sizes = np.bincount(build, minlength=count)
    if (sizes != sizes[0]).any():
        raise UsageError(
            f"{who}: builds have different numbers of rows; give units, the unit of each row."
        )
    order = np.argsort(build, kind="stable")
    position = np.empty(build.size, dtype=np.intp)
    position[order] = np.tile(np.arange(sizes[0]), count)
    return position, int(sizes[0])


def sampling(rows: Rows, who: str) -> Sampling:
    """Return the mean of reduced rows with its variance, by the design they come from."""
    if rows.units < 2:
        raise UsageError(f"{who}: one unit gives no interval; at least two are needed.")
    x = rows.x
    if rows.build is not None and rows.builds is not None:
        if rows.cluster is not None and rows.clusters is not None:
            return _two_way(x, rows.cluster, rows.clusters, rows.build, rows.builds, rows)
        return _two_way(x, rows.unit, rows.units, rows.build, rows.builds, rows)
    if rows.cluster is not None and rows.clusters is not None:
        variance, df = cluster_variance(x, rows.cluster, rows.clusters)
        variance = _cleared(variance, x)
        return Sampling(float(x.mean()), variance, ((1.0, df),), x.size, rows.clusters, None, "cr2")
    variance = _cleared(float(x.var(ddof=1)) / x.size, x)
    return Sampling(float(x.mean()), variance, ((1.0, x.size - 1.0),), x.size, None, None, "t")


def _cleared(variance: float, x: Array) -> float:
    """Return zero for a variance that is rounding error alone."""
    return variance if variance > (1e-14 * float(np.abs(x).max())) ** 2 else 0.0


def _two_way(
    x: Array, group: Codes, groups: int, build: Codes, builds: int, rows: Rows
) -> Sampling:
    cell = group * builds + build
    centre = float(x.mean())
    weight = _counts(cell, groups * builds).reshape(groups, builds)
    total = group_sums(x - centre, cell, groups * builds).reshape(groups, builds)
    size = float(weight.sum())
    v_build, df_build = _cr2(total.sum(axis=0), weight.sum(axis=0))
    v_group, df_group = _cr2(total.sum(axis=1), weight.sum(axis=1))
    beyond = _interaction(weight, total)
    v_rest = min(v_build, v_group) if beyond is None else _cleared(beyond, x)
    # Whatever the table's chance, no source may count for less than it shows alone.
    variance = _cleared(max(v_build + v_group - v_rest, v_build, v_group), x)
    if variance == 0:
        v_build = v_group = v_rest = 0.0
    from_builds, from_groups = max(v_build - v_rest, 0.0), max(v_group - v_rest, 0.0)
    whole = from_builds + from_groups + v_rest or 1.0
    per_build = float(((weight.sum(axis=0) / size) ** 2).sum())  # 1 / builds when balanced
    per_group = float(((weight.sum(axis=1) / size) ** 2).sum())
    crossed = CrossedVariance(
        centre,
        from_builds / per_build,
        from_groups / per_group,
        v_rest * size,
        variance,
        from_builds / whole,
        from_groups / whole,
        v_rest / whole,
    )
    laws = ((v_build, df_build), (v_group, df_group))
    if v_build + v_group == 0:
        laws = ((1.0, df_build), (1.0, df_group))
    return Sampling(centre, variance, laws, rows.units, rows.clusters, builds, "two-way", crossed)


def _interaction(weight: Array, total: Array) -> float | None:
    """Return the variance that cells bring beyond an additive fit of builds and units."""
    per_group = weight.sum(axis=1, keepdims=True)
    per_build = weight.sum(axis=0)
    share = weight / per_group
    normal = np.diag(per_build) - weight.T @ share  # least squares, units swept out
    right = total.sum(axis=0) - share.T @ total.sum(axis=1)
    solved = np.linalg.lstsq(normal, right, rcond=1e-10)
    effect: Array = solved[0]
    cells = int((weight > 0).sum())
    df = cells - weight.shape[0] - int(solved[2])
    if df <= 0:  # units nested in builds: nothing crosses
        return None
    fitted = (total.sum(axis=1, keepdims=True) / per_group) + effect - share @ effect[:, None]
    left = total - weight * fitted
    return float((left**2).sum() / weight.sum() ** 2 * cells / df)


def crossed_variance(
    values: npt.ArrayLike, units: npt.ArrayLike, builds: npt.ArrayLike
) -> CrossedVariance:
    r"""Split the variance of a build × unit table into its sources, by the method of moments.

    With a full table of $B$ builds and $U$ units and mean squares $M$,
    $\sigma^2_\beta = (M_\beta - M_\varepsilon)/U$ and
    $\sigma^2_\upsilon = (M_\upsilon - M_\varepsilon)/B$; a table with gaps uses
    the cluster-robust counterparts.

    Parameters
    ----------
    values, units, builds
        Value, unit and build of each row, shape ``(n,)``. Rows of the same
        unit and build are averaged first.

    Raises
    ------
    UsageError
        With fewer than two builds or units, NaN or columns of different lengths.

    Examples
    --------
    >>> found = crossed_variance([0, 1, 2, 3], ["a", "b", "a", "b"], [0, 0, 1, 1])
    >>> found.builds, found.units, found.residual
    (2.0, 0.5, 0.0)
    """
    who = "crossed_variance"
    rows = reduce_rows(column(values, who, "values"), who, units=units, builds=builds)
    if rows.builds is None:
        raise UsageError(f"{who}: one build shows no variance between builds; give two or more.")
    found = sampling(rows, who).crossed
    assert found is not None
    return found
