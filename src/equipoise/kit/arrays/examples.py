"""What a learner learns from, as arrays: rows, targets, the split and the group of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.core import Split, Unit, UnitError, UsageError


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows with their targets; a learner reads those of the splits it learns from.

    Parameters
    ----------
    inputs
        ``(n, features)``, finite.
    targets
        ``(n,)``, or ``(n, columns)`` such as time and event, or many labels.
    split
        ``(n,)`` of ``"train"``, ``"calibration"`` or ``"test"``; by default all train.
    group
        ``(n,)``: domain, cluster or other group of each row; by default all 0.
    ids
        A digest of each row, to know it again; empty where nobody asks.

    Examples
    --------
    >>> found = Examples(np.zeros((3, 2)), np.arange(3.0), np.array(["train", "train", "test"]))
    >>> len(found), len(found.of("train"))
    (3, 2)
    """

    inputs: np.ndarray
    targets: np.ndarray
    split: np.ndarray = field(default_factory=lambda: np.empty(0, str))
    group: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    ids: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.inputs)
        if self.inputs.ndim != 2 or len(self.targets) != n:
            raise UsageError(
                f"Examples need rows (n, features) and n targets, got inputs of shape "
                f"{self.inputs.shape} and {len(self.targets)} targets."
            )
        if not len(self.split):
            object.__setattr__(self, "split", np.full(n, "train"))
        if not len(self.group):
            object.__setattr__(self, "group", np.zeros(n, int))
        if len(self.split) != n or len(self.group) != n:
            raise UsageError(f"Examples: split and group must have one entry for each of {n} rows.")

    def __len__(self) -> int:
        return len(self.inputs)

    def of(self, *splits: Split) -> Examples:
        """Return the rows of some splits."""
        return self.take(np.isin(self.split, splits))

    def take(self, rows: np.ndarray) -> Examples:
        """Return the chosen rows, by index or mask."""
        places = np.arange(len(self))[rows]
        ids = tuple(self.ids[place] for place in places) if self.ids else ()
        return Examples(
            self.inputs[places], self.targets[places], self.split[places], self.group[places], ids
        )


def examples(data: Iterable[Unit] | Examples) -> Examples:
    """Return units as arrays: contents, targets, splits, and clusters as groups.

    Raises
    ------
    UsageError
        If there are none, contents are not lists of numbers of one length, or targets are
        neither labels nor numbers nor lists of numbers.

    Examples
    --------
    >>> examples([Unit("a", [1.0, 2.0], "yes", split="train")]).targets
    array(['yes'], dtype='<U3')
    """
    if isinstance(data, Examples):
        return data
    units = list(data)
    if not units:
        raise UsageError("There are no units to learn from; give a larger train split.")
    targets = _targets(units)
    groups = [unit.cluster for unit in units]
    return Examples(
        inputs_of(units),
        targets,
        np.array([unit.split for unit in units]),
        np.zeros(len(units), int) if not any(groups) else np.array([str(g) for g in groups]),
        tuple(map(row_digest, units)),
    )


def _targets(units: list[Unit]) -> np.ndarray:
    fault = "Units to learn from need one label or number as target, or a list of numbers."
    try:
        found = np.array([unit.target for unit in units])
    except ValueError as error:
        raise UsageError(fault) from error
    if found.dtype.kind == "O" or (found.ndim > 1 and found.dtype.kind not in "biuf"):
        raise UsageError(fault)
    return found


def inputs_of(units: Iterable[Unit]) -> np.ndarray:
    """Return the contents of units as an array ``(units, features)``."""
    try:
        found = np.asarray([unit.content for unit in units], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError("A predictor learns from units whose content is a list of numbers, "
                         "all of one length.") from error  # fmt: skip
    if found.ndim != 2:
        raise UsageError("A predictor learns from units whose content is a list of numbers.")
    return found


def column_of(found: Any, n: int) -> np.ndarray:
    """Return predictions for ``n`` rows as ``(n,)`` numbers.

    Raises
    ------
    UnitError
        Of kind ``garbage`` if they are something else.

    Examples
    --------
    >>> column_of([[1.0], [2.0]], 2)
    array([1., 2.])
    """
    try:
        values = np.asarray(found, np.float64)
    except (TypeError, ValueError) as error:
        raise UnitError("The subject predicted something other than numbers.", "garbage") from error
    if values.shape == (n, 1):
        values = values[:, 0]
    if values.shape != (n,):
        raise UnitError(
            f"The subject gave predictions of shape {values.shape} for {n} rows.", "garbage"
        )
    return values


def row_digest(unit: Unit) -> bytes:
    """Return a short hash of all that makes a row, to know it again."""
    text = repr((unit.id, unit.content, unit.target))
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def learns_from(subject: Any) -> tuple[Split, ...]:
    """Return the splits that a learner reads."""
    found: tuple[Split, ...] = tuple(getattr(subject, "learns_from", ("train",)))
    return found
