"""Units down, arms across: one score of every unit in every arm of a run, kept in memory.

A run of a million outcomes takes about 20 MB here. Filters and orders are then a few
milliseconds; what a page shows of its units is read from the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from equipoise.core import EXCUSED, ScoreSpec, UsageError, nearest

Show = Literal["all", "disagree", "better", "worse", "failed", "wrong"]

SHOWS: Mapping[str, str] = {
    "all": "all units",
    "disagree": "arms disagree",
    "better": "an arm beats the first",
    "worse": "an arm loses to the first",
    "failed": "an arm failed",
    "wrong": "no arm got it right",
}

MOST_KINDS = 200
_ARM = "arm:"


@dataclass(frozen=True)
class Grid:
    """One score of a task, units down and arms across.

    Parameters
    ----------
    arms
        Labels; the first is what others are compared with.
    numbers
        Unit numbers that any arm has an outcome for, rising, shape ``(units,)``.
    value
        Mean score, NaN where there is none, shape ``(units, arms)``.
    kind
        Kind of error where an outcome failed: a place in ``kinds``, 0 for none.
    kinds
        Kinds of errors by place; the first stands for none.
    spec
        How the score is read.
    """

    arms: tuple[str, ...]
    numbers: np.ndarray
    value: np.ndarray
    kind: np.ndarray
    kinds: tuple[str, ...]
    spec: ScoreSpec

    @classmethod
    def read(
        cls,
        store: Any,
        cells: Mapping[str, Mapping[str, Any]],
        spec: ScoreSpec,
        *,
        below: int | None = None,
    ) -> Grid:
        """Read the cells of a task, by the label of their arm.

        ``below`` reads the units with a smaller number alone.
        """
        columns = {
            arm: store.unit_scores(
                cell["arm"],
                cell["task"],
                spec.name,
                below=below,
                **size_of(cell),
            )
            for arm, cell in cells.items()
        }
        numbers = np.unique(np.concatenate([each.unit for each in columns.values()]))
        shape = (len(numbers), len(columns))
        value, kind, kinds = np.full(shape, np.nan), np.zeros(shape, np.int16), [""]
        for place, each in enumerate(columns.values()):
            at = np.searchsorted(numbers, each.unit)
            value[at, place] = each.value
            wrong = np.flatnonzero(each.failed)
            names, where = np.unique(each.kind[wrong].astype(str), return_inverse=True)
            codes = np.array([_code(kinds, str(name)) for name in names], np.int16)
            kind[at[wrong], place] = codes[where]
        return cls(tuple(columns), numbers, value, kind, tuple(kinds), spec)

    @property
    def nbytes(self) -> int:
        """Bytes of its columns, those that are worked out later included."""
        held = self.numbers.nbytes + self.value.nbytes + self.kind.nbytes
        return held + self.value.nbytes + self.numbers.nbytes  # `filled` and `spread`

    @property
    def failed(self) -> np.ndarray:
        """Whether an outcome of a unit failed, shape ``(units, arms)``."""
        return np.asarray(self.kind > 0)

    @property
    def best(self) -> float | None:
        """The score of a right answer, where there is one."""
        up = self.spec.higher_is_better
        return None if up is None else self.spec.high if up else self.spec.low

    @cached_property
    def filled(self) -> np.ndarray:
        """The scores, what failed at the worst value where there is one and the arm is to blame."""
        worst = self.spec.worst
        if worst is None:
            return self.value
        blamed = [place for place, kind in enumerate(self.kinds) if place and kind not in EXCUSED]
        return np.where(np.isin(self.kind, blamed) & np.isnan(self.value), worst, self.value)

    @cached_property
    def spread(self) -> np.ndarray:
        """How far apart the arms are on each unit, 0 where one arm alone has a score."""
        filled = self.filled
        low = np.where(np.isnan(filled), np.inf, filled).min(axis=1)
        high = np.where(np.isnan(filled), -np.inf, filled).max(axis=1)
        return np.asarray(np.subtract(high, low, out=np.zeros(len(low)), where=high > low))

    def gain(self, arm: int) -> np.ndarray:
        """Return how much better an arm is than the first, NaN where either has no score."""
        sign = -1.0 if self.spec.higher_is_better is False else 1.0
        with np.errstate(invalid="ignore"):  # no gain between two infinities
            return np.asarray(sign * (self.filled[:, arm] - self.filled[:, 0]))

    def choose(
        self,
        *,
        show: str = "all",
        arm: str = "",
        kind: str = "",
        low: float | None = None,
        high: float | None = None,
        only: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return which units are wanted, as a mask.

        Parameters
        ----------
        show
            A key of `SHOWS`.
        arm
            The arm that ``better``, ``worse``, ``failed``, ``low`` and ``high`` are about;
            any arm if empty.
        kind
            A kind of error.
        low, high
            Bounds of the score, inclusive.
        only
            Unit numbers that may be chosen.
        """
        places = list(range(len(self.arms))) if not arm else [self.place(arm)]
        others = [place for place in places if place] or [0]
        mask: np.ndarray
        if show == "disagree":
            mask = np.asarray(self.spread > 0)
        elif show in ("better", "worse"):
            sign = 1 if show == "better" else -1
            gains = np.stack([self.gain(place) for place in others], axis=1)
            mask = np.asarray((sign * gains > 0).any(axis=1))
        elif show == "failed":
            mask = np.asarray(self.failed[:, places].any(axis=1))
        elif show == "wrong":
            filled = self.filled[:, places]
            right = np.zeros_like(filled, bool) if self.best is None else filled == self.best
            mask = np.asarray(~right.any(axis=1))
        elif show == "all":
            mask = np.ones(len(self.numbers), bool)
        else:
            raise UsageError(f'No choice "{show}".{nearest(show, SHOWS)}')
        if kind:
            code = self.kinds.index(kind) if kind in self.kinds else -1
            mask &= (self.kind[:, places] == code).any(axis=1)
        if low is not None or high is not None:
            values = self.value[:, places]
            inside = ~np.isnan(values)
            inside &= values >= (-np.inf if low is None else low)
            inside &= values <= (np.inf if high is None else high)
            mask &= inside.any(axis=1)
        if only is not None:
            mask &= np.isin(self.numbers, only, assume_unique=True)
        return mask

    def order(self, mask: np.ndarray, sort: str, descending: bool) -> np.ndarray:
        """Return the chosen rows in order.

        ``sort`` is ``unit``, ``spread``, or an arm's label for its score, see `sort_of`; rows
        without a value come last, ties in the order of the units.
        """
        rows = np.flatnonzero(mask)
        if sort in ("", "unit"):
            return rows[::-1] if descending else rows
        if sort == "spread":
            key = self.spread[rows]
        else:
            key = self.filled[rows, self.place(sort.removeprefix(_ARM))]
        missing = np.isnan(key)
        return np.asarray(rows[np.lexsort((-key if descending else key, missing))])

    def sort_of(self, arm: str) -> str:
        """Return how `order` is asked for an arm's score: by its label, if that says no other."""
        return _ARM + arm if arm in ("", "unit", "spread") or arm.startswith(_ARM) else arm

    def place(self, arm: str) -> int:
        """Return an arm's column."""
        if arm not in self.arms:
            raise UsageError(f'No arm "{arm}" in this run.{nearest(arm, self.arms)}')
        return self.arms.index(arm)


def _code(kinds: list[str], name: str) -> int:
    """Return the place of a kind of error, adding it; beyond so many they share one."""
    if name not in kinds:
        name = name if len(kinds) <= MOST_KINDS else "other errors"
    if name not in kinds:
        kinds.append(name)
    return kinds.index(name)


def cells_of(run: Mapping[str, Any], task: str) -> dict[str, Mapping[str, Any]]:
    """Return the cells of a task by the label of their arm."""
    return {each["arm_label"]: each for each in run["covers"] if each["task_label"] == task}


def size_of(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many units, builds and repeats a cell has, as a store is asked for them."""
    return {name: cell[name] for name in ("units", "builds", "repeats")}


def tasks_of(run: Mapping[str, Any]) -> Sequence[str]:
    """Return the labels of a run's tasks."""
    return list(dict.fromkeys(each["task_label"] for each in run["covers"]))
