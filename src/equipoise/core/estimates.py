"""Estimates: a value, its interval, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with an interval.

    Parameters
    ----------
    value
        Point estimate.
    low, high
        Ends of the interval; equal to ``-inf``/``inf`` when one-sided, NaN
        when no interval can be had (``note`` says why).
    level
        Coverage the interval aims for, in (0, 1).
    n
        Units it rests on.
    clusters, builds
        How many, where there are any.
    method
        Short name that the docs explain, such as ``"wilson"``.
    p_value
        Of the test that goes with it, where there is one.
    note
        An assumption that was checked and how it came out, or a warning.
    details
        Further numbers by name (degrees of freedom, share of variance, ...).

    Examples
    --------
    >>> print(Estimate(0.5, 0.4, 0.6, n=96, method="wilson"))
    0.500 [0.400, 0.600]
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    level: float = 0.95
    n: int = 0
    clusters: int | None = None
    builds: int | None = None
    method: str = ""
    p_value: float | None = None
    note: str = ""
    details: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def has_interval(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON; infinities and NaN become None."""
        found: dict[str, Any] = {
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "level": self.level,
            "n": self.n,
            "method": self.method,
        }
        optional: dict[str, Any] = {
            "clusters": self.clusters,
            "builds": self.builds,
            "p_value": None if self.p_value is None else _finite(self.p_value),
            "note": self.note or None,
            "details": {k: _finite(float(v)) for k, v in self.details.items()} or None,
        }
        return found | {name: value for name, value in optional.items() if value is not None}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
