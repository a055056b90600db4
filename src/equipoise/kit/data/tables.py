"""Tables of numbers for predictors: inputs, targets and the names of the features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.data.rows import kind_of, load
from equipoise.kit.data.source import Source


class Table(NamedTuple):
    """Inputs ``(rows, features)`` as float64, targets ``(rows,)``, names of the features."""

    inputs: np.ndarray
    targets: np.ndarray
    features: tuple[str, ...]


def read_table(data: str, *, target: str, features: Sequence[str] = ()) -> Table:
    """Return a data set as arrays.

    Parameters
    ----------
    data
        As in `read_rows`.
    target
        Column to predict: text, integers, numbers or truth values.
    features
        Columns to predict from, in order; by default all but ``target`` and
        ``id``. They hold finite numbers or truth values (1 and 0).

    Raises
    ------
    UsageError
        If a column is missing, empty somewhere or not of numbers; the
        sentence names the file, the line and the column.

    Examples
    --------
    >>> inputs, targets, names = read_table("builtin:wine", target="target")
    >>> inputs.shape, targets[0], names[0]
    ((178, 13), np.str_('class_0'), 'alcohol')
    """
    source = load(data, columns=[target, *features])
    names = feature_names(source, {target}, features)
    targets = np.array([row[target] for row in source.rows])
    if targets.ndim != 1 or targets.dtype.kind == "O":
        raise UsageError(
            f'{data}: "{target}" is {kind_of(source.rows[0][target])}; '
            f"a target is text, a number, or true or false."
        )
    return Table(matrix(source, names), targets, names)


def feature_names(
    source: Source, others: set[str], features: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the columns to predict from: those named, else all but ``others`` and ``id``."""
    for name in features:
        if name in others:
            raise UsageError(f'{source.data}: "{name}" cannot be a feature and a target at once.')
    names = tuple(features) or tuple(
        name for name in source.rows[0] if name not in others and name != "id"
    )
    if not names:
        raise UsageError(f"{source.data}: there are no columns to predict from.")
    return names


def matrix(source: Source, names: Sequence[str]) -> np.ndarray:
    """Return feature columns as float64, refusing what is not a finite number."""
    try:
        found = np.array([[row[name] for name in names] for row in source.rows])
        if found.dtype.kind in "biuf" and np.isfinite(found).all():
            return found.astype(np.float64)
    except (KeyError, ValueError):
        pass
    for name in names:
        for index, row in enumerate(source.rows):
            if not _finite(row.get(name)):
                raise _complaint(source, name, index, row.get(name))
    # Integers too large for int64 come here.
    return np.array([[float(row[name]) for name in names] for row in source.rows])


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


def _complaint(source: Source, name: str, index: int, value: Any) -> UsageError:
    if isinstance(value, (int, float)):
        fault = "NaN" if value != value else "infinite or too large"
        return UsageError(f'{source.at(index)}: "{name}" is {fault}; features are finite numbers.')
    if value is None:
        return UsageError(f'{source.at(index)}: "{name}" is empty; features are finite numbers.')
    return UsageError(
        f'{source.at(index)}: "{name}" is {kind_of(value)}; features are numbers, '
        f"so encode the column or name the features to use."
    )
