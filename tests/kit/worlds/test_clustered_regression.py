import numpy as np
import pytest

from equipoise.core import Rng
from equipoise.kit.worlds.clustered_regression import LEARNERS, ClusteredRegression, gaussian


def test_rows_have_the_distribution_they_say():
    world = ClusteredRegression.draw(Rng(0), clusters=20, offset=2.0)
    rows = world.deployment(20_000, 0.3, Rng(1))
    assert (rows.group >= 20).mean() == pytest.approx(0.3, abs=0.02)
    x, y = rows.inputs, rows.targets
    rest = y - x @ world.slope - np.sin(x[:, 0]) - world.offsets[rows.group]
    assert rest.std() == pytest.approx(0.2, rel=0.03)
    inside = x - world.centres[rows.group]
    assert inside.std() == pytest.approx(0.3, rel=0.03)
    known = world.labelled(Rng(2))
    assert set(known.group) <= set(range(20))
    assert np.bincount(known.group).max() <= 13


def test_nearest_is_that_of_scikit_learn():
    neighbors = pytest.importorskip("sklearn.neighbors")
    rng = np.random.default_rng(0)
    x, y, rows = rng.normal(size=(60, 3)), rng.normal(size=60), rng.normal(size=(40, 3))
    for name, k in (("nearest", 1), ("nearest_5", 5)):
        theirs = neighbors.KNeighborsRegressor(k).fit(x, y).predict(rows)
        assert np.allclose(LEARNERS[name](x, y, rows), theirs)
    ridge = pytest.importorskip("sklearn.linear_model").Ridge(1.0).fit(x, y)
    assert np.allclose(LEARNERS["linear"](x, y, rows), ridge.predict(rows))
    kernel = pytest.importorskip("sklearn.gaussian_process.kernels").RBF(3.0)
    assert np.allclose(gaussian(x, rows), np.exp(-((x[:, None] - rows) ** 2).sum(axis=2) / 2))
    from sklearn.kernel_ridge import KernelRidge

    theirs = KernelRidge(alpha=1.0, kernel=kernel).fit(x, y - y.mean()).predict(rows) + y.mean()
    assert np.allclose(LEARNERS["smooth"](x, y, rows), theirs)
