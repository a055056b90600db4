"""What the import contracts in pyproject.toml cannot say: methods of a field stand alone too."""

import ast
from pathlib import Path

import pytest

import equipoise

METHODS = Path(equipoise.__file__).parent / "methods"
MODULES = sorted(path for path in METHODS.glob("*/*.py") if not path.name.startswith("_"))


def imported(path):
    """Return what a module imports when it is loaded, not when a function is called."""
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_method_imports_no_other_method(path):
    carded = {other.stem for other in path.parent.glob("*.yaml")} - {path.stem}
    others = {f"equipoise.methods.{path.parent.name}.{name}" for name in carded}
    assert not others & set(imported(path))
