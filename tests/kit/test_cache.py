import hashlib
from pathlib import Path

import pytest

from equipoise.kit import cache


def test_the_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EQUIPOISE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.cache_folder() == tmp_path / ".cache" / "equipoise"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg" / "equipoise"
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "own"))
    assert cache.cache_folder() == tmp_path / "own"
    assert not (tmp_path / "own").exists()


def test_hashes_are_right_remembered_and_follow_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_REMEMBERED", 10)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"abc")
    large.write_bytes(b"x" * 100)
    for path in (small, large):
        assert cache.file_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    notes = list((tmp_path / "cache" / "hashes").iterdir())
    assert len(notes) == 1  # small files are not worth a note

    def never(path: Path) -> str:
        raise AssertionError("hashed again")

    digest = cache._digest
    cache._hash.cache_clear()
    monkeypatch.setattr(cache, "_digest", never)
    assert cache.file_hash(large) == hashlib.sha256(b"x" * 100).hexdigest()
    monkeypatch.setattr(cache, "_digest", digest)
    cache._hash.cache_clear()
    notes[0].write_text("rubbish")
    assert cache.file_hash(large) == hashlib.sha256(b"x" * 100).hexdigest()
    large.write_bytes(b"y" * 101)
    assert cache.file_hash(large) == hashlib.sha256(b"y" * 101).hexdigest()


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "_REMEMBERED", 0)
    path = tmp_path / "data"
    path.write_bytes(b"abc")
    assert cache.file_hash(path) == hashlib.sha256(b"abc").hexdigest()


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file"
    cache.write_atomically(path, b"one")
    assert path.read_bytes() == b"one"

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(cache.os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        cache.write_atomically(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(path.parent.iterdir()) == [path]
