import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from equipoise.core import HasModule, Rng, Unit, UsageError
from equipoise.kit.about import about
from equipoise.kit.arrays import Examples
from equipoise.kit.arrays.conformal import conformal_quantile
from equipoise.methods.conformal import (
    ConformalInterval,
    ImportanceWeightedInterval,
    MultiSourceMLP,
    MultiSourceRegression,
    WassersteinRegularizedTraining,
    WorstCaseInterval,
    coverage_gap_bound,
    domain_weights,
    effective_sample_size,
    interpolated_weighted_quantile,
    kernel_density_weights,
    kernel_log_density,
    kl_divergence,
    mean_difference,
    select_bandwidth,
    total_variation,
    train_on_domains,
    wasserstein_1,
    wasserstein_1_torch,
    worst_case_quantile,
)

# Distances


def test_hand_case():
    assert wasserstein_1([0, 1], [1, 2]) == 1.0
    assert wasserstein_1([0, 1, 5], [5, 0, 1]) == 0.0


@pytest.mark.parametrize("seed", range(8))
def test_equals_scipy(seed):
    generator = np.random.default_rng(seed)
    u, v = generator.normal(size=31), generator.normal(0.4, 2, size=17)
    if seed % 2:
        u, v = u.round(), v.round()  # ties, within and across
    p, q = generator.random(31), generator.random(17)
    p[:5] = 0
    for weights in ((None, None), (p, None), (None, q), (p, q)):
        truth = scipy.stats.wasserstein_distance(u, v, *weights)
        assert wasserstein_1(u, v, *weights) == pytest.approx(truth, abs=1e-12)
        tensors = [None if w is None else torch.from_numpy(w) for w in weights]
        found = wasserstein_1_torch(torch.from_numpy(u), torch.from_numpy(v), *tensors)
        assert float(found) == pytest.approx(truth, abs=1e-12)


def test_many_pairs_at_once():
    generator = np.random.default_rng(0)
    u, v = generator.normal(size=(20,)), generator.normal(size=(3, 4, 9))
    w = generator.random(size=(4, 20))
    found = wasserstein_1(u, v, w)
    assert found.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        assert found[i, j] == pytest.approx(wasserstein_1(u, v[i, j], w[j]), abs=1e-12)


def test_gradient_equals_finite_differences():
    generator = np.random.default_rng(1)
    u, v, w = generator.normal(size=13), generator.normal(size=9), generator.random(13)
    a, b = (torch.tensor(each, requires_grad=True) for each in (u, v))
    wasserstein_1_torch(a, b, torch.from_numpy(w)).backward()
    step = 1e-6
    for tensor, place in ((a, 0), (b, 1)):
        for i in range(len(tensor)):
            ends = []
            for sign in (1, -1):
                pair = [u.copy(), v.copy()]
                pair[place][i] += sign * step
                ends.append(wasserstein_1(*pair, u_weights=w))
            assert tensor.grad[i].item() == pytest.approx(
                (ends[0] - ends[1]) / (2 * step), abs=1e-7
            )


def test_bound_holds_on_every_simulated_pair_and_is_attained():
    generator = np.random.default_rng(2)
    u = np.linspace(0, 1, 20_001)  # uniform: density 1
    grid = np.linspace(0, 1.5, 400)
    of_u = np.searchsorted(u, grid, side="right") / len(u)
    for _ in range(150):
        v = generator.beta(*generator.uniform(0.5, 4, 2), size=generator.integers(5, 400))
        v = v * generator.uniform(0.2, 1.4)
        gap = np.abs(of_u - (v[:, None] <= grid).mean(0)).max()
        assert gap <= coverage_gap_bound(wasserstein_1(u, v), 1.0) + 1e-3
    # All mass within d to the right of tau moves to tau: the triangle of the proof.
    tau, d = 0.3, 0.2
    v = np.where((u > tau) & (u <= tau + d), tau, u)
    gap = (v <= tau).mean() - (u <= tau).mean()
    assert coverage_gap_bound(wasserstein_1(u, v), 1.0) == pytest.approx(gap, rel=1e-3)
    assert coverage_gap_bound([0.0, 9.0], 2.0).tolist() == [0.0, 1.0]


