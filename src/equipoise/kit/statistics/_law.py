"""What the draws of a bootstrap say; `resampling` has the equations."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import special

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics._common import Array, join, size_note

Method = Literal["bca", "percentile", "studentized"]

_UNDEFINED = 0.1
"""Share of draws that may be undefined before the bootstrap refuses."""


class Law:
    """The bootstrap law of a statistic and what it says about level and zero."""

    def __init__(
        self, value: float, star: Array, method: Method, acceleration: float, se: float,
        star_se: Array,
    ) -> None:  # fmt: skip
        self.value, self.method, self.a, self.se = value, method, acceleration, se
        fine = np.isfinite(star)
        self.slack = 1e-12 * float(np.abs(star[fine]).max(initial=0.0))
        self.flat = not fine.any() or bool(np.ptp(star[fine]) <= 2 * self.slack)
        if method == "studentized" and not self.flat:
            fine &= np.isfinite(star_se) & (star_se > 0)
            self.t = np.sort((star[fine] - value) / star_se[fine])
            self.flat = self.t.size == 0 or not (np.isfinite(se) and se > 0)
        self.lost = int(star.size - fine.sum())
        self.draws = star.size
        self.star = np.sort(star[fine])
        self.bias = 0.0
        if method == "bca" and not self.flat:
            below = (self.star < value - self.slack).sum() + (self.star <= value + self.slack).sum()
            self.bias = float(special.ndtri(self._inside(below / 2 / self.star.size)))

    def _inside(self, share: float) -> float:
        floor = 1 / (self.star.size + 1)
        return min(max(share, floor), 1 - floor)

    def interval(self, level: float) -> tuple[float, float]:
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        if self.flat:
            return self.value, self.value
        if self.method == "studentized":
            high, low = np.quantile(self.t, tails)
            return float(self.value - low * self.se), float(self.value - high * self.se)
        if self.method == "bca":
            z = self.bias + special.ndtri(tails)
            room = 1 - self.a * z
            pushed = self.bias + z / np.where(room > 0, room, 1.0)
            tails = np.where(room > 0, special.ndtr(pushed), z > 0)
        low, high = np.quantile(self.star, tails)
        return float(low), float(high)

    def p_value(self) -> float:
        if self.flat:
            return 1.0 if abs(self.value) <= self.slack else 1 / (self.draws + 1)
        count = self.star.size
        if self.method == "studentized":
            seen = self.value / self.se
            tails = [float((self.t >= seen).sum()), float((self.t <= seen).sum())]
            tails = [(each + 1) / (count + 1) for each in tails]
        else:
            at_most = float((self.star <= self.slack).sum() + 1) / (count + 1)
            at_least = float((self.star >= -self.slack).sum() + 1) / (count + 1)
            tails = [at_most, at_least]
            if self.method == "bca":
                tails = [self._pulled(at_most), 1 - self._pulled(1 - at_least)]
        return min(1.0, max(2 * min(tails), 1 / (self.draws + 1)))

    def _pulled(self, share: float) -> float:
        """Return the nominal tail whose BCa end is the quantile at ``share``."""
        w = float(special.ndtri(self._inside(share))) - self.bias
        if 1 + self.a * w <= 0:
            return 0.0 if w < 0 else 1.0
        return float(special.ndtr(w / (1 + self.a * w) - self.bias))

    def estimate(self, level: float, n: int, clusters: int | None, who: str) -> Estimate:
        if self.lost > _UNDEFINED * self.draws:
            raise UsageError(
                f"{who}: the statistic is undefined on {self.lost} of {self.draws} resamples; "
                "more units, or a statistic that small samples have, would be needed."
            )
        low, high = self.interval(level)
        notes = [size_note(n, clusters)]
        if self.lost:
            notes.append(f"{self.lost} of {self.draws} resamples were undefined and left out.")
        if self.flat:
            notes.append("All resamples agree, so the interval has no width.")
        if self.draws * (1 - level) / 2 < 5:
            notes.append(f"{self.draws} draws are few for this level; use more.")
        spread = float(self.star.std(ddof=1)) if self.star.size > 1 else 0.0
        details = {"se": self.se if self.method == "studentized" else spread}
        if self.method == "bca":
            details |= {"bias": self.bias, "acceleration": self.a}
        return Estimate(
            self.value, low, high, level, n, clusters, None, self.method, self.p_value(),
            join(notes), details,
        )  # fmt: skip
