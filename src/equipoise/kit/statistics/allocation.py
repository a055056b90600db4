r"""Which arm to run on which units next, so that the best arm is found from a part of all cells.

A cell is one arm on one unit. `UCBE` is upper confidence bound exploration; `UCBELowRank` lets a
low-rank model of the matrix of scores stand in for the cells not run. Both are from "On Speeding
Up Language Model Evaluation" (ICLR 2025). What an allocation asks next depends on which cells were
asked and told so far, not on how it came there: a resumed run goes on as a whole one would.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics._common import Array
from equipoise.kit.statistics.low_rank import Places, check, check_fit, low_rank


class Allocation(Protocol):
    """A policy that says which cells to run next and what is known of the arms so far."""

    def next(self) -> tuple[Places, Places]:
        """Return the places of arms and of units of the next batch, empty when none is left."""
        ...

    def tell(self, arms: npt.ArrayLike, units: npt.ArrayLike, scores: npt.ArrayLike) -> None:
        """Take scores in [0, 1]; NaN for a cell that was run and has no score."""
        ...

    def means(self) -> Array:
        """Return the estimate of each arm's mean over all units, NaN where nothing is known."""
        ...

    def best(self) -> int:
        """Return the arm with the highest estimate."""
        ...


@runtime_checkable
class Allocates(Protocol):
    """Makes a policy for so many arms and units; ``rng`` is all it may draw from."""

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation: ...


class Cells:
    """The matrix of cells that a policy keeps: which were asked, and which scores came back.

    Parameters
    ----------
    arms, units
        How many there are; at least one each.
    batch
        Cells a call of ``next`` gives at most.
    """

    def __init__(self, arms: int, units: int, batch: int) -> None:
        who = type(self).__name__
        for name, count in (("arms", arms), ("units", units), ("batch", batch)):
            if count < 1:
                raise UsageError(f"{who}: {name} must be at least 1, got {count}.")
        self.scores: Array = np.full((arms, units), np.nan)
        self.asked: npt.NDArray[np.bool_] = np.zeros((arms, units), dtype=bool)
        self.batch = int(batch)
        self._asked = np.zeros(arms, dtype=np.intp)
        self._count = np.zeros(arms, dtype=np.intp)
        self._sum: Array = np.zeros(arms)

    def _give(self, arms: Places, units: Places) -> tuple[Places, Places]:
        """Mark cells, none of them asked before, as asked, and return them."""
        self.asked[arms, units] = True
        self._asked += np.bincount(arms, minlength=len(self._asked))
        return arms, units

    def tell(self, arms: npt.ArrayLike, units: npt.ArrayLike, scores: npt.ArrayLike) -> None:
        """Take what cells came to; cells that were never asked for are welcome too.

        Parameters
        ----------
        arms, units
            Places of the cells, arrays of one length.
        scores
            Scores in [0, 1]. NaN is a cell that was run and has no score: it stays missing, and
            is never asked again. A cell told again takes its new score.

        Raises
        ------
        UsageError
            On arrays of different lengths, a place outside the matrix or a score outside [0, 1].
        """
        who = type(self).__name__
        rows, columns, values = np.asarray(arms), np.asarray(units), np.asarray(scores, float)
        if not (rows.ndim == 1 and rows.shape == columns.shape == values.shape):
            raise UsageError(
                f"{who}: arms, units and scores must be lists of one length, got shapes "
                f"{rows.shape}, {columns.shape} and {values.shape}."
            )
        if not rows.size:
            return
        for name, places, size in zip(
            ("arm", "unit"), (rows, columns), self.scores.shape, strict=True
        ):
            if places.dtype.kind not in "iu" or places.min() < 0 or places.max() >= size:
                raise UsageError(
                    f"{who}: places of {name}s must be whole numbers from 0 to {size - 1}."
                )
        if (values < 0).any() or (values > 1).any():
            raise UsageError(
                f"{who}: scores must be from 0 to 1, got {np.nanmin(values):g} to "
                f"{np.nanmax(values):g}; scale them first."
            )
        self.asked[rows, columns] = True
        self.scores[rows, columns] = values
        for arm in np.unique(rows):  # whole rows, so that the order of telling leaves no trace
            row = self.scores[arm]
            known = ~np.isnan(row)
            self._asked[arm] = self.asked[arm].sum()
            self._count[arm] = known.sum()
            self._sum[arm] = row[known].sum()

    def means(self) -> Array:
        """Return the mean of each arm's scores, shape (arms,); NaN where it has none."""
        known = self._count > 0
        means: Array = np.full(len(known), np.nan)
        np.divide(self._sum, self._count, out=means, where=known)
        return means

    def best(self) -> int:
        """Return the arm with the highest estimate, the lowest of equal ones.

        Raises
        ------
        UsageError
            While no cell has a score.
        """
        means = self.means()
        if np.isnan(means).all():
            raise UsageError(f"{type(self).__name__}: no cell has a score, so no arm is best yet.")
        return int(np.nanargmax(means))


