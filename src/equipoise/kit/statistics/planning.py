"""How many more units would settle a claim, and what a trial of a given size can see."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics._common import check_level, critical, normal_quantile


def units_to_settle(
    estimate: Estimate, thresholds: Sequence[float], power: float = 0.8
) -> int | None:
    r"""Return how many more units would probably settle a claim about an effect.

    The half-width $h$ towards a threshold, at distance $\delta$, is taken to
    shrink with the root of the number of units. With standard error $s = h / z$,
    the smallest $n'$ with $h' + z_{power} s' \le \delta$ is
    $n (h + z_{power} s)^2 / \delta^2$: if the effect is what it now seems, the
    interval then leaves the threshold out with probability ``power``. Variance
    that comes from builds (``details["share_builds"]``) does not shrink.

    Parameters
    ----------
    estimate
        The effect as it stands, with an interval and the units it rests on.
    thresholds
        What the interval is held against: a margin, or both ends of one.
    power
        Probability to settle, from 0.5 to below 1.

    Returns
    -------
    int or None
        More units needed for all thresholds, 0 when the interval leaves them out
        already; None when no number would do: the effect sits on a threshold,
        there is no finite interval, or builds alone bring too much variance.

    Raises
    ------
    UsageError
        Without thresholds, or with power out of range.

    Examples
    --------
    >>> units_to_settle(Estimate(0.05, -0.05, 0.15, n=100), [0.0])
    718
    """
    who = "units_to_settle"
    if not thresholds:
        raise UsageError(f"{who}: give at least one threshold.")
    if not 0.5 <= power < 1:
        raise UsageError(f"{who}: power must be at least 0.5 and below 1, got {power}.")
    wanted = [_wanted(estimate, each, power) for each in thresholds]
    more = 0
    for each in wanted:
        if each is None:
            return None
        more = max(more, each)
    return more


def _wanted(estimate: Estimate, threshold: float, power: float) -> int | None:
    above = threshold > estimate.value
    half = estimate.high - estimate.value if above else estimate.value - estimate.low
    distance = abs(estimate.value - threshold)
    if not math.isfinite(half) or estimate.n < 1:
        return None
    if distance > half:
        return 0
    grown = half * (1 + normal_quantile(power) / critical(estimate.level))
    fixed = estimate.details.get("share_builds", 0.0)
    # grown^2 (fixed + (1 - fixed) n / n') = distance^2
    allowed = (distance / grown) ** 2 - fixed if grown > 0 else 0.0
    if allowed <= 0:
        return None
    return math.ceil(estimate.n * (1 - fixed) / allowed) - estimate.n


def minimum_detectable_effect(
    se_per_unit: float, n: int, level: float = 0.95, power: float = 0.8
) -> float:
    r"""Return the smallest effect that ``n`` units would show with probability ``power``.

    $(z_{(1 + level)/2} + z_{power})\, \sigma / \sqrt n$.

    Parameters
    ----------
    se_per_unit
        Standard deviation $\sigma$ of one unit's (difference in) score.
    n
        Units, at least 1.
    level
        Level of the two-sided interval, in (0, 1).
    power
        Probability that it leaves zero out, in (0, 1).

    Raises
    ------
    UsageError
        If a number is out of range.

    Examples
    --------
    >>> round(minimum_detectable_effect(1.0, 100), 4)
    0.2802
    """
    who = "minimum_detectable_effect"
    check_level(level, who)
    check_power(who, power)
    if not (se_per_unit >= 0 and n >= 1):
        raise UsageError(f"{who}: se_per_unit must be at least 0 and n at least 1.")
    return (critical(level) + normal_quantile(power)) * se_per_unit / math.sqrt(n)


def detectable(estimate: Estimate, power: float = 0.8) -> float:
    r"""Return the smallest effect that a comparison like this one shows with some probability.

    The half-width $h$ of the interval times $1 + t_{power} / t_{(1 + level)/2}$, with the
    degrees of freedom of the interval where it has them.

    Parameters
    ----------
    estimate
        With its interval.
    power
        Probability that the interval leaves zero out, in (0, 1).

    Examples
    --------
    >>> round(detectable(Estimate(0.01, -0.186, 0.206)), 3)
    0.28
    """
    check_power("detectable", power)
    df = estimate.details.get("df", math.inf)
    upper = normal_quantile(power) if math.isinf(df) else float(special.stdtrit(df, power))
    return (estimate.high - estimate.low) / 2 * (1 + upper / critical(estimate.level, df))


def check_power(who: str, power: float) -> None:
    """Refuse a power outside (0, 1)."""
    if not 0 < power < 1:
        raise UsageError(f"{who}: power must be between 0 and 1, got {power}.")
