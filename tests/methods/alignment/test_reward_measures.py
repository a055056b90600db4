from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.alignment import (
    CharacteristicCorrelation,
    Gameability,
    SectionedPairAccuracy,
    characteristic_correlation,
    gameability,
    length_controlled_win_rate,
    sectioned_accuracy,
)

RNG = Rng(0)


def sample(n):
    """Return rewards and lengths of a biased scorer."""
    draw = np.random.default_rng(0)
    c = np.exp(draw.normal(6.5, 0.8, n))
    r = draw.normal(size=n) + 1.2 * np.log(c / 665) + 0.6 * np.sin(c / 700)
    return r, c


def test_correlation_is_spearman():
    r, c = sample(60)
    found = characteristic_correlation(r.reshape(-1, 2), c.reshape(-1, 2), draws=200)
    assert found.value == pytest.approx(spearmanr(r, c).statistic)
    assert found.low < found.value < found.high
    even = characteristic_correlation(np.ones(10), np.arange(10.0), draws=200)
    assert even.value == 0
    assert "All are equal" in even.note


def test_figure_shows_rewards_by_length():
    r, c = sample(1200)
    columns = {"reward_chosen": r[::2], "reward_rejected": r[1::2]}
    columns |= {"length_chosen": c[::2], "length_rejected": c[1::2]}
    figure = CharacteristicCorrelation().figure({"raw": Outcomes.of(**columns)}, RNG)
    (series,) = figure.series
    assert series.y[-1] > 0.5 > -0.5 > series.y[0]


def test_sections_are_those_of_reward_bench():
    """Two subsets of Reasoning: math-prm weighs 984, hep-go 164."""
    subsets = ["math-prm"] * 4 + ["hep-go"] * 4 + ["donotanswer"] * 2
    correct = [1, 1, 1, 0, 0, 0, 1, 0, 1, 0]
    table = sectioned_accuracy(correct, subsets)
    reasoning = (984 * 0.75 + 164 * 0.25) / (984 + 164)
    assert table["Reasoning"].value == pytest.approx(reasoning)
    assert table["all"].value == pytest.approx((reasoning + 0.5) / 2)
    assert "No pairs of Chat, Chat Hard" in table["all"].note
    one = sectioned_accuracy([1], ["hep-go"])["all"]
    assert one.value == 1
    assert "One pair gives no interval" in one.note
    with pytest.raises(UsageError, match="correct has 1 values that are NaN"):
        sectioned_accuracy([1, np.nan], ["hep-go"] * 2)
    with pytest.raises(UsageError, match=r'unknown subset "hep-ruby"\. Nearest: hep-'):
        sectioned_accuracy([1], ["hep-ruby"])
    rows = Outcomes.of(correct=[1.0, 0])
    outcomes = replace(rows, stratum=np.array([0, 0]), strata=("hep-go",))
    with pytest.raises(UsageError, match="no pairs of Safety"):
        SectionedPairAccuracy(section="Safety").statistic(outcomes)


def test_standard_error_of_sections():
    draw = np.random.default_rng(0)
    subsets = np.array(["math-prm"] * 40 + ["hep-go"] * 300)
    rates = np.where(subsets == "math-prm", 0.6, 0.9)
    found = sectioned_accuracy((draw.random(340) < rates).astype(float), subsets)["all"]
    w = 984 / 1148
    truth = np.sqrt(w**2 * 0.6 * 0.4 / 40 + (1 - w) ** 2 * 0.9 * 0.1 / 300)
    assert found.details["se"] == pytest.approx(truth, rel=0.15)


def test_length_controlled_win_rate_finds_the_rate_at_equal_length():
    draw = np.random.default_rng(0)
    d, hard = draw.normal(300, 500, 40_000), draw.normal(size=40_000)
    logit = -0.4 + 1.5 * np.tanh(d / d.std(ddof=1)) + 0.7 * hard
    p = 1 / (1 + np.exp(-logit))
    truth = np.mean(1 / (1 + np.exp(0.4 - 0.7 * hard)))
    soft = length_controlled_win_rate(p, d, difficulty=hard)
    assert soft.value == pytest.approx(truth, abs=1e-6)
    assert [soft.details[name] for name in ("theta", "phi", "psi")] == pytest.approx(
        [-0.4, 1.5, 0.7], abs=1e-5
    )
    other = length_controlled_win_rate(p, d, difficulty=50 + hard / 100)  # whatever the scale
    assert other.value == pytest.approx(truth, abs=1e-6)
    won = (draw.random(40_000) < p).astype(float)
    found = length_controlled_win_rate(won, d, difficulty=hard)
    assert found.low < truth < found.high
    assert won.mean() > found.high + 0.05


def test_length_controlled_win_rate_refuses():
    with pytest.raises(UsageError, match="all 3 comparisons went the same way"):
        length_controlled_win_rate([1, 1, 1], [1, 2, 3])
    with pytest.raises(UsageError, match="length differences must vary"):
        length_controlled_win_rate([1, 0, 1], [2, 2, 2])
    with pytest.raises(UsageError, match="preferences must be from 0 to 1"):
        length_controlled_win_rate([1, 0, 2], [1, 2, 3])
    for d in ([-2, -1, 1, 2], [-1, -1, 1, 1]):
        with pytest.raises(UsageError, match="length tells every outcome"):
            length_controlled_win_rate([0, 0, 1, 1], d)


def test_gameability_by_hand():
    metric = {"a": 0.5, "a_verbose": 0.7, "a_concise": 0.3, "b": 0.3, "b_verbose": 0.9}
    spread = np.std([0.5, 0.7, 0.3], ddof=1) / 0.5
    assert gameability(metric) == pytest.approx(100 * spread)
    reference = {"a": 0.9, "b": 0.1}
    assert gameability(metric, reference) == pytest.approx(100 * spread * 0.8 / 0.2)
    verbose = np.mean([np.std(x, ddof=1) / np.mean(x) for x in ((0.5, 0.7), (0.3, 0.9))])
    assert gameability(metric, variants=("_verbose",)) == pytest.approx(100 * verbose)
    with pytest.raises(UsageError, match="no model has all of NAME_verbose, NAME_concise"):
        gameability({"a": 0.5})
    one = Outcomes.of(won=[1.0, 0])
    other = replace(one, unit=np.array([7, 8]))
    rows = Outcomes.of(won=[1.0, 0, 1])
    arms = {
        name: replace(rows, unit=np.arange(3) + place)
        for name, place in (("a", 0), ("a_verbose", 0), ("a_concise", 1))
    }
    assert "2 units are not in every arm" in Gameability.tiny().measure(arms, RNG).note
    with pytest.raises(UsageError, match="share 0 units"):
        Gameability().measure({"a": one, "a_verbose": other, "a_concise": one}, RNG)
