"""Targets of a table as JSON: values to predict, or classes; what is neither is refused."""

from __future__ import annotations

import math
from typing import Any

from equipoise.core import UsageError
from equipoise.kit.data.rows import kind_of
from equipoise.kit.data.source import Source


def numbers(source: Source, column: str, hint: str = "") -> tuple[float, ...]:
    """Return a column of finite numbers; ``hint`` ends the sentence where one is none.

    Raises
    ------
    UsageError
        If a row holds anything else; the sentence says which.
    """
    found = []
    for index, row in enumerate(source.rows):
        value = row[column]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(
                f'{source.at(index)}: "{column}" is {kind_of(value)}; a value to predict must be '
                f"a number{hint}."
            )
        if not math.isfinite(value):
            raise UsageError(f'{source.at(index)}: "{column}" is not finite.')
        found.append(float(value))
    return tuple(found)


def classes(source: Source, column: str, hint: str = "") -> tuple[str | int, ...]:
    """Return a column of class names: text, whole numbers, or true and false.

    ``hint`` ends the sentence where a row holds something else.

    Raises
    ------
    UsageError
        If a row holds anything else, or all rows are of one class.
    """
    found: list[str | int] = []
    for index, row in enumerate(source.rows):
        value: Any = row[column]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (str, int)):
            got = "not a whole number" if isinstance(value, float) else kind_of(value)
            raise UsageError(
                f'{source.at(index)}: "{column}" is {got}; classes are text, integers, or true '
                f"and false."
            )
        found.append(value)
    if len(set(found)) < 2:
        raise UsageError(
            f'{source.data}: "{column}" has one class only ({found[0]!r}); at least two are needed.'
        )
    return tuple(found)
