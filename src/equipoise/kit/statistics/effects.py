"""Two arms: paired and unpaired differences."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.statistics._common import (
    bisect,
    check_draws,
    check_level,
    cluster_codes,
    codes,
    column,
    critical,
    group_sums,
    is_binary,
    join,
    same_length,
    size_note,
    two_sided,
)
from equipoise.kit.statistics.permutation import mcnemar, sign_flip
from equipoise.kit.statistics.robust import reduce_rows, sampling
from equipoise.kit.statistics.single import wilson


def paired_difference(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
    rng: Rng | None = None,
    draws: int = 10_000,
) -> Estimate:
    r"""Estimate the mean of ``a - b``, rows paired by position.

    ============================  ==============================  ====================
    design                        interval                        p-value
    ============================  ==============================  ====================
    zeros and ones, a row a unit  Tango's (1998) score interval   exact McNemar
    independent units             t on unit differences           sign flips of units
    clusters                      CR2, Satterthwaite              sign flips of clusters
    builds                        two-way                         two-way t
    ============================  ==============================  ====================

    Tango's interval agrees with t when many pairs differ and stays honest when
    few do, where t would have next to no width.

    Parameters
    ----------
    a, b
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
    rng
        Stream for the sign flips; ``Rng(0)`` when None.
    draws
        Sign patterns drawn where there are too many to enumerate.

    Returns
    -------
    Estimate
        ``details`` has ``se`` and ``df``, and with builds the shares that
        `mean` gives.

    Raises
    ------
    UsageError
        On NaN, empty columns, columns that do not fit, one unit or one cluster.

    Examples
    --------
    >>> found = paired_difference([3.0, 5.0, 4.0, 6.0], [2.0, 3.0, 3.0, 4.0])
    >>> print(found, found.p_value)
    1.500 [0.581, 2.419] 0.125
    """
    who = "paired_difference"
    check_level(level, who)
    check_draws(draws, who)
    a, b = column(a, who, "a"), column(b, who, "b")
    same_length(who, a=a, b=b)
    rows = reduce_rows(a - b, who, units=units, clusters=clusters, builds=builds)
    found = sampling(rows, who)
    binary = is_binary(a, b)
    plain = rows.cluster is None and rows.build is None
    if binary and plain and rows.x.size == a.size:
        p_value = mcnemar(a, b)
    elif rows.build is not None and found.variance > 0:
        p_value = found.p_value()
    else:
        group = rows.cluster if rows.cluster is not None else rows.unit
        p_value = sign_flip(
            rows.x, clusters=None if plain else group, rng=rng or Rng(0), draws=draws
        )
    estimate = found.estimate(level, p_value)
    if not binary or not (found.variance == 0 or (plain and rows.x.size == a.size)):
        return estimate
    independent = found.clusters or found.n
    wins, losses = (float(each.mean()) * independent for each in (a > b, a < b))
    low, high = _tango(wins, losses, independent, level)
    note = estimate.note
    if not plain or rows.x.size < a.size:
        each = "cluster" if found.clusters else "unit"
        note = join([size_note(found.n, found.clusters), f"Each {each} counted as one pair."])
    elif found.variance == 0:
        note = size_note(found.n)
    return Estimate(
        found.value, low, high, level, found.n, found.clusters, found.builds, "tango", p_value,
        note, estimate.details,
    )  # fmt: skip


def _tango(wins: float, losses: float, n: int, level: float) -> tuple[float, float]:
    r"""Return Tango's score interval of a paired difference of proportions.

    Every $\delta$ with $|b - c - n\delta| \le z \sqrt{n (2 q + \delta (1 - \delta))}$,
    where $q$ is the likeliest share of losses given $\delta$.
    """
    z = critical(level)

    def score(delta: float) -> float:
        linear = -wins - losses + (2 * n - wins + losses) * delta
        constant = -losses * delta * (1 - delta)
        q = (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
        spread = n * (2 * q + delta * (1 - delta))
        gap = wins - losses - n * delta
        if spread <= 0:
            return math.copysign(math.inf, gap) if gap else 0.0
        return gap / math.sqrt(spread)

    value = (wins - losses) / n
    low = -1.0 if losses == n else bisect(lambda x: score(x) - z, -1.0, value)
    high = 1.0 if wins == n else bisect(lambda x: score(x) + z, value, 1.0)
    return low, high


def macro_mean(
    d: npt.ArrayLike,
    strata: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Estimate the mean over strata of the means of ``d``: each stratum counts once.

    The strata (the tasks of a benchmark) are fixed, the units of each a sample.
    With $T$ strata of $n_t$ rows, of which $n_{gt}$ are in cluster $g$ with residual
    sum $S_{gt}$ about the stratum's mean,

    .. math::
        V = \sum_g \Bigl( \sum_t \frac{S_{gt}}{T n_t \sqrt{1 - r_{gt}}} \Bigr)^2,
        \qquad r_{gt} = \frac{n_{gt}}{n_t},

    which is CR2 of Bell & McCaffrey (2002) for a model with one mean a stratum, and
    Satterthwaite's degrees of freedom under independent rows,

    .. math::
        \frac{1}{\nu} = \Bigl(\sum_t \frac{1}{T^2 n_t}\Bigr)^{-2} \Bigl( \sum_g \Bigl(
        \sum_t \frac{n_{gt}}{T^2 n_t^2} \Bigr)^2 + \sum_{g \ne h} \Bigl( \sum_t
        u_{gt} u_{ht} \Bigr)^2 \Bigr), \qquad
        u_{gt} = \frac{n_{gt}}{T n_t^{3/2} \sqrt{1 - r_{gt}}}.

    A cluster may reach over several strata.

    Parameters
    ----------
    d
        A value a unit, such as a paired difference, shape ``(n,)``.
    strata
        Stratum of each row.
    clusters
        Cluster of each row; None takes every row for one.
    level
        Coverage aimed for, in (0, 1).

    Returns
    -------
    Estimate
        With the t test that fits the interval, and ``se`` and ``df`` in ``details``.

    Raises
    ------
    UsageError
        On NaN, columns that do not fit, or a stratum of one row or one cluster.

    Examples
    --------
    >>> print(macro_mean([1.0, 3.0, 5.0, 6.0, 7.0], ["a", "a", "b", "b", "b"]))
    4.000 [1.781, 6.219]
    """
    from scipy.sparse import csr_array

    who = "macro_mean"
    check_level(level, who)
    x = column(d, who, "d")
    stratum, count = codes(strata, x.size, who, "strata")
    group, groups = (
        (np.arange(x.size), x.size) if clusters is None else cluster_codes(clusters, x.size, who)
    )
    sizes = np.bincount(stratum, minlength=count).astype(np.float64)
    means = group_sums(x, stratum, count) / sizes
    # A pair is a cluster's part of a stratum.
    pairs, place = np.unique(stratum * groups + group, return_inverse=True)
    t, g = np.divmod(pairs, groups)
    held = np.bincount(place).astype(np.float64)
    left = 1 - held / sizes[t]
    if (left <= 0).any():
        raise UsageError(
            f"{who}: a stratum has one {'row' if clusters is None else 'cluster'}, which shows no"
            " variation; leave it out."
        )
    sums = group_sums((x - means[stratum]), place, pairs.size)
    weight = 1 / (count * sizes[t] * np.sqrt(left))
    scores = group_sums(sums * weight, g, groups)
    variance = float((scores**2).sum())
    if variance <= (1e-14 * float(np.abs(x).max())) ** 2:
        variance = 0.0
    own = group_sums(held / (count * sizes[t]) ** 2, g, groups)
    u = held * weight / np.sqrt(sizes[t])
    # The clusters' Gram matrix has the norm of the strata's, which is small.
    spread = csr_array((u, (g, t)), shape=(groups, count))
    norm = float(((spread.T @ spread).data ** 2).sum())
    cross = norm - float((group_sums(u**2, g, groups) ** 2).sum())
    df = float(own.sum()) ** 2 / (float((own**2).sum()) + cross)
    se, value = math.sqrt(variance), float(means.mean())
    reach = critical(level, df) * se
    p_value = two_sided(value / se, df) if se else float(value == 0)
    independent = int(np.unique(group).size)
    flat = "" if se else "All values of a stratum are equal, so the interval has no width."
    return Estimate(
        value, value - reach, value + reach, level, x.size,
        None if clusters is None else independent, None, "cr2 of strata", p_value,
        join([size_note(x.size, None if clusters is None else independent), flat]),
        {"se": se, "df": df},
    )  # fmt: skip


