"""A judge with known faults has just those."""

import numpy as np

from equipoise.core import Rng, UnitError
from equipoise.kit.language.judging import Case, verdicts_on
from equipoise.methods.evaluation.erring_judge import ErringJudge

N = 3000


def ask(cases, seed=0, **given):
    return verdicts_on(ErringJudge(**given).load(Rng(seed)), cases)


def test_sensitivity_and_specificity():
    right = [Case(f"Q{n}", "it is 4", reference="4") for n in range(N)]
    wrong = [Case(f"Q{n}", "it is 14", reference="4") for n in range(N)]
    hit = np.mean([v.score for v in ask(right, sensitivity=0.9, specificity=0.7)])
    false = np.mean([v.score for v in ask(wrong, sensitivity=0.9, specificity=0.7)])
    assert abs(hit - 0.9) < 4 * np.sqrt(0.9 * 0.1 / N)
    assert abs(false - 0.3) < 4 * np.sqrt(0.3 * 0.7 / N)


def test_position_bias_shows_as_inconsistency():
    cases = [Case(f"Q{n}", "4", "5" if n % 3 else "4", reference="4") for n in range(N)]
    found = ask(cases, sensitivity=1.0, specificity=1.0, first=0.3)
    expected = 0.7**2 + 0.3 * 0.7 * 2 / 3  # two thirds of these pairs are no ties
    assert abs(np.mean([v.consistent for v in found]) - expected) < 4 * 0.5 / np.sqrt(N)
    # A bias by position costs confidence and moves no mean of a tie.
    assert abs(np.mean([v.score for v in found[::3]]) - 0.5) < 0.03


def test_length_bias_wins_in_both_orders():
    cases = [Case(f"Q{n}", "it is 5", "4", reference="4") for n in range(N)]
    found = ask(cases, sensitivity=1.0, specificity=1.0, longer=0.4)
    assert abs(np.mean([v.score for v in found]) - 0.4) < 4 * np.sqrt(0.24 / N)
    assert all(v.consistent for v in found)


def test_errors_hang_on_seed_and_case():
    cases = [Case(f"Q{n}", "4", reference="4") for n in range(200)]
    scores = [v.score for v in ask(cases, sensitivity=0.5)]
    assert scores == [v.score for v in ask(cases[::-1], sensitivity=0.5)][::-1]
    assert scores != [v.score for v in ask(cases, seed=1, sensitivity=0.5)]


def test_without_a_reference_there_is_no_verdict():
    (found,) = ask([Case("Q", "A")])
    assert isinstance(found, UnitError)
    talk = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    assert np.isnan(ErringJudge().load(Rng(0)).judge([talk])).all()
