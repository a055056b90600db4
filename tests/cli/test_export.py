import csv
import json
import math
import resource

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from equipoise.cli import export, import_
from equipoise.core import Outcome, ScoreSpec, Unit, Usage, UsageError
from equipoise.store import Store

COLUMNS = [
    "arm", "task", "unit", "build", "repeat", "attempt", "status", "score.correct", "score.nats",
    "output", "error_kind", "error", "input_tokens", "output_tokens", "dollars", "seconds", "seed",
    "cluster", "stratum",
]  # fmt: skip


def call(module, *arguments):
    app = typer.Typer()
    app.command()(module.command)
    found = CliRunner().invoke(app, list(map(str, arguments)))
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.stdout


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.sqlite"
    monkeypatch.setenv("EQUIPOISE_STORE", str(path))
    with Store.open(path) as store:
        run = store.begin_run("mine", "", {})
        arm = store.arm("a", "plain", {})
        task = store.task("t", "sums", {}, [ScoreSpec("correct", low=0, high=1)])
        units = [Unit("u0", cluster="c", stratum="easy"), Unit("u1"), Unit("u2"), Unit("u3")]
        numbers = store.add_units(task, units).tolist()
        outcomes = [
            Outcome("u0", {"correct": 1, "nats": 0.1 + 0.2}, output='one,\n"two" é'),
            Outcome("u1", {"correct": 0, "nats": -math.inf}, output={"x": [1, None]}, seed=5),
            Outcome("u2", status="error", error_kind="timeout", error="Too slow."),
            Outcome("u3", {"correct": 1}, output="half \ud800 nul \0", usage=Usage(3, 2, 0.5)),
        ]
        store.add(run, arm, task, 0, list(zip(numbers, outcomes, strict=True)))
        store.add(run, arm, task, 0, [(2, Outcome("u2", {"correct": 0.0}, "limit"))])
        store.add(run, arm, task, 1, [(0, Outcome("u0", {"correct": 0.0}))], 2)
        store.end_run(run, "finished")
    return path


def test_parquet(place):
    assert call(export, "-o", "x.parquet") == "Run 1 (mine): 5 outcomes in x.parquet.\n"
    frame = pl.read_parquet("x.parquet")
    assert frame.columns == COLUMNS
    assert frame["unit"].to_list() == ["u0", "u1", "u2", "u3", "u0"]
    assert frame["score.correct"].to_list() == [1, 0, 0, 1, 0]
    assert frame["score.nats"].to_list() == [0.1 + 0.2, -math.inf, None, None, None]
    assert frame["attempt"].to_list() == [0, 0, 1, 0, 0]
    assert frame["status"].to_list() == ["ok", "ok", "limit", "ok", "ok"]
    assert frame["repeat"].to_list() == [0, 0, 0, 0, 2]
    assert frame["build"].to_list() == [0, 0, 0, 0, 1]
    assert frame["output"].to_list() == [
        'one,\n"two" é', '{"x": [1, null]}', None, "half \\ud800 nul \0", None,
    ]  # fmt: skip
    assert frame["cluster"].to_list() == ["c", None, None, None, "c"]
    assert frame["input_tokens"].to_list() == [0, 0, 0, 3, 0]


def test_csv(place):
    call(export, "mine", "-o", "x.csv")
    with open("x.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert [row["score.correct"] for row in rows] == ["1.0", "0.0", "0.0", "1.0", "0.0"]
    assert float(rows[0]["score.nats"]) == 0.1 + 0.2
    assert rows[0]["output"] == 'one,\n"two" é'
    assert rows[2]["score.nats"] == ""


def test_jsonl(place):
    call(export, 1, "-o", "x.jsonl")
    with open("x.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line, parse_constant=pytest.fail) for line in file]
    assert list(rows[0]) == COLUMNS
    assert rows[1]["output"] == {"x": [1, None]}
    assert rows[1]["score.nats"] is None  # JSON has no infinity
    assert rows[3]["output"] == "half \ud800 nul \0"


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_what_is_exported_can_be_imported(place, ending):
    call(export, "-o", f"x.{ending}")
    call(import_, f"x.{ending}", "--store", "y.sqlite")
    with Store.open("y.sqlite") as store:
        rows = store.rows(1)
        found = store.outcomes(1, 1)
    keys = ("arm", "task", "unit", "build", "repeat", "status")
    with Store.open(place) as store:
        expected = store.rows(1)
        before = store.outcomes(1, 1)
    assert [[row[key] for key in keys] for row in rows] == [
        [row[key] for key in keys] for row in expected
    ]
    assert found.score("correct").tolist() == before.score("correct").tolist()
    assert rows[0]["output"] == expected[0]["output"]


def test_json_and_quiet(place):
    assert json.loads(call(export, "-o", "x.csv", "--json")) == {
        "run": 1, "trial": "mine", "rows": 5, "file": "x.csv",
    }  # fmt: skip
    assert call(export, "-o", "x.csv", "--quiet") == ""


def test_a_run_without_outcomes_gives_an_empty_table(place):
    with Store.open(place) as store:
        store.begin_run("empty", "", {})
    for name in ("x.parquet", "x.csv", "x.jsonl"):
        call(export, "empty", "-o", name)
    assert pl.read_parquet("x.parquet").shape == (0, 17)
    assert pl.read_csv("x.csv").shape == (0, 17)


def test_faults(place, tmp_path):
    with pytest.raises(UsageError, match="Say where to: equipoise export last -o"):
        call(export)
    with pytest.raises(UsageError, match=r"x\.xlsx: the name must end in \.parquet"):
        call(export, "-o", "x.xlsx")
    with pytest.raises(UsageError, match=r'No run "mien"\. Nearest: mine'):
        call(export, "mien", "-o", "x.csv")
    with pytest.raises(UsageError, match=r"nowhere/x\.csv cannot be written"):
        call(export, "-o", "nowhere/x.csv")
    with pytest.raises(UsageError, match="No store at"):
        call(export, "-o", "x.csv", "--store", "absent.sqlite")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.sqlite"]


def test_a_failed_export_leaves_the_old_file(place, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("old")

    def broken(*_):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(Store, "stream", broken)
    with pytest.raises(Exception, match="could not be written: No space left"):
        call(export, "-o", "x.csv")
    assert (tmp_path / "x.csv").read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.sqlite", "x.csv"]


def test_memory_is_bounded_by_a_shard(place, tmp_path):
    """Six times the rows must not take much more memory."""
    peak = {}
    for n in (5_000, 30_000):
        path = tmp_path / f"{n}.sqlite"
        with Store.open(path) as store:
            run, arm = store.begin_run("big", "", {}), store.arm("a", "a", {})
            task = store.task("t", "t", {}, [ScoreSpec("correct")])
            for start in range(0, n, 5_000):
                numbers = store.add_units(
                    task, [Unit(f"u{i}") for i in range(start, start + 5_000)]
                )
                rows = [(int(i), Outcome("", {"correct": 1.0}, output="x" * 900)) for i in numbers]
                store.add(run, arm, task, 0, rows)
        call(export, "-o", f"{n}.jsonl", "--store", path)
        peak[n] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert peak[30_000] - peak[5_000] < 25  # the larger file alone has 35 MB of text
