r"""What a judge is worth in gold labels, and what else to know about it.

Shared by the parts on the card of judge-debiasing-limits; sections and symbols
are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import logit

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.statistics import resampling, single
from equipoise.methods.evaluation._judges import Column, JudgeRates

_HUGE = 1e12  # above it a factor is called infinite


def sample_efficiency_factor(
    gold: Column,
    judge: Column,
    *,
    labelled_share: float = 0.0,
    clusters: Column | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""How many gold labels one is worth with the judge's help, at best.

    .. math:: \tau = \frac{1}{1 - \rho^2 / (1 + n/N)}

    is the variance of the gold-only mean over that of the best unbiased
    estimator. The interval is a bootstrap over items on :math:`\log\tau`.
    It holds for uniformly sampled labels; active sampling is outside it.

    Parameters
    ----------
    gold
        Gold scores, 0 or 1, shape ``(items,)``.
    judge
        Verdicts in [0, 1] on the same items.
    labelled_share
        :math:`n/N`, labelled items over further ones; 0 gives the bound
        :math:`\tau_{max}` for verdicts without end.
    clusters
        Cluster of each item, where items are not independent.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    Returns
    -------
    Estimate
        Details: ``rho_squared``, ``accuracy``, ``agreement``. Infinite for a
        judge that never errs in the sample.

    Raises
    ------
    UsageError
        If all gold scores are alike, so that the factor is undefined.

    References
    ----------
    Limits to scalable evaluation at the frontier, ICLR 2025, theorems 3 and 6.

    Examples
    --------
    >>> found = sample_efficiency_factor([1, 1, 1, 0] * 30, [1, 1, 0, 0] * 30)
    >>> round(found.value, 6), round(found.details["rho_squared"], 6)
    (1.5, 0.333333)
    """
    s, t = _judged("sample_efficiency_factor", gold, judge)
    rng = Rng(0) if rng is None else rng

    def log_factor(s: np.ndarray, t: np.ndarray) -> float:
        left = 1.0 - rho_squared(s, t) / (1.0 + labelled_share)
        return -math.log(max(left, 1 / _HUGE))

    found = resampling.bootstrap(
        log_factor, (s, t), clusters=clusters, level=level, draws=draws, rng=rng
    )
    value, low, high = (_exp(each) for each in (found.value, found.low, found.high))
    rates, notes = JudgeRates.of(s, t), []
    if (s == t).all() or (s == 1 - t).all():
        # A bootstrap of no errors sees none; the exact limit on their share does.
        size = len(s) if clusters is None else len(np.unique(np.asarray(clusters)))
        low = _least_factor(rates.b, 1 - ((1 - level) / 2) ** (1 / size), labelled_share)
        notes.append("The judge never errs here: the lower end is the exact limit on its errors.")
    rarer = int(min((s == 0).sum(), (s == 1).sum()))
    if rarer < 10:
        notes.append(f"Only {rarer} items have the rarer gold score.")
    return replace(
        found,
        value=value,
        low=min(low, value),
        high=max(high, value),
        method=f"{found.method} on log scale",
        note=" ".join(filter(None, (found.note, *notes))),
        details={
            "rho_squared": rho_squared(s, t),
            "accuracy": rates.b,
            "agreement": rates.agreement,
        },
    )


def recalibrate(
    gold: Column,
    judge: Column,
    *,
    how: Literal["isotonic", "logistic"] = "isotonic",
    folds: int = 5,
    rng: Rng | None = None,
) -> np.ndarray:
    r"""Return $R(t) = P(s = 1 | t)$ for each item, fitted on the other folds.

    Parameters
    ----------
    gold, judge
        Gold scores, 0 or 1, and verdicts in [0, 1].
    how
        ``"isotonic"`` (any rising curve) or ``"logistic"`` (a line in the
        verdict's logit; safer below some hundred items).
    folds
        Parts the items are dealt to, each with both gold scores where possible.
    rng
        Stream that deals them; ``Rng(0)`` if absent.

    Examples
    --------
    >>> r = recalibrate([0, 1] * 50, [0.8, 0.9] * 50)
    >>> r[0].round(2), r[1].round(2)
    (np.float64(0.0), np.float64(1.0))
    """
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    s, t = _judged("recalibrate", gold, judge)
    folds = min(folds, int(min((s == 0).sum(), (s == 1).sum())))
    if folds < 2:
        raise UsageError("recalibrate: each gold score must occur at least twice.")
    generator = (Rng(0) if rng is None else rng).numpy()
    fold = np.empty(len(s), int)
    for value in (0, 1):  # dealing each gold score apart keeps both in every fold
        rows = np.flatnonzero(s == value)
        fold[rows] = generator.permutation(len(rows)) % folds
    found = np.empty(len(s))
    x = logit(np.clip(t, 0.001, 0.999))[:, None]
    for k in range(folds):
        there, here = fold != k, fold == k
        if how == "isotonic":
            curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
            found[here] = curve.fit(t[there], s[there]).predict(t[here])
        else:
            line = LogisticRegression(C=1e6).fit(x[there], s[there])
            found[here] = line.predict_proba(x[here])[:, 1]
    return found


