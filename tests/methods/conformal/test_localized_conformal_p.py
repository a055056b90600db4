import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, kstest
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor

from equipoise.core import Rng, Screens, Trains, UsageError
from equipoise.kit.arrays.conformal import conformal_p_values
from equipoise.kit.arrays.examples import Examples
from equipoise.kit.arrays.learners import Untrained
from equipoise.kit.worlds.conditional_tests import label_draw, outlier_draw
from equipoise.methods.conformal import (
    LocalizedLabelScreen,
    LocalizedLabelScreener,
    LocalizedOutlierDetector,
    LocalizedOutlierTest,
    label_screen,
    localized_p_values,
    outlier_test,
)
from equipoise.methods.conformal import _localized_p_values as tests_module
from equipoise.methods.conformal import _localized_weights as weights_module
from equipoise.methods.conformal._localized_weights import Localised, default_bandwidth, xi


def draw(n, m, seed, d=1, decimals=None):
    """Return scores and covariates; rounding the scores makes ties."""
    g = np.random.default_rng(seed)
    arrays = (g.normal(size=n), g.random((n, d)), g.normal(0.5, size=m), g.random((m, d)))
    if decimals is None:
        return arrays
    v, x, tv, tx = arrays
    return np.round(v, decimals), x, np.round(tv, decimals), tx


def weights(world):
    """Return w_ij (m, n) and w_*j (m,) by the definition."""
    h = world.h
    w = np.empty((world.m, world.n))
    own = np.empty(world.m)
    for j in range(world.m):
        for i in range(world.n):
            w[j, i] = math.exp(-((world.x[i] - world.anchors[j]) ** 2).sum() / (2 * h * h))
        own[j] = math.exp(-((world.test_x[j] - world.anchors[j]) ** 2).sum() / (2 * h * h))
    return w, own


def naive_p(world, chance):
    w, own = weights(world)
    found = []
    for j, v in enumerate(world.test_scores):
        above = sum(w[j, i] for i in range(world.n) if world.scores[i] > v)
        ties = sum(w[j, i] for i in range(world.n) if world.scores[i] == v)
        found.append((above + chance[j] * (own[j] + ties)) / (w[j].sum() + own[j]))
    return np.array(found)


def naive_rejections(world, alpha):
    """Return R_j with every auxiliary p-value written out, O(m² n)."""
    w, own = weights(world)
    v, m = world.test_scores, world.m
    found = []
    for j in range(m):
        aux = []
        for row in range(m):
            reached = sum(w[row, i] for i in range(world.n) if world.scores[i] >= v[row])
            reached += own[row] * (v[j] >= v[row])
            aux.append(0.0 if row == j else reached / (w[row].sum() + own[row]))
        ranked = sorted(aux)
        found.append(max(r for r in range(1, m + 1) if ranked[r - 1] <= alpha * r / m))
    return np.array(found)


def naive_flags(world, alpha, rng):
    """Return flags by the steps of the paper, with loops over r."""
    p = naive_p(world, xi(world.m, rng))
    rejections = naive_rejections(world, alpha)
    u = rng.child("pruning").numpy().random(world.m)
    candidate = p <= alpha * rejections / world.m
    largest = 0
    for r in range(1, world.m + 1):
        if (candidate & (u * rejections <= r)).sum() >= r:
            largest = r
    return p, candidate & (u * rejections <= largest)


# The p-value


def test_hand_case(monkeypatch):
    world = Localised(
        np.array([3.0, 1.0]), np.zeros((2, 1)), np.array([2.0]), np.zeros((1, 1)),
        np.zeros((1, 1)), 1.0,
    )  # fmt: skip
    hand = (slice(0, 1), np.array([[1.0, 0.5]]), np.array([1.0]))
    monkeypatch.setattr(Localised, "blocks", lambda self: iter([hand]))
    assert world.p_values(np.array([0.5])) == pytest.approx([0.6])


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("d", [1, 3])
def test_p_values_are_the_formula(d, decimals):
    arrays, rng = draw(40, 25, 1, d, decimals), Rng(5)
    world = Localised.of(*arrays, 0.2, rng)
    found = localized_p_values(*arrays, bandwidth=0.2, rng=rng)
    assert found == pytest.approx(naive_p(world, xi(25, rng)), rel=1e-10)


