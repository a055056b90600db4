"""`equipoise new`: what it writes passes conformance as it stands."""

import subprocess
import sys

import pytest

from equipoise.catalog import KINDS, Catalog
from equipoise.checks import checks_for, verify
from equipoise.cli import new
from equipoise.core import UsageError


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_passes_conformance_and_its_own_test(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = f"outside_{kind}"
    new.command(kind, "field/my_part", into=tmp_path / package)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    _install(tmp_path, package)
    code = (
        "from equipoise.catalog import catalog\n"
        "from equipoise.checks import checks_for, verify\n"
        "entry = catalog().find('my_part')\n"
        "print([verify(entry, check) for check in checks_for(entry.kind)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(eval(done.stdout)) == {"passed"}
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/field"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout
    assert (tmp_path / "changes" / "my_part.added.md").exists()


def _install(folder, package):
    """Write the metadata that an installed package with an entry point has."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[equipoise.parts]\nmine = {package}\n")


def test_the_cards_of_a_skeleton_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    new.command("measure", "odd/my_measure", into=tmp_path / "pack")
    (entry,) = Catalog([("pack", tmp_path / "pack")])
    assert (entry.id, entry.kind, entry.card.field) == ("my_measure", "measure", "odd")
    assert entry.card.module == "pack.odd.my_measure"
    assert checks_for(entry.kind)
    assert callable(verify)


@pytest.mark.parametrize(
    ("kind", "place", "message"),
    [
        ("treatmnt", "a/b", "Nearest: treatment"),
        ("task", "nofield", "Write FIELD/NAME"),
        ("task", "Bad/Name", "Write FIELD/NAME"),
        ("task", "language/perplexity", "There is a part"),
    ],
)
def test_wrong_words_write_nothing(kind, place, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        new.command(kind, place, into=tmp_path / "pack")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    new.command("task", "f/mine", into=tmp_path / "pack")
    with pytest.raises(UsageError, match="exists; nothing was written"):
        new.command("task", "f/mine", into=tmp_path / "pack")
