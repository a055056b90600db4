"""Preferences as columns, and as the Bradley-Terry fit takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from equipoise.core import Outcomes, UsageError
from equipoise.kit.statistics._pair_tables import Pairs, Rows, rows_of_table

Array = npt.NDArray[np.float64]
Columns = tuple[Array, Array, Array, Array]
"""Places of both options, and how often the first and the second was preferred, a row each."""

MOST = 4_000
BETWEEN = " | "
"""Stands between the names of a pair, where they are told in one text."""

_WHO = "fragile_triples"


def columns_of(outcomes: Outcomes) -> tuple[tuple[str, ...], Columns]:
    """Return names and columns from a task's outcomes; strata tell the names of pairs."""
    first, second = (outcomes.score(name).astype(np.intp) for name in ("first", "second"))
    count = int(max(first.max(), second.max())) + 1
    names = list(map(str, range(count)))
    if outcomes.stratum is not None:
        for a, b, code in zip(first, second, outcomes.stratum, strict=True):
            pair = outcomes.strata[code].split(BETWEEN) if code >= 0 else []
            if len(pair) == 2:
                names[a], names[b] = pair
    labels, share = outcomes.score("labels"), outcomes.score("preferred")
    met = np.unique(np.concatenate([first, second]))  # an arm may lack some options
    place = np.zeros(count, np.intp)
    place[met] = np.arange(len(met))
    columns: Any = (place[first], place[second], labels * share, labels * (1 - share))
    return tuple(names[each] for each in met), columns


def counted(labels: Any, clusters: npt.ArrayLike | None) -> Rows:
    """Return labels as the Bradley-Terry fit takes them, a kind a cluster."""
    if not (isinstance(labels, tuple) and len(labels) == 4):
        if clusters is not None:
            raise UsageError(f"{_WHO}: clusters go with four columns, not with a table.")
        rows = rows_of_table(labels)
        _size(rows.pairs.m)
        return rows
    first, second, won, lost = (np.asarray(each) for each in labels)
    if len({len(each) for each in (first, second, won, lost)}) > 1 or not len(first):
        raise UsageError(f"{_WHO}: the four columns must have one length, and a row at least.")
    if (first == second).any():
        raise UsageError(f"{_WHO}: an option is compared with itself.")
    if not (np.isfinite(won) & np.isfinite(lost) & (won >= 0) & (lost >= 0)).all():
        raise UsageError(f"{_WHO}: labels must be counts of at least 0, without gaps.")
    m = int(max(first.max(), second.max())) + 1
    _size(m)
    swap = first > second
    low, high = np.where(swap, second, first), np.where(swap, first, second)
    up, down = np.where(swap, lost, won), np.where(swap, won, lost)
    if clusters is None:
        table = np.zeros((m, m))
        np.add.at(table, (low, high), up)
        np.add.at(table, (high, low), down)
        return rows_of_table(table)
    met, place = np.unique(low.astype(np.int64) * m + high, return_inverse=True)
    different, kind = np.unique(np.asarray(clusters), return_inverse=True)
    if len(different) < 2:
        raise UsageError(f"{_WHO}: all labels share one cluster; at least two are needed.")
    where = (np.tile(kind, 2), np.concatenate([place, place + len(met)]))
    shape = (len(different), 3 * len(met))
    counted = sparse.coo_array((np.concatenate([up, down]), where), shape).tocsr()
    pairs = Pairs(m, *(each.astype(np.intp) for each in np.divmod(met, m)))
    squares = np.bincount(place, up, len(met)).astype(np.float64)
    return Rows(pairs, counted, np.ones(len(different)), squares, len(different))


def _size(m: int) -> None:
    if m > MOST:
        raise UsageError(f"{_WHO}: {m:,} options; at most {MOST:,} work, so leave some out.")
