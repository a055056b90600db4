"""Pairing and failures, on columns worked by hand."""

import dataclasses

import numpy as np
import pytest

from equipoise.core import Estimate, Measure, Outcomes, Rng, ScoreSpec
from equipoise.trial.compare import describe, effect, fill, measure_effect, pair

BOUNDED = ScoreSpec("x", low=0, high=1)
FREE = ScoreSpec("x", higher_is_better=False)
RNG = Rng(0)


def columns(values, spec=BOUNDED, **more):
    found = Outcomes.of(x=values, specs=[spec])
    more = {name: np.asarray(value) for name, value in more.items()}
    return dataclasses.replace(found, **more)


def test_a_failed_unit_takes_the_worst_value_of_a_bounded_score():
    failed = [False, True, False]
    values, keep = fill(columns([1, np.nan, 0.5], failed=failed), "x", "worst")
    assert values.tolist() == [1, 0, 0.5]
    assert keep.all()
    _, keep = fill(columns([1, np.nan, 0.5], failed=failed), "x", "exclude")
    assert keep.tolist() == [True, False, True]
    _, keep = fill(columns([1, np.nan, 0.5], FREE, failed=failed), "x", "worst")
    assert keep.tolist() == [True, False, True]


def test_a_failure_that_is_not_the_arms_is_left_out_and_counts_as_lost():
    failed, excused = [False, True, True, False], [False, True, False, False]
    a = columns([1, np.nan, np.nan, 1], failed=failed, excused=excused)
    values, keep = fill(a, "x", "worst")
    assert keep.tolist() == [True, False, True, True]
    assert values[2] == 0
    b = columns([1.0, 1, 1, 0])
    found = effect(a, b, "x", level=0.95, errors="worst", rng=RNG)
    assert found.lost == 0.25
    assert found.estimate.value == pytest.approx((0 - 1 + 1) / 3)


def test_a_score_that_does_not_apply_is_no_loss_but_a_failure_on_both_sides_is():
    nan = np.nan
    gone = [False] * 3 + [True]
    a, b = columns([1, 2, nan, nan], FREE), columns([2, 3, nan, nan], FREE)
    found = effect(a, b, "x", level=0.95, errors="worst", rng=RNG)
    assert found.lost == 0
    found = effect(
        dataclasses.replace(a, failed=np.array(gone)),
        dataclasses.replace(b, failed=np.array(gone)),
        "x", level=0.95, errors="worst", rng=RNG,
    )  # fmt: skip
    assert found.lost == pytest.approx(1 / 3)


def test_pairs_are_matched_by_unit_build_and_repeat():
    a = columns([0.1, 0.2, 0.3, 0.4], unit=[3, 3, 5, 7], repeat=[0, 1, 0, 0])
    b = columns([1.0, 1.1, 1.2], unit=[7, 3, 3], repeat=[0, 1, 0])
    one, two = pair(a, b)
    assert one.score("x").tolist() == [0.1, 0.2, 0.4]
    assert two.score("x").tolist() == [1.2, 1.1, 1.0]


def test_an_arm_built_once_stands_against_every_build():
    a = columns([1, 2, 3, 4], unit=[0, 1, 0, 1], build=[0, 0, 1, 1])
    b = columns([10, 20], unit=[0, 1])
    one, two = pair(a, b)
    assert sorted(zip(one.score("x"), two.score("x"), strict=True)) == [
        (1, 10), (2, 20), (3, 10), (4, 20),
    ]  # fmt: skip


def test_lower_is_better_turns_the_effect():
    a, b = columns([1.0, 2.0, 4.0], FREE), columns([2.0, 4.0, 5.0], FREE)
    found = effect(a, b, "x", level=0.95, errors="worst", rng=RNG)
    assert found.estimate.value == pytest.approx(4 / 3)


def test_a_cell_without_units_has_no_estimate():
    found = describe(columns([np.nan]), "x", level=0.95, errors="worst")
    assert not found.has_interval
    assert "no unit" in found.note


@dataclasses.dataclass(frozen=True)
class Top(Measure):
    """The largest score."""

    def measure(self, outcomes, rng):
        return Estimate(self.statistic(outcomes))

    def statistic(self, outcomes):
        return float(np.max(outcomes.score("x")))


def test_a_measure_is_compared_over_the_same_resampled_units():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    # b is a, 0.25 worse everywhere: every resample differs by exactly that.
    found = measure_effect(
        Top(), columns(base), columns(base - 0.25), level=0.95, errors="worst", rng=RNG
    )
    assert found.estimate.value == pytest.approx(0.25)
    assert found.estimate.low == pytest.approx(0.25)


@dataclasses.dataclass(frozen=True)
class Wider(Measure):
    """An effect as wide as its level."""

    scope = "pair"
    level: float = 0.95

    def measure(self, outcomes, rng):
        return Estimate(0.0, -self.level, self.level, self.level)


def test_a_pair_measure_is_asked_at_the_level_of_the_claim():
    a, b = columns([1.0, 2.0]), columns([2.0, 4.0])
    found = measure_effect(Wider(), a, b, level=0.995, errors="worst", rng=RNG)
    assert (found.estimate.low, found.estimate.high) == (-0.995, 0.995)


def test_a_share_that_is_always_one_is_no_row_of_passes():
    passes = describe(columns([1.0] * 20), "x", level=0.95, errors="worst")
    assert (passes.method, passes.low < 0.9) == ("wilson", True)
    share = ScoreSpec("x", low=0, high=1, share=True)
    found = describe(columns([1.0] * 20, share), "x", level=0.95, errors="worst")
    assert (found.value, found.low) == (1.0, 1.0)
    mixed = describe(columns([1.0] * 19 + [0.98], share), "x", level=0.95, errors="worst")
    assert mixed.low > 0.99
