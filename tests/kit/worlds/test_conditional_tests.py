import numpy as np
import pytest
from scipy.stats import kstest, t

from equipoise.core import Rng, UsageError
from equipoise.kit.worlds.conditional_tests import (
    SLOPES,
    label_draw,
    outlier_draw,
    two_sample_draw,
)


def test_noise_and_shift_of_a1_are_as_told():
    draw = outlier_draw("A1", Rng(0), n=4000, m=8000)
    rows = draw.examples
    wave = np.sin(2 * np.pi * rows.inputs[:, 0])
    noise = (rows.targets - rows.inputs[:, 1:] @ SLOPES) / (3 + 2 * wave)
    assert kstest(noise, "norm").pvalue > 0.01
    wave = np.sin(2 * np.pi * draw.inputs[:, 0])
    left = draw.targets - draw.inputs[:, 1:] @ SLOPES
    assert kstest((left / (3 + 2 * wave))[~draw.outlier], "norm").pvalue > 0.01
    shift = 3 * (3 + 1.5 * wave)
    away = np.minimum(np.abs(left - shift), np.abs(left + shift)) / (3 + 2 * wave)
    assert np.median(away[draw.outlier]) < 0.75  # of |N(0, 1)|: 0.67
    assert draw.outlier.mean() == 0.1
    assert (draw.quiet == (draw.inputs[:, 0] > 0.5)).all()


def test_spread_of_b1_is_as_told():
    draw = outlier_draw("B1", Rng(1), n=500, m=2000)
    size = (draw.inputs[:, :2] ** 2).sum(axis=1)
    scaled = (draw.inputs[:, 2:] ** 2).mean(axis=1) / (0.2 + 0.9 * size)
    assert scaled[~draw.outlier].mean() == pytest.approx(1, abs=0.02)
    assert scaled[draw.outlier].mean() == pytest.approx(4, abs=0.1)
    assert draw.quiet.mean() == pytest.approx(0.5, abs=0.04)


def test_labels_are_as_told_and_differ_by_quadrant():
    draw = label_draw(Rng(2), n=3000, m=3000)
    x, labels = draw.inputs, draw.labels
    mean = -2 * x[:, 0] + 7 * x[:, 1] ** 3 + 3 * np.exp(x[:, 2] + 2 * x[:, 3] ** 2)
    assert mean[labels[:, 0] == 1].min() > mean[labels[:, 0] == 0].max() - 7
    share = [labels[draw.quadrant == k].mean() for k in range(4)]
    assert max(share) > 3 * min(share)
    signs = (x[:, 0] > 0) + 2 * (x[:, 2] > 0)
    assert (signs == draw.quadrant).all()


def test_two_samples_are_as_told():
    (x, y), (z, w) = two_sample_draw("A3", Rng(3), n=20_000, alternative=False)
    slopes = np.array([1, 1, 1, -1, -1])
    assert kstest(y - x @ slopes, "norm").pvalue > 0.01
    assert kstest(w - z @ slopes, "norm").pvalue > 0.01
    assert z.mean(axis=0) - x.mean(axis=0) == pytest.approx([1, 1, -1, -1, 0], abs=0.04)
    _, (z, w) = two_sample_draw("A3", Rng(3), n=20_000)
    assert (w - z @ slopes).mean() == pytest.approx(0.5, abs=0.03)


def test_mixtures_are_as_told():
    (x, y), (z, w) = two_sample_draw("B3", Rng(5), n=20_000)
    mean = lambda r: r[:, 0] + r[:, 1] + r[:, 2] ** 2 - r[:, 3] ** 2 - r[:, 4] ** 3  # noqa: E731
    assert kstest(y - mean(x), t(5).cdf).pvalue > 0.01
    assert kstest(w - mean(z) - 0.8 * (1 - (z**2).sum(axis=1) / 10), t(5).cdf).pvalue > 0.01
    assert x.mean(axis=0) == pytest.approx([0.25, 0.25, -0.25, -0.25, 0], abs=0.04)
    assert z.var(axis=0) == pytest.approx([1.25] * 5, abs=0.05)


def test_draws_follow_their_stream():
    one, two, other = (outlier_draw("A1", Rng(seed), n=30, m=20) for seed in (0, 0, 1))
    assert (one.inputs == two.inputs).all()
    assert (one.targets == two.targets).all()
    assert not (one.inputs == other.inputs).any()


def test_unknown_scenarios_are_refused():
    with pytest.raises(UsageError, match='no outlier scenario "A3"'):
        outlier_draw("A3", Rng(0))
    with pytest.raises(UsageError, match='no two-sample scenario "A1"'):
        two_sample_draw("A1", Rng(0))
