"""Brier score and expected calibration error: are probabilities to be believed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between, one_of
from equipoise.kit.statistics import resampling, single
from equipoise.kit.statistics.columns import (
    builds_of,
    clusters_of,
    complete,
    enclosing,
    noted,
    repeated,
    rows_of,
)

Column = np.ndarray | Sequence[float]


def brier(
    probability: np.ndarray | Sequence[float] | Sequence[Sequence[float]],
    label: Column,
    *,
    units: Column | None = None,
    clusters: Column | None = None,
    builds: Column | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Mean squared distance of probabilities from what happened.

    With one probability a row, that of label 1, :math:`(p_i - y_i)^2`; with
    one a class, :math:`\sum_k (p_{ik} - 1[y_i = k])^2`, from 0 to 2.

    Parameters
    ----------
    probability
        Shape ``(n,)`` or ``(n, classes)``.
    label
        0 or 1, or the number of the class from 0.
    units, clusters, builds
        Unit, cluster and build of each row, as for `mean`.
    level
        Coverage the interval aims for.

    References
    ----------
    Brier: Verification of forecasts expressed in terms of probability, 1950.

    Examples
    --------
    >>> brier([0.75, 0.25], [1, 0]).value
    0.0625
    """
    loss = _brier_loss(np.asarray(probability, float), np.asarray(label, float))
    return single.mean(loss, units=units, clusters=clusters, builds=builds, level=level)