def test_other_distances_match_closed_forms():
    normal = scipy.stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    assert total_variation(normal, normal + 1, points=400) == pytest.approx(0.383, abs=0.01)
    assert kl_divergence(normal, normal + 1, points=400) == pytest.approx(0.5, abs=0.04)
    assert mean_difference(normal, normal + 1) == pytest.approx(1)
    assert wasserstein_1(normal, normal + 1) == pytest.approx(1)
    assert total_variation(normal, normal) == kl_divergence(normal, normal) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wasserstein_1([], [1]), "Sample u must be"),
        (lambda: wasserstein_1([1], [np.nan]), "Sample v must be"),
        (lambda: wasserstein_1([1, 2], [1], [1]), "one entry for each of 2"),
        (lambda: wasserstein_1([1, 2], [1], [0, 0]), "not all 0"),
        (lambda: wasserstein_1([1, 2], [1], [-1, 2]), "at least 0"),
        (lambda: coverage_gap_bound(-1, 1), "at least 0"),
        (lambda: coverage_gap_bound(1, 0), "density above 0"),
        (lambda: total_variation([1, 1], [1, 2]), "two or more different"),
    ],
)
def test_distances_refuse(call, words):
    with pytest.raises(UsageError, match=words):
        call()


# Weights and quantiles


def test_density_and_bandwidth_equal_scikit_learn():
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KernelDensity

    x = np.random.default_rng(0).normal(size=(90, 3))
    theirs = KernelDensity(bandwidth=0.4).fit(x).score_samples(x + 0.5)
    assert kernel_log_density(x, x + 0.5, 0.4) == pytest.approx(theirs, abs=1e-9)
    fold = np.arange(90) % 5
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(5)]
    grid = {"bandwidth": np.logspace(-1, 0.7, 20)}
    best = GridSearchCV(KernelDensity(), grid, cv=folds).fit(x).best_params_["bandwidth"]
    assert select_bandwidth(x) == pytest.approx(best)


def test_density_in_blocks_is_the_same(monkeypatch):
    from equipoise.methods.conformal import _wr_weights

    x = np.random.default_rng(0).normal(size=(50, 2))
    whole = kernel_log_density(x, x, 0.3)
    monkeypatch.setattr(_wr_weights, "_BLOCK", 128)
    assert np.allclose(kernel_log_density(x, x, 0.3), whole, rtol=1e-12)


def test_weights_of_equal_covariates_are_one():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2))
    assert np.allclose(kernel_density_weights(x, x), 1)
    other = kernel_density_weights(x, generator.normal(size=(400, 2)))
    assert other.mean() == pytest.approx(1)
    assert effective_sample_size(other) > 160


def test_weights_estimate_the_likelihood_ratio():
    generator = np.random.default_rng(0)
    x, target = generator.normal(size=(900, 1)), generator.normal(0.7, 1, size=(900, 1))
    found = kernel_density_weights(x, target)
    truth = np.exp(0.7 * x[:, 0] - 0.245)
    inner = np.abs(x[:, 0]) < 1.5
    assert found[inner] == pytest.approx(truth[inner], rel=0.3, abs=0.1)


def test_cap_and_far_targets():
    x = np.linspace(-1, 1, 50)[:, None]
    far = kernel_density_weights(x, [[500.0]], bandwidth=0.1)
    assert np.isfinite(far).all()
    assert far.argmax() == 49
    assert far.mean() == pytest.approx(1)
    assert kernel_density_weights(x, [[500.0]], bandwidth=0.1, cap=3.0).max() == 3.0
    assert effective_sample_size(far) == pytest.approx(1)


