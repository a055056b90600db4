import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression

from equipoise.core import Rng, UsageError, learnable
from equipoise.kit.arrays.learners import Untrained
from equipoise.methods.conformal import LocalizedOutlierTest, ScreenRows


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Write 1,500 rows whose noise grows with x; 75 are far off and said so."""
    g = np.random.default_rng(0)
    x = g.random(1500)
    y = 2 * x + (0.1 + x) * g.normal(size=1500)
    odd = np.zeros(1500, bool)
    odd[::20] = True
    y[odd] += 8 * (0.1 + x[odd])
    path = tmp_path_factory.mktemp("data") / "readings.csv"
    lines = ["id,month,x,y,odd,word"]
    for row in range(1500):
        said = "bad" if odd[row] else "fine"
        lines.append(f"r{row},{row % 3},{x[row]},{y[row]},{int(odd[row])},{said}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def screen(task, part=None, learner=None):
    part = part or LocalizedOutlierTest(given=(0,), scale=False)
    made = part.apply(learner or Untrained(LinearRegression()), Rng(0))
    rows = learnable(task, Rng(0)) + learnable(task, Rng(0), "calibration")
    families = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    return families, task.perform(made.fit(rows, Rng(0)), families, Rng(0))


def test_abnormal_rows_of_a_file_are_found(table):
    task = ScreenRows(table, target="y", truth="odd", features=("x",), families=1, alpha=0.2)
    (family,), (found,) = screen(task)
    assert found.scores["power"] > 0.8
    assert found.scores["false_discovery_proportion"] < 0.4
    assert len(found.output["flagged"]) == round(found.scores["flagged"] * found.output["rows"])
    assert found.output["p_values"] == sorted(found.output["p_values"])
    assert set(found.output["flagged"]) <= set(family.content["ids"])


def test_known_abnormal_rows_are_never_learned_from(table):
    task = ScreenRows(table, target="y", truth="word", abnormal="bad", features=("x",))
    learned = [unit for unit in task.units(Rng(0)) if unit.split != "test"]
    assert not any(int(unit.id[1:]) % 20 == 0 for unit in learned)
    assert {unit.split for unit in learned} == {"train", "calibration"}
    # Without truth nobody knows them.
    blind = ScreenRows(table, target="y", features=("x",))
    assert any(int(unit.id[1:]) % 20 == 0 for unit in blind.units(Rng(0)) if unit.split == "train")
    assert [score.name for score in blind.scores] == ["flagged"]


def test_families_by_column_and_by_hash(table):
    by_month = ScreenRows(table, target="y", features=("x",), family="month")
    families, found = screen(by_month)
    assert [family.id for family in families] == ["family-0", "family-1", "family-2"]
    assert all(int(name[1:]) % 3 == 1 for name in families[1].content["ids"])
    assert all(set(outcome.scores) == {"flagged"} for outcome in found)
    dealt = ScreenRows(table, target="y", features=("x",), families=12)
    names = [unit.id for unit in dealt.units(Rng(0)) if unit.split == "test"]
    assert names[0] == "family-00"
    assert len(names) == 12


def test_rows_strange_by_themselves(table):
    task = ScreenRows(table, features=("x", "y"), families=2)
    part = LocalizedOutlierTest("detector", given=(0,))
    _, found = screen(task, part, Untrained(IsolationForest(n_estimators=20)))
    assert all(outcome.status == "ok" for outcome in found)


def test_a_learned_row_fails_its_family(table):
    task = ScreenRows(table, target="y", features=("x",), families=2)
    other = ScreenRows(table, target="y", features=("x",), split_seed=1)
    made = LocalizedOutlierTest(given=(0,)).apply(Untrained(LinearRegression()), Rng(0))
    rows = learnable(other, Rng(0)) + learnable(other, Rng(0), "calibration")
    families = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    found = task.perform(made.fit(rows, Rng(0)), families, Rng(0))
    assert {outcome.error_kind for outcome in found} == {"leak"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": 0.7, "calibration": 0.4}, "must be below 1 together"),
        ({"abnormal": "bad"}, "abnormal is a value of truth"),
        ({"truth": "word"}, "truth is true or false"),
        ({"truth": "word", "abnormal": "worse"}, 'no row is abnormal by "word"'),
        ({"target": "word"}, '"word" is text'),
        ({"target": "z"}, '"z"'),
    ],
)
def test_bad_tables_are_refused(table, change, said):
    with pytest.raises(UsageError, match=said):
        list(ScreenRows(table, **({"target": "y", "features": ("x",)} | change)).units(Rng(0)))
