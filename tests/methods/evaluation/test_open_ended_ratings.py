import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.statistics.comparisons import Comparisons, Rates
from equipoise.methods.evaluation._equilibrium_draws import independent, resampled
from equipoise.methods.evaluation._equilibrium_game import Game, merged
from equipoise.methods.evaluation._equilibrium_joint import nearest_equilibrium
from equipoise.methods.evaluation._equilibrium_path import follow
from equipoise.methods.evaluation._equilibrium_target import affinity_kernels
from equipoise.methods.evaluation.open_ended_ratings import (
    AverageRatings,
    EquilibriumRatings,
    affinity_entropy,
    difference_game,
    equilibrium_ratings,
    king_of_the_hill_game,
    max_affinity_entropy,
    win_rate_game,
)

# Three specialists, a weak model and a strong one, on tasks a, b and c.
SCORES = np.array([[6.0, 4, 3], [3, 5, 2], [1, 3, 7], [3, 4, 3], [5, 4, 5]])
RPS = np.array([[0.5, 1, 0], [0, 0.5, 1], [1, 0, 0.5]])


def a_game(seed, prompts=7, models=5):
    generator = np.random.default_rng(seed)
    if seed % 2:
        w = generator.uniform(size=(prompts, models, models))
        return (w - w.transpose(0, 2, 1)) / 2 + 0.5
    able = generator.normal(size=(prompts, models))
    return 1 / (1 + np.exp(able[:, None, :] - able[:, :, None]))


def payoffs(w):
    """Return the three players' payoffs, of shape (3, prompts, models, models)."""
    return np.stack([np.abs(2 * w - 1), w, w.transpose(0, 2, 1)])


# Affinity entropy


@pytest.mark.parametrize(("p", "value"), [(0, 1.098612), (1, 0.666667)])
def test_copies_do_not_raise_affinity_entropy(p, value):
    copies = np.eye(4)
    copies[2, 3] = copies[3, 2] = 1
    third = 1 / 3
    assert affinity_entropy([third] * 3, np.eye(3), p) == pytest.approx(value, abs=1e-6)
    for x in ([third, third, 1 / 6, 1 / 6], [third, third, third, 0]):
        assert affinity_entropy(x, copies, p) == pytest.approx(value, abs=1e-6)
    uniform = {0: 1.039721, 1: 0.625}[p]
    assert affinity_entropy([0.25] * 4, copies, p) == pytest.approx(uniform, abs=1e-6)


@pytest.mark.parametrize("p", [0, 0.3, 1])
def test_with_the_identity_it_is_tsallis_entropy_and_with_ones_nothing(p):
    x = np.array([0.5, 0.3, 0.2, 0])
    expected = -(x[:3] * np.log(x[:3])).sum() if p == 0 else (1 - (x ** (p + 1)).sum()) / p
    assert affinity_entropy(x, np.eye(4), p) == pytest.approx(expected)
    assert affinity_entropy(x, np.ones((4, 4)), p) == pytest.approx(0, abs=1e-12)


def test_the_order_falls_to_shannons_continuously():
    x, k = np.array([0.6, 0.3, 0.1]), np.array([[1, 0.4, 0], [0.4, 1, 0.2], [0, 0.2, 1]])
    assert affinity_entropy(x, k, 1e-7) == pytest.approx(affinity_entropy(x, k, 0), abs=1e-6)


@pytest.mark.parametrize("p", [0, 0.5, 1])
def test_no_strategy_has_more_affinity_entropy(p):
    generator = np.random.default_rng(3)
    z = generator.normal(size=(9, 2))
    k = np.exp(-((z[:, None] - z) ** 2).sum(axis=2))
    k[8], k[:, 8] = 0, 0  # one action like no other
    k[8, 8] = 1
    best = affinity_entropy(max_affinity_entropy(k, p), k, p)
    for x in generator.dirichlet(np.full(9, 0.5), 3000):
        assert affinity_entropy(x, k, p) < best + 2e-5