def test_wide_bandwidth_is_the_ordinary_p_value():
    v, x, tv, tx = draw(60, 30, 2, decimals=1)
    rng = Rng(3)
    chance = xi(30, rng)
    above, ties = (v > tv[:, None]).sum(axis=1), (v == tv[:, None]).sum(axis=1)
    plain = (above + chance * (1 + ties)) / 61
    assert localized_p_values(v, x, tv, tx, bandwidth=math.inf, rng=rng) == pytest.approx(plain)
    assert localized_p_values(v, x, tv, tx, bandwidth=1e7, rng=rng) == pytest.approx(plain)
    # ... and so it lies between the ordinary ones without and with the row's own weight.
    assert (plain <= conformal_p_values(v, tv) + 1e-12).all()


def test_narrow_bandwidth_is_chance_alone():
    v, x, tv, tx = draw(60, 30, 2)
    rng = Rng(3)
    assert localized_p_values(v, x, tv, tx, bandwidth=1e-9, rng=rng) == pytest.approx(xi(30, rng))


def test_equal_scores_are_chance_alone():
    _, x, _, tx = draw(60, 30, 2)
    rng = Rng(3)
    found = localized_p_values(np.ones(60), x, np.ones(30), tx, rng=rng)
    assert found == pytest.approx(xi(30, rng), rel=1e-12)


@pytest.mark.parametrize("n", [5, 50, 400])
@pytest.mark.parametrize("h", [0.02, None, 1.0])
def test_null_p_values_are_uniform(n, h):
    # One test row a draw: rows that share calibration rows are not independent.
    found = []
    for seed in range(400):
        g = np.random.default_rng([n, seed])
        x = g.random(n + 1)
        v = np.round(g.normal(size=n + 1) * (0.2 + x), 1)  # with ties
        rng = Rng(seed)
        found.append(localized_p_values(v[:n], x[:n], v[n:], x[n:], bandwidth=h, rng=rng)[0])
    assert kstest(found, "uniform").pvalue > 0.005


def test_the_raw_row_as_anchor_is_not_uniform():
    """The anchor has to be drawn: this is what the uniformity above rests on."""
    found = []
    for seed in range(1500):
        g = np.random.default_rng(seed)
        x = g.normal(size=4)
        rng = Rng(seed)
        world = Localised.of(-np.abs(x[:3]), x[:3], -np.abs(x[3:]), x[3:], 0.7, rng)
        raw = replace(world, anchors=world.test_x)
        found.append(raw.p_values(xi(1, rng))[0])
    assert kstest(found, "uniform").pvalue < 1e-4


def test_localised_p_values_are_uniform_near_every_x():
    ks = {}
    for name, h in (("localised", 0.05), ("plain", math.inf)):
        found = []
        for seed in range(300):
            g = np.random.default_rng(seed)
            x = g.random(800)
            v = np.abs(g.normal(size=801)) * (0.2 + np.append(x, 0.95) ** 2)
            rng = Rng(seed)
            found.append(localized_p_values(v[:-1], x, v[-1:], [0.95], bandwidth=h, rng=rng)[0])
        ks[name] = kstest(found, "uniform").pvalue
    assert ks["localised"] > 0.01
    assert ks["plain"] < 1e-6


def test_blocks_change_nothing(monkeypatch):
    arrays = draw(70, 50, 4, 2, 1)
    whole = outlier_test(*arrays, alpha=0.3, rng=Rng(1))
    for module in (tests_module, weights_module):
        monkeypatch.setattr(module, "BLOCK", 170)
    parts = outlier_test(*arrays, alpha=0.3, rng=Rng(1))
    assert parts.p_values == pytest.approx(whole.p_values, rel=1e-12)
    assert (parts.rejections == whole.rejections).all()
    assert (parts.flagged == whole.flagged).all()


