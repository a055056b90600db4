"""Files as columns, without a store."""

import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.store.sheets import cluster_codes, read_sheet, score_specs


def sheet(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_sheet(path)


def outcomes(found, arm, task, **more):
    specs = score_specs([found.file], found.task, **({"lower_better": (), "bounds": ()} | more))
    return found.outcomes(arm, task, specs[task])


def test_cells_units_and_clusters(tmp_path):
    found = sheet(
        tmp_path,
        "arm,task,unit,correct,cluster,output\n"
        "b,s,y,1,p,late\na,s,x,0,p,no\na,s,y,1,,yes\na,t,x,1,,\nb,s,z,0,q,other\n",
    )
    assert list(found.cells) == [("b", "s"), ("a", "s"), ("a", "t")]
    assert found.units("s") == ["y", "x", "z"]
    assert found.clusters("s") == ["p", "p", "q"]
    a = outcomes(found, "a", "s")
    assert a.unit.tolist() == [0, 1]
    assert a.score("correct").tolist() == [1, 0]
    assert a.cluster.tolist() == [0, 0]
    assert outcomes(found, "a", "t").cluster is None
    assert found.row("a", "s", "y")["output"] == "yes"


def test_units_without_a_cluster_are_alone():
    codes = cluster_codes(["p", None, "p", None])
    assert codes[0] == codes[2]
    assert len(np.unique(codes)) == 3


def test_failures_scores_and_costs(tmp_path):
    found = sheet(
        tmp_path,
        "unit,x,error,error_kind,seconds,input_tokens,output_tokens,dollars\n"
        "u,2,,,1.5,10,5,0.5\nv,,broke,,,,,\nw,,broke,judge,0.5,1,,\n",
    )
    a = outcomes(found, "a", "imported", bounds=["x:0:4"])
    assert a.failed.tolist() == [False, True, True]
    assert a.excused.tolist() == [False, False, True]
    assert (a.specs[0].low, a.specs[0].high) == (0, 4)
    assert found.costs("a", "imported") == {
        "outcomes": 3, "input_tokens": 11, "output_tokens": 5, "dollars": 0.5, "seconds": 2.0,
    }  # fmt: skip


def test_a_unit_twice_is_a_repeat_only_where_none_are_numbered(tmp_path):
    found = sheet(tmp_path, "unit,x\nu,1\nv,2\nu,3\n")
    assert found.repeats() == 1
    a = outcomes(found, "a", "imported")
    assert a.repeat.tolist() == [0, 1, 0]
    assert a.score("x").tolist() == [1, 3, 2]
    found = sheet(tmp_path, "unit,x,repeat\nu,1,0\nv,2,0\nu,3,0\n")
    with pytest.raises(UsageError, match=r"line 4: unit \"u\" .* given before, in line 2"):
        outcomes(found, "a", "imported")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("unit,x,cluster\nu,1,p\nu,2,q\n", r'line 3: unit "u" has cluster "q" here and "p"'),
        ("unit,x,repeat\nu,1,99999\n", "line 2: repeat must be below 16,384"),
    ],
)
def test_faults_name_the_line(tmp_path, text, sentence):
    with pytest.raises(UsageError, match=sentence):
        outcomes(sheet(tmp_path, text), "a", "imported")
