"""Bradley-Terry and Elo: closed forms, likelihoods maximised by others, and coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics import (
    bradley_terry,
    bradley_terry_draws,
    elo,
    elo_passes,
    rank_ranges,
)
from equipoise.kit.statistics.comparisons import Comparisons
from equipoise.kit.statistics.ratings import ELO


def drawn(strength, n, generator, tie=0.0, ties="half"):
    """Comparisons of random pairs from the model itself."""
    m = len(strength)
    first = generator.integers(m, size=n)
    second = (first + 1 + generator.integers(m - 1, size=n)) % m
    d = strength[first] - strength[second]
    won, drew = special.expit(d), 0.0
    if ties == "davidson":
        whole = np.exp(d / 2) + np.exp(-d / 2) + np.exp(tie)
        won, drew = np.exp(d / 2) / whole, np.exp(tie) / whole
    elif ties == "rao-kupper":
        won = special.expit(d - tie)
        drew = 1 - won - special.expit(-d - tie)
    u = generator.random(n)
    score = np.where(u < won, 1.0, np.where(u < won + drew, 0.5, 0.0))
    return Comparisons(tuple(f"m{i}" for i in range(m)), first, second, score)


def probabilities(d, tie, ties):
    """Chances of win, tie and loss, written from the papers' formulas in strengths."""
    a, b = np.exp(d), np.ones_like(d)
    if ties == "davidson":
        middle = np.exp(tie) * np.sqrt(a * b)
        return a / (a + b + middle), middle / (a + b + middle), b / (a + b + middle)
    theta = np.exp(tie)
    won, lost = a / (a + theta * b), b / (theta * a + b)
    return won, 1 - won - lost, lost


def test_two_models_have_the_log_odds():
    for won, lost in ((3, 1), (70, 30), (1, 9)):
        fit = bradley_terry([[0, won], [lost, 0]])
        gap = fit.scores[0] - fit.scores[1]
        assert gap == pytest.approx(math.log(won / lost), abs=1e-12)
        n = won + lost  # the delta method's variance of log odds
        se = np.sqrt(fit.covariance[0, 0] + fit.covariance[1, 1] - 2 * fit.covariance[0, 1])
        assert se == pytest.approx(math.sqrt(1 / won + 1 / lost) * math.sqrt(n / (n - 1)))
        assert fit.elo.mean() == pytest.approx(1000)
        assert fit.elo[0] - fit.elo[1] == pytest.approx(400 * math.log10(won / lost))


def test_a_balanced_round_robin_ranks_by_wins():
    """Where all meet equally often, expected wins equal wins, and so their order is the scores'."""
    generator = np.random.default_rng(0)
    m, each = 7, 40
    wins = np.zeros((m, m))
    for i in range(m):
        for j in range(i):
            wins[i, j] = generator.binomial(each, 0.5 + 0.05 * (i - j))
            wins[j, i] = each - wins[i, j]
    fit = bradley_terry(wins)
    assert (np.argsort(fit.scores) == np.argsort(wins.sum(1), kind="stable")).all()
    chance = special.expit(fit.scores[:, None] - fit.scores) * (1 - np.eye(m)) * each
    assert chance.sum(1) == pytest.approx(wins.sum(1), abs=1e-8)