def test_far_rows_keep_their_relative_weight():
    # At a thousand bandwidths exp underflows; only the nearest counts then, and it is found.
    x = np.array([1000.0, 1001.0])
    world = Localised(
        np.array([1.0, -1.0]), x[:, None], np.zeros(1), np.array([[0.0]]), np.array([[900.0]]), 1.0
    )
    assert world.p_values(np.array([0.5])) == pytest.approx([1.0])


def test_default_bandwidth():
    assert default_bandwidth(1000, 1) == 0.1
    assert default_bandwidth(4096, 2) == pytest.approx(1 / 8)


# Test 1


@pytest.mark.parametrize("decimals", [None, 1, 0])
@pytest.mark.parametrize("seed", range(6))
def test_rank_one_step_is_the_naive_one(seed, decimals, monkeypatch):
    monkeypatch.setattr(tests_module, "BLOCK", 90)
    arrays = draw(30, 20, seed, decimals=decimals)
    arrays[2][:6] += 3
    for alpha in (0.05, 0.2, 0.6):
        world = Localised.of(*arrays, 0.3, Rng(seed))
        found = outlier_test(*arrays, alpha=alpha, bandwidth=0.3, rng=Rng(seed))
        assert (found.rejections == naive_rejections(world, alpha)).all()
        p, flagged = naive_flags(world, alpha, Rng(seed))
        assert found.p_values == pytest.approx(p)
        assert (found.flagged == flagged).all()


def test_matrices_of_the_released_script():
    """Without ties the paper's own arrangement, indicator times weight, gives the same flags."""
    v, x, tv, tx = draw(60, 40, 8)
    tv[:12] += 3
    alpha, rng = 0.3, Rng(2)
    world = Localised.of(v, x, tv, tx, None, rng)
    w, own = weights(world)
    indicator = np.column_stack([tv[:, None] < v, xi(40, rng)])
    weight = np.column_stack([w, own])
    product = weight * indicator
    p, total = product.sum(axis=1) / weight.sum(axis=1), weight.sum(axis=1)
    counts = []
    for j in range(40):
        p_j = (product[:, :-1].sum(axis=1) + weight[:, -1] * (tv <= tv[j])) / total
        p_j[j] = 0
        counts.append(np.flatnonzero(np.sort(p_j) < np.arange(1, 41) / 40 * alpha).max() + 1)
    counts = np.array(counts)
    u = rng.child("pruning").numpy().random(40)
    candidate, largest = p <= alpha * counts / 40, 0
    for r in range(1, candidate.sum() + 1):
        if (candidate & (u * counts <= r)).sum() >= r:
            largest = r
    found = outlier_test(v, x, tv, tx, alpha=alpha, rng=rng)
    assert found.p_values == pytest.approx(p)
    assert (found.rejections == counts).all()
    assert (found.flagged == (candidate & (u * counts <= largest))).all()
    assert found.flagged.sum() > 5


@pytest.mark.parametrize("pruning", [True, False])
def test_false_discovery_rate(pruning):
    alpha, draws, found = 0.2, 150, []
    mean = _TrueMean().predict
    for seed in range(draws):
        world = outlier_draw("A1", Rng(seed).child("fdr"), n=300, m=100)
        calibration = world.examples.of("calibration")
        v = np.abs(calibration.targets - mean(calibration.inputs))
        tv = np.abs(world.targets - mean(world.inputs))
        flagged = outlier_test(
            v, calibration.inputs[:, 0], tv, world.inputs[:, 0], alpha=alpha,
            pruning=pruning, rng=Rng(seed),
        ).flagged  # fmt: skip
        found.append((flagged & ~world.outlier).sum() / max(1, flagged.sum()))
    assert np.mean(found) <= alpha + 2 * np.std(found) / math.sqrt(draws)
    assert np.mean(found) > 0.02  # it finds something at all


