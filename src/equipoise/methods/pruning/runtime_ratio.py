r"""Performance-runtime ratio: what each unit of saved cost takes from quality."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between
from equipoise.kit.statistics import bootstrap

Pair = tuple[Outcomes, Outcomes]
Column = npt.NDArray[np.float64]
WHO = "performance_runtime_ratio"


def performance_runtime_ratio(
    treated: npt.ArrayLike,
    dense: npt.ArrayLike,
    treated_cost: npt.ArrayLike,
    dense_cost: npt.ArrayLike,
    *,
    perplexity: bool = True,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""Estimate how much quality one unit of saved cost takes; lower is better.

    $$\mathrm{PRR} = \frac{Q_\mathrm{treated} - Q_\mathrm{dense}}
    {C_\mathrm{dense} - C_\mathrm{treated}},$$

    where C is the mean cost of a unit and Q its loss: $\exp$ of the mean of ``treated`` and
    ``dense`` (perplexity, where these are nats a token), or the mean itself. BCa bootstrap over
    units or clusters, all four columns together. Below zero the treated model is better *and*
    cheaper.

    Parameters
    ----------
    treated, dense
        Loss of each unit, such as nats a token, shape (n,), rows paired.
    treated_cost, dense_cost
        Cost of each unit, such as seconds, shape (n,).
    perplexity
        Whether quality is the exponential of the mean loss.
    clusters
        Cluster of each row.
    level, draws
        Coverage aimed for and resamples.
    rng
        Stream for the draws; ``Rng(0)`` when None.

    Raises
    ------
    UsageError
        If no cost is saved, or the columns are empty, unequal or not finite.

    Examples
    --------
    >>> found = performance_runtime_ratio([2, 4], [1, 3], [5, 5], [7, 7], perplexity=False)
    >>> found.value
    0.5
    """
    names = ("treated", "dense", "treated_cost", "dense_cost")
    columns = [np.asarray(each, float) for each in (treated, dense, treated_cost, dense_cost)]
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1 or not np.isfinite(column).all():
            raise UsageError(f"{WHO}: {name} must be one row of finite numbers.")
    if len({column.size for column in columns}) > 1:
        sizes = ", ".join(str(column.size) for column in columns)
        raise UsageError(f"{WHO}: all columns must be equally long, got {sizes}.")
    if columns[0].size and columns[3].mean() <= columns[2].mean():
        raise UsageError(f"{WHO}: the treated model saves no cost, so there is no ratio.")

    def statistic(a: Column, b: Column, cost: Column, full: Column) -> float:
        saved = full.mean() - cost.mean()
        one, two = float(a.mean()), float(b.mean())
        lost = math.exp(one) - math.exp(two) if perplexity else one - two
        return lost / float(saved) if saved > 0 else math.nan

    found: Estimate = bootstrap(
        statistic, columns, clusters=clusters, level=level, draws=draws, rng=rng or Rng(0)
    )
    return found


@dataclass(frozen=True)
class PerformanceRuntimeRatio(Measure):
    r"""What one unit of saved cost takes from quality, of one arm against the unpruned one.

    Lower is better, so it is for reading beside claims, not for claims. The plain function is
    `performance_runtime_ratio`, which has the equation. The paper's ratio is of seconds, which
    depend on the machine and on what else it does; ``gflop`` is the same everywhere.

    Parameters
    ----------
    loss
        Score whose mean is the loss.
    cost
        Score whose mean is the cost.
    perplexity
        Whether quality is the exponential of the mean loss.
    level, draws
        Coverage and bootstrap resamples.

    References
    ----------
    "Probe Pruning: Accelerating LLMs through Dynamic Pruning via Model-Probing", ICLR 2025.

    Examples
    --------
    >>> pruned, dense = Outcomes.of(nll=[2, 4], s=[5, 5]), Outcomes.of(nll=[1, 3], s=[7, 7])
    >>> ratio = PerformanceRuntimeRatio(cost="s", perplexity=False)
    >>> ratio.measure((pruned, dense), Rng(0)).value
    0.5
    """

    scope = "pair"
    higher_is_better = False

    loss: str = "nll"
    cost: str = "seconds"
    perplexity: bool = True
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 1_000_000, default=2000)

    @classmethod
    def tiny(cls) -> PerformanceRuntimeRatio:
        return cls(draws=400)

    def simulate(self, rng: Rng) -> tuple[Pair, float]:
        """Return 60 units that lose half a nat and save three of ten seconds."""
        generator = rng.numpy()
        dense = generator.normal(2.0, 0.3, 60)
        pruned = dense + generator.normal(0.5, 0.1, 60)
        cost = generator.normal(10.0, 1.0, 60)
        less = cost - 3.0 + generator.normal(0.0, 0.3, 60)
        truth = math.exp(2.5) - math.exp(2.0) if self.perplexity else 0.5
        columns: list[dict[str, Any]] = [
            {self.loss: pruned, self.cost: less},
            {self.loss: dense, self.cost: cost},
        ]
        return (Outcomes.of(**columns[0]), Outcomes.of(**columns[1])), truth / 3.0

    def measure(self, outcomes: Pair, rng: Rng) -> Estimate:
        """Return the ratio with its interval."""
        one, two = outcomes
        keys = [np.stack([each.unit, each.build, each.repeat]) for each in (one, two)]
        if keys[0].shape != keys[1].shape or not np.array_equal(keys[0], keys[1]):
            raise UsageError(
                "PerformanceRuntimeRatio: both arms must have the same units, in the same order."
            )
        columns = [each.score(name) for name in (self.loss, self.cost) for each in (one, two)]
        whole = ~np.isnan(np.stack(columns)).any(axis=0)
        if not whole.any():
            raise UsageError(
                f"PerformanceRuntimeRatio: no unit has both {self.loss} and {self.cost}."
            )
        groups = one.unit if one.cluster is None else one.cluster
        missing = int((~whole).sum())
        note = f"{missing} of {len(whole)} pairs lack a score and are left out." if missing else ""
        found = performance_runtime_ratio(
            *(column[whole] for column in columns),
            perplexity=self.perplexity,
            clusters=None if len(np.unique(groups)) == len(groups) else groups[whole],
            level=self.level,
            draws=self.draws,
            rng=rng,
        )
        return replace(found, note=" ".join(filter(None, (found.note, note))))