def test_equals_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    met = drawn(np.array([0.8, 0.1, -0.3, -0.6]), 600, np.random.default_rng(1))
    x = np.zeros((600, 4))
    x[np.arange(600), met.first], x[np.arange(600), met.second] = 1, -1
    other = LogisticRegression(C=1e10, fit_intercept=False, tol=1e-12, max_iter=10_000)
    found = other.fit(x, met.score).coef_[0]
    assert bradley_terry(met).scores == pytest.approx(found - found.mean(), abs=1e-5)


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_ties_have_the_likelihood_of_the_papers(ties):
    met = drawn(np.array([0.9, 0.0, -0.4, -0.5]), 800, np.random.default_rng(2), 0.4, ties)

    def minus(x):
        s = np.array([*x[:3], -x[:3].sum()])
        chances = probabilities(s[met.first] - s[met.second], x[3], ties)
        return -np.log(np.choose((2 * (1 - met.score)).astype(int), chances)).sum()

    start, bounds = [0.0, 0.0, 0.0, 0.5], [(-3, 3)] * 3 + [(0.01, 3)]
    tight = {"ftol": 1e-15, "gtol": 1e-9}
    found = optimize.minimize(minus, start, method="L-BFGS-B", bounds=bounds, options=tight).x
    fit = bradley_terry(met, ties=ties)
    assert fit.scores[:3] == pytest.approx(found[:3], abs=1e-4)
    assert fit.tie == pytest.approx(found[3], abs=1e-4)
    # At the truth, the sandwich and the inverse of the information agree, within its noise.
    hessian = optimize.approx_fprime(found, lambda x: optimize.approx_fprime(x, minus, 1e-5), 1e-4)
    inverse = np.linalg.inv((hessian + hessian.T) / 2)
    assert fit.se[:3] == pytest.approx(np.sqrt(np.diag(inverse))[:3], rel=0.15)


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_ties_recover_their_parameter(ties):
    truth = np.array([0.5, 0.0, -0.5])
    fit = bradley_terry(drawn(truth, 60_000, np.random.default_rng(3), 0.3, ties), ties=ties)
    assert fit.scores == pytest.approx(truth, abs=0.04)
    assert fit.tie == pytest.approx(0.3, abs=0.03)
    assert fit.misfit_p > 0.001


def test_draws_are_half_a_win_to_both():
    half = Comparisons.of(["a", "a", "b"], ["b", "b", "a"], [1, 0.5, 1])
    fit = bradley_terry(half)
    assert fit.scores[0] - fit.scores[1] == pytest.approx(math.log(1.5 / 1.5), abs=1e-12)
    same = bradley_terry([[0, 1.5], [1.5, 0]])
    assert fit.scores == pytest.approx(same.scores)


def test_shares_of_a_win_count_as_they_are():
    met = Comparisons.of(["a", "a", "a"], ["b", "b", "b"], [0.7, 0.9, 0.2])
    fit = bradley_terry(met)
    assert fit.scores[0] - fit.scores[1] == pytest.approx(math.log(1.8 / 1.2))
    with pytest.raises(UsageError, match=r"needs scores of 0, 0\.5 and 1"):
        bradley_terry(met, ties="davidson")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_names_sides_and_order_do_not_matter(seed):
    generator = np.random.default_rng(seed)
    met = drawn(generator.normal(size=5), 200, generator, 0.0, "davidson")
    fit = bradley_terry(met, prior=0.5, ties="davidson")
    order, turn = generator.permutation(200), generator.random(200) < 0.5
    name = generator.permutation(5)
    a, b = np.where(turn, met.second, met.first), np.where(turn, met.first, met.second)
    score = np.where(turn, 1 - met.score, met.score)
    other = Comparisons(met.models, name[a][order], name[b][order], score[order])
    again = bradley_terry(other, prior=0.5, ties="davidson")
    assert again.scores[name] == pytest.approx(fit.scores, abs=1e-8)
    assert again.se[name] == pytest.approx(fit.se, abs=1e-8)
    for number in ("tie", "misfit", "cyclic"):
        assert getattr(again, number) == pytest.approx(getattr(fit, number), abs=1e-6)


def test_sparse_codes_give_the_table_of_dense_ones():
    """Many models and few rows are counted in another way."""
    generator = np.random.default_rng(4)
    met = drawn(np.zeros(3), 90, generator)
    spread = np.array([5, 900, 1999])
    many = Comparisons(
        tuple(map(str, range(2000))), spread[met.first], spread[met.second], met.score
    )
    from equipoise.kit.statistics._pair_tables import rows_of

    one, other = rows_of(met, "half"), rows_of(many, "half")
    assert (one.counts() == other.counts()).all()
    assert (spread[one.pairs.first] == other.pairs.first).all()
    assert one.squares == pytest.approx(other.squares)


def test_clusters_are_not_independent():
    """Every comparison four times over says no more than once, when the copies are clusters."""
    met = drawn(np.array([0.5, 0.0, -0.5]), 300, np.random.default_rng(5))
    copied = Comparisons(
        met.models, *(np.repeat(each, 4) for each in (met.first, met.second, met.score))
    )
    grouped = Comparisons(
        met.models, copied.first, copied.second, copied.score, cluster=np.repeat(np.arange(300), 4)
    )
    once, naive, right = map(bradley_terry, (met, copied, grouped))
    assert right.scores == pytest.approx(once.scores)
    assert right.se == pytest.approx(once.se)
    assert naive.se == pytest.approx(once.se / 2, rel=0.01)
    assert right.clusters == 300
    assert math.isnan(right.misfit_p)


