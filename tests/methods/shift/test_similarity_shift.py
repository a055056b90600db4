import sys

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.examples import examples
from equipoise.kit.arrays.similarity import cosine, nearest
from equipoise.methods.shift import AUGOOD, MoleculeFeatures, SimilarityShift, deployment_weights

RNG = Rng(3)
SMILES = ["C" * n for n in range(1, 9)] + ["c1ccccc1" + "C" * n for n in range(8)] + [
    "O" + "C" * n + "O" for n in range(1, 9)]  # fmt: skip


class Counting:
    """Learns the mean, and counts how often."""

    def __init__(self, learns_from=("train",)):
        self.learns_from = learns_from
        self.seen = []

    def fit(self, data, rng):
        found = examples(data)
        self.seen.append((found, rng.seed_for_request()))
        return _Mean(found.of("train").targets.mean())


class _Mean:
    def __init__(self, value):
        self.value = value

    def predict(self, inputs):
        return np.full(len(inputs), self.value)


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.csv"
    lines = ["id,a,b,value,kind"]
    for row in range(60):
        angle = 0.4 * (row % 4) + 0.02 * rng.normal()
        lines.append(
            f"r{row},{np.cos(angle):.4f},{np.sin(angle):.4f},{rng.normal():.3f},{'xy'[row % 2]}"
        )
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def molecules(tmp_path):
    pytest.importorskip("rdkit")
    path = tmp_path / "molecules.csv"
    rows = [f"{text},{len(text)}" for text in SMILES]
    path.write_text("\n".join(["smiles,target", *rows]))
    return str(path)


def _task(table, **changes):
    how = {"target": "value", "features": ("a", "b"), "thresholds": (0.995, 0.9999),
           "test_size": 0.3, "smallest": 0.1} | changes  # fmt: skip
    return SimilarityShift(table, **how)


def test_units_are_test_rows_by_threshold(table):
    task = _task(table)
    units = list(task.units(RNG))
    rows = task.rows()
    assert {unit.stratum for unit in units} == {"0.995", "0.9999"}
    for threshold, part in rows.partitions.items():
        mine = [unit for unit in units if unit.content["threshold"] == threshold]
        assert [unit.content["row"] for unit in mine] == part.test.tolist()
        assert [unit.cluster for unit in mine] == [f"r{row}" for row in part.test]
        near = nearest(rows.inputs[part.test], rows.inputs[part.train], cosine)
        assert near.max() < threshold
    assert all(unit.content.keys() == {"threshold", "row"} for unit in units)
    assert units == list(task.units(Rng(99)))


def test_the_subject_learns_once_a_threshold_and_never_from_test_rows(table):
    task, subject = _task(table), Counting()
    units = list(task.units(RNG))
    shards = [units[start : start + 7] for start in range(0, len(units), 7)]
    outcomes = [each for shard in shards for each in task.perform(subject, shard, RNG)]
    assert len(subject.seen) == 2
    for (data, _), part in zip(subject.seen, task.rows().partitions.values(), strict=True):
        assert np.array_equal(data.targets, task.rows().targets[part.train])
        assert set(data.split) == {"train"}
    whole = task.perform(Counting(), units, RNG)
    assert [each.scores for each in whole] == [each.scores for each in outcomes]
    task.perform(subject, units, Rng(4))  # another stream is another training
    assert len(subject.seen) == 4


def test_scores_of_numbers(table):
    task = _task(table)
    unit = next(iter(task.units(RNG)))
    (found,) = task.perform(Counting(), [unit], RNG)
    error = found.scores["predicted"] - unit.target
    assert found.scores["absolute_error"] == pytest.approx(abs(error))
    assert found.scores["squared_error"] == pytest.approx(error**2)
    assert "weight" not in found.scores
    assert set(found.scores) <= {score.name for score in task.scores}


def test_a_learner_that_calibrates_gets_a_share_of_training_rows(table):
    subject = Counting(("train", "calibration"))
    task = _task(table, validation=0.5)
    task.perform(subject, list(task.units(RNG)), RNG)
    data = subject.seen[0][0]
    assert 5 < len(data.of("calibration")) < len(data) - 5