def test_interpolated_quantile_is_hazens_for_equal_weights():
    values = np.random.default_rng(0).normal(size=37)
    levels = [0.0, 0.01, 0.25, 0.5, 0.93, 1.0]
    theirs = np.quantile(values, levels, method="hazen")
    assert interpolated_weighted_quantile(values, levels) == pytest.approx(theirs)
    # A weight of 0 leaves a value out, where it is not at an end.
    weights = np.ones(37)
    weights[np.argsort(values)[20]] = 0
    assert interpolated_weighted_quantile(values, 0.2, weights) == pytest.approx(
        np.quantile(values[weights > 0], 0.2, method="hazen")
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: select_bandwidth(np.zeros((3, 1))), "3 rows are too few for 5 folds"),
        (lambda: select_bandwidth([[np.inf]] * 9), "finite rows"),
        (lambda: kernel_log_density([[0.0]], [[0.0, 1.0]], 1.0), "1 features against 2"),
        (lambda: kernel_log_density([[0.0]], [[0.0]], 0.0), "bandwidth must be above 0"),
        (lambda: kernel_density_weights(np.eye(9), np.eye(9), cap=0.5), "cap must be at least 1"),
        (lambda: effective_sample_size([0.0, 0.0]), "not all 0"),
        (lambda: interpolated_weighted_quantile([1.0], 1.2), "level must be from 0 to 1"),
        (lambda: interpolated_weighted_quantile([1.0], 0.2, [0.0]), "not all 0"),
        (lambda: interpolated_weighted_quantile([1.0, 2.0], 0.2, [1.0]), "1 weights for 2"),
        (lambda: worst_case_quantile([], 0.1), "no domains"),
        (lambda: worst_case_quantile([np.ones(3)], 1.0), "alpha must lie strictly"),
    ],
)
def test_weights_and_quantiles_refuse(call, words):
    with pytest.raises(UsageError, match=words):
        call()


# Intervals around a trained predictor


class Zero:
    """Predicts 0 for every row, so that the scores are the sizes of the targets."""

    n_features_in_ = 1

    def fit(self, data, rng):
        return self

    def predict(self, inputs):
        return np.zeros(len(inputs))


def rows(x, y, group=None, split="calibration"):
    return Examples(
        np.concatenate([x, x[:1]]),
        np.concatenate([y, y[:1]]),
        np.array([split] * len(y) + ["train"]),
        np.array([*(np.zeros(len(y), int) if group is None else group), 0]),
    )


def spreading(n, mean, generator):
    """Targets whose size grows with x: a shift of x shifts the scores."""
    x = generator.normal(mean, 1, size=(n, 1))
    return x, np.exp(0.5 * x[:, 0]) * generator.normal(size=n)


@pytest.mark.parametrize("quantile", ["exact", "interpolated"])
def test_weights_repair_covariate_shift(quantile):
    generator = np.random.default_rng(0)
    data = rows(*spreading(1000, 0.0, generator))
    weighted = ImportanceWeightedInterval(quantile=quantile).apply(Zero(), Rng(0)).fit(data, Rng(0))
    plain = ConformalInterval().apply(Zero(), Rng(0)).fit(data, Rng(0))
    x, y = spreading(1000, 1.0, generator)

    def covered(subject, alpha):
        ends = subject.predict_interval(x, alpha)
        return ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean()

    for alpha in (0.2, 0.5):
        assert covered(plain, alpha) < 1 - alpha - 0.1
        assert covered(weighted, alpha) == pytest.approx(1 - alpha, abs=0.05)
    assert weighted.effective_sample_size(x) < 800 < weighted.effective_sample_size(data.inputs)


