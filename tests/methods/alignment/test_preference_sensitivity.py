import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from equipoise.core import Outcomes, Rng, UnitError, UsageError
from equipoise.kit.statistics import bradley_terry
from equipoise.methods.alignment import (
    ImpliedPreferences,
    PreferencePairs,
    PreferenceSensitivity,
    RankedTuples,
    RecordedPreferences,
    SensitiveRegion,
    SpreadRatio,
    fit_rankings,
    fragile_triples,
    implied_preference,
    ranking_gradients,
    ranking_probabilities,
    ranking_sensitivity,
    sensitive_bound,
    sensitive_region_area,
    sensitivity,
    spread_ratio,
    tuple_region_areas,
)

inside = st.floats(0.001, 0.999)


def logit(p):
    return np.log(p / (1 - p))


# Pairs


@pytest.mark.parametrize(
    ("x", "y", "p", "s"),
    [
        (0.99, 0.01, 0.5, 25.2525),
        (0.9, 0.1, 0.5, 2.7778),
        (0.5, 0.5, 0.5, 1.0),
        (0.99, 0.5, 0.99, 0.0396),
        (0.99, 0.02, 0.669, None),
        (0.99, 0.05, 0.839, None),
    ],
)
def test_hand_cases(x, y, p, s):
    assert implied_preference(x, y) == pytest.approx(p, abs=5e-4)
    if s is not None:
        assert sensitivity(x, y) == pytest.approx(s, abs=5e-5)


@given(inside, inside)
def test_symmetries(x, y):
    assert sensitivity(x, y) == pytest.approx(sensitivity(1 - x, 1 - y), rel=1e-9)
    assert implied_preference(x, y) == pytest.approx(implied_preference(y, x), rel=1e-12)
    assert sensitivity(0.5, y) == pytest.approx(1.0, rel=1e-12)
    assert implied_preference(0.5, y) == pytest.approx(y, rel=1e-12)
    # Swapping k and j turns x into 1 - x and flips the region.
    assert (sensitivity(x, y) > 3) == (sensitivity(1 - x, 1 - y) > 3)


def test_strong_preferences_that_agree_are_not_sensitive():
    assert sensitivity(0.99, 0.99) == pytest.approx(0.0103, abs=1e-4)


@pytest.mark.parametrize("g", ["bradley-terry", "probit", stats.cauchy, stats.logistic])
def test_slopes_are_finite_differences(g):
    x, y = np.meshgrid(np.linspace(0.03, 0.97, 25), np.linspace(0.03, 0.97, 25))
    h = 1e-6
    slope = (implied_preference(x, y + h, g) - implied_preference(x, y - h, g)) / (2 * h)
    assert sensitivity(x, y, g) == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_the_generic_formula_gives_the_closed_one_and_probit_amplifies_more():
    x, y = np.array([0.99, 0.9, 0.3]), np.array([0.01, 0.2, 0.8])
    assert sensitivity(x, y, stats.logistic) == pytest.approx(sensitivity(x, y), rel=1e-10)
    assert implied_preference(x, y, stats.logistic) == pytest.approx(implied_preference(x, y))
    strong = (0.99, 0.01)
    assert implied_preference(*strong, "probit") == pytest.approx(0.5)
    # 1 / (sqrt(2 pi) pdf(z)) at the quantile z of 0.01.
    expected = math.exp(stats.norm.ppf(0.01) ** 2 / 2)
    assert sensitivity(*strong, "probit") == pytest.approx(expected)
    assert sensitivity(1 - 1e-6, 1e-6) / sensitivity(0.99, 0.01) > 1e3


def test_certainties():
    assert implied_preference(1.0, 0.3) == 1.0
    assert math.isnan(implied_preference(1.0, 0.0))
    assert math.isnan(sensitivity(0.0, 1.0))


@pytest.mark.parametrize("least", [1.0, 1.3, 2.0, 5.0, 20.0])
def test_the_region_is_where_sensitivity_is_above_least(least):
    x, y = (np.arange(400)[:, None] + 0.5) / 400, (np.arange(400)[None] + 0.5) / 400
    bound = sensitive_bound(x, least)
    region = np.where(x > 0.5, y < bound, y > bound)
    assert (region == (sensitivity(x, y) > least)).all()


