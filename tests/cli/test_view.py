"""`equipoise view` as a user gives it: one clear sentence for what cannot be."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import pytest
from tests.viewer.made import outcome, serving, write

from equipoise.cli import main
from equipoise.viewer import library


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0, "x" * 500), units=200)


def refused(capsys: pytest.CaptureFixture[str], place: object, *more: str) -> str:
    """Return what it says of what it will not do."""
    with pytest.raises(SystemExit) as ended:
        main(["view", "--no-browser", "--store", str(place), *more])
    assert ended.value.code not in (0, None)
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    assert "http://" not in said.out
    return " ".join((said.err + said.out).split())


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No store at" in refused(capsys, tmp_path / "none.sqlite")
    assert "is a folder" in refused(capsys, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_from_the_future(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE equipoise SET value = '99' WHERE key = 'schema'")
    connection.close()
    assert "newer equipoise (store version 99" in refused(capsys, place)


@pytest.mark.parametrize("share", [0.0, 0.002, 0.01, 0.5])
def test_a_store_cut_short(place: Path, share: float, capsys: pytest.CaptureFixture[str]) -> None:
    data = place.read_bytes()
    place.write_bytes(data[: int(share * len(data))])
    said = refused(capsys, place)
    assert any(word in said for word in ("damaged", "no outcomes", "not an equipoise store")), said


def test_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("once upon a time " * 100)
    assert "not an equipoise store" in refused(capsys, text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    assert "not an equipoise store" in refused(capsys, other)


def test_a_locked_store(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "PATIENCE", 0.1)
    holder = sqlite3.connect(place, isolation_level=None)
    holder.execute("PRAGMA journal_mode=DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    assert "another process holds the store" in refused(capsys, place)
    holder.close()


def test_a_database_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "postgresql+psycopg://nobody:secret@127.0.0.1:9/none")
    assert "secret" not in said
    assert "database" in said.lower()
    assert "No database at this address" in refused(capsys, "nonsense://somewhere")


def test_a_port_in_use(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port} is in use" in refused(capsys, place, "--port", str(port))


def test_a_run_that_is_not_there(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No run" in refused(capsys, place, "99")
    assert "Nearest: made" in refused(capsys, place, "mde")
    assert "No run" in refused(capsys, place, str(10**30))


def test_the_run_asked_for_is_in_the_address(place: Path) -> None:
    with serving(place, "made", "--port", "0") as (address, _):
        assert "/runs/1?token=" in address
