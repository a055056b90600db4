import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UnitError, UsageError
from equipoise.methods.survival import (
    CalibrateSurvival,
    CensoredCoverageBounds,
    RightCensoredSynthetic,
    SurvivalBounds,
    SurvivalModel,
)
from equipoise.methods.survival.survival_bounds import bound_scores


class Given:
    def __init__(self, intervals):
        self.intervals = intervals

    def fit(self, data, rng):
        return self

    def predict_interval(self, inputs, alpha):
        return self.intervals(inputs)


def test_known_coverage_lies_between_the_bounds():
    # Of times whose truth is known, the share covered lies between lower and upper.
    generator = np.random.default_rng(0)
    times, cut = generator.exponential(size=5000), generator.exponential(1.5, 5000)
    bounds = generator.uniform(0, 0.5, 5000)
    scores = bound_scores(np.minimum(times, cut), times <= cut, bounds)
    table = CensoredCoverageBounds().measure(Outcomes.of(**scores), Rng(0))
    truth = (times >= bounds).mean()
    assert table["lower"].value < truth < table["upper"].value
    assert table["mean bound"].value == pytest.approx(bounds.mean())


def test_without_censoring_the_two_are_one():
    scores = bound_scores([3, 2, 1], [1, 1, 1], [2, 2, 2])
    assert scores["coverage_low"].tolist() == scores["coverage_high"].tolist() == [1, 1, 0]


def test_bounds_that_are_not_numbers_are_failed_units():
    task = SurvivalBounds("builtin:gbsg2")
    units = list(task.units(Rng(0)))[:3]

    def intervals(inputs):
        found = np.stack([np.full(len(inputs), 9.0), np.full(len(inputs), np.inf)], axis=1)
        found[0, 0], found[1, 0] = np.nan, -np.inf
        return found

    outcomes = task.perform(Given(intervals), units, Rng(0))
    assert [each.status for each in outcomes] == ["error", "error", "ok"]
    assert outcomes[2].scores["bound"] == 9
    with pytest.raises(UnitError, match=r"shape \(3,\) for 3 rows"):
        task.perform(Given(lambda inputs: np.zeros(len(inputs))), units, Rng(0))


def test_rows_without_a_bound_are_left_out():
    scores = dict(bound_scores([3, 2, 1, 4], [1, 1, 1, 1], [2, 2, 2, 2]))
    scores["bound"] = np.array([2, np.nan, 2, 2])
    table = CensoredCoverageBounds().measure(Outcomes.of(**scores), Rng(0))
    assert table["lower"].n == table["mean bound"].n == 3
    scores["bound"] = np.full(4, np.nan)
    with pytest.raises(UsageError, match="no row has a bound"):
        CensoredCoverageBounds().measure(Outcomes.of(**scores), Rng(0))


def test_figure_holds_the_bounds_beside_the_times():
    rows = Outcomes.of(**bound_scores([3, 2, 1, 4], [1, 0, 1, 1], [1, 2, 0.5, 1]))
    figure = CensoredCoverageBounds().figure({"a": rows, "b": rows}, Rng(0))
    assert [each.name for each in figure.series] == ["observed", "a, bounds", "b, bounds"]
    assert figure.series[1].x == (0, 0.5, 1, 1, 2)
    assert figure.series[1].y == (1, 0.75, 0.5, 0.25, 0)


def test_a_draw_is_scored_against_its_truth():
    task = RightCensoredSynthetic(setting=6, draws=2, train=50, calibration=50, test=300)
    units = list(task.units(Rng(5)))
    given, new = task.draw(units[0])
    assert (given.split == "train").sum() == (given.split == "calibration").sum() == 50
    assert given.targets.shape == (100, 2)
    bound = float(np.quantile(new.times, 0.2))
    subject = Given(lambda inputs: np.array([[bound, np.inf]] * len(inputs)))
    scores = task.perform(subject, units, Rng(0))[0].scores
    assert scores["lpb_coverage"] == pytest.approx(0.8, abs=0.004)
    assert scores["valid"] == 0
    assert scores["mean_lpb"] == pytest.approx(bound)
    ideal = task.world.quantiles(new.inputs, [0.1]).mean()
    assert scores["relative_lpb"] == pytest.approx(bound / ideal)
    assert "tau" not in scores
    assert units[0].content != units[1].content
    other = list(RightCensoredSynthetic(setting=6, draws=1).units(Rng(6)))
    assert other[0].id != units[0].id


def test_the_level_is_told_and_bounds_must_be_numbers():
    pytest.importorskip("lifelines")
    task = RightCensoredSynthetic(setting=5, draws=1, train=100, calibration=100, test=100)
    units = list(task.units(Rng(0)))
    model = SurvivalModel("LogNormalAFTFitter").load(Rng(0))
    learner = CalibrateSurvival("naive").apply(model, Rng(0))
    assert 0 <= task.perform(learner, units, Rng(0))[0].scores["tau"] < 0.1
    with pytest.raises(UnitError, match="not finite"):
        task.perform(Given(lambda inputs: np.full((len(inputs), 2), np.inf)), units, Rng(0))