def test_the_kernel_is_the_mean_over_opponents():
    w = 0.5 + 0.02 * (a_game(1, 4, 3) - 0.5)
    prompts, models = affinity_kernels(king_of_the_hill_game(w))
    generator = np.random.default_rng(0)
    x, y, z = (generator.dirichlet(np.ones(n), 200_000) for n in (4, 3, 3))
    for kernel, what, mixes in (
        (prompts, "tij,ni,nj->nt", (y, z)),
        (models, "tij,nt,nj->ni", (x, z)),
    ):
        paid = np.einsum(what, payoffs(w)[0 if kernel is prompts else 1], *mixes)
        apart = ((paid[:, :, None] - paid[:, None]) ** 2).mean(axis=0)
        assert np.abs(kernel - np.exp(-apart / 2e-6)).max() < 0.01
        assert ((kernel > 0.05) & (kernel < 0.95)).any()


# Games


def test_win_rates_of_scores_follow_their_errors():
    game = win_rate_game(SCORES[:2], np.full((2, 3), 0.8))
    from scipy.stats import norm

    assert game.margin[0, 0, 1] == pytest.approx(2 * norm.cdf(3 / (0.8 * 2**0.5)) - 1)
    assert (win_rate_game(SCORES[:2]).margin[:, 0, 1] == [1, -1, 1]).all()


def test_differences_are_normalised_by_prompt():
    assert difference_game(SCORES).margin[0, 0, 2] == 1
    assert difference_game(SCORES, "none").margin[2, 2, 0] == 4
    ranks = difference_game(SCORES, "rank").margin[1, :, 2]  # 4 5 3 4 4 against 3
    assert ranks.tolist() == [0.5, 1.0, 0.0, 0.5, 0.5]
    spread = difference_game(SCORES, "spread").margin[0]
    assert spread[0, 2] == pytest.approx(5 / SCORES[:, 0].std())
    assert (difference_game(np.ones((3, 2))).margin == 0).all()


def test_comparisons_count_both_ways_and_ties_half():
    met = Comparisons.of(
        ["a", "b", "a", "a"], ["b", "a", "b", "b"], [1, 1, 0.5, 0], prompt=["p", "p", "p", "q"]
    )
    margin = king_of_the_hill_game(met).margin
    assert margin[:, 0, 1] == pytest.approx([0, -1])
    smooth = king_of_the_hill_game(met, smoothing=1).margin
    assert smooth[:, 0, 1] == pytest.approx([0, -0.5])
    pooled = Comparisons(met.models, met.first, met.second, met.score)
    assert king_of_the_hill_game(pooled).margin[:, 0, 1] == pytest.approx([-1 / 4])


def test_clusters_pool_their_prompts():
    met = Comparisons.of(
        ["a"] * 4, ["b"] * 4, [1, 1, 0, 0], prompt=list("pqrs"), cluster=[0, 0, 0, 1]
    )
    game = king_of_the_hill_game(met, actions="clusters")
    assert game.margin[:, 0, 1] == pytest.approx([1 / 3, -1])


