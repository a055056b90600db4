import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.evaluation import (
    JudgeRates,
    judge_report,
    prediction_powered_mean,
    recalibrate,
    sample_efficiency_factor,
)
from equipoise.methods.evaluation._judges import efficiency, judge_weight
from equipoise.methods.evaluation.judge_debiasing_limits import (
    JudgeReport,
    PredictionPoweredMean,
    SampleEfficiencyFactor,
)

share = st.floats(0.01, 0.99)


def draw(rates: JudgeRates, size, generator):
    """Return gold scores and verdicts with these rates."""
    s = (generator.random(size) < rates.b).astype(float)
    t = (generator.random(size) < np.where(s == 1, rates.p, 1 - rates.q)).astype(float)
    return s, t


# The theory


def test_frontier_bound_on_a_grid():
    b, p, q = np.meshgrid(
        np.linspace(0.5, 0.99, 50),
        np.linspace(0.01, 0.99, 99),
        np.linspace(0.01, 0.99, 99),
        indexing="ij",
    )
    judges = JudgeRates(b, p, q)
    inside = (judges.agreement >= 0.5) & (judges.agreement <= b)
    largest = judges.rho_squared[inside].max()
    assert largest == pytest.approx(0.4899, abs=5e-5)
    assert JudgeRates(b, p, q).efficiency()[inside].max() < 2
    # Outside the frontier the bound of two does not hold.
    assert judges.efficiency()[judges.agreement > b].max() > 10


