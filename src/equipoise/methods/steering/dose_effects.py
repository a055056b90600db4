r"""What a dose of steering does to next-token distributions and scores.

The plain functions take arrays: `dose_response` here; `intervention_kl`,
`next_token_entropy` and `answer_probability_mass` by the field's name. The measures
read what the task ``next_token_shift`` records of each prompt, and ``babi_deduction``
and ``ioi`` of each answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from equipoise.core import (
    Estimate,
    Measure,
    Outcomes,
    Rng,
    ScoreSpec,
    UsageError,
    between,
    one_of,
)
from equipoise.methods.steering._curves import dose_response

__all__ = [
    "AnswerProbabilityMass",
    "DoseResponse",
    "InterventionKL",
    "NextTokenEntropy",
    "dose_response",
]


@dataclass(frozen=True)
class InterventionKL(Measure):
    r"""Mean divergence of the next token from the untreated model's, in nats.

    $\mathrm{KL}(P_0 \| P_\alpha)$ over the whole vocabulary at the first new
    token, averaged over prompts; its variance over prompts stands in the
    details. The task is ``next_token_shift``, whose ``reference`` is the
    untreated model. About quadratic in small doses. The plain function is `intervention_kl`.

    Parameters
    ----------
    score
        The score that holds the divergence.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> found = InterventionKL().measure(Outcomes.of(kl=[0.1, 0.2, 0.3]), Rng(0))
    >>> round(found.value, 3), round(found.details["variance"], 4)
    (0.2, 0.0067)
    """

    score: str = "kl"
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better: ClassVar[bool | None] = False

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 200 prompts with gamma divergences of mean 0.2."""
        return _drawn(self.score, rng.numpy().gamma(2.0, 0.1, 200)), 0.2

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        return _mean("InterventionKL", outcomes, self.score, self.level)

    def statistic(self, outcomes: Outcomes) -> float:
        return float(np.nanmean(outcomes.score(self.score)))


@dataclass(frozen=True)
class NextTokenEntropy(Measure):
    r"""Mean entropy of the next token, $-\sum_v p_v \ln p_v$, in nats.

    Low where the model is sure, right or wrong; up to the logarithm of the
    vocabulary where its output is destroyed. The plain function is
    `next_token_entropy`.

    Parameters
    ----------
    score
        The score that holds the entropy.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> NextTokenEntropy().measure(Outcomes.of(entropy=[1.0, 2.0, 3.0]), Rng(0)).value
    2.0
    """

    score: str = "entropy"
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better: ClassVar[bool | None] = None

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 200 prompts with gamma entropies of mean 2."""
        return _drawn(self.score, rng.numpy().gamma(4.0, 0.5, 200)), 2.0

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        return _mean("NextTokenEntropy", outcomes, self.score, self.level)

    def statistic(self, outcomes: Outcomes) -> float:
        return float(np.nanmean(outcomes.score(self.score)))


@dataclass(frozen=True)
class AnswerProbabilityMass(Measure):
    """Mean probability of the right answer's first token.

    Moves before accuracy does, since no answer has to change its rank. The
    plain function is `answer_probability_mass`.

    Parameters
    ----------
    over
        ``vocabulary`` for all tokens (the score ``mass``), ``candidates`` for
        those of the answers only (``probability``).
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> rows = Outcomes.of(mass=[0.2, 0.4], probability=[0.5, 0.9])
    >>> round(AnswerProbabilityMass().measure(rows, Rng(0)).value, 3)
    0.3
    >>> round(AnswerProbabilityMass("candidates").measure(rows, Rng(0)).value, 3)
    0.7
    """

    over: str = one_of("vocabulary", "candidates", default="vocabulary")
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 200 prompts with beta probabilities of mean 0.4."""
        return _drawn(self._score, rng.numpy().beta(2.0, 3.0, 200)), 0.4

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        return _mean("AnswerProbabilityMass", outcomes, self._score, self.level)

    def statistic(self, outcomes: Outcomes) -> float:
        return float(np.nanmean(outcomes.score(self._score)))

    @property
    def _score(self) -> str:
        return "mass" if self.over == "vocabulary" else "probability"