def test_without_shift_weighted_is_split_is_nominal():
    generator = np.random.default_rng(1)
    data = rows(*spreading(600, 0.0, generator))
    weighted = ImportanceWeightedInterval().apply(Zero(), Rng(0)).fit(data, Rng(0))
    plain = ConformalInterval().apply(Zero(), Rng(0)).fit(data, Rng(0))
    x, y = spreading(2000, 0.0, generator)
    one, two = (each.predict_interval(x, 0.1) for each in (weighted, plain))
    assert one[:, 1] == pytest.approx(two[:, 1], rel=0.06)
    assert (np.abs(y) <= one[:, 1]).mean() == pytest.approx(0.9, abs=0.03)
    weights = weighted.calibration_weights(data.inputs[:-1])
    assert np.allclose(weights, 1, atol=1e-6)


def test_rows_asked_together_are_the_sample_of_covariates():
    data = rows(*spreading(300, 0.0, np.random.default_rng(2)))
    fitted = ImportanceWeightedInterval().apply(Zero(), Rng(0)).fit(data, Rng(0))
    low, high = np.full((40, 1), -1.0), np.full((40, 1), 1.0)
    assert fitted.predict_interval(low, 0.2)[0, 1] < fitted.predict_interval(high, 0.2)[0, 1]
    first = fitted.predict_interval(low, 0.2)
    assert np.array_equal(first, fitted.predict_interval(low, 0.2))
    assert fitted.predict_interval(low[:0], 0.2).shape == (0, 2)


def test_constant_features_do_not_matter():
    x, y = spreading(100, 0.0, np.random.default_rng(2))
    data = rows(np.c_[x, np.full(100, 7.0)], y)
    fitted = ImportanceWeightedInterval().apply(Zero(), Rng(0)).fit(data, Rng(0))
    bare = ImportanceWeightedInterval().apply(Zero(), Rng(0)).fit(rows(x, y), Rng(0))
    asked = np.full((20, 1), 0.5)
    both = np.c_[asked, np.full(20, 7.0)]
    assert np.allclose(fitted.predict_interval(both, 0.2), bare.predict_interval(asked, 0.2))


def test_many_features_are_told_of():
    x = np.random.default_rng(0).normal(size=(60, 9))
    fitted = ImportanceWeightedInterval().apply(Zero(), Rng(0)).fit(rows(x, x[:, 0]), Rng(0))
    assert "9 dimensions" in about(fitted)["notes"][0]


def test_worst_case_is_the_largest_quantile_and_covers_every_mixture():
    generator = np.random.default_rng(3)
    spreads = (0.5, 1.0, 2.0)
    shares = ((1, 0, 0), (0, 0, 1), (0.2, 0.5, 0.3))
    hits = np.zeros(3)
    runs = 400
    for _ in range(runs):
        y = np.concatenate([s * generator.normal(size=30) for s in spreads])
        group = np.repeat([0, 1, 2], 30)
        part = WorstCaseInterval()
        data = rows(np.zeros((90, 1)), y, group)
        margin = part.apply(Zero(), Rng(0)).fit(data, Rng(0)).predict_interval([[0.0]], 0.2)[0, 1]
        assert margin == max(conformal_quantile(np.abs(y[group == k]), 0.2) for k in range(3))
        for place, share in enumerate(shares):
            hits[place] += abs(generator.normal() * generator.choice(spreads, p=share)) <= margin
    noise = 3 * np.sqrt(0.16 / runs)
    assert (hits / runs >= 0.8 - noise).all()
    assert hits[1] / runs == pytest.approx(0.83, abs=0.07)  # the worst one is not overdone


def test_interval_parts_refuse():
    x, y = spreading(50, 0.0, np.random.default_rng(0))
    learner = WorstCaseInterval().apply(Zero(), Rng(0))
    with pytest.raises(UsageError, match="worst_case_interval has not been trained"):
        learner.predict_interval(x, 0.1)
    with pytest.raises(UsageError, match="no calibration rows"):
        learner.fit(Examples(x, y), Rng(0))
    fitted = learner.fit(rows(x, y), Rng(0))
    with pytest.raises(UsageError, match="strictly between 0 and 1"):
        fitted.predict_interval(x, 1.5)
    assert np.isinf(fitted.predict_interval(x, 0.001)).all()

    class Broken(Zero):
        def predict(self, inputs):
            return np.full(len(inputs), np.nan)

    with pytest.raises(UsageError, match="not finite on 50 of 50"):
        WorstCaseInterval().apply(Broken(), Rng(0)).fit(rows(x, y), Rng(0))


