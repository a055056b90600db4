r"""Harrell's concordance as a measure: how often higher risk means an earlier event."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between
from equipoise.kit.arrays.concordance import concordance


@dataclass(frozen=True)
class Concordance(Measure):
    r"""Harrell's C of predicted risks against times that may be cut short.

    Of the pairs of rows in which the earlier time is an event, the share in which that row had
    the higher risk; equal risks count half. One half is chance.

    Parameters
    ----------
    risk
        Score that says how early the event is expected: the larger, the earlier.
    time, event
        Scores with the time, and 1 where the event was seen.
    level
        Coverage the interval aims for.

    References
    ----------
    Harrell et al., "Evaluating the yield of medical tests", JAMA 1982.

    Examples
    --------
    >>> rows = Outcomes.of(risk=[4, 3, 1, 2], time=[1, 2, 3, 4], event=[1, 1, 1, 0])
    >>> print(Concordance().measure(rows, Rng(0)))
    0.833 [0.249, 0.987]
    """

    risk: str = "risk"
    time: str = "time"
    event: str = "event"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        r"""Return 150 events whose log times are the risk's opposite plus equal noise.

        Two normals of correlation $\rho$ agree in order with chance $1/2 + \arcsin(\rho)/\pi$.
        """
        generator = rng.numpy()
        risk, noise = generator.normal(size=(2, 150))
        columns = {self.risk: risk, self.time: np.exp(noise - risk), self.event: np.ones(150)}
        return Outcomes.of(**columns), 0.5 + float(np.arcsin(np.sqrt(0.5))) / np.pi

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the estimate; ``rng`` is not used."""
        rows = self._rows(outcomes)
        clusters = rows.cluster
        if clusters is None and len(np.unique(rows.unit)) < len(rows):
            clusters = rows.unit
        found = concordance(*self._columns(rows), clusters=clusters, level=self.level)
        lost = len(outcomes) - len(rows)
        if not lost:
            return found
        note = f"{found.note} {lost} of {len(outcomes)} rows have no score and are left out."
        return replace(found, note=note.strip())

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the value alone."""
        return concordance(*self._columns(self._rows(outcomes))).value

    def _columns(self, rows: Outcomes) -> tuple[np.ndarray, ...]:
        return tuple(rows.score(name) for name in (self.time, self.event, self.risk))

    def _rows(self, outcomes: Outcomes) -> Outcomes:
        whole = ~np.isnan(np.stack(self._columns(outcomes))).any(axis=0)
        if not whole.any():
            raise UsageError(f"Concordance: no row has {self.risk}, {self.time} and {self.event}.")
        return outcomes.take(whole)
