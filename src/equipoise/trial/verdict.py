"""From an interval to a verdict: the rules, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from equipoise.catalog import recipe
from equipoise.core import Estimate
from equipoise.kit.statistics.corrections import holm
from equipoise.kit.statistics.planning import units_to_settle
from equipoise.trial.compare import LOST_AT_MOST
from equipoise.trial.result import ClaimResult, Verdict
from equipoise.trial.trial import Claim, Relation

FEW_UNITS, FEW_CLUSTERS = 30, 10


def decide(
    relation: Relation, low: float, high: float, margin: float, threshold: float = 0.0
) -> Verdict:
    """Return the verdict that an interval gives.

    Parameters
    ----------
    relation
        What was claimed.
    low, high
        The interval of the effect, or of the value for above and below.
    margin
        Of beats, no_worse_than and matches.
    threshold
        The number of above and below.

    Examples
    --------
    >>> decide("beats", 0.01, 0.2, 0.0)
    'supported'
    >>> decide("matches", -0.01, 0.2, 0.05)
    'inconclusive'
    """
    if math.isnan(low) or math.isnan(high):
        return "inconclusive"
    if relation == "matches":
        if -margin < low and high < margin:
            return "supported"
        return "refuted" if low > margin or high < -margin else "inconclusive"
    bound = {"beats": margin, "no_worse_than": -margin}.get(relation, threshold)
    if relation == "below":
        low, high, bound = -high, -low, -bound
    if low > bound:
        return "supported"
    return "refuted" if high < bound else "inconclusive"


def bounds(claim: Claim) -> list[float]:
    """Return the values that an interval must clear for a verdict."""
    if claim.relation == "matches":
        return [-claim.margin, claim.margin]
    if claim.relation == "no_worse_than":
        return [-claim.margin]
    return [claim.margin if claim.relation == "beats" else float(claim.other)]


def claim_level(claim: Claim, level: float, claims: int) -> float:
    """Return the level of a claim's interval, Bonferroni's share of the trial's.

    Equivalence is two one-sided tests, so its interval is at 1 - 2α.
    """
    alpha = (1 - level) / max(1, claims)
    return 1 - (2 * alpha if claim.relation == "matches" else alpha)


def judge(claim: Claim, estimate: Estimate, lost: float = 0.0) -> ClaimResult:
    """Return what became of a claim.

    ``lost`` is the share of pairs that errors took.
    """
    threshold = 0.0 if isinstance(claim.other, str) else float(claim.other)
    verdict = decide(claim.relation, estimate.low, estimate.high, claim.margin, threshold)
    reasons = []
    if lost == 1.0:
        verdict = "inconclusive"
        reasons.append("every unit of an arm failed")
    elif lost > LOST_AT_MOST:
        verdict = "inconclusive"
        reasons.append(f"{lost:.1%} of the pairs were lost to errors, more than {LOST_AT_MOST:.0%}")
    if not estimate.has_interval:
        reasons.append(estimate.note or "no interval can be had from these units")
    elif estimate.clusters is not None and estimate.clusters < FEW_CLUSTERS:
        reasons.append(f"only {estimate.clusters} clusters")
    elif estimate.n < FEW_UNITS:
        reasons.append(f"only {estimate.n} units")
    more = None
    if verdict == "inconclusive" and lost <= LOST_AT_MOST and estimate.has_interval:
        more = units_to_settle(estimate, bounds(claim))
    if bounds(claim) != [0.0]:
        estimate = replace(estimate, p_value=None)  # its test was against no difference
    return ClaimResult(
        claim=str(claim),
        verdict=verdict,
        estimate=estimate,
        parts={
            "arm": claim.arm,
            "on": claim.on,
            "relation": claim.relation,
            "other": claim.other,
            "margin": claim.margin,
            "score": claim.score,
            "measure": None if claim.measure is None else recipe(claim.measure),
        },
        reason="; ".join(reasons),
        more_units=more,
    )


def correct(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    """Add Holm's adjusted p-values, over the claims that have one."""
    tested = [i for i, each in enumerate(results) if each.estimate.p_value is not None]
    found = list(results)
    if tested:
        adjusted = holm([results[i].estimate.p_value or 0.0 for i in tested])
        for index, p in zip(tested, adjusted, strict=True):
            found[index] = replace(found[index], p_adjusted=float(p))
    return found
