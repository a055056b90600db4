"""Planning: the power that is promised is the power that simulated trials have."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics import PairedDesign, detectable, discordance, paired_difference
from equipoise.kit.statistics.effects import _tango
from equipoise.kit.statistics.power import split_repeats, variance_range
from equipoise.kit.statistics.robust import cluster_variance


def near(share, of, runs):
    return abs(share - of) <= 3.5 * math.sqrt(of * (1 - of) / runs)


@pytest.mark.parametrize("effect", [0.15, 0.3, 0.8])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_units_of_a_t_test_are_those_of_statsmodels(effect, level):
    found = PairedDesign(sd=1.0).units(effect, level=level, power=0.9)
    theirs = TTestPower().solve_power(effect, power=0.9, alpha=1 - level, alternative="two-sided")
    assert found == math.ceil(theirs)


@pytest.mark.parametrize(("psi", "effect"), [(0.1, 0.02), (0.2, 0.05), (0.5, 0.2)])
def test_units_of_binary_pairs_are_connors(psi, effect):
    z, z_power = stats.norm.ppf([0.975, 0.8])
    connor = (z * math.sqrt(psi) + z_power * math.sqrt(psi - effect**2)) ** 2 / effect**2
    assert PairedDesign(discordant=psi).units(effect) == math.ceil(connor)


def simulated(psi, effect, n, above, runs=4_000, seed=0):
    """Return how often Tango's interval lies above a bound."""
    rng = np.random.default_rng(seed)
    shares = [(psi + effect) / 2, (psi - effect) / 2, 1 - psi]
    wins, losses, _ = rng.multinomial(n, shares, size=runs).T
    pairs, counts = np.unique(np.stack([wins, losses], 1), axis=0, return_counts=True)
    hits = [_tango(float(w), float(v), n, 0.95)[0] > above for w, v in pairs]
    return counts[hits].sum() / runs


@pytest.mark.parametrize(
    ("psi", "effect", "above"), [(0.2, 0.05, 0.0), (0.15, 0.0, -0.03), (0.2, 0.06, 0.02)]
)
def test_binary_pairs_have_the_power_that_is_promised(psi, effect, above):
    n = PairedDesign(discordant=psi).units(effect, above=above, power=0.8)
    assert simulated(psi, effect, n, above) == pytest.approx(0.8, abs=0.03)


def test_the_power_of_a_t_interval_at_small_sizes():
    design, rng = PairedDesign(sd=1.0), np.random.default_rng(1)
    n = design.units(1.0, power=0.8)
    x = rng.normal(1.0, 1.0, size=(20_000, n))
    reach = stats.t.ppf(0.975, n - 1) * x.std(axis=1, ddof=1) / math.sqrt(n)
    assert near((x.mean(axis=1) > reach).mean(), design.power(n, 1.0), 20_000)


def test_clusters_have_the_power_that_is_promised():
    size, icc, effect = 5, 0.3, 0.3
    deff = 1 + (size - 1) * icc
    design = PairedDesign(sd=math.sqrt(deff), clusters_per_unit=1 / size)
    clusters = math.ceil(design.units(effect, power=0.8) / size)
    rng, runs, hits = np.random.default_rng(2), 3_000, 0
    groups = np.repeat(np.arange(clusters), size)
    for _ in range(runs):
        x = effect + rng.normal(0, math.sqrt(icc), clusters)[groups]
        x = x + rng.normal(0, math.sqrt(1 - icc), groups.size)
        variance, df = cluster_variance(x, groups, clusters)
        hits += x.mean() - stats.t.ppf(0.975, df) * math.sqrt(variance) > 0
    assert near(hits / runs, design.power(clusters * size, effect), runs)
    assert hits / runs == pytest.approx(0.8, abs=0.03)


def test_equivalence_has_the_power_that_is_promised():
    design, rng = PairedDesign(sd=1.0), np.random.default_rng(3)
    n = design.units(0.0, within=0.2, level=0.9, power=0.8)
    x = rng.normal(0, 1, size=(5_000, n))
    reach = stats.t.ppf(0.95, n - 1) * x.std(axis=1, ddof=1) / math.sqrt(n)
    inside = (x.mean(axis=1) - reach > -0.2) & (x.mean(axis=1) + reach < 0.2)
    assert near(inside.mean(), 0.8, 5_000)


def test_what_can_be_detected_is_the_effect_that_needs_so_many_units():
    for design in (PairedDesign(sd=0.4), PairedDesign(discordant=0.3)):
        effect = design.detectable(500, level=0.99)
        assert design.power(500, effect, level=0.99) == pytest.approx(0.8, abs=1e-6)
    assert PairedDesign(discordant=0.3).detectable(3) == math.inf


def test_builds_that_vary_too_much_leave_no_number():
    assert PairedDesign(sd=1.0, floor=0.0).units(0.1) is not None
    assert PairedDesign(sd=1.0, floor=0.01).units(0.1) is None
    assert PairedDesign(sd=1.0).units(-0.1) is None
    assert PairedDesign(sd=1.0).units(0.3, within=0.2) is None


def test_detectable_goes_by_the_interval():
    x = np.random.default_rng(4).normal(size=40)
    found = paired_difference(x, np.zeros(40))
    se = found.details["se"]
    wanted = (stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)) * se
    assert detectable(found) == pytest.approx(wanted)
    assert detectable(Estimate(0, -1.96, 1.96)) == pytest.approx(2.8016, abs=1e-3)


def test_discordance_is_that_of_simulated_answers():
    rng = np.random.default_rng(5)
    p, q, rho = 0.7, 0.75, 0.4
    both = p * q + rho * math.sqrt(p * (1 - p) * q * (1 - q))
    cells = rng.choice(4, p=[both, p - both, q - both, 1 - p - q + both], size=200_000)
    a, b = np.isin(cells, (0, 1)), np.isin(cells, (0, 2))
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(rho, abs=0.01)
    assert discordance(p, q - p, rho) == pytest.approx((a != b).mean(), abs=0.005)


def test_the_range_of_a_variance_covers(covers):
    x = np.random.default_rng(6).normal(size=(4_000, 30))
    low, high = variance_range(29)
    spread = x.var(axis=1, ddof=1)
    covers(((spread * low <= 1) & (spread * high >= 1)).tolist(), 0.95, 0.95)


def test_repeats_are_told_from_units():
    rng = np.random.default_rng(7)
    units = np.repeat(np.arange(4_000), rng.integers(1, 5, 4_000))
    d = rng.normal(0, 1.0, 4_000)[units] + rng.normal(0, 2.0, units.size)
    found = split_repeats(d, units)
    assert found.between == pytest.approx(1.0, abs=0.25)
    assert found.within == pytest.approx(4.0, abs=0.25)
    assert found.share == pytest.approx(0.8, abs=0.05)
    assert found.factor(10**6) < found.factor(2) < found.factor(1)
    assert split_repeats(d[:1], units[:1]) is None
    assert split_repeats(np.arange(5.0), np.arange(5)) is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PairedDesign(sd=-1), "sd and floor"),
        (lambda: PairedDesign(discordant=1.2), "discordant"),
        (lambda: PairedDesign(sd=1).units(0.1, power=1), "power must be"),
        (lambda: PairedDesign(sd=1).power(9, 0.1, level=1), "level must be"),
        (lambda: discordance(0.7, 0.4, 0.5), "rates must be"),
        (lambda: discordance(0.7, 0.2, 0.9), "correlation must be"),
        (lambda: detectable(Estimate(0, -1, 1), power=0), "power must be"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
