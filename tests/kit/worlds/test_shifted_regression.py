import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.worlds.shifted_regression import mixed, noise, shifted_domains


def test_same_stream_same_domains():
    one, two = (shifted_domains(Rng(3), rows=60) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert all(map(np.array_equal, first, second))
    other = shifted_domains(Rng(4), rows=60)
    assert not np.array_equal(one[0][1], other[0][1])


def test_domains_differ_in_covariates_and_in_concept():
    domains = shifted_domains(Rng(0), rows=20_000)
    assert [x.mean() for x, _ in domains] == pytest.approx([-0.5, 0, 0.5], abs=0.02)
    # The scatter about a smooth fit has the domain's own noise: 0.1, 1 and 0.4 at x_1 = 0.
    for (x, y), sigma in zip(domains, (0.1, 1.0, 0.4), strict=True):
        here = np.abs(x[:, 0]) < 0.2
        order = np.argsort(((x[here] - x[here][:1]) ** 2).sum(1))[:150]
        design = np.c_[np.ones(150), x[here][order]]
        fit, *_ = np.linalg.lstsq(design, y[here][order], rcond=None)
        assert (y[here][order] - design @ fit).std() == pytest.approx(sigma, rel=0.35, abs=0.15)


def test_splits_share_no_row_and_mixtures_hold_their_shares():
    domains = [(np.arange(300.0)[:, None] + 1000 * k, np.full(300, k)) for k in range(3)]
    found = mixed(domains, Rng(1), tests=50, rows=1000)
    train, calibration = found.learn.of("train"), found.learn.of("calibration")
    assert len(train) == len(calibration) == 300
    tested = np.unique(np.concatenate([x[:, 0] for x, _ in found.tests]))
    assert not np.isin(tested, found.learn.inputs[:, 0]).any()
    assert not np.isin(train.inputs, calibration.inputs).any()
    assert np.array_equal(train.group, train.inputs[:, 0] // 1000)
    assert found.shares.sum(1) == pytest.approx(np.ones(50))
    for (_, y), share in zip(found.tests, found.shares, strict=True):
        assert np.bincount(y.astype(int), minlength=3).tolist() == [int(1000 * w) for w in share]
    # The first share is uniform, the second uniform on what is left.
    assert found.shares[:, 0].mean() == pytest.approx(0.5, abs=0.12)
    assert found.shares[:, 1].mean() == pytest.approx(0.25, abs=0.1)


def test_ratio_noise_has_the_median_size_of_normal_noise():
    generator = np.random.default_rng(0)
    normal, ratio = (noise(3.0, 200_000, kind, generator) for kind in ("normal", "ratio"))
    assert np.median(np.abs(ratio)) == pytest.approx(np.median(np.abs(normal)), rel=0.02)
    assert np.abs(ratio).max() > 1000 * np.abs(normal).max()


def test_too_few_rows_are_refused():
    with pytest.raises(UsageError, match="Domain 1 has 14 rows; at least 15"):
        mixed([(np.zeros((n, 1)), np.zeros(n)) for n in (15, 14)], Rng(0))