def test_on_a_table(tmp_path):
    from equipoise.methods.conformal import IntervalPrediction
    from equipoise.methods.tables import Estimator, Train

    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    y = x[:, 0] + 0.3 * generator.normal(size=300)
    site, split = np.arange(300) % 3, np.repeat(["train", "calibration", "test"], 100)
    path = tmp_path / "rows.csv"
    table = zip(x[:, 0], x[:, 1], y, site, split, strict=True)
    lines = ["a,b,target,site,split", *(",".join(map(str, row)) for row in table)]
    path.write_text("\n".join(lines) + "\n")
    task = IntervalPrediction(str(path), cluster="site", split="split", alpha=0.2)
    for part in (ImportanceWeightedInterval(), WorstCaseInterval()):
        learner = part.apply(Estimator("LinearRegression").load(Rng(0)), Rng(0))
        trained = Train(task).apply(learner, Rng(0))
        units = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
        outcomes = task.perform(trained, units, Rng(0))
        least = 0.68 if isinstance(part, ImportanceWeightedInterval) else 0.78
        assert least < np.mean([o.scores["covered"] for o in outcomes]) < 0.97
        # Around a predictor that is trained already, with its calibration rows, it is the same.
        predictor = Train(task).apply(Estimator("LinearRegression").load(Rng(0)), Rng(0))
        late = type(part)(data=task).apply(predictor, Rng(0))
        ends = (s.predict_interval(x[200:], 0.3) for s in (late, trained))
        assert np.allclose(*ends)
    # A table's clusters are the domains.
    assert len(trained._domains) == 3


# Training


def objective(weight, bias, domains, anchor, weights, beta, decay):
    """The paper's objective of a line, by scipy and by hand."""

    def scores(x, y):
        return np.abs(x[:, 0] * weight + bias - y)

    loss = np.mean([scores(*each).mean() for each in domains])
    gaps = [
        scipy.stats.wasserstein_distance(scores(*anchor), scores(*each), w)
        for each, w in zip(domains, weights, strict=True)
    ]
    return (loss + decay * (weight**2 + bias**2)) / beta + np.mean(gaps)


@pytest.mark.parametrize("beta", [1.0, 50.0])
def test_first_step_follows_the_gradient_of_the_objective(beta):
    generator = np.random.default_rng(4)
    domains = [
        (x := generator.normal(k, 1, size=(40, 1)), x[:, 0] + (k + 1) * generator.normal(size=40))
        for k in range(2)
    ]
    anchor = tuple(np.concatenate(each) for each in zip(*domains, strict=True))
    weights = domain_weights(anchor[0], [x for x, _ in domains])
    module = nn.Linear(1, 1)
    with torch.no_grad():
        module.weight.fill_(0.3)
        module.bias.fill_(-0.2)
    train_on_domains(
        module, domains, anchor, weights, beta=beta, anneal=0, steps=1, rate=1e-3, decay=0.1
    )
    step = 1e-5
    at = np.array([0.3, -0.2])
    for place, found in enumerate((module.weight.item(), module.bias.item())):
        move = step * np.eye(2)[place]
        args = (domains, anchor, weights, beta, 0.1)
        slope = objective(*(at + move), *args) - objective(*(at - move), *args)
        # Adam's first step is the rate against the sign of the gradient.
        assert found - at[place] == pytest.approx(-1e-3 * np.sign(slope), rel=1e-2)


