"""Comparisons counted by pair, so that a likelihood costs the table and not the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from equipoise.core import UsageError
from equipoise.kit.statistics._common import Array, Codes
from equipoise.kit.statistics.comparisons import Comparisons

Ties = Literal["half", "davidson", "rao-kupper"]

LARGE = 10_000
"""Rows from which each kind is drawn by itself, as Poisson, which lets their number vary by 1 %."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Who met whom: the places of the first and the second of each pair among ``m`` models."""

    m: int
    first: Codes
    second: Codes

    def incidence(self) -> sparse.csr_array:
        """Return 1 for the first and -1 for the second of each pair, shape ``(m, pairs)``."""
        count = np.arange(len(self.first))
        ones = np.ones(len(count))
        return sparse.csr_array(
            (
                np.concatenate([ones, -ones]),
                (np.concatenate([self.first, self.second]), np.concatenate([count, count])),
            ),
            shape=(self.m, len(count)),
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Comparisons as draws take them: kinds of rows, or whole clusters of rows.

    ``table`` has a row a kind and three stretches of columns, one a pair: won, lost and tied.
    ``times`` says how often each kind is there, ``squares`` sums the squares of each pair's scores.
    ``clusters`` counts clusters, None where comparisons are independent.
    """

    pairs: Pairs
    table: sparse.csr_array
    times: Array
    squares: Array
    clusters: int | None = None

    def counts(self) -> Array:
        """Return won, lost and tied of each pair, shape ``(3, pairs)``."""
        return np.asarray(self.times @ self.table, float).reshape(3, -1)

    def drawn(self, draws: int, generator: np.random.Generator) -> Array:
        """Return the counts of resampled rows or clusters, shape ``(draws, 3, pairs)``."""
        groups = round(float(self.times.sum()))
        if (self.times == 1).all():
            taken = np.empty((draws, groups))
            for row in taken:
                row[:] = np.bincount(generator.integers(groups, size=groups), minlength=groups)
        elif groups >= LARGE:
            taken = generator.poisson(self.times, size=(draws, len(self.times))).astype(float)
        else:
            share = self.times / self.times.sum()
            taken = generator.multinomial(groups, share, size=draws).astype(float)
        return np.asarray((self.table.T @ taken.T).T).reshape(draws, 3, -1)


def rows_of_table(wins: npt.ArrayLike) -> Rows:
    """Return the rows that a table of wins stands for."""
    who = "bradley_terry"
    try:
        found = np.asarray(wins, float)
    except (TypeError, ValueError):
        raise UsageError(f"{who}: the table of wins must hold numbers.") from None
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not np.isfinite(found).all():
        raise UsageError(
            f"{who}: the table of wins must be square and finite, got shape {found.shape}."
        )
    if (found < 0).any() or found.diagonal().any():
        raise UsageError(f"{who}: wins must be at least 0, and 0 of a model over itself.")
    i, j = np.nonzero(np.triu(found + found.T))
    pairs = Pairs(len(found), i.astype(np.intp), j.astype(np.intp))
    times = np.concatenate([found[i, j], found[j, i]])
    met = np.flatnonzero(times)
    ones = (np.ones(len(met)), (np.arange(len(met)), met))
    table = sparse.csr_array(ones, shape=(len(met), 3 * len(i)))
    return Rows(pairs, table, times[met], found[i, j])


def rows_of(comparisons: Comparisons, ties: Ties) -> Rows:
    """Return comparisons by pair; rows that are alike are one kind unless clusters keep them apart.

    Raises
    ------
    UsageError
        If ties have a parameter of their own and a score is neither 0, 0.5 nor 1.
    """
    m = len(comparisons.models)
    first, second, score = comparisons.first, comparisons.second, comparisons.score
    outcome = (2 * score).astype(np.int64)
    plain = bool((outcome == 2 * score).all())
    if not plain and ties != "half":
        raise UsageError(
            f'bradley_terry: ties="{ties}" needs scores of 0, 0.5 and 1; shares of a win between'
            ' them are for ties="half".'
        )
    groups = cluster_of(comparisons)
    if groups is not None:
        kind, times = groups, np.ones(int(groups.max()) + 1)
    elif plain:  # the usual case: counts say all
        codes = (first.astype(np.int64) * m + second) * 3 + outcome
        if 3 * m * m <= 4 * len(codes) + 1_000_000:
            met_as = np.bincount(codes, minlength=3 * m * m).reshape(m, m, 3)
            met_as = met_as + met_as.transpose(1, 0, 2)[..., ::-1]  # whoever came first
            met_as[np.tri(m, dtype=bool)] = 0
            often = met_as.reshape(-1)
            kinds = np.flatnonzero(often)
            often = often[kinds]
        else:
            kinds, often = np.unique(codes, return_counts=True)
        met, outcome = np.divmod(kinds, 3)
        first, second = np.divmod(met, m)
        score, kind, times = outcome / 2, np.arange(len(kinds)), often.astype(float)
    else:
        kind, times = np.arange(len(score)), np.ones(len(score))
    swap = first > second
    low, high = np.where(swap, second, first), np.where(swap, first, second)
    met, place = np.unique(low.astype(np.int64) * m + high, return_inverse=True)
    pairs = Pairs(m, *(each.astype(np.intp) for each in np.divmod(met, m)))
    score = np.where(swap, 1 - score, score)
    tied = (score == 0.5) & (ties != "half")
    weights = np.concatenate([np.where(tied, 0, score), np.where(tied, 0, 1 - score), tied])
    columns = np.concatenate([place + stretch * len(met) for stretch in range(3)])
    kept = np.flatnonzero(weights)
    table = sparse.coo_array(
        (weights[kept], (np.tile(kind, 3)[kept], columns[kept])), (len(times), 3 * len(met))
    ).tocsr()
    squares = np.bincount(place, score**2 * times[kind], len(met)).astype(np.float64)
    return Rows(pairs, table, times, squares, None if groups is None else len(times))


def cluster_of(comparisons: Comparisons) -> Codes | None:
    """Return the cluster, else the prompt of each row from 0; None where each has its own."""
    found = comparisons.prompt if comparisons.cluster is None else comparisons.cluster
    if found is None:
        return None
    different, codes = np.unique(found, return_inverse=True)
    return None if len(different) == len(found) else codes.astype(np.intp)