@pytest.mark.parametrize(
    ("least", "area", "within"),
    [
        (1, 0.346, 1e-3), (2, 0.0739, 5e-5), (3, 0.0336, 5e-5), (5, 0.01247, 5e-6),
        (10, 0.00321, 5e-6), (20, 0.00082, 5e-6), (50, 0.00013, 5e-6),
    ],
)  # fmt: skip
def test_areas(least, area, within):
    found = sensitive_region_area(least)
    assert found == pytest.approx(area, abs=within)
    whole, _ = integrate.quad(sensitive_bound, least / (1 + least), 1, args=(least,))
    assert found == pytest.approx(2 * whole, rel=1e-6)


def test_area_for_large_least():
    assert sensitive_region_area(1e4) * 3e8 == pytest.approx(1, rel=1e-2)
    assert sensitive_region_area(1 + 1e-9) == pytest.approx(math.log(2) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: sensitivity(1.2, 0.5), "probabilities must be from 0 to 1"),
        (lambda: implied_preference(0.5, math.nan), "probabilities must be from 0 to 1"),
        (lambda: sensitive_region_area(0.5), "least must be at least 1"),
        (lambda: sensitive_bound(0.5, math.inf), "least must be at least 1"),
        (lambda: sensitivity(0.5, 0.5, "logit"), "g must be one of bradley-terry, probit"),
    ],
)
def test_bad_probabilities(call, match):
    with pytest.raises(UsageError, match=match):
        call()


# Tuples


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_rankings_add_up_and_imply_bradley_terry(size):
    s = np.random.default_rng(size).normal(0, 2, (4, size))
    rankings = np.array(list(itertools.permutations(range(size))))
    p = ranking_probabilities(s, rankings)
    assert p.sum(-1) == pytest.approx(np.ones(4))
    ahead = np.array([list(r).index(0) < list(r).index(1) for r in rankings])
    assert p[:, ahead].sum(-1) == pytest.approx(1 / (1 + np.exp(s[:, 1] - s[:, 0])))


def test_pairs_are_bradley_terry():
    s = np.random.default_rng(0).normal(0, 3, (50, 2))
    assert ranking_probabilities(s, [[0, 1]])[:, 0] == pytest.approx(
        1 / (1 + np.exp(s[:, 1] - s[:, 0]))
    )


@given(inside, inside)
def test_sensitivity_of_pairs_is_the_closed_form(x, y):
    s = [logit(y), -logit(x), 0.0]  # i, j, k
    found = ranking_sensitivity(s, (0, 1), [(0, 2), (2, 1)])
    assert found == pytest.approx(sensitivity([x, y], [y, x]), rel=1e-8)


def test_gradients_are_finite_differences():
    s = np.random.default_rng(1).normal(0, 1.5, 5)
    rankings = [[3, 1, 4, 0], [0, 2, 1, 3], [4, 3, 2, 1]]
    h = 1e-6
    steps = h * np.eye(5)
    slopes = (
        ranking_probabilities(s + steps, rankings) - ranking_probabilities(s - steps, rankings)
    ) / (2 * h)
    assert ranking_gradients(s, rankings) == pytest.approx(slopes.T, abs=1e-9)


def test_sensitivities_of_triples_follow_the_references():
    s = np.array([0.4, -1.0, 0.2])
    target, references = (0, 1, 2), [(0, 2, 1), (2, 0, 1)]
    slope = ranking_sensitivity(s, target, references)
    move = np.array([1e-6, -2e-6, 0])
    rise = ranking_probabilities(s + move, [target, *references]) - ranking_probabilities(
        s, [target, *references]
    )
    assert rise[0] == pytest.approx(slope @ rise[1:], rel=1e-4)


def test_references_that_tell_nothing_give_nan():
    assert np.isnan(ranking_sensitivity([0.0, 1.0, 2.0], (0, 1), [(0, 2), (2, 0)])).all()


