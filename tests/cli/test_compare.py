"""`equipoise compare` on files and runs, as a user gives it."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from equipoise.cli import main


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EQUIPOISE_STORE", raising=False)

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(list(map(str, words)))
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return run


def files(tasks=3, n=120, shift=0.0, suffixes=(".csv", ".parquet")):
    """Write one file an arm, in another order each, and one with both arms."""
    rng = np.random.default_rng(0)
    frames = []
    base = rng.normal(size=(tasks, n))
    for name, more in (("base", 0.0), ("tuned", shift)):
        passed = base + more + rng.normal(0, 0.5, size=(tasks, n)) > 0
        frame = pl.DataFrame(
            {
                "task": np.repeat([f"task-{t}" for t in range(tasks)], n),
                "unit": [f"{t}-{i}" for t in range(tasks) for i in range(n)],
                "cluster": [f"{t}-{i // 4}" for t in range(tasks) for i in range(n)],
                "correct": passed.ravel().astype(int),
                "output": [f"{name} says {i}" for i in range(tasks * n)],
            }
        )
        frames.append(frame.with_columns(arm=pl.lit(name)))
        frame = frame.sample(fraction=1.0, shuffle=True, seed=len(name))
        frame.write_csv(f"{name}.csv")
        frame.write_parquet(f"{name}.parquet")
        frame.write_ndjson(f"{name}.jsonl")
    pl.concat(frames).write_csv("both.csv")


def test_files_runs_and_a_file_of_two_arms_say_the_same(call):
    files(shift=0.3)
    call("import", "base.csv", "tuned.csv", "--quiet")
    call("import", "base.csv", "--trial", "one", "--quiet")
    call("import", "tuned.csv", "--trial", "two", "--quiet")
    ways = (
        ("base.csv", "tuned.csv"), ("base.parquet", "tuned.jsonl"), ("both.csv",), ("1",),
        ("one", "two"), ("base.csv", "two"), ("one", "tuned.parquet"),
    )  # fmt: skip
    found = []
    for names in ways:
        _, out, _ = call("compare", *names, "--json")
        row = json.loads(out)
        found.append(
            {each["task"]: (each["value"], each["low"], each["clusters"], each["p_adjusted"])
             for each in row["comparisons"]}
            | {"overall": (row["overall"][0]["value"], row["overall"][0]["low"],
                           row["overall"][0]["clusters"], row["overall"][0]["p_adjusted"])}
        )  # fmt: skip
    for each in found[1:]:
        assert each.keys() == found[0].keys()
        for name, values in each.items():
            assert values == pytest.approx(found[0][name]), name


def test_what_people_read(call):
    files(tasks=12, shift=0.25)
    _, out, _ = call("compare", "base.csv", "tuned.csv")
    assert "Over 12 tasks, each once, correct:" in out
    assert "tuned is better than base by" in out
    assert "may be noise (half of them could show no less than" in out
    assert "--all lists them." in out
    shown = out.count("task-")
    _, out, _ = call("compare", "base.csv", "tuned.csv", "--all", "--flips", "1")
    assert out.count("task-") >= 12 > shown
    assert "base: base says" in out
    files(tasks=1)
    _, out, _ = call("compare", "base.csv", "tuned.csv")
    assert "tuned against base:" in out
    assert "which may be noise" in out
    assert "more units would settle it" in out


def test_exit_codes_for_pipelines(call):
    files(tasks=3, shift=-0.4)
    assert call("compare", "base.csv", "tuned.csv")[0] == 0
    assert call("compare", "base.csv", "tuned.csv", "--fail-on", "worse")[0] == 1
    assert call("compare", "tuned.csv", "base.csv", "--fail-on", "worse")[0] == 0
    assert call("compare", "base.csv", "tuned.csv", "--margin", "0.02")[0] == 1
    assert call("compare", "tuned.csv", "base.csv", "--claim", "beats")[0] == 0
    code, out, _ = call("compare", "tuned.csv", "base.csv", "--margin", "0.001", "--on", "each")
    assert code in (0, 3)
    assert "base is no worse than tuned on task-0 (correct) within 0.001" in out
    files(tasks=1)
    assert call("compare", "base.csv", "tuned.csv", "--margin", "0.001")[0] == 3


def test_reports_are_safe_and_whole(call):
    files(tasks=2, shift=0.4)
    text = Path("tuned.csv").read_text().replace("task-1", "|@all <b>\x1b[31m")
    Path("tuned.csv").write_text(text)
    text = Path("base.csv").read_text().replace("task-1", "|@all <b>\x1b[31m")
    Path("base.csv").write_text(text)
    _, out, _ = call("compare", "base.csv", "tuned.csv", "--markdown", "d/c.md", "--csv", "c.csv",
                     "--all")  # fmt: skip
    assert "\x1b" not in out
    said = Path("d/c.md").read_text()
    assert "tuned is better than base" in said
    assert "<b>" not in said
    assert "\\|@&#8203;all" in said
    rows = list(csv.DictReader(Path("c.csv").read_text().splitlines()))
    assert rows[0]["task"] == ""
    assert len(rows) == 3
    assert float(rows[0]["value"]) > 0


def test_scores_and_bounds_of_files(call):
    Path("a.csv").write_text("unit,loss,rating\nu,1,3\nv,2,4\nw,3,\n")
    Path("b.csv").write_text("unit,loss,rating\nu,1,5\nv,1,5\nw,1,5\n")
    _, out, _ = call("compare", "a.csv", "b.csv", "--lower-better", "loss", "--bounds",
                     "rating:1:5", "--score", "loss", "--json")  # fmt: skip
    (row,) = json.loads(out)["comparisons"]
    assert (row["score"], row["value"]) == ("loss", 1.0)
    code, _, err = call("compare", "a.csv", "b.csv", "--score", "los")
    assert (code, "Nearest: loss" in err) == (2, True)
    assert "outside its bounds" in call("compare", "a.csv", "b.csv", "--bounds", "loss:0:2")[2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("a.csv",), "a.csv has one arm; name another run or file"),
        (("a.csv", "nowhere.csv"), "No file nowhere.csv."),
        (("a.csv", "t.csv"), "share no task with common units"),
        (("a.csv", "f.csv"), "share no task with common units"),
        (("a.csv", "s.csv"), "it has x on one side, other on the other"),
        (("a.csv", "two.csv"), "share no arm label; name one of each: --arm a --other x|y"),
        (("a.csv", "b.csv", "--arm", "z"), 'No arm "z" in a.csv. There are: a.'),
        (("a.csv", "b.csv", "--on", "imported"), "--on says what a claim is about"),
        (("a.csv", "b.csv", "--claim", "matches"), "matches needs a margin above 0"),
        (("a.csv", "b.csv", "--level", "1"), "--level must be between"),
        (("a.csv", "notes.txt"), "must end in .jsonl"),
        (("a.csv", "last"), "No store at"),
        (("a.csv", "b.csv", "--markdown", "a.csv/x.md"), "cannot be written"),
    ],
)
def test_faults_are_one_sentence(call, words, sentence):
    Path("a.csv").write_text("unit,x\nu,1\nv,0\n")
    Path("b.csv").write_text("unit,x\nu,1\nv,1\n")
    Path("t.csv").write_text("task,unit,x\nother,u,1\n")
    Path("f.csv").write_text("unit,x\nq,1\n")
    Path("s.csv").write_text("unit,other\nu,1\nv,2\n")
    Path("two.csv").write_text("arm,unit,x\nx,u,1\ny,u,1\n")
    Path("notes.txt").write_text("hello")
    code, _, err = call("compare", *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_an_arm_cannot_win_by_failing(call):
    Path("a.csv").write_text("unit,x,error\n" + "".join(f"u{i},{i % 2},\n" for i in range(40)))
    Path("b.csv").write_text(
        "unit,x,error\n" + "".join(f"u{i},1,\n" if i % 2 else f"u{i},,broke\n" for i in range(40))
    )
    _, out, _ = call("compare", "a.csv", "b.csv", "--json")
    (row,) = json.loads(out)["comparisons"]
    assert (row["value"], row["lost"], row["n"]) == (0.0, 0.0, 40)
    text = Path("a.csv").read_text().replace("u1,1", "u1,7.5")
    Path("a.csv").write_text(text)  # without bounds there is no worst value to take
    _, out, _ = call("compare", "a.csv", "b.csv")
    assert "50.0% of the pairs lost to errors" in " ".join(out.split())
    assert call("compare", "a.csv", "b.csv", "--margin", "1")[0] == 3


def test_scores_that_a_task_lacks_are_no_rows(call):
    rows = "task,unit,x,y\ns,u,1,\ns,v,0,\nt,u,,3\nt,v,,4\n"
    Path("a.csv").write_text(rows)
    Path("b.csv").write_text(rows.replace("0", "1"))
    _, out, _ = call("compare", "a.csv", "b.csv", "--json")
    rows = json.loads(out)["comparisons"]
    assert [(row["task"], row["score"]) for row in rows if row["n"]] == [("s", "x"), ("t", "y")]


def test_two_names_of_one_run_compare_its_arms(call):
    files(tasks=1)
    call("import", "both.csv", "--quiet")
    _, out, _ = call("compare", "1", "last", "--json")
    (row,) = json.loads(out)["comparisons"]
    assert (row["arm"], row["versus"]) == ("tuned", "base")


def test_a_run_with_one_task_lends_its_name_to_a_file(call):
    Path("quiz.csv").write_text("arm,task,unit,x\na,quiz,u,1\na,quiz,v,0\na,quiz,w,0\n")
    call("import", "quiz.csv", "--quiet")
    Path("new.csv").write_text("unit,x\nu,1\nv,1\nw,0\n")
    _, out, _ = call("compare", "last", "new.csv", "--json")
    (row,) = json.loads(out)["comparisons"]
    assert (row["arm"], row["versus"], row["task"]) == ("new", "a", "quiz")
