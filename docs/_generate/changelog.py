"""The changelog, from the fragments in `changes/`; its README tells how they are named."""

from __future__ import annotations

import re
from pathlib import Path

KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed"}


def page(changes: Path) -> str:
    """Return what is not released yet, then each version, the newest first."""
    versions = sorted(
        (each for each in changes.iterdir() if each.is_dir()),
        key=lambda folder: [int(number) for number in re.findall(r"\d+", folder.name)],
        reverse=True,
    )
    lines = ["# Changelog", ""]
    for title, folder in [("Unreleased", changes), *((v.name, v) for v in versions)]:
        found = fragments(folder)
        if not any(found.values()):
            continue
        lines += [f"## {title}", ""]
        for kind, word in KINDS.items():
            if found[kind]:
                lines += [f"### {word}", "", *(f"- {text}" for text in found[kind]), ""]
    return "\n".join(lines)


def fragments(folder: Path) -> dict[str, list[str]]:
    """Return a folder's fragments by kind, in the order of their names.

    Raises
    ------
    SystemExit
        If a fragment's name has no kind or it says nothing.
    """
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        kind = path.name.split(".")[-2]
        if kind not in KINDS or path.name.count(".") != 2:
            raise SystemExit(f"{path}: name it NAME.KIND.md with KIND one of {', '.join(KINDS)}.")
        text = " ".join(path.read_text(encoding="utf-8").split())
        if not text:
            raise SystemExit(f"{path}: is empty; write one sentence.")
        found[kind].append(text)
    return found
