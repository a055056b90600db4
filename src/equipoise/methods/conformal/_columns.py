"""What measures of coverage and size read from outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equipoise.core import Outcomes, ScoreSpec


def share_outcomes(columns: Mapping[str, Any]) -> Outcomes:
    """Return outcomes of scores between 0 and 1."""
    specs = [ScoreSpec(name, low=0.0, high=1.0) for name in columns]
    return Outcomes.of(specs=specs, **columns)


def strata_of(outcomes: Outcomes) -> list[str] | None:
    """Return the stratum of each row, None where units have none."""
    if outcomes.stratum is None:
        return None
    return [outcomes.strata[code] if code >= 0 else "none" for code in outcomes.stratum]
