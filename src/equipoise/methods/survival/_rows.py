"""What parts on survival times share: targets, names of curve columns, drawn curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equipoise.core import Series, UsageError
from equipoise.kit.arrays.survival import StepCurve
from equipoise.kit.data.rows import kind_of
from equipoise.kit.data.source import Source

SHARES = tuple(tenth / 10 for tenth in range(1, 11))
"""Shares of the horizon at which curves are scored."""


def curve_names() -> list[str]:
    """Return the score of each share of the horizon."""
    return [f"survival_{round(100 * share)}" for share in SHARES]


def observed(name: str, curve: StepCurve, kept: np.ndarray) -> Series:
    """Return a Kaplan-Meier curve as steps with its interval, at the points that are kept."""
    sides = (curve.survival, curve.low, curve.high)
    survival, low, high = ([1.0, *each[kept].round(4).tolist()] for each in sides)
    return Series(name, [0.0, *curve.times[kept].tolist()], survival, low, high, look="step")


def time_and_event_rows(source: Source, time: str, event: str) -> tuple[Any, ...]:
    """Return ``[time, event]`` of each row, refusing what is neither."""
    found = []
    for index, row in enumerate(source.rows):
        value, seen = row[time], row[event]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            got = kind_of(value)
            raise UsageError(f'{source.at(index)}: "{time}" is {got}; times are numbers.')
        if not math.isfinite(value) or value < 0:
            raise UsageError(
                f'{source.at(index)}: "{time}" is {value:g}; times are finite and not negative.'
            )
        if seen not in (0, 1):
            raise UsageError(
                f'{source.at(index)}: "{event}" is {seen!r}; it must be 1 or true where the event '
                f"was seen, 0 or false where the time was cut short."
            )
        found.append([float(value), float(seen)])
    return tuple(found)
