"""Tests that lean on exchangeability alone: McNemar, sign flips, permutation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy import special

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics._common import (
    Array,
    check_draws,
    cluster_codes,
    column,
    group_sums,
    is_binary,
    same_length,
)

EXACT = 2**14
"""Patterns up to which a test goes through all of them."""

BLOCK = 2**18
"""Random numbers held at a time: blocks that stay in the cache are the fastest."""


def mcnemar(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    r"""Return the exact two-sided p-value of McNemar's test.

    Of the $m$ pairs that differ, the number that favour ``a`` is
    $\mathrm{Binomial}(m, 1/2)$ when neither arm is better;
    $p = \min(1, 2 P(B \le \min(b, m - b)))$.

    Parameters
    ----------
    a, b
        Zeros and ones, paired by position, shape ``(n,)``.

    Raises
    ------
    UsageError
        If there is anything else, or lengths differ.

    Examples
    --------
    >>> mcnemar([1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0])
    0.03125
    """
    who = "mcnemar"
    a, b = column(a, who, "a"), column(b, who, "b")
    same_length(who, a=a, b=b)
    if not is_binary(a, b):
        raise UsageError(f"{who}: a and b must hold zeros and ones only; use sign_flip otherwise.")
    wins, losses = int((a > b).sum()), int((a < b).sum())
    return min(1.0, 2 * float(special.bdtr(min(wins, losses), wins + losses, 0.5)))


def sign_flip(
    d: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    rng: Rng,
    draws: int = 10_000,
) -> float:
    r"""Return the two-sided p-value of the sign-flip test of paired differences.

    Under the hypothesis each unit's difference (each cluster's sum) is as
    likely to have the other sign; $p$ is the share of sign patterns whose
    total is at least as far from zero as the one seen. Up to $2^{14}$ patterns
    are all enumerated; otherwise ``draws`` are drawn and the pattern seen
    counts as one of them, so that $p > 0$ and the level holds exactly.

    Parameters
    ----------
    d
        Differences, shape ``(n,)``.
    clusters
        Cluster of each row; signs flip for whole clusters.
    rng
        Stream for the draws.
    draws
        Patterns drawn where there are too many to enumerate, at least 100.

    Raises
    ------
    UsageError
        On NaN, an empty column or one cluster.

    Examples
    --------
    >>> sign_flip([1.0, 2.0, 3.0, 4.0], rng=Rng(0))
    0.125
    """
    who = "sign_flip"
    check_draws(draws, who)
    x = column(d, who, "d")
    sums: Array = x
    if clusters is not None:
        group, count = cluster_codes(clusters, x.size, who)
        sums = group_sums(x, group, count)
    sums = np.abs(sums)
    seen = abs(math.fsum(x))
    sums = np.sort(sums[sums > 1e-14 * sums.max(initial=0.0)])  # zeros have no sign to flip
    reached = seen - 1e-9 * float(sums.sum())  # ties must count whatever the rounding
    if sums.size < EXACT.bit_length():
        patterns = (np.arange(2**sums.size)[:, None] >> np.arange(sums.size)) & 1
        totals = (2 * patterns - 1) @ sums
        return float((np.abs(totals) >= reached).mean())
    extreme = 0
    for totals in _drawn_totals(sums, draws, rng.numpy()):
        extreme += int((np.abs(totals) >= reached).sum())
    return (extreme + 1) / (draws + 1)


def _drawn_totals(sums: Array, draws: int, generator: np.random.Generator) -> Iterator[Array]:
    """Yield blocks of totals under random signs."""
    values, times = np.unique(sums, return_counts=True)
    if values.size <= sums.size // 100:  # few values: how many of each are positive is binomial
        positive = generator.binomial(times, 0.5, size=(draws, values.size))
        yield (2 * positive - times) @ values
        return
    width = -(-sums.size // 8)
    step, half = max(1, BLOCK // sums.size), float(sums.sum())
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        raw = np.frombuffer(generator.bytes(rows * width), np.uint8).reshape(rows, width)
        bits = np.unpackbits(raw, axis=1, count=sums.size)
        yield 2 * (bits.astype(np.float64) @ sums) - half


def permutation_two_sample(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    statistic: Callable[[Array, Array], float] | None = None,
    *,
    rng: Rng,
    draws: int = 10_000,
) -> float:
    """Return the two-sided p-value of the permutation test of two independent samples.

    Under the hypothesis all rows come from one law, so that every split into
    two groups of these sizes is equally likely; the p-value is the share of
    splits whose statistic is at least as far from zero as the one seen. Up to
    2^14 splits are enumerated, otherwise ``draws`` are drawn and the split
    seen counts as one of them.

    Parameters
    ----------
    a, b
        Two samples; their sizes may differ.
    statistic
        Maps two arrays to a number that is near zero when they are alike;
        the difference in means when None.
    rng
        Stream for the draws.
    draws
        Splits drawn, at least 100.

    Raises
    ------
    UsageError
        On NaN or an empty sample.

    Examples
    --------
    >>> permutation_two_sample([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], rng=Rng(0))
    0.1
    """
    who = "permutation_two_sample"
    check_draws(draws, who)
    a, b = column(a, who, "a"), column(b, who, "b")
    pooled, first = np.concatenate([np.sort(a), np.sort(b)]), a.size
    if statistic is None:
        # The difference in means is a line in the sum of the first group.
        scale = 1 / a.size + 1 / b.size
        shift = pooled.sum() / b.size

        def of(rows: Array) -> Array:
            return np.asarray(rows[:, :first].sum(axis=1) * scale - shift, dtype=np.float64)
    else:

        def of(rows: Array) -> Array:
            return np.array([statistic(row[:first], row[first:]) for row in rows])

    seen = abs(float(of(pooled[None])[0]))
    if math.isnan(seen):
        raise UsageError(f"{who}: the statistic of the two samples is NaN.")
    reached = seen - 1e-9 * (float(np.abs(pooled).max()) if statistic is None else seen)
    if math.comb(pooled.size, first) <= EXACT:
        every = np.arange(pooled.size)
        rows = np.array(
            [
                np.concatenate([pooled[list(each)], pooled[np.setdiff1d(every, each)]])
                for each in combinations(range(pooled.size), first)
            ]
        )
        return float((np.abs(of(rows)) >= reached).mean())
    generator = rng.numpy()
    step = max(1, BLOCK // pooled.size)
    extreme = 0
    for start in range(0, draws, step):
        rows = np.tile(pooled, (min(step, draws - start), 1))
        extreme += int((np.abs(of(generator.permuted(rows, axis=1, out=rows))) >= reached).sum())
    return (extreme + 1) / (draws + 1)
