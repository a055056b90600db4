import math

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.evaluation import brier, expected_calibration_error
from equipoise.methods.evaluation.calibration import Brier, ExpectedCalibrationError

RNG = Rng(0)


def forecasts(generator, n, power=1.0):
    """Return probabilities and labels; a power other than one miscalibrates."""
    truth = generator.beta(1, 1, n)
    return truth, (generator.random(n) < truth**power).astype(float)


def test_brier_is_scikit_learns():
    p, y = forecasts(np.random.default_rng(0), 200)
    assert brier(p, y).value == pytest.approx(brier_score_loss(y, p))
    both = np.stack([1 - p, p], axis=1)
    assert brier(both, y).value == pytest.approx(2 * brier_score_loss(y, p))
    three = np.random.default_rng(1).dirichlet([1, 1, 1], 50)
    labels = np.arange(50) % 3
    assert brier(three, labels).value == pytest.approx(
        ((three - np.eye(3)[labels]) ** 2).sum(1).mean()
    )


def test_brier_covers():
    generator, hits, runs = np.random.default_rng(1), 0, 600
    for _ in range(runs):
        found = brier(*forecasts(generator, 100), level=0.9)
        hits += found.low <= 1 / 6 <= found.high  # E p(1-p) for a uniform p
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


@pytest.mark.parametrize(("binning", "strategy"), [("width", "uniform"), ("mass", "quantile")])
def test_error_is_that_of_the_calibration_curve(binning, strategy):
    p, y = forecasts(np.random.default_rng(2), 600, power=2)
    hits, told = calibration_curve(y, p, n_bins=12, strategy=strategy)
    edges = np.linspace(0, 1, 13)
    edges = edges if binning == "width" else np.quantile(p, edges)
    place = np.searchsorted(edges[1:-1], p)
    sizes = np.bincount(place, minlength=12)
    found = expected_calibration_error(p, y, bins=12, binning=binning, draws=100)
    assert found.value == pytest.approx(np.abs(hits - told) @ sizes / 600, abs=2e-3)


def test_one_bin_and_hand_case():
    p, y = [0.2, 0.2, 0.8, 0.8] * 10, [0, 1, 1, 1] * 10
    wide = expected_calibration_error(p, y, bins=2, draws=100)
    assert wide.value == pytest.approx((0.3 + 0.2) / 2)
    assert expected_calibration_error(p, y, bins=1, draws=100).value == pytest.approx(0.25)
    mass = expected_calibration_error(p, y, bins=2, binning="mass", draws=100)
    assert mass.value == pytest.approx(0.25)


def test_debiased_is_nearer_the_truth():
    generator = np.random.default_rng(3)
    plain, debiased = [], []
    for _ in range(60):
        found = expected_calibration_error(*forecasts(generator, 300), draws=100)
        plain.append(found.value)
        debiased.append(found.details["debiased"])
    assert np.mean(plain) > 0.06  # a perfectly calibrated forecaster
    assert 0 < np.mean(debiased) < 0.7 * np.mean(plain)


def test_error_covers_where_miscalibration_is_plain():
    # P(y = 1) = p/2: within each bin the gap is half the mean told, so the error is 1/4.
    generator, hits, runs = np.random.default_rng(4), 0, 150
    for run in range(runs):
        p = generator.random(300)
        y = (generator.random(300) < p / 2).astype(float)
        found = expected_calibration_error(p, y, bins=5, level=0.9, draws=300, rng=Rng(run))
        assert found.low <= found.value <= found.high
        hits += found.low <= 0.25 <= found.high
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


@pytest.mark.parametrize("part", [Brier(), ExpectedCalibrationError(draws=200)], ids=repr)
def test_parts(part):
    p, y = forecasts(np.random.default_rng(5), 120)
    p[0] = math.nan
    rows = Outcomes.of(probability=p, label=y)
    found = part.measure(rows, RNG)
    again = part.measure(rows.take(np.random.default_rng(0).permutation(120)), RNG)
    assert (found.low, found.value, found.high) == pytest.approx(
        (again.low, again.value, again.high)
    )
    assert found.value == pytest.approx(part.statistic(rows))
    assert found.n == 119
    assert "1 of 120 rows" in found.note
    assert part.better(rows) is False


def test_refusals():
    with pytest.raises(UsageError, match="probabilities must be from 0 to 1"):
        brier([1.2, 0.5], [1, 0])
    with pytest.raises(UsageError, match="labels must be 0 or 1"):
        expected_calibration_error([0.2, 0.5], [1, 2])
    with pytest.raises(UsageError, match="class numbers from 0 to 1"):
        brier([[0.5, 0.5], [0.5, 0.5]], [1, 2])
    with pytest.raises(UsageError, match="one label a row"):
        brier([0.5, 0.5], [1])