def test_no_test_rows_and_one_test_row():
    v, x, _, _ = draw(30, 1, 0)
    none = outlier_test(v, x, np.empty(0), np.empty((0, 1)), alpha=0.1, rng=Rng(0))
    assert none.flagged.shape == (0,)
    one = outlier_test(v, x, [99.0], [[0.5]], alpha=0.9, rng=Rng(0))
    assert one.rejections.tolist() == [1]
    assert one.flagged.tolist() == [True]


# Test 2


def test_label_screen_is_the_formula():
    g = np.random.default_rng(0)
    probability, labels = g.random((30, 3)), g.random((30, 3)) < 0.4
    x, asked, test_x = g.random((30, 2)), g.random((12, 3)), g.random((12, 2))
    found = label_screen(probability, labels, x, asked, test_x, alpha=0.2, rng=Rng(0))
    v = [max([p for p, y in zip(*row, strict=True) if not y], default=0.0)
         for row in zip(probability, labels, strict=True)]  # fmt: skip
    world = Localised.of(v, x, asked.max(axis=1), test_x, None, Rng(0))
    w, own = weights(world)
    chance = xi(12, Rng(0))
    for j in range(12):
        for k in range(3):
            reached = sum(w[j, i] for i in range(30) if v[i] >= asked[j, k])
            p = (reached + chance[j] * own[j]) / (w[j].sum() + own[j])
            assert found.p_values[j, k] == pytest.approx(p)
            assert found.declared[j, k] == (p < 0.2)


def test_family_wise_error_rate_by_simulation():
    # One test row a draw, so that errors are independent and the binomial is exact.
    alpha, draws, wrong = 0.2, 500, 0
    for seed in range(draws):
        g = np.random.default_rng(seed)
        x = g.random(41)
        probability = np.clip(g.normal(0.5, 0.3, (41, 2)) * (0.3 + x[:, None]), 0, 1)
        labels = g.random((41, 2)) < 0.3 * x[:, None]
        found = label_screen(
            probability[:-1], labels[:-1], x[:-1], probability[-1:], x[-1:],
            alpha=alpha, rng=Rng(seed),
        )  # fmt: skip
        wrong += (found.declared[0] & ~labels[-1]).any()
    assert binom.sf(wrong - 1, draws, alpha) > 0.005
    assert wrong > 0.1 * draws


# Bad input


V, X, TV, TX = draw(30, 5, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1"),
        ({"alpha": 0.001}, "30 calibration rows are too few for alpha 0.001: at least 999"),
        ({"bandwidth": 0.0}, "bandwidth must be a positive number"),
        ({"bandwidth": math.nan}, "bandwidth must be a positive number"),
        ({"v": np.full(30, np.nan)}, "30 of 30 calibration scores are not finite"),
        ({"v": np.empty(0), "x": np.empty((0, 1))}, "There are no calibration rows"),
        ({"v": V[:-1]}, "one score and its covariates"),
        ({"tx": np.zeros((5, 2))}, "the same covariates"),
        ({"x": np.array(["a"] * 30)}, "calibration covariates must be numbers"),
    ],
)
def test_bad_input_is_refused(change, said):
    given = {"v": V, "x": X, "tv": TV, "tx": TX, "alpha": 0.2, "bandwidth": None} | change
    with pytest.raises(UsageError, match=said):
        outlier_test(
            given["v"], given["x"], given["tv"], given["tx"],
            alpha=given["alpha"], bandwidth=given["bandwidth"], rng=Rng(0),
        )  # fmt: skip


