"""Fetches the viewer's scripts and styles when a wheel is built; nothing is fetched later.

Each package is pinned by version and by the SHA-512 of its archive. An editable install that
cannot reach the registry goes on without them: `equipoise view` then says what is missing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/equipoise/viewer/static/vendor")
LIST = Path("src/equipoise/viewer/vendored.json")


def vendor(root: Path) -> None:
    """Fetch, check and unpack what is not there yet in its pinned version."""
    wanted = json.loads((root / LIST).read_text(encoding="utf-8"))
    folder = root / FOLDER
    stamp = folder / "vendored.json"
    if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in wanted.items():
        _unpack(name, package, _fetch(name, package), folder)
    stamp.write_text(json.dumps(wanted), encoding="utf-8")


def _fetch(name: str, package: dict[str, Any]) -> bytes:
    registry = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
    address = f"{registry}/{name}/-/{name}-{package['version']}.tgz"
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - the registry's
        data: bytes = answer.read()
    found = base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != package["sha512"]:
        raise ValueError(f"{name} {package['version']}: the archive is not the pinned one.")
    return data


def _unpack(name: str, package: dict[str, Any], data: bytes, folder: Path) -> None:
    missing = {at for at in package["files"] if not at.endswith("/")}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            path = member.name.removeprefix("package/")
            at = next((each for each in package["files"] if _under(path, each)), None)
            if at is None or not member.isfile():  # no links: they lead anywhere
                continue
            target = Path(package["files"][at] + path.removeprefix(at))
            if target.is_absolute() or ".." in target.parts:
                raise ValueError(f"{name}: the archive leaves its folder.")
            content = archive.extractfile(member)
            assert content is not None
            _write(folder / target, content.read())
            missing.discard(at)
    if missing:
        raise ValueError(f"{name}: the archive lacks {', '.join(sorted(missing))}.")


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    if file.suffix in (".js", ".css"):
        packed = gzip.compress(data, 9, mtime=0)
        file.with_name(file.name + ".gz").write_bytes(packed)


def _under(path: str, at: str) -> bool:
    """Say whether a file is asked for: by its name, or as a font in a folder."""
    return path == at or (at.endswith("/") and path.startswith(at) and path.endswith(".woff2"))


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the viewer's files and the ledger of replications to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":  # a checkout has the ledger at its root
            build_data["force_include"]["replications"] = "equipoise/replications"
        try:
            vendor(Path(self.root))
        except OSError as error:
            if version != "editable":
                raise
            self.app.display_warning(f"The viewer's scripts could not be fetched: {error}.")


if __name__ == "__main__":
    vendor(Path(__file__).parent)
