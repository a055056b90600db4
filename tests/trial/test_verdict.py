"""The verdict table, row by row, and what withholds a verdict."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from equipoise.core import Estimate
from equipoise.trial.trial import Claim
from equipoise.trial.verdict import claim_level, correct, decide, judge

S, R, OPEN = "supported", "refuted", "inconclusive"


@pytest.mark.parametrize(
    ("relation", "low", "high", "margin", "threshold", "verdict"),
    [
        ("beats", 0.01, 0.2, 0.0, 0, S),
        ("beats", -0.2, -0.01, 0.0, 0, R),
        ("beats", -0.1, 0.1, 0.0, 0, OPEN),
        ("beats", 0.01, 0.2, 0.05, 0, OPEN),
        ("beats", 0.06, 0.2, 0.05, 0, S),
        ("beats", 0.01, 0.04, 0.05, 0, R),
        ("no_worse_than", -0.04, 0.2, 0.05, 0, S),
        ("no_worse_than", -0.2, -0.06, 0.05, 0, R),
        ("no_worse_than", -0.06, 0.2, 0.05, 0, OPEN),
        ("matches", -0.04, 0.04, 0.05, 0, S),
        ("matches", 0.06, 0.2, 0.05, 0, R),
        ("matches", -0.2, -0.06, 0.05, 0, R),
        ("matches", 0.04, 0.06, 0.05, 0, OPEN),
        ("above", 0.6, 0.7, 0, 0.5, S),
        ("above", 0.3, 0.4, 0, 0.5, R),
        ("above", 0.4, 0.6, 0, 0.5, OPEN),
        ("below", 1.5, 1.9, 0, 2.0, S),
        ("below", 2.1, 2.9, 0, 2.0, R),
        ("below", 1.5, 2.9, 0, 2.0, OPEN),
        ("beats", math.nan, math.nan, 0, 0, OPEN),
    ],
)
def test_the_table(relation, low, high, margin, threshold, verdict):
    assert decide(relation, low, high, margin, threshold) == verdict


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5))
def test_beats_is_stronger_than_no_worse(low, width, margin):
    assume(decide("beats", low, low + width, 0.0) == S)
    assert decide("no_worse_than", low, low + width, margin) in (S, OPEN if margin == 0 else S)


def claim(relation="beats", other="b", margin=0.0):
    return Claim("a", relation, other, "t", margin)


def test_levels_are_shared_among_claims_and_equivalence_is_two_one_sided_tests():
    assert claim_level(claim(), 0.95, 1) == pytest.approx(0.95)
    assert claim_level(claim(), 0.95, 5) == pytest.approx(0.99)
    assert claim_level(claim("matches", margin=1), 0.95, 1) == pytest.approx(0.90)


def test_lost_pairs_withhold_a_verdict():
    found = judge(claim(), Estimate(0.2, 0.1, 0.3, n=500), lost=0.02)
    assert found.verdict == OPEN
    assert "2.0% of the pairs were lost" in found.reason
    assert judge(claim(), Estimate(0.2, 0.1, 0.3, n=500), lost=0.005).verdict == S


def test_few_units_and_few_clusters_are_said():
    assert "only 12 units" in judge(claim(), Estimate(0.2, 0.1, 0.3, n=12)).reason
    found = judge(claim(), Estimate(0.2, 0.1, 0.3, n=500, clusters=4))
    assert "only 4 clusters" in found.reason


def test_an_open_claim_says_how_many_more_units():
    found = judge(claim(), Estimate(0.02, -0.03, 0.07, n=400))
    assert found.verdict == OPEN
    assert found.more_units > 400


def test_no_interval_is_inconclusive_and_says_why():
    found = judge(claim(), Estimate(0.2, n=1, note="one cluster gives no interval"))
    assert found.verdict == OPEN
    assert "one cluster" in found.reason


def test_holm_is_over_the_claims_that_are_tests_against_no_difference():
    results = [
        judge(claim(), Estimate(0.2, 0.1, 0.3, n=500, p_value=0.01)),
        judge(claim(), Estimate(0.2, 0.1, 0.3, n=500, p_value=0.04)),
        judge(claim("no_worse_than", margin=0.1), Estimate(0.2, 0.1, 0.3, n=500, p_value=0.5)),
    ]
    assert [each.p_adjusted for each in correct(results)] == [0.02, 0.04, None]
