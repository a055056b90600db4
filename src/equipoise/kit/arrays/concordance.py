r"""Harrell's concordance of risks and times that may be cut short, with an interval."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right, insort

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri

from equipoise.core import Estimate, UsageError
from equipoise.kit.arrays.survival import times_with_events


def concordance(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    risk: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Harrell's C: how often the row of higher risk has the earlier event.

    Pairs count in which the earlier time is an event; at equal times, those with one event,
    which then comes first. Equal risks count half. With $c_i$ the concordant and $p_i$ the
    comparable pairs of row $i$, $C = \sum c_i / \sum p_i$, and its variance comes from the
    residuals $2 (c_i - C p_i) / \sum p_i$, summed within clusters. The interval is made on the
    logit scale.

    Parameters
    ----------
    times, events
        ``(n,)``.
    risk
        ``(n,)``: the larger, the earlier the event is expected.
    clusters
        Cluster of each row, where rows are not independent.
    level
        Coverage the interval aims for.

    Raises
    ------
    UsageError
        If no two rows can be compared, or a risk is NaN.

    Examples
    --------
    >>> concordance([1, 2, 3, 4], [1, 1, 1, 0], [4, 3, 1, 2]).value
    0.8333333333333334
    """
    t, e = times_with_events(times, events, "concordance")
    r = np.asarray(risk, float)
    if r.shape != t.shape or np.isnan(r).any():
        raise UsageError(
            f"concordance: give one risk a row, none NaN, got {r.shape} for {t.shape}."
        )
    right, pairs = _pairs(t, e, r)
    total = pairs.sum()
    if total == 0:
        raise UsageError("concordance: no two rows can be compared; there must be events before "
                         "other times.")  # fmt: skip
    value = float(right.sum() / total)
    residual = 2 * (right - value * pairs) / total
    codes = np.arange(len(t)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    sums = np.bincount(codes, weights=residual)
    groups = len(sums)
    if groups < 2:
        raise UsageError("concordance: an interval needs at least 2 clusters.")
    se = math.sqrt(groups / (groups - 1) * float(sums @ sums))
    if 0 < value < 1:
        reach = float(ndtri((1 + level) / 2)) * se / (value * (1 - value))
        low, high = (float(expit(logit(value) + side * reach)) for side in (-1, 1))
        note = ""
    else:
        low, high = math.nan, math.nan
        note = "All pairs agree, so the data tell no spread."
    return Estimate(
        value, low, high, level=level, n=len(t), method="harrell", note=note,
        clusters=None if clusters is None else groups,
        details={"se": se, "pairs": float(total) / 2, "events": float(e.sum())},
    )  # fmt: skip


def _pairs(t: np.ndarray, e: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return concordant and comparable pairs of each row, ties of risk as halves.

    Risks are kept in order while the rows are gone through by time: backwards, where each event
    is held against all later rows, and forwards, where each row is held against earlier events.
    """
    times, events, risks = t.tolist(), e.tolist(), r.tolist()
    order = sorted(range(len(times)), key=times.__getitem__)
    moments = []
    for _, rows in itertools.groupby(order, key=times.__getitem__):
        here = list(rows)
        moments.append(([i for i in here if events[i]], [i for i in here if not events[i]]))
    right, pairs = [0.0] * len(times), [0] * len(times)
    later: list[float] = []
    for died, lost in reversed(moments):
        for i in lost:
            insort(later, risks[i])
        for i in died:
            below = bisect_left(later, risks[i])
            right[i] += (below + bisect_right(later, risks[i], below)) / 2
            pairs[i] += len(later)
        for i in died:
            insort(later, risks[i])
    earlier: list[float] = []
    for died, lost in moments:
        for some in (died, lost):
            for i in some:
                below = bisect_left(earlier, risks[i])
                right[i] += len(earlier) - (below + bisect_right(earlier, risks[i], below)) / 2
                pairs[i] += len(earlier)
            if some is died:  # those lost at this moment are later than its events
                for i in died:
                    insort(earlier, risks[i])
    return np.array(right), np.array(pairs, float)
