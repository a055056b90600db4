"""How rows are parted so that test rows are unlike training rows: CCPart, GraphPart, Butina."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.similarity import Similarities

_SURPLUS = 1.3  # how far over its fair share a label may go in test


def ccpart(
    similar: Similarities,
    threshold: float,
    test_size: float,
    labels: np.ndarray | None,
    seed: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are tested, and each row's connected component."""
    graph = similar.graph(threshold)
    clusters = connected_components(graph, directed=False)[1].astype(np.intp)
    return smallest_first(clusters, test_size, labels, seed), clusters


def butina(
    similar: Similarities,
    threshold: float,
    test_size: float,
    labels: np.ndarray | None,
    seed: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are tested, and each row's cluster, named by its centre.

    Rows with the most neighbours come first and take all neighbours that no other has taken.
    """
    graph = _both_ways(similar, threshold)
    clusters = np.full(len(similar), -1, np.intp)
    for row in np.argsort(-np.diff(graph.indptr), kind="stable"):
        if clusters[row] < 0:
            members = np.append(graph.indices[graph.indptr[row] : graph.indptr[row + 1]], row)
            clusters[members[clusters[members] < 0]] = row
    return smallest_first(clusters, test_size, labels, seed), clusters


def smallest_first(
    clusters: np.ndarray, test_size: float, labels: np.ndarray | None, seed: int | None
) -> np.ndarray:
    """Return the mask of tested rows: clusters by size while they fit, smallest first."""
    n = len(clusters)
    _, code, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    ties = np.arange(len(sizes)) if seed is None else _shuffled(len(sizes), seed)
    order = ties[np.argsort(sizes[ties], kind="stable")]
    taken = np.zeros(len(sizes), bool)
    if labels is None:
        # Sizes rise, so what does not fit now fits no more.
        taken[order] = np.cumsum(sizes[order]) / n < test_size
        return np.asarray(taken[code])
    kinds, label = np.unique(labels, return_inverse=True)
    most = _SURPLUS * test_size * n / len(kinds)
    members = np.split(np.argsort(code, kind="stable"), np.cumsum(sizes)[:-1])
    count = np.zeros(len(kinds), np.intp)
    for cluster in order:
        new = np.bincount(label[members[cluster]], minlength=len(kinds))
        if (count.sum() + new.sum()) / n > test_size:
            continue
        if ((count > 0) & (new > 0) & (count + new > most)).any():
            continue
        count += new
        taken[cluster] = True
    return np.asarray(taken[code])


def binned(labels: np.ndarray, bins: int) -> np.ndarray:
    """Return labels as they are, or where most differ, their quantile bins."""
    if len(np.unique(labels)) <= 0.5 * len(labels) or labels.dtype.kind not in "fiu":
        return labels
    edges = np.unique(np.percentile(labels, np.linspace(0, 100, bins + 1)))
    return np.searchsorted(edges[1:-1], labels, side="right")


def random_part(n: int, test_size: float, seed: int | None) -> np.ndarray:
    """Return the mask of a random share of rows."""
    test = np.zeros(n, bool)
    test[_shuffled(n, seed or 0)[: math.ceil(test_size * n)]] = True
    return test


@dataclass(slots=True)
class _Parts:
    """Which part each row is in, and how many neighbours in each part it has.

    A row that is left out keeps its part but is nobody's neighbour.
    """

    graph: sp.csr_array
    part: np.ndarray
    kept: np.ndarray
    near: np.ndarray

    @classmethod
    def of(cls, graph: sp.csr_array, part: np.ndarray, parts: int) -> _Parts:
        near = np.asarray(graph @ np.eye(parts)[part]).astype(np.intp)
        return cls(graph, part, np.ones(len(part), bool), near)

    def forbidden(self) -> np.ndarray:
        """Return each row's neighbours in other parts."""
        own = self.near[np.arange(len(self.part)), self.part]
        return np.where(self.kept, self.near.sum(axis=1) - own, 0)

    def neighbours(self, row: int) -> np.ndarray:
        return self.graph.indices[self.graph.indptr[row] : self.graph.indptr[row + 1]]

    def move(self, row: int, to: int) -> None:
        around = self.neighbours(row)
        self.near[around, self.part[row]] -= 1
        self.near[around, to] += 1
        self.part[row] = to

    def leave_out(self, row: int) -> None:
        self.near[self.neighbours(row), self.part[row]] -= 1
        self.kept[row] = False


def graph_part(
    similar: Similarities,
    threshold: float,
    test_size: float,
    labels: np.ndarray | None,
    parts: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which rows are tested, which are left out, and the part of each.

    Single linkage, most alike first, makes clusters of at most a part's size; they are dealt out
    so that parts are balanced; rows move to the part where most of their neighbours are; those
    with the most neighbours elsewhere are left out, few at a time, until no part touches another.
    """
    n = len(similar)
    if parts > n:
        raise UsageError(f"similarity_partition: {n} rows make no {parts} parts; give fewer parts.")
    code = np.zeros(n, np.intp) if labels is None else np.unique(labels, return_inverse=True)[1]
    clusters = _limited_linkage(similar, threshold, code, parts)
    state = _Parts.of(_both_ways(similar, threshold), _dealt(clusters, code, parts), parts)
    turn = 0
    while True:
        for row in np.flatnonzero(state.forbidden()):
            best = int(state.near[row].argmax())
            if state.near[row, best] > state.near[row, state.part[row]]:
                state.move(int(row), best)
        wrong = state.forbidden()
        if not wrong.any():
            break
        turn += 1
        count = int(wrong.sum() * math.log10(turn) / 100) + 1
        for row in np.argsort(-wrong, kind="stable")[:count]:
            if wrong[row]:
                state.leave_out(int(row))
    sizes = np.bincount(state.part[state.kept], minlength=parts)
    if not sizes.all():
        raise UsageError(
            f"similarity_partition: GraphPart leaves {int((sizes == 0).sum())} of {parts} parts "
            f"empty at a threshold of {threshold:g}; raise the threshold, or give fewer parts."
        )
    inside = np.zeros(parts, bool)
    missing = test_size * sizes.sum()
    for each in range(parts):
        if abs(missing - sizes[each]) < abs(missing):
            inside[each] = True
            missing -= sizes[each]
    return inside[state.part] & state.kept, ~state.kept, state.part


def _limited_linkage(
    similar: Similarities, threshold: float, code: np.ndarray, parts: int
) -> np.ndarray:
    """Return clusters by single linkage that stops before one outgrows a part."""
    n = len(code)
    most, limits = n // parts, np.ceil(np.bincount(code) / parts)
    counts = np.eye(len(limits), dtype=np.intp)[code]
    parent = np.arange(n)

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = int(parent[row])
        return row

    i, j = similar.linked(threshold)
    for edge in np.argsort(-similar.graph(threshold).data, kind="stable"):
        a, b = root(int(i[edge])), root(int(j[edge]))
        if a == b or max(counts[a].sum(), counts[b].sum()) >= most:
            continue
        if (counts[a] + counts[b] > limits).any():
            continue
        parent[b] = a
        counts[a] += counts[b]
    return np.array([root(row) for row in range(n)])


def _dealt(clusters: np.ndarray, code: np.ndarray, parts: int) -> np.ndarray:
    """Return a part for each row: clusters go where their labels are rarest, largest first."""
    names, of, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    kinds = int(code.max()) + 1
    table = np.zeros((len(names), kinds), np.intp)
    np.add.at(table, (of, code), 1)
    held = np.ones((parts, kinds))
    place = np.empty(len(names), np.intp)
    for cluster in np.argsort(-sizes, kind="stable"):
        share = (held / (held + table[cluster])).sum(axis=1)
        # The smaller the share that is held already, the more the cluster adds.
        place[cluster] = int(share.argmin())
        held[place[cluster]] += table[cluster]
    return np.asarray(place[of])


def _both_ways(similar: Similarities, threshold: float) -> sp.csr_array:
    i, j = similar.linked(threshold)
    ends = np.concatenate([i, j]), np.concatenate([j, i])
    return sp.csr_array((np.ones(2 * len(i)), ends), shape=(len(similar),) * 2)


def _shuffled(n: int, seed: int) -> np.ndarray:
    return Rng(seed).child("partition").numpy().permutation(n)