@dataclass(frozen=True)
class DoseResponse(Measure):
    """How a score moves with the dose, over arms that got the same thing in several strengths.

    A table: the score at each dose, its slope over all doses, its curvature,
    and its slopes on each side of zero (see `dose_response`), under its name. Units that lack
    the score in any of the arms are left out and counted.

    Parameters
    ----------
    doses
        Pairs of an arm's label and its dose, the untreated arm at 0.
    score
        The score to follow; the task's first when left out.
    level
        Coverage of each interval.

    Examples
    --------
    >>> arms = {"minus": Outcomes.of(kl=[0.4, 0.6, 0.5]), "none": Outcomes.of(kl=[0.0, 0.0, 0.0]),
    ...         "plus": Outcomes.of(kl=[0.5, 0.7, 0.6])}
    >>> part = DoseResponse(doses=(("minus", -1.0), ("none", 0.0), ("plus", 1.0)))
    >>> found = part.measure(arms, Rng(0))
    >>> round(found["kl slope below zero"].value, 2), round(found["kl slope above zero"].value, 2)
    (-0.5, 0.6)
    """

    doses: tuple[tuple[str, float], ...]
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    scope = "arms"
    higher_is_better: ClassVar[bool | None] = None

    @classmethod
    def tiny(cls) -> Self:
        return cls((("minus", -1.0), ("none", 0.0), ("plus", 1.0)))

    def check(self) -> None:
        strengths = [dose for _, dose in self.doses]
        if len(set(strengths)) < 2 or len(set(strengths)) < len(strengths):
            raise UsageError("DoseResponse: doses must be two or more, all different.")

    def simulate(self, rng: Rng) -> tuple[dict[str, Outcomes], dict[str, float]]:
        """Return 80 units at each dose, around a line of slope 0.3, alike within units."""
        draws = rng.numpy()
        own = draws.normal(0, 1, 80)
        name = self.score or "x"
        arms = {
            label: _drawn(name, own + 0.3 * dose + draws.normal(0, 0.5, 80))
            for label, dose in self.doses
        }
        truth = {f"{name} at {dose:g}": 0.3 * dose for _, dose in self.doses}
        return arms, truth | {f"{name} slope": 0.3, f"{name} curvature": 0.0}

    def measure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> dict[str, Estimate]:
        missing = [label for label, _ in self.doses if label not in outcomes]
        if missing:
            there = ", ".join(outcomes)
            raise UsageError(f'DoseResponse: there is no arm "{missing[0]}"; there are: {there}.')
        arms = [_in_order(outcomes[label]) for label, _ in self.doses]
        name = _named(arms[0], self.score)
        shared = set.intersection(*(_known(arm, name) for arm in arms))
        if not shared:
            raise UsageError(f"DoseResponse: no unit has a value for {name} in every arm.")
        rows = [_only(arm, name, shared) for arm in arms]
        found = dose_response(
            [dose for _, dose in self.doses],
            [each.score(name) for each in rows],
            **_design(rows[0]),
            level=self.level,
        )
        left = max(map(len, arms)) - len(rows[0])
        note = f"{left} rows lack the score in some arm and are left out." if left else ""
        return {f"{name} {label}": _noted(each, note) for label, each in found.items()}


def _drawn(score: str, values: np.ndarray) -> Outcomes:
    return Outcomes.of(specs=(ScoreSpec(score, None),), **{score: values})


def _named(outcomes: Outcomes, score: str | None) -> str:
    if score is not None:
        return score
    return outcomes.specs[0].name if outcomes.specs else next(iter(outcomes.scores))


def _mean(who: str, outcomes: Outcomes, score: str, level: float) -> Estimate:
    from equipoise.kit.statistics.single import mean

    whole = ~np.isnan(outcomes.score(score))
    if not whole.any():
        raise UsageError(f"{who}: no row has a value for {score}.")
    rows = _in_order(outcomes.take(whole))
    left = int((~whole).sum())
    note = f"{left} of {len(outcomes)} rows have no {score} and are left out." if left else ""
    values = rows.score(score)
    found = mean(values, **_design(rows), level=level)
    details = {**found.details, "variance": float(values.var())}
    return replace(_noted(found, note), details=details)


def _in_order(outcomes: Outcomes) -> Outcomes:
    return outcomes.take(np.lexsort((outcomes.repeat, outcomes.build, outcomes.unit)))


def _keys(outcomes: Outcomes) -> list[tuple[int, int, int]]:
    columns = (outcomes.unit, outcomes.build, outcomes.repeat)
    return [(int(u), int(b), int(r)) for u, b, r in zip(*columns, strict=True)]


def _known(outcomes: Outcomes, name: str) -> set[tuple[int, int, int]]:
    values = outcomes.score(name)
    return {k for k, v in zip(_keys(outcomes), values, strict=True) if not np.isnan(v)}


def _only(outcomes: Outcomes, name: str, keys: set[tuple[int, int, int]]) -> Outcomes:
    return outcomes.take(np.array([key in keys for key in _keys(outcomes)]))


def _design(rows: Outcomes) -> dict[str, np.ndarray | None]:
    return {
        "units": rows.unit if len(np.unique(rows.unit)) < len(rows) else None,
        "clusters": rows.cluster,
        "builds": rows.build if len(np.unique(rows.build)) > 1 else None,
    }


def _noted(estimate: Estimate, note: str) -> Estimate:
    return replace(estimate, note=" ".join(filter(None, (estimate.note, note))))