def test_training_brings_scores_together_as_beta_grows():
    learn = MultiSourceRegression(rows=150).sources(seed=5).learn
    train, calibration = learn.of("train"), learn.of("calibration")
    bare = MultiSourceMLP(steps=400, hidden=32).load(Rng(0))
    apart, size = [], []
    for beta in (None, 2.0, 20.0):
        learner = bare
        if beta is not None:
            learner = WassersteinRegularizedTraining(beta=beta, anneal=100).apply(bare, Rng(0))
        fitted = learner.fit(learn, Rng(1))
        scores = np.abs(train.targets - fitted.predict(train.inputs))
        own = np.abs(calibration.targets - fitted.predict(calibration.inputs))
        spread = [wasserstein_1(own, scores[train.group == k]) for k in range(3)]
        apart.append(np.mean(spread) / own.mean())
        size.append(own.mean())
    assert apart[0] > 1.2 * apart[1]
    assert apart[1] > 1.2 * apart[2]
    assert size[0] < size[1] < size[2]


def test_gap_falls_and_size_grows_with_beta():
    task = MultiSourceRegression(draws=2, rows=180, tests=10, alphas=(0.1, 0.3, 0.5))
    units = list(task.units(Rng(9)))
    found = []
    for beta in (None, 3.0, 20.0):
        subject = MultiSourceMLP(steps=300, hidden=32).load(Rng(0))
        if beta is not None:
            part = WassersteinRegularizedTraining(beta=beta, anneal=100)
            subject = part.apply(subject, Rng(0))
        subject = ImportanceWeightedInterval(quantile="interpolated").apply(subject, Rng(0))
        scores = [each.scores for each in task.perform(subject, units, Rng(0))]
        found.append([np.mean([s[n] for s in scores]) for n in ("coverage_gap", "size")])
    gaps, sizes = np.array(found).T
    assert gaps[0] > gaps[1] > gaps[2]
    assert sizes[0] < sizes[1] < sizes[2]


def test_which_rows_are_learned_from():
    learn = MultiSourceRegression(rows=60).sources(seed=1).learn
    ids = tuple(str(i).encode() for i in range(len(learn)))
    data = Examples(learn.inputs, learn.targets, learn.split, learn.group, ids)
    bare = MultiSourceMLP(steps=3, hidden=4).load(Rng(0))
    assert bare.fit(data, Rng(0)).learned_from == frozenset(ids[:60])
    paper = WassersteinRegularizedTraining(anneal=1).apply(bare, Rng(0))
    careful = WassersteinRegularizedTraining(anneal=1, anchor="train").apply(bare, Rng(0))
    assert (paper.learns_from, careful.learns_from) == (("train", "calibration"), ("train",))
    assert careful.fit(data, Rng(0)).learned_from == frozenset(ids[:60])
    fitted = ImportanceWeightedInterval().apply(paper, Rng(0)).fit(data, Rng(0))
    assert fitted.learned_from == frozenset(ids)
    assert "learned from its calibration rows" in about(fitted)["notes"][0]
    # What it has not been given it has not seen: calibration targets do not move `careful`.
    other = Examples(learn.inputs, np.where(learn.split == "train", learn.targets, 9.0),
                     learn.split, learn.group)  # fmt: skip
    one, two = (careful.fit(each, Rng(0)).predict(learn.inputs) for each in (learn, other))
    assert np.array_equal(one, two)
    one, two = (paper.fit(each, Rng(0)).predict(learn.inputs) for each in (learn, other))
    assert not np.array_equal(one, two)


def test_a_module_of_ones_own_is_trained_further():
    from equipoise.methods.tables import TorchModule

    learn = MultiSourceRegression(rows=60).sources(seed=1).learn
    shape = {"in_features": 5, "out_features": 1}
    subject = TorchModule("torch.nn:Linear", shape, predicts="values").load(Rng(0))
    before = subject.module.weight.detach().clone()
    part = WassersteinRegularizedTraining(beta=2.0, anneal=5, steps=40, rate=0.01)
    fitted = part.apply(subject, Rng(0)).fit(learn, Rng(0))
    assert torch.equal(subject.module.weight, before)
    assert isinstance(fitted, HasModule)
    train = learn.of("train")
    errors = [np.abs(train.targets - s.predict(train.inputs)).mean() for s in (subject, fitted)]
    assert errors[1] < errors[0]
    line = train.inputs @ fitted.module.weight.detach().numpy()[0] + fitted.module.bias.item()
    assert fitted.predict(train.inputs) == pytest.approx(line, abs=1e-5)
    assert fitted.with_module(subject.module).predict(train.inputs) == pytest.approx(
        subject.predict(train.inputs), abs=1e-5
    )


