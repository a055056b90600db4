"""Several claims at once: corrected p-values and levels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError
from equipoise.kit.statistics._common import Array, check_level, column


def holm(p: npt.ArrayLike) -> Array:
    r"""Return p-values adjusted by Holm's (1979) step-down method.

    Rejecting what is at most $\alpha$ errs at all with probability at most
    $\alpha$, whatever the dependence: $\tilde p_{(i)} = \max_{j \le i}
    \min(1, (m - j + 1) p_{(j)})$.

    Parameters
    ----------
    p
        P-values in [0, 1], shape ``(m,)``.

    Raises
    ------
    UsageError
        If a value is missing or outside [0, 1].

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = _checked(p, "holm")
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def benjamini_hochberg(p: npt.ArrayLike) -> Array:
    r"""Return p-values adjusted by Benjamini & Hochberg (1995).

    Rejecting what is at most $\alpha$ keeps the expected share of false
    rejections at most $\alpha$ when tests are independent or positively
    dependent: $\tilde p_{(i)} = \min_{j \ge i} \min(1, m p_{(j)} / j)$.

    Parameters
    ----------
    p
        P-values in [0, 1], shape ``(m,)``.

    Raises
    ------
    UsageError
        If a value is missing or outside [0, 1].

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, 0.03])
    array([0.03, 0.04, 0.04])
    """
    p = _checked(p, "benjamini_hochberg")
    order = np.argsort(p, kind="stable")[::-1]
    scaled = p[order] * p.size / np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted


def bonferroni_level(level: float, claims: int) -> float:
    """Return the level each of several intervals needs for all to hold at ``level``.

    Examples
    --------
    >>> round(bonferroni_level(0.95, 5), 6)
    0.99
    """
    check_level(level, "bonferroni_level")
    if claims < 1:
        raise UsageError(f"bonferroni_level: claims must be at least 1, got {claims}.")
    return 1 - (1 - level) / claims


def _checked(p: npt.ArrayLike, who: str) -> Array:
    found = column(p, who, "p")
    if ((found < 0) | (found > 1)).any():
        raise UsageError(f"{who}: p-values must be from 0 to 1.")
    return found
