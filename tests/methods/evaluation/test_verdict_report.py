"""The mean behind the verdicts and the judge's report: hand cases, few labels, coverage."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.methods.evaluation._judges import prediction_powered_mean
from equipoise.methods.evaluation._labels import KEY, answer_key, read_labels
from equipoise.methods.evaluation.verdict_report import DebiasedMean, VerdictReport
from equipoise.trial.compare import filled, measure_effect

SPECS = (ScoreSpec("judge", True, 0, 1), ScoreSpec("gold"))


def outcomes(gold, judge, **more):
    return Outcomes.of(specs=SPECS, gold=gold, judge=judge, **more)


def table(path, rows, header=("unit", "output", "label")):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)
    return str(path)


def drawn(seed, n, labelled, b=0.7):
    draw = np.random.default_rng(seed)
    s = (draw.random(n) < b).astype(float)
    t = (draw.random(n) < np.where(s == 1, 0.9, 0.5)).astype(float)
    gold = np.where(draw.permutation(n) < labelled, s, np.nan)
    return gold, t


def test_it_is_the_prediction_powered_mean():
    gold, judge = drawn(1, 400, 60)
    known = ~np.isnan(gold)
    found = DebiasedMean().measure(outcomes(gold, judge), Rng(0))
    wanted = prediction_powered_mean(gold[known], judge[known], judge[~known])
    assert (found.value, found.low, found.high) == (wanted.value, wanted.low, wanted.high)
    assert DebiasedMean().statistic(outcomes(gold, judge)) == pytest.approx(wanted.value)


def test_all_labelled_is_the_mean_of_labels():
    gold, judge = drawn(1, 50, 50)
    found = DebiasedMean().measure(outcomes(gold, judge), Rng(0))
    assert found.value == gold.mean()
    assert found.has_interval


@pytest.mark.parametrize("labelled", [1, 2])
def test_too_few_labels_give_no_interval_and_say_so(labelled):
    gold, judge = drawn(1, 50, labelled)
    found = DebiasedMean().measure(outcomes(gold, judge), Rng(0))
    assert 0 <= found.value <= 1
    assert not found.has_interval
    assert f"got {labelled}" in found.note
    assert f"Only {labelled} answers have a label" in found.note


def test_without_labels_it_refuses_in_a_sentence():
    gold, judge = drawn(1, 50, 0)
    rows = replace(outcomes(gold, judge), arm="mine")
    with pytest.raises(UsageError, match="no answer of arm mine has a human label"):
        DebiasedMean().measure(rows, Rng(0))
    with pytest.raises(UsageError, match="label some answers of every arm"):
        DebiasedMean().statistic(rows)
    resample = rows.take(np.zeros(50, int))
    assert math.isnan(DebiasedMean().statistic(resample))


def test_labels_in_one_arm_only_leave_a_pair_open_with_a_sentence():
    a = outcomes(*drawn(1, 100, 30))
    b = replace(outcomes(*drawn(2, 100, 0)), arm="b")
    with pytest.raises(UsageError, match="no answer of arm b has a human label"):
        measure_effect(DebiasedMean(), a, b, level=0.95, errors="worst", rng=Rng(0))


def test_failed_answers_count_as_0():
    gold, judge = drawn(1, 300, 60)
    failed = np.arange(300) % 10 == 0
    gold[failed] = np.nan
    rows = replace(outcomes(gold, np.where(failed, np.nan, judge)), failed=failed)
    rows = filled(rows, "worst")
    given = DebiasedMean().measure(outcomes(gold[~failed], judge[~failed]), Rng(0))
    found = DebiasedMean().measure(rows, Rng(0))
    assert found.value == pytest.approx(0.9 * given.value)
    assert found.high - found.low > 0.9 * (given.high - given.low)
    assert "30 of 300 answers failed and count as 0" in found.note
    assert DebiasedMean().statistic(rows) == pytest.approx(found.value)


def test_excused_answers_are_left_out():
    gold, judge = drawn(1, 300, 60)
    failed = np.arange(300) % 10 == 0
    gold[failed] = judge[failed] = np.nan
    rows = filled(replace(outcomes(gold, judge), failed=failed, excused=failed), "worst")
    found = DebiasedMean().measure(rows, Rng(0))
    assert found.n == 270
    assert (
        found.value == DebiasedMean().measure(outcomes(gold[~failed], judge[~failed]), Rng(0)).value
    )


def test_a_missing_verdict_is_refused():
    gold, judge = drawn(1, 50, 10)
    judge[3] = np.nan
    for measure in (DebiasedMean(), VerdictReport()):
        with pytest.raises(UsageError, match="1 of 50 rows have no verdict"):
            measure.measure(outcomes(gold, judge), Rng(0))


def test_the_effect_of_independent_arms_has_both_variances():
    a, b = outcomes(*drawn(1, 600, 150, 0.7)), outcomes(*drawn(2, 600, 150, 0.5))
    found = measure_effect(DebiasedMean(), a, b, level=0.95, errors="worst", rng=Rng(0)).estimate
    one, two = (DebiasedMean().measure(each, Rng(0)) for each in (a, b))
    assert found.value == pytest.approx(one.value - two.value)
    width = math.hypot(one.high - one.low, two.high - two.low)
    assert found.high - found.low == pytest.approx(width, rel=0.1)


def test_labels_find_their_answer(tmp_path):
    path = table(
        tmp_path / "l.csv",
        [
            ["000", "It is  42.\r\n", "yes"], ["000", "It is 42.", "no"],
            ["001", "7.50", "1"], ["001", "8", ""], ["002", "x", "0"], ["003", "y", "tie"],
        ],
    )  # fmt: skip
    labels = read_labels(path, "label", 0, 1)
    keys = [
        ("000", "It is 42."),
        ("001", "7.5"),
        ("001", "8"),
        ("002", "x"),
        ("003", "y"),
        ("002", "y"),
    ]
    found = labels.of(np.array([answer_key(*each) for each in keys]))
    np.testing.assert_array_equal(found, [0.5, 1, np.nan, 0, 0.5, np.nan])


def test_a_column_of_numbers_is_read_as_it_was_said(tmp_path):
    path = table(tmp_path / "l.csv", [[0, "7.50", 3], [1, "1e2", 5]])
    labels = read_labels(path, "label", 1, 5)
    found = labels.of(np.array([answer_key("0", "7.50"), answer_key("1", "1e2")]))
    np.testing.assert_array_equal(found, [0.5, 1])


@pytest.mark.parametrize(
    ("rows", "header", "fault"),
    [
        ([["0", "a", "2"]], ("unit", "output", "label"), 'line 2: "label" must be a number from 0'),
        ([["0", "a", "good"]], ("unit", "output", "label"), "or yes, no, right, wrong"),
        ([["0", "", "1"]], ("unit", "output", "label"), "line 2: has a label and no output"),
        ([["0", "a", ""]], ("unit", "output", "label"), 'no row has a "label"; fill in some'),
        ([["0", "a", "1"]], ("unit", "output", "grade"), 'there is no column "label"'),
        ([["0", "a", "1"]], ("unit", "text", "label"), 'there is no column "output"'),
        ([["0", "a", "1"]], ("item", "output", "label"), 'there is no column "unit"'),
    ],
)
def test_bad_labels_are_sentences(tmp_path, rows, header, fault):
    with pytest.raises(UsageError) as found:
        read_labels(table(tmp_path / "l.csv", rows, header), "label", 0, 1)
    assert fault in str(found.value)


def test_labels_override_gold_scores(tmp_path):
    gold, judge = drawn(1, 50, 10)
    keys = np.array([answer_key(n, "a") for n in range(50)])
    path = table(tmp_path / "l.csv", [[n, "a", int(n % 2)] for n in range(50)])
    found = DebiasedMean(human=path).measure(outcomes(gold, judge, **{KEY: keys}), Rng(0))
    assert found.value == 0.5


def test_the_report_without_labels():
    judge = np.array([1.0, 0, 1, 1] * 10)
    rows = Outcomes.of(judge=judge, tie=1 - judge, length=10 * judge, asked_again=judge * 2)
    found = VerdictReport().measure(rows, Rng(0))
    assert {name: each.value for name, each in found.items()} == {
        "judge_mean": 0.75, "tie": 0.25, "asked_again": 1.5,
        "length_correlation": pytest.approx(1),
    }  # fmt: skip


def test_the_report_with_graded_labels():
    draw = np.random.default_rng(0)
    gold = draw.random(80)
    rows = Outcomes.of(gold=gold, judge=np.clip(gold / 2 + 0.2, 0, 1), length=draw.random(80))
    found = VerdictReport().measure(rows, Rng(0))
    assert found["bias"].value == pytest.approx(np.mean(0.2 - gold / 2))
    assert found["rho_squared"].value == pytest.approx(1)
    assert "sensitivity" not in found


def test_the_report_with_labels_that_are_all_alike():
    rows = Outcomes.of(gold=[1.0] * 5 + [np.nan] * 20, judge=[1.0, 0] * 12 + [1])
    found = VerdictReport().measure(rows, Rng(0))
    assert "all 5 gold scores are alike" in found["bias"].note
    assert "Only 5 answers" in found["bias"].note
    assert math.isnan(found["rho_squared"].value)


def test_bad_scale():
    with pytest.raises(UsageError, match="high must be above low"):
        DebiasedMean(low=1.0, high=1.0)
