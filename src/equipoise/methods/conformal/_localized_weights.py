"""Weights of calibration rows by how near they are to a test row's anchor, a block at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.conformal import calibration_needed

BLOCK = 2_000_000
"""Entries of the largest array held at once: 16 MB of numbers."""


def default_bandwidth(n: int, d: int) -> float:
    r"""Return the bandwidth :math:`h = n^{-1/(2+d)}`.

    Parameters
    ----------
    n
        Calibration rows.
    d
        Covariates that the p-values are localised on.

    Examples
    --------
    >>> default_bandwidth(1000, 1)
    0.1
    """
    return round(math.exp(-math.log(n) / (2 + d)), 12)


@dataclass(frozen=True)
class Localised:
    """Scores, covariates and anchors; gives weights a block of test rows at a time."""

    scores: np.ndarray
    x: np.ndarray
    test_scores: np.ndarray
    test_x: np.ndarray
    anchors: np.ndarray
    h: float

    @classmethod
    def of(
        cls,
        scores: ArrayLike,
        x: ArrayLike,
        test_scores: ArrayLike,
        test_x: ArrayLike,
        bandwidth: float | None,
        rng: Rng,
    ) -> Localised:
        v, test_v = numbers(scores, "calibration scores"), numbers(test_scores, "test scores")
        c, test_c = columns(x, "calibration covariates"), columns(test_x, "test covariates")
        if not len(v):
            raise UsageError("There are no calibration rows; give the task a calibration split.")
        if v.ndim != 1 or len(c) != len(v) or test_v.ndim != 1 or len(test_c) != len(test_v):
            raise UsageError(
                f"Each row needs one score and its covariates, got {v.shape} and {c.shape} to "
                f"calibrate with, {test_v.shape} and {test_c.shape} to test."
            )
        if c.shape[1] != test_c.shape[1] or not c.shape[1]:
            raise UsageError(
                f"Calibration and test rows need the same covariates to localise on, got "
                f"{c.shape[1]} and {test_c.shape[1]} columns."
            )
        h = default_bandwidth(len(v), c.shape[1]) if bandwidth is None else float(bandwidth)
        if not h > 0:
            raise UsageError(f"bandwidth must be a positive number, got {bandwidth!r}.")
        noise = rng.child("anchors").numpy().normal(size=test_c.shape)
        anchors = test_c + h * noise if math.isfinite(h) else test_c
        return cls(v, c, test_v, test_c, anchors, h)

    @property
    def n(self) -> int:
        return len(self.scores)

    @property
    def m(self) -> int:
        return len(self.test_scores)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield test rows with their weights: of calibration rows (rows, n), own (rows,)."""
        rows = max(1, BLOCK // self.n)
        for start in range(0, self.m, rows):
            part = slice(start, min(start + rows, self.m))
            anchors = self.anchors[part]
            far = np.zeros((len(anchors), self.n))
            own = np.zeros(len(anchors))
            for k in range(anchors.shape[1]):
                step = (anchors[:, k, None] - self.x[:, k]) / self.h
                far += np.multiply(step, step, out=step)
                own += ((anchors[:, k] - self.test_x[part, k]) / self.h) ** 2
            # Weights count relative to each other: the nearest gets 1, so that none is lost.
            nearest = np.minimum(far.min(axis=1), own)
            far -= nearest[:, None]
            far *= -0.5
            yield part, np.exp(far, out=far), np.exp(-0.5 * (own - nearest))

    def p_values(self, chance: np.ndarray) -> np.ndarray:
        p = np.empty(self.m)
        for rows, weights, own in self.blocks():
            asked = self.test_scores[rows, None]
            above = np.einsum("ji,ji->j", weights, self.scores > asked)
            ties = np.einsum("ji,ji->j", weights, self.scores == asked)
            p[rows] = (above + chance[rows] * (own + ties)) / (weights.sum(axis=1) + own)
        return p

    def auxiliary(self) -> tuple[np.ndarray, np.ndarray]:
        """Return auxiliary p-values of rows without and with their own weight, each (m,)."""
        low, high = np.empty(self.m), np.empty(self.m)
        for rows, weights, own in self.blocks():
            reached = np.einsum("ji,ji->j", weights, self.scores >= self.test_scores[rows, None])
            total = weights.sum(axis=1) + own
            low[rows], high[rows] = reached / total, (reached + own) / total
        return low, high


def xi(m: int, rng: Rng) -> np.ndarray:
    """Return the uniform numbers that break ties, never 0."""
    return 1.0 - rng.child("ties").numpy().random(m)


def enough(n: int, alpha: float, who: str) -> None:
    """Refuse fewer calibration rows than an error rate needs."""
    needed = calibration_needed(alpha)
    if n < needed:
        raise UsageError(
            f"{who}: {n:,} calibration rows are too few for alpha {alpha:g}: at least {needed:,} "
            f"are needed."
        )


def columns(x: Any, which: str) -> np.ndarray:
    """Return covariates as (rows, d)."""
    found = numbers(x, which)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2:
        raise UsageError(f"The {which} must be (rows, columns), got shape {found.shape}.")
    return found


def numbers(values: Any, which: str) -> np.ndarray:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"The {which} must be numbers.") from error
    bad = int((~np.isfinite(found)).sum())
    if bad:
        raise UsageError(
            f"{bad:,} of {found.size:,} {which} are not finite; look at the data or predictions "
            f"they come from."
        )
    return found
