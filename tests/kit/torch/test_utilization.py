import math

import numpy as np
import pytest
from scipy.stats import ortho_group

from equipoise.core import UsageError
from equipoise.kit.torch.utilization import ellipsoid_utilization, quantization_space_utilization

SPLIT = np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)


def of(covariance, **settings):
    return ellipsoid_utilization(np.zeros(len(covariance)), np.asarray(covariance), **settings)


def test_closed_forms():
    assert of(np.eye(2)) == pytest.approx(math.pi / 4)
    assert of(np.eye(3)) == pytest.approx(math.pi / 6)
    assert of(np.eye(1)) == pytest.approx(1.0)  # an interval fills itself
    stretched = np.diag([4.0, 1.0])
    assert of(stretched) == pytest.approx(math.pi / 8)
    assert of(stretched, box="leading") == pytest.approx(math.pi / 8)
    turned = SPLIT @ stretched @ SPLIT.T
    assert of(turned, box="leading") == pytest.approx(math.pi / 4)
    assert of(turned) == pytest.approx(math.pi * 2 / (4 * 2.5))
    whitening = np.diag([0.5, 1.0]) @ SPLIT.T  # back to the axes, then to one size
    assert of(whitening @ turned @ whitening.T) == pytest.approx(math.pi / 4)


def test_known_mean_and_coverage():
    # Half side sqrt(chi2) + 1 in place of sqrt(chi2), in one dimension: chi2 at .6827 is 1.
    rate = ellipsoid_utilization(np.ones(1), np.eye(1), coverage=math.erf(1 / math.sqrt(2)))
    assert rate == pytest.approx(0.5)
    assert of(np.diag([3.0, 2.0, 1.0]), coverage=0.5) == pytest.approx(of(np.diag([3.0, 2.0, 1.0])))


def test_what_leaves_it_and_what_raises_it():
    rng = np.random.default_rng(0)
    turn = ortho_group.rvs(6, random_state=rng)
    covariance = turn @ np.diag(rng.uniform(0.1, 5, 6)) @ turn.T
    assert of(9 * covariance) == pytest.approx(of(covariance))
    ball = of(np.eye(6))
    for seed in range(20):
        other = ortho_group.rvs(6, random_state=seed)
        assert of(other @ covariance @ other.T) < ball  # no rotation reaches the ball
        assert of(other @ np.eye(6) @ other.T) == pytest.approx(ball)
    scaled = np.diag(np.diagonal(covariance) ** -0.5)
    assert of(covariance) < of(scaled @ covariance @ scaled) < ball


def test_many_dimensions_do_not_underflow():
    rate = of(np.eye(2000), per_dimension=True)
    # Stirling: (ln V_ball - d ln 2) / d -> ln(pi e / (2 d)) / 2.
    assert rate == pytest.approx(math.log(math.pi * math.e / 4000) / 2, abs=0.01)
    assert of(np.eye(5), per_dimension=True) == pytest.approx(math.log(of(np.eye(5))) / 5)


def test_samples_come_near_the_truth():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(4, 4))
    x = rng.normal(size=(200_000, 4)) @ root
    assert quantization_space_utilization(x) == pytest.approx(of(root.T @ root), rel=0.03)


def test_a_rate_above_one_shows_that_the_papers_box_is_too_small():
    turned = SPLIT @ np.diag([1.001, 1.0]) @ SPLIT.T
    assert of(turned, box="leading") > 1.5
    assert of(turned) == pytest.approx(math.pi / 4, rel=1e-3)


def test_faults_are_told():
    with pytest.raises(UsageError, match="more rows than channels, got shape"):
        quantization_space_utilization(np.ones((3, 3)))
    constant = np.random.default_rng(0).normal(size=(50, 3))
    constant[:, 1] = 2.0
    with pytest.raises(UsageError, match="positive definite"):
        quantization_space_utilization(constant)
    with pytest.raises(UsageError, match="must be finite"):
        quantization_space_utilization(np.full((9, 2), np.nan))
    with pytest.raises(UsageError, match="coverage must be within 0 and 1"):
        of(np.eye(2), coverage=1.0)
    with pytest.raises(UsageError, match="box must be"):
        of(np.eye(2), box="round")
    with pytest.raises(UsageError, match="must be 2 by 2"):
        ellipsoid_utilization(np.zeros(2), np.eye(3))
