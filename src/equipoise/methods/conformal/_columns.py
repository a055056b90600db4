"""What measures of coverage and size read from outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from equipoise.core import Estimate, Outcomes, ScoreSpec, UsageError


def share_outcomes(columns: Mapping[str, Any]) -> Outcomes:
    """Return outcomes of scores between 0 and 1."""
    specs = [ScoreSpec(name, low=0.0, high=1.0) for name in columns]
    return Outcomes.of(specs=specs, **columns)


def complete(part: str, outcomes: Outcomes, *names: str) -> tuple[Outcomes, str]:
    """Return the rows that have every score, by unit, and a note that counts the others."""
    whole = np.ones(len(outcomes), bool)
    for name in names:
        whole &= ~np.isnan(outcomes.score(name))
    if not whole.any():
        where = f" in arm {outcomes.arm}" if outcomes.arm else ""
        raise UsageError(f"{part}: no row{where} has a value for {' and '.join(names)}.")
    missing = int((~whole).sum())
    note = f"{missing} of {len(outcomes)} rows have no score and are left out." if missing else ""
    rows = outcomes.take(whole)
    return rows.take(np.lexsort((rows.repeat, rows.build, rows.unit))), note


def clusters_of(outcomes: Outcomes) -> np.ndarray | None:
    """Return the clusters; where there are none, several rows of a unit make a cluster."""
    if outcomes.cluster is not None:
        return outcomes.cluster
    repeated = len(np.unique(outcomes.unit)) < len(outcomes)
    return outcomes.unit if repeated else None


def strata_of(outcomes: Outcomes) -> list[str] | None:
    """Return the stratum of each row, None where units have none."""
    if outcomes.stratum is None:
        return None
    return [outcomes.strata[code] if code >= 0 else "none" for code in outcomes.stratum]


def noted(estimate: Estimate, note: str) -> Estimate:
    """Return an estimate with one more note, or as it was."""
    return replace(estimate, note=" ".join(filter(None, (estimate.note, note))))
