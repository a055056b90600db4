r"""Elo ratings of models from how pairs of them compare, and how sure they are.

Elo goes through comparisons one at a time:

.. math:: r_i \leftarrow r_i + K (y - \sigma((r_i - r_j) \ln 10 / 400)),

and as much less for :math:`j`. Late comparisons weigh more, so that one pass depends on the order;
the mean over random orders does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from equipoise.core import Rng, UsageError
from equipoise.kit import progress
from equipoise.kit.statistics._common import Array, Codes, check_draws
from equipoise.kit.statistics._pair_tables import cluster_of
from equipoise.kit.statistics.comparisons import Comparisons
from equipoise.kit.statistics.ratings import ELO

Order = Literal["random", "given"]

PACE = 50_000_000
"""Comparisons that all passes over resamples take together, about: some seconds."""

BLOCK = 20_000_000
"""Places of comparisons held at once."""


@dataclass(frozen=True, slots=True)
class Elo:
    """Elo ratings; see `elo`.

    Parameters
    ----------
    ratings
        Points, mean over the orders, shape ``(m,)``.
    se
        Their standard errors.
    order_sd
        How far one random order moves each rating; 0 where the order is given.
    draws
        Ratings of resamples, scaled to vary as ``se`` says, shape ``(draws, m)``.
    clusters
        How many clusters or prompts; None where every comparison counts by itself.
    """

    ratings: Array
    se: Array
    order_sd: Array
    draws: Array
    clusters: int | None

    @property
    def df(self) -> float:
        """Degrees of freedom of the standard errors."""
        return math.inf if self.clusters is None else self.clusters - 1.0


def elo(
    comparisons: Comparisons,
    *,
    k: float = 16.0,
    order: Order = "random",
    orders: int = 100,
    draws: int = 200,
    rng: Rng,
) -> Elo:
    r"""Rate models by Elo, as the mean over random orders or in the order given.

    The variance over resampled clusters, prompts or rows, each averaged over :math:`q` orders, is
    that of the data and that of the order. The latter is known from :math:`J` passes over the data
    as they are:

    .. math:: \mathrm{se}^2 = \mathrm{Var}^* - \mathrm{Var}_{order} (1/q - 1/J).

    Of many comparisons, time allows for few orders each; where that cannot tell the data's part
    from none, it counts as the least that could be told.

    Parameters
    ----------
    comparisons
        What is rated.
    k
        How far one comparison moves a rating, in points, above 0.
    order
        ``"random"``, or ``"given"`` for comparisons whose order is that of time.
    orders
        Random orders to average over, at least 2. After 16,000 comparisons a model over ``k``,
        and at least 10,000, a pass has forgotten where it started: it ends there.
    draws
        Resamples, at least 100.
    rng
        Stream for orders and resamples.

    Raises
    ------
    UsageError
        If there are fewer than two models or clusters, a model met no other, or a parameter is out
        of range.

    Examples
    --------
    >>> met = Comparisons.of(["a"] * 100, ["b"] * 100, [1] * 64 + [0] * 36)
    >>> found = elo(met, rng=Rng(0))
    >>> 80 < found.ratings[0] - found.ratings[1] < 120
    np.True_
    """
    check_draws(draws, "elo")
    if len(comparisons.models) < 2:
        raise UsageError("elo: one model cannot be compared; at least two are needed.")
    _check_k(k)
    idle = np.flatnonzero(comparisons.games() == 0)
    if len(idle):
        raise UsageError(f"elo: {comparisons.models[idle[0]]} met no other; leave out or compare.")
    if order not in ("random", "given"):
        raise UsageError(f"elo: order must be 'random' or 'given', got {order!r}.")
    if orders < 2:
        raise UsageError(f"elo: orders must be at least 2, got {orders}.")
    generator, given = rng.numpy(), order == "given"
    met = comparisons if given else _canonical(comparisons)
    n, group = len(met), cluster_of(met)
    clusters = None if group is None else int(group.max()) + 1
    if clusters == 1:
        raise UsageError("elo: all comparisons share one cluster; at least two are needed.")
    steps = n if given else min(n, max(10_000, int(16_000 * len(met.models) / k)))
    each = 1 if given else int(np.clip(PACE / (draws * steps), 1, orders))
    if given:
        ratings = elo_passes(met, k=k)[0]
        by_order = np.zeros_like(ratings)
    else:
        whole = (_some(np.arange(n), steps, generator) for _ in range(orders))
        passes = _passes(met, whole, orders, steps, k)
        ratings, by_order = passes.mean(axis=0), passes.var(axis=0, ddof=1)
    groups = _Groups.of(group, n)

    def resampled() -> Iterator[Codes]:
        for _ in range(draws):
            rows = groups.drawn(generator)
            for _ in range(each):
                yield np.sort(rows) if given else _some(rows, steps, generator)

    star = _passes(met, resampled(), draws * each, steps, k).reshape(draws, each, -1)
    drawn = star.mean(axis=1)
    if each > 1:  # resamples tell of the order too
        within = star.var(axis=1, ddof=1).mean(axis=0)
        df = np.array([orders - 1, draws * (each - 1)])
        by_order = df @ np.stack([by_order, within]) / df.sum()
    spread = drawn.var(axis=0, ddof=1)
    data = np.maximum(spread - by_order / each, spread * math.sqrt(2 / draws))
    se = np.sqrt(data + by_order / orders)
    scale = se / np.maximum(np.sqrt(spread), 1e-300)
    drawn = ratings + (drawn - drawn.mean(axis=0)) * scale
    return Elo(ratings, se, np.sqrt(by_order), drawn, clusters)


def _some(rows: Codes, steps: int, generator: np.random.Generator) -> Codes:
    """Return so many rows in a random order; of far more, each may come again."""
    if 10 * steps < len(rows):
        return np.asarray(rows[generator.integers(len(rows), size=steps)])
    return np.asarray(generator.permutation(rows)[:steps])


def _passes(met: Comparisons, orders: Iterator[Codes], many: int, steps: int, k: float) -> Array:
    """Return the ratings after each of ``many`` orders, some at a time."""
    found = np.empty((many, len(met.models)))
    block = max(1, BLOCK // steps)
    for begin in range(0, many, block):
        places = np.empty((min(block, many - begin), steps), dtype=np.int32)
        for row in places:
            row[:] = next(orders)
        found[begin : begin + block] = elo_passes(met, k=k, order=places)
    return found


def elo_passes(
    comparisons: Comparisons,
    *,
    k: float = 16.0,
    initial: float = 1000.0,
    order: npt.ArrayLike | None = None,
) -> Array:
    """Return Elo ratings after all comparisons, one at a time, for each order given.

    Parameters
    ----------
    comparisons
        What is rated; clusters are not used.
    k
        How far one comparison moves a rating, in points, above 0.
    initial
        Where all start.
    order
        Places of rows, shape ``(orders, steps)``; None is the given order, once.

    Returns
    -------
    numpy.ndarray
        Ratings, shape ``(orders, m)``.

    Examples
    --------
    >>> met = Comparisons.of(["a", "a"], ["b", "b"], [1, 1])
    >>> elo_passes(met, k=32).round(3).tolist()
    [[1030.53, 969.47]]
    """
    _check_k(k)
    places = np.arange(len(comparisons))[None] if order is None else np.asarray(order)
    many, steps = places.shape
    ratings = np.full((many, len(comparisons.models)), float(initial))
    if many == 1:
        _one_pass(comparisons, places[0], k, ratings[0])
        return ratings
    flat, base = ratings.reshape(-1), np.arange(many) * len(comparisons.models)
    for step in range(steps):
        at = places[:, step]
        i, j = base + comparisons.first[at], base + comparisons.second[at]
        chance = 1 / (1 + np.exp((flat[j] - flat[i]) / ELO))
        gain = k * (comparisons.score[at] - chance)
        flat[i] += gain
        flat[j] -= gain
        if step % 4096 == 4095:
            progress.report("Elo in random orders", step + 1, steps)
    return ratings


def _check_k(k: float) -> None:
    if not 0 < k < math.inf:
        raise UsageError(f"elo: k must be above 0 and finite, got {k}.")


def _one_pass(comparisons: Comparisons, places: Codes, k: float, ratings: Array) -> None:
    found = ratings.tolist()  # one number at a time, lists are several times faster
    columns = (comparisons.first, comparisons.second, comparisons.score)
    for i, j, y in zip(*(each[places].tolist() for each in columns), strict=True):
        gain = k * (y - 1 / (1 + math.exp((found[j] - found[i]) / ELO)))
        found[i] += gain
        found[j] -= gain
    ratings[:] = found


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows that are drawn together, one group after another in ``rows``."""

    rows: Codes
    first: Codes
    size: Codes

    @classmethod
    def of(cls, group: Codes | None, n: int) -> _Groups:
        if group is None:
            return cls(np.arange(n), np.arange(n), np.ones(n, np.intp))
        size = np.bincount(group).astype(np.intp)
        return cls(np.argsort(group, kind="stable"), np.cumsum(size) - size, size)

    def drawn(self, generator: np.random.Generator) -> Codes:
        """Return as many rows as there are, of groups drawn with replacement."""
        n, count = len(self.rows), len(self.size)
        if count == n:
            return np.asarray(self.rows[generator.integers(n, size=n)])
        picked = generator.integers(count, size=count)
        while self.size[picked].sum() < n:
            picked = np.append(picked, generator.integers(count, size=1 + count // 20))
        size = self.size[picked]
        inside = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        return np.asarray(self.rows[np.repeat(self.first[picked], size) + inside][:n])


def _canonical(met: Comparisons) -> Comparisons:
    """Return the rows in an order that does not depend on the file's."""
    keys = [met.score, met.second, met.first]
    keys += [each for each in (met.prompt, met.cluster) if each is not None]
    order = np.lexsort(keys)
    columns: dict[str, Any] = {
        name: each[order]
        for name in ("first", "second", "score", "prompt", "cluster")
        if (each := getattr(met, name)) is not None
    }
    return replace(met, **columns)