def test_areas_by_monte_carlo():
    (pairs,) = tuple_region_areas(2, 2.0, Rng(0), draws=400_000).values()
    assert pairs.low <= sensitive_region_area(2.0) <= pairs.high
    assert pairs.details["feasible"] == pytest.approx(1, abs=0.02)
    # The triple model by brute force: references on a grid of scores, their area by triangles.
    triples = tuple_region_areas(3, 2.0, Rng(1), draws=200_000)
    assert len(triples) == 20
    # Rankings in one region of scores cannot have more than all of probability between them.
    assert all(0.1 < each.details["feasible"] <= 0.52 for each in triples.values())
    # P(0 > 2 > 1) and P(2 > 0 > 1) take all values of sum below one: half of the square.
    assert triples[(0, 1, 2), (0, 2, 1), (2, 0, 1)].details["feasible"] == pytest.approx(
        0.5, abs=0.01
    )
    assert max(each.value for each in triples.values()) < sensitive_region_area(2.0)


# Fits


def test_fit_of_pairs_is_bradley_terry():
    wins = np.random.default_rng(2).integers(1, 40, (5, 5)) * (1 - np.eye(5))
    i, j = np.nonzero(wins)
    found = fit_rankings(np.stack([i, j], 1), wins[i, j], 5, ridge=1e-9)
    assert found == pytest.approx(bradley_terry(wins).scores, abs=1e-6)


def test_fit_of_tuples_has_no_slope_left_and_many_tables_fit_at_once():
    rng = np.random.default_rng(3)
    rankings = np.array(list(itertools.permutations(range(4), 3)))
    truth = np.array([1.0, 0.2, -0.4, -0.8])
    p = ranking_probabilities(truth, rankings)
    # Whole probabilities as soft labels give the truth back.
    exact = fit_rankings(rankings, 1e6 * p, 4, ridge=1e-9)
    assert exact == pytest.approx(truth, abs=1e-6)
    counts = rng.multinomial(500, p / p.sum(), size=3)
    together = fit_rankings(rankings, counts, 4)
    for each, s in zip(counts, together, strict=True):
        assert s == pytest.approx(fit_rankings(rankings, each, 4), abs=1e-9)
        slope = each @ (
            ranking_gradients(s, rankings) / ranking_probabilities(s, rankings)[:, None]
        )
        assert slope == pytest.approx(1e-3 * s, abs=1e-6)


def test_the_ridge_decides_one_sided_labels():
    gaps = []
    for ridge in (1e-1, 1e-3, 1e-5):
        s = fit_rankings([[0, 1], [1, 0]], [50, 0], 2, ridge=ridge)
        gaps.append(s[0] - s[1])
        # 50 (1 - p) = ridge s on each side.
        assert 50 / (1 + math.exp(gaps[-1])) == pytest.approx(ridge * s[0], rel=1e-6)
    assert gaps[0] < gaps[1] < gaps[2]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fit_rankings([[0, 1]], [0], 2), "not all 0"),
        (lambda: fit_rankings([[0, 1]], [-1], 2), "at least 0"),
        (lambda: fit_rankings([[0, 1]], [1], 1), "at least two options"),
        (lambda: fit_rankings([[0, 1]], [1], 2, ridge=0.0), "ridge must be above 0"),
        (lambda: ranking_probabilities([0, 0], [[0, 0]]), "an option twice"),
        (lambda: ranking_probabilities([0, 0], [[0, 2]]), "no score"),
        (lambda: ranking_probabilities([0, 0], [[0.5, 1]]), "whole numbers"),
        (lambda: ranking_probabilities([0, math.nan], [[0, 1]]), "finite"),
        (lambda: ranking_sensitivity([0, 0, 0], (0, 1), [(0, 2)]), "need 2 references"),
        (lambda: tuple_region_areas(4, 2.0, Rng(0)), "size must be 2 or 3"),
    ],
)
def test_bad_rankings(call, match):
    with pytest.raises(UsageError, match=match):
        call()


# Triples of a data set


def table(scores, pairs, labels):
    wins = np.zeros((len(scores),) * 2)
    for a, b in pairs:
        p = 1 / (1 + math.exp(scores[b] - scores[a]))
        wins[a, b], wins[b, a] = labels * p, labels * (1 - p)
    return wins


