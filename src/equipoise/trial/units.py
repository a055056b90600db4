"""A task's test units, numbered by the store, at a memory that does not grow with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from equipoise.core import Unit, UsageError, units_stream
from equipoise.store import Store
from equipoise.trial.trial import Trial

CHUNK = 2_000
KEPT = 20_000
"""Units up to this many are held; more are generated again for each arm."""


@dataclass(frozen=True)
class TaskUnits:
    """The units of one task: their store numbers, and a way to walk them."""

    trial: Trial
    label: str
    numbers: np.ndarray
    held: tuple[Unit, ...] | None

    def __len__(self) -> int:
        return len(self.numbers)

    def chunks(self) -> Iterator[tuple[np.ndarray, list[Unit]]]:
        """Yield numbers and units together, a chunk at a time, in order."""
        source = iter(self.held) if self.held is not None else test_units(self.trial, self.label)
        for start in range(0, len(self.numbers), CHUNK):
            yield (
                self.numbers[start : start + CHUNK],
                list(itertools.islice(source, min(CHUNK, len(self.numbers) - start))),
            )

    def groups(self) -> list[np.ndarray]:
        """Return positions by cluster, the clusters in random order, for early stopping.

        A unit without a cluster is one of its own.
        """
        groups: dict[str, list[int]] = {}
        for position, unit in enumerate(self.held or ()):
            groups.setdefault(unit.cluster or f"\0{unit.id}", []).append(position)
        found = [np.array(positions) for positions in groups.values()]
        order = self.trial.rng.child("order", self.label).numpy().permutation(len(found))
        return [found[place] for place in order]


def test_units(trial: Trial, label: str) -> Iterator[Unit]:
    """Yield a task's test units, cut to the trial's size."""
    task = trial.tasks[label]
    units = (unit for unit in task.units(units_stream(trial.rng)) if unit.split == "test")
    return itertools.islice(units, trial.units)


def number_units(trial: Trial, label: str, store: Store, task_number: int) -> TaskUnits:
    """Write a task's units to the store and return them numbered.

    Raises
    ------
    UsageError
        When the task has no test units or gives an id twice.
    """
    numbers: list[np.ndarray] = []
    held: list[Unit] | None = []
    count = 0
    source = test_units(trial, label)
    while chunk := list(itertools.islice(source, CHUNK)):
        numbers.append(np.asarray(store.add_units(task_number, chunk)))
        count += len(chunk)
        if held is not None:
            held = [*held, *chunk] if count <= KEPT else None
    if not count:
        raise UsageError(f"Task {label} has no test units.")
    joined = np.concatenate(numbers)
    values, counts = np.unique(joined, return_counts=True)
    if (counts > 1).any():
        number = values[counts > 1][0]
        position = int(np.flatnonzero(joined == number)[1])
        twice = next(itertools.islice(test_units(trial, label), position, None))
        raise UsageError(f'Task {label} gives the unit id "{twice.id}" twice.')
    return TaskUnits(trial, label, joined, tuple(held) if held is not None else None)
