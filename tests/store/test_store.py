import sqlite3
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core import Outcome, RunError, ScoreSpec, Unit, UsageError
from equipoise.store import Store, default_store

# Where


def test_default_place(monkeypatch):
    monkeypatch.delenv("EQUIPOISE_STORE", raising=False)
    assert default_store() == Path(".equipoise/store.sqlite")
    monkeypatch.setenv("EQUIPOISE_STORE", "/data/x.sqlite")
    assert default_store() == Path("/data/x.sqlite")
    monkeypatch.setenv("EQUIPOISE_STORE", "postgresql+psycopg://host/name")
    assert default_store() == "postgresql+psycopg://host/name"


@pytest.mark.parametrize("name", ["a b.sqlite", "x?mode=ro.sqlite", "x#y%20.sqlite", "ünï.sqlite"])
def test_any_file_name_will_do(tmp_path, name):
    path = tmp_path / "deep" / "er" / name
    Store.open(path).close()
    assert [each.name for each in path.parent.iterdir()] == [name]
    Store.open(str(path), readonly=True).close()


def test_closing_leaves_one_file(filled, tmp_path):
    f = filled()
    f.add(range(10))
    assert (tmp_path / "store.sqlite-wal").exists()
    f.store.close()
    assert [each.name for each in tmp_path.iterdir()] == ["store.sqlite"]
    with Store.open(f.path, readonly=True) as store:
        assert len(store.outcomes(f.arm, f.task)) == 10
    assert [each.name for each in tmp_path.iterdir()] == ["store.sqlite"]