def test_triple_of_two_pairs_is_the_closed_form():
    x, y = 0.97, 0.04
    wins = np.array([[0, 0, 400 * y], [0, 0, 400 * (1 - x)], [400 * (1 - y), 400 * x, 0]])
    found = fragile_triples(wins, prior=0, names=["i", "j", "k"])
    (each,) = found.triples
    # Both pairs move it; the one that moves it more is told.
    assert (each.k, {each.i, each.j}) == ("k", {"i", "j"})
    known = {"i": (x, y), "j": (1 - y, 1 - x)}[each.i]
    assert each.sensitivity == pytest.approx(sensitivity(*known))
    assert each.influence == pytest.approx(each.sensitivity)
    assert (each.held, each.moved) == pytest.approx(known)
    # One per cent of its labels move to the weaker side.
    x, y = known
    weak = y + 0.01 if y < 0.5 else y - 0.01
    assert each.after == pytest.approx(float(implied_preference(x, weak)), abs=1e-6)
    assert (found.count, found.sensitive, found.fragile) == (1, 1, 1)


def test_influence_is_what_a_refit_does_and_other_labels_hold():
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 2, 6)
    wins = table(scores, itertools.combinations(range(6), 2), 300)
    i, j, k = 0, 3, int(scores.argmax() if scores.argmax() not in (0, 3) else scores.argmin())
    (each,) = fragile_triples(wins, prior=0, triple=(str(i), str(j), str(k))).triples
    nudge = 1e-4
    moved = wins.copy()
    moved[i, k] += 300 * nudge
    moved[k, i] -= 300 * nudge
    before, after = (bradley_terry(each).scores for each in (wins, moved))
    p = [1 / (1 + math.exp(s[j] - s[i])) for s in (before, after)]
    assert each.influence == pytest.approx((p[1] - p[0]) / nudge, rel=1e-3)
    assert each.influence < each.sensitivity / 2


def brute(wins, least, prior):
    """Count triples and find the worst by loops over everything."""
    n = wins + wins.T
    names = list(map(str, range(len(wins))))
    found = []
    for k in range(len(wins)):
        for i, j in itertools.combinations(np.flatnonzero(n[k]), 2):
            both = [
                fragile_triples(wins, prior=prior, triple=[names[a], names[b], names[k]]).triples[0]
                for a, b in ((i, j), (j, i))
            ]
            best = max((t for t in both if t.sensitivity > least), default=None,
                       key=lambda t: t.influence)  # fmt: skip
            found.append(best)
    return found


@pytest.mark.parametrize("change", [0.05, 0.5, 1.0])
def test_after_is_a_refit(change):
    wins = np.array([[0, 99.0, 0], [1, 0, 1], [0, 99, 0]])
    (each,) = fragile_triples(wins, change=change).triples
    gone = min(100 * change, 99)
    wins[0, 1] -= gone
    wins[1, 0] += gone
    s = fragile_triples(wins).scores
    assert each.after == pytest.approx(1 / (1 + math.exp(s[2] - s[0])), abs=1e-9)


def test_search_equals_brute_force():
    rng = np.random.default_rng(5)
    scores = rng.normal(0, 3, 10)
    pairs = [p for p in itertools.combinations(range(10), 2) if rng.random() < 0.4]
    wins = table(scores, pairs, 200)
    slow = brute(wins, 1.3, 0.1)
    found = fragile_triples(wins, least=1.3, prior=0.1, top=100)
    sensitive = [each for each in slow if each is not None]
    fragile = sorted(
        (each for each in sensitive if each.influence > 1.3), key=lambda t: -t.influence
    )
    assert found.count == len(slow)
    assert (found.sensitive, found.fragile) == (len(sensitive), len(fragile))
    assert len(fragile) > 3
    assert [t.influence for t in found.triples] == pytest.approx([t.influence for t in fragile])
    few = fragile_triples(wins, least=1.3, prior=0.1, top=2)
    assert few.triples == found.triples[:2]


def test_many_options():
    rng = np.random.default_rng(6)
    scores = rng.normal(0, 2, 300)
    gap = scores[:, None] - scores
    wins = np.where(np.eye(300), 0, 20 / (1 + np.exp(-gap)))
    found = fragile_triples(wins, top=3, change=0.0)
    assert found.count == 300 * 299 * 298 // 2
    # The same region, counted by the closed-form bound.
    p = 1 / (1 + np.exp(-(found.scores[:, None] - found.scores)))
    inside = 0
    for k in range(300):
        s = sensitivity(p[k][None, :], p[:, k][:, None]) > 2
        both = (s | s.T) & ~np.eye(300, dtype=bool)
        both[k] = both[:, k] = False
        inside += both.sum() // 2
    assert found.sensitive == inside


