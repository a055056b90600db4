import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.evaluation import pass_at_k, pass_hat_curve, pass_hat_k
from equipoise.methods.evaluation.attempts import PassAtK, PassHatCurve, PassHatK

RNG = Rng(0)


def table(n, c):
    return [[1] * c + [0] * (n - c)] * 2


def humaneval(n, c, k):
    """The estimator as HumanEval computes it."""
    if n - c < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


@pytest.mark.parametrize("n", [1, 2, 5, 20, 200])
def test_pass_at_k_is_humanevals(n):
    for c, k in itertools.product({0, 1, n // 2, n - 1, n}, {1, 2, n // 2, n}):
        if 1 <= k <= n:
            assert pass_at_k(table(n, c), k).value == pytest.approx(
                humaneval(n, c, k), rel=1e-9, abs=1e-12
            )


@pytest.mark.parametrize("k", [1, 2, 3])
def test_both_are_averages_over_all_choices(k):
    row = [1, 0, 1, 1, 0]
    chosen = list(itertools.combinations(row, k))
    some, every = np.mean([any(x) for x in chosen]), np.mean([all(x) for x in chosen])
    assert pass_at_k([row] * 2, k).value == pytest.approx(some)
    assert pass_hat_k([row] * 2, k).value == pytest.approx(every)


def test_k_of_one_is_the_mean_and_both_agree():
    x = (np.random.default_rng(0).random((50, 4)) < 0.4).astype(float)
    assert pass_at_k(x, 1).value == pytest.approx(x.mean())
    assert pass_hat_k(x, 1).value == pytest.approx(x.mean())
    # What fails every time is what never passes.
    assert pass_at_k(x, 3).value == pytest.approx(1 - pass_hat_k(1 - x, 3).value)


@pytest.mark.parametrize(("function", "power"), [(pass_at_k, False), (pass_hat_k, True)])
def test_unbiased_and_covers(function, power):
    generator = np.random.default_rng(1)
    units, k, runs = 80, 3, 300
    # Chances are Beta(2, 1): E p³ = 2/5; E (1-p)³ = 1/10.
    truth = 0.4 if power else 0.9
    values, hits = [], 0
    for run in range(runs):
        p = generator.beta(2, 1, units)
        x = (generator.random((units, 5)) < p[:, None]).astype(float)
        found = function(x, k, level=0.9, draws=300, rng=Rng(run))
        assert found.low <= found.value <= found.high
        values.append(found.value)
        hits += found.low <= truth <= found.high
    assert np.mean(values) == pytest.approx(truth, abs=4 * np.std(values) / math.sqrt(runs))
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


def test_missing_attempts_and_too_few():
    ragged = [[1, 0, math.nan], [1, 1, 0]]
    assert pass_at_k(ragged, 2).value == 1.0
    assert pass_hat_k(ragged, 2).value == pytest.approx((0 + 1 / 3) / 2)
    with pytest.raises(UsageError, match="at least 2 here, got 3"):
        pass_at_k(ragged, 3)
    with pytest.raises(UsageError, match=r"0 or 1, got 0\.5"):
        pass_at_k([[0.5, 0], [1, 0]], 1)
    with pytest.raises(UsageError, match="one unit"):
        pass_at_k([[1, 0]], 1)


def test_all_alike_keeps_an_interval():
    from equipoise.kit.statistics import wilson

    found = pass_hat_k(np.ones((20, 3)), 3)
    assert (found.low, found.high) == pytest.approx(wilson(20, 20))


def repeats(x):
    """Return outcomes with a unit a row and a repeat a column."""
    units, attempts = x.shape
    rows = Outcomes.of(correct=x.ravel())
    return replace(
        rows,
        unit=np.repeat(np.arange(units), attempts),
        repeat=np.tile(np.arange(attempts), units),
    )


@pytest.mark.parametrize(
    ("part", "function"), [(PassAtK(k=2), pass_at_k), (PassHatK(k=2), pass_hat_k)]
)
def test_parts_equal_the_functions_in_any_order(part, function):
    x = (np.random.default_rng(2).random((30, 4)) < 0.5).astype(float)
    rows = repeats(x)
    found = part.measure(rows, RNG)
    assert found == function(x, 2, rng=RNG)
    assert part.measure(rows.take(np.random.default_rng(0).permutation(120)), RNG) == found
    assert part.statistic(rows) == pytest.approx(found.value)


def test_a_unit_drawn_twice_counts_twice():
    x = np.array([[1.0, 0, 0], [0, 0, 0], [1, 1, 1]])
    drawn = repeats(x).take(np.array([0, 1, 2, 0, 1, 2, 6, 7, 8]))
    assert PassAtK(k=2).statistic(drawn) == pytest.approx(pass_at_k(x[[0, 0, 2]], 2).value)


def test_builds_are_units_of_their_own_in_one_cluster():
    x = (np.random.default_rng(3).random((20, 3)) < 0.5).astype(float)
    one = repeats(x)
    both = replace(
        one,
        unit=np.tile(one.unit, 2),
        repeat=np.tile(one.repeat, 2),
        build=np.repeat([0, 1], 60),
        failed=np.tile(one.failed, 2),
        scores={"correct": np.concatenate([x.ravel(), (1 - x).ravel()])},
    )
    found = PassAtK(k=2).measure(both, RNG)
    expected = (pass_at_k(x, 2).value + pass_at_k(1 - x, 2).value) / 2
    assert found.value == pytest.approx(expected)
    assert found.clusters == 20


def test_hand_values_of_four_attempts():
    # Two of four: 1/2, 1/6, 0, 0. Three of four: 3/4, 1/2, 1/4, 0. Four of four: 1.
    values = [f.value for f in pass_hat_curve([[1, 1, 0, 0], [1, 1, 0, 0]], 4).values()]
    assert values == pytest.approx([1 / 2, 1 / 6, 0, 0])
    values = [f.value for f in pass_hat_curve([[1, 1, 1, 0], [1, 1, 1, 1]], 4).values()]
    assert values == pytest.approx([7 / 8, 3 / 4, 5 / 8, 1 / 2])


def test_the_curve_is_pass_hat_k_for_every_k_and_its_figure():
    generator = np.random.default_rng(2)
    rows = Outcomes.of(reward=generator.random(60) < 0.7)
    rows = replace(rows, unit=np.repeat(np.arange(15), 4), repeat=np.tile(np.arange(4), 15))
    curve = PassHatCurve(most=4).measure(rows, RNG)
    assert list(curve) == ["1", "2", "3", "4"]
    for k, found in curve.items():
        assert found == PassHatK(k=int(k)).measure(rows, RNG)
    figure = PassHatCurve(most=4).figure({"agent": rows}, RNG)
    line, alike = figure.series
    assert (line.name, line.x) == ("agent", (1, 2, 3, 4))
    assert line.low <= line.y <= line.high
    assert alike.look == "guide"
    assert alike.y == pytest.approx([line.y[0] ** k for k in (1, 2, 3, 4)])
    with pytest.raises(UsageError, match="at least 4 here, got 5"):
        PassHatCurve(most=5).measure(rows, RNG)


def test_units_and_builds_are_told_apart_in_any_order():
    generator = np.random.default_rng(3)
    unit, build, repeat = (a.ravel() for a in np.mgrid[0:7, 0:2, 0:3])
    reward = (generator.random(42) < 0.6).astype(float)
    by_hand = np.mean([reward[(unit == u) & (build == b)].all() for u in range(7) for b in (0, 1)])
    rows = replace(Outcomes.of(reward=reward), unit=unit, build=build, repeat=repeat)
    shuffled = rows.take(generator.permutation(42))
    assert PassHatK(k=3).statistic(rows) == pytest.approx(by_hand)
    assert PassHatK(k=3).statistic(shuffled) == pytest.approx(by_hand)
