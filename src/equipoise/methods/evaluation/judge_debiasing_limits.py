r"""How many gold labels a judge is worth: rarely more than two apiece.

Where a judge's agreement with the gold scores is no higher than the accuracy
of the model it judges, no unbiased use of its verdicts beats twice the gold
labels. Sections and symbols are the paper's, see the card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between, one_of
from equipoise.kit.statistics.columns import clusters_of, in_order, rows_of
from equipoise.methods.evaluation._judge_worth import (
    judge_report,
    recalibrate,
    rho_squared,
    sample_efficiency_factor,
)
from equipoise.methods.evaluation._judges import (
    JudgeRates,
    efficiency,
    judge_weight,
    prediction_powered_mean,
)

__all__ = [
    "JudgeRates",
    "JudgeReport",
    "PredictionPoweredMean",
    "SampleEfficiencyFactor",
    "judge_report",
    "prediction_powered_mean",
    "recalibrate",
    "sample_efficiency_factor",
]


def _read(part: str, outcomes: Outcomes, gold: str, judge: str) -> tuple[Outcomes, Outcomes]:
    """Return the rows with a gold label, and those with a verdict alone."""
    outcomes = in_order(outcomes)
    s, t = outcomes.score(gold), outcomes.score(judge)
    silent = int(np.isnan(t).sum())
    if silent:
        raise UsageError(
            f"{part}: {silent} of {len(t)} rows have no verdict; a judge that skips items biases"
            " the result, so give them one or leave the items out of the task."
        )
    if np.isnan(s).all():
        raise UsageError(f"{part}: no row has a gold label; the judge alone proves nothing.")
    return outcomes.take(~np.isnan(s)), outcomes.take(np.isnan(s))


_JUDGE = JudgeRates(b=0.7, p=0.85, q=0.75)


def _judged_rows(gold: str, judge: str, labelled: int, size: int, rng: Rng) -> Outcomes:
    generator = rng.numpy()
    s = (generator.random(size) < _JUDGE.b).astype(float)
    t = generator.random(size) < np.where(s == 1, _JUDGE.p, 1 - _JUDGE.q)
    s[labelled:] = np.nan
    return rows_of({gold: s, judge: t})


@dataclass(frozen=True)
class PredictionPoweredMean(Measure):
    r"""Mean of a gold score that few units have, with the help of a judge that scores all.

    The plain function is `prediction_powered_mean`. Rows with a gold label
    and rows without are read from the same task; where all have one, the
    judge adds nothing and the measure refuses.

    Parameters
    ----------
    gold
        Score that is missing where there is no label.
    judge
        Score of the judge.
    lam
        Weight of the judge; None tunes it.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> gold = np.array([1.0, 1, 0, 1, 0] + [np.nan] * 5)
    >>> outcomes = Outcomes.of(gold=gold, judge=[1, 1, 0, 1, 1, 1, 0, 1, 1, 0])
    >>> round(PredictionPoweredMean().statistic(outcomes), 3)
    0.549
    """

    gold: str = "gold"
    judge: str = "judge"
    lam: float | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 units with a gold label and 800 without."""
        return _judged_rows(self.gold, self.judge, 80, 880, rng), _JUDGE.b

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the estimate; ``rng`` is not used."""
        known, other = _read("PredictionPoweredMean", outcomes, self.gold, self.judge)
        rows = in_order(outcomes)
        codes, labelled = clusters_of(rows), ~np.isnan(rows.score(self.gold))
        return prediction_powered_mean(
            known.score(self.gold),
            known.score(self.judge),
            other.score(self.judge),
            lam=self.lam,
            clusters=None if codes is None else codes[labelled],
            clusters_extra=None if codes is None else codes[~labelled],
            level=self.level,
        )

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the estimate without its interval."""
        known, other = _read("PredictionPoweredMean", outcomes, self.gold, self.judge)
        s, t, u = known.score(self.gold), known.score(self.judge), other.score(self.judge)
        weight = judge_weight(s, t, u, self.lam)
        return float(s.mean() - weight * (t.mean() - u.mean()))

    def better(self, outcomes: Outcomes) -> bool | None:
        """Follow the gold score."""
        return outcomes.spec(self.gold).higher_is_better


