import numpy as np
import pytest
from scipy import integrate

from equipoise.core import Rng
from equipoise.kit.worlds.right_censored import RightCensored

SETTINGS = range(1, 7)
# Censored shares as another simulation of these settings found them.
SHARES = {1: 0.42, 2: 0.55, 3: 0.74, 4: 0.64, 5: 0.60, 6: 0.60}


@pytest.mark.parametrize("setting", SETTINGS)
def test_draws_follow_the_law(setting):
    world = RightCensored(setting)
    found = world.draw(40_000, Rng(1))
    events = found.targets[:, 1]
    assert 1 - events.mean() == pytest.approx(SHARES[setting], abs=0.01)
    below = found.times[:, None] < world.quantiles(found.inputs, [0.1, 0.5, 0.9])
    assert below.mean(axis=0) == pytest.approx([0.1, 0.5, 0.9], abs=0.006)
    assert world.event_probability(found.inputs).mean() == pytest.approx(events.mean(), abs=0.01)
    missed = found.targets[:, 0] < world.quantiles(found.inputs, [0.1])[:, 0]
    assert world.seen_miss(found.inputs, 0.1).mean() == pytest.approx(missed.mean(), abs=0.01)
    weights = events / world.event_probability(found.inputs)
    assert world.event_miss(found.inputs, 0.1).mean() == pytest.approx(
        float((weights * missed).mean()), abs=0.015
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_quadrature_is_that_of_scipy(setting):
    world = RightCensored(setting)
    x = world.draw(3, Rng(2)).inputs
    for row in range(3):

        def still(u, row=row):
            quantile = world.quantiles(x[row : row + 1], [u])
            return float(world.still_followed(x[row : row + 1], quantile)[0, 0])

        whole, part = (integrate.quad(still, 0, end, limit=200)[0] for end in (1, 0.07))
        assert world.event_probability(x)[row] == pytest.approx(whole, rel=1e-5)
        assert world.event_miss(x, 0.07)[row] == pytest.approx(part / whole, rel=1e-5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_both_miss_rates_are_at_least_the_level(setting):
    world = RightCensored(setting)
    x = world.draw(500, Rng(3)).inputs
    for level in (0.001, 0.01, 0.05, 0.1, 0.3, 0.7):
        assert (world.seen_miss(x, level) >= level - 1e-12).all()
        assert (world.event_miss(x, level) >= level - 1e-9).all()


def test_without_censoring_all_is_seen():
    world = RightCensored(3, censored=False)
    found = world.draw(100, Rng(0))
    assert found.targets[:, 1].all()
    assert (found.targets[:, 0] == found.times).all()
    assert world.event_probability(found.inputs) == pytest.approx(np.ones(100))
    assert world.seen_miss(found.inputs, 0.1) == pytest.approx(np.full(100, 0.1))
