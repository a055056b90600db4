import numpy as np
import pytest
import scipy.stats

from equipoise.core import Rng, UnitError, UsageError
from equipoise.methods.conformal import MultiSourceRegression, wasserstein_1
from equipoise.methods.conformal._wr_airfoil import airfoil_domains, read_airfoil


@pytest.fixture
def airfoil(tmp_path):
    """A made-up file in the format of the real one."""
    generator = np.random.default_rng(0)
    table = np.column_stack([
        generator.choice([800, 1000, 2000, 4000, 8000], 300),
        generator.uniform(0, 22, (300, 4)),
        generator.normal(125, 7, 300),
    ])  # fmt: skip
    path = tmp_path / "airfoil_self_noise.dat"
    path.write_text("\n".join("\t".join(f"{v:.6g}" for v in row) for row in table) + "\n")
    return path


class Fixed:
    """Predicts 0, with an interval of one half-width for all."""

    def __init__(self, half=1.0, weights=None):
        self.half = half
        if weights is not None:
            self.calibration_weights = weights

    def fit(self, data, rng):
        self.learn = data
        return self

    def predict(self, inputs):
        return np.zeros(len(inputs))

    def predict_interval(self, inputs, alpha):
        return np.tile([-self.half, self.half], (len(inputs), 1)) * (1 - alpha)


def test_scores_by_hand():
    task = MultiSourceRegression(draws=1, rows=90, tests=6, alphas=(0.1, 0.5))
    (unit,) = task.units(Rng(0))
    (outcome,) = task.perform(subject := Fixed(2.0), [unit], Rng(0))
    sources = task.sources(unit.content["seed"])
    coverage = [[(np.abs(y) <= 2 * (1 - a)).mean() for a in (0.1, 0.5)] for _, y in sources.tests]
    gap = np.abs(np.array(coverage) - [0.9, 0.5])
    assert outcome.scores["coverage_gap"] == pytest.approx(gap.mean())
    assert outcome.scores["worst_gap"] == pytest.approx(gap.mean(1).max())
    assert outcome.scores["size"] == pytest.approx(4 * 0.7)
    assert np.allclose(outcome.artifacts["coverage"], coverage)
    assert subject.learn.targets.mean() == pytest.approx(0)
    assert subject.learn.targets.std() == pytest.approx(1)
    own = np.abs(sources.learn.of("calibration").targets)
    apart = [scipy.stats.wasserstein_distance(own, np.abs(y)) for _, y in sources.tests]
    assert outcome.scores["score_distance"] == pytest.approx(np.mean(apart))
    limits = np.quantile(own, [0.9, 0.5], method="hazen")
    left = [(np.abs(y)[:, None] <= limits).mean(0) - [0.9, 0.5] for _, y in sources.tests]
    gaps = np.abs(left).mean(1)
    ranks = scipy.stats.spearmanr(gaps, apart).statistic
    assert outcome.scores["rank_correlation"] == pytest.approx(ranks)
    means = [abs(np.abs(y).mean() - own.mean()) for _, y in sources.tests]
    lead = ranks - scipy.stats.spearmanr(gaps, means).statistic
    assert outcome.scores["lead_over_mean"] == pytest.approx(lead)
    assert "effective_sample_size" not in outcome.scores


def test_weights_of_the_subject_count():
    task = MultiSourceRegression(draws=1, rows=90, tests=3)
    (unit,) = task.units(Rng(0))
    sources = task.sources(unit.content["seed"])
    weights = np.arange(90.0)
    (outcome,) = task.perform(Fixed(weights=lambda x: weights), [unit], Rng(0))
    own = np.abs(sources.learn.of("calibration").targets)
    apart = [wasserstein_1(own, np.abs(y), weights) for _, y in sources.tests]
    assert outcome.scores["score_distance"] == pytest.approx(np.mean(apart))
    truth = weights.sum() ** 2 / (weights**2).sum()
    assert outcome.scores["effective_sample_size"] == pytest.approx(truth)