def test_delta_interval_covers():
    rng = np.random.default_rng(7)
    y, x, labels, hits = 0.03, 0.9, 1500, 0
    truth = float(sensitivity(x, y))
    for won in rng.binomial(labels, [y, x], size=(300, 2)):
        wins = np.zeros((3, 3))
        wins[0, 2], wins[2, 0] = won[0], labels - won[0]
        wins[2, 1], wins[1, 2] = won[1], labels - won[1]
        (each,) = fragile_triples(wins, triple=("0", "1", "2")).triples
        hits += abs(math.log(each.sensitivity / truth)) <= 1.96 * each.log_se
    assert hits >= stats.binom.ppf(1e-4, 300, 0.95)
    assert hits <= stats.binom.ppf(1 - 1e-4, 300, 0.95)


def test_clusters_that_say_the_same_widen_the_interval():
    rng = np.random.default_rng(8)
    columns = (np.array([0, 1] * 40), np.array([2, 2] * 40))
    won = np.stack([rng.binomial(10, 0.1, 40), rng.binomial(10, 0.1, 40)], 1).reshape(-1)
    single = fragile_triples((*columns, won, 10 - won), clusters=np.arange(80), change=0.0)
    four = [np.repeat(each, 4) for each in (*columns, won, 10 - won)]
    copies = fragile_triples(tuple(four), clusters=np.repeat(np.arange(80), 4), change=0.0)
    naive = fragile_triples(tuple(four), change=0.0)
    assert copies.triples[0].log_se == pytest.approx(single.triples[0].log_se, rel=0.03)
    assert naive.triples[0].log_se < 0.6 * copies.triples[0].log_se
    assert copies.clusters == 80


def test_what_the_fit_rests_on_is_said():
    # Nothing but wins: the prior decides, and says so.
    sure = fragile_triples([[0, 50, 0], [0, 0, 0], [0, 50, 0]])
    assert "the prior of 0.1 ties decides" in " ".join(sure.notes)
    loose = fragile_triples([[0, 50, 0], [0, 0, 0], [0, 50, 0]], prior=1.0)
    assert loose.triples[0].sensitivity < sure.triples[0].sensitivity / 5
    # Two groups that never met.
    apart = np.zeros((4, 4))
    apart[0, 1] = apart[1, 0] = apart[2, 3] = apart[3, 2] = 5
    assert "2 groups that were never compared" in " ".join(fragile_triples(apart).notes)
    # Rock, paper, scissors.
    circle = [[0, 90, 10], [10, 0, 90], [90, 10, 0]]
    assert "Preferences go in circles" in " ".join(fragile_triples(circle).notes)
    assert fragile_triples([[0, 7, 8], [6, 0, 8], [7, 7, 0]]).notes == ()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fragile_triples([[0, 9], [0, 0]], prior=0), "ratings are infinite"),
        (lambda: fragile_triples([[0, 0.4, 0], [0.2, 0, 0.1], [0, 0, 0]]), "at least 2 are needed"),
        (lambda: fragile_triples([[0, -1], [0, 0]]), "at least 0"),
        (lambda: fragile_triples([[0, 1], [1, 0]], least=0.5), "least must be at least 1"),
        (lambda: fragile_triples([[0, 1], [1, 0]], change=1.5), "change must be from 0 to 1"),
        (lambda: fragile_triples([[0, 1], [1, 0]], prior=-1.0), "prior must be at least 0"),
        (lambda: fragile_triples([[0, 1], [1, 0]], top=0), "top must be at least 1"),
        (
            lambda: fragile_triples([[0, 99, 0], [1, 0, 1], [0, 99, 0]], prior=0, change=1.0),
            "ratings are infinite",
        ),
        (lambda: fragile_triples([[0, 1], [1, 0]], names=["a"]), "need as many names"),
        (lambda: fragile_triples([[0, 1], [1, 0]], clusters=[1]), "clusters go with four columns"),
        (lambda: fragile_triples(([0], [0], [1], [1])), "compared with itself"),
        (lambda: fragile_triples(([0], [1], [1], [-1])), "at least 0"),
        (lambda: fragile_triples(([0], [1], [1], [1]), clusters=[0]), "share one cluster"),
        (lambda: fragile_triples(([0], [4000], [1], [1])), "at most 4,000"),
        (lambda: fragile_triples([[0, 1], [1, 0]], triple=("0", "1", "2")), 'no option "2"'),
        (lambda: fragile_triples([[0, 1], [1, 0]], triple=("0", "1", "1")), "three different"),
        (
            lambda: fragile_triples([[0, 5, 0], [5, 0, 5], [0, 5, 0]], triple=("0", "1", "2")),
            "0 and 2 were not compared",
        ),
    ],
)
def test_bad_tables(call, match):
    with pytest.raises(UsageError, match=match):
        call()


