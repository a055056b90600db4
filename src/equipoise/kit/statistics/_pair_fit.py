r"""Bradley-Terry likelihoods on counts of pairs, one table or many at a time, by Newton's method.

A table has a column a pair of models that met, and counts of how often the first of them won,
lost and tied. With :math:`d = s_i - s_j`, a pair's log-likelihood is

- ``half``: :math:`w \log\sigma(d) + l \log\sigma(-d)`, ties counted half to both;
- ``davidson``: :math:`(w-l)\,d/2 + t\,\eta - n \log(2\cosh(d/2) + e^\eta)`;
- ``rao-kupper``: :math:`(w+t) \log\sigma(d-\tau) + (l+t) \log\sigma(-d-\tau)
  + t \log(e^{2\tau} - 1)`.

All are concave in the scores and the tie parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse, special
from scipy.sparse import csgraph

from equipoise.core import UsageError
from equipoise.kit.statistics._common import Array, Codes
from equipoise.kit.statistics._pair_tables import Pairs, Rows, Ties

STEP = 1e-9
"""How long the last Newton step may be; it converges by squares, so the error is far less."""

LIMIT = 100


@dataclass(frozen=True, slots=True)
class Slope:
    """The log-likelihood of tables and its slopes by pair; ``t`` is the tie parameter.

    ``d`` and ``t`` are first derivatives, ``dd``, ``dt`` and ``tt`` minus the second ones, of
    shape ``(..., pairs)``.
    """

    value: Array
    d: Array
    dd: Array
    t: Array | None = None
    dt: Array | None = None
    tt: Array | None = None


def slope(counts: Array, d: Array, t: Array, ties: Ties) -> Slope:
    """Return log-likelihood, first derivatives and minus the second ones of every table."""
    won, lost, tied = counts[..., 0, :], counts[..., 1, :], counts[..., 2, :]
    games = won + lost + tied
    if ties == "half":
        e = np.exp(-np.abs(d))  # once, for the probability and its logarithm
        p = np.where(d < 0, e, 1.0) / (1 + e)
        value = (won * d - games * (np.maximum(d, 0) + np.log1p(e))).sum(-1)
        return Slope(value, won - games * p, games * p * (1 - p))
    t = t[..., None]
    if ties == "davidson":
        top = np.maximum(np.abs(d) / 2, t)
        p, q, e = np.exp(d / 2 - top), np.exp(-d / 2 - top), np.exp(t - top)
        whole = p + q + e
        p, q, e = p / whole, q / whole, e / whole
        value = ((won - lost) * d / 2 + tied * t - games * (np.log(whole) + top)).sum(-1)
        return Slope(
            value,
            ((won - lost) - games * (p - q)) / 2,
            games * (p + q - (p - q) ** 2) / 4,
            tied - games * e,
            -games * (p - q) * e / 2,
            games * e * (1 - e),
        )
    a, b = special.expit(d - t), special.expit(-d - t)
    up, down = won + tied, lost + tied
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(t > 0, 2 * t + np.log(-np.expm1(-2 * t)), -np.inf)
        value = (up * special.log_expit(d - t) + down * special.log_expit(-d - t)).sum(-1)
        value = value + tied.sum(-1) * gap[..., 0]
        rise = -2 / np.expm1(-2 * t)
        bend = 4 * np.exp(-2 * t) / np.expm1(-2 * t) ** 2
    v, w = up * a * (1 - a), down * b * (1 - b)
    return Slope(
        value,
        up * (1 - a) - down * (1 - b),
        v + w,
        tied * rise - up * (1 - a) - down * (1 - b),
        w - v,
        v + w + tied * bend,
    )


def information(pairs: Pairs, found: Slope, s: Array, prior: float) -> Array:
    """Return minus the Hessian over the scores and, last, the tie parameter where there is one."""
    m, extra = pairs.m, found.t is not None
    h = np.zeros((*s.shape[:-1], m + extra, m + extra))
    h[..., pairs.first, pairs.second] = h[..., pairs.second, pairs.first] = -found.dd
    across = np.arange(m)
    p = special.expit(s)
    h[..., across, across] = prior * p * (1 - p) - h[..., :m].sum(-1)[..., :m]
    if found.dt is not None and found.tt is not None:
        h[..., m, :m] = h[..., :m, m] = summed(pairs, found.dt)
        h[..., m, m] = found.tt.sum(-1)
    if not prior:  # the likelihood leaves the sum of the scores open: hold it
        weight = np.trace(h[..., :m, :m], axis1=-2, axis2=-1)[..., None, None] / m**2
        h[..., :m, :m] += np.where(weight > 0, weight, 1.0)
    return h


def summed(pairs: Pairs, each: Array) -> Array:
    """Return the sum over a model's pairs, first ones with their sign, second ones against it."""
    flat = each.reshape(-1, each.shape[-1])
    return np.asarray((pairs.incidence() @ flat.T).T).reshape(*each.shape[:-1], pairs.m)