def test_classes(table):
    pytest.importorskip("sklearn")
    from sklearn.neighbors import KNeighborsClassifier

    from equipoise.kit.arrays.learners import Untrained

    task = _task(table, target="kind", classes=True)
    units = list(task.units(RNG))
    found = task.perform(Untrained(KNeighborsClassifier(1)), units, RNG)
    for unit, each in zip(units, found, strict=True):
        assert each.scores["target"] == "xy".index(unit.target)
        assert each.scores["correct"] == float(each.scores["predicted"] == each.scores["target"])
    assert task.scores[0].name == "correct" and _task(table).scores[0].name == "absolute_error"  # noqa: PT018
    assert task.measures() == [AUGOOD(metric="mcc")]

    class Stranger:
        def fit(self, data, rng):
            return type("", (), {"predict": lambda self, x: np.full(len(x), "z")})()

    (other,) = task.perform(Stranger(), units[:1], RNG)
    assert other.scores["predicted"] == -1.0


def test_deployment_gives_weights(table, tmp_path):
    met = tmp_path / "met.csv"
    met.write_text("a,b\n" + "\n".join(f"{np.cos(x)},{np.sin(x)}" for x in (0.1, 0.2, 1.9, 3)))
    task = _task(table, deployment=str(met))
    rows = task.rows()
    angles = np.array([0.1, 0.2, 1.9, 3])
    m = nearest(np.stack([np.cos(angles), np.sin(angles)], axis=1), rows.inputs, cosine)
    assert list(rows.weights.values()) == pytest.approx(
        deployment_weights(m, list(rows.partitions)).tolist()
    )
    found = task.perform(Counting(), list(task.units(RNG)), RNG)
    for unit, each in zip(task.units(RNG), found, strict=True):
        assert each.scores["weight"] == rows.weights[unit.content["threshold"]]
    met.write_text("a,b\n1,0\n")  # another deployment is another task
    assert task.content() != _task(table).content()


def test_molecules(molecules):
    both = SimilarityShift(molecules, molecule="smiles", representation="both", thresholds=(0.6,),
                           smallest=0.0)  # fmt: skip
    assert both.rows().inputs.shape == (24, 8 + 2048)
    assert set(np.unique(both.rows().inputs[:, 8:])) == {0.0, 1.0}
    assert next(iter(both.units(RNG))).content["molecule"] in SMILES
    seen = []

    class Widths:
        def fit(self, data, rng):
            seen.append(examples(data).inputs.shape[1])
            return _Mean(0.0)

    units = list(both.units(RNG))
    for features in ("descriptors", "ecfp", "both"):
        subject = MoleculeFeatures(features).apply(Widths(), RNG)
        assert all(each.status == "ok" for each in both.perform(subject, units, RNG))
    assert seen == [8, 2048, 2056]
    few = SimilarityShift(molecules, molecule="smiles", representation="descriptors",
                          thresholds=(0.6,), smallest=0.0)  # fmt: skip
    with pytest.raises(UsageError, match="representation: both"):
        few.perform(MoleculeFeatures("ecfp").apply(Widths(), RNG), units[:1], RNG)


def test_molecule_features_keep_what_the_learner_can_do(molecules):
    pytest.importorskip("sklearn")
    from sklearn.naive_bayes import GaussianNB

    from equipoise.core import Predicts, PredictsProba, Trains
    from equipoise.kit.arrays.examples import Examples
    from equipoise.kit.arrays.learners import Untrained

    learner = MoleculeFeatures("ecfp").apply(Untrained(GaussianNB()), RNG)
    assert isinstance(learner, Trains)
    assert not isinstance(learner, Predicts)
    rows = np.random.default_rng(0).normal(size=(20, 12))
    data = Examples(rows, np.arange(20) % 2, ids=tuple(bytes([n]) for n in range(20)))
    fitted = learner.fit(data, RNG)
    assert isinstance(fitted, PredictsProba)
    assert fitted.predict_proba(rows).shape == (20, 2)
    assert fitted.learned_from == frozenset(data.ids)
    other = rows.copy()
    other[:, :8] = 9.0
    assert np.array_equal(fitted.predict(rows), fitted.predict(other))


