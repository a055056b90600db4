from dataclasses import replace

import numpy as np
import pytest
from statsmodels.nonparametric.smoothers_lowess import lowess as reference

from equipoise.core import Judges, Rng, UsageError
from equipoise.methods.alignment import (
    LengthBiasedRewards,
    PostHocRewardCalibration,
    RecordedScores,
    Responses,
    RewardCalibration,
    StoredPairScores,
    local_mean,
    lowess,
    markdown_count,
)

RNG = Rng(0)
CALIBRATED = PostHocRewardCalibration


def sample(n=400, seed=0, whole=True):
    """Return rewards, lengths and pairs of a biased scorer."""
    draw = np.random.default_rng(seed)
    c = np.exp(draw.normal(6.5, 0.8, n))
    c = np.round(c) if whole else c
    r = draw.normal(size=n) + 1.2 * np.log(c / 665) + 0.6 * np.sin(c / 700)
    return r, c, np.repeat(np.arange(n // 2), 2)


def margins(rewards):
    return np.diff(np.asarray(rewards).reshape(-1, 2))[:, 0]


# The estimators.


def test_local_mean_by_hand():
    c, r = [1, 2, 3, 10], [1, 2, 3, 9]
    assert local_mean(r, c, [2, 1, 10], width=1).tolist() == [2, 1.5, 9]
    assert local_mean(r[::-1], c[::-1], width=1).tolist() == [9, 2.5, 2, 1.5]
    thin = local_mean(r, c, [2, 10, 50], width=1, min_count=2)
    assert thin[0] == 2
    assert np.isnan(thin[1:]).all()


def test_local_mean_is_the_mean_of_the_closed_window():
    r, c, _ = sample(300)
    r = r + 1e6  # running sums must not lose digits
    for width in (0.0, 50.0, 400.0):
        wanted = [r[np.abs(c - at) <= width].mean() for at in c]
        np.testing.assert_allclose(local_mean(r, c, width=width), wanted, rtol=1e-13)


@pytest.mark.parametrize("frac", [0.2, 0.5, 1.0])
def test_lowess_is_that_of_statsmodels(frac):
    r, c, _ = sample(500)
    wanted = reference(r, c, frac=frac, it=3, delta=0.0, return_sorted=False)
    np.testing.assert_allclose(lowess(r, c, frac=frac), wanted, atol=1e-9)


def test_lowess_between_and_beyond_the_points():
    r, c, _ = sample(200)
    low, high = np.sort(np.unique(c))[[0, -1]]
    known = lowess(r, c, at=[low, high])
    assert lowess(r, c, at=[low - 500, high + 5e5]).tolist() == known.tolist()
    a, b = np.sort(np.unique(c))[50:52]
    ends = lowess(r, c, at=[a, b])
    assert lowess(r, c, at=[(a + b) / 2])[0] == pytest.approx(ends.mean())


def test_lowess_where_most_values_are_one_and_the_same():
    draw = np.random.default_rng(0)
    c = np.concatenate([np.zeros(150), draw.integers(1, 9, size=50)])
    r = draw.normal(size=200) + 0.5 * c
    found = lowess(r, c, frac=0.3)
    assert np.isfinite(found).all()
    order = draw.permutation(200)
    np.testing.assert_allclose(lowess(r[order], c[order], frac=0.3), found[order], atol=1e-9)
    assert found[0] == pytest.approx(r[:150].mean(), abs=0.1)


def test_lowess_in_steps_agrees_with_lowess_at_each_point():
    r, c, _ = sample(3000, whole=False)
    step = 1e-3 * np.diff(np.quantile(c, (0.01, 0.99)))[0]
    for frac in (0.3, 1.0):
        apart = np.abs(lowess(r, c, frac=frac, delta=step) - lowess(r, c, frac=frac, delta=0.0))
        assert apart.max() < 0.002 * r.std()


# What calibration leaves alone, and what it takes.


@pytest.mark.parametrize("frac", [0.2, 0.5, 1.0])
def test_a_reward_that_is_linear_in_length_has_no_margins_left(frac):
    _, c, pair = sample()
    calibrated = RewardCalibration(frac=frac).fit_transform(3 + 0.01 * c, c, pair)
    assert np.abs(margins(calibrated)).max() < 1e-9
    rough = RewardCalibration(estimator="local_mean", min_count=1)
    left = margins(rough.fit_transform(3 + 0.01 * c, c, pair))
    assert np.std(left) < 0.25 * np.std(margins(0.01 * c))


@pytest.mark.parametrize("estimator", ["lowess", "local_mean"])
def test_constants_change_nothing(estimator):
    r, c, pair = sample()
    how = RewardCalibration(estimator=estimator)
    found = how.fit_transform(r, c, pair)
    np.testing.assert_allclose(how.fit_transform(r + 100, c, pair), found + 100, atol=1e-9)
    even = np.full(len(c), 2.5)
    assert margins(how.fit_transform(even, c, pair)).tolist() == [0.0] * (len(c) // 2)
    for how.lam in (0.0, np.int64(0)):
        assert how.fit_transform(r, c, pair).tolist() == r.tolist()


def test_what_is_affine_in_length_changes_no_margin_of_lowess():
    r, c, pair = sample()
    how = RewardCalibration()
    bent = how.fit_transform(r + 7 - 0.02 * c, c, pair)
    np.testing.assert_allclose(margins(bent), margins(how.fit_transform(r, c, pair)), atol=1e-8)


def test_a_pair_with_a_thin_window_keeps_both_rewards():
    c = np.array([10, 11, 12, 13, 14, 900.0])
    r = np.array([1, 2, 3, 4, 5, 6.0])
    how = RewardCalibration(estimator="local_mean", width=2, min_count=3)
    found = how.fit_transform(r, c, [0, 0, 1, 1, 2, 2])
    assert found[4:].tolist() == [5, 6]
    assert found[1] - found[0] == pytest.approx((2 - 2.5) - (1 - 2))


def test_width_of_local_mean_is_the_mean_difference_over_the_ratio():
    r, c, pair = sample(60)
    by_pairs = np.abs(margins(c)).mean() / 4
    any_two = np.abs(c[:, None] - c).sum() / (60 * 59) / 4
    for pairs, width in ((pair, by_pairs), (None, any_two)):
        found = RewardCalibration(estimator="local_mean", min_count=1).fit_transform(r, c, pairs)
        given = RewardCalibration(estimator="local_mean", min_count=1, width=width)
        np.testing.assert_allclose(found, given.fit_transform(r, c, pairs), atol=1e-12)


def test_several_characteristics_go_one_after_another():
    r, c, pair = sample()
    other = np.random.default_rng(1).normal(size=len(c))
    both = RewardCalibration(lam=(1.0, 0.5)).fit_transform(r, np.column_stack([c, other]), pair)
    first = RewardCalibration().fit_transform(r, c, pair)
    second = RewardCalibration(lam=0.5).fit_transform(first, other, pair)
    np.testing.assert_allclose(both, second, atol=1e-12)


def test_transform_of_other_responses():
    r, c, _ = sample()
    how = RewardCalibration().fit(r, c)
    found = how.transform([1.0, 1.0], [200.0, 2000.0])
    m = lowess(r, c, at=[200, 2000])
    assert found[0] - found[1] == pytest.approx(m[1] - m[0])
    with pytest.raises(UsageError, match="fitted to 1 characteristics and is given 2"):
        how.transform([1.0], [[1.0, 2.0]])


def test_penalty():
    found = RewardCalibration(estimator="penalty").fit_transform([1.0, 1.0], [100, 1100])
    assert found[0] - found[1] == pytest.approx(1.0)


def test_simulation_with_known_truth():
    # What is wanted was found beforehand by other code.
    task = LengthBiasedRewards(draws=6)
    biased = RecordedScores("reward").load(RNG)
    arms = {
        "raw": (biased, 0.744),
        "penalty": (CALIBRATED(estimator="penalty").apply(biased, RNG), 0.799),
        "mean": (CALIBRATED(estimator="local_mean", min_count=1).apply(biased, RNG), 0.868),
        "half": (CALIBRATED().apply(biased, RNG), 0.877),
        "whole": (CALIBRATED(frac=1.0).apply(biased, RNG), 0.804),
        "unbiased": (RecordedScores("unbiased").load(RNG), 0.877),
    }
    for name, (subject, wanted) in arms.items():
        found = task.perform(subject, task.units(RNG), RNG)
        accuracy = np.mean([each.scores["accuracy"] for each in found])
        assert accuracy == pytest.approx(wanted, abs=0.012), name
        if name == "half":
            assert max(each.scores["absolute_correlation"] for each in found) < 0.05


def test_it_hurts_where_length_tells_quality():
    task = LengthBiasedRewards(draws=4, quality_by_length=0.7)
    biased = RecordedScores("reward").load(RNG)
    raw, less = (
        [each.scores["accuracy"] for each in task.perform(subject, task.units(RNG), RNG)]
        for subject in (biased, CALIBRATED().apply(biased, RNG))
    )
    assert min(np.subtract(raw, less)) > 0.05


# The treatment.


class Wordy:
    """A judge who likes words."""

    def judge(self, conversations):
        words = [len(str(each[-1]["content"]).split()) for each in conversations]
        return np.clip(0.2 + 0.03 * np.array(words, float), 0, 1)


def chat(words):
    said = " ".join(["word"] * words)
    return [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]


def test_a_judge_is_calibrated_on_calibration_units_alone():
    task = replace(StoredPairScores.tiny(), calibration=0.5)
    part = CALIBRATED(scorer="judge", characteristics=("words",), data=task)
    assert part.needs == {Judges}
    judge = part.apply(Wordy(), RNG)
    together = judge.judge([chat(n) for n in (4, 8, 16, 20)])
    assert np.ptp(together) < 1e-9
    alone = [judge.judge([chat(n)])[0] for n in (4, 8, 16, 20)]
    np.testing.assert_allclose(alone, together)
    assert together.min() >= 0
    assert together.max() <= 1


def test_a_judge_is_calibrated_by_what_it_is_asked_together():
    judge = CALIBRATED(scorer="judge", characteristics=("words",)).apply(Wordy(), RNG)
    found = judge.judge([chat(n) for n in range(2, 20)])
    assert np.ptp(found) < 1e-9
    assert found.mean() == pytest.approx(0.2 + 0.03 * np.mean(range(2, 20)))
    assert judge.judge([]).tolist() == []


def test_recorded_scores_are_calibrated_whatever_is_asked():
    task = StoredPairScores.tiny()
    subject = CALIBRATED(characteristics=("words",)).apply(RecordedScores().load(RNG), RNG)
    units = task.units(RNG)
    whole = [each.scores for each in task.perform(subject, units, RNG)]
    parts = [task.perform(subject, [unit], RNG)[0].scores for unit in units]
    assert whole == parts
    raw = [each.scores["correct"] for each in task.perform(RecordedScores().load(RNG), units, RNG)]
    assert np.mean([each["correct"] for each in whole]) > np.mean(raw) + 0.1


def test_a_characteristic_that_does_not_vary_is_named():
    part = CALIBRATED(characteristics=("words", "markdown"))
    subject = part.apply(RecordedScores().load(RNG), RNG)
    task = StoredPairScores.tiny()
    with pytest.raises(UsageError, match="markdown is 0 in all 60 responses"):
        task.perform(subject, task.units(RNG), RNG)


def test_parameters_that_do_not_fit():
    with pytest.raises(UsageError, match="lam must be one number or one for each of 1"):
        CALIBRATED(lam=(1.0, 1.0))
    with pytest.raises(UsageError, match="name at least one characteristic"):
        CALIBRATED(characteristics=())
    with pytest.raises(UsageError, match="LengthBiasedRewards has no responses to learn from"):
        CALIBRATED(data=LengthBiasedRewards.tiny())
    with pytest.raises(UsageError, match="no train or calibration units"):
        CALIBRATED(data=StoredPairScores.tiny()).apply(RecordedScores().load(RNG), RNG)


# Bad input.


@pytest.mark.parametrize(
    ("rewards", "lengths", "how", "says"),
    [
        ([1.0, np.nan, 2], [1, 2, 3], {}, "1 of 3 rewards are NaN or infinite"),
        ([1.0, 1, 2], [1, np.inf, 3], {}, "1 of 3 characteristics are NaN or infinite"),
        ([1.0, 2, 3], [5, 5, 5], {}, "is 5 in all 3 responses"),
        ([1.0, 2], [1, 2], {}, "a window of 1; two are needed"),
        ([1.0, 2], [1, 2], {"estimator": "local_mean"}, "min_count is 20 and there are 2"),
        ([1.0, 2], [1, 2], {"estimator": "loess"}, "estimator must be one of lowess"),
        ([1.0, 2], [1, 2, 3], {}, "give one characteristic a reward"),
        ([], [], {}, "there are no rewards"),
    ],
)
def test_bad_rewards(rewards, lengths, how, says):
    with pytest.raises(UsageError, match=says):
        RewardCalibration(**how).fit_transform(rewards, lengths)


def test_pairs_must_be_pairs():
    r, c, _ = sample(6)
    with pytest.raises(UsageError, match="3 of 3 pairs have not two"):
        RewardCalibration(estimator="local_mean", min_count=1).fit(r, c, [0, 0, 0, 0, 1, 2])


def test_characteristics():
    text = "## Plan\n\n1. **Buy** bread\n- and *milk*\n  + __now__\nIn 2 days. 3.5 or 4. No"
    assert markdown_count(text) == 1 + 3 + 2
    responses = Responses(texts=(text, "one two"), columns={"tokens": np.array([9.0, 2.0])})
    assert responses.characteristic("characters").tolist() == [len(text), 7]
    assert responses.characteristic("words")[1] == 2
    assert responses.characteristic("tokens").tolist() == [9, 2]
    with pytest.raises(UsageError, match=r'No column "token" of the responses\. Nearest: tokens'):
        responses.characteristic("token")
    with pytest.raises(UsageError, match="There are no texts to count in"):
        Responses(columns={"score": np.zeros(2)}).characteristic("words")
    with pytest.raises(UsageError, match="missing or not finite in 1 of 2"):
        Responses(columns={"tokens": np.array([1, np.nan])}).characteristic("tokens")
