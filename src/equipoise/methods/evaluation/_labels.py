"""Human labels of answers, kept in a table beside a run: what each belongs to, and its value."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.data import content_hash
from equipoise.kit.data.rows import load

KEY = "answer_key"
"""Score that tells answers apart, so that a label finds the very answer it was given for."""

_WORDS = dict.fromkeys(("yes", "right", "win", "true"), 1.0)
_WORDS |= dict.fromkeys(("no", "wrong", "loss", "false"), 0.0) | {"tie": 0.5}


def answer_key(unit: object, answer: object) -> float:
    """Return a number of 48 bits that stands for a unit's answer.

    White space and the writing of a lone number do not count: tables and
    spreadsheets change them.

    Examples
    --------
    >>> answer_key("q1", "4.50") == answer_key("q1", " 4.5\\n") != answer_key("q2", "4.5")
    True
    """
    said = f"{_plain(unit)}\0{_plain(answer)}".encode("utf-8", "backslashreplace")
    return float(int.from_bytes(hashlib.sha256(said).digest()[:6], "big"))


def _plain(value: object) -> str:
    text = " ".join(str(value).split())
    try:
        return repr(float(text))
    except ValueError:
        return text.lower() if text.lower() in ("true", "false") else text


@dataclass(frozen=True)
class Labels:
    """Labels by the key of the answer, ``keys`` rising, ``values`` in [0, 1]."""

    keys: np.ndarray
    values: np.ndarray

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Return the label of each answer, NaN where it has none."""
        found = np.full(len(keys), np.nan)
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            hit = self.keys[place] == keys
            found[hit] = self.values[place[hit]]
        return found


def read_labels(path: str, label: str, low: float, high: float) -> Labels:
    """Return the labels of a table with the columns ``unit``, ``output`` and ``label``.

    Parameters
    ----------
    path
        As in `equipoise.kit.data.read_rows`.
    label
        Column of the labels: a number, or yes/no, right/wrong, win/tie/loss. Rows without one
        are passed over; several labels of one answer are averaged.
    low, high
        What a label of the worst and of the best answer is.

    Raises
    ------
    UsageError
        One sentence with the line of the fault.
    """
    return _read(path, label, low, high, str(content_hash(path)))


@functools.lru_cache(maxsize=8)
def _read(path: str, label: str, low: float, high: float, version: str) -> Labels:
    source = load(path, columns=["unit"])
    for name in ("output", label):
        if not any(name in row for row in source.rows):
            there = ", ".join(map(str, source.rows[0]))
            raise UsageError(
                f'{path}: there is no column "{name}"; labels need unit, output (the answer) and'
                f" {label}. There are: {there}."
            )
    found: dict[float, list[float]] = defaultdict(list)
    for index, row in enumerate(source.rows):
        given = row.get(label)
        if given is None or (isinstance(given, str) and not given.strip()):
            continue
        if row.get("output") is None:
            raise UsageError(f"{source.at(index)}: has a label and no output; name the answer.")
        value = _value(given, low, high)
        if not 0 <= value <= 1:
            raise UsageError(
                f'{source.at(index)}: "{label}" must be a number from {low:g} to {high:g}, or'
                f" yes, no, right, wrong, win, tie or loss, got {given!r}."
            )
        found[answer_key(row["unit"], row["output"])].append(value)
    if not found:
        raise UsageError(f'{path}: no row has a "{label}"; fill in some, chosen at random.')
    keys = np.array(sorted(found))
    return Labels(keys, np.array([np.mean(found[key]) for key in keys]))


def _value(given: Any, low: float, high: float) -> float:
    word = str(given).strip().lower()
    if (word in _WORDS and not isinstance(given, (int, float))) or isinstance(given, bool):
        return _WORDS[word]
    try:
        return (float(word) - low) / (high - low)
    except ValueError:
        return math.nan
