"""A leaderboard of the arms of several runs, on the units that all of them share."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from equipoise.core import Estimate, Outcomes
from equipoise.trial.compare import describe
from equipoise.viewer.grid import size_of


@dataclass(frozen=True)
class Standing:
    """One arm of one run: its mean on each shared task, and over them.

    ``ranks`` is the best and the worst place that the intervals allow.
    """

    run: int
    trial: str
    arm: str
    tasks: Mapping[str, Estimate]
    overall: Estimate
    ranks: tuple[int, int] = (0, 0)


def leaderboard(
    store: Any, runs: Sequence[Mapping[str, Any]], level: float
) -> tuple[list[Standing], list[str]]:
    """Return arms, the best first, and the tasks that all of them did: those that most arms did.

    Tasks are shared when they are set up alike; an arm that two runs have counts
    once. Several tasks are averaged, each counting once; the interval of that mean
    adds their half-widths as roots of squares.
    """
    entries: dict[tuple[int, str], dict[int, Mapping[str, Any]]] = {}
    labels: dict[int, str] = {}
    names: dict[tuple[int, str], tuple[int, str]] = {}
    for run in runs:
        for cell in run["covers"]:
            key = (cell["arm"], cell["arm_label"])
            names.setdefault(key, (run["id"], run["trial"]))
            entries.setdefault(key, {}).setdefault(cell["task"], cell)
            if cell["task"] not in labels:
                taken = cell["task_label"] in labels.values()  # by a task set up otherwise
                labels[cell["task"]] = cell["task_label"] + (f" (run {run['id']})" if taken else "")
    shared, arms = _shared(entries)
    entries = {key: entries[key] for key in arms}
    tasks = [labels[number] for number in shared]
    columns = {labels[number]: _columns(store, entries, number) for number in shared}
    tasks = [task for task in tasks if all(len(each) for each in columns[task].values())]
    if not tasks:
        return [], []
    down = {
        task: next(iter(columns[task].values())).specs[0].higher_is_better is False
        for task in tasks
    }
    found = []
    for key, (run_id, trial) in ((key, names[key]) for key in entries):
        means = {
            task: describe(
                columns[task][key], columns[task][key].specs[0].name, level=level, errors="worst"
            )
            for task in tasks
        }
        # What is better must be higher before tasks are averaged.
        signs = [-1.0 if down[task] and len(set(down.values())) > 1 else 1.0 for task in tasks]
        overall = _overall(list(means.values()), signs, level)
        found.append(Standing(run_id, trial, key[1], means, overall))
    lower = all(down.values())
    return _ranked(found, lower), tasks


def _shared(
    entries: Mapping[tuple[int, str], Mapping[int, Any]],
) -> tuple[list[int], list[tuple[int, str]]]:
    """Return the tasks that most arms did, and these arms."""
    did: dict[int, list[tuple[int, str]]] = {}
    for key, cells in entries.items():
        for task in cells:
            did.setdefault(task, []).append(key)
    arms = max(did.values(), key=len, default=[])
    return [task for task, these in did.items() if these == arms], arms


def _columns(
    store: Any, entries: Mapping[Any, Mapping[int, Mapping[str, Any]]], task: int
) -> dict[Any, Outcomes]:
    """Return each arm's outcomes on the units that all arms have."""
    read = {}
    for key, cells in entries.items():
        cell = cells[task]
        read[key] = store.outcomes(cell["arm"], cell["task"], **size_of(cell))
    common = functools.reduce(np.intersect1d, [each.unit for each in read.values()])
    masks = {key: np.isin(each.unit, common) for key, each in read.items()}
    return {key: each if masks[key].all() else each.take(masks[key]) for key, each in read.items()}


def _overall(means: Sequence[Estimate], signs: Sequence[float], level: float) -> Estimate:
    if len(means) == 1:
        return means[0]
    value = float(np.mean([sign * each.value for sign, each in zip(signs, means, strict=True)]))
    half = math.sqrt(sum(((each.high - each.low) / 2) ** 2 for each in means)) / len(means)
    n = sum(each.n for each in means)
    return Estimate(value, value - half, value + half, level, n, method="mean over tasks")


def _ranked(found: list[Standing], lower: bool) -> list[Standing]:
    sign = 1.0 if lower else -1.0
    found = sorted(found, key=lambda each: sign * each.overall.value)
    low = [each.overall.low for each in found]
    high = [each.overall.high for each in found]
    if lower:
        low, high = [-h for h in high], [-x for x in low]
    ranks = [
        (1 + sum(other > mine_high for other in low), len(found) - sum(o < mine_low for o in high))
        for mine_low, mine_high in zip(low, high, strict=True)
    ]
    return [replace(each, ranks=rank) for each, rank in zip(found, ranks, strict=True)]
