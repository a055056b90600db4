"""Two arms on a relative scale: ratios of means and log odds ratios, rows paired."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.statistics._common import (
    check_draws,
    check_level,
    cluster_codes,
    column,
    group_sums,
    is_binary,
    join,
    same_length,
    size_note,
)
from equipoise.kit.statistics.permutation import mcnemar, sign_flip
from equipoise.kit.statistics.resampling import resampled_sums
from equipoise.kit.statistics.robust import reduce_rows, sampling


def ratio(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
    rng: Rng | None = None,
    draws: int = 10_000,
) -> Estimate:
    r"""Estimate the ratio of the mean of ``a`` to the mean of ``b``, rows paired.

    Studentised bootstrap of $\log(\bar a / \bar b)$ over units or whole
    clusters, with the standard error $s^2 = \frac{G}{G - 1} \sum_g
    (A_g / \sum A - B_g / \sum B)^2$ from sums $A_g, B_g$ in each. The p-value,
    against a ratio of 1, is that of sign flips of ``a - b``: arms swap within pairs.

    Parameters
    ----------
    a, b
        Scores whose means are above zero, shape ``(n,)``.
    clusters
        Cluster of each row; give units here when rows repeat them.
    level
        Coverage aimed for, in (0, 1).
    rng
        Stream for resamples and flips; ``Rng(0)`` when None.
    draws
        Bootstrap resamples and sign patterns, at least 100.

    Returns
    -------
    Estimate
        ``details`` has ``se`` and ``value`` on the log scale (``log_se``, ``log_value``).

    Raises
    ------
    UsageError
        On NaN, empty or unequal columns, one unit or cluster, or a mean not above zero.

    Examples
    --------
    >>> import numpy as np
    >>> b = np.linspace(1, 2, 50)
    >>> print(ratio(1.5 * b + np.tile([0.1, -0.1], 25), b, draws=2000))
    1.500 [1.481, 1.519]
    """
    who = "ratio"
    check_level(level, who)
    check_draws(draws, who)
    a, b = column(a, who, "a"), column(b, who, "b")
    same_length(who, a=a, b=b)
    if a.size < 2:
        raise UsageError(f"{who}: one unit gives no interval; at least two are needed.")
    if not (a.mean() > 0 and b.mean() > 0):
        raise UsageError(f"{who}: both means must be above zero; use paired_difference instead.")
    stream = rng or Rng(0)
    p_value = sign_flip(a - b, clusters=clusters, rng=stream.child("flips"), draws=draws)
    n, count = a.size, None
    sum_a, sum_b = a / a.sum(), b / b.sum()  # the ratio is 1 on this scale
    if clusters is not None:
        group, count = cluster_codes(clusters, n, who)
        sum_a, sum_b = (group_sums(each, group, count) for each in (sum_a, sum_b))
    # The gap is resampled, not the first arm, so that like arms lose no digits.
    gap = sum_a - sum_b
    groups = gap.size
    stretch = groups / (groups - 1)
    log_value, log_se = math.log(a.mean() / b.mean()), math.sqrt(stretch * float((gap**2).sum()))
    found = resampled_sums(
        [gap, sum_b, gap**2, gap * sum_b, sum_b**2], draws, stream.child("resamples").numpy()
    )
    e, below, ee, eb, bb = found.T
    above = below + e
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (ee * below**2 - 2 * eb * below * e + bb * e**2) / (above * below) ** 2
        t = np.log(above / below) / np.sqrt(stretch * spread)
    t = t[np.isfinite(t) & (above > 0) & (below > 0)]
    notes = [size_note(n, count)]
    low = high = math.exp(log_value)
    if log_se <= 1e-14 or t.size == 0:
        notes.append("The ratio is the same in every unit, so the interval has no width.")
    elif draws - t.size > draws / 10:
        raise UsageError(
            f"{who}: {draws - t.size} of {draws} resamples have no ratio, for a mean is not above "
            "zero; use paired_difference instead."
        )
    else:
        if t.size < draws:
            notes.append(f"{draws - t.size} of {draws} resamples had no ratio and were left out.")
        upper, lower = np.quantile(t, [(1 - level) / 2, (1 + level) / 2])
        low, high = math.exp(log_value - lower * log_se), math.exp(log_value - upper * log_se)
    return Estimate(
        math.exp(log_value), low, high, level, n, count, None, "studentized-log", p_value,
        join(notes), {"log_value": log_value, "log_se": log_se},
    )  # fmt: skip


def log_odds_ratio(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
    rng: Rng | None = None,
    draws: int = 10_000,
) -> Estimate:
    r"""Estimate the marginal log odds ratio of two paired columns of zeros and ones.

    $\mathrm{logit}\,\hat p_a - \mathrm{logit}\,\hat p_b$: how the odds of the whole
    population differ, not those within a pair. Delta method: t (with clusters
    CR2) on $\psi_i = \frac{a_i - \hat p_a}{\hat p_a (1 - \hat p_a)} - \frac{b_i - \hat p_b}
    {\hat p_b (1 - \hat p_b)}$. Where an arm has no zeros or no ones, half a
    success and half a failure are added to both, and the note says so.

    Parameters
    ----------
    a, b
        Zeros and ones, shape ``(n,)``.
    clusters
        Cluster of each row.
    level
        Coverage aimed for, in (0, 1).
    rng
        Stream for sign flips with clusters; ``Rng(0)`` when None.
    draws
        Sign patterns drawn where there are too many to enumerate.

    Returns
    -------
    Estimate
        With the p-value of the exact McNemar test, or of sign flips of clusters.

    Raises
    ------
    UsageError
        On anything but zeros and ones, empty or unequal columns, one unit or cluster.

    Examples
    --------
    >>> print(log_odds_ratio([1] * 60 + [0] * 40, [1] * 50 + [0] * 50))
    0.405 [0.161, 0.650]
    """
    who = "log_odds_ratio"
    check_level(level, who)
    check_draws(draws, who)
    a, b = column(a, who, "a"), column(b, who, "b")
    same_length(who, a=a, b=b)
    if not is_binary(a, b):
        raise UsageError(f"{who}: a and b must hold zeros and ones only.")
    if clusters is None:
        p_value = mcnemar(a, b)
    else:
        p_value = sign_flip(a - b, clusters=clusters, rng=rng or Rng(0), draws=draws)
    n, note, added = a.size, "", 0.0
    p, q = float(a.mean()), float(b.mean())
    if {p, q} & {0.0, 1.0}:
        note = "An arm has no zeros or no ones: half of each was added to both arms."
        p, q, added = (a.sum() + 0.5) / (n + 1), (b.sum() + 0.5) / (n + 1), 0.25
    pull_a, pull_b = 1 / (p * (1 - p)), 1 / (q * (1 - q))
    rows = reduce_rows((a - p) * pull_a - (b - q) * pull_b, who, clusters=clusters)
    found = sampling(rows, who)
    variance = found.variance
    if added:
        # Half a success and half a failure an arm: a quarter of each of the four pairs.
        corners = [(i - p) * pull_a - (j - q) * pull_b for i in (0.0, 1.0) for j in (0.0, 1.0)]
        variance = (variance * n**2 + added * sum(each**2 for each in corners)) / (n + 1) ** 2
    value, se = math.log(p / (1 - p)) - math.log(q / (1 - q)), math.sqrt(variance)
    reach = found.multiplier(level) * se
    return Estimate(
        value, value - reach, value + reach, level, n, found.clusters, None,
        "delta-" + found.method, p_value, join([size_note(n, found.clusters), note]),
        {"se": se, "df": found.df(level)},
    )  # fmt: skip
