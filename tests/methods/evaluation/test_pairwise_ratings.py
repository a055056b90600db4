"""Ratings as measures: arms compared on their units, with ranks, notes and a figure."""

import math

import numpy as np
import pytest

from equipoise.catalog import catalog
from equipoise.core import Measure, Outcomes, Rng, ScoreSpec, UsageError
from equipoise.kit.statistics import bradley_terry
from equipoise.kit.statistics.comparisons import Comparisons
from equipoise.kit.statistics.ratings import ELO
from equipoise.methods.evaluation.pairwise_ratings import BradleyTerryRatings, EloRatings
from equipoise.report.figures import draw


@pytest.fixture
def arms():
    return BradleyTerryRatings().simulate(Rng(3))[0]


def test_points_are_the_fit_in_other_units(arms):
    fit = bradley_terry(Comparisons.between_arms(arms, "quality"))
    low, high = fit.ends(0.9)
    for i, (name, each) in enumerate(BradleyTerryRatings(level=0.9).measure(arms, Rng(0)).items()):
        assert name == fit.models[i]
        assert each.value == pytest.approx(1000 + ELO * fit.scores[i])
        assert (each.low, each.high) == pytest.approx((1000 + ELO * low[i], 1000 + ELO * high[i]))
        assert each.details["games"] == each.n == 300
        assert each.clusters == 150
        assert 1 <= each.details["rank_low"] <= each.details["rank_high"] <= 3
    logs = BradleyTerryRatings(scale="log").measure(arms, Rng(0))
    assert [each.value for each in logs.values()] == pytest.approx(list(fit.scores))


def test_a_bootstrap_says_much_the_same(arms):
    one = BradleyTerryRatings().measure(arms, Rng(0))
    two = BradleyTerryRatings(interval="bootstrap").measure(arms, Rng(0))
    for name in one:
        assert two[name].value == one[name].value
        assert two[name].details["se"] == pytest.approx(one[name].details["se"], rel=0.15)
        assert two[name].low == pytest.approx(one[name].low, abs=8)
        assert two[name].method == "bradley-terry, bootstrap"


def test_win_rates(arms):
    met = Comparisons.between_arms(arms, "quality")
    found = BradleyTerryRatings().rate(met, Rng(0))
    rates = met.wins().sum(axis=1) / 300
    assert [each.details["win_rate"] for each in found.values()] == pytest.approx(list(rates))


def test_elo_is_near_bradley_terry_and_does_not_see_the_order(arms):
    one = EloRatings(orders=50).measure(arms, Rng(0))
    for name, each in BradleyTerryRatings().measure(arms, Rng(0)).items():
        assert one[name].value == pytest.approx(each.value, abs=15)
        assert one[name].low < one[name].value < one[name].high
        assert one[name].details["order_sd"] > 0
    met = Comparisons.between_arms(arms, "quality")
    order = np.random.default_rng(0).permutation(len(met))
    turned = Comparisons(met.models, *(x[order] for x in (met.first, met.second, met.score)),
                         met.prompts, met.prompt[order], met.cluster[order])  # fmt: skip
    again = EloRatings(orders=50).rate(turned, Rng(0))
    assert [e.value for e in again.values()] == [e.value for e in one.values()]
    given = [EloRatings(order="given").rate(each, Rng(0)) for each in (met, turned)]
    assert given[0]["arm 0"].value != given[1]["arm 0"].value


def test_elo_says_when_the_order_is_most_of_it():
    generator = np.random.default_rng(0)
    met = Comparisons(
        ("a", "b"), np.zeros(4000, int), np.ones(4000, int), generator.integers(2, size=4000) * 1.0
    )
    note = EloRatings(k=64, orders=5, draws=100).rate(met, Rng(0))["a"].note
    assert "order of comparisons" in note
    assert "order" not in EloRatings(k=1, draws=100).rate(met, Rng(0))["a"].note


def test_circles_are_noted():
    met = Comparisons.of(["a", "b", "c"] * 30, ["b", "c", "a"] * 30, ([1] * 9 + [0]) * 9)
    each = BradleyTerryRatings().rate(met, Rng(0))["a"]
    assert "no ranking explains" in each.note
    assert each.details["cyclic"] == pytest.approx(1)
    assert each.details["rank_low"], each.details["rank_high"] == (1, 3)


def test_ties_have_their_parameter_in_the_details():
    met = Comparisons.of(["a", "b"] * 40, ["b", "a"] * 40, [1, 0.5, 0.5, 1, 0, 1, 0, 0.5] * 10)
    details = BradleyTerryRatings(ties="davidson").rate(met, Rng(0))["a"].details
    assert math.isfinite(details["tie"])
    assert "tie" not in BradleyTerryRatings().rate(met, Rng(0))["a"].details


def test_the_score_and_its_direction():
    spec = ScoreSpec("loss", higher_is_better=False)
    arms = {
        name: Outcomes.of(loss=np.arange(40) % 7 + shift, other=np.zeros(40),
                          specs=[spec, ScoreSpec("other")])
        for name, shift in (("good", np.tile([-1.0, 1.0, -1.0, -1.0], 10)), ("bad", 0.0))
    }  # fmt: skip
    found = BradleyTerryRatings().measure(arms, Rng(0))
    assert found["good"].value > found["bad"].value
    even = BradleyTerryRatings(score="other").measure(arms, Rng(0))
    assert even["good"].value == even["bad"].value == 1000


def test_the_figure_has_every_arm_in_order(arms):
    for measure in (BradleyTerryRatings(), EloRatings(draws=100, orders=10)):
        figure = measure.figure(arms, Rng(0))
        assert [each.name for each in figure.series] == ["arm 0", "arm 1", "arm 2"]
        assert [each.x[0] for each in figure.series] == [1, 2, 3]
        assert str(draw(figure)).count("<circle") == 3
        assert (figure.y, "400 points" in figure.caption) == ("points", True)
    figure = BradleyTerryRatings(scale="log", level=0.999).figure(arms, Rng(0))
    assert figure.y == "log odds"
    assert figure.caption.startswith("Each rating with its 99.9% interval. A difference is")


def test_what_cannot_be_rated():
    arm = Outcomes.of(q=[1.0, 1.0])
    for measure in (BradleyTerryRatings(), EloRatings()):
        with pytest.raises(UsageError, match="one arm cannot be compared"):
            measure.measure({"a": arm}, Rng(0))
        with pytest.raises(UsageError, match="no arms"):
            measure.measure({}, Rng(0))
    with pytest.raises(UsageError, match="a lost to none of the others"):
        BradleyTerryRatings().measure({"a": arm, "b": Outcomes.of(q=[0.0, 0.0])}, Rng(0))


@pytest.mark.parametrize("name", ["bradley_terry", "elo_ratings"])
def test_they_are_in_the_catalogue(name):
    cls = catalog().find(name, "measure").load()
    assert issubclass(cls, Measure)
    assert cls.scope == "arms"