def test_the_settings_that_keep_data_safe(filled):
    with filled().store._connected() as connection:
        ask = lambda name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()  # noqa: E731
        found = [
            ask(name) for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert found == ["wal", 2, 1, 30_000]


# Registering


def test_arms_and_tasks_are_added_once(filled):
    f = filled()
    assert f.store.arm("arm-a", "renamed", {}) == f.arm
    assert f.store.task("task", "renamed", {}, []) == f.task
    assert f.arm != f.other
    assert f.store.find("arm-b", "task") == (f.other, f.task)
    assert f.store.find("arm-c", "task") == (None, f.task)


def test_units_keep_their_numbers(filled):
    f = filled(n=10)
    assert f.numbers.tolist() == list(range(10))
    again = [f.units[3], Unit("new"), f.units[0]]
    assert f.store.add_units(f.task, again).tolist() == [3, 10, 0]
    other = f.store.task("other", "other", {}, [])
    assert f.store.add_units(other, f.units[5:]).tolist() == [0, 1, 2, 3, 4]
    assert f.store.add_units(other, []).tolist() == []


def test_many_units_at_once(filled):
    f = filled(n=12_345)
    assert f.numbers.tolist() == list(range(12_345))
    assert f.store.add_units(f.task, f.units[::-1]).tolist() == list(range(12_345))[::-1]


@pytest.mark.parametrize(
    "changed",
    [
        Unit("u1", "1 + 1", "3"),
        Unit("u1", "another", "2"),
        Unit("u1", "1 + 1", "2", cluster="c"),
        Unit("u1", "1 + 1", "2", split="train"),
    ],
)
def test_an_id_that_stands_for_something_else_is_refused(filled, changed):
    f = filled()
    with pytest.raises(UsageError, match=r'Task sums: the unit id "u1" stood for other content'):
        f.store.add_units(f.task, [Unit("fresh"), changed])
    assert f.store.add_units(f.task, [Unit("later")]).tolist() == [10]  # nothing half done


def test_an_id_twice_is_refused(filled):
    f = filled()
    with pytest.raises(UsageError, match=r'sums gives the unit id "x" twice'):
        f.store.add_units(f.task, [Unit("y"), Unit("x"), Unit("x")])


# Adding


def test_what_is_done_is_not_done_again(filled):
    f = filled()
    assert f.add([0, 1]) == 2
    assert f.add([2], status="limit") == 1
    assert f.add([3], None, status="error", error_kind="timeout", error="Too slow.") == 1
    assert f.store.done(f.arm, f.task, 0, f.numbers, 2) == {(0, 0), (1, 0), (2, 0)}
    assert f.store.done(f.arm, f.task, 0, f.numbers, 2, include_errors=True) == {
        (0, 0), (1, 0), (2, 0), (3, 0),
    }  # fmt: skip
    mask = f.store.done_mask(f.arm, f.task, 0, f.numbers[[3, 1]], 1)
    assert mask.tolist() == [[False], [True]]
    assert not f.store.done_mask(f.arm, f.task, 1, f.numbers, 1).any()
    assert not f.store.done_mask(f.other, f.task, 0, f.numbers, 1).any()
    assert f.store.done_mask(f.arm, f.task, 0, f.numbers[:0], 3).shape == (0, 3)


def test_failures_that_are_not_the_subjects_are_told_apart(filled):
    f = filled()
    f.add([0, 1, 2])
    assert f.store.outcomes(f.arm, f.task).excused is None
    f.add([3], None, status="error", error_kind="user", error="The user said nothing.")
    f.add([4], None, status="error", error="It broke.")
    f.add([5], None, status="error", error_kind="timeout", error="Too slow.")
    found = f.store.outcomes(f.arm, f.task)
    assert found.failed.tolist() == [False] * 3 + [True] * 3
    assert found.excused.tolist() == [False] * 3 + [True, False, False]
    assert found.blamed.tolist() == [False] * 4 + [True] * 2
    assert found.take(found.failed).excused.tolist() == [True, False, False]
    f.add([3], 1.0)  # another try went well
    assert f.store.outcomes(f.arm, f.task).excused is None


def test_a_second_outcome_is_ignored_and_an_error_is_tried_again(filled):
    f = filled()
    f.add([0, 1, 2], 1.0)
    assert f.add([0, 1, 2, 3], 0.0) == 1
    assert f.scores().tolist() == [1, 1, 1, 0]
    f.add([4], None, status="error", error="first")
    f.add([4], None, status="error", error="second")
    failed = f.store.outcomes(f.arm, f.task)
    assert failed.failed.tolist() == [False] * 4 + [True]
    f.add([4], 0.5)
    assert f.add([4], 0.7) == 0
    assert f.scores().tolist() == [1, 1, 1, 0, 0.5]
    whole = f.store.unit(f.arm, f.task, "u4")
    assert [each["error"] for each in whole["attempts"]] == ["first", "second", None]
    assert whole["attempt"] == 2
    assert f.store.run(f.run)["written"] == 7


def test_one_call_may_hold_an_error_and_its_next_attempt(filled):
    f = filled()
    bad = Outcome("u0", status="error", error="bad")
    rows = [(0, bad), (0, f.outcome(0, 0.25)), (0, f.outcome(0, 0.75))]
    assert f.store.add(f.run, f.arm, f.task, 0, rows, 0) == 2
    assert f.scores().tolist() == [0.25]


def test_scattered_and_large_batches(filled):
    f = filled(n=12_000)
    assert f.add([11_999, 0, 6_000]) == 3
    assert f.add([6_000, 3, 11_999]) == 1
    assert f.add(range(12_000), 0.0) == 11_996
    assert f.scores().sum() == 4


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 4), st.sampled_from(["ok", "error", "limit"]), st.integers(0, 9)
            ),
            max_size=6,
        ),
        max_size=8,
    )
)
def test_against_a_model_in_a_dictionary(tmp_path_factory, batches):
    """A dictionary of lists of attempts says what the store must say."""
    with Store.open(tmp_path_factory.mktemp("m") / "s.sqlite") as store:
        run, arm = store.begin_run("t", "", {}), store.arm("a", "a", {})
        task = store.task("t", "t", {}, [ScoreSpec("s")])
        numbers = store.add_units(task, [Unit(str(i)) for i in range(5)])
        model: dict[int, list[tuple[str, int]]] = {}
        for batch in batches:
            rows = [(i, Outcome(str(i), {"s": value}, status)) for i, status, value in batch]
            expected = 0
            for i, status, value in batch:
                tried = model.setdefault(i, [])
                if not tried or tried[-1][0] == "error":
                    tried.append((status, value))
                    expected += 1
            assert store.add(run, arm, task, 0, rows) == expected
        last = {i: tried[-1] for i, tried in sorted(model.items())}
        found = store.outcomes(arm, task)
        assert found.unit.tolist() == list(last)
        assert found.score("s").tolist() == [value for _, value in last.values()]
        assert found.failed.tolist() == [status == "error" for status, _ in last.values()]
        done = {(i, 0) for i, (status, _) in last.items() if status != "error"}
        assert store.done(arm, task, 0, numbers, 1) == done
        costs = store.costs(arm, task)
        assert costs["errors"] == len(last) - len(done)
        assert costs["attempts"] == sum(map(len, model.values()))
        shown = {row["unit"]: row for row in store.rows(arm=arm, task=task)}
        assert {int(unit): row["status"] for unit, row in shown.items()} == {
            i: status for i, (status, _) in last.items()
        }


