"""Vendoring: what is not the pinned archive, or leaves its folder, is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import io
import json
import re
import tarfile
import urllib.error
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("hatchling")


@pytest.fixture(scope="module")
def hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    """Return an npm package of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(f"package/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


def checkout(tmp_path: Path, hook: Any, data: bytes, files: dict[str, str]) -> Path:
    """Return a checkout that pins one package."""
    pinned = base64.b64encode(hashlib.sha512(data).digest()).decode()
    listed = tmp_path / hook.LIST
    listed.parent.mkdir(parents=True)
    listed.write_text(json.dumps({"p": {"version": "1.0", "sha512": pinned, "files": files}}))
    return tmp_path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, hook: Any) -> list[Any]:
    """Return a list whose last member is what the registry answers."""
    answers: list[Any] = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        assert re.fullmatch(r"https://[^/]+/.*p/-/p-1\.0\.tgz", address)
        if isinstance(answers[-1], Exception):
            raise answers[-1]
        return io.BytesIO(answers[-1])

    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://registry.example/")
    monkeypatch.setattr(hook.urllib.request, "urlopen", answer)
    return answers


def test_the_files_asked_for_and_no_others(tmp_path: Path, hook: Any, served: list[Any]) -> None:
    data = archive(
        {"dist/p.min.js": b"let x;", "LICENSE": b"free", "dist/fonts/a.woff2": b"font",
         "dist/fonts/a.ttf": b"old", "dist/other.js": b"no", "package.json": b"{}"},
        {"dist/fonts/link.woff2": "/etc/passwd"},
    )  # fmt: skip
    files = {"dist/p.min.js": "p.js", "LICENSE": "licences/p.txt", "dist/fonts/": "fonts/"}
    root = checkout(tmp_path, hook, data, files)
    served.append(data)
    hook.vendor(root)
    folder = root / hook.FOLDER
    found = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
    assert found == {"p.js", "p.js.gz", "licences/p.txt", "fonts/a.woff2", "vendored.json"}
    assert gzip.decompress((folder / "p.js.gz").read_bytes()) == b"let x;"
    served.append(AssertionError("what is there is not fetched again"))
    hook.vendor(root)


def test_another_archive_than_the_pinned_one(tmp_path: Path, hook: Any, served: list[Any]) -> None:
    root = checkout(tmp_path, hook, archive({"a.js": b"good"}), {"a.js": "a.js"})
    served.append(archive({"a.js": b"evil"}))
    with pytest.raises(ValueError, match=r"p 1\.0: the archive is not the pinned one"):
        hook.vendor(root)
    assert not list((root / hook.FOLDER).iterdir())


@pytest.mark.parametrize(
    "name", ["fonts/../../../x.woff2", "fonts/../x.woff2", "fonts//x/../../../x.woff2"]
)
def test_an_archive_that_leaves_its_folder(
    tmp_path: Path, hook: Any, served: list[Any], name: str
) -> None:
    data = archive({name: b"x"})
    root = checkout(tmp_path, hook, data, {"fonts/": "fonts/"})
    served.append(data)
    before = {each for each in tmp_path.rglob("*") if each.is_file()}
    with pytest.raises(ValueError, match="leaves its folder"):
        hook.vendor(root)
    assert {each for each in tmp_path.rglob("*") if each.is_file()} == before


def test_an_absolute_name_stays_inside(tmp_path: Path, hook: Any, served: list[Any]) -> None:
    outside = tmp_path / "outside.woff2"
    data = archive({f"fonts/{outside}": b"x"})
    root = checkout(tmp_path / "root", hook, data, {"fonts/": ""})
    served.append(data)
    with pytest.raises(ValueError, match="leaves its folder"):
        hook.vendor(root)
    assert not outside.exists()


def test_a_file_that_is_missing_is_said(tmp_path: Path, hook: Any, served: list[Any]) -> None:
    data = archive({"a.js": b"x"})
    root = checkout(tmp_path, hook, data, {"a.js": "a.js", "b.js": "b.js"})
    served.append(data)
    with pytest.raises(ValueError, match=r"b\.js"):
        hook.vendor(root)


class _Told:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, said: str) -> None:
        self.warnings.append(said)


@pytest.mark.parametrize("version", ["editable", "standard"])
def test_without_the_registry(
    tmp_path: Path, hook: Any, served: list[Any], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = checkout(tmp_path, hook, b"", {})
    served.append(urllib.error.URLError("no route"))
    made = object.__new__(hook.WheelHook)
    told = _Told()
    monkeypatch.setattr(hook.WheelHook, "root", str(root))
    monkeypatch.setattr(hook.WheelHook, "app", told)
    data: dict[str, Any] = {"force_include": {}}
    if version == "standard":
        with pytest.raises(OSError, match="no route"):
            made.initialize(version, data)
        assert data["force_include"] == {"replications": "equipoise/replications"}
    else:
        made.initialize(version, data)
        assert "no route" in told.warnings[0]
        assert data["force_include"] == {}


def test_what_is_pinned_has_a_licence_and_a_hash() -> None:
    pinned = json.loads((ROOT / "src/equipoise/viewer/vendored.json").read_text("utf-8"))
    for name, package in pinned.items():
        assert len(base64.b64decode(package["sha512"])) == 64, name
        assert any(to.startswith("licences/") for to in package["files"].values()), name
        assert not any(".." in to or to.startswith("/") for to in package["files"].values()), name
