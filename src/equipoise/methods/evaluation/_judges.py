r"""How a judge errs, and the mean of gold labels with a judge's help.

Shared by the parts on the card of judge-debiasing-limits. Symbols are the
paper's: gold score $s$, judge's verdict $t$, $b = P(s=1)$, $p = P(t=1 | s=1)$,
$q = P(t=0 | s=0)$, $m = E\,t$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics import single

Column = np.ndarray | Sequence[float]

Rate = Any
"""A share from 0 to 1, or an array of them."""

_FEW = 50  # labels below which a tuned weight is kept in [0, 1]


@dataclass(frozen=True, slots=True)
class JudgeRates:
    r"""A binary judge of binary scores, as three rates; arrays work as well as numbers.

    The judge's bias is $E(t-s)$ and its agreement $P(t=s)$. With $n$ gold
    labels and any number of verdicts, no unbiased estimator of $b$ is worth
    more than $\tau_{max} n$ gold labels,

    .. math:: \tau_{max} = \frac{1}{1-\rho^2}, \qquad
              \rho^2 = \frac{b}{1-b} \frac{(p-m)^2}{m(1-m)},

    and where $1/2 \le$ agreement $\le b$, $\rho^2 \le 1/2$.

    Parameters
    ----------
    b
        Accuracy of the evaluated model, in (0, 1).
    p
        Sensitivity: share of right answers that the judge calls right.
    q
        Specificity: share of wrong answers that the judge calls wrong.

    References
    ----------
    Limits to scalable evaluation at the frontier: LLM as Judge won't beat
    twice the data, ICLR 2025, sections 2 and 3.

    Examples
    --------
    >>> judge = JudgeRates(b=0.5, p=0.75, q=0.75)
    >>> judge.agreement, judge.bias, judge.rho_squared, round(judge.efficiency(), 3)
    (0.75, 0.0, 0.25, 1.333)
    """

    b: Rate
    p: Rate
    q: Rate

    @classmethod
    def of(cls, gold: Column, judge: Column) -> JudgeRates:
        """Return the rates in a sample; verdicts in [0, 1] count by their size."""
        s, t = np.asarray(gold, float), np.asarray(judge, float)
        with np.errstate(invalid="ignore", divide="ignore"):
            b = float(s.mean())
            p = float(np.divide(s @ t, s.sum()))
            q = float(np.divide((1 - s) @ (1 - t), (1 - s).sum()))
        return cls(b, p, q)

    @property
    def m(self) -> Rate:
        """Mean verdict."""
        return self.b * self.p + (1 - self.b) * (1 - self.q)

    @property
    def bias(self) -> Rate:
        """Mean of verdict minus gold, JB."""
        return (1 - self.q) * (1 - self.b) - (1 - self.p) * self.b

    @property
    def agreement(self) -> Rate:
        """Share of items on which the judge is right, AG."""
        return self.b * self.p + (1 - self.b) * self.q

    @property
    def balanced_agreement(self) -> Rate:
        """Mean of sensitivity and specificity, BA."""
        return (self.p + self.q) / 2

    @property
    def rho_squared(self) -> Rate:
        """Squared correlation of gold score and verdict; 0 for a constant verdict."""
        b, m = self.b, self.m
        spread = m * (1 - m)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = b / (1 - b) * (self.p - m) ** 2 / np.where(spread > 0, spread, np.inf)
        return float(found) if np.ndim(found) == 0 else found

    def efficiency(self, labelled_share: float = 0.0) -> Rate:
        """Return how many gold labels one is worth with the judge's help.

        ``labelled_share`` is n/N, labelled items over further ones; 0 means
        verdicts without end, which gives the bound.
        """
        return efficiency(self.rho_squared, labelled_share)


def efficiency(rho_squared: Rate, labelled_share: float = 0.0) -> Rate:
    r"""Return $1 / (1 - \rho^2 / (1 + n/N))$, infinite for a perfect judge."""
    with np.errstate(divide="ignore"):
        found = np.divide(1.0, 1.0 - np.minimum(rho_squared / (1.0 + labelled_share), 1.0))
    return float(found) if np.ndim(found) == 0 else found


def prediction_powered_mean(
    gold: Column,
    judge: Column,
    judge_extra: Column,
    *,
    lam: float | None = None,
    clip: bool | None = None,
    clusters: Column | None = None,
    clusters_extra: Column | None = None,
    level: float = 0.95,
    interval: Literal["jackknife", "plug-in"] = "jackknife",
) -> Estimate:
    r"""Mean of the gold score from a few gold labels and many verdicts, unbiased.

    .. math:: \hat\theta_\lambda = \bar s - \lambda (\bar t_n - \bar t_N),

    where $\bar t_N$ is over items without a label. Without ``lam`` it is tuned
    on the data, $\hat\lambda = \widehat{Cov}(s,t) / ((1 + n/N) \widehat{Var}\,t)$,
    which biases the estimate by order $1/n$: a tenth of a standard error at 50
    labels of a skewed score. ``cross_fitted`` in the details has no such bias.

    Parameters
    ----------
    gold
        Gold scores $s$ of the $n$ labelled items.
    judge
        Verdicts $t$ on the same items, in the same order.
    judge_extra
        Verdicts on the $N$ other items; none of the labelled ones.
    lam
        Weight of the judge; 0 is the mean of the gold labels, None tunes it.
    clip
        Keep a tuned weight in [0, 1]; None does so below 50 labels. The
        details hold the weight and value with and without.
    clusters, clusters_extra
        Cluster of each item, where items are not independent. A cluster may
        have items of both sorts.
    level
        Coverage the interval aims for.
    interval
        ``"jackknife"`` leaves out one cluster at a time and tunes the weight
        anew each time, with Student's t on the labelled clusters.
        ``"plug-in"`` is the normal interval that takes the weight for known.

    Returns
    -------
    Estimate
        Details: ``lambda``, ``lambda_unclipped``, ``value_unclipped``,
        ``cross_fitted`` (each item's weight tuned on the others), ``gold_only``
        with ``gold_only_low`` and ``gold_only_high``, ``efficiency`` (variance
        of the gold-only mean over this one's), ``labelled``, ``extra``.

    Raises
    ------
    UsageError
        With fewer than three labelled items or clusters, lengths that
        differ, or numbers that are not finite.

    References
    ----------
    Angelopoulos, Duchi, Zrnic: PPI++, 2023. Limits to scalable evaluation at
    the frontier, ICLR 2025, section 2.

    Examples
    --------
    >>> found = prediction_powered_mean([1, 1, 1, 0], [1, 1, 0, 0], [1, 0] * 50, lam=1)
    >>> found.value
    0.75
    """
    s, t, u = (np.asarray(each, float) for each in (gold, judge, judge_extra))
    _check(s, t, u)
    groups, clustered = _groups(len(s), len(u), clusters, clusters_extra)
    labelled_clusters, least = len(np.unique(groups[: len(s)])), 3 if lam is None else 2
    if labelled_clusters < least:
        raise UsageError(
            f"prediction_powered_mean: an interval needs at least {least} labelled items or"
            f" clusters, got {labelled_clusters}."
        )
    clip = len(s) < _FEW if clip is None else clip
    sums = _sums(s, t, u, groups)
    total = sums.sum(axis=0)
    raw = float(_tuned(total)) if lam is None else float(lam)
    weight = min(max(raw, 0.0), 1.0) if lam is None and clip else raw
    value = float(s.mean() - weight * (t.mean() - u.mean()))
    variance = _jackknife(sums, lam, clip)
    df: float = labelled_clusters - (2 if lam is None else 1)
    if interval == "plug-in":
        variance, df = weight**2 * u.var() / len(u) + (s - weight * t).var() / len(s), math.inf
    upper = (1 + level) / 2
    reach = special.ndtri(upper) if math.isinf(df) else special.stdtrit(df, upper)
    half = float(reach) * math.sqrt(variance)
    alone = _gold_only(s, groups[: len(s)] if clustered else None, level)
    low, high, note = value - half, value + half, ""
    if np.ptp(s) == 0:
        low, high = min(value, alone.low), max(value, alone.high)
        note = "All gold labels are alike: the interval is that of the gold labels alone."
    elif interval == "jackknife" and np.isin(s, (0, 1)).all():
        # The ends stay within 0 and 1; the estimate may not, or it would be biased.
        low, high = min(max(low, 0.0), value), max(min(high, 1.0), value)
    left_out = _weights(total - sums, lam, clip)[groups[: len(s)]]
    gold_variance = _jackknife(sums, 0.0, False)
    return Estimate(
        value,
        low,
        high,
        level=level,
        n=len(s) + len(u),
        clusters=len(sums) if clustered else None,
        method=f"prediction-powered, {interval}",
        note=note,
        details={
            "lambda": weight,
            "lambda_unclipped": raw,
            "value_unclipped": float(s.mean() - raw * (t.mean() - u.mean())),
            "cross_fitted": float(s.mean() - (left_out * (t - u.mean())).mean()),
            "gold_only": alone.value,
            "gold_only_low": alone.low,
            "gold_only_high": alone.high,
            "efficiency": gold_variance / variance if variance > 0 else math.nan,
            "df": df,
            "labelled": len(s),
            "extra": len(u),
        },
    )


def judge_weight(
    gold: Column, judge: Column, judge_extra: Column, lam: float | None = None
) -> float:
    """Return the judge's weight as `prediction_powered_mean` takes it by default."""
    s, t, u = (np.asarray(each, float) for each in (gold, judge, judge_extra))
    _check(s, t, u)
    sums = _sums(s, t, u, np.zeros(len(s) + len(u), int))[0]
    return float(_weights(sums, lam, clip=len(s) < _FEW))


def _check(s: np.ndarray, t: np.ndarray, u: np.ndarray) -> None:
    if s.shape != t.shape or s.ndim != 1 or u.ndim != 1:
        raise UsageError(
            "prediction_powered_mean: gold and judge must be columns of one length,"
            f" got shapes {s.shape} and {t.shape}."
        )
    if len(u) == 0:
        raise UsageError(
            "prediction_powered_mean: there is no verdict on an item without a gold label,"
            " so the judge adds nothing; use mean."
        )
    if not all(np.isfinite(each).all() for each in (s, t, u)):
        raise UsageError("prediction_powered_mean: every gold score and verdict must be finite.")


def _groups(
    n: int, extra: int, clusters: Column | None, clusters_extra: Column | None
) -> tuple[np.ndarray, bool]:
    """Return a group number for each labelled and then each further item."""
    if clusters is None and clusters_extra is None:
        return np.arange(n + extra), False
    if clusters is None or clusters_extra is None:
        raise UsageError("prediction_powered_mean: clusters and clusters_extra go together.")
    if len(clusters) != n or len(clusters_extra) != extra:
        raise UsageError("prediction_powered_mean: give one cluster for each item.")
    both = np.concatenate([np.asarray(clusters), np.asarray(clusters_extra)])
    return np.unique(both, return_inverse=True)[1], True


def _sums(s: np.ndarray, t: np.ndarray, u: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return n, S, T, ST, TT, N, U, UU for each group, shape (groups, 8)."""
    # Centring first keeps products of sums from cancelling.
    s = s - s.mean()
    middle = (t.sum() + u.sum()) / (len(t) + len(u))
    t, u = t - middle, u - middle
    labelled = np.stack([np.ones_like(s), s, t, s * t, t * t], axis=1)
    further = np.stack([np.ones_like(u), u, u * u], axis=1)
    sums = np.zeros((int(groups.max()) + 1, 8))
    np.add.at(sums[:, :5], groups[: len(s)], labelled)
    np.add.at(sums[:, 5:], groups[len(s) :], further)
    return sums


def _tuned(sums: np.ndarray) -> np.ndarray:
    n, s, t, st, tt, extra, u, uu = np.moveaxis(sums, -1, 0)
    covariance = st / n - s * t / n**2
    size = n + extra
    spread = (tt + uu - (t + u) ** 2 / size) / (size - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = covariance / ((1 + n / extra) * spread)
    return np.asarray(np.where((spread > 1e-15) & (extra > 0), weight, 0.0))


def _weights(sums: np.ndarray, lam: float | None, clip: bool) -> np.ndarray:
    if lam is not None:
        return np.full(sums.shape[:-1], float(lam))
    return np.clip(_tuned(sums), 0.0, 1.0) if clip else _tuned(sums)


def _jackknife(sums: np.ndarray, lam: float | None, clip: bool) -> float:
    """Return the variance by leaving out one group at a time, weight tuned anew."""
    total = sums.sum(axis=0)

    def theta(x: np.ndarray) -> np.ndarray:
        n, s, t, extra, u = (x[..., i] for i in (0, 1, 2, 5, 6))
        return np.asarray(s / n - _weights(x, lam, clip) * (t / n - u / np.maximum(extra, 1)))

    squares = (theta(total - sums) - theta(total)) ** 2
    variance = 0.0
    # Groups with and without gold labels are two samples, each with its own size.
    for part in (sums[:, 0] > 0, sums[:, 0] == 0):
        size = int(part.sum())
        variance += squares[part].sum() * ((size - 1) / size if size > 1 else 1.0)
    return float(variance)


def _gold_only(s: np.ndarray, groups: np.ndarray | None, level: float) -> Estimate:
    if np.isin(s, (0, 1)).all():
        return single.proportion(s, clusters=groups, level=level)
    return single.mean(s, clusters=groups, level=level)
