"""How many times wider one score spreads than another: noise that a model amplifies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Figure, Measure, Outcomes, Rng, Series, UsageError, between
from equipoise.kit.statistics._common import critical, size_note
from equipoise.kit.statistics.columns import complete, noted, rows_of


def spread_ratio(a: npt.ArrayLike, b: npt.ArrayLike, *, level: float = 0.95) -> Estimate:
    r"""Estimate the standard deviation of ``a`` over that of ``b``, rows paired.

    The delta method on the log scale: with $z$ the standardised columns, the logarithm of the ratio
    varies as the mean of $(z_a^2 - z_b^2) / 2$ does.

    Parameters
    ----------
    a, b
        Columns of one length, at least three rows.
    level
        Coverage aimed for.

    Raises
    ------
    UsageError
        If the columns do not fit, have gaps, or one has no spread.

    Examples
    --------
    >>> b = np.random.default_rng(0).normal(size=500)
    >>> print(spread_ratio(3 * b, b))
    3.000 [3.000, 3.000]
    """
    x, y = np.asarray(a, float), np.asarray(b, float)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 3 or not np.isfinite([x, y]).all():
        raise UsageError("spread_ratio: two columns of numbers of one length are needed, 3 rows.")
    spread_x, spread_y = float(x.std(ddof=1)), float(y.std(ddof=1))
    if not spread_x or not spread_y:
        raise UsageError("spread_ratio: a column has no spread, so there is no ratio.")
    z = ((x - x.mean()) / spread_x) ** 2 - ((y - y.mean()) / spread_y) ** 2
    n, value = len(x), spread_x / spread_y
    se = float(z.std(ddof=1)) / 2 / math.sqrt(n)
    reach = math.exp(critical(level, n - 1) * se)
    return Estimate(
        value, value / reach, value * reach, level, n, method="delta method, log scale",
        note=size_note(n), details={"log_se": se},
    )  # fmt: skip


@dataclass(frozen=True)
class SpreadRatio(Measure):
    """How many times wider one score spreads than another, over draws: noise that is amplified.

    The plain function is `spread_ratio`. Units in several strata give a table, a row a stratum.

    Parameters
    ----------
    above, below
        Scores whose standard deviations are compared.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> rows = Outcomes.of(implied=[0.1, 0.9, 0.4, 0.6], trained=[0.01, 0.09, 0.04, 0.06])
    >>> round(SpreadRatio().statistic(rows), 3)
    10.0
    """

    higher_is_better = False

    above: str = "implied"
    below: str = "trained"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 300 pairs of correlated normal scores, the first four times as wide."""
        z = rng.numpy().standard_normal((2, 300))
        return rows_of({self.above: 4 * (0.8 * z[0] + 0.6 * z[1]), self.below: z[0]}), 4.0

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate | Mapping[str, Estimate]:
        """Return the ratio; ``rng`` is not used."""
        rows, note = complete("SpreadRatio", outcomes, self.above, self.below)
        parts = _strata(rows)
        if len(parts) < 2:
            return noted(self._ratio(rows), note)
        return {name: noted(self._ratio(part), note) for name, part in parts.items()}

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the ratio over all strata without its interval."""
        rows, _ = complete("SpreadRatio", outcomes, self.above, self.below)
        return self._ratio(rows).value

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the ratio by stratum, where strata are numbers, beside what is predicted."""
        series: list[Series] = []
        guide: dict[float, float] = {}
        for arm, each in outcomes.items():
            rows, _ = complete("SpreadRatio", each, self.above, self.below)
            parts = {_real(name): part for name, part in _strata(rows).items()}
            if len(parts) < 2 or None in parts:
                return None
            xs = sorted(x for x in parts if x is not None)
            found = [self._ratio(parts[x]) for x in xs]
            y, low, high = ([getattr(e, name) for e in found] for name in ("value", "low", "high"))
            series.append(Series(arm, xs, y, low, high))
            if "predicted" in rows.scores:
                guide |= {x: float(parts[x].score("predicted").mean()) for x in xs}
        if guide:
            xs = sorted(guide)
            series.append(Series("predicted S", xs, [guide[x] for x in xs], look="guide"))
        return Figure(
            "Noise of the implied preference by that of the taught one",
            "taught preference",
            "ratio of standard deviations",
            series,
            "Above 1 the noise of labels is amplified. The dashed line is the model's sensitivity.",
        )

    def _ratio(self, rows: Outcomes) -> Estimate:
        return spread_ratio(rows.score(self.above), rows.score(self.below), level=self.level)


def _strata(rows: Outcomes) -> dict[str, Outcomes]:
    if rows.stratum is None:
        return {"": rows}
    return {rows.strata[c]: rows.take(rows.stratum == c) for c in np.unique(rows.stratum)}


def _real(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