def test_lost_references_are_refused_and_nothing_of_the_batch_stays(filled):
    f = filled()
    with pytest.raises(RunError, match="FOREIGN KEY"):
        f.store.add(f.run, f.arm, f.task, 0, [(0, f.outcome(0)), (99, f.outcome(1))])
    assert len(f.store.outcomes(f.arm, f.task)) == 0
    with pytest.raises(UsageError, match="No task 77"):
        f.store.add_units(77, [Unit("x")])


# Columns


def test_order_and_size(filled):
    f = filled(n=4)
    for build in (1, 0):
        for repeat in (1, 0):
            f.add(range(4), 10 * build + repeat, build=build, repeat=repeat)
    found = f.store.outcomes(f.arm, f.task)
    assert found.unit.tolist() == np.repeat(range(4), 4).tolist()
    assert found.build.tolist() == [0, 0, 1, 1] * 4
    assert found.repeat.tolist() == [0, 1] * 8
    assert found.score("correct").tolist() == [0, 1, 10, 11] * 4
    cut = f.store.outcomes(f.arm, f.task, builds=1, repeats=2, units=3)
    assert cut.score("correct").tolist() == [0, 1] * 3
    assert f.store.costs(f.arm, f.task, builds=1, repeats=2, units=3)["outcomes"] == 6
    assert (found.arm, found.task) == ("a", "sums")


def test_nothing_yet(filled):
    found = filled().store.outcomes(1, 1)
    assert len(found) == 0
    assert found.score("correct").dtype == float
    assert found.failed.dtype == bool


def test_missing_and_undeclared_scores(filled):
    f = filled(n=3)
    rows = [
        (0, Outcome("u0", {"correct": 1})),
        (1, Outcome("u1", {"extra": 0.1 + 0.2, "correct": float("nan")})),
        (2, Outcome("u2", {"nats": float("-inf")})),
    ]
    f.store.add(f.run, f.arm, f.task, 0, rows)
    found = f.store.outcomes(f.arm, f.task)
    assert list(found.scores) == ["correct", "extra", "nats"]
    np.testing.assert_array_equal(found.score("correct"), [1, np.nan, np.nan])
    np.testing.assert_array_equal(found.score("extra"), [np.nan, 0.1 + 0.2, np.nan])
    np.testing.assert_array_equal(found.score("nats"), [np.nan, np.nan, -np.inf])
    assert found.spec("correct") == ScoreSpec("correct", low=0, high=1)
    only = f.store.outcomes(f.arm, f.task, score_names=["extra", "absent"])
    assert list(only.scores) == ["extra", "absent"]
    assert np.isnan(only.score("absent")).all()
    assert f.store.score_names(f.run) == ["correct", "extra", "nats"]


def test_clusters_and_strata(filled):
    f = filled(
        n=6,
        cluster=lambda i: "yx"[i % 2] if i < 4 else None,
        stratum=lambda i: ["hard", None][i % 2],
    )
    f.add(range(6))
    found = f.store.outcomes(f.arm, f.task)
    assert found.cluster.tolist() == [1, 0, 1, 0, 2, 3]  # the last two are alone
    assert [found.strata[code] for code in found.stratum] == ["hard", ""] * 3
    f.add([5, 2], arm=f.other)
    assert f.store.outcomes(f.other, f.task).cluster.tolist() == [1, 3]


