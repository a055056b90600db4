"""What measures read from outcomes: columns without gaps, in one order, and what is independent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from equipoise.core import Estimate, Outcomes, UsageError


def rows_of(columns: dict[str, Any]) -> Outcomes:
    """Return outcomes whose scores have the names a measure was given."""
    return Outcomes.of(**columns)


def in_order(outcomes: Outcomes) -> Outcomes:
    """Return the rows by unit, build and repeat, so that resampling ignores their order."""
    return outcomes.take(np.lexsort((outcomes.repeat, outcomes.build, outcomes.unit)))


def row_keys(outcomes: Outcomes) -> np.ndarray:
    """Return a number for the unit, build and repeat of each row, by which arms are paired."""
    # 24 bits hold any build below 1,024 and repeat below 16,384.
    within = (outcomes.build.astype(np.int64) << 14) | outcomes.repeat.astype(np.int64)
    return np.asarray((outcomes.unit.astype(np.int64) << 24) | within)


def complete(part: str, outcomes: Outcomes, *names: str) -> tuple[Outcomes, str]:
    """Return the rows that have every score, in order, and a note that counts the others.

    Raises
    ------
    UsageError
        If no row is left.
    """
    whole = np.ones(len(outcomes), bool)
    for name in names:
        whole &= ~np.isnan(outcomes.score(name))
    if not whole.any():
        where = f" in arm {outcomes.arm}" if outcomes.arm else ""
        raise UsageError(f"{part}: no row{where} has a value for {' and '.join(names)}.")
    missing = int((~whole).sum())
    note = f"{missing} of {len(outcomes)} rows have no score and are left out." if missing else ""
    return in_order(outcomes.take(whole)), note


def first_score(outcomes: Outcomes, name: str | None) -> str:
    """Return the score asked for, or the task's first."""
    if name is not None:
        return name
    return outcomes.specs[0].name if outcomes.specs else next(iter(outcomes.scores))


def repeated(outcomes: Outcomes) -> bool:
    """Say whether a unit has several rows."""
    return len(np.unique(outcomes.unit)) < len(outcomes)


def clusters_of(outcomes: Outcomes) -> np.ndarray | None:
    """Return the clusters; where there are none, several rows of a unit make a cluster."""
    if outcomes.cluster is not None:
        return outcomes.cluster
    return outcomes.unit if repeated(outcomes) else None


def builds_of(outcomes: Outcomes) -> np.ndarray | None:
    """Return the builds, or None where there is one."""
    return outcomes.build if len(np.unique(outcomes.build)) > 1 else None


def noted(estimate: Estimate, *notes: str) -> Estimate:
    """Return an estimate with further notes, empty ones left out."""
    return replace(estimate, note=" ".join(filter(None, (estimate.note, *notes))))


def enclosing(estimate: Estimate) -> Estimate:
    """Return an estimate whose interval holds its value, where a bootstrap's does not."""
    low, high = min(estimate.low, estimate.value), max(estimate.high, estimate.value)
    return replace(estimate, low=low, high=high)
