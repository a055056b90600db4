r"""Kaplan-Meier as a measure, and its picture beside the curves that subjects predict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    Series,
    UsageError,
    between,
)
from equipoise.kit.arrays.survival import kaplan_meier, survival_at
from equipoise.methods.survival._rows import SHARES, curve_names, observed

_MOST = 150  # points of a drawn curve


@dataclass(frozen=True)
class KaplanMeier(Measure):
    r"""Share that lasts beyond a time, by Kaplan and Meier, in each stratum.

    It describes the rows and is the same in every arm. Its figure shows the observed curves with
    their intervals, one a stratum, and the mean curve that each arm predicts: where a mean curve
    leaves the observed one, the arm is out of calibration.

    Parameters
    ----------
    at
        The time asked about; by default the ``horizon`` score, or else the median time, but no
        later than all strata are followed.
    time, event
        Scores with the time, and 1 where the event was seen.
    level
        Coverage the interval aims for, at one time and in one stratum.

    References
    ----------
    Kaplan and Meier, "Nonparametric estimation from incomplete observations", JASA 1958.

    Examples
    --------
    >>> rows = Outcomes.of(time=range(1, 41), event=[1, 0] * 20)
    >>> print(KaplanMeier(at=20).measure(rows, Rng(0))["all"])
    0.712 [0.525, 0.836]
    """

    at: float | None = between(0.0, np.inf, default=None)
    time: str = "time"
    event: str = "event"
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better = None

    def simulate(self, rng: Rng) -> tuple[Outcomes, dict[str, float]]:
        """Return 120 exponential times of mean 1, cut short at a rate of one half."""
        generator = rng.numpy()
        times, cut = generator.exponential(size=120), generator.exponential(2.0, 120)
        at = 0.7 if self.at is None else self.at
        columns: dict[str, Any] = {
            self.time: np.minimum(times, cut), self.event: times <= cut, "horizon": np.full(120, at)
        }  # fmt: skip
        return Outcomes.of(**columns), {"all": float(np.exp(-at))}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return an estimate a stratum, or one for all; ``rng`` is not used."""
        rows = self._rows(outcomes)
        at = self._time(rows)
        return {
            name: survival_at(
                each.score(self.time), each.score(self.event), at,
                clusters=each.cluster, level=self.level,
            )
            for name, each in _strata(rows)
        }  # fmt: skip

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return observed curves with intervals, and the mean predicted curve of each arm."""
        rows = self._rows(next(iter(outcomes.values())))
        series = [self._observed(name, each) for name, each in _strata(rows)]
        x, names = (0.0, *SHARES), curve_names()
        for arm, each in outcomes.items():
            if names[0] in each.scores and (each.score("horizon") > 0).any():
                horizon = float(np.nanmax(each.score("horizon")))
                curve = [1.0] + [float(np.nanmean(each.score(name))) for name in names]
                series.append(Series(f"{arm}, predicted", [horizon * share for share in x], curve))
        return Figure(
            "Survival, observed and predicted",
            "time",
            "share without the event",
            series,
            "Steps are Kaplan-Meier curves with pointwise intervals; lines are means of predicted "
            "curves over the same rows.",
        )

    def _observed(self, name: str, rows: Outcomes) -> Series:
        curve = kaplan_meier(rows.score(self.time), rows.score(self.event), level=self.level)
        falls = np.flatnonzero(np.diff(curve.survival, prepend=1.0) < 0)
        if len(falls) > _MOST:
            falls = falls[np.linspace(0, len(falls) - 1, _MOST).astype(int)]
        kept = np.union1d(falls, [len(curve.times) - 1])
        label = "observed" if name == "all" else f"observed, {name}"
        return observed(label, curve, kept)

    def _time(self, rows: Outcomes) -> float:
        if self.at is not None:
            return self.at
        wanted = "horizon" if "horizon" in rows.scores else self.time
        followed = min(each.score(self.time).max() for _, each in _strata(rows))
        return min(float(np.nanmedian(rows.score(wanted))), float(followed))

    def _rows(self, outcomes: Outcomes) -> Outcomes:
        """Return each unit once: builds and repeats are of the same times."""
        columns = np.stack([outcomes.score(self.time), outcomes.score(self.event)])
        whole = np.flatnonzero(~np.isnan(columns).any(axis=0))
        if not len(whole):
            raise UsageError(f"KaplanMeier: no row has {self.time} and {self.event}.")
        first = np.unique(outcomes.unit[whole], return_index=True)[1]
        return outcomes.take(whole[first])


def _strata(rows: Outcomes) -> Iterator[tuple[str, Outcomes]]:
    if rows.stratum is None:
        yield "all", rows
        return
    for code in np.unique(rows.stratum):
        name = rows.strata[code] if code >= 0 else "none"
        yield name, rows.take(rows.stratum == code)