def test_pairs_that_never_met_are_refused_or_even():
    met = Comparisons.of(["a", "b"], ["b", "c"], [1, 0], prompt=["p", "q"])
    with pytest.raises(UsageError, match="4 of 6 pairs never met"):
        king_of_the_hill_game(met)
    margin = king_of_the_hill_game(met, missing="even").margin
    assert margin[0, 0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: king_of_the_hill_game(np.full((2, 2), np.nan)), "from 0 to 1"),
        (lambda: king_of_the_hill_game([[0.5, 0.7], [0.7, 0.5]]), "add up to 1"),
        (lambda: king_of_the_hill_game([[0.5]]), "two models"),
        (lambda: king_of_the_hill_game(np.ones((2, 3))), "shape"),
        (lambda: king_of_the_hill_game(RPS, models=["a"]), "1 models are named"),
        (lambda: win_rate_game(SCORES, -SCORES), "at least 0"),
        (lambda: win_rate_game(SCORES * np.nan), "finite"),
        (lambda: difference_game(SCORES, "log"), "normalise must be"),
        (lambda: equilibrium_ratings(king_of_the_hill_game(RPS), selection="best"), "selection"),
        (lambda: equilibrium_ratings(king_of_the_hill_game(RPS), tolerance=0), "tolerance"),
        (lambda: affinity_entropy([0.5, 0.6], np.eye(2)), "add up to 1"),
        (lambda: affinity_entropy([0.5, 0.5], np.eye(3)), "square"),
        (lambda: affinity_entropy([0.5, 0.5], np.eye(2), 2), "from 0 to 1"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def test_a_model_without_a_game_is_named():
    met = Comparisons(("a", "b", "idle"), np.array([0]), np.array([1]), np.array([1.0]))
    with pytest.raises(UsageError, match="idle is in no comparison"):
        EquilibriumRatings(draws=0).rate(met, Rng(0))
    with pytest.raises(UsageError, match="idle is in no comparison"):
        AverageRatings().rate(met, Rng(0))


# Equilibria


def test_specialists_and_the_strong_share_the_frontier():
    names = ("skew_a", "skew_b", "skew_c", "weak", "strong")
    for columns in ([0, 1, 2], [0, 1, 2, 0, 0, 0]):
        scores = SCORES[:, columns]
        found = equilibrium_ratings(win_rate_game(scores, np.full(scores.shape, 0.1), models=names))
        assert found.ratings == pytest.approx([0, -1 / 3, 0, -1 / 4, 0], abs=1e-6)
        assert found.model_weights == pytest.approx([1 / 3, 0, 1 / 3, 0, 1 / 3], abs=1e-6)
        copies = columns.count(0)
        assert found.prompt_weights[0] == pytest.approx(0.5 / copies, abs=1e-6)
        assert found.prompt_ratings[:3] == pytest.approx([0, -2 / 9, 0], abs=1e-6)
        assert found.exploitability < 1e-6
        assert found.different == (3, 5)


@pytest.mark.parametrize("selection", ["nash", "cce", "ce"])
def test_a_circle_of_models_is_even_and_a_better_one_stands_above(selection):
    circle = equilibrium_ratings(king_of_the_hill_game(RPS), selection=selection)
    assert circle.ratings == pytest.approx([0, 0, 0], abs=1e-4)
    assert circle.model_weights == pytest.approx([1 / 3] * 3, abs=1e-4)
    best = np.array([[0.5, 0.9, 0.8], [0.1, 0.5, 0.6], [0.2, 0.4, 0.5]])
    found = equilibrium_ratings(king_of_the_hill_game(best), selection=selection)
    assert found.ratings[0] == pytest.approx(0, abs=1e-3)  # the slack of every deviation
    assert (found.ratings[1:] < -0.01).all()
    if selection == "nash":
        assert found.ratings[1:] == pytest.approx([-0.4, -0.3], abs=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_nobody_gains_by_deviating_from_nash(seed):
    w = a_game(seed, 5 + seed, 4 + seed % 5)
    found = equilibrium_ratings(king_of_the_hill_game(w))
    x, y = found.prompt_weights, found.model_weights
    prompt, king, rebel = payoffs(w)
    gains = (
        np.einsum("tij,i,j->t", prompt, y, y),
        np.einsum("tij,t,j->i", king, x, y),
        np.einsum("tij,t,i->j", rebel, x, y),
    )
    for paid, mix in zip(gains, (x, y, y), strict=True):
        assert paid.max() - mix @ paid < 1.0001e-6
    assert found.ratings == pytest.approx(gains[1] - y @ gains[1], abs=1e-12)
    assert found.prompt_ratings == pytest.approx(gains[0] - x @ gains[0], abs=1e-12)
    assert found.contributions.sum(axis=1) == pytest.approx(found.ratings, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_path_is_of_quantal_responses(seed):
    """Where the path stops early, everybody answers the others by the softened best response."""
    game = king_of_the_hill_game(a_game(seed))
    generator = np.random.default_rng(seed)
    m, n = generator.dirichlet(np.ones(7)), generator.dirichlet(np.ones(5))
    point = follow(game, m, n, 0.02)
    assert point.exploitability < 0.02
    assert point.beta < 1e6
    paid = np.einsum("tij,i,j->t", np.abs(game.margin), point.y, point.y)
    beaten = 0.5 * np.einsum("tij,t,j->i", game.margin, point.x, point.y)
    for mix, target, gains in ((point.x, m, paid), (point.y, n, beaten)):
        answer = target * np.exp(point.beta * (gains - gains.max()))
        assert mix == pytest.approx(answer / answer.sum(), abs=1e-7)


def test_the_path_goes_round_its_bends():
    bent = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        p, m = generator.integers(2, 40), generator.integers(2, 12)
        w = generator.uniform(size=(p, m, m))
        game = king_of_the_hill_game((w - w.transpose(0, 2, 1)) / 2 + 0.5)
        point = follow(game, np.full(p, 1 / p), np.full(m, 1 / m), 1e-4)
        assert point.exploitability <= 1e-4
        bent += point.bends > 0
    assert bent > 5


@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_joint_distribution_is_an_equilibrium_and_the_nearest(coarse, seed):
    w = a_game(seed, 3, 3)
    game = king_of_the_hill_game(w)
    third = np.full(3, 1 / 3)
    slack = 1e-3
    found = nearest_equilibrium(game, third, third, slack=slack, coarse=coarse)
    s = found.joint
    assert s.sum() == pytest.approx(1)
    assert (s >= 0).all()
    constraints = _deviations(w, coarse)
    gains = constraints @ s.ravel()
    assert gains.max() <= slack * 1.05
    assert found.exploitability == pytest.approx(max(gains.max(), 0), abs=1e-9)
    # KL is convex: at the nearest point no feasible one lies further down its slope.
    slope = np.log(np.maximum(s.ravel(), 1e-300)) + np.log(27)
    best = linprog(
        slope, A_ub=constraints, b_ub=np.full(len(constraints), slack),
        A_eq=np.ones((1, 27)), b_eq=[1],
    )  # fmt: skip
    assert best.status == 0
    assert slope @ s.ravel() <= best.fun + 1e-3


def _deviations(w, coarse):
    """Return what each deviation gains in each of the joint actions, one row a deviation."""
    rows = []
    for player, paid in enumerate(payoffs(w)):
        for other in range(3):
            moved = np.broadcast_to(np.take(paid, [other], axis=player), paid.shape)
            gain = moved - paid
            if coarse:
                rows.append(gain.ravel())
                continue
            for told in range(3):
                only = np.zeros(3)
                only[told] = 1
                shape = [1, 1, 1]
                shape[player] = 3
                rows.append((gain * only.reshape(shape)).ravel())
    return np.array(rows)


def test_joint_ratings_are_what_deviations_gain():
    w = a_game(2, 4, 3)
    for selection in ("cce", "ce"):
        found = equilibrium_ratings(king_of_the_hill_game(w), selection=selection)
        assert found.contributions.sum(axis=1) == pytest.approx(found.ratings, abs=1e-12)
        assert found.ratings.max() < 1e-3
        assert found.prompt_weights.sum() == pytest.approx(1)
        assert found.model_weights.sum() == pytest.approx(1)


# Copies


@pytest.mark.parametrize("selection", ["nash", "cce"])
@pytest.mark.parametrize("seed", range(4))
def test_copies_and_order_change_nothing(selection, seed):
    w = a_game(seed, 8, 5)
    before = equilibrium_ratings(king_of_the_hill_game(w), selection=selection)
    prompts = np.array([3, 0, 1, 2, 3, 4, 5, 6, 7, 3, 3, 0])
    models = np.array([4, 1, 2, 3, 0, 1, 1])
    copied = w[prompts][:, models][:, :, models]
    after = equilibrium_ratings(king_of_the_hill_game(copied), selection=selection)
    assert after.ratings == pytest.approx(before.ratings[models], abs=1e-7)
    assert after.prompt_ratings == pytest.approx(before.prompt_ratings[prompts], abs=1e-7)
    for mix, places, whole in (
        (after.prompt_weights, prompts, before.prompt_weights),
        (after.model_weights, models, before.model_weights),
    ):
        assert np.bincount(places, mix) == pytest.approx(whole, abs=1e-6)
    assert after.contributions.sum(axis=1) == pytest.approx(after.ratings, abs=1e-12)


def test_a_constant_added_to_scores_changes_nothing():
    one = equilibrium_ratings(difference_game(SCORES))
    two = equilibrium_ratings(difference_game(SCORES + np.array([5.0, -2, 100])))
    assert one.ratings == pytest.approx(two.ratings, abs=1e-9)


def test_ratings_have_the_scale_of_the_scores():
    one = equilibrium_ratings(difference_game(SCORES, "none"))
    large = equilibrium_ratings(difference_game(1000 * SCORES, "none"), tolerance=1e-3)
    assert large.exploitability <= 1e-3
    assert large.ratings == pytest.approx(1000 * one.ratings, abs=0.01)
    assert large.model_weights == pytest.approx(one.model_weights, abs=1e-4)


def test_copies_that_differ_a_little_are_known_by_the_kernel():
    w = a_game(0, 8, 5)
    before = equilibrium_ratings(king_of_the_hill_game(w))
    generator = np.random.default_rng(1)
    noise = generator.normal(0, 1e-5, (30, 5, 5))
    near = np.clip(w[[2] * 30] + noise - noise.transpose(0, 2, 1), 0, 1)
    near = (near - near.transpose(0, 2, 1)) / 2 + 0.5
    game = king_of_the_hill_game(np.concatenate([w, near]))
    assert len(merged(game).game.prompts) == 38
    after = equilibrium_ratings(game)
    assert after.ratings == pytest.approx(before.ratings, abs=2e-3)


def test_merging_is_to_nine_digits():
    game = king_of_the_hill_game(np.stack([RPS, RPS, RPS * (1 - 1e-4) + 0.5e-4]))
    single = merged(game)
    assert single.prompt.tolist() == [0, 0, 1]
    assert single.model.tolist() == [0, 1, 2]


def test_models_that_are_all_alike_are_all_at_the_frontier():
    met = Comparisons.of(["a", "a", "b"], ["b", "c", "c"], [0.5] * 3, prompt=["p"] * 3)
    found = EquilibriumRatings(draws=0).rate(met, Rng(0))
    assert all(each.value == 0 for each in found.values())
    assert "no two models differ" in found["a"].note


def test_single_precision_and_prompts_that_rest_give_the_same(monkeypatch):
    generator = np.random.default_rng(5)
    able = generator.dirichlet(np.ones(4), 12) @ generator.dirichlet(np.full(4, 0.3), 60).T
    margin = np.tanh(2 * (able.T[:, :, None] - able.T[:, None, :]))
    whole = equilibrium_ratings(Game(margin, 0.5, tuple("p" * 60), tuple("m" * 12)))
    monkeypatch.setattr("equipoise.methods.evaluation._equilibrium_path.LARGE", 0)
    monkeypatch.setattr("equipoise.methods.evaluation._equilibrium_game.BLOCK", 500)
    single = margin.astype(np.float32)
    single = (single - single.transpose(0, 2, 1)) / 2
    small = equilibrium_ratings(Game(single, 0.5, tuple("p" * 60), tuple("m" * 12)))
    assert small.exploitability < 1e-6
    assert small.ratings == pytest.approx(whole.ratings, abs=1e-5)


# Measures


def test_both_measures_rate_comparisons():
    assert isinstance(EquilibriumRatings(), Rates)
    assert isinstance(AverageRatings(), Rates)


def test_copies_of_prompts_move_the_average_and_not_the_equilibrium():
    rows = []
    for prompt, row in (("p", (1, 1, 0)), *((f"q{i}", (0, 1, 1)) for i in range(20))):
        for (a, b), score in zip(itertools.combinations("abc", 2), row, strict=True):
            rows.append((a, b, score, prompt))
    for count in (6, len(rows)):
        a, b, score, prompt = zip(*rows[:count], strict=True)
        met = Comparisons.of(a, b, score, prompt=prompt)
        value = EquilibriumRatings(draws=0).rate(met, Rng(0))["a"].value
        average = AverageRatings().rate(met, Rng(0))["a"].value
        if count == 6:
            first, before = value, average
    assert value == pytest.approx(first, abs=1e-9)
    assert abs(average - before) > 0.05


@pytest.mark.parametrize("selection", ["nash", "cce"])
def test_the_interval_over_prompts_of_clusters_covers(selection):
    measure = EquilibriumRatings(selection=selection, actions="clusters", draws=50)
    hits = []
    for index in range(16):
        outcomes, truth = measure.simulate(Rng(4).child(index))
        found = measure.measure(outcomes, Rng(4).child(index, "m"))
        hits += [found[arm].low <= truth[arm] <= found[arm].high for arm in truth]
    assert np.mean(hits) > 0.82  # 0.95 but for few resamples


def test_prompts_are_drawn_within_clusters_only_where_those_are_actions():
    met = Comparisons.of(
        ["a"] * 6, ["b"] * 6, [1, 0, 1, 0, 1, 1], prompt=list("ppqqrs"), cluster=[0, 0, 0, 0, 1, 1]
    )
    group, stratum = independent(met, "clusters")
    assert group.tolist() == [0, 0, 1, 1, 2, 3]
    assert stratum.tolist() == [0, 0, 1, 1]
    generator = np.random.default_rng(0)
    for _ in range(20):
        times = resampled(group, stratum, generator)
        assert times[[0, 2]].sum() == 2
        assert times[[4, 5]].sum() == 2
        assert times[0] == times[1]
    assert independent(met, "prompts")[0].tolist() == [0, 0, 0, 0, 1, 1]
    without = Comparisons(met.models, met.first, met.second, met.score)
    assert independent(without, "prompts")[0].tolist() == list(range(6))


def test_arms_become_a_game_and_a_figure():
    arms = {
        "one": Outcomes.of(score=[3.0, 1, 2, 3, 2]),
        "two": Outcomes.of(score=[1.0, 2, 3, 1, 2]),
        "three": Outcomes.of(score=[0.0, 0, 0, 0, 0]),
    }
    measure = EquilibriumRatings(draws=50)
    found = measure.measure(arms, Rng(0))
    assert found["three"].value == pytest.approx(-0.5)
    assert found["one"].value > -1e-6
    figure = measure.figure(arms, Rng(0))
    assert [each.name for each in figure.series][-1] == "three"
    assert AverageRatings().figure(arms, Rng(0)).series[0].low


def test_draws_are_enough_or_none():
    with pytest.raises(UsageError, match="at least 50"):
        EquilibriumRatings(draws=10)
    arms = {"one": Outcomes.of(score=[1.0, 2]), "two": Outcomes.of(score=[2.0, 1])}
    assert not EquilibriumRatings(draws=0).measure(arms, Rng(0))["one"].has_interval
    with pytest.raises(UsageError, match="one arm"):
        EquilibriumRatings().measure({"one": arms["one"]}, Rng(0))


def test_clusters_must_be_there_to_be_actions():
    met = Comparisons.of(["a"], ["b"], [1])
    with pytest.raises(UsageError, match="no clusters"):
        EquilibriumRatings(actions="clusters").rate(met, Rng(0))
