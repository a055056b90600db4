import sys

import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.data import _survival_sets, read_rows, read_table
from equipoise.kit.data._survival_sets import PACKAGES
from equipoise.kit.data.identity import content_hash

LOADERS = {"flchain": "load_flchain", "veterans": "load_veterans_lung_cancer",
           "whas500": "load_whas500"}  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name, package in PACKAGES.items() if package == "lifelines"]
)
def test_sets_of_lifelines_are_its_own(name):
    datasets = pytest.importorskip("lifelines.datasets")
    theirs = getattr(datasets, f"load_{name}")()
    rows = read_rows(f"builtin:{name}")
    if name == "lung":
        theirs = theirs.drop(columns=["inst", "meal.cal", "wt.loss"]).dropna()
    assert len(rows) == len(theirs)
    time = "week" if name == "rossi" else "time"
    event = {"rossi": "arrest", "gbsg2": "cens", "lung": "status"}.get(name, "death")
    # lifelines gives lung's status as it lies in the file, where 1 is an event.
    assert [row["time"] for row in rows] == theirs[time].tolist()
    assert [row["event"] for row in rows] == theirs[event].tolist()
    same = [column for column in theirs.columns if theirs[column].dtype.kind in "if"]
    for column in set(same) - {time, event}:
        ours = [row[column.lower().replace(".", "_")] for row in rows]
        assert ours == theirs[column].tolist()


@pytest.mark.parametrize("name", LOADERS)
def test_sets_of_scikit_survival_are_its_own(name):
    datasets = pytest.importorskip("sksurv.datasets")
    features, seen = getattr(datasets, LOADERS[name])()
    rows = read_rows(f"builtin:{name}")
    event, time = seen.dtype.names
    assert np.array([row["time"] for row in rows]) == pytest.approx(seen[time])
    assert [bool(row["event"]) for row in rows] == seen[event].tolist()
    age = next(column for column in features.columns if column.lower().startswith("age"))
    assert [row[age.lower()] for row in rows] == features[age].tolist()


def test_categories_are_numbered_in_order():
    datasets = pytest.importorskip("lifelines.datasets")
    theirs, rows = datasets.load_gbsg2(), read_rows("builtin:gbsg2")
    assert [row["tgrade"] for row in rows] == [len(each) - 1 for each in theirs["tgrade"]]
    assert [row["horth"] for row in rows] == (theirs["horTh"] == "yes").astype(int).tolist()
    assert [row["menostat"] for row in rows] == (theirs["menostat"] == "Post").astype(int).tolist()
    assert read_table("builtin:gbsg2", target="event").inputs.shape == (686, 9)


def test_packages_are_named():
    assert content_hash("builtin:rossi")["package"].startswith("lifelines ")
    found = content_hash("builtin:iris")
    assert found["package"].startswith("scikit-learn ")


def test_reading_imports_no_package():
    import subprocess

    code = (
        "import sys; from equipoise.kit.data import read_rows; read_rows('builtin:rossi');"
        "print([name for name in ('lifelines', 'pandas', 'sksurv') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "extra"), [
    ("rossi", r"pip install 'equipoise\[survival\]'"),
    ("flchain", r"pip install 'equipoise\[scikit-survival\]'"),
])  # fmt: skip
def test_missing_packages_are_named(monkeypatch, name, extra):
    monkeypatch.setattr(_survival_sets, "find_spec", lambda package: None)
    with pytest.raises(UsageError, match=f"builtin:{name} comes with the package .*{extra}"):
        _survival_sets.survival_rows(name)