# The measure and the task


def outcomes_of(task, source=None):
    live = RecordedPreferences(source).load(Rng(0))
    units = task.units(Rng(0))
    rows = task.perform(live, units, Rng(0))
    names = sorted({unit.stratum for unit in units})
    columns = {name: [row.scores.get(name, math.nan) for row in rows] for name in
               ("preferred", "labels", "first", "second")}  # fmt: skip
    clusters = [unit.cluster for unit in units] if units[0].cluster else None
    found = Outcomes.of(**columns, cluster=clusters)
    return replace(
        found,
        stratum=np.array([names.index(unit.stratum) for unit in units]),
        strata=tuple(names),
    )


def test_measure_names_the_worst_triples():
    outcomes = outcomes_of(PreferencePairs.tiny())
    table = PreferenceSensitivity().measure(outcomes, Rng(0))
    assert next(iter(table)) == "fragile triples"
    rows = list(table.values())[1:]
    assert rows
    assert all(each.low < each.value < each.high for each in rows)
    assert [each.details["influence"] for each in rows] == sorted(
        (each.details["influence"] for each in rows), reverse=True
    )
    name = list(table)[1]
    assert "water" in name.split(", from ")[1]
    one = PreferenceSensitivity(triple=("coffee", "tea", "water")).measure(outcomes, Rng(0))
    assert one.value == pytest.approx(table["coffee over tea, from coffee over water"].value)
    figure = PreferenceSensitivity().figure({"labels": outcomes}, Rng(0))
    assert [each.name for each in figure.series] == ["labels", "S = 2", "S = 2, mirrored"]
    for x, y in zip(figure.series[0].x, figure.series[0].y, strict=True):
        assert sensitivity(x, y) > 2


def write(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    return PreferencePairs(str(path))


def test_rows_of_a_pair_are_added_up_in_either_order(tmp_path):
    task = write(
        tmp_path,
        "option_a,option_b,preferred,count,source,cluster\n"
        "tea,water,tea,3,ann,1\nwater,tea,tea,1,bob,1\nwater,tea,option_a,2,ann,1\n"
        "tea,water,tie,1,ann,2\ntea,cola,tea,0,ann,1\n",
    )
    units = task.units(Rng(0))
    assert [unit.id for unit in units] == ["tea | water | 1", "tea | water | 2"]
    assert units[0].content["labels"] == {"ann": [3.0, 2.0], "bob": [1.0, 0.0]}
    every, ann, bob = (
        task.perform(RecordedPreferences(name).load(Rng(0)), units, Rng(0))
        for name in (None, "ann", "bob")
    )
    assert [row.scores["labels"] for row in every] == [6.0, 1.0]
    assert ann[0].scores["preferred"] == pytest.approx(3 / 5)
    assert [row.status for row in bob] == ["ok", "error"]
    with pytest.raises(UnitError, match='no label of source "eve"'):
        RecordedPreferences("eve").load(Rng(0)).read({"ann": [1, 0]})


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("option_a,option_b,probability\na,b,1.2\n", "line 2: probability must be from 0 to 1"),
        ("option_a,option_b,probability\na,a,0.5\n", '"a" is compared with itself'),
        ("option_a,option_b,preferred\na,b,c\n", 'preferred must be "a", "b"'),
        ("option_a,option_b,probability,count\na,b,0.5,-1\n", "count must be a number of labels"),
        ("option_a,option_b,probability,count\na,b,0.5,0\n", "every count is 0"),
        ("option_a,option_b\na,b\n", "no column preferred or probability"),
        ("option_a,option_b,preferred,probability\na,b,a,1\n", "has both"),
        ("option_a,other,probability\na,b,1\n", 'no column "option_b"'),
        ("option_a,option_b,probability\na | b,c,1\n", 'has " | " in it'),
    ],
)
def test_bad_files(tmp_path, text, match):
    with pytest.raises(UsageError) as caught:
        write(tmp_path, text).units(Rng(0))
    assert match.replace("line", "row") in str(caught.value).replace("line", "row")