@pytest.mark.parametrize("shared", [False, True])
def test_intervals_cover(covers, shared):
    """With dependence within prompts, too, where intervals that ignore it cover far less."""
    truth = np.array([0.6, 0.0, -0.6])
    generator, hits, naive = np.random.default_rng(6), [], []
    i, j = np.array([0, 0, 1]), np.array([1, 2, 2])
    for _ in range(400):
        noise = generator.gumbel(size=(120, 3))
        score = truth + noise
        prompt = np.repeat(np.arange(120), 3)
        first, second = np.tile(i, 120), np.tile(j, 120)
        won = (score[:, i] > score[:, j]).astype(float).reshape(-1)
        if shared:  # each prompt is asked three times and answered alike
            first, second, won, prompt = (np.tile(each, 3) for each in (first, second, won, prompt))
        names = ("a", "b", "c")
        for kept, found in ((prompt, hits), (None, naive)):
            met = Comparisons(names, first, second, won, (), kept)
            low, high = bradley_terry(met).ends()
            found += list((low <= truth) & (truth <= high))
    covers(hits, 0.94, 0.965)
    if shared:
        assert np.mean(naive) < 0.85


def test_bootstrap_agrees_with_the_sandwich():
    met = drawn(np.array([0.7, 0.2, -0.2, -0.7]), 3000, np.random.default_rng(7))
    fit = bradley_terry(met)
    star = bradley_terry_draws(met, draws=2000, rng=Rng(0))
    assert star.mean(axis=1) == pytest.approx(0, abs=1e-12)
    assert star.std(axis=0) == pytest.approx(fit.se, rel=0.08)
    assert star.mean(axis=0) == pytest.approx(fit.scores, abs=0.02)
    grouped = Comparisons(
        met.models, met.first, met.second, met.score, cluster=np.arange(3000) // 10
    )
    star = bradley_terry_draws(grouped, draws=2000, rng=Rng(0))
    assert star.std(axis=0) == pytest.approx(bradley_terry(grouped).se, rel=0.08)


def test_many_rows_are_drawn_by_kind():
    met = drawn(np.array([0.4, 0.0, -0.4]), 20_000, np.random.default_rng(8))
    star = bradley_terry_draws(met, draws=1500, rng=Rng(1))
    assert star.std(axis=0) == pytest.approx(bradley_terry(met).se, rel=0.08)


def test_resamples_without_a_maximum_stay_finite():
    wins = [[0, 5, 1], [0, 0, 4], [1, 0, 0]]
    star = bradley_terry_draws(wins, draws=300, rng=Rng(0))
    assert np.isfinite(star).all()
    met = Comparisons.of(["a", "a", "b", "b"], ["b", "b", "a", "a"], [1, 0.5, 1, 0])
    assert np.isfinite(bradley_terry_draws(met, ties="davidson", draws=300, rng=Rng(0))).all()


def test_the_prior_is_a_tie_with_an_average_model():
    """A third model, held at 0, that both tie with once, by scipy."""
    wins, prior = np.array([[0, 4.0], [0, 0]]), 1.0
    found = optimize.minimize(
        lambda s: (
            -4 * special.log_expit(s[0] - s[1])
            - prior * (special.log_expit(s) + special.log_expit(-s)).sum() / 2
        ),
        [0.0, 0.0],
    ).x
    fit = bradley_terry(wins, prior=prior)
    assert fit.scores == pytest.approx(found - found.mean(), abs=1e-5)
    strong = bradley_terry(wins, prior=1e6)
    assert np.abs(strong.scores).max() < 1e-4


def test_circles_are_told_and_rated_equal():
    circle = np.array([[0, 9, 1], [1, 0, 9], [9, 1, 0]])
    fit = bradley_terry(circle)
    assert fit.scores == pytest.approx([0, 0, 0], abs=1e-12)
    assert fit.cyclic == pytest.approx(1)
    assert fit.misfit > 10
    assert fit.misfit_p < 1e-4
    line = special.expit(np.subtract.outer([0.9, 0.0, -0.9], [0.9, 0.0, -0.9])) * 100
    np.fill_diagonal(line, 0)
    fit = bradley_terry(line)
    assert fit.cyclic < 0.01
    assert fit.misfit == pytest.approx(0, abs=1e-12)


