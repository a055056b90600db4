"""`equipoise new`: the skeleton of a part, which already passes conformance."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

CARD = """\
title: $title
summary: Say in one line what users get.
version: 1
parts:
  $function: $kind $name
"""

OUTSIDE = """\
Name the package in pyproject.toml, so that equipoise finds its cards:

  [project.entry-points."equipoise.parts"]
  mine = "{package}"
"""


def command(
    kind: Annotated[str, typer.Argument(help="subject, treatment, task or measure.")],
    place: Annotated[str, typer.Argument(help="FIELD/NAME, as in quantization/my_method.")],
    into: Annotated[
        Path | None,
        typer.Option(
            help="Your own package's folder; absent: equipoise's methods, in a checkout.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the skeleton of a new part: module, card, test, change fragment.

    It passes every conformance check as it stands; the tests run them (`make test`
    here, `pytest` in a package of your own). Nothing that exists is overwritten.
    """
    from equipoise.catalog import KINDS, catalog
    from equipoise.core.errors import UsageError, nearest

    if kind not in KINDS:
        raise UsageError(f'No kind "{kind}".{nearest(kind, KINDS)} There are: {", ".join(KINDS)}.')
    match = re.fullmatch(r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)", place)
    if match is None:
        raise UsageError(
            f'Write FIELD/NAME in lower case, as in quantization/my_method, got "{place}".'
        )
    field, name = match.groups()
    if name in catalog().entries:
        raise UsageError(
            f'There is a part "{name}" already, on {catalog().entries[name].card.path}.'
        )
    files = skeleton(kind, field, name, into)
    there = [path for path in files if path.exists() and path.name != "__init__.py"]
    if there:
        raise UsageError(f"{there[0]} exists; nothing was written.")
    for path, text in files.items():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            typer.echo(str(path))
    if into is not None:
        typer.echo(OUTSIDE.format(package=into.name))


def skeleton(kind: str, field: str, name: str, into: Path | None) -> dict[Path, str]:
    """Return the files of a new part and what they say."""
    from equipoise.core.errors import UsageError

    methods = into or Path("src/equipoise/methods")
    if into is None and not methods.is_dir():
        raise UsageError(
            "This is not a checkout of equipoise; name your package's folder: --into src/mine."
        )
    package = "equipoise.methods" if into is None else into.name
    words = {
        "kind": kind,
        "function": name,
        "name": "".join(word.capitalize() for word in name.split("_")),
        "title": name.replace("_", " ").capitalize(),
        "module": f"{package}.{field}.{name}",
    }
    templates = Path(__file__).parent / "templates"

    def fill(text: str) -> str:
        return Template(text).substitute(words)

    tests = Path("tests") / ("methods" if into is None else "") / field
    files = {
        methods / field / f"{name}.py": fill((templates / f"{kind}.py.txt").read_text("utf-8")),
        methods / field / f"{name}.yaml": fill(CARD),
        tests / f"test_{name}.py": fill((templates / f"{kind}_test.py.txt").read_text("utf-8")),
        Path("changes") / f"{name}.added.md": f"{words['title']}: say what users get.\n",
    }
    if into is not None:
        files[methods / "__init__.py"] = ""
        files[tests.parent / "test_conformance.py"] = _CONFORMANCE.replace("PACKAGE", package)
    files[methods / field / "__init__.py"] = ""
    return files


_CONFORMANCE = '''\
"""Every part of this package passes every check of its kind."""

import pytest

from equipoise.catalog import catalog
from equipoise.checks import checks_for, verify

CASES = [
    pytest.param(entry, check, id=f"{entry.id}-{check.name}")
    for entry in catalog()
    if entry.card.module.startswith("PACKAGE.")
    for check in checks_for(entry.kind)
]


@pytest.mark.parametrize(("entry", "check"), CASES)
def test_part(entry, check):
    verify(entry, check)
'''