def test_gaps_are_counted():
    outcomes = outcomes_of(PreferencePairs.tiny())
    scores = dict(outcomes.scores)
    scores["preferred"] = np.where(np.arange(len(outcomes)) == 2, np.nan, scores["preferred"])
    table = PreferenceSensitivity().measure(replace(outcomes, scores=scores), Rng(0))
    assert "1 of 4 rows" in table["fragile triples"].note


# Worlds


def played(task, size=2):
    units = task.units(Rng(3))
    rows = task.perform(RankedTuples(size).load(Rng(0)), units, Rng(0))
    return {name: np.array([row.scores[name] for row in rows]) for name in rows[0].scores}


@pytest.mark.parametrize(("fixed", "swept"), [(0.99, 0.01), (0.5, 0.5), (0.7, 0.3)])
def test_noise_is_amplified_as_the_delta_method_says(fixed, swept):
    s = float(sensitivity(fixed, swept))
    task = ImpliedPreferences(fixed=fixed, swept=(swept,), labels=20_000, draws=2000, noise="swept")
    columns = played(task)
    assert columns["predicted"] == pytest.approx(np.full(2000, s))
    assert spread_ratio(columns["implied"], columns["trained"]).value == pytest.approx(s, rel=0.03)
    # Both pairs sampled add up: here they have one variance and one slope.
    both = played(ImpliedPreferences(fixed=fixed, swept=(swept,), labels=20_000, draws=2000))
    ratio = spread_ratio(both["implied"], both["trained"])
    assert ratio.low < math.sqrt(2) * s < ratio.high


def test_triples_fit_the_pair_they_see():
    pairs, triples = (
        played(ImpliedPreferences(fixed=0.99, swept=(0.01,), labels=1000, draws=200), size)
        for size in (2, 3)
    )
    assert triples["squared_error"].mean() < pairs["squared_error"].mean() / 20
    with pytest.raises(UsageError, match="triples are sampled as a whole"):
        played(ImpliedPreferences(draws=1, noise="swept"), 3)
    with pytest.raises(UsageError, match="different probabilities"):
        ImpliedPreferences(swept=(0.1, 0.1))


@pytest.mark.parametrize("least", [1.0, 2.0, 5.0])
def test_region_of_pairs_by_draws(least):
    areas = played(SensitiveRegion(least=least, draws=50_000, batches=8))["area"]
    se = areas.std(ddof=1) / math.sqrt(8)
    assert abs(areas.mean() - sensitive_region_area(least)) < 4.5 * se


def test_region_of_triples_is_smaller():
    areas = played(SensitiveRegion(draws=50_000, batches=2), 3)
    assert (areas["area"] < sensitive_region_area(2.0)).all()
    assert (areas["typical"] < areas["area"]).all()
    assert (areas["share"] > areas["area"]).all()


def test_spread_ratio_covers_and_refuses():
    part = SpreadRatio()
    hits = 0
    for index in range(200):
        outcomes, truth = part.simulate(Rng(index))
        found = part.measure(outcomes, Rng(0))
        hits += found.low <= truth <= found.high
    assert hits >= stats.binom.ppf(1e-4, 200, 0.95)
    with pytest.raises(UsageError, match="no spread"):
        spread_ratio([1, 1, 1], [1, 2, 3])
    with pytest.raises(UsageError, match="one length"):
        spread_ratio([1, 2, 3], [1, 2])
