r"""Regression on source domains, tested on unknown mixtures of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from equipoise.core import (
    Outcome,
    Predicts,
    PredictsInterval,
    Rng,
    ScoreSpec,
    Task,
    Trains,
    Unit,
    UnitError,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.arrays import Examples
from equipoise.kit.arrays.examples import column_of
from equipoise.kit.data.identity import content_hash
from equipoise.kit.progress import report
from equipoise.kit.worlds.shifted_regression import Sources, mixed, shifted_domains
from equipoise.methods.conformal._wr_airfoil import (
    airfoil_domains,
    existing_airfoil,
    read_airfoil,
)
from equipoise.methods.conformal._wr_distances import (
    kl_divergence,
    mean_difference,
    total_variation,
    wasserstein_1,
)
from equipoise.methods.conformal._wr_weights import (
    effective_sample_size,
    interpolated_weighted_quantile,
)

_NINE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class MultiSourceRegression(Task):
    r"""Learn from three source domains and give intervals for unknown mixtures of them.

    A unit is one whole draw. The subject learns from train and calibration rows of all domains
    (their `group` is the domain) and is asked for intervals on ``tests`` test sets, each a
    mixture of the domains with shares it is not told, one set at a time. With $C_{e,\alpha}$
    the share of values of set $e$ inside their intervals, the scores of a draw are

    - ``coverage_gap``: mean over sets and ``alphas`` of $|C_{e,\alpha} - (1-\alpha)|$;
    - ``worst_gap``: the largest over sets of the mean over ``alphas``;
    - ``size``: mean width, in standard deviations of the target;
    - ``score_distance``: mean over sets of $W_1$ between the absolute errors of calibration
      rows, with the subject's weights for the set if it has any, and those of the set;
    - ``effective_sample_size``: mean over sets of what those weights leave of the calibration
      rows, where there are any;
    - ``rank_correlation``: Spearman's, over sets, of $W_1$ between calibration and test errors
      with the coverage gap that one unweighted quantile of the calibration errors leaves; and
      ``lead_over_total_variation``, ``lead_over_kl``, ``lead_over_mean``: by how much it is
      above that of the other distances.

    The generated world is `equipoise.kit.worlds.shifted_regression.shifted_domains`. With
    ``data`` it is the paper's airfoil recipe: rows are cut at the 33 and 66 % quantiles of
    frequency, each third is dealt out 70:20:10 to three domains in turn, and the sound pressure
    gets noise of $\frac{y}{100} N(0,1)$, $y / (10\, N(0,1))$ and $10\, N(0,1)$; its signed
    square root is the target. Targets are standardised by the rows to learn from.

    Parameters
    ----------
    draws
        How many units.
    data
        Your own copy of ``airfoil_self_noise.dat`` (UCI Machine Learning Repository, data set
        "Airfoil Self-Noise"): six tab-separated columns. None for the generated world.
    rows
        Of each domain of the generated world; a third is for each of training, calibration
        and testing.
    noise
        Of the second domain: ``"ratio"`` as in the paper, whose outliers have no bound, or
        ``"normal"`` of the same median size.
    tests, test_rows
        Test sets of a draw, and rows in each.
    alphas
        Shares of values that may lie outside, each in (0, 1).

    Examples
    --------
    >>> task = MultiSourceRegression(draws=2, rows=60, tests=3)
    >>> [unit.split for unit in task.units(Rng(0))]
    ['test', 'test']
    """

    draws: int = between(1, 100_000, default=10)
    data: str | None = setting(None)
    rows: int = between(45, 1_000_000, default=360)
    noise: Literal["normal", "ratio"] = one_of("normal", "ratio", default="normal")
    tests: int = between(1, 10_000, default=30)
    test_rows: int = between(10, 1_000_000, default=170)
    alphas: tuple[float, ...] = _NINE

    needs = frozenset({Trains, PredictsInterval})
    batch = 1
    scores = (
        ScoreSpec("coverage_gap", higher_is_better=False, low=0.0, high=1.0),
        ScoreSpec("worst_gap", higher_is_better=False, low=0.0, high=1.0),
        ScoreSpec("size", higher_is_better=False, low=0.0, unit="standard deviations"),
        ScoreSpec("score_distance", higher_is_better=False, low=0.0, unit="standard deviations"),
        ScoreSpec("effective_sample_size", higher_is_better=None, low=0.0, unit="rows"),
        ScoreSpec("rank_correlation", higher_is_better=None, low=-1.0, high=1.0),
        ScoreSpec("lead_over_total_variation", higher_is_better=None, low=-2.0, high=2.0),
        ScoreSpec("lead_over_kl", higher_is_better=None, low=-2.0, high=2.0),
        ScoreSpec("lead_over_mean", higher_is_better=None, low=-2.0, high=2.0),
    )

    def check(self) -> None:
        if not self.alphas or not all(0 < alpha < 1 for alpha in self.alphas):
            raise UsageError(
                f"MultiSourceRegression: alphas must lie strictly between 0 and 1, "
                f"got {self.alphas}."
            )

    def content(self) -> Any:
        if self.data is None:
            return None
        existing_airfoil(self.data)
        return content_hash(self.data)

    @classmethod
    def tiny(cls) -> Self:
        return cls(draws=3, rows=60, tests=4, test_rows=40)

    def units(self, rng: Rng) -> Iterator[Unit]:
        if self.data is not None:
            existing_airfoil(self.data)
        for draw in range(self.draws):
            seed = rng.child("draw", draw).seed_for_request()
            yield Unit(f"draw-{seed}", content={"seed": seed})

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        found = []
        for done, unit in enumerate(units, start=1):
            sources = self.sources(int(unit.content["seed"]))
            fitted = subject.fit(sources.learn, rng.child(unit.id))
            scores, artifacts = _scores(fitted, sources, np.array(self.alphas))
            report("draws of domains", done, len(units))
            found.append(Outcome(unit.id, scores, artifacts=artifacts))
        return found

    def sources(self, seed: int) -> Sources:
        """Return the domains and test sets of a draw, targets standardised."""
        rng = Rng(seed)
        if self.data is None:
            domains = shifted_domains(rng.child("domains"), rows=self.rows, kind=self.noise)
        else:
            table = read_airfoil(self.data)
            domains = airfoil_domains(table, rng.child("domains"), kind=self.noise)
        found = mixed(domains, rng.child("tests"), tests=self.tests, rows=self.test_rows)
        y = found.learn.targets
        mean, spread = y.mean(), y.std()
        learn = Examples(
            found.learn.inputs, (y - mean) / spread, found.learn.split, found.learn.group
        )
        tests = tuple((x, (values - mean) / spread) for x, values in found.tests)
        return Sources(learn, tests, found.shares)

    def oracle(self) -> Any:
        """Return a subject that knows the test targets and covers just the asked share."""
        return _Knows(self)

    def constant(self) -> Any:
        """Return a subject that gives every row one wide interval."""
        return _Wide()


class _Wide:
    def fit(self, data: Any, rng: Rng) -> Any:
        return self

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        return np.tile([-1e3, 1e3], (len(inputs), 1))


class _Knows:
    def __init__(self, task: MultiSourceRegression, known: Any = None) -> None:
        self._task, self._known = task, known or {}

    def fit(self, data: Any, rng: Rng) -> Any:
        seed = int(rng.path[-1].removeprefix("draw-"))  # the stream is the unit's own
        tests = self._task.sources(seed).tests
        return _Knows(self._task, {x.tobytes(): y for x, y in tests})

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        y = self._known[np.asarray(inputs).tobytes()]
        outside = np.arange(len(y)) < round(alpha * len(y))
        return np.stack([y + outside, y + outside], axis=1)


def _scores(
    fitted: Any, sources: Sources, alphas: np.ndarray
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the scores of a fitted subject on one draw, and coverage and width in full."""
    coverage, width = np.empty((2, len(sources.tests), len(alphas)))
    for place, (x, y) in enumerate(sources.tests):
        for level, alpha in enumerate(alphas):
            ends = np.asarray(fitted.predict_interval(x, float(alpha)), float)
            if ends.shape != (len(x), 2) or np.isnan(ends).any():
                raise UnitError(
                    f"The subject gave intervals of shape {ends.shape} for {len(x)} rows, or some "
                    f"that are no numbers.",
                    "garbage",
                )
            coverage[place, level] = ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean()
            width[place, level] = (ends[:, 1] - ends[:, 0]).mean()
    if not np.isfinite(width).all():
        raise UnitError(
            f"Intervals are infinite at alpha {alphas[~np.isfinite(width).all(0)][0]:g}: the "
            f"calibration rows are too few for it, or too few of them carry weight.",
            "infinite",
        )
    gap = np.abs(coverage - (1 - alphas))
    found = {
        "coverage_gap": float(gap.mean()),
        "worst_gap": float(gap.mean(1).max()),
        "size": float(width.mean()),
    }
    if isinstance(fitted, Predicts):
        found |= _distances(fitted, sources, alphas)
    return found, {"coverage": coverage, "width": width}