def test_random_split_is_one_threshold(table):
    task = SimilarityShift(table, target="value", features=("a", "b"), algorithm="random")
    units = list(task.units(RNG))
    assert len(units) == 12
    assert {unit.stratum for unit in units} == {"1.00"}


def test_failures_are_outcomes_and_training_is_not_tried_again(table):
    from equipoise.trial.work import _perform

    class Fails:
        tries = 0

        def fit(self, data, rng):
            Fails.tries += 1
            raise UsageError("cannot learn this.")

    task = _task(table)
    units = list(task.units(RNG))
    subject = Fails()
    found = _perform(task, lambda u, rng: task.perform(subject, u, rng), units, RNG)
    assert {each.error for each in found} == {"cannot learn this."}
    assert Fails.tries == 2

    class Infinite:
        def fit(self, data, rng):
            return _Mean(np.inf)

    (lost,) = task.perform(Infinite(), units[:1], RNG)
    assert lost.status == "error" and "not a finite number" in lost.error  # noqa: PT018


def test_bad_tasks_are_refused_in_a_sentence(table, molecules, tmp_path):
    for wrong, told in [
        ({"thresholds": (0.5, 0.4)}, "thresholds must rise"),
        ({"thresholds": (0.0, 0.4)}, "thresholds must be above 0"),
        ({"molecule": "smiles"}, "by molecule or by features"),
        ({"algorithm": "random"}, "a random split has no thresholds"),
    ]:
        with pytest.raises(UsageError, match=told):
            _task(table, **wrong)
    for wrong, told in [
        (
            {"target": "kind"},
            r'line 2: "kind" is text; a value to predict must be a number, or say',
        ),
        ({"similarity": "tanimoto"}, "bits, 0 or 1"),
        ({"thresholds": (0.1,)}, "at no threshold"),
        ({"features": ("a", "value")}, "feature and a target"),
        ({"target": "value", "classes": True}, "classes are text, integers"),
    ]:
        with pytest.raises(UsageError, match=told):
            _task(table, **wrong).rows()
    bad = tmp_path / "bad.csv"
    bad.write_text("smiles,target\nCC,1.0\nC1C,2.0\n")
    with pytest.raises(UsageError, match=r'bad.csv, line 3: "C1C" is no SMILES of a molecule'):
        SimilarityShift(str(bad), molecule="smiles").rows()
    bad.write_text("smiles,target\nCC,1.0\nCCC,1.0\n")
    with pytest.raises(UsageError, match='"target" is 1 in every row'):
        SimilarityShift(str(bad), molecule="smiles").rows()
    with pytest.raises(UsageError, match='"target" is a number; molecules are SMILES'):
        SimilarityShift(molecules, molecule="target", target="smiles", classes=True).rows()


def test_one_class_in_training_is_told(tmp_path):
    path = tmp_path / "rows.csv"
    # The two rows alone are the only ones of their kind.
    rows = ["1,0,0,x"] * 8 + ["0,1,0,y", "0,0,1,y"]
    path.write_text("\n".join(["a,b,c,kind", *rows]))
    task = SimilarityShift(str(path), target="kind", classes=True, thresholds=(0.5,),
                           test_size=0.3, smallest=0.1)  # fmt: skip
    with pytest.raises(UsageError, match=r"at threshold 0.50 all training rows have the class"):
        task.perform(Counting(), list(task.units(RNG)), RNG)


def test_planning_loads_no_rdkit(table):
    import subprocess

    code = (
        "import sys; from equipoise.methods.shift import SimilarityShift, AUGOOD, MoleculeFeatures;"
        "SimilarityShift('x.csv', molecule='smiles'); AUGOOD(); MoleculeFeatures();"
        "assert not {'rdkit', 'sklearn', 'torch', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
