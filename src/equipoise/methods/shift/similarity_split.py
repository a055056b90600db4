r"""Splits at growing likeness: at threshold $\lambda$ no test row is as near to training.

A pair of rows with $s(x, y) \ge \lambda$ is never parted between training and test. The lower the
threshold, the farther from home the test rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError, nearest
from equipoise.kit.arrays.similarity import (
    Between,
    Similarities,
    cosine,
    from_matrix,
    similarities,
    tanimoto,
)
from equipoise.methods.shift import _partition

Algorithm = Literal["ccpart", "graphpart", "butina", "random"]

ALGORITHMS = ("ccpart", "graphpart", "butina", "random")

USABLE = 0.185
"""Least share of rows in test at which a threshold is kept: smaller tests say little."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A split of rows at one threshold.

    Parameters
    ----------
    threshold
        No training row is this much like a test row, unless ``algorithm`` was ``butina``,
        which only keeps clusters together, or ``random``.
    train, test
        Row numbers, rising.
    removed
        Rows that `graphpart` leaves out.
    clusters
        Cluster, component or part of each row.
    """

    threshold: float
    train: np.ndarray
    test: np.ndarray
    removed: np.ndarray
    clusters: np.ndarray

    @property
    def share(self) -> float:
        """Rows in test as a share of all."""
        return len(self.test) / len(self.clusters)


def threshold_grid(lowest: float = 0.1, step: float = 0.05, highest: float = 0.95) -> list[float]:
    """Return thresholds from ``lowest`` to ``highest``, to the tenth decimal.

    They are counted from the lowest one and not added up, so that 0.3 is 0.3 and pairs that are
    exactly as alike are linked.

    Examples
    --------
    >>> threshold_grid(0.1, 0.1, 0.4)
    [0.1, 0.2, 0.3, 0.4]
    """
    if not (0 < lowest <= highest <= 1 and step > 0):
        raise UsageError(
            f"threshold_grid: thresholds must rise within (0, 1] by a positive step, got "
            f"{lowest:g} to {highest:g} by {step:g}."
        )
    count = int((highest - lowest) / step + 1e-9) + 1
    return [round(lowest + step * index, 10) for index in range(count)]


def similarity_partition(
    similarity: Any,
    threshold: float,
    *,
    test_size: float = 0.2,
    labels: npt.ArrayLike | None = None,
    algorithm: Algorithm = "ccpart",
    seed: int | None = None,
    bins: int = 10,
    parts: int = 10,
) -> Partition:
    r"""Split rows so that none in test is at least ``threshold`` like one in training.

    CCPart links rows with :math:`s \ge \lambda` and takes connected components, smallest first,
    into test while

    .. math:: |T| + |C| < \text{test\_size} \cdot n .

    Components are never cut, so the test rows are the isolated, unusual ones. With ``labels``
    the bound itself may be reached, and a component is passed over when a label that is in test
    already would go over 1.3 times its fair share, ``test_size * n / kinds of label``.

    Parameters
    ----------
    similarity
        Matrix ``(n, n)``, dense or sparse (absent pairs count as 0), or
        `kit.arrays.similarity.Similarities`.
    threshold
        :math:`\lambda` in (0, 1].
    test_size
        Share of rows to test, in (0, 1).
    labels
        Labels to balance, ``(n,)``; numbers of which more than half differ are put into bins of
        equally many.
    algorithm
        ``"ccpart"``; ``"graphpart"`` balances ``parts``, leaves rows out that touch two, and tests
        the parts that come nearest to ``test_size``;
        ``"butina"`` tests the smallest clusters of neighbours around a centre, and rows of
        different clusters may be alike; ``"random"``.
    seed
        Shuffles components of equal size; by default they come in the order of their first rows.
    bins
        Bins for labels that are numbers.
    parts
        How many parts GraphPart makes.

    Raises
    ------
    UsageError
        If the similarity is not symmetric, not from 0 to 1 or not finite, or a parameter is out
        of its range.

    References
    ----------
    AU-GOOD, ICLR 2025, section 3; GraphPart: Teufel et al., NAR Genomics and Bioinformatics 2023.

    Examples
    --------
    >>> blocks = np.kron(np.eye(5), np.ones((2, 2)))
    >>> similarity_partition(blocks, 0.5, test_size=0.5).test
    array([0, 1, 2, 3])
    """
    similar = from_matrix(similarity)
    n = len(similar)
    if not 0 < threshold <= 1:
        raise UsageError(
            f"similarity_partition: threshold must be above 0 and at most 1, got {threshold}."
        )
    if not 0 < test_size < 1:
        raise UsageError(
            f"similarity_partition: test_size must be within 0 and 1, got {test_size}."
        )
    if algorithm not in ALGORITHMS:
        raise UsageError(
            f'similarity_partition: there is no algorithm "{algorithm}".'
            f"{nearest(algorithm, ALGORITHMS)} All: {', '.join(ALGORITHMS)}."
        )
    kinds = None if labels is None else _labels(labels, n, bins)
    removed = np.zeros(n, bool)
    if algorithm == "random":
        test, clusters = _partition.random_part(n, test_size, seed), np.arange(n)
    elif algorithm == "graphpart":
        test, removed, clusters = _partition.graph_part(similar, threshold, test_size, kinds, parts)
    else:
        part = _partition.ccpart if algorithm == "ccpart" else _partition.butina
        test, clusters = part(similar, threshold, test_size, kinds, seed)
    return Partition(
        float(threshold),
        np.flatnonzero(~test & ~removed),
        np.flatnonzero(test),
        np.flatnonzero(removed),
        clusters,
    )


def usable_partitions(
    similarity: Any,
    thresholds: Sequence[float],
    *,
    smallest: float = USABLE,
    **options: Any,
) -> list[Partition]:
    """Return the partitions whose test set is large enough, by rising threshold.

    Parameters
    ----------
    similarity, options
        As for `similarity_partition`.
    thresholds
        In (0, 1]. Those at which GraphPart finds no partition are passed over.
    smallest
        Least share of rows in test.

    Raises
    ------
    UsageError
        If none is large enough; the sentence gives the largest.

    Examples
    --------
    >>> blocks = np.kron(np.eye(5), np.ones((2, 2)))
    >>> [each.threshold for each in usable_partitions(blocks, [0.5, 1.0], test_size=0.5)]
    [0.5, 1.0]
    """
    similar = from_matrix(similarity)
    found, why = [], ""
    for threshold in sorted(set(thresholds)):
        try:
            found.append(similarity_partition(similar, threshold, **options))
        except UsageError as error:
            if options.get("algorithm") != "graphpart":
                raise
            why = f" ({error})"
    kept = [each for each in found if each.share >= smallest]
    if not kept:
        most = max((each.share for each in found), default=0.0)
        raise UsageError(
            f"similarity_partition: at no threshold is {smallest:.1%} of the rows tested, the most "
            f"is {most:.1%}{why}; give higher thresholds or a lower smallest share."
        )
    return kept


class SimilaritySplit:
    """Cross-validation splits at growing likeness, for scikit-learn's functions.

    Parameters
    ----------
    similarity
        ``"tanimoto"`` of bits (0 and 1), ``"cosine"``, ``"precomputed"`` (X is the matrix), or a
        callable on two blocks of rows.
    thresholds
        By default `threshold_grid`.
    smallest
        Thresholds with a smaller share of rows in test are left out.
    balance
        Balance the labels y.
    test_size, algorithm, seed
        As for `similarity_partition`.

    Examples
    --------
    >>> X = np.repeat(np.eye(10), 5, axis=0)
    >>> split = SimilaritySplit("cosine", thresholds=[0.5], smallest=0.1)
    >>> [(len(train), len(test)) for train, test in split.split(X)]
    [(45, 5)]
    """

    def __init__(
        self,
        similarity: str | Between = "tanimoto",
        *,
        thresholds: Sequence[float] | None = None,
        test_size: float = 0.2,
        smallest: float = USABLE,
        algorithm: Algorithm = "ccpart",
        balance: bool = False,
        seed: int | None = None,
    ) -> None:
        self.similarity = similarity
        self.thresholds = thresholds
        self.test_size = test_size
        self.smallest = smallest
        self.algorithm = algorithm
        self.balance = balance
        self.seed = seed

    def partitions(self, X: Any, y: Any = None) -> list[Partition]:
        """Return the usable partitions of rows, by rising threshold."""
        thresholds = threshold_grid() if self.thresholds is None else list(self.thresholds)
        if self.balance and y is None:
            raise UsageError("SimilaritySplit: to balance labels, give y.")
        return usable_partitions(
            self._similar(X, min(thresholds)),
            thresholds,
            smallest=self.smallest,
            test_size=self.test_size,
            algorithm=self.algorithm,
            labels=y if self.balance else None,
            seed=self.seed,
        )

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows to train on and to test, by rising threshold."""
        for each in self.partitions(X, y):
            yield each.train, each.test

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return how many thresholds are usable; it takes the rows to tell."""
        if X is None:
            raise UsageError("SimilaritySplit: how many splits there are depends on X; give it.")
        return len(self.partitions(X, y))

    def _similar(self, X: Any, minimum: float) -> Similarities:
        if callable(self.similarity):
            return similarities(np.asarray(X), self.similarity, minimum=minimum)
        if self.similarity == "precomputed":
            return from_matrix(X)
        if self.similarity == "cosine":
            return similarities(np.asarray(X, float), cosine, minimum=minimum)
        if self.similarity == "tanimoto":
            return similarities(packed(X), tanimoto, minimum=minimum)
        raise UsageError(
            "SimilaritySplit: similarity must be tanimoto, cosine, precomputed or a callable, got "
            f"{self.similarity!r}."
        )


def packed(X: Any) -> np.ndarray:
    """Return rows of 0 and 1 as packed fingerprints; those that are packed as they are."""
    from equipoise.kit.arrays.similarity import pack_bits

    found = np.asarray(X)
    if found.dtype == np.uint64:
        return found
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        raise UsageError(
            "tanimoto: fingerprints are bits, 0 or 1; for other numbers take the cosine."
        )
    return pack_bits(found)


def _labels(labels: npt.ArrayLike, n: int, bins: int) -> np.ndarray:
    found = np.asarray(labels)
    if found.shape != (n,):
        raise UsageError(
            f"similarity_partition: labels must be one a row, got {found.shape} for {n} rows."
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise UsageError("similarity_partition: labels must be finite.")
    return _partition.binned(found, bins)