def fit(
    pairs: Pairs,
    counts: Array,
    ties: Ties,
    prior: float,
    start: tuple[Array, Array] | None = None,
    enough: float = STEP,
) -> tuple[Array, Array]:
    """Return the scores ``(..., m)`` and the tie parameter of each table.

    Newton's method, until a step is no longer than ``enough``; a step that would lower the
    likelihood is halved until it does not.
    """
    batch, m = counts.shape[:-2], pairs.m
    if start is None:
        s, t = np.zeros((*batch, m)), np.full(batch, 1.0 if ties == "rao-kupper" else 0.0)
    else:
        s = np.broadcast_to(start[0], (*batch, m)).copy()
        t = np.broadcast_to(start[1], batch).copy()

    def at(s: Array, t: Array) -> tuple[Array, Slope]:
        found = slope(counts, s[..., pairs.first] - s[..., pairs.second], t, ties)
        value = found.value
        if prior:
            value = value - prior * (np.logaddexp(0, s) - s / 2).sum(-1)
        return value, found

    value, found = at(s, t)
    for _ in range(LIMIT):
        g = summed(pairs, found.d)
        if prior:
            g = g + prior * (0.5 - special.expit(s))
        if found.t is not None:
            g = np.concatenate([g, found.t.sum(-1, keepdims=True)], -1)
        h = information(pairs, found, s, prior)
        step = np.linalg.solve(h, g[..., None])[..., 0]
        length = float(np.abs(step).max())
        share = np.ones(batch)
        for _ in range(60):
            moved = s + share[..., None] * step[..., :m]
            turned = t + share * step[..., m] if found.t is not None else t
            reached, there = at(moved, turned)
            worse = ~(reached >= value - 1e-10 * np.abs(value) - 1e-300)
            if not worse.any():
                break
            share = np.where(worse, share / 2, share)
        s, t, value, found = moved, turned, reached, there
        if length <= enough:
            return s, t
    raise UsageError(
        "bradley_terry: the likelihood has no maximum that Newton's method finds in"
        f" {LIMIT} steps; give a prior, such as prior=1."
    )


def sandwich(rows: Rows, counts: Array, s: Array, t: Array, ties: Ties, prior: float) -> Array:
    """Return the covariance of the scores, against their mean, from how rows or clusters vary."""
    pairs, m = rows.pairs, rows.pairs.m
    d = s[pairs.first] - s[pairs.second]
    one_each = np.broadcast_to(np.eye(3)[:, :, None], (3, 3, len(d)))
    each = slope(one_each, d, np.full(3, t), ties)
    across = pairs.incidence().T
    pulls = sparse.vstack([across.multiply(k[:, None]) for k in each.d])
    if each.t is not None:
        pulls = sparse.hstack([pulls, sparse.coo_array(each.t.reshape(-1, 1))])
    pull = (rows.table @ pulls).tocsr()  # of each kind or cluster on the likelihood's slope
    meat = (pull.T @ pull.multiply(rows.times[:, None])).toarray()
    groups = rows.times.sum()
    bread = np.linalg.inv(information(pairs, slope(counts, d, t, ties), s, prior))
    found = (bread @ meat @ bread)[:m, :m] * groups / max(groups - 1, 1)
    found = found - found.mean(axis=0)
    return np.asarray(found - found.mean(axis=1, keepdims=True))


def lack_of_fit(rows: Rows, counts: Array, s: Array, t: Array, ties: Ties) -> tuple[float, float]:
    """Return chi-squared of the pairs over its degrees of freedom, and its p-value.

    Ties as half wins vary less than wins and losses do; the spread is scaled by how much less.
    """
    pairs = rows.pairs
    df = len(pairs.first) - (pairs.m - 1)
    d = s[pairs.first] - s[pairs.second]
    found = slope(counts, d, t, ties)
    if df < 1 or not found.dd.all():
        return math.nan, math.nan
    squared = float((found.d**2 / found.dd).sum())
    if ties == "half":
        p, won, games = special.expit(d), counts[0], counts[0] + counts[1]
        spread = float((rows.squares - 2 * p * won + games * p * p).sum() / found.dd.sum())
        squared = squared / spread if spread > 0 else 0.0
    p_value = math.nan if rows.clusters else float(special.chdtrc(df, squared))
    return squared / df, p_value


def cyclic_share(pairs: Pairs, won: Array, lost: Array) -> float:
    """Return the share of pairs' differences that no ranking explains, weighted by games."""
    games = won + lost
    lead = (won - lost) / games
    whole = float((games * lead**2).sum())
    if whole == 0:
        return 0.0
    incidence = pairs.incidence()
    laplacian = (incidence.multiply(games) @ incidence.T).toarray()
    weight = np.trace(laplacian) / pairs.m
    held = laplacian + weight / pairs.m + 1e-12 * weight * np.eye(pairs.m)
    fitted = incidence.T @ np.linalg.solve(held, incidence @ (games * lead))
    return float((games * (lead - fitted) ** 2).sum()) / whole


