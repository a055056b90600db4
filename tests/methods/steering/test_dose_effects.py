import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.language.distributions import (
    answer_probability_mass,
    intervention_kl,
    next_token_entropy,
)
from equipoise.kit.language.families import random_model
from equipoise.kit.language.states import next_token_log_probs
from equipoise.kit.statistics.effects import paired_difference
from equipoise.kit.statistics.single import mean
from equipoise.methods.steering import add_vectors, dose_response
from equipoise.methods.steering.dose_effects import (
    AnswerProbabilityMass,
    DoseResponse,
    InterventionKL,
    NextTokenEntropy,
)

PROMPTS = ["one prompt", "another, longer prompt", "x", "and so on to the last"]


def dirichlet(rows, size, seed=0):
    return np.log(np.random.default_rng(seed).dirichlet(np.ones(size), rows))


# Distributions.


def test_divergence_is_scipys_and_never_negative():
    scipy_entropy = pytest.importorskip("scipy.stats").entropy
    p, q = dirichlet(50, 30), dirichlet(50, 30, 1)
    found = intervention_kl(p, q)
    assert np.allclose(found, scipy_entropy(np.exp(p), np.exp(q), axis=1), atol=1e-4)
    assert (found > 0).all()
    assert (intervention_kl(p, p) == 0).all()
    assert np.allclose(next_token_entropy(p), scipy_entropy(np.exp(p), axis=1))


def test_divergence_stays_finite_where_a_token_is_ruled_out():
    found = intervention_kl(np.log([[0.5, 0.5]]), np.array([[0.0, -np.inf]]))
    assert np.isclose(found[0], 0.5 * np.log(0.5) + 0.5 * (np.log(0.5) - np.log(1e-8)), atol=1e-6)


def test_entropy_is_between_nothing_and_that_of_no_preference():
    assert np.isclose(next_token_entropy(np.full((1, 64), -np.log(64)))[0], np.log(64))
    sure = np.full((1, 64), -np.inf)
    sure[0, 3] = 0
    assert next_token_entropy(sure)[0] == 0


def test_mass_among_candidates_is_a_softmax_over_them():
    rows = dirichlet(6, 20)
    tokens = np.array([[1, 5, 7]] * 6)
    found = answer_probability_mass(rows, tokens[:, 1], tokens)
    among = np.exp(rows[:, [1, 5, 7]])
    assert np.allclose(found, among[:, 1] / among.sum(1))
    assert np.allclose(answer_probability_mass(rows, tokens[:, 1]), among[:, 1])


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: intervention_kl(dirichlet(2, 3), dirichlet(2, 4)), "must have one shape"),
        (lambda: next_token_entropy([0.5, 0.5]), "must be"),
        (lambda: answer_probability_mass(dirichlet(1, 3), [0], [1, 2]), "among the candidates"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call, fault):
    with pytest.raises(UsageError, match=fault):
        call()


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_divergence_of_a_small_dose_is_quadratic(family):
    live = random_model(family)
    vector = np.random.default_rng(0).normal(size=32)
    before = next_token_log_probs(live, PROMPTS)

    def divergence(dose):
        steered = live.with_module(add_vectors(live.module, {1: vector}, dose))
        p, q = before.astype(float), next_token_log_probs(steered, PROMPTS).astype(float)
        return (np.exp(p) * (p - q)).sum(1).mean()

    assert 3.6 < divergence(0.06) / divergence(0.03) < 4.4
    assert 3.6 < divergence(-0.06) / divergence(-0.03) < 4.4
    assert divergence(0) == 0


# Curves.


