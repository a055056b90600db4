import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from equipoise.core import Outcomes, Rng, UnitError, UsageError
from equipoise.methods.evaluation.judge_debiasing_limits import PredictionPoweredMean
from equipoise.methods.evaluation.judged_items import JudgedItems, RecordedModel

RNG = Rng(0)
ROWS = [
    {"item": "a", "model": "m", "gold": 1, "judge": 0.9, "stratum": "x", "cluster": "p"},
    {"item": "a", "model": "k", "gold": 0, "judge": 0.2, "stratum": "x", "cluster": "p"},
    {"item": "b", "model": "m", "gold": None, "judge": 0.4, "stratum": "y", "cluster": "p"},
]


def write(folder, kind, rows=ROWS):
    path = folder / f"items.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        pl.DataFrame(rows).write_parquet(path)
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_formats_agree(tmp_path, kind):
    units = JudgedItems(write(tmp_path, kind)).units(RNG)
    assert [(u.id, u.stratum, u.cluster) for u in units] == [("a", "x", "p"), ("b", "y", "p")]
    assert units[0].content == {
        "m": {"gold": 1.0, "judge": 0.9},
        "k": {"gold": 0.0, "judge": 0.2},
    }
    assert units[1].content == {"m": {"gold": None, "judge": 0.4}}


def test_perform_picks_the_model(tmp_path):
    task = JudgedItems(write(tmp_path, "csv"))
    units = task.units(RNG)
    outcomes = task.perform(RecordedModel("m").load(RNG), units, RNG)
    assert [each.scores for each in outcomes] == [{"gold": 1.0, "judge": 0.9}, {"judge": 0.4}]
    with pytest.raises(UnitError, match='no row of model "k"'):
        task.perform(RecordedModel("k").load(RNG), units, RNG)
    with pytest.raises(UnitError, match="rows of 2 models; name one of k, m"):
        task.perform(RecordedModel().load(RNG), units, RNG)


def test_one_model_needs_no_name(tmp_path):
    rows = [{"item": i, "gold": i % 2 == 0, "judge": 0.5} for i in range(4)]
    task = JudgedItems(write(tmp_path, "jsonl", rows))
    outcomes = task.perform(RecordedModel().load(RNG), task.units(RNG), RNG)
    assert [each.scores["gold"] for each in outcomes] == [1.0, 0.0, 1.0, 0.0]


def test_identity_follows_content_not_place(tmp_path):
    first = JudgedItems(write(tmp_path, "csv"))
    (tmp_path / "other").mkdir()
    second = JudgedItems(write(tmp_path / "other", "csv"))
    assert first.content() == second.content()
    changed = JudgedItems(write(tmp_path / "other", "csv", [{**ROWS[0], "judge": 0.1}]))
    assert changed.content() != first.content()
    assert len(changed.units(RNG)) == 1  # the old file is not remembered in its place


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("item,gold,judge\n", "no rows"),
        ("item,gold,jugde\na,1,1\n", 'no column "judge". Nearest: jugde.'),
        ("item,golf,judge\na,1,1\n", 'no column "gold". Nearest: golf. There are: item, golf'),
        ("item,gold,judge\na,1,1.7\n", 'line 2: "judge" must be a number from 0 to 1, got 1.7'),
        ("item,gold,judge\na,1,\n", 'line 2: "judge" is empty'),
        ("item,gold,judge\na,yes,1\n", "\"gold\" must be 0, 1 or empty, got 'yes'"),
        ("item,gold,judge\na,0.5,1\n", '"gold" must be 0, 1 or empty, got 0.5'),
        ("item,gold,judge\na,nan,1\n", '"gold" must be 0, 1 or empty'),
        ("item,gold,judge\na,1,1\na,0,1\n", 'line 3: item "a" is there twice'),
        ("item,model,gold,judge\na,m,1,1\na,m,0,1\n", 'item "a" of model "m" is there twice'),
        ("item,gold,judge\n,1,1\n", 'line 2: "item" is empty'),
        ("item,model,gold,judge,cluster\na,m,1,1,p\na,k,1,1,q\n", "another stratum or cluster"),
        ("item,gold,judge\na,1,1,1,1\n", "has 5 fields and the header has 3"),
    ],
)
def test_bad_files(tmp_path, text, words):
    path = tmp_path / "items.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        JudgedItems(str(path)).units(RNG)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        JudgedItems(str(tmp_path / "no.csv")).content()


def test_another_judge_is_another_column(tmp_path):
    rows = [{"item": i, "gold": 1, "strict": 0.25, "mild": 0.75} for i in range(3)]
    path = write(tmp_path, "parquet", rows)
    for judge, verdict in (("strict", 0.25), ("mild", 0.75)):
        units = JudgedItems(path, judge=judge).units(RNG)
        assert [u.content["the model"]["judge"] for u in units] == [verdict] * 3


def test_example_to_estimate():
    task = JudgedItems.tiny()
    units = task.units(RNG)
    outcomes = task.perform(RecordedModel("large").load(RNG), units, RNG)
    columns = {
        name: np.array([each.scores.get(name, math.nan) for each in outcomes])
        for name in ("gold", "judge")
    }
    found = PredictionPoweredMean().measure(replace(Outcomes.of(**columns), specs=task.scores), RNG)
    assert (found.details["labelled"], found.details["extra"]) == (20, 20)
    assert found.low < found.value < found.high
    oracle = task.perform(task.oracle(), units, RNG)
    assert {each.scores["gold"] for each in oracle} == {1.0}