def test_what_is_no_probability_or_label_is_refused():
    good, labels = np.full((30, 2), 0.5), np.zeros((30, 2), int)
    for g, y, said in (
        (good + 1, labels, "probabilities must be"),
        (good, labels + 2, "labels must be true or false"),
        (good, labels[:, :1], "one column a label"),
    ):
        with pytest.raises(UsageError, match=said):
            label_screen(g, y, X, np.full((5, 2), 0.5), TX, alpha=0.2, rng=Rng(0))


# The parts


class _TrueMean:
    def fit(self, data, rng):
        return self

    def predict(self, inputs):
        from equipoise.kit.worlds.conditional_tests import SLOPES

        return inputs[:, 1:] @ SLOPES


def fitted(part, learner, examples):
    treated = part.apply(learner, Rng(0))
    assert isinstance(treated, Screens)
    assert isinstance(treated, Trains)
    return treated.fit(examples, Rng(0))


def test_the_treatment_is_the_function():
    world = outlier_draw("A1", Rng(0), n=200, m=100)
    subject = fitted(LocalizedOutlierTest(given=(0,), scale=False), _TrueMean(), world.examples)
    p, flagged = subject.screen(world.inputs, world.targets, 0.15, Rng(7))
    calibration = world.examples.of("calibration")
    mean = _TrueMean().predict
    same = outlier_test(
        np.abs(calibration.targets - mean(calibration.inputs)), calibration.inputs[:, 0],
        np.abs(world.targets - mean(world.inputs)), world.inputs[:, 0], alpha=0.15, rng=Rng(7),
    )  # fmt: skip
    assert (p == same.p_values).all()
    assert (flagged == same.flagged).all()


def test_scale_makes_units_irrelevant():
    world = outlier_draw("A1", Rng(0), n=200, m=100)
    thousand = world.examples.inputs * ([1000.0] + [1.0] * 9)
    other = Examples(thousand, world.examples.targets, world.examples.split)
    part = LocalizedOutlierTest(given=(0,))
    p, _ = fitted(part, _TrueMean(), world.examples).screen(
        world.inputs, world.targets, 0.15, Rng(7)
    )
    q, _ = fitted(part, _TrueMean(), other).screen(
        world.inputs * ([1000.0] + [1.0] * 9), world.targets, 0.15, Rng(7)
    )
    assert p == pytest.approx(q)


@pytest.mark.parametrize(
    ("score", "learner"),
    [
        ("residual", Untrained(LinearRegression())),
        ("quantile", Untrained(LinearRegression())),
        ("detector", Untrained(IsolationForest(n_estimators=20))),
    ],
)
def test_every_score_controls_and_finds(score, learner):
    world = outlier_draw("B1" if score == "detector" else "A1", Rng(3), n=800, m=600)
    part = LocalizedOutlierTest(score, given=(0, 1) if score == "detector" else (0,))
    subject = fitted(part, learner, world.examples)
    targets = None if score == "detector" else world.targets
    p, flagged = subject.screen(world.inputs, targets, 0.2, Rng(1))
    null = p[~world.outlier]
    assert abs(null.mean() - 0.5) < 0.06
    assert p[world.outlier].mean() < 0.35
    assert not flagged[p > 0.2].any()


def test_quantiles_of_the_subject_are_used():
    class Quantiles(_TrueMean):
        def predict_quantiles(self, inputs, levels):
            assert levels == (0.1, 0.9)
            return self.predict(inputs)[:, None] + np.array([-1.0, 1.0])

    world = outlier_draw("A1", Rng(0), n=100, m=50)
    subject = fitted(LocalizedOutlierTest("quantile", given=(0,)), Quantiles(), world.examples)
    calibration = world.examples.of("calibration")
    residual = np.abs(calibration.targets - _TrueMean().predict(calibration.inputs))
    assert subject.scores == pytest.approx(residual - 1)