def test_misfit_has_its_level(level_holds):
    generator, found, ratios = np.random.default_rng(9), [], []
    for _ in range(300):
        met = drawn(generator.normal(size=5) / 2, 800, generator)
        half = Comparisons(met.models, met.first, met.second, 0.25 + met.score / 2)
        fit = bradley_terry(met)
        assert bradley_terry(half).misfit_p <= 1
        found.append(fit.misfit_p)
        ratios.append(fit.misfit)
    level_holds(found)
    assert np.mean(ratios) == pytest.approx(1, abs=0.12)


def test_ranks_hold_all_at_once(covers):
    truth, hits = np.array([0.5, 0.3, 0.1, -0.2, -0.7]), []
    generator = np.random.default_rng(10)
    right = stats.rankdata(-truth)
    for run in range(200):
        fit = bradley_terry(drawn(truth, 600, generator))
        ranks = rank_ranges(fit.scores, fit.draws(500, Rng(run)))
        assert (ranks[:, 0] <= ranks[:, 1]).all()
        hits.append(((ranks[:, 0] <= right) & (right <= ranks[:, 1])).all())
    covers(hits, 0.95)


def test_ranks_are_narrow_when_all_is_clear():
    star = np.array([3.0, 1.0, 2.0]) + np.random.default_rng(0).normal(size=(500, 3)) / 100
    assert rank_ranges([3.0, 1.0, 2.0], star).tolist() == [[1, 1], [3, 3], [2, 2]]
    assert rank_ranges([0.0, 0.0], np.zeros((100, 2))).tolist() == [[1, 2], [1, 2]]


def test_elo_by_hand_and_by_lane():
    met = Comparisons.of(["a", "b", "a"], ["b", "c", "c"], [1, 0.5, 0])
    r = {"a": 1000.0, "b": 1000.0, "c": 1000.0}
    for a, b, y in (("a", "b", 1), ("b", "c", 0.5), ("a", "c", 0)):
        gain = 32 * (y - 1 / (1 + 10 ** ((r[b] - r[a]) / 400)))
        r[a], r[b] = r[a] + gain, r[b] - gain
    one = elo_passes(met, k=32)
    assert one[0] == pytest.approx([r["a"], r["b"], r["c"]], abs=1e-9)
    lanes = elo_passes(met, k=32, order=[[0, 1, 2], [2, 1, 0]])
    assert lanes[0] == pytest.approx(one[0])
    assert lanes[1] == pytest.approx(elo_passes(met, k=32, order=[[2, 1, 0]])[0])
    assert lanes.sum(axis=1) == pytest.approx(3000)


def test_elo_comes_near_bradley_terry_when_steps_are_small():
    met = drawn(np.array([0.5, 0.0, -0.5]), 8_000, np.random.default_rng(11))
    found = elo(met, k=1, orders=100, draws=100, rng=Rng(0))
    assert found.ratings == pytest.approx(bradley_terry(met).elo, abs=3)


def test_elo_intervals_cover_the_mean_over_worlds(covers):
    truth = np.array([0.5, 0.0, -0.5])
    generator = np.random.default_rng(12)
    long = drawn(truth, 300 * 4000, generator)
    expected = elo_passes(long, k=16, order=np.arange(300 * 4000).reshape(4000, 300)).mean(0)
    hits = []
    for run in range(150):
        met = drawn(truth, 300, generator)
        found = elo(met, k=16, orders=20, draws=100, rng=Rng(run))
        hits += list(np.abs(found.ratings - expected) < 1.96 * found.se)
    covers(hits, 0.94, 0.975)


def test_elo_in_the_order_given():
    """A model that became better is rated by its late games."""
    score = np.repeat([0.0, 1.0], 300)
    met = Comparisons(("a", "b"), np.zeros(600, int), np.ones(600, int), score)
    late = elo(met, order="given", draws=100, rng=Rng(0))
    mixed = elo(met, orders=50, draws=100, rng=Rng(0))
    assert late.ratings[0] > mixed.ratings[0] + 100
    assert (late.order_sd == 0).all()
    assert (mixed.order_sd > 0).all()