def judge_report(
    gold: Column,
    judge: Column,
    *,
    clusters: Column | None = None,
    strata: Sequence[object] | np.ndarray | None = None,
    how: Literal["isotonic", "logistic"] = "isotonic",
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> dict[str, Estimate]:
    """Everything the paper asks of a judge, each with an interval.

    Parameters
    ----------
    gold, judge, clusters
        As for `sample_efficiency_factor`.
    strata
        Stratum of each item; the bound holds in each, and each gets rows
        named ``"stratum: quantity"``.
    how
        Recalibration of soft verdicts.
    level, draws, rng
        Coverage, resamples and their stream.

    Returns
    -------
    dict
        ``accuracy`` b, ``judge_mean`` m, ``bias`` JB, ``agreement`` AG,
        ``sensitivity`` p, ``specificity`` q, ``balanced_agreement`` BA,
        ``rho_squared``, ``sample_efficiency_factor`` and ``beyond_frontier``,
        AG minus b: where it is at most 0 and agreement at least 1/2, the
        factor is at most 2. Soft verdicts add ``soft_agreement`` of the
        recalibrated verdicts and ``soft_beyond_frontier``.

    Examples
    --------
    >>> report = judge_report([1, 1, 1, 0] * 30, [1, 1, 0, 0] * 30)
    >>> print(report["bias"])
    -0.250 [-0.329, -0.171]
    >>> report["beyond_frontier"].value
    0.0
    """
    s, t = _judged("judge_report", gold, judge)
    rng = Rng(0) if rng is None else rng
    table = _rows(s, t, clusters, how, level, draws, rng)
    if strata is None:
        return table
    names = np.asarray([str(each) for each in strata])
    for name in np.unique(names):
        here = names == name
        inside = None if clusters is None else np.asarray(clusters)[here]
        if np.ptp(s[here]) == 0:
            table[f"{name}: accuracy"] = replace(
                _average(s[here], inside, level),
                note="All gold scores are alike: the judge's worth is undefined.",
            )
            continue
        rows = _rows(s[here], t[here], inside, how, level, draws, rng.child("stratum", name))
        table |= {f"{name}: {quantity}": found for quantity, found in rows.items()}
    return table


def _rows(
    s: np.ndarray,
    t: np.ndarray,
    clusters: Column | None,
    how: Literal["isotonic", "logistic"],
    level: float,
    draws: int,
    rng: Rng,
) -> dict[str, Estimate]:
    codes = None if clusters is None else np.asarray(clusters)

    def average(x: np.ndarray, rows: np.ndarray | None = None, least: float = 0.0) -> Estimate:
        if rows is None:
            return _average(x, codes, level, least)
        return _average(x[rows], None if codes is None else codes[rows], level, least)

    agreement = s * t + (1 - s) * (1 - t)
    factor = sample_efficiency_factor(
        s, t, clusters=codes, level=level, draws=draws, rng=rng.child("factor")
    )
    table = {
        "accuracy": average(s),
        "judge_mean": average(t),
        "bias": average(t - s, least=-1.0),
        "agreement": average(agreement),
        "sensitivity": (sensitivity := average(t, s == 1)),
        "specificity": (specificity := average(1 - t, s == 0)),
        "balanced_agreement": _balanced(s, t, codes, level, sensitivity, specificity),
        "rho_squared": replace(
            factor,
            value=factor.details["rho_squared"],
            low=1 - 1 / factor.low,
            high=1 - 1 / factor.high,
            details={},
        ),
        "sample_efficiency_factor": factor,
        "beyond_frontier": average(agreement - s, least=-1.0),
    }
    if not np.isin(t, (0, 1)).all() and min((s == 0).sum(), (s == 1).sum()) >= 2:
        r = recalibrate(s, t, how=how, rng=rng.child("folds"))
        soft = s * r + (1 - s) * (1 - r)
        table["soft_agreement"] = average(soft)
        table["soft_beyond_frontier"] = average(soft - s, least=-1.0)
    return table


def _average(
    x: np.ndarray, clusters: np.ndarray | None, level: float, least: float = 0.0
) -> Estimate:
    """Return the mean of numbers between ``least`` and 1, without an interval if need be."""
    binary = least == 0 and bool(np.isin(x, (0, 1)).all())
    method = single.proportion if binary else single.mean
    try:
        found = method(x, clusters=clusters, level=level)
    except UsageError as error:  # one unit or cluster; the other rows of the table stand
        return Estimate(float(x.mean()), level=level, n=len(x), note=str(error))
    return replace(found, low=max(found.low, least), high=min(found.high, 1.0))


def _balanced(
    s: np.ndarray,
    t: np.ndarray,
    clusters: np.ndarray | None,
    level: float,
    sensitivity: Estimate,
    specificity: Estimate,
) -> Estimate:
    """Return the mean of both rates, its interval by the delta method."""
    rates = JudgeRates.of(s, t)
    pull = s * (t - rates.p) / rates.b + (1 - s) * (1 - t - rates.q) / (1 - rates.b)
    around = rates.balanced_agreement + pull / 2
    found = single.mean(around, clusters=clusters, level=level)
    low, high = max(found.low, 0.0), min(found.high, 1.0)
    found = replace(
        found, value=rates.balanced_agreement, low=low, high=high, method=f"delta, {found.method}"
    )
    if np.ptp(around) > 1e-12:
        return found
    # No verdict errs: the rates' own intervals know better than a variance of zero.
    low = (sensitivity.low + specificity.low) / 2
    high = (sensitivity.high + specificity.high) / 2
    return replace(found, low=low, high=high, method="mean of ends", note="")


def rho_squared(s: np.ndarray, t: np.ndarray) -> float:
    """Return the squared correlation, 0 for a constant column."""
    # From sums, for the bootstrap's sake: in [0, 1] they lose no digits that matter.
    n, of_s, of_t = len(s), float(s.sum()), float(t.sum())
    spread = (n * float(s @ s) - of_s**2) * (n * float(t @ t) - of_t**2)
    shared = n * float(s @ t) - of_s * of_t
    return float(min(shared**2 / spread, 1.0)) if spread > 1e-9 else 0.0


def _least_factor(b: float, errors: float, labelled_share: float) -> float:
    """Return the smallest factor of a judge that errs on a given share of items."""
    judges = [
        JudgeRates(b, max(0.0, 1 - right / b), max(0.0, 1 - wrong / (1 - b)))
        for right, wrong in ((errors, 0.0), (0.0, errors), (errors * b, errors * (1 - b)))
    ]
    return min(float(judge.efficiency(labelled_share)) for judge in judges)


def _exp(x: float) -> float:
    return math.inf if x >= math.log(_HUGE) - 1e-9 else math.exp(x)


def _judged(part: str, gold: Column, judge: Column) -> tuple[np.ndarray, np.ndarray]:
    s, t = np.asarray(gold, float), np.asarray(judge, float)
    if s.shape != t.shape or s.ndim != 1:
        raise UsageError(
            f"{part}: gold and judge must be columns of one length, got {s.shape} and {t.shape}."
        )
    if not np.isin(s, (0, 1)).all():
        raise UsageError(f"{part}: gold scores must be 0 or 1, got {s[~np.isin(s, (0, 1))][0]:g}.")
    inside = (t >= 0) & (t <= 1)
    if not inside.all():
        raise UsageError(f"{part}: verdicts must be from 0 to 1, got {t[~inside][0]:g}.")
    if len(s) < 2 or np.ptp(s) == 0:
        raise UsageError(
            f"{part}: all {len(s)} gold scores are alike, so the judge's worth is undefined;"
            " label more items."
        )
    return s, t
