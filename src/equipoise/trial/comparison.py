"""Two runs, one answer: paired effects on everything they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.kit.statistics.corrections import holm
from equipoise.store import Store
from equipoise.trial.compare import describe, effect
from equipoise.trial.result import Row


def compare(
    store: Store,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    *,
    arm: str | None = None,
    other: str | None = None,
    level: float = 0.95,
) -> list[dict[str, Any]]:
    """Return how much better the second is than the first on each task and score they share.

    Parameters
    ----------
    store
        Where both runs are.
    first, second
        Runs, as `Store.run` gives them.
    arm, other
        Label of one arm of the first and of the second run; needed where a
        run has several and the labels do not match.
    level
        Coverage of each interval.

    Returns
    -------
    list of dict
        One row a pair of arms, task and score: estimate, interval, p-value, and
        the p-value after Holm's correction over all rows.

    Raises
    ------
    UsageError
        If the runs share no task, or an arm has to be named.
    """
    pairs = _pairs(first, second, arm, other)
    rows: list[dict[str, Any]] = []
    for label_a, label_b in pairs:
        ones, twos = _cells(first, label_a), _cells(second, label_b)
        for task in [label for label in ones if label in twos]:
            if ones[task]["task"] != twos[task]["task"]:
                continue  # the same label, but other units
            a, b = (_outcomes(store, cell) for cell in (ones[task], twos[task]))
            rows += _effects(a, b, label_a, label_b, task, level)
    if not rows:
        raise UsageError("These runs share no task with common units, so nothing can be paired.")
    tested = [row for row in rows if row.get("p_value") is not None]
    if tested:
        adjusted = holm([row["p_value"] for row in tested])
        for row, p in zip(tested, adjusted, strict=True):
            row["p_adjusted"] = float(p)
    return rows


def estimates(store: Store, run: Mapping[str, Any], *, level: float = 0.95) -> list[dict[str, Any]]:
    """Return the mean of every score of every arm and task of a run, with its interval.

    For runs without a result of their own: imported ones, and those that were stopped.
    """
    rows = []
    for cell in run["covers"]:
        found = _outcomes(store, cell)
        for spec in found.specs:
            mean = describe(found, spec.name, level=level, errors="worst")
            row = Row(
                cell["arm_label"], cell["task_label"], spec.name, mean, None,
                spec.higher_is_better, spec.unit,
            )  # fmt: skip
            rows.append(row.as_json() | {"errors": int(found.failed.sum())})
    return rows


def _pairs(
    first: Mapping[str, Any], second: Mapping[str, Any], arm: str | None, other: str | None
) -> list[tuple[str, str]]:
    ones, twos = _numbers(first, "arm"), _numbers(second, "arm")
    for label, arms in ((arm, ones), (other, twos)):
        if label is not None and label not in arms:
            raise UsageError(f'No arm "{label}" in that run. There are: {", ".join(arms)}.')
    if arm is not None or other is not None:
        if arm is None and len(ones) == 1:
            arm = next(iter(ones))
        if other is None:
            other = next(iter(twos)) if len(twos) == 1 else arm
        if arm is None or other is None or other not in twos:
            raise UsageError("Name an arm of each run: --arm and --other.")
        return [(arm, other)]
    if first["id"] == second["id"]:
        control, *treated = ones
        if not treated:
            raise UsageError("That run has one arm; name another run to compare it with.")
        return [(control, each) for each in treated]
    if len(ones) == len(twos) == 1:
        return [(next(iter(ones)), next(iter(twos)))]
    shared = [label for label in ones if label in twos]
    if not shared:
        raise UsageError(
            "The runs share no arm label; name one of each: --arm "
            f"{'|'.join(ones)} --other {'|'.join(twos)}."
        )
    return [(label, label) for label in shared]


def _numbers(run: Mapping[str, Any], what: str) -> dict[str, int]:
    """Return label to number of a run's arms or tasks."""
    return {cell[f"{what}_label"]: cell[what] for cell in run["covers"]}


def _cells(run: Mapping[str, Any], arm: str) -> dict[str, Mapping[str, Any]]:
    return {cell["task_label"]: cell for cell in run["covers"] if cell["arm_label"] == arm}


def _outcomes(store: Store, cell: Mapping[str, Any]) -> Outcomes:
    size = {name: cell[name] for name in ("units", "builds", "repeats")}
    return store.outcomes(cell["arm"], cell["task"], **size)


def _effects(
    a: Outcomes, b: Outcomes, label_a: str, label_b: str, task: str, level: float
) -> list[dict[str, Any]]:
    if not len(np.intersect1d(a.unit, b.unit)):
        return []
    rows = []
    for spec in a.specs:
        if spec.higher_is_better is None or spec.name not in b.scores:
            continue
        rng = Rng(0).child("compare", label_a, label_b, task, spec.name)
        found = effect(b, a, spec.name, level=level, errors="worst", rng=rng)
        rows.append(
            {
                "arm": label_b,
                "versus": label_a,
                "task": task,
                "score": spec.name,
                "lost": found.lost,
                **found.estimate.as_json(),
            }
        )
    return rows