def expected_calibration_error(
    probability: Column,
    label: Column,
    *,
    bins: int = 15,
    binning: Literal["width", "mass"] = "width",
    clusters: Column | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""Expected calibration error: how far shares of hits lie from the probabilities told.

    .. math:: \sum_b \frac{n_b}{n} | \bar y_b - \bar p_b |

    Noise alone makes it larger than zero. The details hold a ``debiased``
    value, nearer the truth though still too large for a calibrated subject:
    with :math:`\sigma_b^2 = \bar y_b (1 - \bar y_b) / n_b`, the gap of each bin
    is lessened by :math:`E |N(\bar y_b - \bar p_b, \sigma_b^2)|` minus itself.

    Parameters
    ----------
    probability
        Probability told of what ``label`` says came true, shape ``(n,)``.
    label
        0 or 1.
    bins
        How many.
    binning
        ``"width"`` for bins of equal width in [0, 1], ``"mass"`` for bins with
        equally many rows.
    clusters
        Cluster of each row, where units are not independent.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    References
    ----------
    Naeini et al. 2015; Kumar, Liang, Ma: Verified uncertainty calibration, 2019.

    Examples
    --------
    >>> found = expected_calibration_error([0.9] * 100, [1] * 70 + [0] * 30)
    >>> round(found.value, 6)
    0.2
    """
    p, y = _pair("expected_calibration_error", probability, label)

    def statistic(p: np.ndarray, y: np.ndarray) -> float:
        return _calibration_error(p, y, bins, binning)

    found = enclosing(
        resampling.bootstrap(
            statistic,
            (p, y),
            clusters=clusters,
            level=level,
            draws=draws,
            rng=Rng(0) if rng is None else rng,
        )
    )
    noise = _noise(p, y, bins, binning)
    return noted(
        replace(found, details={**found.details, "debiased": found.value - noise}),
        f"Noise is expected to have added about {noise:.3f}.",
    )


def _brier_loss(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    if len(p) != len(y) or p.ndim not in (1, 2) or y.ndim != 1:
        raise UsageError(f"brier: give one label a row, got {y.shape} for {p.shape}.")
    if not ((p >= 0) & (p <= 1)).all():
        raise UsageError("brier: probabilities must be from 0 to 1.")
    if p.ndim == 1:
        if not np.isin(y, (0, 1)).all():
            raise UsageError("brier: labels must be 0 or 1 where there is one probability a row.")
        return np.asarray((p - y) ** 2)
    classes = np.arange(p.shape[1])
    if not np.isin(y, classes).all():
        raise UsageError(f"brier: labels must be class numbers from 0 to {p.shape[1] - 1}.")
    return np.asarray(((p - (y[:, None] == classes)) ** 2).sum(axis=1))


def _calibration_error(p: np.ndarray, y: np.ndarray, bins: int, binning: str) -> float:
    gaps = np.bincount(_places(p, bins, binning), weights=y - p, minlength=bins)
    return float(np.abs(gaps).sum()) / len(p)


def _noise(p: np.ndarray, y: np.ndarray, bins: int, binning: str) -> float:
    """Return what noise is expected to add to the error, to first order."""
    place = _places(p, bins, binning)
    size = np.bincount(place, minlength=bins)
    used = size > 0
    size = size[used]
    hits = np.bincount(place, weights=y, minlength=bins)[used] / size
    told = np.bincount(place, weights=p, minlength=bins)[used] / size
    gap, spread = np.abs(hits - told), np.sqrt(hits * (1 - hits) / size)
    safe = np.where(spread > 0, spread, 1.0)
    folded = spread * np.sqrt(2 / np.pi) * np.exp(-(gap**2) / (2 * safe**2)) + gap * (
        1 - 2 * ndtr(-gap / safe)
    )
    return float(size @ np.where(spread > 0, folded - gap, 0.0) / len(p))


def _places(p: np.ndarray, bins: int, binning: str) -> np.ndarray:
    """Return each row's bin."""
    if binning == "width":
        return np.asarray(np.minimum((p * bins).astype(int), bins - 1))
    # Equal probabilities share a bin: the rank of their first copy decides.
    return np.asarray(np.searchsorted(np.sort(p), p) * bins // len(p))


def _pair(part: str, probability: Column, label: Column) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(probability, float), np.asarray(label, float)
    if p.shape != y.shape or p.ndim != 1:
        raise UsageError(f"{part}: give one label a row, got {y.shape} for {p.shape}.")
    if not ((p >= 0) & (p <= 1)).all():
        raise UsageError(f"{part}: probabilities must be from 0 to 1.")
    if not np.isin(y, (0, 1)).all():
        raise UsageError(f"{part}: labels must be 0 or 1.")
    return p, y


@dataclass(frozen=True)
class Brier(Measure):
    """Brier score, from the scores ``probability`` and ``label``.

    Parameters
    ----------
    probability
        Score with the probability of label 1.
    label
        Score with what happened, 0 or 1.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> Brier().statistic(Outcomes.of(probability=[0.75, 0.25], label=[1, 0]))
    0.0625
    """

    higher_is_better = False

    probability: str = "probability"
    label: str = "label"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 120 uniform probabilities that come true: E p(1-p) is 1/6."""
        generator = rng.numpy()
        p = generator.random(120)
        return rows_of({self.probability: p, self.label: generator.random(120) < p}), 1 / 6

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the score; ``rng`` is not used."""
        rows, note = complete("Brier", outcomes, self.probability, self.label)
        found = brier(
            rows.score(self.probability),
            rows.score(self.label),
            units=rows.unit if repeated(rows) else None,
            clusters=rows.cluster,
            builds=builds_of(rows),
            level=self.level,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the score alone."""
        rows, _ = complete("Brier", outcomes, self.probability, self.label)
        return float(_brier_loss(rows.score(self.probability), rows.score(self.label)).mean())


@dataclass(frozen=True)
class ExpectedCalibrationError(Measure):
    """Expected calibration error, from the scores ``probability`` and ``label``.

    Parameters
    ----------
    probability
        Score with the probability told.
    label
        Score with what happened, 0 or 1.
    bins
        How many.
    binning
        Bins of equal ``"width"`` or of equal ``"mass"``.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> outcomes = Outcomes.of(probability=[0.9] * 10, label=[1] * 7 + [0] * 3)
    >>> round(ExpectedCalibrationError().statistic(outcomes), 6)
    0.2
    """

    higher_is_better = False

    probability: str = "probability"
    label: str = "label"
    bins: int = between(1, 1000, default=15)
    binning: str = one_of("width", "mass", default="width")
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> ExpectedCalibrationError:
        """Return few bins and resamples."""
        return cls(bins=5, draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 300 uniform probabilities that come true half as often: the error is 1/4."""
        generator = rng.numpy()
        p = generator.random(300)
        y = generator.random(300) < p / 2
        return rows_of({self.probability: p, self.label: y}), 0.25

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the error with its interval."""
        rows, note = complete("ExpectedCalibrationError", outcomes, self.probability, self.label)
        found = expected_calibration_error(
            rows.score(self.probability),
            rows.score(self.label),
            bins=self.bins,
            binning="width" if self.binning == "width" else "mass",
            clusters=clusters_of(rows),
            level=self.level,
            draws=self.draws,
            rng=rng,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the error alone."""
        rows, _ = complete("ExpectedCalibrationError", outcomes, self.probability, self.label)
        p, y = rows.score(self.probability), rows.score(self.label)
        return _calibration_error(p, y, self.bins, self.binning)
