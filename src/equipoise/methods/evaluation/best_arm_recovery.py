r"""Policies of evaluation on trial: who finds the best method of a known matrix, at what budget?

The thing on trial decides which (method, item) pairs to run; see `adaptive_evaluation`. A task
plays matrices whose best method is known, and measures read the budget at which it is found.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    Outcome,
    Rng,
    ScoreSpec,
    Task,
    Unit,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.cache import file_hash
from equipoise.kit.progress import report
from equipoise.kit.statistics.allocation import UCBE, Allocates, Allocation
from equipoise.methods.evaluation._adaptive_search import found_score
from equipoise.methods.evaluation._score_matrices import (
    ScoreMatrix,
    digit_pipelines,
    item_responses,
    means_of,
    read_score_matrix,
)

__all__ = ["BestArmRecovery"]

Array = npt.NDArray[np.float64]

_REGIMES = {"large_gaps": (1.0, 1.0), "small_gaps": (0.3, 1.5)}
"""Standard deviations of abilities and of difficulties."""


@dataclass(frozen=True)
class BestArmRecovery(Task):
    """Matrices of scores whose best method is known; a policy looks for it cell by cell.

    A unit is one draw: a matrix, and the seed of the policy. The last batch that fits a budget is
    the one the policy answers after. A method is right if its true mean, over all items of the
    matrix, is within ``tolerance`` of the best.

    Parameters
    ----------
    matrix
        ``"large_gaps"`` and ``"small_gaps"`` are zeros and ones of an item-response model, drawn
        anew for each unit: abilities with a standard deviation of 1 and 0.3, difficulties of 1 and
        1.5. ``"digits"`` is which of 120 scikit-learn pipelines read which digits right, and
        ``"file"`` a matrix of your own; of both a unit takes random methods and items.
    file
        The matrix, where ``matrix`` is ``"file"``: CSV, NPZ or Parquet, see `read_score_matrix`.
    methods, items
        How many a draw has, at most what there are.
    budgets
        Shares of all cells, rising, in (0, 1].
    tolerance
        In units of the score.
    draws
        How many units.

    Examples
    --------
    >>> task = BestArmRecovery(methods=10, items=40, draws=2, budgets=(0.2, 1.0))
    >>> outcomes = task.perform(task.oracle(), task.units(Rng(0)), Rng(0))
    >>> [outcome.scores["found_at_1"] for outcome in outcomes]
    [1.0, 1.0]
    """

    needs = frozenset({Allocates})
    scores = (ScoreSpec("found", low=0.0, high=1.0, share=True),)
    batch = 4

    matrix: str = one_of(*_REGIMES, "digits", "file", default="large_gaps")
    file: str | None = setting(None)
    methods: int = between(2, 100_000, default=100)
    items: int = between(1, 10_000_000, default=500)
    budgets: tuple[float, ...] = (0.02, 0.05, 0.1, 0.15, 0.25, 0.5)
    tolerance: float = between(0.0, 1.0, default=0.005)
    draws: int = between(1, 1_000_000, default=30)

    def check(self) -> None:
        """Refuse budgets that do not rise, and a file that is not there or not asked for."""
        if not self.budgets or not all(0 < each <= 1 for each in self.budgets):
            raise UsageError(
                f"BestArmRecovery: budgets must be shares of all cells in (0, 1], got "
                f"{list(self.budgets)}."
            )
        if len(set(map(found_score, self.budgets))) < len(self.budgets) or list(
            self.budgets
        ) != sorted(self.budgets):
            raise UsageError(
                f"BestArmRecovery: budgets must rise, as in [0.05, 0.1], got {list(self.budgets)}."
            )
        if (self.file is not None) != (self.matrix == "file"):
            raise UsageError(
                "BestArmRecovery: matrix: file and a file go together, give both or neither."
            )
        if self.file is not None:
            read_score_matrix(self.file)
        names = [name(budget) for name in (found_score, _ndcg_score) for budget in self.budgets]
        shares = (ScoreSpec(name, low=0.0, high=1.0) for name in names)
        spent = ScoreSpec("spent", higher_is_better=None, low=0.0, high=1.0, share=True)
        object.__setattr__(self, "scores", (*type(self).scores, *shares, spent))

    @classmethod
    def tiny(cls) -> BestArmRecovery:
        """Return small draws."""
        return cls(methods=12, items=60, draws=8, budgets=(0.25, 0.5))

    def content(self) -> Any:
        """Return the hash of the file."""
        return None if self.file is None else {"file": file_hash(Path(self.file))}

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a draw, with its seed."""
        seeds = rng.child("draws").numpy().integers(2**31, size=self.draws)
        return [
            Unit(f"draw-{index:05d}", content={"seed": int(seed)})
            for index, seed in enumerate(seeds)
        ]

    def perform(self, subject: Allocates, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Play each draw; every arm sees the same matrices."""
        found: list[Outcome] = []
        for unit in units:
            report("draws", len(found), len(units))
            found.append(self._play(subject, unit))
        return found

    def oracle(self) -> Any:
        """Return a policy that knows the means of the matrix."""
        return _Knowing(self)

    def constant(self) -> Any:
        """Return a policy that calls the first method the best, whatever it sees."""
        return _Stubborn()

    def draw(self, seed: int) -> Array:
        """Return the matrix of the unit with a seed, shape (methods, items)."""
        generator = Rng(seed).child("matrix").numpy()
        if self.matrix in _REGIMES:
            spread, difficulty = _REGIMES[self.matrix]
            return item_responses(
                self.methods, self.items, generator, spread=spread, difficulty=difficulty
            )
        whole = self._whole().scores
        rows, columns = (
            generator.permutation(size)[:most]
            for size, most in zip(whole.shape, (self.methods, self.items), strict=True)
        )
        return np.asarray(whole[np.ix_(rows, columns)])

    def _whole(self) -> ScoreMatrix:
        if self.file is None:
            return digit_pipelines()
        return _from_file(self.file, file_hash(Path(self.file)))

    def _play(self, subject: Allocates, unit: Unit) -> Outcome:
        seed = unit.content["seed"]
        truth = self.draw(seed)
        means = means_of(truth)
        right = means >= np.nanmax(means) - self.tolerance
        policy = subject.allocate(len(truth), truth.shape[1], Rng(seed).child("policy"))
        scores: dict[str, float] = {}
        waiting, spent = policy.next(), 0
        for budget in self.budgets:
            while waiting[0].size and spent + waiting[0].size <= budget * truth.size:
                policy.tell(*waiting, truth[waiting])
                spent += waiting[0].size
                waiting = policy.next()
            estimates = policy.means()
            known = not np.isnan(estimates).all()
            scores[found_score(budget)] = float(known and right[policy.best()])
            scores[_ndcg_score(budget)] = _ndcg(means, estimates)
        scores["found"] = float(np.mean([scores[found_score(each)] for each in self.budgets]))
        scores["spent"] = spent / truth.size
        return Outcome(unit.id, scores=scores)


@functools.lru_cache(maxsize=1)
def _from_file(file: str, content: str) -> ScoreMatrix:
    """Return the matrix of a file, read once for all draws while its ``content`` stays."""
    return read_score_matrix(file)


def _ndcg_score(budget: float) -> str:
    return f"ndcg_at_{budget:g}"


def _ndcg(truth: Array, estimates: Array) -> float:
    """Return NDCG@10 with the true means as gains; what is not known ranks last."""
    from sklearn.metrics import ndcg_score

    ranked = np.where(np.isnan(estimates), -1.0, estimates)
    return min(float(ndcg_score([np.nan_to_num(truth)], [ranked], k=10)), 1.0)


class _Stubborn:
    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        return _Sure(np.arange(arms, 0.0, -1.0), units)


@dataclass(frozen=True)
class _Knowing:
    task: BestArmRecovery

    def allocate(self, arms: int, units: int, rng: Rng) -> Allocation:
        return _Sure(means_of(self.task.draw(rng.seed)), units)


class _Sure(UCBE):
    """A policy that no score moves."""

    def __init__(self, means: Array, units: int) -> None:
        super().__init__(len(means), np.arange(units))
        self._means = means

    def means(self) -> Array:
        return self._means