def unpaired_difference(a: npt.ArrayLike, b: npt.ArrayLike, *, level: float = 0.95) -> Estimate:
    r"""Estimate mean of ``a`` minus mean of ``b`` for independent samples.

    Zeros and ones: Newcombe's (1998) interval from the two Wilson intervals
    $(l, u)$, $d - \sqrt{(\hat p_a - l_a)^2 + (u_b - \hat p_b)^2}$ and likewise
    upwards, with Fisher's exact p-value. Otherwise Welch's interval and test.

    Parameters
    ----------
    a, b
        Two samples; their sizes may differ.
    level
        Coverage aimed for, in (0, 1).

    Raises
    ------
    UsageError
        On NaN, an empty sample, or one value where a variance is needed.

    Examples
    --------
    >>> print(unpaired_difference([1] * 8 + [0] * 2, [1] * 5 + [0] * 5))
    0.300 [-0.107, 0.600]
    """
    who = "unpaired_difference"
    check_level(level, who)
    a, b = column(a, who, "a"), column(b, who, "b")
    value, n = float(a.mean() - b.mean()), a.size + b.size
    note = size_note(min(a.size, b.size))
    if is_binary(a, b):
        from scipy.stats import fisher_exact

        yes_a, yes_b = int(a.sum()), int(b.sum())
        p, q = float(a.mean()), float(b.mean())
        low_a, high_a = wilson(yes_a, a.size, level)
        low_b, high_b = wilson(yes_b, b.size, level)
        p_value = float(
            fisher_exact(np.array([[yes_a, a.size - yes_a], [yes_b, b.size - yes_b]]))[1]
        )
        return Estimate(
            value, value - math.hypot(p - low_a, high_b - q),
            value + math.hypot(high_a - p, q - low_b), level, n,
            method="newcombe", p_value=p_value, note=note,
            details={"se": math.sqrt(p * (1 - p) / a.size + q * (1 - q) / b.size)},
        )  # fmt: skip
    if min(a.size, b.size) < 2:
        raise UsageError(f"{who}: one value gives no variance; each sample needs at least two.")
    of_a, of_b = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    se = math.sqrt(of_a + of_b)
    if se == 0:
        note = join([note, "All values are equal, so the interval has no width."])
        return Estimate(
            value, value, value, level, n, method="welch", note=note,
            p_value=1.0 if value == 0 else 0.0, details={"se": 0.0},
        )  # fmt: skip
    df = (of_a + of_b) ** 2 / (of_a**2 / (a.size - 1) + of_b**2 / (b.size - 1))
    reach = critical(level, df) * se
    return Estimate(
        value, value - reach, value + reach, level, n, method="welch",
        p_value=two_sided(value / se, df), note=note, details={"se": se, "df": df},
    )  # fmt: skip