class UCBE(Cells):
    r"""Upper confidence bound exploration (UCB-E).

    The next batch goes to the arm with the highest bound

    .. math:: B_i = \hat\mu_i + \sqrt{a / N_i},

    $\hat\mu_i$ the mean of its scores and $N_i$ its cells asked so far; the bound of an arm never
    asked is infinite. An arm whose cells have all failed to give a score is taken at the mean of
    all scores, so that it neither wins nor eats the budget. Ties go to the lowest arm.

    Parameters
    ----------
    arms
        How many arms there are.
    order
        Units in the order to run them: shape (units,) for all arms, which makes the scores of
        two arms pairs, or (arms, units), an order for each.
    a
        Weight of exploration, at least 0.
    batch
        Cells of an arm a call of ``next`` gives at most.

    Raises
    ------
    UsageError
        If ``order`` is no permutation of the units, or ``a`` is below 0.

    Notes
    -----
    The paper is "On Speeding Up Language Model Evaluation" (ICLR 2025). The mean of the arm that
    wins is biased upwards, for it won partly by luck: run it on fresh units before you report it.

    Examples
    --------
    >>> truth = np.array([0.2, 0.9, 0.5])
    >>> policy = UCBE(3, np.arange(400), batch=10)
    >>> for _ in range(20):
    ...     arms, units = policy.next()
    ...     policy.tell(arms, units, units % 10 < 10 * truth[arms])
    >>> policy.best(), policy.asked.sum(axis=1)
    (1, array([ 10, 180,  10]))
    """

    def __init__(self, arms: int, order: npt.ArrayLike, *, a: float = 1.0, batch: int = 32) -> None:
        given = np.asarray(order)
        if given.ndim not in (1, 2) or (given.ndim == 2 and len(given) != arms):
            raise UsageError(
                f"UCBE: order must have shape (units,) or ({arms}, units), got {given.shape}."
            )
        super().__init__(arms, given.shape[-1], batch)
        if not np.array_equal(
            np.sort(given, axis=-1), np.broadcast_to(np.arange(given.shape[-1]), given.shape)
        ):
            raise UsageError(
                f"UCBE: order must name every unit from 0 to {given.shape[-1] - 1} once."
            )
        check("UCBE", "a", a, a >= 0, "at least 0")
        self.a = float(a)
        self._order = np.broadcast_to(given.astype(np.intp), self.scores.shape)

    def next(self) -> tuple[Places, Places]:
        """Return the next batch: places of arms (all the same) and of units."""
        left = self._asked < self.scores.shape[1]
        if not left.any():
            return _NOTHING, _NOTHING
        means = np.where(self._count > 0, self.means(), _middle(self._sum, self._count))
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = np.where(self._asked > 0, means + np.sqrt(self.a / self._asked), np.inf)
        arm = int(np.argmax(np.where(left, bounds, -np.inf)))
        walk = self._order[arm]
        units = walk[~self.asked[arm, walk]][: self.batch]
        return self._give(np.full(len(units), arm, dtype=np.intp), units)


