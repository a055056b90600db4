"""Two cells to paired rows: which units both have, what they are called, how scores are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import Outcomes, ScoreSpec, UsageError
from equipoise.store.sheets import cluster_codes
from equipoise.trial.compare import fill, pair
from equipoise.trial.sides import Cell


@dataclass(frozen=True)
class Joined:
    """The rows that two cells share, paired.

    Parameters
    ----------
    first, second
        Rows in the same order.
    ids
        Gives ids of units by their numbers.
    groups
        Name of each unit's cluster by the unit's number, where there are clusters.
    only_first, only_second
        Units that the other side lacks.
    averaged
        Whether repeats were averaged on each side because they do not match.
    """

    first: Outcomes
    second: Outcomes
    ids: Callable[[np.ndarray], list[str]]
    groups: Mapping[int, str] | None
    only_first: int
    only_second: int
    averaged: bool


def join(a: Cell, b: Cell, names: tuple[str, str]) -> Joined:
    """Pair two cells by unit.

    Raises
    ------
    UsageError
        If a unit is in one cluster here and in another there.
    """
    one, two = a.read(), b.read()
    if a.task == b.task:
        numbers = np.union1d(one.unit, two.unit)
        groups = None
        if one.cluster is not None:
            clusters = a.units(numbers)[1]
            groups = {n: c for n, c in zip(numbers.tolist(), clusters, strict=True) if c}

        def ids(wanted: np.ndarray) -> list[str]:
            return a.units(wanted)[0]
    else:
        one, two, known, groups = _by_id(a, b, one, two, names)

        def ids(wanted: np.ndarray) -> list[str]:
            return [known[number] for number in wanted.tolist()]

    ours, theirs = np.unique(one.unit), np.unique(two.unit)
    shared = np.intersect1d(ours, theirs, assume_unique=True)
    one, two = (each.take(np.isin(each.unit, shared)) for each in (one, two))
    averaged = not np.array_equal(_asked(one), _asked(two))
    if averaged:
        one, two = _averaged(one), _averaged(two)
    first, second = pair(one, two)
    lone = len(ours) - len(shared), len(theirs) - len(shared)
    return Joined(first, second, ids, groups, *lone, averaged)


def _by_id(
    a: Cell, b: Cell, one: Outcomes, two: Outcomes, names: tuple[str, str]
) -> tuple[Outcomes, Outcomes, list[str], dict[int, str] | None]:
    """Number the units of both by their ids, and join what is known of their clusters."""
    known: dict[str, int] = {}
    groups: dict[int, str] = {}
    found = []
    for cell, outcomes in ((a, one), (b, two)):
        numbers, place = np.unique(outcomes.unit, return_inverse=True)
        unit_ids, clusters = cell.units(numbers)
        new = np.array([known.setdefault(each, len(known)) for each in unit_ids], np.int64)
        for number, cluster in zip(new.tolist(), clusters, strict=True):
            if cluster is not None and groups.setdefault(number, cluster) != cluster:
                unit = list(known)[number]
                raise UsageError(
                    f'Unit "{unit}" of task {outcomes.task} is in cluster {groups[number]} in'
                    f" {names[0]} and in {cluster} in {names[1]}; mend one of them."
                )
        found.append(replace(outcomes, unit=new[place]))
    code = cluster_codes([groups.get(each) for each in range(len(known))]) if groups else None
    one, two = (replace(each, cluster=None if code is None else code[each.unit]) for each in found)
    return one, two, list(known), groups or None


def _asked(outcomes: Outcomes) -> np.ndarray:
    """Return which repeats of which units there are."""
    return np.unique((outcomes.unit.astype(np.int64) << 14) | outcomes.repeat.astype(np.int64))


def _averaged(outcomes: Outcomes) -> Outcomes:
    """Return one row a unit and build, failures dealt with and repeats averaged."""
    key = (outcomes.unit.astype(np.int64) << 10) | outcomes.build.astype(np.int64)
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    scores = {}
    there = np.zeros(len(first), bool)
    for name in outcomes.scores:
        values, keep = fill(outcomes, name, "worst")
        counts = np.bincount(place[keep], minlength=len(first))
        sums = np.bincount(place[keep], values[keep], minlength=len(first))
        scores[name] = np.divide(sums, counts, out=np.full(len(first), np.nan), where=counts > 0)
        there |= counts > 0
    row = outcomes.take(first)
    failed = ~there & (np.bincount(place, outcomes.failed, minlength=len(first)) > 0)
    return replace(
        row,
        scores=scores,
        failed=failed,
        excused=failed if outcomes.excused is not None else None,
        repeat=np.zeros(len(first), np.int64),
    )


def agreed(one: ScoreSpec, two: ScoreSpec, task: str) -> tuple[ScoreSpec | None, str]:
    """Return how both sides read a score, and what a reader must know; None if they do not agree.

    Where bounds differ there are none: a failed unit is then left out.
    """
    if one.higher_is_better != two.higher_is_better:
        way = {True: "more is better", False: "less is better", None: "neither way is better"}
        return None, (
            f"Score {one.name} of {task} is not compared: {way[one.higher_is_better]} on one side,"
            f" {way[two.higher_is_better]} on the other."
        )
    if (one.low, one.high) == (two.low, two.high):
        return one, ""
    said = (
        f"Score {one.name} of {task} has {_range(one)} on one side and {_range(two)} on the other"
    )
    return ScoreSpec(one.name, one.higher_is_better, unit=one.unit), (
        f"{said}; it is compared as it stands, and failed units are left out."
    )


def _range(spec: ScoreSpec) -> str:
    if spec.low is None and spec.high is None:
        return "no bounds"
    low, high = ("-inf" if spec.low is None else f"{spec.low:g}",
                 "inf" if spec.high is None else f"{spec.high:g}")  # fmt: skip
    return f"bounds {low} to {high}"
