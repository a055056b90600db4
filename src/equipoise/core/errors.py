"""Errors a person can act on: one sentence, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EquipoiseError(Exception):
    """Base of every error that equipoise raises on purpose.

    Its text is one sentence that names the part, the fault and the way out.
    ``exit_code`` is what the command line returns.
    """

    exit_code = 2


class UsageError(EquipoiseError):
    """Something asked for cannot be: a wrong name, value, file or capability."""


class RunError(EquipoiseError):
    """A run could not go on: the disk is full, the store is locked, the budget is spent."""

    exit_code = 4


class UnitError(EquipoiseError):
    """One unit failed; the engine stores it as an error outcome and goes on.

    Parameters
    ----------
    message
        One sentence.
    kind
        A short name to filter by, such as ``"timeout"`` or ``"garbage"``.
    """

    exit_code = 4

    def __init__(self, message: str, kind: str = "error") -> None:
        super().__init__(message)
        self.kind = kind


def nearest(name: str, choices: Iterable[str], most: int = 3) -> str:
    """Return ``" Nearest: a, b."`` for a misspelt name, or an empty string.

    Examples
    --------
    >>> nearest("round_nearest", ["round_to_nearest", "mathgap"])
    ' Nearest: round_to_nearest.'
    """
    close = difflib.get_close_matches(name, list(choices), n=most, cutoff=0.5)
    return f" Nearest: {', '.join(close)}." if close else ""
