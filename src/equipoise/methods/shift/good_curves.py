r"""AU-GOOD: the performance to expect on the data a model will really meet.

A model is trained and tested at growing thresholds of likeness $\lambda$, see `SimilaritySplit`.
The GOOD curve is its performance $G(\lambda)$. With $p^*$ the density of how alike the deployment's
items are to the training item that is nearest,

$$\text{AU-GOOD} = \int G(\lambda)\, p^*(\lambda)\, d\lambda \approx \sum_i w_i\, G(\lambda_i).$$

Sections and symbols are the paper's, see the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    Series,
    UsageError,
    between,
    one_of,
)
from equipoise.methods.shift._curves import LOWER_IS_BETTER, METRICS, SCORERS, Curves, Metric
from equipoise.methods.shift._good import compare_curves, similarity_quality

_FEW = 6  # thresholds


@dataclass(frozen=True)
class _OnCurves(Measure):
    """What the measures of GOOD curves share: which columns they read, and how."""

    metric: str = one_of(*METRICS, default="spearman")
    weighting: str = one_of("auto", "uniform", "deployment", default="auto")
    threshold: str = "threshold"
    target: str = "target"
    predicted: str = "predicted"
    weight: str = "weight"
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    def curves(self, outcomes: Outcomes) -> Curves:
        names = (self.threshold, self.target, self.predicted, self.weight)
        return Curves.of(type(self).__name__, outcomes, names, self.weighting)

    @property
    def kind(self) -> Metric:
        return cast(Metric, self.metric)

    @property
    def sign(self) -> float:
        return -1.0 if self.metric in LOWER_IS_BETTER else 1.0

    def better(self, outcomes: Outcomes) -> bool | None:
        """Follow the metric."""
        return self.metric not in LOWER_IS_BETTER

    def interval(self, draws: np.ndarray, value: float) -> tuple[float, float]:
        """Return the ends of the percentile interval, which hold the value."""
        sound = draws[np.isfinite(draws)]
        if len(sound) < 0.9 * len(draws):
            raise UsageError(
                f"{type(self).__name__}: {self.metric} is undefined on {len(draws) - len(sound)} "
                f"of {len(draws)} resamples; more rows or another metric are needed."
            )
        tail = (1 - self.level) / 2
        low, high = np.quantile(sound, [tail, 1 - tail])
        return min(float(low), value), max(float(high), value)

    def planted(self, rng: Rng, tilt: float = 0.0) -> tuple[Outcomes, np.ndarray]:
        """Return 240 rows at four thresholds, of known performance there."""
        if self.metric not in _TRUTHS:
            raise NotImplementedError(f"no rows of known {self.metric}")
        generator, n = rng.numpy(), 240
        rho = np.array([0.3, 0.5, 0.65, 0.8])[:, None] + tilt
        y = np.tile(generator.normal(size=n), (4, 1))
        columns = {
            self.threshold: np.repeat([0.3, 0.4, 0.5, 0.6], n),
            self.target: y.ravel(),
            self.predicted: (rho * y + np.sqrt(1 - rho**2) * generator.normal(size=(4, n))).ravel(),
            self.weight: np.repeat([0.4, 0.3, 0.2, 0.1], n),
        }
        rows = replace(Outcomes.of(**columns), cluster=np.tile(np.arange(n), 4))  # type: ignore[arg-type]
        return rows, _TRUTHS[self.metric](rho[:, 0])


# What the metrics of the planted rows are: of two normals with correlation r.
_TRUTHS = {
    "spearman": lambda r: 6 / np.pi * np.arcsin(r / 2),
    "pearson": lambda r: r,
    "r2": lambda r: 2 * r - 1,
    "rmse": lambda r: np.sqrt(2 - 2 * r),
    "mae": lambda r: np.sqrt((2 - 2 * r) * 2 / np.pi),
}


@dataclass(frozen=True)
class AUGOOD(_OnCurves):
    r"""Area under the GOOD curve: the performance to expect at the deployment's distances.

    .. math:: \sum_i w_i\, G(\lambda_i)

    The plain functions are `good_curve`, `deployment_weights` and `au_good`. Rows are resampled
    together at all thresholds they are tested at; the interval says what other test rows would
    have given, not other training rows. Several builds are averaged.

    Parameters
    ----------
    metric
        ``spearman``, ``pearson``, ``r2``, ``mcc``, ``accuracy``, ``rmse`` or ``mae``.
    weighting
        ``"deployment"`` weighs thresholds by the score ``weight``, ``"uniform"`` all alike;
        ``"auto"`` does the first where the task gives weights.
    threshold, target, predicted, weight
        Names of the scores.
    level, draws
        Coverage and bootstrap resamples.

    References
    ----------
    "A New Framework for Evaluating Model Out-of-Distribution Generalisation for the Biochemical
    Domain", ICLR 2025, sections 2 and 3.

    Examples
    --------
    >>> rows = Outcomes.of(threshold=[0.3] * 3 + [0.5] * 3, target=[1, 2, 3, 1, 2, 3],
    ...     predicted=[3, 2, 1, 1, 2, 3], weight=[0.25] * 3 + [0.75] * 3)
    >>> AUGOOD().statistic(rows)
    0.5
    """

    @classmethod
    def tiny(cls) -> AUGOOD:
        """Return few resamples."""
        return cls(draws=400)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return rows of known correlation at four thresholds."""
        outcomes, truth = self.planted(rng)
        return outcomes, float(self.curves(outcomes).area(truth))

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the area with its interval."""
        curves = self.curves(outcomes)
        value = float(curves.area(curves.values(self.kind))[0])
        star = curves.area(curves.values(self.kind, curves.draws(self.draws, rng)))
        low, high = self.interval(star, value)
        missing = len(outcomes) - curves.rows
        note = [f"{missing} of {len(outcomes)} rows are incomplete and left out."] * bool(missing)
        if len(curves.thresholds) < _FEW:
            note.append(f"The curve has few thresholds: {len(curves.thresholds)}.")
        return Estimate(
            value,
            low,
            high,
            level=self.level,
            n=curves.rows,
            clusters=curves.groups,
            method="bootstrap percentile",
            note=" ".join(note),
            details={"thresholds": len(curves.thresholds), "weighted": float(curves.weighted)},
        )

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the area alone."""
        curves = self.curves(outcomes)
        return float(curves.area(curves.values(self.kind))[0])

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the GOOD curve of every arm, and what the deployment weighs, if it is a curve."""
        series, bars = [], None
        for arm, found in outcomes.items():
            curves = self.curves(found)
            values = curves.values(self.kind)[0]
            star = curves.values(self.kind, curves.draws(self.draws, rng.child(arm)))
            ends = [
                self.interval(column, float(value))
                for column, value in zip(star.T, values, strict=True)
            ]
            low, high = zip(*ends, strict=True)
            x = curves.thresholds.tolist()
            if len(x) < 2:  # one point is no curve
                return None
            series.append(Series(arm, x, values.tolist(), low, high, look="line"))
            if curves.weighted:
                bars = Series("share of the deployment", x, curves.weights.tolist(), look="bars")
        return Figure(
            "Performance by likeness of test and training rows",
            "similarity threshold: no test row is nearer to training",
            f"{self.metric}{' and share' if bars else ''}",
            (*series, *((bars,) if bars else ())),
            caption="GOOD curves; AU-GOOD is their mean"
            + (", weighted by the bars." if bars else "."),
        )


@dataclass(frozen=True)
class PairedCurveTest(_OnCurves):
    r"""How much better one arm's GOOD curve is than another's, on the same test rows.

    The value is the difference of AU-GOOD, positive where the first arm is better, with an
    interval from resampling rows in both alike. ``details`` has the paper's one-sided Wilcoxon
    p-value over thresholds, see `compare_curves`: thresholds are dependent, so it describes only.

    Parameters
    ----------
    metric, weighting
        As for `AUGOOD`.
    threshold, target, predicted, weight
        Names of the scores.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> rows = lambda predicted: Outcomes.of(threshold=[0.3] * 3 + [0.5] * 3,
    ...     target=[1, 2, 3, 1, 2, 3], predicted=predicted)
    >>> pair = rows([1, 2, 3, 1, 2, 3]), rows([3, 2, 1, 1, 2, 3])
    >>> PairedCurveTest(draws=100).measure(pair, Rng(0)).value
    1.0
    """

    scope = "pair"

    @classmethod
    def tiny(cls) -> PairedCurveTest:
        """Return few resamples."""
        return cls(draws=400)

    def simulate(self, rng: Rng) -> tuple[tuple[Outcomes, Outcomes], float]:
        """Return two arms on the same rows, one with more correlation by 0.1."""
        one, high = self.planted(rng, tilt=0.1)
        two, low = self.planted(rng)
        return (one, two), self.sign * float(self.curves(one).area(high - low))

    def measure(self, outcomes: tuple[Outcomes, Outcomes], rng: Rng) -> Estimate:
        """Return the difference with its interval."""
        a, b = (self.curves(each) for each in outcomes)
        if not np.array_equal(a.thresholds, b.thresholds) or a.groups != b.groups:
            raise UsageError(
                "PairedCurveTest: both arms must be scored on the same rows and thresholds."
            )
        counts = a.draws(self.draws, rng)
        mine, other = (self.sign * each.values(self.kind)[0] for each in (a, b))
        value = float(a.area(mine) - b.area(other))
        star = self.sign * (
            a.area(a.values(self.kind, counts)) - b.area(b.values(self.kind, counts))
        )
        low, high = self.interval(star, value)
        grid = a.thresholds.tolist()
        p = compare_curves(
            {"a": dict(zip(grid, mine, strict=True)), "b": dict(zip(grid, other, strict=True))}
        )[0, 1]
        return Estimate(
            value,
            low,
            high,
            level=self.level,
            n=a.rows,
            clusters=a.groups,
            method="bootstrap percentile",
            note="Thresholds are dependent, so Wilcoxon's p-value over them only describes.",
            details={"wilcoxon_p": float(p), "thresholds": len(grid)},
        )


@dataclass(frozen=True)
class SimilarityQuality(_OnCurves):
    """How well a similarity orders what is hard to predict.

    ``correlation`` is Spearman's between threshold and performance (errors with their sign
    turned); ``dynamic_range`` the largest usable threshold less the smallest.
    The plain function is `similarity_quality`.

    Parameters
    ----------
    metric, weighting
        As for `AUGOOD`; weights do not matter here.
    threshold, target, predicted, weight
        Names of the scores.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> rows = Outcomes.of(threshold=[0.3] * 3 + [0.5] * 3, target=[1, 2, 3, 1, 2, 3],
    ...     predicted=[3, 2, 1, 1, 2, 3])
    >>> SimilarityQuality(draws=100).measure(rows, Rng(0))["correlation"].value
    1.0
    """

    @classmethod
    def tiny(cls) -> SimilarityQuality:
        """Return few resamples."""
        return cls(draws=400)

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return rows whose performance rises with the threshold."""
        return self.planted(rng)[0], {"correlation": 1.0, "dynamic_range": 0.3}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return the correlation with its interval, and the range."""
        curves = self.curves(outcomes)
        grid = curves.thresholds
        values = self.sign * curves.values(self.kind)[0]
        rho, reach = similarity_quality(dict(zip(grid.tolist(), values, strict=True)))
        star = self.sign * curves.values(self.kind, curves.draws(self.draws, rng))
        ones = np.ones((1, len(grid)))
        drawn = np.array([SCORERS["spearman"](grid, row, ones)[0] for row in star])
        low, high = self.interval(drawn, rho)
        whole = Estimate(
            rho,
            low,
            high,
            level=self.level,
            n=curves.rows,
            clusters=curves.groups,
            method="bootstrap percentile",
            note=f"{len(outcomes) - curves.rows} of {len(outcomes)} rows are left out."
            if curves.rows < len(outcomes)
            else "",
            details={"thresholds": len(grid)},
        )
        return {
            "correlation": whole,
            "dynamic_range": replace(
                whole, value=reach, low=np.nan, high=np.nan, method="", note=whole.note
            ),
        }
