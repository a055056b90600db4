"""Columns are read once, kept within a bound, and never of another store."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.made import outcome, write

from equipoise.core import RunError, UsageError
from equipoise.store import Store
from equipoise.viewer import library as libraries
from equipoise.viewer.grid import Grid
from equipoise.viewer.library import Library


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write(tmp_path / "x.sqlite", lambda i, k: outcome(float((i + k) % 2)), units=30)


def test_fifty_that_come_at_once_read_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    whole = Grid.read

    def slow(*given: Any, **more: Any) -> Grid:
        reads.append(threading.get_ident())
        time.sleep(0.2)
        return whole(*given, **more)

    monkeypatch.setattr(Grid, "read", slow)
    library = Library(place)
    run = library.run(1)
    library.begin_grid(run, "sums", "correct")
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda _: library.grid(run, "sums", "correct"), range(50)))
    assert len(reads) == 1
    assert all(each is found[0] for each in found)
    library.close()


def test_what_is_added_is_read(place: Path) -> None:
    library = Library(place)
    run = library.run(1)
    before = library.grid(run, "sums", "correct")
    assert library.kept_grid(run, "sums", "correct") is before
    assert len(library.outcomes(1, 1)) == 30
    with Store.open(place) as store:
        store.add(1, 1, 1, 0, [(3, outcome(1.0))], 1)
    assert library.kept_grid(run, "sums", "correct") is None
    after = library.grid(run, "sums", "correct")
    assert after is not before
    assert len(library.outcomes(1, 1)) == 31
    library.close()


def test_it_keeps_no_more_than_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0), arms=12, units=50)
    library = Library(place)
    one = libraries._size(library.store.outcomes(1, 1))
    monkeypatch.setattr(libraries, "KEPT_BYTES", 3 * one + 10)
    for arm in (*range(1, 13), 12, 11, 1):
        library.outcomes(arm, 1)
        assert sum(size for *_, size in library._kept.values()) <= libraries.KEPT_BYTES
        assert len(library._reading) <= len(library._kept)
    assert [key[1] for key in library._kept] == [12, 11, 1]  # used last
    monkeypatch.setattr(libraries, "KEPT_BYTES", one - 1)
    library.outcomes(5, 1)
    assert [key[1] for key in library._kept] == [5]  # what is larger by itself is kept alone
    library.close()


def test_a_grid_counts_all_it_holds(place: Path) -> None:
    library = Library(place)
    grid = library.grid(library.run(1), "sums", "correct")
    arrays = [grid.numbers, grid.value, grid.kind, grid.filled, grid.spread]
    assert grid.nbytes == sum(each.nbytes for each in arrays)
    library.close()


def test_the_first_units_are_those_of_the_whole(place: Path) -> None:
    library = Library(place)
    run = library.run(1)
    first, whole = (
        library.grid_of_first(run, "sums", "correct", 10),
        library.grid(run, "sums", "correct"),
    )
    assert first.numbers.tolist() == list(range(10))
    assert (first.value == whole.value[:10]).all()
    library.close()


def test_another_file_under_the_name_is_opened(place: Path, tmp_path: Path) -> None:
    library = Library(place)
    assert len(library.grid(library.run(1), "sums", "correct").numbers) == 30
    other = write(tmp_path / "y.sqlite", lambda i, k: outcome(1.0), units=7)
    os.replace(other, place)
    library.refresh()
    assert len(library.grid(library.run(1), "sums", "correct").numbers) == 7
    place.unlink()
    with pytest.raises(UsageError, match="No store at"):
        library.refresh()
    place.write_bytes(b"not a database at all" * 100)
    with pytest.raises((UsageError, RunError)):
        library.refresh()
    place.unlink()
    write(place, lambda i, k: outcome(1.0), units=3)
    library.refresh()
    assert len(library.grid(library.run(1), "sums", "correct").numbers) == 3
    library.close()


def test_what_is_not_there_is_said_before_anything_is_read(place: Path) -> None:
    library = Library(place)
    run = library.run(1)
    for task, score, said in (("sum", "correct", "Nearest: sums"), ("sums", "corect", "No score")):
        with pytest.raises(UsageError, match=said):
            library.begin_grid(run, task, score)
    assert not library._ahead
    library.close()