def test_coefficients_are_numpys_least_squares():
    draws = np.random.default_rng(0)
    doses = np.array([0.5, -1.0, 0.0, 1.0, -0.25])
    scores = draws.normal(size=(5, 40))
    found = dose_response(doses, scores)
    middle = scores.mean(1)
    assert np.isclose(found["slope"].value, np.polyfit(doses, middle, 1)[0])
    assert np.isclose(found["curvature"].value, np.polyfit(doses, middle, 2)[0])
    low, high = doses <= 0, doses >= 0
    assert np.isclose(found["slope below zero"].value, np.polyfit(doses[low], middle[low], 1)[0])
    assert np.isclose(found["slope above zero"].value, np.polyfit(doses[high], middle[high], 1)[0])
    for dose, row in zip(doses, scores, strict=True):
        assert found[f"at {dose:g}"] == mean(row)
    assert list(found)[:5] == ["at -1", "at -0.25", "at 0", "at 0.5", "at 1"]


def test_two_doses_a_unit_apart_give_the_paired_difference():
    draws = np.random.default_rng(1)
    scores = draws.normal(size=(2, 30))
    found = dose_response([0.0, 1.0], scores)["slope"]
    wanted = paired_difference(scores[1], scores[0], rng=Rng(0))
    assert np.allclose(
        (found.value, found.low, found.high), (wanted.value, wanted.low, wanted.high)
    )


def test_clusters_widen_the_interval():
    draws = np.random.default_rng(2)
    shared = np.repeat(draws.normal(size=(2, 10)), 10, axis=1)
    scores = shared + 0.1 * draws.normal(size=(2, 100))
    alone = dose_response([0, 1], scores)["slope"]
    held = dose_response([0, 1], scores, clusters=np.repeat(np.arange(10), 10))["slope"]
    assert held.high - held.low > 2 * (alone.high - alone.low)
    assert held.clusters == 10


@pytest.mark.parametrize(
    ("doses", "scores"), [([0.0], np.ones((1, 5))), ([1, 1], np.ones((2, 5))), ([0, 1], np.ones(5))]
)
def test_doses_that_give_no_curve_are_refused(doses, scores):
    with pytest.raises(UsageError, match=r"^dose_response: "):
        dose_response(doses, scores)


def test_units_are_matched_across_arms_and_losses_counted():
    left = Outcomes.of(x=[1.0, 2.0, np.nan, 4.0])
    right = Outcomes.of(x=[2.0, 4.0, 6.0, 8.0]).take(np.array([3, 2, 1, 0]))
    found = DoseResponse((("a", 0.0), ("b", 1.0))).measure({"a": left, "b": right}, Rng(0))
    assert np.isclose(found["x slope"].value, np.mean([1, 2, 4]))
    assert found["x slope"].n == 3
    assert "1 rows lack" in found["x slope"].note


@pytest.mark.parametrize(
    ("doses", "arms", "fault"),
    [
        ((("a", 0.0), ("c", 1.0)), ("a", "b"), 'no arm "c"; there are: a, b'),
        ((("a", 0.0), ("b", 1.0)), ("a",), 'no arm "b"'),
    ],
)
def test_arms_that_are_not_there_are_named(doses, arms, fault):
    with pytest.raises(UsageError, match=fault):
        DoseResponse(doses).measure({arm: Outcomes.of(x=[1.0, 2.0]) for arm in arms}, Rng(0))


def test_doses_must_differ():
    with pytest.raises(UsageError, match="all different"):
        DoseResponse((("a", 1.0), ("b", 1.0)))


# Means.


def test_means_are_over_rows_that_have_the_score():
    rows = Outcomes.of(
        kl=[0.1, np.nan, 0.3], entropy=[1.0, 2.0, 3.0], mass=[0.1, 0.2, 0.3], probability=[1, 1, 0]
    )
    found = InterventionKL().measure(rows, Rng(0))
    assert np.isclose(found.value, 0.2)
    assert (found.n, "1 of 3 rows have no kl" in found.note) == (2, True)
    assert np.isclose(found.details["variance"], 0.01)
    assert NextTokenEntropy().statistic(rows) == 2
    assert np.isclose(AnswerProbabilityMass("candidates").statistic(rows), 2 / 3)
    with pytest.raises(UsageError, match="no row has a value"):
        InterventionKL("kl").measure(Outcomes.of(kl=[np.nan, np.nan]), Rng(0))