class UCBELowRank(Cells):
    r"""Upper confidence bound exploration with low-rank factorization (UCB-E-LRF).

    First a share ``warm_up`` of all cells, drawn uniformly from the whole matrix. Then, each time,
    an ensemble of factorizations $M \approx U_k V_k^\top$ gives each cell not run a mean
    $\hat m$ and a standard deviation $\hat s$ over its members; the batch goes to the arm with
    the highest

    .. math::
        B_i = \frac1n \sum_j \begin{cases} M_{ij} & \text{known} \\
            \hat m_{ij} + \eta \hat s_{ij} & \text{else,} \end{cases}

    on its units with the largest $\hat s$. A cell asked for that has no score counts as
    $\hat m$. `low_rank` says how the members are fitted.

    Parameters
    ----------
    arms, units
        How many there are.
    rng
        Stream of the warm-up's cells, the members' starts and what they leave out.
    rank, members, ridge, drop, iterations
        As in `low_rank`.
    eta
        Weight of exploration, at least 0.
    warm_up
        Share of all cells to run first, in [0, 1]. Below 0.05 choices get much worse; at 1 all
        cells are drawn uniformly and only the estimates use the factorization.
    batch
        Cells a call of ``next`` gives at most.

    Raises
    ------
    UsageError
        On a parameter outside its range.

    Notes
    -----
    The paper is "On Speeding Up Language Model Evaluation" (ICLR 2025). It needs tens of arms: a
    unit that only one or two arms were run on tells the ridge little, which pulls its other cells
    towards 0, and with them the estimates of arms. With fewer arms take `UCBE`. The estimate of the
    arm that wins is biased upwards: run it on fresh units before you report it.

    Examples
    --------
    >>> truth = np.outer([0.3, 0.9, 0.5], np.linspace(0.2, 1, 50))
    >>> policy = UCBELowRank(3, 50, Rng(1), warm_up=0.2, batch=10)
    >>> for _ in range(4):
    ...     arms, units = policy.next()
    ...     policy.tell(arms, units, truth[arms, units])
    >>> policy.best()
    1
    """

    def __init__(
        self,
        arms: int,
        units: int,
        rng: Rng,
        *,
        rank: int = 1,
        members: int = 64,
        eta: float = 5.0,
        warm_up: float = 0.05,
        ridge: float = 0.1,
        drop: float = 0.05,
        iterations: int = 10,
        batch: int = 32,
    ) -> None:
        super().__init__(arms, units, batch)
        check_fit("UCBELowRank", rank, members, ridge, drop, iterations)
        check("UCBELowRank", "eta", eta, eta >= 0, "at least 0")
        check("UCBELowRank", "warm_up", warm_up, 0 <= warm_up <= 1, "from 0 to 1")
        self.eta, self.warm_up = float(eta), float(warm_up)
        self._fit: dict[str, Any] = {
            "rank": rank,
            "members": members,
            "ridge": ridge,
            "drop": drop,
            "iterations": iterations,
        }
        self._rng = rng
        self._walk = rng.child("warm-up").numpy().permutation(self.scores.size)
        self._fitted: tuple[Array, Array] | None = None

    def tell(self, arms: npt.ArrayLike, units: npt.ArrayLike, scores: npt.ArrayLike) -> None:
        super().tell(arms, units, scores)
        self._fitted = None

    def next(self) -> tuple[Places, Places]:
        """Return the next batch: places of arms (the same after the warm-up) and of units."""
        asked = int(self._asked.sum())
        if asked == self.scores.size:
            return _NOTHING, _NOTHING
        if asked < self.warm_up * self.scores.size or not self._count.any():
            cells = self._walk[~self.asked.ravel()[self._walk]][: self.batch]
            arms, units = np.unravel_index(cells, self.scores.shape)
            return self._give(arms, units)
        mean, spread = self._model()
        hopes = np.where(self.asked, mean, mean + self.eta * spread)
        bounds = np.where(np.isnan(self.scores), hopes, self.scores).mean(axis=1)
        # The ridge takes an arm without scores for 0. It is due while it has not been asked;
        # when all it was asked has failed it is like the others, and not ahead of them.
        bounds[self._count == 0] = bounds[self._count > 0].mean()
        bounds[self._asked == 0] = np.inf
        bounds[self._asked == self.scores.shape[1]] = -np.inf
        arm = int(np.argmax(bounds))
        open_units = np.flatnonzero(~self.asked[arm])
        widest = np.argsort(-spread[arm, open_units], kind="stable")[: self.batch]
        units = open_units[widest]
        return self._give(np.full(len(units), arm, dtype=np.intp), units)

    def means(self) -> Array:
        """Return the mean of each arm's scores and, where a cell has none, its fitted mean."""
        if not self._count.any():
            return np.full(len(self._count), np.nan)
        filled = np.where(np.isnan(self.scores), self._model()[0], self.scores).mean(axis=1)
        return np.where(self._count > 0, filled, np.nan)

    def _model(self) -> tuple[Array, Array]:
        if self._fitted is None:
            stream = self._rng.child("fit", int(self._asked.sum()), int(self._count.sum()))
            self._fitted = low_rank(self.scores, stream, **self._fit)
        return self._fitted


def _middle(sums: Array, counts: npt.NDArray[np.intp]) -> float:
    """Return the mean of all scores, one half while there are none."""
    total = int(counts.sum())
    return float(sums.sum()) / total if total else 0.5


_NOTHING: Places = np.zeros(0, dtype=np.intp)