def test_reading_is_lean(filled):
    f = filled(n=10_000)
    for repeat in range(5):
        f.add(range(10_000), float(repeat), repeat=repeat)
    tracemalloc.start()
    found = f.store.outcomes(f.arm, f.task)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 50_000
    assert peak < 6_000_000 + 100 * len(found)  # bytes: a chunk of rows, and the columns


# Rows for people


def test_rows(filled):
    f = filled(n=5, cluster=lambda i: f"c{i}")
    f.add(range(4), 1.0)
    f.add([4], None, status="error", error_kind="timeout", error="Too slow.")
    f.add(range(5), 0.0, arm=f.other)
    rows = f.store.rows(f.run)
    assert [(row["arm"], row["unit"]) for row in rows] == [
        (arm, f"u{i}") for arm in "ab" for i in range(5)
    ]
    assert rows[1] == {
        "arm": "a", "task": "sums", "unit": "u1", "cluster": "c1", "stratum": None,
        "split": "test", "content": "1 + 1", "target": "2", "build": 0, "repeat": 0,
        "attempt": 0, "status": "ok", "scores": {"correct": 1.0}, "error_kind": None,
        "error": None, "seconds": 0.25, "seed": None, "sandbox": None, "output": "answer 1",
        "usage": {"input_tokens": 3, "output_tokens": 2, "dollars": 0.5},
    }  # fmt: skip
    assert [row["unit"] for row in f.store.rows(f.run, limit=2, offset=6)] == ["u1", "u2"]
    assert len(f.store.rows(arm=f.arm, task=f.task, limit=None)) == 5
    pick = lambda **where: f.store.rows(f.run, where=where)  # noqa: E731
    assert [row["error"] for row in pick(status="error")] == ["Too slow."]
    assert len(pick(**{"score.correct": ("<", 0.5)})) == 5
    assert len(pick(**{"score.correct": 1, "unit": ("!=", "u0")})) == 3
    assert len(pick(cluster="c2")) == 2
    with pytest.raises(UsageError, match=r'"statos"\. Nearest: status'):
        pick(statos="ok")
    with pytest.raises(UsageError, match='No comparison "~"'):
        pick(status=("~", "ok"))


def test_score_names_may_hold_dots_spaces_and_quotes(filled):
    f = filled(n=2)
    names = ["a.b", "a b", "$[0]", "ü", 'quoted "x"', "back\\slash\n"]
    rows = [(i, Outcome(f"u{i}", {name: i + j for j, name in enumerate(names)})) for i in (0, 1)]
    f.store.add(f.run, f.arm, f.task, 0, rows)
    scores = f.store.summary(f.run)[0]["scores"]
    for j, name in enumerate(names):
        assert scores[name] == {"mean": j + 0.5, "n": 2}
        assert len(f.store.rows(f.run, where={f"score.{name}": j + 1})) == 1