def settled(pairs: Pairs, counts: Array, ties: Ties, prior: float) -> bool:
    """Say whether the likelihood has one maximum: each model won or tied its way to each other."""
    if ties != "half" and (not counts[2].any() or not counts[:2].any()):
        return False
    if prior > 0:
        return True
    return _components(pairs, counts, "strong")[0] == 1 and (
        ties == "half" or _ties_settled(pairs, counts)
    )


def _ties_settled(pairs: Pairs, counts: Array) -> bool:
    """Say whether strengths and the tie parameter cannot grow together without end.

    They can where a way of placing the models puts each winner at least 1 ahead of the loser, and
    models that tied at most 1 apart. There is none if some circle has more wins than ties.
    """
    decisive = counts * np.array([[1.0], [1.0], [0.0]])
    if _components(pairs, decisive, "strong")[0] < pairs.m:
        return True  # a circle of wins alone
    won, lost, tied = (np.flatnonzero(each) for each in counts)
    length = np.full((pairs.m, pairs.m), np.inf)
    for a, b in ((pairs.first, pairs.second), (pairs.second, pairs.first)):
        length[a[tied], b[tied]] = 1.0
    length[pairs.first[won], pairs.second[won]] = -1.0
    length[pairs.second[lost], pairs.first[lost]] = -1.0
    try:
        csgraph.bellman_ford(csgraph.csgraph_from_dense(length, null_value=np.inf), indices=[0])
    except csgraph.NegativeCycleError:
        return True
    return False


def check_settled(
    models: Sequence[str], pairs: Pairs, counts: Array, ties: Ties, prior: float
) -> None:
    """Refuse what has no maximum, and say which models are why."""
    who = "bradley_terry"
    if ties != "half":
        fault = "no" if not counts[2].any() else "every" if not counts[:2].any() else ""
        if fault:
            raise UsageError(
                f'{who}: {fault} comparison is a tie, so ties="{ties}" has nothing to go by;'
                ' take ties="half".'
            )
    if prior:
        return
    count, label = _components(pairs, counts, "weak")
    if count > 1:
        alone = np.setdiff1d(np.arange(pairs.m), np.concatenate([pairs.first, pairs.second]))
        if count - len(alone) == 1:
            raise UsageError(f"{who}: {_named(models, alone)} met no other; leave out or compare.")
        groups = [np.flatnonzero(label == each) for each in range(count)]
        shown = "; ".join(f"{{{_named(models, each)}}}" for each in groups[:5])
        raise UsageError(
            f"{who}: the models fall into {count} groups that never met: {shown}"
            f"{'; …' if count > 5 else ''}; rate them apart, let them meet, or give a prior."
        )
    count, label = _components(pairs, counts, "strong")
    if count == 1:
        if ties == "half" or _ties_settled(pairs, counts):
            return
        raise UsageError(
            f'{who}: wins all point one way, so that strengths and ties="{ties}" grow together'
            ' without end; take ties="half", or give a prior, such as prior=1.'
        )
    up, down = _arrows(counts)
    winner = np.concatenate([pairs.first[up], pairs.second[down]])
    loser = np.concatenate([pairs.second[up], pairs.first[down]])
    across = label[winner] != label[loser]
    best = np.flatnonzero(~np.isin(label, label[loser[across]]))
    worst = np.flatnonzero(~np.isin(label, label[winner[across]]))
    raise UsageError(
        f"{who}: {_named(models, best)} lost to none of the others and {_named(models, worst)} won"
        " against none, so their ratings are infinite; let them meet more, or give a prior"
        " (prior=1 imagines a tie of each with an average model)."
    )


def _arrows(counts: Array) -> tuple[Codes, Codes]:
    """Return the pairs whose first, and whose second, did not always lose."""
    return np.flatnonzero(counts[0] + counts[2]), np.flatnonzero(counts[1] + counts[2])


def _components(
    pairs: Pairs, counts: Array, connection: Literal["weak", "strong"]
) -> tuple[int, Codes]:
    up, down = _arrows(counts)
    start = np.concatenate([pairs.first[up], pairs.second[down]])
    end = np.concatenate([pairs.second[up], pairs.first[down]])
    graph = sparse.csr_array((np.ones(len(start)), (start, end)), shape=(pairs.m, pairs.m))
    count, label = csgraph.connected_components(graph, connection=connection)
    return count, label.astype(np.intp)


def _named(models: Sequence[str], which: Codes, most: int = 5) -> str:
    names = ", ".join(models[each] for each in which[:most])
    return names + (f" and {len(which) - most} more" if len(which) > most else "")