def test_training_refuses():
    learn = MultiSourceRegression(rows=60).sources(seed=1).learn
    bare = MultiSourceMLP(steps=3, hidden=4).load(Rng(0))
    with pytest.raises(UsageError, match="has not been trained"):
        bare.predict(learn.inputs)
    with pytest.raises(UsageError, match="no train rows"):
        bare.fit(learn.of("calibration"), Rng(0))
    with pytest.raises(UsageError, match="one finite number"):
        bare.fit([Unit("a", [1.0], "yes", split="train")], Rng(0))
    with pytest.raises(UsageError, match="5 features, got shape"):
        bare.fit(learn, Rng(0)).predict(np.zeros((2, 3)))
    treated = WassersteinRegularizedTraining().apply(bare, Rng(0))
    with pytest.raises(UsageError, match="say anchor: train"):
        treated.fit(learn.of("train"), Rng(0))
    quantiles = MultiSourceMLP(quantiles=(0.5,)).load(Rng(0))
    with pytest.raises(UsageError, match="leave out the subject's quantiles"):
        WassersteinRegularizedTraining().apply(quantiles, Rng(0))
    with pytest.raises(UsageError, match="open torch module, got Zero"):
        WassersteinRegularizedTraining().apply(Zero(), Rng(0))
    with pytest.raises(UsageError, match="must rise"):
        MultiSourceMLP(quantiles=(0.9, 0.1))
    with pytest.raises(UsageError, match="diverged"):
        train_on_domains(nn.Linear(5, 1), [(learn.inputs, learn.targets * 1e300)], steps=3)


def test_modules_and_weights_that_do_not_fit():
    domain = np.zeros((8, 1)), np.zeros(8)
    with pytest.raises(UsageError, match="must give 1 columns, got 2"):
        train_on_domains(nn.Linear(1, 2), [domain], steps=1)
    with pytest.raises(UsageError, match="weights for each of 2 domains, got 1"):
        train_on_domains(nn.Linear(1, 1), [domain, domain], domain, [np.ones(8)], steps=1)


def test_constant_targets_and_features_train():
    data = Examples(np.ones((20, 2)), np.full(20, 3.0))
    fitted = MultiSourceMLP(steps=200, hidden=4, dropout=0.0).load(Rng(0)).fit(data, Rng(0))
    assert fitted.predict(np.ones((2, 2))) == pytest.approx([3, 3], abs=0.2)


def test_quantile_network():
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(900, 1))
    y = (0.2 + 0.8 * (x[:, 0] > 0)) * generator.normal(size=900)
    part = MultiSourceMLP(quantiles=(0.1, 0.5, 0.9), steps=600, rate=0.01, dropout=0.1, decay=0.0)
    fitted = part.load(Rng(0)).fit(Examples(x, y), Rng(0))
    found = fitted.predict_quantiles(x, (0.1, 0.9))
    assert (found[:, 0] <= found[:, 1]).all()
    inside = (found[:, 0] <= y) & (y <= found[:, 1])
    assert inside.mean() == pytest.approx(0.8, abs=0.05)
    width = found[:, 1] - found[:, 0]
    assert width[x[:, 0] > 0.3].mean() > 3 * width[x[:, 0] < -0.3].mean()
    with pytest.raises(UsageError, match=r"quantiles 0.1, 0.5, 0.9, not 0.3"):
        fitted.predict_quantiles(x, (0.3,))
    with pytest.raises(UsageError, match="has not been trained"):
        part.load(Rng(0)).predict_quantiles(x, (0.5,))
