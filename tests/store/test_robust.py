import json
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from equipoise.core import Outcome, RunError, ScoreSpec, Unit, UsageError
from equipoise.store import Store


def python(code, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_and_double_nothing(tmp_path):
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "s.sqlite", "100", "7"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == 100
    assert found["acknowledged"] > 500  # the kills did hit a writer at work
    assert (found["faults"], found["lost"], found["doubled"]) == ([], 0, 0)
    assert found["kept"] >= found["acknowledged"]
    assert found["right"]


# Several at once

WRITER = """
import sys
from equipoise.core import Outcome, ScoreSpec, Unit
from equipoise.store import Store
path, mine = sys.argv[1], int(sys.argv[2])
with Store.open(path) as store:
    run = store.begin_run(f"run {mine}", "", {})
    arm = store.arm("shared", "shared", {})
    own = store.arm(f"own {mine}", "own", {})
    task = store.task("t", "t", {}, [ScoreSpec("s")])
    units = [Unit(f"u{i}") for i in range(600)]
    numbers = store.add_units(task, units[::-1] if mine else units).tolist()
    ids = [unit.id for unit in (units[::-1] if mine else units)]
    kept = 0
    for start in range(0, 600, 20):
        part = range(start, start + 20)
        for each in (arm, own):
            rows = [(numbers[i], Outcome(ids[i], {"s": int(ids[i][1:])})) for i in part]
            n = store.add(run, each, task, 0, rows)
            kept += n if each == arm else 0
    print(kept)
"""


def test_two_processes_lose_nothing_and_double_nothing(tmp_path):
    path = tmp_path / "new" / "s.sqlite"  # both make it, too
    both = [python(WRITER, path, mine) for mine in (0, 1)]
    said = [each.communicate(timeout=120) for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sum(int(out) for out, _ in said) == 600  # each shared unit was kept once
    with Store.open(path) as store:
        assert store.check() == []
        assert sorted(run["trial"] for run in store.runs()) == ["run 0", "run 1"]
        for name in ("shared", "own 0", "own 1"):
            arm = store.arm(name, "", {})
            assert store.costs(arm, 1)["attempts"] == 600
            assert sorted(store.outcomes(arm, 1).score("s")) == list(range(600))
            for row in store.rows(arm=arm, task=1, limit=20, offset=290):
                assert row["scores"]["s"] == int(row["unit"][1:])


def test_a_reader_does_not_block_the_writer(filled):
    f = filled(n=30_000)
    f.add(range(20_000))
    with Store.open(f.path, readonly=True) as reader:
        stream = reader.stream(f.run)
        first = next(stream)  # half way through a transaction
        began = time.monotonic()
        assert f.add(range(20_000, 25_000)) == 5_000
        assert time.monotonic() - began < 10  # far from the 30 s of waiting
        # it goes on reading what there was when it began
        assert len(first) + sum(map(len, stream)) == 20_000
        assert len(reader.outcomes(f.arm, f.task)) == 25_000


def test_threads_may_share_a_store(filled):
    f = filled(n=400)
    faults = []

    def work(arm):
        try:
            for start in range(0, 400, 20):
                f.add(range(start, start + 20), arm=arm)
                f.store.outcomes(arm, f.task)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(arm,)) for arm in (f.arm, f.other)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not faults
    assert len(f.scores()) == len(f.scores(f.other)) == 400


def test_a_store_that_stays_locked_is_one_sentence(filled):
    f = filled()
    f.store.close()
    holder = sqlite3.connect(f.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Store.open(f.path, timeout=0.05) as store:
        assert len(store.outcomes(f.arm, f.task)) == 0  # reading goes on
        with pytest.raises(RunError, match=r"s.*sqlite: another process holds the store"):
            store.begin_run("x", "", {})
    holder.close()


# Full disks

FILL = """
import sys
from equipoise.core import Outcome, RunError, ScoreSpec, Unit
from equipoise.store import Store
path = sys.argv[1]
with Store.open(path) as store:
    run, arm = store.begin_run("t", "", {}), store.arm("a", "a", {})
    task = store.task("t", "t", {}, [ScoreSpec("s")])
    kept = 0
    try:
        for start in range(0, 10**6, 100):
            numbers = store.add_units(task, [Unit(f"u{i}") for i in range(start, start + 100)])
            rows = [(int(n), Outcome(f"u{n}", {"s": int(n)}, output="x" * 200)) for n in numbers]
            store.add(run, arm, task, 0, rows)
            kept += 100
    except RunError as error:
        print(error)
    print(kept)
    assert len(store.outcomes(arm, task)) == kept
with Store.open(path) as store:
    assert store.check() == []
    assert store.outcomes(arm, task).score("s").tolist() == list(range(kept))
    print("whole")
"""


def in_a_tiny_disk(tmp_path, *steps):
    """Run steps on a disk of 3 MB that nobody else sees; from "-" on it is read-only."""
    disk = tmp_path / "disk"
    disk.mkdir()
    tool = shutil.which("unshare")
    mount = f"mount -t tmpfs -o size=3m none '{disk}'"
    probe = [tool or "false", "-m", "sh", "-c", mount]
    if tool is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("mounting a disk is not allowed here")
    command = [mount]
    for i, step in enumerate(steps, 3):
        run = f'"$1" -c "${i}" "$2/s.sqlite"'
        command.append(run if step != "-" else f"mount -o remount,ro '{disk}'")
    return subprocess.run(
        [tool, "-m", "sh", "-c", " && ".join(command), "sh", sys.executable, disk, *steps],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_full_disk_is_one_sentence_and_keeps_what_was_finished(tmp_path):
    done = in_a_tiny_disk(tmp_path, FILL)
    assert done.returncode == 0, done.stderr
    sentence, kept, whole = done.stdout.splitlines()
    assert "the disk is full; what was finished is kept" in sentence
    assert int(kept) > 1000
    assert whole == "whole"


MAKE = """
import sys
from equipoise.store import Store
Store.open(sys.argv[1]).close()
"""

LOOK = """
import sys
from equipoise.core import UsageError
from equipoise.store import Store
with Store.open(sys.argv[1], readonly=True) as store:
    print(store.runs())
for name in (sys.argv[1], sys.argv[1] + "2"):
    try:
        Store.open(name)
    except UsageError as error:
        print(error)
"""


def test_a_disk_that_cannot_be_written_can_be_read(tmp_path):
    done = in_a_tiny_disk(tmp_path, MAKE, "-", LOOK)
    assert done.returncode == 0, done.stderr
    runs, present, absent = done.stdout.splitlines()
    assert runs == "[]"
    for sentence in (present, absent):
        assert "may not be written; say --store PATH" in sentence


def test_a_store_that_may_not_grow(filled):
    f = filled(n=2000)
    f.add(range(100))
    with f.store._connected() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(RunError, match=r"the disk is full; what was finished is kept"):
        f.add(range(100, 2000), output="y" * 300)
    assert len(f.scores()) == 100
    with f.store._connected() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=100000")
    assert f.add(range(2000)) == 1900  # with room made, it goes on
    assert f.store.check() == []


# Files that are not what they should be


def test_not_a_store(tmp_path):
    path = tmp_path / "s.sqlite"
    path.write_text("These are notes, and by no means a database. " * 50)
    with pytest.raises(UsageError, match=r"s\.sqlite: this file is not an equipoise store\."):
        Store.open(path)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(UsageError, match="is a database, but not an equipoise store"):
        Store.open(other)
    with sqlite3.connect(other) as connection:  # and it was left as it was
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert names == [("theirs",)]


def test_places_that_will_not_do(tmp_path):
    with pytest.raises(UsageError, match="is a folder; give the path of a store"):
        Store.open(tmp_path)
    with pytest.raises(UsageError, match=r"No store at .*absent\.sqlite: run a trial first"):
        Store.open(tmp_path / "absent.sqlite", readonly=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"The folder of .* cannot be made"):
        Store.open(tmp_path / "file" / "s.sqlite")
    with pytest.raises(UsageError, match="No database at this address"):
        Store.open("nonsense://x")
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(UsageError, match="holds no outcomes"):
        Store.open(tmp_path / "empty.sqlite", readonly=True)
    Store.open(tmp_path / "empty.sqlite").close()  # an empty file becomes a store


def test_a_newer_store_is_refused_untouched(filled):
    f = filled()
    f.store.close()
    with sqlite3.connect(f.path) as connection:
        connection.execute("UPDATE equipoise SET value = '2' WHERE key = 'schema'")
    connection.close()
    before = f.path.read_bytes()
    with pytest.raises(UsageError, match=r"written by a newer equipoise \(store version 2"):
        Store.open(f.path)
    assert f.path.read_bytes() == before


def test_a_readonly_store_refuses_to_write(filled):
    f = filled()
    with (
        Store.open(f.path, readonly=True) as store,
        pytest.raises(UsageError, match="the store may not be written"),
    ):
        store.begin_run("x", "", {})


def use(path):
    with Store.open(path) as store:
        store.check()
        for run in store.runs():
            store.rows(run["id"], limit=None)
        store.outcomes(1, 1)
        store.unit(1, 1, "u1")


@pytest.mark.parametrize("part", [0.0005, 0.1, 0.5, 0.9])
def test_a_cut_off_file_is_one_sentence(filled, part):
    f = filled(n=500)
    f.add(range(500), output="z" * 100)
    f.store.close()
    data = f.path.read_bytes()
    f.path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises((RunError, UsageError), match=r"damaged|not an equipoise store"):
        use(f.path)


def test_spoilt_bytes_are_found_or_harmless(filled):
    """Whatever is overwritten, reading ends in an answer or in one sentence."""
    f = filled(n=300)
    message = {"role": "user", "content": "Some words of a long message. " * 20}
    f.add(range(300), transcript=[message], output="z" * 100)
    f.store.close()
    whole = f.path.read_bytes()
    rng = random.Random(0)
    for _ in range(120):
        data = bytearray(whole)
        at = rng.randrange(100, len(data) - 64)
        data[at : at + 64] = rng.randbytes(64)
        f.path.write_bytes(data)
        try:
            use(f.path)
        except (RunError, UsageError) as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_a_missing_message_is_named(filled):
    f = filled()
    f.add([1], transcript=[{"role": "user", "content": "long " * 100}])
    with f.store._connected(write=True) as connection:
        connection.exec_driver_sql("DELETE FROM blobs")
    with pytest.raises(RunError, match="is not whole"):
        f.store.unit(f.arm, f.task, "u1")


def test_a_database_that_goes_away(tmp_path):
    store = Store.open(tmp_path / "s.sqlite")
    run, arm = store.begin_run("t", "", {}), store.arm("a", "a", {})
    task = store.task("t", "t", {}, [ScoreSpec("s")])
    store.add_units(task, [Unit("u")])
    store.close()
    shutil.rmtree(tmp_path)
    tmp_path.write_text("")  # a file where the folder was
    with pytest.raises(UsageError, match="cannot be opened"):
        store.add(run, arm, task, 0, [(0, Outcome("u", {"s": 1}))])
    store.close()
    tmp_path.unlink()
