"""Objects named by import path, for subjects that people write themselves."""

from __future__ import annotations

import hashlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from equipoise.core import UsageError, nearest
from equipoise.kit.data.source import one_line


def named_object(path: str) -> Any:
    """Return what ``package.module:name`` or ``package.module.name`` names.

    Raises
    ------
    UsageError
        If there is no such module or name; nearest names are given.

    Examples
    --------
    >>> named_object("math:sqrt")(9)
    3.0
    """
    module_name, name = _halves(path)
    try:
        module = import_module(module_name)
    except Exception as error:  # a module of the user's may raise anything when imported
        raise UsageError(
            f"{path}: the module {module_name} cannot be imported "
            f"({type(error).__name__}: {one_line(error)})."
        ) from error
    if not hasattr(module, name):
        raise UsageError(
            f'{path}: the module {module_name} has no "{name}".{nearest(name, dir(module))}'
        )
    return getattr(module, name)


def source_hash(path: str) -> str | None:
    """Return the SHA-256 of the file that defines the module, None when it has none.

    Code is content: an edited factory must not find the results of the old one.
    """
    module_name, _ = _halves(path)
    try:
        spec = find_spec(module_name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.has_location or not spec.origin:
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def _halves(path: str) -> tuple[str, str]:
    module_name, mark, name = path.partition(":")
    if not mark:
        module_name, _, name = path.rpartition(".")
    parts = [*module_name.split("."), name]
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f'An import path is written "package.module:name", got "{path}".')
    return module_name, name
