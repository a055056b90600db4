r"""Similarities of rows, from 0 to 1, block by block: only pairs that are alike are kept.

Tanimoto's similarity of two bit fingerprints is
$s(x, y) = |x \wedge y| / |x \vee y|$, counted on 64 bits at a time. Cosine similarity is
$x \cdot y / (\|x\| \|y\|)$ with negative values as 0. Any other is a callable on two blocks of
rows, or a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from equipoise.core import UsageError
from equipoise.kit.progress import report

Between = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps two blocks of rows ``(a, k)`` and ``(b, k)`` to their similarities ``(a, b)``."""

_BLOCK = 256  # rows of a block: its counts and words stay in the processor's cache
_WIDE = 4096  # rows that a block is compared with at once, where they differ from its own
_SLACK = 1e-6  # what rounding may add to a similarity
_EXCESS = "must lie from 0 to 1"


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """The pairs of rows that are at least ``minimum`` alike.

    Parameters
    ----------
    pairs
        A sparse array ``(n, n)``; the pair of rows i < j stands once, at ``[i, j]``, unless it
        is not alike at all.
    minimum
        Pairs less alike than this are not kept, so nothing can be asked below it.
    """

    pairs: Any
    minimum: float

    def __len__(self) -> int:
        return int(self.pairs.shape[0])

    def graph(self, threshold: float) -> Any:
        """Return a sparse array with the pairs i < j that are at least ``threshold`` alike.

        Raises
        ------
        UsageError
            If the threshold lies below ``minimum``, or is not above 0.
        """
        if not threshold > 0:
            raise UsageError(
                f"Similarities: a threshold must be above 0, where all rows are as alike, got "
                f"{threshold:g}."
            )
        if threshold < self.minimum:
            raise UsageError(
                f"Similarities: a threshold of {threshold:g} needs the pairs from there on, but "
                f"only those from {self.minimum:g} are kept; compute them with a minimum of "
                f"{threshold:g} or less."
            )
        pairs = self.pairs
        keep = pairs.data >= pairs.data.dtype.type(threshold)
        before = np.zeros(len(keep) + 1, pairs.indptr.dtype)
        np.cumsum(keep, out=before[1:])
        kept = (pairs.data[keep], pairs.indices[keep], before[pairs.indptr])
        return sp.csr_array(kept, shape=pairs.shape)

    def linked(self, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows i < j of every pair that is at least ``threshold`` alike."""
        graph = self.graph(threshold)
        first = np.repeat(np.arange(len(self)), np.diff(graph.indptr))
        return first, graph.indices.astype(np.intp)


def pack_bits(bits: npt.ArrayLike) -> np.ndarray:
    """Return truth values ``(n, bits)`` as words ``(n, ceil(bits / 64))``.

    Examples
    --------
    >>> pack_bits([[True, False, True]]).shape
    (1, 1)
    """
    found = np.packbits(np.atleast_2d(np.asarray(bits, bool)), axis=1)
    missing = -found.shape[1] % 8
    words: np.ndarray = np.pad(found, ((0, 0), (0, missing))).view(np.uint64)
    return words


def tanimoto(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Tanimoto's similarity of packed fingerprints; two empty ones are alike.

    Parameters
    ----------
    a, b
        Words as of `pack_bits`, ``(n, words)`` and ``(m, words)``.

    Examples
    --------
    >>> rows = pack_bits([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
    >>> tanimoto(rows, rows).round(2).tolist()
    [[1.0, 0.33, 0.0], [0.33, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    both = _common_bits(a, b)
    either = _sizes(a)[:, None] + _sizes(b)[None, :] - both
    return np.asarray(np.divide(both, either, out=np.ones(both.shape), where=either > 0))


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine of rows of numbers, 0 where it is negative.

    Examples
    --------
    >>> cosine(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [-1.0, 0.0]])).round(3).tolist()
    [[0.707, 0.0]]
    """
    lengths = [np.linalg.norm(each, axis=1, keepdims=True) for each in (a, b)]
    if not all(map(np.all, lengths)):
        raise UsageError("cosine: a row of zeros has no direction; leave it out, or add a feature.")
    return np.asarray(np.clip((a / lengths[0]) @ (b / lengths[1]).T, 0.0, 1.0))


def similarities(
    rows: np.ndarray, similarity: Between = tanimoto, *, minimum: float = 0.0
) -> Similarities:
    """Return the pairs of rows that are at least ``minimum`` alike.

    The memory taken grows with the pairs kept, not with all there are.

    Parameters
    ----------
    rows
        ``(n, k)``: packed fingerprints for `tanimoto`, finite numbers for others.
    similarity
        `tanimoto`, `cosine`, or a callable on two blocks of rows; symmetric, from 0 to 1.
    minimum
        In [0, 1].

    Raises
    ------
    UsageError
        If rows are not finite, or the similarity is not finite, not from 0 to 1 or not
        symmetric.

    Examples
    --------
    >>> rows = pack_bits([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    >>> similarities(rows, minimum=0.3).linked(0.33)
    (array([0]), array([1]))
    """
    _check_rows(rows, similarity)
    _check_minimum(minimum)
    n = len(rows)
    counts = np.zeros(n + 1, np.int64)
    columns, values = [], []
    for start in range(0, n, _BLOCK):
        found = [
            (i, j + place, s)
            for place, block in _blocks(rows, start)
            for i, j, s in [_alike(rows[start : start + _BLOCK], block, similarity, minimum)]
        ]
        i, j, s = (np.concatenate(parts) for parts in zip(*found, strict=True))
        keep = j > i + start
        order = np.argsort(i[keep], kind="stable")
        counts[start + 1 : start + 1 + _BLOCK] += np.bincount(
            i[keep], minlength=min(_BLOCK, n - start)
        )
        columns.append(j[keep][order].astype(np.int32))
        values.append(s[keep][order])
        if n > _WIDE:
            report("comparing rows", min(start + _BLOCK, n), n)
    indices = np.concatenate(columns)
    columns.clear()  # so that pairs are not held twice
    data = (np.concatenate(values), indices, np.cumsum(counts))
    return Similarities(sp.csr_array(data, shape=(n, n)), float(minimum))


def from_matrix(matrix: Any) -> Similarities:
    """Return a matrix of similarities as pairs, dense or sparse; absent ones count as 0.

    Raises
    ------
    UsageError
        If it is not square, not finite, not from 0 to 1 or not symmetric.

    Examples
    --------
    >>> from_matrix([[1.0, 0.4], [0.4, 1.0]]).linked(0.5)
    (array([], dtype=int64), array([], dtype=int64))
    """
    if isinstance(matrix, Similarities):
        return matrix
    sparse = bool(sp.issparse(matrix))
    found: Any = sp.csr_array(matrix) if sparse else np.asarray(matrix, float)
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise UsageError(
            f"Similarities: a matrix must have a row and a column for each item, got {found.shape}."
        )
    _check_values(found.data if sparse else found)
    across = found.T.tocsr() if sparse else found.T
    for start in range(0, found.shape[0], _BLOCK):
        difference = abs(found[start : start + _BLOCK] - across[start : start + _BLOCK])
        if difference.max() > _SLACK:
            row, j = divmod(int(difference.argmax()), found.shape[0])
            i = row + start
            raise UsageError(
                f"Similarities: a matrix must be symmetric, but items {i} and {j} are "
                f"{found[i, j]:g} alike one way and {found[j, i]:g} the other; take the larger, "
                f"say, of both."
            )
    return Similarities(sp.csr_array(sp.triu(found, k=1)), 0.0)


def nearest(rows: np.ndarray, others: np.ndarray, similarity: Between = tanimoto) -> np.ndarray:
    """Return how alike each row is to the one of ``others`` that is most alike, ``(n,)``.

    Examples
    --------
    >>> nearest(np.eye(2), np.array([[1.0, 1.0]]), cosine).round(3).tolist()
    [0.707, 0.707]
    """
    if not len(others):
        raise UsageError("nearest: there are no rows to be alike to.")
    _check_rows(rows, similarity)
    _check_rows(others, similarity)
    best = np.zeros(len(rows))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        for place in range(0, len(others), _WIDE):
            found = np.asarray(similarity(block, others[place : place + _WIDE]), float)
            _check_values(found)
            here = best[start : start + _BLOCK]
            np.maximum(here, found.max(axis=1), out=here)
    return best


def _blocks(rows: np.ndarray, start: int) -> Iterator[tuple[int, np.ndarray]]:
    for place in range(start, len(rows), _WIDE):
        yield place, rows[place : place + _WIDE]


def _alike(
    a: np.ndarray, b: np.ndarray, similarity: Between, minimum: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of two blocks that are at least ``minimum`` alike, with how much."""
    if similarity is tanimoto:
        both = _common_bits(a, b)
        size_a, size_b = _sizes(a), _sizes(b)
        # In whole numbers first, a little generously: divisions are for the few that are left.
        least = minimum * (1 - 1e-6) * (size_a[:, None] + size_b[None, :]).astype(np.float32)
        i, j = np.nonzero((1 + minimum) * both.astype(np.float32) >= least - 1e-3)
        shared = both[i, j]
        either = size_a[i] + size_b[j] - shared
        s = np.divide(shared, either, out=np.ones(len(i)), where=either > 0)
    else:
        found = np.asarray(similarity(a, b), float)
        if found.shape != (len(a), len(b)):
            raise UsageError(
                f"similarities: blocks of {len(a)} and {len(b)} rows must give as many "
                f"similarities as pairs, got {found.shape}."
            )
        _check_values(found)
        corner = min(len(a), len(b), 64)
        back = np.asarray(similarity(b[:corner], a[:corner]), float)
        if np.abs(back.T - found[:corner, :corner]).max(initial=0.0) > _SLACK:
            raise UsageError(
                "similarities: a similarity must be symmetric, but two rows are not as alike one "
                "way as the other; take the larger, say, of both."
            )
        i, j = np.nonzero(found >= minimum - _SLACK)
        s = found[i, j]
    kept = s.astype(np.float32)
    enough = (kept >= np.float32(minimum)) & (kept > 0)
    return i[enough], j[enough], kept[enough]


def _common_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    both = np.zeros((len(a), len(b)), np.int32)
    for start in range(0, len(a), 64):
        rows = a[start : start + 64]
        for place in range(0, len(b), 512):
            others = b[place : place + 512]
            words = np.empty((len(rows), len(others)), np.uint64)
            ones = np.empty(words.shape, np.uint8)
            sums = np.zeros(words.shape, np.uint16)
            for word in range(a.shape[1]):
                np.bitwise_and(rows[:, word, None], others[None, :, word], out=words)
                np.bitwise_count(words, out=ones)
                sums += ones
            both[start : start + 64, place : place + 512] = sums
    return both


def _sizes(packed: np.ndarray) -> np.ndarray:
    return np.asarray(np.bitwise_count(packed).sum(axis=1, dtype=np.int32))


def _check_minimum(minimum: float) -> None:
    if not 0 <= minimum <= 1:
        raise UsageError(f"similarities: minimum {_EXCESS}, got {minimum}.")


def _check_rows(rows: np.ndarray, similarity: Between) -> None:
    if rows.ndim != 2 or not len(rows):
        raise UsageError(f"similarities: rows must be (n, k) with n at least 1, got {rows.shape}.")
    if similarity is tanimoto:
        if rows.dtype != np.uint64:
            raise UsageError("tanimoto: fingerprints must be packed; use pack_bits.")
    elif rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise UsageError("similarities: rows must be finite numbers.")


def _check_values(found: np.ndarray) -> None:
    if not np.isfinite(found).all():
        raise UsageError("Similarities must be finite numbers; one is NaN or infinite.")
    low, high = float(found.min(initial=0.0)), float(found.max(initial=0.0))
    if low < -_SLACK or high > 1 + _SLACK:
        worst = low if low < -_SLACK else high
        raise UsageError(
            f"Similarities {_EXCESS}, got {worst:g}; turn distances d into 1 / (1 + d), say."
        )