def test_a_trained_predictor_is_calibrated_on_data():
    from equipoise.core import learnable
    from equipoise.methods.conformal import IntervalPrediction

    task = IntervalPrediction("builtin:diabetes")
    trained = Untrained(LinearRegression()).fit(learnable(task, Rng(0)), Rng(0))
    part = LocalizedOutlierTest(given=(2,), data=task)
    subject = part.apply(trained, Rng(0))
    rows = learnable(task, Rng(0), "calibration")
    assert len(subject.scores) == len(rows)
    residuals = [abs(unit.target - subject.predict(np.array([unit.content]))[0]) for unit in rows]
    assert subject.scores == pytest.approx(residuals)
    assert not isinstance(subject, Trains)
    # Rows it calibrated on count as learned from.
    from equipoise.kit.arrays.examples import row_digest

    assert {row_digest(unit) for unit in rows} <= subject.learned_from


def test_labels_as_columns_and_as_classes():
    world = label_draw(Rng(0), n=300, m=100)
    subject = fitted(LocalizedLabelScreen(), Untrained(LogisticRegression()), world.examples)
    p, declared = subject.screen(world.inputs, None, 0.2, Rng(0))
    assert p.shape == declared.shape == (100, 2)
    assert (declared == (p < 0.2)).all()
    one = Examples(
        world.examples.inputs, np.where(world.examples.targets[:, 0] == 1, "yes", "no"),
        world.examples.split,
    )  # fmt: skip
    classes = fitted(LocalizedLabelScreen(), Untrained(LogisticRegression()), one)
    assert classes.classes_.tolist() == ["no", "yes"]
    assert classes.screen(world.inputs, None, 0.2, Rng(0))[1].shape == (100, 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LocalizedOutlierTest(given=(0, 1, 2, 3, 4)), "given must be 1 to 4 columns"),
        (lambda: LocalizedLabelScreen(given=(1, 1)), "given must name a column once"),
        (lambda: run_part(LocalizedOutlierTest()), "give the 1 to 4 columns to localise on"),
        (lambda: run_part(LocalizedOutlierTest(given=(10,))), "given must be places of features"),
        (lambda: run_part(LocalizedOutlierTest("detector", given=(0,))), "score_samples"),
        (lambda: run_part(LocalizedOutlierTest(given=(0,)), targets=False), "give the targets"),
        (lambda: run_part(LocalizedOutlierTest(given=(0,)), alpha=1.0), "alpha must lie strictly"),
        (lambda: LocalizedOutlierTest(given=(0,)).apply(_TrueMean(), Rng(0)).predict(X),
         "has not been trained"),
    ],
)  # fmt: skip
def test_parts_refuse_in_a_sentence(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def run_part(part, targets=True, alpha=0.2):
    world = outlier_draw("A1", Rng(0), n=60, m=20)
    subject = fitted(part, _TrueMean(), world.examples)
    return subject.screen(world.inputs, world.targets if targets else None, alpha, Rng(0))


def test_one_class_of_a_label_is_refused():
    world = label_draw(Rng(0), n=60, m=10)
    labels = world.examples.targets.copy()
    labels[:, 1] = 0
    rows = Examples(world.examples.inputs, labels, world.examples.split)
    learner = LocalizedLabelScreen().apply(Untrained(LogisticRegression()), Rng(0))
    with pytest.raises(UsageError, match="label 1 is alike in all 60 train rows"):
        learner.fit(rows, Rng(0))


def test_predictions_that_are_not_finite_are_refused():
    class Broken(_TrueMean):
        def predict(self, inputs):
            return np.full(len(inputs), np.inf)

    world = outlier_draw("A1", Rng(0), n=60, m=20)
    with pytest.raises(UsageError, match="60 of 60"):
        fitted(LocalizedOutlierTest(given=(0,)), Broken(), world.examples)


def test_a_constant_column_makes_all_rows_near():
    world = outlier_draw("A1", Rng(0), n=60, m=20)
    inputs = world.examples.inputs.copy()
    inputs[:, 0] = 3.0
    rows = Examples(inputs, world.examples.targets, world.examples.split)
    test_rows = world.inputs.copy()
    test_rows[:, 0] = 3.0
    p, _ = fitted(LocalizedOutlierTest(given=(0,)), _TrueMean(), rows).screen(
        test_rows, world.targets, 0.2, Rng(0)
    )
    calibration = rows.of("calibration")
    plain = localized_p_values(
        np.abs(calibration.targets - _TrueMean().predict(calibration.inputs)), np.zeros(60),
        np.abs(world.targets - _TrueMean().predict(test_rows)), np.zeros(20),
        bandwidth=math.inf, rng=Rng(0),
    )  # fmt: skip
    assert p == pytest.approx(plain)


# For notebooks


def test_detector_of_a_table_with_names():
    pandas = pytest.importorskip("pandas")
    world = outlier_draw("A1", Rng(0), n=300, m=100)
    train, calibration = (world.examples.of(split) for split in ("train", "calibration"))
    names = ["t", *(f"x{k}" for k in range(9))]
    frame = lambda rows: pandas.DataFrame(rows, columns=names)  # noqa: E731
    by_name = LocalizedOutlierDetector(LinearRegression(), given=["t"])
    by_name.fit(frame(train.inputs), train.targets)
    by_name.conformalize(frame(calibration.inputs), calibration.targets)
    by_place = LocalizedOutlierDetector(LinearRegression(), given=[0])
    by_place.fit(train.inputs, train.targets).conformalize(calibration.inputs, calibration.targets)
    found = by_name.predict(frame(world.inputs), world.targets)
    assert (found == by_place.predict(world.inputs, world.targets)).all()
    assert set(found.tolist()) <= {-1, 1}
    with pytest.raises(UsageError, match='given has no column "time"; there are: t, x0'):
        LocalizedOutlierDetector(given=["time"]).fit(frame(train.inputs), train.targets)


def test_prefit_and_quantile_detectors():
    world = outlier_draw("A1", Rng(0), n=200, m=50)
    train, calibration = (world.examples.of(split) for split in ("train", "calibration"))
    model = LinearRegression().fit(train.inputs, train.targets)
    found = [
        LocalizedOutlierDetector(estimator, given=[0], prefit=prefit)
        .fit(train.inputs, train.targets)
        .conformalize(calibration.inputs, calibration.targets)
        .test(world.inputs, world.targets, alpha=0.2)[0]
        for estimator, prefit in ((model, True), (LinearRegression(), False))
    ]
    assert found[0] == pytest.approx(found[1])
    other = LocalizedOutlierDetector(QuantileRegressor(), score="quantile", given=[0])
    other.fit(train.inputs, train.targets).conformalize(calibration.inputs, calibration.targets)
    assert other.predict(world.inputs, world.targets).shape == (50,)


def test_steps_in_the_wrong_order_are_refused():
    for made in (LocalizedOutlierDetector(given=[0]), LocalizedLabelScreener(given=[0])):
        with pytest.raises(UsageError, match="not fitted; call fit"):
            made.conformalize(X, V)
    with pytest.raises(UsageError, match="not calibrated; call conformalize"):
        LocalizedLabelScreener().predict(X)
    with pytest.raises(UsageError, match="give y too"):
        LocalizedOutlierDetector(LinearRegression()).fit(X, None)
    with pytest.raises(UsageError, match="score must be one of"):
        LocalizedOutlierDetector(score="size")


def test_screener_is_the_treatment():
    world = label_draw(Rng(0), n=150, m=40)
    train, calibration = (world.examples.of(split) for split in ("train", "calibration"))
    forest = RandomForestClassifier(10)
    screener = LocalizedLabelScreener(forest)
    screener.fit(train.inputs, train.targets).conformalize(calibration.inputs, calibration.targets)
    subject = fitted(LocalizedLabelScreen(), Untrained(forest), world.examples)
    p, _ = subject.screen(world.inputs, None, 0.1, Rng(0).child("test"))
    assert screener.test(world.inputs)[0] == pytest.approx(p)