@given(st.floats(0.5, 0.999), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_frontier_bound_everywhere(b, p, q):
    judge = JudgeRates(b, p, q)
    if 0.5 <= judge.agreement <= b:
        assert judge.rho_squared <= 0.5 + 1e-12


@given(share, share, share)
def test_balanced_agreement_brackets_rho_squared(b, p, q):
    judge = JudgeRates(b, p, q)
    gap = 2 * judge.balanced_agreement - 1
    assert 4 * b * (1 - b) * gap**2 <= judge.rho_squared + 1e-12
    assert judge.rho_squared <= abs(gap) + 1e-12
    if judge.balanced_agreement >= 0.5:
        assert judge.rho_squared <= min(p, q) + 1e-12


@pytest.mark.parametrize(("a", "tau"), [(0.5, 1.0), (0.75, 4 / 3), (0.9, 1 / 0.36)])
def test_symmetric_judge_of_even_model(a, tau):
    judge = JudgeRates(0.5, a, a)
    assert judge.rho_squared == pytest.approx((2 * a - 1) ** 2, abs=1e-15)
    assert judge.efficiency() == pytest.approx(tau)


def test_pointwise_worse_judge_is_worth_an_eighth():
    x, d = 0.5, 0.25
    judge = JudgeRates(x + d, x / (x + d), 0.0)
    assert judge.rho_squared == pytest.approx(1 / 9, abs=1e-15)
    assert judge.efficiency() == pytest.approx(1.125)


def test_agreement_and_no_bias_guarantee_nothing():
    # For any agreement r there is a judge without bias whose verdicts are noise.
    for r in np.linspace(0.5, 0.99, 20):
        b = (1 + math.sqrt(2 * r - 1)) / 2  # p = b and q = 1 - b agree on b² + (1-b)²
        judge = JudgeRates(b, b, 1 - b)
        assert judge.agreement == pytest.approx(r)
        assert judge.bias == pytest.approx(0, abs=1e-12)
        assert judge.rho_squared == pytest.approx(0, abs=1e-12)


def test_limits_of_efficiency():
    assert JudgeRates(0.7, 1.0, 1.0).efficiency() == math.inf
    n, extra = 100, 700
    assert JudgeRates(0.7, 1.0, 1.0).efficiency(n / extra) == pytest.approx(1 + extra / n)
    assert JudgeRates(0.7, 0.3, 0.7).efficiency() == pytest.approx(1.0)
    assert efficiency(0.5) == 2.0


def test_rates_of_a_sample_are_its_moments():
    generator = np.random.default_rng(0)
    s, t = draw(JudgeRates(0.7, 0.8, 0.6), 500, generator)
    rates = JudgeRates.of(s, t)
    assert rates.m == pytest.approx(t.mean())
    assert rates.bias == pytest.approx((t - s).mean())
    assert rates.agreement == pytest.approx((t == s).mean())
    assert rates.rho_squared == pytest.approx(np.corrcoef(s, t)[0, 1] ** 2)


# Prediction-powered mean


@pytest.mark.parametrize("n", [20, 60, 500])
@pytest.mark.parametrize("lam", [None, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_agrees_with_ppi_python(n, lam, level):
    ppi = pytest.importorskip("ppi_py")
    generator = np.random.default_rng(n)
    s, t = draw(JudgeRates(0.7, 0.85, 0.7), n, generator)
    u = draw(JudgeRates(0.7, 0.85, 0.7), 20 * n, generator)[1]
    ours = prediction_powered_mean(s, t, u, lam=lam, clip=True, level=level, interval="plug-in")
    theirs = ppi.ppi_mean_pointestimate(s, t, u, lam=lam)
    low, high = ppi.ppi_mean_ci(s, t, u, lam=lam, alpha=1 - level)
    assert ours.value == pytest.approx(np.squeeze(theirs).item(), abs=1e-10)
    assert ours.low == pytest.approx(np.squeeze(low).item(), abs=1e-10)
    assert ours.high == pytest.approx(np.squeeze(high).item(), abs=1e-10)


def test_agrees_with_ppi_python_on_real_numbers():
    ppi = pytest.importorskip("ppi_py")
    generator = np.random.default_rng(3)
    u = generator.normal(100, 5, 400)
    t = generator.normal(100, 5, 80)
    s = 0.5 * t + generator.normal(0, 2, 80)
    ours = prediction_powered_mean(s, t, u, clip=True, interval="plug-in")
    assert ours.value == pytest.approx(
        np.squeeze(ppi.ppi_mean_pointestimate(s, t, u)).item(), abs=1e-10
    )


def test_hand_case():
    s, t = np.array([1.0, 1, 1, 0]), np.array([1.0, 1, 0, 0])
    found = sample_efficiency_factor(np.tile(s, 30), np.tile(t, 30))
    assert found.details["rho_squared"] == pytest.approx(1 / 3)
    assert found.value == pytest.approx(1.5)


def test_jackknife_of_a_fixed_weight_is_the_textbook_variance():
    generator = np.random.default_rng(1)
    s, t = draw(JudgeRates(0.7, 0.85, 0.7), 80, generator)
    u = draw(JudgeRates(0.7, 0.85, 0.7), 700, generator)[1]
    found = prediction_powered_mean(s, t, u, lam=0.7)
    variance = (s - 0.7 * t).var(ddof=1) / 80 + 0.49 * u.var(ddof=1) / 700
    from scipy.stats import t as student

    half = student.ppf(0.975, 79) * math.sqrt(variance)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-10)


def test_clusters_of_one_row_change_nothing_and_copies_widen():
    generator = np.random.default_rng(2)
    s, t = draw(JudgeRates(0.7, 0.85, 0.7), 60, generator)
    u = draw(JudgeRates(0.7, 0.85, 0.7), 300, generator)[1]
    plain = prediction_powered_mean(s, t, u)
    single = prediction_powered_mean(
        s, t, u, clusters=np.arange(60), clusters_extra=np.arange(60, 360)
    )
    assert (plain.low, plain.high) == pytest.approx((single.low, single.high))
    copied = prediction_powered_mean(
        np.repeat(s, 4),
        np.repeat(t, 4),
        np.repeat(u, 4),
        clusters=np.repeat(np.arange(60), 4),
        clusters_extra=np.repeat(np.arange(60, 360), 4),
    )
    assert copied.value == pytest.approx(plain.value, abs=2e-3)
    assert copied.high - copied.low == pytest.approx(plain.high - plain.low, rel=0.02)
    naive = prediction_powered_mean(np.repeat(s, 4), np.repeat(t, 4), np.repeat(u, 4))
    assert naive.high - naive.low < 0.6 * (copied.high - copied.low)


def test_tuned_weight_is_the_one_with_least_variance():
    rates, n, extra, studies = JudgeRates(0.8, 0.9, 0.75), 200, 1000, 40_000
    generator = np.random.default_rng(5)
    b, p, q, m = rates.b, rates.p, rates.q, rates.m
    cells = [b * p, b * (1 - p), (1 - b) * q, (1 - b) * (1 - q)]
    hit, missed, caught, fooled = generator.multinomial(n, cells, size=studies).T
    s, t = (hit + missed) / n, (hit + fooled) / n
    u = generator.binomial(extra, m, size=studies) / extra
    assert caught.mean() / n == pytest.approx((1 - b) * q, rel=0.01)
    covariance = b * (p - m)
    best = covariance / ((1 + n / extra) * m * (1 - m))
    least = b * (1 - b) / n - covariance**2 / ((n + n**2 / extra) * m * (1 - m))
    theta = s - best * (t - u)
    assert theta.mean() == pytest.approx(b, abs=4 * math.sqrt(least / studies))
    assert theta.var() == pytest.approx(least, rel=0.03)  # 4 standard errors
    for other in (0.5 * best, 1.5 * best):  # weights to either side do worse
        assert (s - other * (t - u)).var() > 1.02 * theta.var()
    rows = draw(rates, (300, n), generator)
    further = draw(rates, (300, extra), generator)[1]
    found = np.mean([judge_weight(rows[0][i], rows[1][i], further[i]) for i in range(300)])
    assert found == pytest.approx(best, rel=0.03)


def test_empirical_efficiency_matches_theory():
    rates, n, extra = JudgeRates(0.85, 0.9, 0.95), 100, 2000
    generator = np.random.default_rng(6)
    s, t = draw(rates, (4000, n), generator)
    u = draw(rates, (4000, extra), generator)[1]
    found = [
        s[i].mean() - judge_weight(s[i], t[i], u[i]) * (t[i].mean() - u[i].mean())
        for i in range(4000)
    ]
    ratio = s.mean(1).var() / np.var(found)
    assert ratio == pytest.approx(rates.efficiency(n / extra), rel=0.06)


def test_untuned_can_be_worse_than_gold_alone():
    rates, n, extra = JudgeRates(0.9, 0.6, 0.6), 100, 100_000
    generator = np.random.default_rng(7)
    s, t = draw(rates, (3000, n), generator)
    plain = s.mean(1) - t.mean(1) + rates.m  # N without end: its mean is m
    spread = rates.b + rates.m - 2 * rates.b * rates.p - rates.bias**2
    assert plain.var() == pytest.approx(spread / n, rel=0.1)
    assert plain.var() > 3 * s.mean(1).var()
    one = prediction_powered_mean(s[0], t[0], draw(rates, extra, generator)[1], lam=1.0)
    assert one.details["efficiency"] < 0.5


@pytest.mark.parametrize(
    ("n", "rates"),
    [
        (30, JudgeRates(0.7, 0.85, 0.7)),
        (100, JudgeRates(0.7, 0.85, 0.7)),
        (60, JudgeRates(0.6, 0.97, 0.95)),
        (200, JudgeRates(0.9, 0.5, 0.5)),
    ],
)
def test_coverage(n, rates):
    generator = np.random.default_rng(n)
    hits, crossed, runs = 0, [], 600
    for _ in range(runs):
        s, t = draw(rates, n, generator)
        u = draw(rates, 10 * n, generator)[1]
        found = prediction_powered_mean(s, t, u, level=0.9)
        assert found.low <= found.value <= found.high
        hits += found.low <= rates.b <= found.high
        crossed.append(found.details["cross_fitted"] - found.value)
    assert 0.9 - 3.5 * math.sqrt(0.09 / runs) <= hits / runs <= 0.97
    # Tuning on the same labels costs next to no bias: the cross-fitted estimate agrees.
    assert abs(np.mean(crossed)) < 0.1 * math.sqrt(rates.b * (1 - rates.b) / n)


def test_cross_fitting_removes_the_bias_of_tuning():
    rates, n = JudgeRates(0.8, 0.9, 0.6), 50
    generator = np.random.default_rng(1)
    tuned, crossed = [], []
    for _ in range(3000):
        s, t = draw(rates, n, generator)
        found = prediction_powered_mean(s, t, draw(rates, 1000, generator)[1], clip=False)
        tuned.append(found.value - rates.b)
        crossed.append(found.details["cross_fitted"] - rates.b)
    noise = np.std(crossed) / math.sqrt(3000)
    assert abs(np.mean(crossed)) < 3.5 * noise
    assert 3.5 * noise < np.mean(tuned) < 0.2 * np.std(tuned)


def test_coverage_with_clusters():
    generator = np.random.default_rng(11)
    hits, runs = 0, 400
    for _ in range(runs):
        level = generator.beta(4, 2, 90)  # each cluster has its own accuracy
        of_rows = np.repeat(np.arange(90), 5)
        s = (generator.random(450) < level[of_rows]).astype(float)
        t = np.where(generator.random(450) < 0.85, s, 1 - s)
        labelled = of_rows < 40
        found = prediction_powered_mean(
            s[labelled],
            t[labelled],
            t[~labelled],
            clusters=of_rows[labelled],
            clusters_extra=of_rows[~labelled],
            level=0.9,
        )
        hits += found.low <= 4 / 6 <= found.high
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


def test_clip_reports_both():
    generator = np.random.default_rng(0)
    s, t = draw(JudgeRates(0.5, 0.2, 0.2), 30, generator)  # a judge that is wrong mostly
    u = draw(JudgeRates(0.5, 0.2, 0.2), 100, generator)[1]
    found = prediction_powered_mean(s, t, u)
    assert found.details["lambda_unclipped"] < 0 == found.details["lambda"]
    assert found.value == found.details["gold_only"] != found.details["value_unclipped"]
    free = prediction_powered_mean(s, t, u, clip=False)
    assert free.value == found.details["value_unclipped"]


def test_all_gold_alike_keeps_an_interval():
    found = prediction_powered_mean(np.ones(20), np.ones(20), np.tile([1.0, 0], 50))
    assert found.value == 1.0
    assert found.low < 0.9
    assert "alike" in found.note


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1, 0], [1, 0], [1]), "at least 3"),
        (([1, 0, 1], [1, 0], [1]), "one length"),
        (([1, 0, 1], [1, 0, 1], []), "no verdict"),
        (([1, 0, math.nan], [1, 0, 1], [1]), "finite"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(UsageError, match=words):
        prediction_powered_mean(*arguments)


# Sample efficiency factor


def test_factor_covers():
    rates = JudgeRates(0.75, 0.85, 0.8)
    truth, hits, runs = rates.efficiency(), 0, 200
    generator = np.random.default_rng(4)
    for run in range(runs):
        found = sample_efficiency_factor(
            *draw(rates, 200, generator), level=0.9, draws=400, rng=Rng(run)
        )
        hits += found.low <= truth <= found.high
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


def test_factor_with_clusters_is_wider():
    generator = np.random.default_rng(4)
    s, t = draw(JudgeRates(0.75, 0.85, 0.8), 100, generator)
    naive = sample_efficiency_factor(np.repeat(s, 5), np.repeat(t, 5))
    groups = np.repeat(np.arange(100), 5)
    found = sample_efficiency_factor(np.repeat(s, 5), np.repeat(t, 5), clusters=groups)
    assert found.value == pytest.approx(naive.value)
    assert math.log(found.high / found.low) > 1.8 * math.log(naive.high / naive.low)


def test_perfect_judge_has_an_honest_lower_end():
    s = np.tile([1.0, 1, 0], 20)
    found = sample_efficiency_factor(s, s)
    assert found.value == found.high == math.inf
    # With errors on a share u of items, all alike, the factor is at most this.
    u = 1 - 0.025 ** (1 / 60)
    assert 1 < found.low <= JudgeRates(2 / 3, 1 - u, 1 - u).efficiency()
    assert sample_efficiency_factor(s, 1 - s).value == math.inf
    assert sample_efficiency_factor(s, s, labelled_share=0.1).value == pytest.approx(11)


def test_constant_judge_is_worth_nothing():
    found = sample_efficiency_factor(np.tile([1.0, 0], 50), np.full(100, 0.3))
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_undefined_factor_is_refused():
    with pytest.raises(UsageError, match="alike"):
        sample_efficiency_factor(np.ones(10), np.ones(10))
    with pytest.raises(UsageError, match="from 0 to 1, got 2"):
        sample_efficiency_factor([1, 0, 1], [1, 0, 2])
    with pytest.raises(UsageError, match=r"0 or 1, got 0\.5"):
        sample_efficiency_factor([1, 0.5, 1], [1, 0, 1])


# Soft verdicts


@pytest.mark.parametrize("how", ["isotonic", "logistic"])
def test_recalibration_undoes_a_distortion(how):
    generator = np.random.default_rng(0)
    truth = generator.beta(2, 1, 4000)
    s = (generator.random(4000) < truth).astype(float)
    t = 1 / (1 + np.exp(-3 * np.log(truth / (1 - truth)) - 1))  # overconfident and shifted
    r = recalibrate(s, t, how=how)
    assert np.abs(t - truth).mean() > 0.1
    assert np.abs(r - truth).mean() < 0.03


def test_recalibration_is_out_of_fold():
    # Verdicts that are noise, all different: fitting them in-sample would look informative.
    generator = np.random.default_rng(1)
    s = (generator.random(600) < 0.5).astype(float)
    r = recalibrate(s, generator.random(600))
    assert abs(np.corrcoef(s, r)[0, 1]) < 0.12


def test_soft_frontier_bound():
    # A calibrated judge whose soft agreement is at most b is worth at most two labels.
    generator = np.random.default_rng(2)
    for alpha, beta in ((8, 1), (4, 1), (2, 1), (1, 1), (0.3, 0.1), (0.2, 0.2)):
        truth = generator.beta(alpha, beta, 20_000)
        s = (generator.random(20_000) < truth).astype(float)
        soft = (s * truth + (1 - s) * (1 - truth)).mean()
        factor = efficiency(np.corrcoef(s, truth)[0, 1] ** 2)
        assert factor < 2.03 or soft > s.mean()


def test_report_of_a_binary_judge():
    generator = np.random.default_rng(8)
    s, t = draw(JudgeRates(0.8, 0.9, 0.7), 400, generator)
    table = judge_report(s, t)
    rates = JudgeRates.of(s, t)
    assert table["accuracy"].value == rates.b
    assert table["bias"].value == pytest.approx(rates.bias)
    assert table["agreement"].value == pytest.approx(rates.agreement)
    assert table["sensitivity"].value == pytest.approx(rates.p)
    assert table["specificity"].value == pytest.approx(rates.q)
    assert table["balanced_agreement"].value == pytest.approx(rates.balanced_agreement)
    assert table["rho_squared"].value == pytest.approx(rates.rho_squared)
    assert table["sample_efficiency_factor"].value == pytest.approx(rates.efficiency())
    assert table["beyond_frontier"].value == pytest.approx(rates.agreement - rates.b)
    assert "soft_agreement" not in table
    for found in table.values():
        assert found.low <= found.value <= found.high


def test_report_by_strata_and_of_soft_verdicts():
    generator = np.random.default_rng(9)
    s, t = draw(JudgeRates(0.8, 0.9, 0.7), 300, generator)
    strata = np.repeat(["a", "b", "c"], 100)
    s[strata == "c"] = 1
    t = np.clip(t * 0.8 + generator.random(300) * 0.2, 0, 1)
    table = judge_report(s, t, strata=strata, draws=200)
    assert {"soft_agreement", "soft_beyond_frontier", "a: rho_squared", "b: bias"} <= set(table)
    assert table["c: accuracy"].value == 1.0
    assert "undefined" in table["c: accuracy"].note
    assert "c: rho_squared" not in table
    one = judge_report(s[strata == "a"], t[strata == "a"], draws=200)
    assert table["a: agreement"].value == one["agreement"].value


def test_report_of_few_items_has_gaps_and_no_impossible_ends():
    s = np.array([1.0] * 15 + [0.0])
    t = np.linspace(0.3, 0.9, 16)
    table = judge_report(s, t, draws=200)
    assert not table["specificity"].has_interval
    assert "one unit" in table["specificity"].note
    assert "soft_agreement" not in table
    s[:2] = 0
    table = judge_report(s, t, draws=200)
    for name, found in table.items():
        least = -1 if name in ("bias", "beyond_frontier", "soft_beyond_frontier") else 0
        assert least <= found.low <= found.value <= found.high
        assert found.high <= 1 or name == "sample_efficiency_factor"


# The parts


def some_outcomes(labelled=120, extra=600, cluster=None):
    s, t = draw(JudgeRates(0.7, 0.85, 0.8), labelled + extra, np.random.default_rng(12))
    s[labelled:] = np.nan
    return Outcomes.of(gold=s, judge=t, cluster=cluster)


def test_parts_equal_the_functions():
    outcomes = some_outcomes()
    s, t = outcomes.score("gold"), outcomes.score("judge")
    found = PredictionPoweredMean().measure(outcomes, Rng(0))
    assert found == prediction_powered_mean(s[:120], t[:120], t[120:])
    assert PredictionPoweredMean().statistic(outcomes) == pytest.approx(found.value)
    factor = SampleEfficiencyFactor().measure(outcomes, Rng(3))
    assert factor == sample_efficiency_factor(s[:120], t[:120], rng=Rng(3))
    assert SampleEfficiencyFactor().statistic(outcomes) == pytest.approx(factor.value)
    observed = SampleEfficiencyFactor(verdicts="observed")
    assert observed.statistic(outcomes) == pytest.approx(
        efficiency(factor.details["rho_squared"], 120 / 600)
    )
    report = JudgeReport(draws=200).measure(outcomes, Rng(0))
    assert report["accuracy"].n == 120


@pytest.mark.parametrize(
    "part",
    [PredictionPoweredMean(), SampleEfficiencyFactor(draws=200), JudgeReport(draws=200)],
    ids=lambda part: type(part).__name__,
)
@pytest.mark.parametrize("clustered", [False, True])
def test_row_order_is_irrelevant(part, clustered):
    outcomes = some_outcomes(cluster=np.arange(720) % 90 if clustered else None)
    shuffled = outcomes.take(np.random.default_rng(0).permutation(720))
    first, second = part.measure(outcomes, Rng(0)), part.measure(shuffled, Rng(0))
    if not isinstance(first, dict):
        first, second = {"": first}, {"": second}
    for name, found in first.items():
        assert (found.value, found.low, found.high) == pytest.approx(
            (second[name].value, second[name].low, second[name].high), rel=1e-9
        )


def test_parts_refuse_gaps():
    outcomes = some_outcomes()
    silent = Outcomes.of(gold=outcomes.score("gold"), judge=[math.nan] * 3 + [1.0] * 717)
    with pytest.raises(UsageError, match="3 of 720 rows have no verdict"):
        PredictionPoweredMean().measure(silent, Rng(0))
    blind = Outcomes.of(gold=[math.nan] * 720, judge=outcomes.score("judge"))
    with pytest.raises(UsageError, match="no row has a gold label"):
        SampleEfficiencyFactor().measure(blind, Rng(0))
    complete = outcomes.take(np.arange(120))
    with pytest.raises(UsageError, match="judge adds nothing"):
        PredictionPoweredMean().measure(complete, Rng(0))
