"""Writes the pages that come from code: `python docs/generate.py`, before `mkdocs build`.

What it writes is ignored by git and the same on every machine with the same packages.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from _generate import catalogue, changelog, cli, conformance, python

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FOLDERS = ("catalogue", "reference")


def pages() -> dict[str, str]:
    """Return every generated file by its path inside docs."""
    from equipoise.trial.jsonschema import trial_schema

    return {
        **catalogue.pages(ROOT / "replications"),
        "reference/cli.md": cli.page(),
        "reference/conformance.md": conformance.page(),
        **python.pages(),
        "changelog.md": changelog.page(ROOT / "changes"),
        "trial.schema.json": json.dumps(trial_schema(), indent=2) + "\n",
    }


def write(into: Path = DOCS) -> int:
    """Replace the generated files by new ones and return their number."""
    found = pages()  # first, so that a mistake leaves the old pages in place
    for folder in FOLDERS:
        shutil.rmtree(into / folder, ignore_errors=True)
    for name, text in found.items():
        place = into / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return len(found)


if __name__ == "__main__":
    print(f"{write()} pages")