@dataclass(frozen=True)
class SampleEfficiencyFactor(Measure):
    r"""How many gold labels one is worth with the judge's help, :math:`\tau`.

    The plain function is `sample_efficiency_factor`.

    Parameters
    ----------
    gold, judge
        Names of the scores.
    verdicts
        ``"unlimited"`` gives the bound for verdicts without end, ``"observed"``
        the factor for the unlabelled units there are.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> outcomes = Outcomes.of(gold=[1, 1, 1, 0] * 30, judge=[1, 1, 0, 0] * 30)
    >>> round(SampleEfficiencyFactor().statistic(outcomes), 6)
    1.5
    """

    higher_is_better = None

    gold: str = "gold"
    judge: str = "judge"
    verdicts: str = one_of("unlimited", "observed", default="unlimited")
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> SampleEfficiencyFactor:
        """Return few resamples."""
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 250 units with a gold label and 2,500 without."""
        share = 0.0 if self.verdicts == "unlimited" else 0.1
        rows = _judged_rows(self.gold, self.judge, 250, 2750, rng)
        return rows, float(_JUDGE.efficiency(share))

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the factor with its interval."""
        known, other = _read("SampleEfficiencyFactor", outcomes, self.gold, self.judge)
        return sample_efficiency_factor(
            known.score(self.gold),
            known.score(self.judge),
            labelled_share=self._share(known, other),
            clusters=clusters_of(known),
            level=self.level,
            draws=self.draws,
            rng=rng,
        )

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the factor without its interval."""
        known, other = _read("SampleEfficiencyFactor", outcomes, self.gold, self.judge)
        s, t = known.score(self.gold), known.score(self.judge)
        return float(efficiency(rho_squared(s, t), self._share(known, other)))

    def _share(self, known: Outcomes, other: Outcomes) -> float:
        if self.verdicts == "unlimited":
            return 0.0
        return len(known) / len(other) if len(other) else math.inf


@dataclass(frozen=True)
class JudgeReport(Measure):
    """A judge's bias, agreement, balanced agreement and worth in gold labels, as a table.

    The plain function is `judge_report`, which names the rows.

    Parameters
    ----------
    gold, judge
        Names of the scores.
    recalibration
        How soft verdicts are turned into probabilities.
    stratified
        Add the rows of each stratum.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> outcomes = Outcomes.of(gold=[1, 1, 1, 0] * 30, judge=[1, 1, 0, 0] * 30)
    >>> JudgeReport().measure(outcomes, Rng(0))["agreement"].value
    0.75
    """

    higher_is_better = None

    gold: str = "gold"
    judge: str = "judge"
    recalibration: str = one_of("isotonic", "logistic", default="isotonic")
    stratified: bool = False
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> JudgeReport:
        """Return few resamples."""
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 250 units with a gold label, and the rates they were drawn with."""
        truth = {
            "accuracy": _JUDGE.b,
            "judge_mean": _JUDGE.m,
            "bias": _JUDGE.bias,
            "agreement": _JUDGE.agreement,
            "sensitivity": _JUDGE.p,
            "specificity": _JUDGE.q,
            "balanced_agreement": _JUDGE.balanced_agreement,
            "rho_squared": _JUDGE.rho_squared,
            "sample_efficiency_factor": _JUDGE.efficiency(),
            "beyond_frontier": _JUDGE.agreement - _JUDGE.b,
        }
        return _judged_rows(self.gold, self.judge, 250, 250, rng), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return the table."""
        known, _ = _read("JudgeReport", outcomes, self.gold, self.judge)
        strata = None
        if self.stratified and known.stratum is not None:
            strata = [known.strata[code] for code in known.stratum]
        how: Literal["isotonic", "logistic"] = (
            "isotonic" if self.recalibration == "isotonic" else "logistic"
        )
        return judge_report(
            known.score(self.gold),
            known.score(self.judge),
            clusters=clusters_of(known),
            strata=strata,
            how=how,
            level=self.level,
            draws=self.draws,
            rng=rng,
        )
