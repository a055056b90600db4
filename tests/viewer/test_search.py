"""Words in answers, found and found again."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.made import outcome, write

from equipoise.core import Outcome, RunError, UsageError
from equipoise.store import Store
from equipoise.viewer import search as searching
from equipoise.viewer.search import Search, query

SAID = (
    "The last train leaves at noon",
    "the train at last",
    "Crème brûlée, naïve Zürich",
    "snake_case and kebab-case",
    "日本語 のテキスト",
    'she said "no" -- NOT (x OR y) NEAR z*',
    "",
    "trains",
)


def waited(search: Search, cells: list[Any]) -> None:
    for _ in range(200):
        if search.ready("k", cells, wait=0.1):
            return
    raise AssertionError("it was never indexed")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0, SAID[i]), arms=1, units=len(SAID))


@pytest.fixture
def opened(place: Path) -> Iterator[tuple[Search, list[Any]]]:
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        yield search, cells
        search.close()


@pytest.mark.parametrize(
    ("words", "units"),
    [
        ("train", [0, 1, 7]),  # the last word may be a beginning
        ('"train"', [0, 1]),
        ('"last train"', [0]),
        ("LAST THE", [0, 1]),
        ("tra noon", []),  # only the last word may be
        ("noon tra", [0]),
        ("creme", [2]),
        ("ZÜRICH", [2]),
        ("brule", [2]),
        ("case snake", [3]),
        ("日本語", [4]),
        ("NOT", [5]),
        ("x OR y", [5]),
        ("NEAR(z)", [5]),
        ("z*", [5]),
        ("said:no", [5]),
        ('"no', [0, 5]),
        ("absent", []),
        ("t", []),  # a letter alone is a word
        ("no\0on", []),
    ],
)
def test_words_find(opened: tuple[Search, list[Any]], words: str, units: list[int]) -> None:
    search, cells = opened
    found = search.find(words, cells)
    assert found is not None
    assert found.tolist() == units


@pytest.mark.parametrize("words", ["--", '""', '"', "* ( ) :", "_", "…", "\0"])
def test_signs_alone_are_no_question(words: str) -> None:
    with pytest.raises(UsageError, match="Give a word"):
        query(words)


def test_errors_are_found_too(tmp_path: Path) -> None:
    failed = Outcome("u", status="error", error_kind="x", error="Connection refused by peer")
    place = write(tmp_path / "x.sqlite", lambda i, k: failed if i == 3 else outcome(1.0), units=5)
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        assert search.find("connection peer", cells).tolist() == [3]  # type: ignore[union-attr]


def test_only_the_arms_asked_for(tmp_path: Path) -> None:
    place = write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0, f"word{k}"), arms=4, units=3)
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        for k in range(4):
            hits = search.find(f"word{k}", [cells[k], cells[(k + 2) % 4]])
            assert hits is not None
            assert hits.tolist() == [0, 1, 2]
            assert not len(search.find(f"word{k}", [cells[(k + 1) % 4]]))  # type: ignore[arg-type]


def test_what_a_run_adds_is_found_next_time(tmp_path: Path) -> None:
    place = tmp_path / "x.sqlite"
    write(
        place, lambda i, k: outcome(1.0, "old") if i % 2 else None, arms=1, units=1_200, end=False
    )
    with Store.open(place) as writer, Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        assert not len(search.find("new", cells))  # type: ignore[arg-type]
        rows = [(i, outcome(1.0, f"new {i}")) for i in range(0, 1_200, 2)]  # between the others
        writer.add(1, 1, 1, 0, rows)
        writer.add(1, 1, 1, 0, [(7, outcome(1.0, "newer"))], 1)  # and another repeat
        waited(search, cells)
        assert search.find('"new"', cells).tolist() == list(range(0, 1_200, 2))  # type: ignore[union-attr]
        assert search.find("newer", cells).tolist() == [7]  # type: ignore[union-attr]
        assert search.find("old", cells).tolist() == list(range(1, 1_200, 2))  # type: ignore[union-attr]
    with sqlite3.connect(search.path) as index:
        assert index.execute("SELECT count(*) FROM words_docsize").fetchone() == (1_201,)


def test_an_index_is_used_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(2):
        with Store.open(place, readonly=True) as store:
            search = Search(store, place)
            cells = store.run(1)["covers"]
            if turn:
                monkeypatch.setattr(store, "texts", None)  # nothing is read anew
            waited(search, cells)
            assert search.find("noon", cells).tolist() == [0]  # type: ignore[union-attr]


def test_the_index_of_another_store_is_made_anew(place: Path) -> None:
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        waited(search, store.run(1)["covers"])
    place.unlink()
    write(place, lambda i, k: outcome(1.0, "something else"), arms=1, units=3)
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        assert not len(search.find("noon", cells))  # type: ignore[arg-type]
        assert search.find("else", cells).tolist() == [0, 1, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("harm", ["noise", "cut", "empty", "gone", "another database"])
def test_a_damaged_index_is_made_anew(place: Path, harm: str) -> None:
    index = place.with_name(place.name + "-search")
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        data = index.read_bytes()
        for end in ("-wal", "-shm"):
            index.with_name(index.name + end).unlink(missing_ok=True)
        if harm in ("gone", "another database"):
            index.unlink()
        if harm == "another database":
            with sqlite3.connect(index) as other:
                other.execute("CREATE TABLE words (x)")
        elif harm != "gone":
            cut = {"noise": b"\xff" * len(data), "cut": data[: len(data) // 2], "empty": b""}
            index.write_bytes(cut[harm])
        assert search.find("noon", cells) is None
        waited(search, cells)
        found = search.find("noon", cells)
        assert found is not None
        assert found.tolist() == [0]


def test_where_nothing_may_be_written_the_index_is_a_temporary_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching.os, "access", lambda path, mode: False)
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        waited(search, cells)
        assert search.find("noon", cells).tolist() == [0]  # type: ignore[union-attr]
        assert search.path.exists()
        search.close()
    assert not search.path.exists()
    assert sorted(os.listdir(place.parent)) == [place.name]


def test_a_full_disk_is_one_sentence(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(searching, "_number", full)
    with Store.open(place, readonly=True) as store:
        search = Search(store, place)
        cells = store.run(1)["covers"]
        with pytest.raises(RunError, match=r"cannot be indexed: database or disk is full\."):
            search.ready("k", cells, wait=5)
        monkeypatch.undo()
        waited(search, cells)
