"""One arm: proportion, mean and quantile, each with its interval."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.statistics._common import (
    Array,
    check_level,
    cluster_codes,
    column,
    critical,
    is_binary,
    join,
    size_note,
)
from equipoise.kit.statistics.robust import cluster_variance, reduce_rows, sampling


def wilson(successes: float, n: float, level: float = 0.95) -> tuple[float, float]:
    r"""Return Wilson's (1927) score interval of a proportion.

    It holds every $p$ with $|\hat p - p| \le z \sqrt{p(1-p)/n}$.

    Parameters
    ----------
    successes
        From 0 to ``n``; need not be whole.
    n
        Trials, above 0.
    level
        Coverage aimed for, in (0, 1).

    Raises
    ------
    UsageError
        If the numbers do not fit.

    Examples
    --------
    >>> low, high = wilson(8, 10)
    >>> f"{low:.4f} {high:.4f}"
    '0.4902 0.9433'
    """
    check_level(level, "wilson")
    if not (n > 0 and 0 <= successes <= n):
        raise UsageError(f"wilson: successes must be from 0 to n > 0, got {successes} of {n}.")
    z = critical(level)
    p = successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(middle - reach, 0.0)
    high = 1.0 if successes == n else min(middle + reach, 1.0)
    return low, high


def proportion(
    x: npt.ArrayLike, *, clusters: npt.ArrayLike | None = None, level: float = 0.95
) -> Estimate:
    r"""Estimate a proportion from zeros and ones.

    Independent rows give Wilson's interval. With clusters, the CR2 standard
    error and its degrees of freedom $\nu$ give an interval on the logit scale,
    $\mathrm{logit}\,\hat p \pm t_\nu\, s / (\hat p (1 - \hat p))$. Where clusters
    show no variance (all rows alike, or the same share in each), that would
    have no width; the interval is then Wilson's with clusters counted as the
    trials, as if each were one observation, and the note says so.

    Parameters
    ----------
    x
        Zeros and ones, shape ``(n,)``.
    clusters
        Label of each row's cluster; rows of one cluster may depend on each other.
    level
        Coverage aimed for, in (0, 1).

    Raises
    ------
    UsageError
        If ``x`` holds anything else, is empty, or there is one cluster only.

    Examples
    --------
    >>> print(proportion([1, 1, 1, 1, 1, 1, 1, 1, 0, 0]))
    0.800 [0.490, 0.943]
    """
    who = "proportion"
    check_level(level, who)
    x = column(x, who)
    if not is_binary(x):
        raise UsageError(f"{who}: x must hold zeros and ones only; use mean for other scores.")
    p = float(x.mean())
    if clusters is None:
        low, high = wilson(float(x.sum()), x.size, level)
        return Estimate(
            p, low, high, level, x.size, method="wilson", note=size_note(x.size),
            details={"se": math.sqrt(p * (1 - p) / x.size)},
        )  # fmt: skip
    group, count = cluster_codes(clusters, x.size, who)
    variance, df = cluster_variance(x, group, count)
    details = {"se": math.sqrt(variance), "df": df}
    warning = size_note(x.size, count)
    if variance <= 1e-24:
        low, high = wilson(p * count, count, level)
        note = join([warning, "Clusters do not differ: each was counted as one observation."])
        return Estimate(
            p, low, high, level, x.size, count, None, "wilson-clusters", None, note, details
        )
    reach = critical(level, df) * math.sqrt(variance) / (p * (1 - p))
    middle = math.log(p / (1 - p))
    low, high = (float(special.expit(middle + sign * reach)) for sign in (-1, 1))
    return Estimate(p, low, high, level, x.size, count, None, "cr2-logit", None, warning, details)


def mean(
    x: npt.ArrayLike,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """Estimate a mean.

    Independent units give Student's interval; clusters CR2 with Satterthwaite's
    degrees of freedom (Bell & McCaffrey 2002); several builds take build and
    unit (or cluster) as crossed random effects. `robust` has the equations.

    Parameters
    ----------
    x
        Scores, shape ``(n,)``.
    units
        Unit of each row; repeats are averaged within units (and builds) first.
    clusters
        Cluster of each row; a cluster holds whole units.
    builds
        Build of each row. Without ``units``, row k of every build is taken for
        the same unit. A single build counts as none.
    level
        Coverage aimed for, in (0, 1).

    Returns
    -------
    Estimate
        ``details`` has ``se``, ``df`` and, with builds, ``share_builds``,
        ``share_units`` and ``share_residual`` of the variance of the mean.

    Raises
    ------
    UsageError
        On NaN, an empty column, one unit, one cluster or columns that do not fit.

    Examples
    --------
    >>> print(mean([1, 2, 3, 4]))
    2.500 [0.446, 4.554]
    >>> print(mean([1, 1, 3, 3], clusters=["a", "a", "b", "b"]))
    2.000 [-10.706, 14.706]
    """
    check_level(level, "mean")
    rows = reduce_rows(column(x, "mean"), "mean", units=units, clusters=clusters, builds=builds)
    return sampling(rows, "mean").estimate(level)


def quantile(
    x: npt.ArrayLike,
    q: float,
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
    rng: Rng | None = None,
    draws: int = 2000,
) -> Estimate:
    r"""Estimate a quantile.

    Independent units: the order statistics $x_{(l)}, x_{(u)}$ with
    $P(B < l) \le \alpha/2$ and $P(B \ge u) \le \alpha/2$ for
    $B \sim \mathrm{Binomial}(n, q)$, valid for every continuous law. Too few
    units for that leave an end infinite, and the note says so. With clusters:
    percentile bootstrap over whole clusters.

    Parameters
    ----------
    x
        Values, shape ``(n,)``.
    q
        Which quantile, in (0, 1).
    clusters
        Cluster of each row.
    level
        Coverage aimed for, in (0, 1).
    rng
        Stream for the bootstrap; needed with clusters.
    draws
        Bootstrap resamples.

    Raises
    ------
    UsageError
        On NaN, an empty column, one cluster, or clusters without ``rng``.

    Examples
    --------
    >>> print(quantile(range(1, 101), 0.5))
    50.500 [40.000, 61.000]
    """
    who = "quantile"
    check_level(level, who)
    x = column(x, who)
    if not 0 < q < 1:
        raise UsageError(f"{who}: q must be between 0 and 1, got {q}.")
    if clusters is not None:
        from equipoise.kit.statistics.resampling import bootstrap

        if rng is None:
            raise UsageError(f"{who}: clusters need rng, the stream the bootstrap draws from.")

        def statistic(values: Array) -> float:
            return float(np.quantile(values, q))

        return bootstrap(
            statistic, (x,), clusters=clusters, level=level, draws=draws, rng=rng,
            method="percentile",
        )  # fmt: skip
    ordered = np.sort(x)
    tail = (1 - level) / 2
    below = special.bdtr(np.arange(x.size), x.size, q)  # P(B <= k)
    lower = int(np.searchsorted(below, tail, side="right"))
    upper = int(np.searchsorted(below, 1 - tail, side="left"))
    low = float(ordered[lower - 1]) if lower > 0 else -math.inf
    high = float(ordered[upper]) if upper < x.size else math.inf
    open_end = math.isinf(low) or math.isinf(high)
    note = "Too few units to close the interval at this level." if open_end else ""
    return Estimate(
        float(np.quantile(x, q)), low, high, level, x.size, method="order-statistic",
        note=join([size_note(x.size), note]),
    )  # fmt: skip
