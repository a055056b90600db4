r"""Adaptive evaluation: find the best of many methods from a part of all (method, item) pairs.

The scores of $m$ methods on $n$ items are a matrix $M \in [0, 1]^{m \times n}$, and the best method
is $\arg\max_i \mu_i$, $\mu_i = \frac1n \sum_j M_{ij}$. A policy decides cell by cell what to run
and names the method with the highest estimate when the budget is spent. Section numbers are those
of "On Speeding Up Language Model Evaluation" (ICLR 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.core import Rng, Subject, between
from equipoise.kit.statistics.allocation import UCBE, Allocates, Allocation, UCBELowRank
from equipoise.methods.evaluation._adaptive_search import (
    BestFound,
    FixedOrder,
    Run,
    hardness,
    search,
)

__all__ = [
    "BestFound",
    "FilledSubset",
    "LowRankImputation",
    "RowMeanImputation",
    "UCBELRFPolicy",
    "UCBEPolicy",
    "filled_subset",
    "hardness",
    "low_rank_imputation",
    "row_mean_imputation",
    "ucb_e",
    "ucb_e_lrf",
]


# Section 3.1: UCB-E


@dataclass(frozen=True)
class UCBEPolicy(Subject):
    r"""Upper confidence bound exploration: run the method that may still be the best.

    .. math:: B_i = \hat\mu_i + \sqrt{a / N_i}

    Each batch goes to the method with the highest bound, on items it has not had, in random
    order. Best where methods differ by much.

    Parameters
    ----------
    a
        Weight of exploration.
    batch
        Items run between two decisions.
    same_order
        Give every method the items in one random order, so that their scores are pairs; else
        each has an order of its own, as in the paper.

    References
    ----------
    "On Speeding Up Language Model Evaluation", ICLR 2025, algorithm 1.

    Examples
    --------
    >>> policy = UCBEPolicy(batch=8).load(Rng(0)).allocate(3, 100, Rng(1))
    >>> [int(policy.next()[0][0]) for _ in range(3)]
    [0, 1, 2]
    """

    provides = frozenset({Allocates})

    a: float = between(0.0, 1_000_000.0, default=1.0)
    batch: int = between(1, 1_000_000, default=32)
    same_order: bool = False

    def load(self, rng: Rng) -> Allocates:
        """Return the policy itself."""
        return self

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        """Return a fresh run of the policy."""
        generator = rng.child("order").numpy()
        rows = np.tile(np.arange(units), (1 if self.same_order else arms, 1))
        order = generator.permuted(rows, axis=1)
        return UCBE(arms, order[0] if self.same_order else order, a=self.a, batch=self.batch)


# Section 3.2: UCB-E-LRF


@dataclass(frozen=True)
class UCBELRFPolicy(Subject):
    r"""UCB-E with low-rank factorization: cells not run are predicted from those that were.

    .. math::
        B_i = \frac1n \sum_j \begin{cases} M_{ij} & \text{known} \\
            \hat m_{ij} + \eta \hat s_{ij} & \text{else} \end{cases}

    with mean and standard deviation over an ensemble of factorizations. For many methods that
    differ by little and solve the same items; with fewer than some tens, estimates fall towards 0.

    Parameters
    ----------
    rank
        Rank of the factorization.
    members
        Factorizations in the ensemble.
    eta
        Weight of exploration.
    warm_up
        Share of all cells drawn uniformly at first.
    ridge
        Ridge of the least squares.
    drop
        Probability that a member leaves out a known cell.
    iterations
        Rounds of alternating least squares.
    batch
        Cells run between two decisions.

    References
    ----------
    "On Speeding Up Language Model Evaluation", ICLR 2025, algorithm 2.

    Examples
    --------
    >>> policy = UCBELRFPolicy(members=4).load(Rng(0)).allocate(3, 100, Rng(1))
    >>> len(policy.next()[0])
    32
    """

    provides = frozenset({Allocates})

    rank: int = between(1, 100, default=1)
    members: int = between(2, 10_000, default=64)
    eta: float = between(0.0, 1_000_000.0, default=5.0)
    warm_up: float = between(0.0, 1.0, default=0.05)
    ridge: float = between(1e-9, 1_000_000.0, default=0.1)
    drop: float = between(0.0, 0.99, default=0.05)
    iterations: int = between(1, 10_000, default=10)
    batch: int = between(1, 1_000_000, default=32)

    @classmethod
    def tiny(cls) -> UCBELRFPolicy:
        """Return few members."""
        return cls(members=4)

    def load(self, rng: Rng) -> Allocates:
        """Return the policy itself."""
        return self

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        """Return a fresh run of the policy."""
        return UCBELowRank(
            arms, units, rng, rank=self.rank, members=self.members, eta=self.eta,
            warm_up=self.warm_up, ridge=self.ridge, drop=self.drop, iterations=self.iterations,
            batch=self.batch,
        )  # fmt: skip


# Section 4.1: baselines


@dataclass(frozen=True)
class RowMeanImputation(Subject):
    """Run cells drawn uniformly and take each method's mean over those it had.

    Examples
    --------
    >>> policy = RowMeanImputation().load(Rng(0)).allocate(3, 100, Rng(1))
    >>> len(set(policy.next()[0].tolist()))
    3
    """

    provides = frozenset({Allocates})

    def load(self, rng: Rng) -> Allocates:
        """Return the policy itself."""
        return self

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        """Return a fresh run of the policy."""
        cells = rng.child("order").numpy().permutation(arms * units)
        return FixedOrder(arms, units, cells, batch=32)


@dataclass(frozen=True)
class FilledSubset(Subject):
    """Run all methods on one random item after another.

    Examples
    --------
    >>> policy = FilledSubset().load(Rng(0)).allocate(16, 100, Rng(1))
    >>> arms, units = policy.next()
    >>> len(set(arms.tolist())), len(set(units.tolist()))
    (16, 2)
    """

    provides = frozenset({Allocates})

    def load(self, rng: Rng) -> Allocates:
        """Return the policy itself."""
        return self

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        """Return a fresh run of the policy."""
        items = rng.child("order").numpy().permutation(units)
        cells = (np.arange(arms) * units + items[:, np.newaxis]).ravel()
        return FixedOrder(arms, units, cells, batch=32)


@dataclass(frozen=True)
class LowRankImputation(Subject):
    """Run cells drawn uniformly and predict the others by low-rank factorization.

    Parameters
    ----------
    rank
        Rank of the factorization; the ensemble is that of UCB-E-LRF.

    Examples
    --------
    >>> policy = LowRankImputation().load(Rng(0)).allocate(3, 100, Rng(1))
    >>> len(set(policy.next()[0].tolist()))
    3
    """

    provides = frozenset({Allocates})

    rank: int = between(1, 100, default=1)

    def load(self, rng: Rng) -> Allocates:
        """Return the policy itself."""
        return self

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        """Return a fresh run of the policy."""
        return UCBELowRank(arms, units, rng, rank=self.rank, warm_up=1.0)


# The same as plain functions


def ucb_e(
    scores: npt.ArrayLike | Run,
    budget: float,
    *,
    shape: tuple[int, int] | None = None,
    a: float = 1.0,
    batch: int = 32,
    same_order: bool = False,
    fresh: int = 0,
    rng: Rng | None = None,
) -> BestFound:
    """Find the best method by upper confidence bound exploration.

    Parameters
    ----------
    scores
        A matrix of methods and items, scores in [0, 1] and NaN where a method has none; or a
        function that runs a method on items, ``run(method, items) -> scores``, both by their
        places. It is asked for cells that are due, each once.
    budget
        Cells to run: a whole number above 1, or a share of all in (0, 1].
    shape
        Numbers of methods and items, where ``scores`` is a function.
    a, batch, same_order
        As in `UCBEPolicy`.
    fresh
        Items kept apart from the search. The best method is run on them in the end, beyond the
        budget: its mean in the search is biased upwards, for it won partly by luck.
    rng
        Stream of the orders; ``Rng(0)`` when None.

    Returns
    -------
    BestFound
        The best method, all estimates and what was run.

    Raises
    ------
    UsageError
        On a budget or a number of fresh items that does not fit, no shape for a function, scores
        outside [0, 1] or as many as were not asked for, or no score at all.

    Examples
    --------
    >>> scores = (np.arange(1000) % 10 < np.array([[2], [9], [5], [4]])).astype(float)
    >>> found = ucb_e(scores, 0.25, fresh=200)
    >>> found.best, found.cells, found.fresh.n
    (1, 800, 200)
    """
    policy = UCBEPolicy(a=a, batch=batch, same_order=same_order)
    return search("ucb_e", policy, scores, budget, shape, fresh, rng)


def ucb_e_lrf(
    scores: npt.ArrayLike | Run,
    budget: float,
    *,
    shape: tuple[int, int] | None = None,
    rank: int = 1,
    members: int = 64,
    eta: float = 5.0,
    warm_up: float = 0.05,
    ridge: float = 0.1,
    drop: float = 0.05,
    iterations: int = 10,
    batch: int = 32,
    fresh: int = 0,
    rng: Rng | None = None,
) -> BestFound:
    """Find the best method by UCB-E with low-rank factorization.

    Parameters
    ----------
    scores, budget, shape, fresh, rng
        As in `ucb_e`.
    rank, members, eta, warm_up, ridge, drop, iterations, batch
        As in `UCBELRFPolicy`.

    Examples
    --------
    >>> scores = (np.arange(200) % 10 < np.array([[2], [9], [5], [4]])).astype(float)
    >>> ucb_e_lrf(scores, 0.5).best
    1
    """
    policy = UCBELRFPolicy(rank, members, eta, warm_up, ridge, drop, iterations, batch)
    return search("ucb_e_lrf", policy, scores, budget, shape, fresh, rng)


def row_mean_imputation(
    scores: npt.ArrayLike | Run,
    budget: float,
    *,
    shape: tuple[int, int] | None = None,
    fresh: int = 0,
    rng: Rng | None = None,
) -> BestFound:
    """Take the method with the highest mean over cells drawn uniformly.

    Parameters are those of `ucb_e`.

    Examples
    --------
    >>> scores = (np.arange(200) % 10 < np.array([[2], [9], [5], [4]])).astype(float)
    >>> row_mean_imputation(scores, 0.5).best
    1
    """
    return search("row_mean_imputation", RowMeanImputation(), scores, budget, shape, fresh, rng)


def filled_subset(
    scores: npt.ArrayLike | Run,
    budget: float,
    *,
    shape: tuple[int, int] | None = None,
    fresh: int = 0,
    rng: Rng | None = None,
) -> BestFound:
    """Take the method with the highest mean over a few items that all are run on.

    Parameters are those of `ucb_e`.

    Examples
    --------
    >>> scores = (np.arange(200) % 10 < np.array([[2], [9], [5], [4]])).astype(float)
    >>> filled_subset(scores, 40).cells
    40
    """
    return search("filled_subset", FilledSubset(), scores, budget, shape, fresh, rng)


def low_rank_imputation(
    scores: npt.ArrayLike | Run,
    budget: float,
    *,
    shape: tuple[int, int] | None = None,
    rank: int = 1,
    fresh: int = 0,
    rng: Rng | None = None,
) -> BestFound:
    """Take the method with the highest mean over cells drawn uniformly and predictions elsewhere.

    Parameters are those of `ucb_e`, and the ``rank`` of the factorization.

    Examples
    --------
    >>> scores = (np.arange(200) % 10 < np.array([[2], [9], [5], [4]])).astype(float)
    >>> low_rank_imputation(scores, 0.5).best
    1
    """
    policy = LowRankImputation(rank=rank)
    return search("low_rank_imputation", policy, scores, budget, shape, fresh, rng)