def _distances(fitted: Any, sources: Sources, alphas: np.ndarray) -> dict[str, float]:
    """Return how far errors are from those of calibration, and how that ranks with the gap."""
    rows = sources.learn.of("calibration")
    errors = np.abs(rows.targets - column_of(fitted.predict(rows.inputs), len(rows)))
    tests = [np.abs(y - column_of(fitted.predict(x), len(x))) for x, y in sources.tests]
    if not all(np.isfinite(each).all() for each in (errors, *tests)):
        raise UnitError("The subject's predictions are not finite.", "garbage")
    plain = np.array([wasserstein_1(errors, each) for each in tests])
    found = {"score_distance": float(plain.mean())}
    weigh = getattr(fitted, "calibration_weights", None)
    if weigh is not None:
        weights = [weigh(x) for x, _ in sources.tests]
        pairs = zip(tests, weights, strict=True)
        found = {
            "score_distance": float(np.mean([wasserstein_1(errors, e, w) for e, w in pairs])),
            "effective_sample_size": float(np.mean([effective_sample_size(w) for w in weights])),
        }
    limits = interpolated_weighted_quantile(errors, (1 - alphas).tolist())
    gaps = [np.abs((each[:, None] <= limits).mean(0) - (1 - alphas)).mean() for each in tests]
    ranks = {"wasserstein": _rank_correlation(gaps, plain)}
    if not math.isfinite(ranks["wasserstein"]) or any(np.ptp(e) == 0 for e in (errors, *tests)):
        return found
    found["rank_correlation"] = ranks["wasserstein"]
    for name, distance in (
        ("total_variation", total_variation),
        ("kl", kl_divergence),
        ("mean", mean_difference),
    ):
        other = _rank_correlation(gaps, [distance(each, errors) for each in tests])
        found[f"lead_over_{name}"] = ranks["wasserstein"] - other
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _rank_correlation(one: Sequence[float], two: Sequence[float] | np.ndarray) -> float:
    from scipy.stats import spearmanr

    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return math.nan
    return float(spearmanr(one, two).statistic)