@pytest.mark.parametrize(
    ("wins", "sentence"),
    [
        ([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 1, 0]], r"\{0, 1\}; \{2, 3\}; rate"),
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], "2 met no other"),
        ([[0, 3, 4], [0, 0, 2], [0, 2, 0]], "0 lost to none of the others and 1, 2 won ag"),
        ([[0]], "one model cannot be compared"),
        ([[0, 1], [1, 1]], "0 of a model over itself"),
        ([[0, 1, 2]], "square"),
        ([[0, math.nan], [1, 0]], "finite"),
        ([["x", 1], [1, 0]], "numbers"),
    ],
)  # fmt: skip
def test_what_has_no_maximum_is_refused(wins, sentence):
    with pytest.raises(UsageError, match=sentence):
        bradley_terry(wins)


def test_a_prior_rates_what_has_no_maximum():
    for wins in ([[0, 3, 4], [0, 0, 2], [0, 2, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]]):
        assert np.isfinite(bradley_terry(wins, prior=1).scores).all()


def test_all_ties():
    met = Comparisons.of(["a", "b"], ["b", "c"], [0.5, 0.5])
    fit = bradley_terry(met)
    assert fit.scores == pytest.approx([0, 0, 0])
    assert fit.se == pytest.approx([0, 0, 0])
    assert fit.cyclic == 0
    with pytest.raises(UsageError, match="every comparison is a tie"):
        bradley_terry(met, ties="davidson")
    with pytest.raises(UsageError, match="no comparison is a tie"):
        bradley_terry(Comparisons.of(["a", "b"], ["b", "a"], [1, 1]), ties="rao-kupper")


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
@pytest.mark.parametrize(
    ("rows", "finite"),
    [
        ([("a", "b", 1), ("a", "b", 0.5)], False),
        ([("a", "b", 1), ("b", "c", 1), ("a", "c", 0.5)], True),
        ([("a", "b", 1), ("b", "c", 0.5), ("a", "c", 0.5)], False),
        ([("a", "b", 1), ("b", "a", 1), ("b", "c", 0.5)], True),
    ],
)
def test_ties_can_leave_strengths_without_end(rows, finite, ties):
    met = Comparisons.of(*zip(*rows, strict=True))
    if finite:
        assert np.isfinite(bradley_terry(met, ties=ties).scores).all()
    else:
        with pytest.raises(UsageError, match="grow together"):
            bradley_terry(met, ties=ties)
    assert np.isfinite(bradley_terry(met, ties=ties, prior=1).scores).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda met: bradley_terry(met, ties="maybe"), "ties must be"),
        (lambda met: bradley_terry(met, prior=-1), "prior must be"),
        (lambda met: bradley_terry([[0, 1], [1, 0]], ties="davidson"), "has no ties"),
        (lambda met: bradley_terry_draws(met, draws=5, rng=Rng(0)), "at least 100"),
        (lambda met: bradley_terry(met).ends(2), "level"),
        (lambda met: elo_passes(met, k=0), "k must be"),
        (lambda met: elo(met, k=0, rng=Rng(0)), "k must be"),
        (lambda met: elo(met, k=math.nan, rng=Rng(0)), "k must be"),
        (lambda met: elo(met, k=math.inf, rng=Rng(0)), "k must be"),
        (lambda met: elo(replace(met, models=("a", "b", "c")), rng=Rng(0)), "c met no other"),
        (lambda met: elo(met, order="last", rng=Rng(0)), "order must be"),
        (lambda met: elo(met, orders=1, rng=Rng(0)), "orders must be"),
    ],
)
def test_wrong_use_is_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call(Comparisons.of(["a", "b"], ["b", "a"], [1, 1]))


@pytest.mark.parametrize("rate", [bradley_terry, lambda met: elo(met, rng=Rng(0))])
def test_one_cluster_gives_no_interval(rate):
    met = Comparisons.of(["a", "b"], ["b", "a"], [1, 1], cluster=[0, 0])
    with pytest.raises(UsageError, match="share one cluster"):
        rate(met)


def test_points():
    assert pytest.approx(400 / math.log(10)) == ELO
