import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.arrays.survival import (
    brier_scores,
    censoring_curve,
    check_grid,
    kaplan_meier,
    quantiles_of_curves,
    survival_at,
    times_and_events,
)


def draw(n=300, seed=0, digits=None):
    """Return times with events, cut short at random, and a noisy risk; rounding makes ties."""
    generator = np.random.default_rng(seed)
    risk = generator.normal(size=n)
    times, cut = generator.exponential(np.exp(-risk)), generator.exponential(1.5, n)
    seen = np.minimum(times, cut)
    seen = seen if digits is None else np.round(seen, digits) + 0.1
    return seen, times <= cut, risk + 0.3 * generator.normal(size=n)


@pytest.mark.parametrize("digits", [None, 1])
def test_kaplan_meier_is_that_of_lifelines(digits):
    lifelines = pytest.importorskip("lifelines")
    times, events, _ = draw(digits=digits)
    theirs = lifelines.KaplanMeierFitter(alpha=0.1).fit(times, events)
    ours = kaplan_meier(times, events, level=0.9)
    at = np.append(np.linspace(0, times.max(), 50), ours.times)
    assert ours.at(at) == pytest.approx(theirs.survival_function_at_times(at).to_numpy())
    band = theirs.confidence_interval_.loc[ours.times].to_numpy()
    known = (ours.survival < 1) & (ours.survival > 0)
    assert ours.low[known] == pytest.approx(band[known, 0])
    assert ours.high[known] == pytest.approx(band[known, 1])


def test_kaplan_meier_by_hand():
    curve = kaplan_meier([6, 6, 6, 7, 10, 13, 16], [1, 1, 0, 1, 0, 1, 1])
    assert curve.at([5.9, 6, 7, 12, 13, 16]) == pytest.approx(
        [1, 5 / 7, 5 / 7 * 3 / 4, 5 / 7 * 3 / 4, 5 / 7 * 3 / 4 / 2, 0]
    )
    assert curve.at([6], before=True) == [1]
    assert curve.at_risk.tolist() == [7, 4, 3, 2, 1]


def test_without_censoring_it_is_the_share_beyond():
    times = np.random.default_rng(0).exponential(size=50)
    at = np.array([0.2, 1.0])
    assert kaplan_meier(times, np.ones(50)).at(at) == pytest.approx((times[:, None] > at).mean(0))


def test_censoring_comes_after_events_at_one_time():
    sksurv = pytest.importorskip("sksurv.nonparametric")
    times, events, _ = draw(digits=1)
    theirs = sksurv.CensoringDistributionEstimator().fit(
        np.array(list(zip(events, times, strict=True)), dtype=[("e", bool), ("t", float)])
    )
    at = np.unique(times)
    assert censoring_curve(times, events).at(at) == pytest.approx(theirs.predict_proba(at))


def test_survival_at_agrees_with_greenwood_and_covers_clusters():
    times, events, _ = draw(2000)
    curve = kaplan_meier(times, events)
    at = float(np.median(times))
    found = survival_at(times, events, at)
    place = np.searchsorted(curve.times, at, side="right") - 1
    assert found.value == pytest.approx(curve.survival[place])
    assert (found.low, found.high) == pytest.approx((curve.low[place], curve.high[place]), rel=1e-3)
    twice = survival_at(np.repeat(times, 2), np.repeat(events, 2), at,
                        clusters=np.repeat(np.arange(2000), 2))  # fmt: skip
    assert (twice.low, twice.high) == pytest.approx((found.low, found.high), rel=1e-3)


def test_survival_at_the_ends():
    none = survival_at([1, 2, 3, 4], [0, 0, 0, 1], 2.5)
    assert (none.value, none.high) == (1, 1)
    assert none.low == pytest.approx(0.025 ** (1 / 2))
    every = survival_at([1, 2, 3, 4], [1, 1, 1, 1], 4)
    assert (every.value, every.low) == (0, 0)
    assert every.high == pytest.approx(1 - 0.025)
    with pytest.raises(UsageError, match="followed up to 4; nothing can be said about 5"):
        survival_at([1, 2, 3, 4], [1, 1, 1, 1], 5)


def test_quantiles_invert_curves():
    times = np.array([1.0, 2, 4])
    curves = np.array([[0.9, 0.5, 0.5], [1.0, 1.0, 0.0]])
    found = quantiles_of_curves(times, curves, [0.05, 0.1, 0.11, 0.5, 0.51])
    assert found.tolist() == [[1, 1, 2, 2, np.inf], [4, 4, 4, 4, 4]]
    with pytest.raises(UsageError, match="between 0 and 1"):
        quantiles_of_curves(times, curves, [0.0])
    with pytest.raises(UsageError, match="must rise"):
        quantiles_of_curves([1, 1, 2], curves, [0.5])


def test_brier_is_that_of_scikit_survival():
    metrics = pytest.importorskip("sksurv.metrics")
    times, events, risk = draw()
    at = np.quantile(times, [0.2, 0.5, 0.7])
    curves = np.exp(-np.exp(risk)[:, None] * at)
    kind = [("e", bool), ("t", float)]
    seen = np.array(list(zip(events, times, strict=True)), dtype=kind)
    theirs = metrics.brier_score(seen, seen, curves, at)[1]
    ours = brier_scores(times, events, curves, at, censoring_curve(times, events))
    assert ours.mean(axis=0) == pytest.approx(theirs)


def test_brier_undoes_censoring():
    # The weighted mean is that of the times nobody cut short.
    generator = np.random.default_rng(3)
    times, cut = generator.exponential(size=40_000), generator.exponential(2.0, 40_000)
    curve = np.full((40_000, 1), 0.3)
    seen, events = np.minimum(times, cut), times <= cut
    found = brier_scores(seen, events, curve, [1.0], censoring_curve(seen, events)).mean()
    assert found == pytest.approx(((times > 1) - 0.3).__pow__(2).mean(), abs=0.01)
    assert brier_scores([1.0], [1], [[0.5]], [1.5], censoring_curve([1, 2], [1, 0])) == 0.25


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: times_and_events([[-1.0, 1]], "x"), "not negative, got -1 in row 0"),
        (lambda: times_and_events([[np.nan, 1]], "x"), "finite and not negative, got nan"),
        (lambda: times_and_events([[1.0, 2]], "x"), "an event must be 1, or 0 .* got 2"),
        (lambda: times_and_events([1.0, 2.0], "x"), "pairs of time and event"),
        (lambda: times_and_events(["a"], "x"), "pairs of time and event"),
        (lambda: check_grid([2.0, 1.0], "x"), "times must rise; sort them"),
        (lambda: check_grid([-1.0, 1.0], "x"), "not negative"),
        (lambda: check_grid([], "x"), "give a list of times"),
        (lambda: kaplan_meier([1, 2], [1]), "one event a time"),
        (
            lambda: brier_scores([1], [0], [[0.5]], [2], censoring_curve([1], [0])),
            "no row is followed beyond",
        ),
    ],
)
def test_faults_are_told_in_a_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
