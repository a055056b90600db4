r"""Logistic regression whose estimate and interval exist even when a score is all right or wrong.

Firth's (1993) penalised likelihood $\ell^*(\beta) = \ell(\beta) + \tfrac12 \log |I(\beta)|$ is
finite where the maximum of $\ell$ is not: accuracy of 1 up to some depth and 0 beyond is what a
sharp limit looks like. Intervals are those of its profile (Heinze & Schemper 2002), or, where rows
hang together, a t interval whose variance is the larger of the model's and that of the rows'
influence on the estimate, taken over units, clusters and builds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from equipoise.core import Estimate, UsageError


@dataclass(frozen=True)
class _Table:
    """Rows with the same predictors, counted together."""

    x: np.ndarray  # (groups, coefficients)
    right: np.ndarray
    total: np.ndarray

    def penalised(self, beta: np.ndarray) -> float:
        eta = self.x @ beta
        p = special.expit(eta)
        information = self.x.T @ (self.x * (self.total * p * (1 - p))[:, None])
        sign, log_det = np.linalg.slogdet(information)
        if sign <= 0:
            return -math.inf
        likelihood = self.right * eta - self.total * np.logaddexp(0, eta)
        return float(likelihood.sum() + 0.5 * log_det)

    def step(self, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the modified score and the information."""
        p = special.expit(self.x @ beta)
        weight = self.total * p * (1 - p)
        information = self.x.T @ (self.x * weight[:, None])
        inverse = np.linalg.inv(information)
        hat = weight * np.einsum("ij,jk,ik->i", self.x, inverse, self.x)
        return self.x.T @ (self.right - self.total * p + hat * (0.5 - p)), information

    def fit(self, fixed: tuple[int, float] | None = None, start: Any = None) -> np.ndarray:
        """Maximise the penalised likelihood, one coefficient held where ``fixed`` says."""
        beta = np.zeros(self.x.shape[1]) if start is None else np.array(start, float)
        free = np.ones(len(beta), bool)
        if fixed is not None:
            beta[fixed[0]], free[fixed[0]] = fixed[1], False
        value = self.penalised(beta)
        for _ in range(200):
            score, information = self.step(beta)
            move = np.zeros_like(beta)
            move[free] = np.linalg.solve(information[np.ix_(free, free)], score[free])
            move *= min(1.0, 5.0 / max(float(np.abs(move).max()), 1e-300))
            for _ in range(40):
                moved = self.penalised(beta + move)
                if moved >= value - 1e-12:
                    break
                move /= 2
            beta, value = beta + move, max(moved, value)
            if np.abs(move).max() < 1e-9:
                break
        return beta


def logistic(
    y: np.ndarray,
    x: np.ndarray,
    which: int,
    who: str,
    *,
    units: np.ndarray | None = None,
    clusters: np.ndarray | None = None,
    builds: np.ndarray | None = None,
    level: float = 0.95,
) -> Estimate:
    """Estimate one coefficient of a logistic regression.

    Parameters
    ----------
    y
        Zeros and ones (or shares), shape ``(n,)``.
    x
        Predictors with a column of ones, ``(n, coefficients)``; centred for
        good conditioning by the caller.
    which
        The coefficient wanted.
    who
        Named in complaints.
    units, clusters, builds
        What rows hang together by, each ``(n,)``.
    level
        Coverage aimed for.
    """
    if len(y) == 0 or np.isnan(y).any() or y.min() < 0 or y.max() > 1:
        raise UsageError(f"{who}: scores must be from 0 to 1, all of them present.")
    rows, inverse = np.unique(x, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    table = _Table(rows, np.bincount(inverse, y), np.bincount(inverse).astype(float))
    beta = table.fit()
    value = float(beta[which])
    best = table.penalised(beta)
    sharp = (
        "" if _mixed(table) else "Accuracy is all or nothing everywhere, so the slope is a bound."
    )
    if not _hangs_together(len(y), units, clusters, builds) and _binary(y):
        reach = stats.chi2.ppf(level, 1)

        def excess(b: float) -> float:
            held = table.fit((which, b), beta)
            return 2 * (best - table.penalised(held)) - float(reach)

        low, high = _root(excess, value, -1), _root(excess, value, 1)
        p_value = float(stats.chi2.sf(max(0.0, excess(0.0) + reach), 1))
        return Estimate(
            value, low, high, level, len(y), method="firth-profile", p_value=p_value, note=sharp
        )
    return _robust(y, x, beta, which, who, units, clusters, builds, level, sharp)


def _robust(
    y: np.ndarray,
    x: np.ndarray,
    beta: np.ndarray,
    which: int,
    who: str,
    units: np.ndarray | None,
    clusters: np.ndarray | None,
    builds: np.ndarray | None,
    level: float,
    note: str,
) -> Estimate:
    from equipoise.kit.statistics.robust import reduce_rows, sampling

    p = special.expit(x @ beta)
    inverse = np.linalg.inv(x.T @ (x * (p * (1 - p))[:, None]))
    # A row's influence on the estimate; its mean has the estimate's variance.
    influence = len(y) * (x @ inverse[which]) * (y - p)
    rows = reduce_rows(influence, who, units=units, clusters=clusters, builds=builds)
    found = sampling(rows, who)
    error = math.sqrt(max(found.variance, float(inverse[which, which])))
    reach = found.multiplier(level) * error
    value = float(beta[which])
    df = found.df(level)
    return Estimate(
        value,
        value - reach,
        value + reach,
        level,
        found.n,
        found.clusters,
        found.builds,
        f"firth-{found.method}",
        float(2 * stats.t.sf(abs(value) / error, df)),
        note,
        {"se": error, "df": df},
    )


def _root(excess: Any, value: float, side: int) -> float:
    width = 0.5
    for _ in range(60):
        if excess(value + side * width) > 0:
            low, high = sorted((value, value + side * width))
            return float(optimize.brentq(excess, low, high, xtol=1e-6))
        width *= 2
    return side * math.inf


def _hangs_together(n: int, *groups: np.ndarray | None) -> bool:
    units, clusters, builds = groups
    return (
        (units is not None and len(np.unique(units)) < n)
        or (clusters is not None and len(np.unique(clusters)) < n)
        or (builds is not None and len(np.unique(builds)) > 1)
    )


def _binary(y: np.ndarray) -> bool:
    return bool(np.isin(y, (0.0, 1.0)).all())


def _mixed(table: _Table) -> bool:
    return bool(((table.right > 0) & (table.right < table.total)).any())