def test_oracle_covers_just_so():
    task = MultiSourceRegression.tiny()
    for outcome in task.perform(task.oracle(), list(task.units(Rng(0))), Rng(0)):
        assert outcome.scores["coverage_gap"] < 0.02
        assert outcome.scores["size"] == 0


def test_infinite_or_missing_intervals_are_failures():
    task = MultiSourceRegression.tiny()
    units = list(task.units(Rng(0)))[:1]
    with pytest.raises(UnitError, match=r"infinite at alpha 0\.1"):
        task.perform(Fixed(np.inf), units, Rng(0))
    with pytest.raises(UnitError, match="no numbers"):
        task.perform(Fixed(np.nan), units, Rng(0))


def test_heavy_tails_are_in_one_domain_only():
    plain, heavy = (
        MultiSourceRegression(rows=3000, noise=kind).sources(seed=2).learn
        for kind in ("normal", "ratio")
    )
    assert np.abs(plain.targets).max() < 10
    far = np.abs(heavy.targets) > 5
    assert far.any()
    assert (heavy.group[far] == 1).all()


def test_airfoil_recipe(airfoil):
    table = read_airfoil(str(airfoil))
    domains = airfoil_domains(table, Rng(0))
    assert sum(len(y) for _, y in domains) == 300
    low, high = np.quantile(table[:, 0], [0.33, 0.66])
    third = (table[:, 0] >= low).astype(int) + (table[:, 0] >= high)
    # Most of the first third is in domain 0, of the last in domain 1, of the second in domain 2.
    dealt = ((0.7, 0.2, 0.1), (0.2, 0.1, 0.7), (0.1, 0.7, 0.2))
    for (x, _), shares in zip(domains, dealt, strict=True):
        own = (x[:, 0] >= low).astype(int) + (x[:, 0] >= high)
        found = [np.sum(own == k) / np.sum(third == k) for k in range(3)]
        assert found == pytest.approx(shares, abs=0.03)
    pressures = [y**2 for _, y in domains]  # the target is a signed square root
    assert np.std(pressures[0]) == pytest.approx(7.1, abs=1.2)
    assert np.std(pressures[2]) == pytest.approx(np.hypot(7, 10), abs=2)
    normal = airfoil_domains(table, Rng(0), kind="normal")
    assert np.std(normal[1][1] ** 2) == pytest.approx(28, abs=6)
    task = MultiSourceRegression(draws=1, data=str(airfoil), tests=4, noise="ratio")
    (outcome,) = task.perform(Fixed(), list(task.units(Rng(0))), Rng(0))
    assert 0 < outcome.scores["coverage_gap"] < 1


def test_a_changed_file_is_read_again(airfoil):
    before = read_airfoil(str(airfoil))
    airfoil.write_text(airfoil.read_text().replace("800\t", "900\t"))
    assert not np.array_equal(read_airfoil(str(airfoil)), before)


def test_identity_follows_the_content_of_the_file(airfoil, tmp_path):
    other = tmp_path / "copy.dat"
    other.write_bytes(airfoil.read_bytes())
    one, two = (MultiSourceRegression(data=str(path)).content() for path in (airfoil, other))
    assert one == two
    assert MultiSourceRegression().content() is None


def test_bad_files_are_refused(tmp_path):
    missing = MultiSourceRegression(data=str(tmp_path / "none.dat"))
    with pytest.raises(UsageError, match="UCI Machine Learning Repository"):
        list(missing.units(Rng(0)))
    path = tmp_path / "bad.dat"
    path.write_text("1\t2\t3\t4\t5\t6\n1,2,3,4,5,6\n")
    with pytest.raises(UsageError, match=r"bad.dat:2: must be six tab-separated numbers"):
        read_airfoil(str(path))
    path.write_text("1\t2\t3\t4\t5\t6\n")
    with pytest.raises(UsageError, match="has 1 rows"):
        read_airfoil(str(path))
    with pytest.raises(UsageError, match="alphas must lie strictly"):
        MultiSourceRegression(alphas=(0.1, 1.0))
