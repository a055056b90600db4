"""Finds the triples of options that few changed labels would turn, in a table of preferences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse, special
from scipy.sparse import csgraph

from equipoise.core import UsageError, nearest
from equipoise.kit.progress import report
from equipoise.kit.statistics._pair_fit import (
    check_settled,
    cyclic_share,
    fit,
    information,
    lack_of_fit,
    sandwich,
    settled,
    slope,
)
from equipoise.kit.statistics._pair_tables import Rows
from equipoise.methods.alignment._preference_columns import Array, Columns, counted

_WHO = "fragile_triples"


@dataclass(frozen=True, slots=True)
class FragileTriple:
    """Options i, j and k: what i over k and k over j say of i over j.

    ``log_se`` is of the logarithm of ``sensitivity``; the rest is told by
    `equipoise.methods.alignment.PreferenceSensitivity`.
    """

    i: str
    j: str
    k: str
    sensitivity: float
    log_se: float
    influence: float
    preference: float
    moved: float
    held: float
    after: float
    moved_labels: float
    held_labels: float
    direct_labels: float
    weak_labels: float

    @property
    def name(self) -> str:
        return f"{self.i} over {self.j}, from {self.i} over {self.k}"

    def details(self) -> dict[str, float]:
        """Return the numbers by name."""
        skipped = ("i", "j", "k", "sensitivity")
        return {name: value for name, value in asdict(self).items() if name not in skipped}


@dataclass(frozen=True, slots=True)
class FragileTriples:
    """What `fragile_triples` found.

    Parameters
    ----------
    options
        Names.
    scores
        Log strengths, shape ``(options,)``.
    triples
        The worst ones, by influence, the worst first.
    count, sensitive, fragile
        All triples; those whose sensitivity is above ``least``; those of them whose influence is.
    labels
        How many there are.
    clusters
        How many, None where labels are independent.
    notes
        Sentences a reader must see.
    """

    options: tuple[str, ...]
    scores: Array
    triples: tuple[FragileTriple, ...]
    count: int
    sensitive: int
    fragile: int
    labels: int
    clusters: int | None
    notes: tuple[str, ...]

    @property
    def df(self) -> float:
        """Degrees of freedom of the standard errors."""
        return math.inf if self.clusters is None else self.clusters - 1.0


def fragile_triples(
    labels: npt.ArrayLike | Columns,
    *,
    names: Sequence[str] | None = None,
    clusters: npt.ArrayLike | None = None,
    least: float = 2.0,
    change: float = 0.01,
    prior: float = 0.1,
    top: int = 10,
    triple: Sequence[str] | None = None,
) -> FragileTriples:
    r"""Return the triples whose implied preference moves ``least`` times as far as labels, or more.

    Bradley-Terry scores s are fitted to all labels. With $V_{ij} = p_{ij}(1 - p_{ij})$, the
    sensitivity of $p_{ij}$ to $p_{ik}$ is $S = V_{ij} / V_{ik}$; with C the inverse of the
    likelihood's curvature and $n_{ik}$ the pair's labels, its influence is

    .. math:: V_{ij}\, n_{ik}\, (e_i - e_j)^\top C\, (e_i - e_k),

    how far a refit moves $p_{ij}$ by the share of these labels that change. It is S where i, j and
    k met no one else, and smaller where other labels speak of i and j. A triple (i and j, from k)
    is told once, with the one of its two pairs that moves it more. Independent labels have the
    curvature's standard errors, clusters sandwich estimates.

    Parameters
    ----------
    labels
        A table ``(m, m)`` of how often the row's option was preferred to the column's (shares
        allowed), or four columns: both options' places, and how often each of both was preferred.
    names
        Of the options; their places where there are none.
    clusters
        Cluster of each row of four columns.
    least
        M, at least 1.
    change
        Share of the moved pair's labels that go to its weaker side, for ``after``.
    prior
        Ties with an average option that each option is imagined to have had.
    top
        Triples to return.
    triple
        Names of i, j and k: return this one alone, fragile or not.

    Raises
    ------
    UsageError
        If there are fewer labels than scores to fit, more than 4,000 options, an option that meets
        itself, a number out of its range, or no such triple; without a prior, if scores are
        infinite, before or after the change.

    Examples
    --------
    >>> wins = [[0, 99, 0], [1, 0, 1], [0, 99, 0]]
    >>> found = fragile_triples(wins, names=["tea", "water", "coffee"], prior=0)
    >>> each = found.triples[0]
    >>> each.name, round(each.sensitivity, 2), round(each.after, 3)
    ('tea over coffee, from tea over water', 25.25, 0.331)
    """
    if not 1 <= least < math.inf:
        raise UsageError(f"{_WHO}: least must be at least 1, got {least:g}.")
    if not 0 <= change <= 1:
        raise UsageError(f"{_WHO}: change must be from 0 to 1, got {change:g}.")
    if not 0 <= prior < math.inf:
        raise UsageError(f"{_WHO}: prior must be at least 0, got {prior:g}.")
    if top < 1:
        raise UsageError(f"{_WHO}: top must be at least 1, got {top}.")
    rows = counted(labels, clusters)
    pairs, counts = rows.pairs, rows.counts()
    m = pairs.m
    options = tuple(map(str, range(m))) if names is None else tuple(names)
    if len(options) != m:
        raise UsageError(f"{_WHO}: {m} options need as many names, got {len(options)}.")
    total = float(counts.sum())
    if total < m - 1:
        raise UsageError(
            f"{_WHO}: {total:g} labels cannot tell {m} options apart; at least {m - 1} are needed."
        )
    check_settled(options, pairs, counts, "half", prior)
    s, _ = fit(pairs, counts, "half", prior)
    found = slope(counts, s[pairs.first] - s[pairs.second], np.array(0.0), "half")
    inverse = np.asarray(np.linalg.inv(information(pairs, found, s, prior)), np.float64)
    n = np.zeros((m, m))
    n[pairs.first, pairs.second] = n[pairs.second, pairs.first] = counts.sum(axis=0)
    p = special.expit(s[:, None] - s)
    v = p * (1 - p)
    if triple is None:
        (count, sensitive, fragile), worst = _search(n, v, inverse, least, top)
    else:
        count, sensitive, fragile, worst = 1, 0, 0, [_place(triple, options, n)]
    if rows.clusters is None:
        covariance = inverse
    else:
        covariance = sandwich(rows, counts, s, np.array(0.0), "half", prior)
    triples = []
    for done, (i, j, k) in enumerate(worst, start=1):
        triples.append(_told(options, i, j, k, s, p, n, inverse, covariance, rows, change, prior))
        report("changing labels", done, len(worst))
    return FragileTriples(
        options, s - s.mean(), tuple(triples), count, sensitive, fragile, round(total),
        rows.clusters, _notes(options, rows, counts, s, prior),
    )  # fmt: skip


def _search(
    n: Array, v: Array, inverse: Array, least: float, top: int
) -> tuple[tuple[int, int, int], list[tuple[int, int, int]]]:
    """Return how many triples there are, are sensitive and fragile, and the worst, by place."""
    count = sensitive = fragile = 0
    best: list[tuple[float, int, int, int]] = []
    m = len(n)
    # Squared distances: var(s_i - s_j), up to rounding.
    far = np.maximum(inverse.diagonal()[:, None] + inverse.diagonal() - 2 * inverse, 0)
    farthest = far.max(axis=1)
    for k in range(m):
        near = np.flatnonzero(n[k])
        if len(near) < 2:
            continue
        count += len(near) * (len(near) - 1) // 2
        # i is the row: how far i over j moves with i over k.
        high = v[np.ix_(near, near)] > least * v[near, k][:, None]
        np.fill_diagonal(high, False)
        sensitive += int((high | high.T).sum()) // 2
        # V is a quarter at most, and |a C b|^2 no more than (a C a) (b C b).
        most = 0.25 * n[near, k] * np.sqrt(far[near, k] * farthest[near])
        rows = np.flatnonzero((most > least) & high.any(axis=1))
        if not len(rows):
            continue
        i, j = near[rows][:, None], near[None, :]
        pull = np.abs(inverse[i, i] - inverse[i, k] - inverse[i, j] + inverse[j, k])
        pull *= v[i, j] * n[i, k]
        pull[~high[rows]] = 0
        back = np.zeros_like(pull)
        back[:, rows] = pull[:, rows].T
        # Each triple once, by the pair that moves it more; the earlier option's where both do.
        ahead = pull > back * np.where(i < j, 1 - 1e-9, 1 + 1e-9)
        kept = np.flatnonzero(ahead & (pull > least))
        fragile += len(kept)
        if len(kept) > top:
            kept = kept[np.argpartition(-pull.flat[kept], top - 1)[:top]]
        for flat in kept:
            row, column = divmod(int(flat), len(near))
            best.append((-float(pull[row, column]), int(near[rows[row]]), int(near[column]), k))
        best = sorted(best)[:top]
        if m > 200:
            report("searching triples", k + 1, m)
    return (count, sensitive, fragile), [(i, j, k) for _, i, j, k in best]


def _place(triple: Sequence[str], options: tuple[str, ...], n: Array) -> tuple[int, int, int]:
    """Return the places of a triple that is asked for."""
    if len(set(triple)) != 3:
        raise UsageError(f"{_WHO}: a triple is three different options, got {list(triple)}.")
    for name in triple:
        if name not in options:
            raise UsageError(f'{_WHO}: there is no option "{name}".{nearest(name, options)}')
    i, j, k = (options.index(name) for name in triple)
    for one in (i, j):
        if not n[one, k]:
            raise UsageError(
                f"{_WHO}: {options[one]} and {options[k]} were not compared, so nothing goes by"
                f" way of {options[k]}."
            )
    return i, j, k


def _told(
    options: tuple[str, ...],
    i: int,
    j: int,
    k: int,
    s: Array,
    p: Array,
    n: Array,
    inverse: Array,
    covariance: Array,
    rows: Rows,
    change: float,
    prior: float,
) -> FragileTriple:
    """Return all there is to say of a triple; its labels are changed and scores fitted anew."""
    at = [i, j, k]
    ij, ik = p[i, j], p[i, k]
    v = ij * (1 - ij)
    s_value = float(v / (ik * (1 - ik)))
    # Slopes of log S = log V(s_i - s_j) - log V(s_i - s_k).
    slopes = np.array([(1 - 2 * ij) - (1 - 2 * ik), -(1 - 2 * ij), 1 - 2 * ik])
    variance = float(slopes @ covariance[np.ix_(at, at)] @ slopes)
    pull = inverse[i, i] - inverse[i, k] - inverse[j, i] + inverse[j, k]
    counts = rows.counts()
    low, high = min(i, k), max(i, k)
    column = int(np.flatnonzero((rows.pairs.first == low) & (rows.pairs.second == high))[0])
    ours = 0 if i < k else 1  # the row of counts in which i was preferred to k
    weak, strong = (ours, 1 - ours) if ik < 0.5 else (1 - ours, ours)
    weak_labels = float(counts[weak, column])
    after = float(ij)
    if change:
        gone = min(change * n[i, k], float(counts[strong, column]))
        counts[strong, column] -= gone
        counts[weak, column] += gone
        check_settled(options, rows.pairs, counts, "half", prior)
        # From scores that the labels now contradict, Newton's method overshoots.
        start = (s, np.array(0.0)) if change < 0.1 else None
        again, _ = fit(rows.pairs, counts, "half", prior, start)
        after = float(special.expit(again[i] - again[j]))
    return FragileTriple(
        options[i],
        options[j],
        options[k],
        s_value,
        math.sqrt(max(variance, 0.0)),
        float(v * n[i, k] * pull),
        float(ij),
        float(ik),
        float(p[k, j]),
        after,
        float(n[i, k]),
        float(n[k, j]),
        float(n[i, j]),
        weak_labels,
    )


def _notes(
    options: tuple[str, ...], rows: Rows, counts: Array, s: Array, prior: float
) -> tuple[str, ...]:
    """Return what a reader of the fit must know."""
    pairs, notes = rows.pairs, []
    met = (np.ones(len(pairs.first)), (pairs.first, pairs.second))
    graph = sparse.coo_array(met, (pairs.m, pairs.m))
    groups = csgraph.connected_components(graph, directed=False)[0]
    if groups > 1:
        notes.append(
            f"The options fall into {groups} groups that were never compared with one another."
        )
    elif prior and not settled(pairs, counts, "half", 0.0):
        notes.append(
            "Some options were always or never preferred to the others, which alone would make"
            f" scores infinite: the prior of {prior:g} ties decides how far apart they are."
        )
    misfit, p_value = lack_of_fit(rows, counts, s, np.array(0.0), "half")
    cyclic = cyclic_share(pairs, counts[0], counts[1])
    by_chance = p_value > 0.001 if not math.isnan(p_value) else not misfit > 2.0
    if not by_chance and cyclic >= 0.2:
        notes.append(
            f"Preferences go in circles: no ranking explains {cyclic:.0%} of what pairs differ by,"
            " so that a score an option is a poor account of them."
        )
    return tuple(notes)