def test_one_unit_whole(filled):
    f = filled()
    messages = [
        {"role": "system", "content": "Think. " * 100},
        {"role": "user", "content": "1 + 1"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": {}}]},
    ]
    artifacts = {"map": np.arange(6.0).reshape(2, 3), "image": b"\x89PNG"}
    f.add(range(3), transcript=messages, artifacts=artifacts, seed=2**31, sandbox="namespaces")
    found = f.store.unit(f.arm, f.task, "u1")
    assert found["transcript"] == messages
    assert found["artifacts"]["image"] == b"\x89PNG"
    np.testing.assert_array_equal(found["artifacts"]["map"], artifacts["map"])
    assert (found["seed"], found["sandbox"]) == (2**31, "namespaces")
    with pytest.raises(UsageError, match=r'Task sums has no unit "u99"; it has such as: u0, u1'):
        f.store.unit(f.arm, f.task, "u99")
    with pytest.raises(UsageError, match=r'"u7" of task sums has no outcome in arm a'):
        f.store.unit(f.arm, f.task, "u7")


def test_repeated_messages_are_kept_once(filled):
    f = filled(n=200)
    rng = np.random.default_rng(0)
    system = {"role": "system", "content": rng.bytes(20_000).hex()}
    f.add(range(100), transcript=[system, {"role": "user", "content": "x"}])
    f.store.close()
    size = f.path.stat().st_size
    with Store.open(f.path) as f.store:
        f.add(range(100, 200), transcript=[system, {"role": "user", "content": "y"}])
    assert f.path.stat().st_size - size < 20_000  # a second copy would take more


def test_costs_count_every_attempt_and_errors_the_last(filled):
    f = filled()
    f.add([0, 1])
    f.add([2, 3], None, status="error")
    f.add([2])
    assert f.store.costs(f.arm, f.task) == {
        "units": 4, "outcomes": 4, "errors": 1, "attempts": 5,
        "input_tokens": 15, "output_tokens": 10, "dollars": 2.5, "seconds": 1.25,
    }  # fmt: skip
    assert f.store.costs(f.other, f.task)["units"] == 0


def test_summary_equals_the_columns(filled):
    f = filled(n=50)
    rng = np.random.default_rng(1)
    for i in range(50):
        f.add([i], rng.random(), repeat=0)
    f.add(range(20), 0.5, repeat=1)
    f.add([1], None, arm=f.other, status="error")
    mine, other = f.store.summary("last")
    assert (mine["arm"], mine["task"], mine["outcomes"], mine["units"]) == ("a", "sums", 70, 50)
    assert mine["scores"]["correct"]["n"] == 70
    assert mine["scores"]["correct"]["mean"] == pytest.approx(f.scores().mean(), rel=1e-14)
    assert other["errors"] == 1
    assert other["scores"]["correct"] == {"mean": None, "n": 0}


def test_disagreements(filled):
    f = filled(n=6)
    for repeat, values in enumerate([[1, 1, 0, 0, 1, 1], [1, 1, 0, 1, 1, 1]]):
        for i, value in enumerate(values):
            f.add([i], value, repeat=repeat, output=f"a{i}{repeat}")
    for repeat, values in enumerate([[1, 0, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1]]):
        for i, value in enumerate(values[:5]):
            f.add([i], value, arm=f.other, repeat=repeat, output=f"b{i}{repeat}")
        f.add([5], None, arm=f.other, repeat=repeat, status="error", error="Broke.")
    found = f.store.disagreements(f.arm, f.other, f.task, "correct")
    # a failed unit counts as the worst value, 0
    assert [(each["unit"], each["difference"]) for each in found] == [
        ("u1", -1), ("u2", 1), ("u5", -1), ("u3", 0.5),
    ]  # fmt: skip
    assert found[0]["content"] == "1 + 1"
    assert (found[0]["a"]["output"], found[0]["b"]["output"]) == ("a10", "b10")
    assert found[2]["b"]["error"] == "Broke."
    assert (found[3]["repeat"], found[3]["a"]["scores"]) == (0, {"correct": 0.0})
    assert len(f.store.disagreements(f.arm, f.other, f.task, "correct", limit=1)) == 1
    with pytest.raises(UsageError, match='No score "corect"'):
        f.store.disagreements(f.arm, f.other, f.task, "corect")


# Runs


def test_runs(filled):
    f = filled()
    f.add(range(2))
    f.store.end_run(f.run, "finished", {"claims": [1, float("nan")]})
    second = f.store.begin_run("other", "", {})
    listed = f.store.runs()
    assert [(run["id"], run["trial"], run["status"], run["written"]) for run in listed] == [
        (second, "other", "running", 0),
        (f.run, "trial", "finished", 2),
    ]
    whole = f.store.run("trial")
    assert whole["result"] == {"claims": [1, None]}
    assert whole["provenance"] == {"python": "3"}
    assert (whole["file"], whole["paper"]) == ("trial: trial", "rrs")
    assert whole["started"] <= whole["ended"]
    assert whole["covers"] == [
        {"arm": f.arm, "task": f.task, "arm_label": "a", "task_label": "sums",
         "units": None, "builds": None, "repeats": None}
    ]  # fmt: skip
    assert f.store.run("last")["id"] == f.store.run(second)["id"] == second
    assert f.store.run(str(f.run))["id"] == f.run
    with pytest.raises(UsageError, match=r'No run "trail"\. Nearest: trial\.'):
        f.store.run("trail")
    with pytest.raises(UsageError, match=r'No run "9"\. Give a number up to 2'):
        f.store.run(9)


def test_an_empty_store_says_so(tmp_path):
    with Store.open(tmp_path / "s.sqlite") as store:
        assert store.runs() == []
        with pytest.raises(UsageError, match="holds no run yet"):
            store.run("last")


def test_a_rerun_is_about_what_an_earlier_run_wrote(filled):
    f = filled(n=5)
    f.add(range(5))
    f.add(range(5), repeat=1)
    again = f.store.begin_run("trial", "", {})
    f.store.cover(again, f.arm, f.task, arm_label="control", units=3, repeats=1)
    f.store.cover(again, f.arm, f.task, arm_label="copy", units=2, repeats=1)
    f.run = again
    assert f.add(range(3)) == 0
    rows = f.store.rows(again)
    assert [(row["arm"], row["unit"]) for row in rows] == [
        ("control", "u0"), ("control", "u1"), ("control", "u2"), ("copy", "u0"), ("copy", "u1"),
    ]  # fmt: skip
    assert [each["outcomes"] for each in f.store.summary(again)] == [3, 2]
    assert [row["unit"] for part in f.store.stream(again) for row in part] == [
        row["unit"] for row in rows
    ]


# Text that models write


@pytest.mark.parametrize(
    "text", ["lone \ud800 half", "nul \0 byte", "\udfff\0", "né ✓ 🙂", "' ; --"]
)
def test_any_text_survives(filled, text):
    f = filled(n=1)
    message = {"role": "assistant", "content": text}
    f.add([0], output={"a": [text]}, transcript=[message], error=text, status="limit")
    extra = f.store.task(text, text, {"x": text}, [ScoreSpec(text.replace("\0", ""))])
    f.store.add_units(extra, [Unit(text, text, text, text, text)])
    run = f.store.begin_run(text, text, {"x": text})
    f.store.add(run, f.arm, extra, 0, [(0, Outcome(text, {text: 1}, sandbox=text))])
    f.store.end_run(run, "finished", {"x": text})
    found = f.store.unit(f.arm, f.task, "u0")
    assert found["output"] == {"a": [text]}
    assert found["transcript"] == [message]
    assert f.store.run(run)["result"] == {"x": text}
    row = f.store.unit(f.arm, extra, text)
    assert row["content"] == row["target"] == text
    assert "\0" not in row["unit"]
    row["unit"].encode()
    assert f.store.run(run)["covers"][0]["task"] == extra


def test_the_file_is_plain_sqlite(filled):
    """Anybody's SQL can read scores and short answers."""
    f = filled(n=3)
    f.add(range(3), 0.5)
    f.store.close()
    with sqlite3.connect(f.path) as plain:
        row = plain.execute(
            "SELECT avg(scores ->> '$.correct'), min(cast(output AS text)), count(*) FROM outcomes"
        ).fetchone()
    plain.close()
    assert row == (0.5, '"answer 0"', 3)


def test_small_on_disk(filled, tmp_path):
    f = filled(n=5_000)
    for i in range(0, 5_000, 500):
        rows = [
            (
                j,
                Outcome(
                    f"u{j}",
                    {"correct": 1.0},
                    output=f"The answer is {2 * j}.",
                    transcript=[
                        {"role": "user", "content": f"What is {j} plus {j}?"},
                        {"role": "assistant", "content": f"The answer is {2 * j}."},
                    ],
                    seconds=0.0123,
                    seed=123_456_789,
                ),
            )
            for j in range(i, i + 500)
        ]
        f.store.add(f.run, f.arm, f.task, 0, rows)
    f.store.close()
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) / 5_000 < 600
