# ruff: noqa: E501 - faults read best one a line
import json

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from equipoise.cli import import_
from equipoise.core import RunError, ScoreSpec, UsageError
from equipoise.store import Store

app = typer.Typer()
app.command()(import_.command)


def call(*arguments):
    found = CliRunner().invoke(app, list(map(str, arguments)))
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.stdout


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EQUIPOISE_STORE", raising=False)
    return tmp_path / ".equipoise" / "store.sqlite"


def write(name, text):
    with open(name, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return name


def test_csv_with_everything(place):
    write(
        "runs.csv",
        "arm,task,unit,correct,seconds_to_answer,repeat,build,cluster,stratum,output,error,"
        "input_tokens,output_tokens,dollars,seconds,seed,content,target\n"
        'plain,sums,a,1,2.5,0,0,c1,easy,"two, or so",,10,2,0.01,0.5,7,1 + 1,2\n'
        "plain,sums,a,0,3.5,1,0,c1,easy,three,,10,2,0.01,0.5,8,,\n"
        "plain,sums,b,,,0,0,c1,hard,,The server hung up.,0,0,,,,2 + 2,4\n"
        "treated,sums,a,true,1,0,1,,,,,,,,,,,\n",
    )
    said = call("runs.csv", "--lower-better", "seconds_to_answer", "--trial", "mine")
    assert said == (
        "Run 1 (mine): 4 outcomes of plain, treated on sums.\nNext: equipoise compare 1\n"
    )
    with Store.open(place, readonly=True) as store:
        run = store.run("mine")
        assert (run["status"], run["written"]) == ("finished", 4)
        plain, treated = (each["arm"] for each in run["covers"])
        found = store.outcomes(plain, 1)
        assert found.unit.tolist() == [0, 0, 1]
        np.testing.assert_array_equal(found.score("correct"), [1, 0, np.nan])
        assert found.failed.tolist() == [False, False, True]
        assert found.repeat.tolist() == [0, 1, 0]
        assert found.cluster.tolist() == [0, 0, 0]
        assert [found.strata[i] for i in found.stratum] == ["easy", "easy", "hard"]
        assert found.specs == (
            ScoreSpec("correct", True, 0.0, 1.0),
            ScoreSpec("seconds_to_answer", False),
        )
        assert store.outcomes(treated, 1).build.tolist() == [1]
        row = store.unit(plain, 1, "a")
        assert (row["content"], row["target"], row["output"]) == ("1 + 1", "2", "two, or so")
        assert row["usage"] == {"input_tokens": 10, "output_tokens": 2, "dollars": 0.01}
        assert (row["seconds"], row["seed"]) == (0.5, 7)
        failed = store.unit(plain, 1, "b")
        assert (failed["status"], failed["error"]) == ("error", "The server hung up.")


def test_the_three_formats_agree(place):
    frame = pl.DataFrame(
        {
            "arm": ["a", "a", "b", "b"],
            "unit": [1, 2, 1, 2],
            "score.f1": [0.1, 0.2, 0.3, 0.1 + 0.2],
            "score.exact": [True, False, True, True],
            "output": ["x", "é\n,", None, '"'],
        }
    )
    frame.write_csv("f.csv")
    frame.write_csv("f.tsv", separator="\t")
    frame.write_ndjson("f.jsonl")
    frame.write_parquet("f.parquet")
    with open("g.jsonl", "w", encoding="utf-8") as file:  # scores in one object
        for row in frame.rename({"score.f1": "f1", "score.exact": "exact"}).to_dicts():
            scores = {name: row.pop(name) for name in ("f1", "exact")}
            file.write(json.dumps(row | {"scores": scores}) + "\n")
    found = []
    for name in ("f.csv", "f.tsv", "f.jsonl", "f.parquet", "g.jsonl"):
        said = json.loads(call(name, "--json", "--store", f"{name}.sqlite"))
        assert said["scores"] == ["f1", "exact"]
        with Store.open(f"{name}.sqlite") as store:
            rows = store.rows(said["run"])
        found.append([(r["arm"], r["task"], r["unit"], r["scores"], r["output"]) for r in rows])
    assert all(each == found[0] for each in found)
    assert found[0][3] == ("b", "imported", "2", {"f1": 0.1 + 0.2, "exact": 1.0}, '"')


def test_a_file_a_model(place):
    """Two files without arms are two arms, and share the task's units."""
    write("base.csv", "unit,accuracy,note\na,1,x\nb,0,y\n")
    write("tuned.csv", "unit,accuracy\nb,1\na,1\n")
    said = json.loads(call("base.csv", "tuned.csv", "--task", "quiz", "--json"))
    assert said == {
        "run": 1, "trial": "base", "outcomes": 4, "arms": ["base", "tuned"], "tasks": ["quiz"],
        "scores": ["accuracy"], "ignored": ["note"],
    }  # fmt: skip
    with Store.open(place) as store:
        one, two = (store.outcomes(each["arm"], each["task"]) for each in store.run()["covers"])
    assert one.unit.tolist() == two.unit.tolist()
    assert (one.score("accuracy") - two.score("accuracy")).tolist() == [0, -1]


def test_files_imported_on_different_days_can_be_paired(place):
    write("monday.csv", "unit,correct\na,1\nb,0\n")
    write("friday.csv", "unit,correct\nb,1\na,1\nc,0\n")
    call("monday.csv")
    call("friday.csv")
    with Store.open(place) as store:
        first, second = (store.run(name)["covers"][0] for name in ("monday", "friday"))
        assert first["task"] == second["task"]
        assert first["arm"] != second["arm"]
        assert store.outcomes(second["arm"], second["task"]).score("correct").tolist() == [1, 1, 0]


def test_the_same_file_again_adds_nothing_and_a_mended_one_is_new(place):
    write("r.csv", "unit,correct\na,1\nb,0\n")
    call("r.csv")
    assert "0 outcomes" in call("r.csv")
    with Store.open(place) as store:
        assert len(store.rows(2)) == 2  # still a run about them
    write("r.csv", "unit,correct\na,1\nb,1\n")
    assert "2 outcomes" in call("r.csv")
    with Store.open(place) as store:
        assert [row["scores"]["correct"] for row in store.rows(3)] == [1, 1]
        assert [row["scores"]["correct"] for row in store.rows(1)] == [1, 0]


def test_bounds(place):
    write("r.csv", "unit,f1,length,sure\na,0.5,12,1\nb,0.75,8,0\n")
    call("r.csv", "--bounds", "f1:0:1", "--lower-better", "length", "--quiet")
    with Store.open(place) as store:
        assert store.outcomes(1, 1).specs == (
            ScoreSpec("f1", True, 0.0, 1.0),
            ScoreSpec("length", False),
            ScoreSpec("sure", True, 0.0, 1.0),
        )


def test_units_must_be_the_same_as_before(place):
    write("a.csv", "unit,correct,target\na,1,x\n")
    write("b.csv", "unit,correct,target\na,1,y\n")
    call("a.csv")
    with pytest.raises(UsageError, match=r"stood for other content.*another name with --task"):
        call("b.csv")
    with Store.open(place) as store:
        assert store.run("b")["status"] == "failed"
    assert "1 outcomes" in call("b.csv", "--task", "other")


def test_what_pandas_and_spreadsheets_write(place):
    write("p.csv", "\ufeff,unit,correct\r\n0,a,True\r\n1,b,False\r\n\r\n")
    assert json.loads(call("p.csv", "--json"))["scores"] == ["correct"]


def test_any_text_and_a_very_long_line(place):
    rows = [
        {"unit": "a\ud800", "score": 1, "output": "nul \0, half \udfff"},
        {"unit": "b", "score": 0, "output": "x" * 10_000_000},
    ]
    write("r.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    call("r.jsonl")
    with Store.open(place) as store:
        first, second = store.rows(1)
        assert first["output"] == rows[0]["output"]
        assert second["output"] == rows[1]["output"]


FAULTS = {
    "missing unit": ("r.csv", "id,score\na,1\n", r"r\.csv: the column unit is missing; .*id, score"),
    "no score": ("r.csv", "unit,note\na,x\n", r"r\.csv: no score; give a column score"),
    "slip": ("r.csv", "arms,unit,score\nx,a,1\n", r'unknown column "arms"\. Nearest: arm\.'),
    "slip in score": ("r.csv", "unit,scor\na,1\n", r'unknown column "scor"\. Nearest: score\.'),
    "text score": ("r.csv", "unit,score\na,1\nb,good\n", r'r\.csv, line 3: score must be a number, got "good"'),
    "mixed": ("r.csv", "unit,acc\na,1\n\nb,x\n", r'r\.csv, line 4: acc must be a number, got "x"'),
    "nan": ("r.csv", "unit,score\na,1\nb,NaN\n", r'line 3: the score "score" is NaN'),
    "json nan": ("r.jsonl", '{"unit": "a", "score": NaN}\n', r'line 1: the score "score" is NaN'),
    "no score in a row": ("r.csv", "unit,score\na,1\nb,\n", r"line 3: no score; give one, or the status"),
    "duplicate": ("r.csv", "unit,score\na,1\nb,0\na,0\n", r'line 4: unit "a" of arm r on imported .* in line 2; tell repeats'),
    "empty unit": ("r.csv", "unit,score\n,1\n", r"line 2: unit is empty"),
    "mixed units": ("r.jsonl", '{"unit": 1, "score": 1}\n{"unit": "1", "score": 1}\n', r"line 2: unit mixes text and numbers"),
    "float unit": ("r.jsonl", '{"unit": 1.5, "score": 1}\n', r"line 1: unit must be text or a whole number, got 1\.5"),
    "list score": ("r.jsonl", '{"unit": 1, "score": [1]}\n', r"line 1: score must be a number, got \[1\]"),
    "status": ("r.csv", "unit,score,status\na,1,fine\n", r'line 2: status must be one of ok, error, limit, got "fine"'),
    "repeat": ("r.csv", "unit,score,repeat\na,1,x\n", r'line 2: repeat must be a whole number from 0, got "x"'),
    "negative": ("r.csv", "unit,score,repeat\na,1,-1\n", r"line 2: repeat must be a whole number"),
    "half": ("r.csv", "unit,score,build\na,1,0.5\n", r"line 2: build must be a whole number"),
    "cluster": ("r.csv", "unit,score,cluster,repeat\na,1,x,0\na,1,y,1\n", r'line 3: unit "a" has cluster "y" here and "x" elsewhere'),
    "empty": ("r.csv", "", r"r\.csv holds no rows"),
    "header only": ("r.csv", "unit,score\n", r"r\.csv holds no rows"),
    "blank lines": ("r.jsonl", "\n \n", r"r\.jsonl holds no rows"),
    "ragged": ("r.csv", "unit,score\na,1\nb,1,2\n", r"line 3: 3 fields, but the first line names 2 columns"),
    "open quote": ("r.csv", 'unit,score\n"a,1\n', r"line 2: not CSV"),
    "semicolons": ("r.csv", "unit;score\na;1\n", r"divided by commas, not semicolons"),
    "column twice": ("r.csv", "unit,score,score\na,1,1\n", r'the column "score" comes twice'),
    "not json": ("r.jsonl", '{"unit": 1, "score": 1}\n{"unit": 2\n', r"line 2: not JSON"),
    "not an object": ("r.jsonl", "[1]\n", r"line 1: a line must be an object"),
    "not parquet": ("r.parquet", "PAR1 it is not", r"r\.parquet: not a Parquet file"),
    "ending": ("r.xlsx", "x", r"r\.xlsx: the name must end in \.jsonl"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_one_sentence_with_the_place(place, name):
    file, text, sentence = FAULTS[name]
    write(file, text)
    with pytest.raises(UsageError, match=sentence) as raised:
        call(file)
    assert "\n" not in str(raised.value)
    assert not place.exists()  # the store is not touched


@pytest.mark.parametrize(
    "data", ["unit,score\né,1\n".encode("latin-1"), "unit,score\n".encode("utf-16")]
)
def test_another_encoding(place, data):
    (place.parent.parent / "r.csv").write_bytes(data)
    with pytest.raises(UsageError, match=r"r\.csv, line [12]: this is not UTF-8"):
        call("r.csv")


def test_faults_of_options(place):
    write("r.csv", "unit,f1\na,2\n")
    with pytest.raises(UsageError, match=r'No score "f2"\. Nearest: f1'):
        call("r.csv", "--lower-better", "f2")
    with pytest.raises(UsageError, match=r'--bounds must be NAME:LOW:HIGH, got "f1:0"'):
        call("r.csv", "--bounds", "f1:0")
    with pytest.raises(UsageError, match="both finite"):
        call("r.csv", "--bounds", "f1:0:inf")
    with pytest.raises(UsageError, match="must be below"):
        call("r.csv", "--bounds", "f1:1:1")
    with pytest.raises(UsageError, match="line 2: f1 is 2, outside its bounds"):
        call("r.csv", "--bounds", "f1:0:1")
    with pytest.raises(UsageError, match=r"No file absent\.csv"):
        call("absent.csv")


def test_a_parquet_of_floats_as_units_names_the_row(place):
    pl.DataFrame({"unit": [1.0, 2.0], "score": [1, 0]}).write_parquet("r.parquet")
    with pytest.raises(UsageError, match=r"r\.parquet, row 1: unit must be text or a whole number"):
        call("r.parquet")
    pl.DataFrame({"unit": ["a", "b"], "score": [1.0, float("nan")]}).write_parquet("r.parquet")
    with pytest.raises(UsageError, match=r'row 2: the score "score" is NaN'):
        call("r.parquet")


def test_a_locked_store_fails_with_a_sentence(place, monkeypatch):
    write("r.csv", "unit,score\na,1\n")
    monkeypatch.setattr(
        Store, "add", lambda *_: (_ for _ in ()).throw(RunError("The disk is full."))
    )
    with pytest.raises(RunError, match="full"):
        call("r.csv")
    monkeypatch.undo()
    with Store.open(place) as store:
        assert store.run("last")["status"] == "failed"
