"""What a pair model says of a pair that no one compared, and how far it moves: closed forms."""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError


class Link(Protocol):
    """A strictly rising $g$ with $g(-t) = 1 - g(t)$, such as a symmetric law of `scipy.stats`."""

    def cdf(self, t: Any) -> Any:
        """Return $g$."""

    def ppf(self, p: Any) -> Any:
        """Return its inverse."""

    def pdf(self, t: Any) -> Any:
        """Return its slope."""


Model = Literal["bradley-terry", "probit"]


def implied_preference(
    x: npt.ArrayLike, y: npt.ArrayLike, g: Model | Link = "bradley-terry"
) -> np.ndarray:
    r"""Return $p_{ij}$, which a model implies from $x = p_{kj}$ and $y = p_{ik}$.

    Under Bradley-Terry $xy / (xy + (1-x)(1-y))$.

    Parameters
    ----------
    x, y
        Probabilities from 0 to 1.
    g
        ``"bradley-terry"``, ``"probit"`` or any other `Link`.

    Returns
    -------
    ndarray
        NaN where one preference is certain and the other is its opposite: nothing follows.

    Raises
    ------
    UsageError
        If a probability is outside [0, 1].

    Examples
    --------
    >>> implied_preference(0.99, [0.01, 0.02, 0.5]).round(3)
    array([0.5  , 0.669, 0.99 ])
    """
    x, y = _probabilities("implied_preference", x, y)
    with np.errstate(invalid="ignore", divide="ignore"):
        if g == "bradley-terry":
            return np.asarray(x * y / (x * y + (1 - x) * (1 - y)))
        law = _law(g)
        return np.asarray(law.cdf(law.ppf(x) + law.ppf(y)))


def sensitivity(
    x: npt.ArrayLike, y: npt.ArrayLike, g: Model | Link = "bradley-terry"
) -> np.ndarray:
    r"""Return $S = \partial p_{ij} / \partial p_{ik}$ at $x = p_{kj}$ and $y = p_{ik}$.

    Under Bradley-Terry $x(1-x) / (xy + (1-x)(1-y))^2$. Above 1, a change is amplified.

    Parameters
    ----------
    x, y, g
        As for `implied_preference`, and the same errors.

    Returns
    -------
    ndarray
        NaN where nothing follows, or where y is certain and another link than Bradley-Terry has
        no slope.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025.

    Examples
    --------
    >>> sensitivity([0.99, 0.9, 0.5, 0.99], [0.01, 0.1, 0.5, 0.5]).round(4)
    array([25.2525,  2.7778,  1.    ,  0.0396])
    """
    x, y = _probabilities("sensitivity", x, y)
    with np.errstate(invalid="ignore", divide="ignore"):
        if g == "bradley-terry":
            return np.asarray(x * (1 - x) / (x * y + (1 - x) * (1 - y)) ** 2)
        law = _law(g)
        b = law.ppf(y)
        return np.asarray(law.pdf(law.ppf(x) + b) / law.pdf(b))


def sensitive_bound(x: npt.ArrayLike, least: float = 1.0) -> np.ndarray:
    r"""Return the y where Bradley-Terry's S is ``least``: the edge of the M-sensitive region.

    With $x > M/(1+M)$ the region lies below $(\sqrt{x(1-x)/M} - (1-x)) / (2x-1)$; with
    $x < 1/(1+M)$ above $((1-x) - \sqrt{x(1-x)/M}) / (1-2x)$; between them there is none.

    Parameters
    ----------
    x
        $p_{kj}$, from 0 to 1.
    least
        M, at least 1.

    Returns
    -------
    ndarray
        NaN where no y is in the region.

    Raises
    ------
    UsageError
        If a probability is outside [0, 1] or ``least`` is below 1.

    Examples
    --------
    >>> bound = sensitive_bound(0.99, 5.0)
    >>> round(float(sensitivity(0.99, bound)), 6)
    5.0
    """
    (x,) = _probabilities("sensitive_bound", x)
    _least("sensitive_bound", least)
    inside = np.maximum(x, 1 - x) > least / (1 + least)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (np.sqrt(x * (1 - x) / least) - (1 - x)) / (2 * x - 1)
    return np.asarray(np.where(inside, found, np.nan))


def sensitive_region_area(least: float) -> float:
    r"""Return the share of all $(p_{kj}, p_{ik})$ at which Bradley-Terry's S is above ``least``.

    .. math:: A(M) = \frac{1}{\sqrt M} \operatorname{artanh} \frac{1}{\sqrt M}
                     - \operatorname{artanh} \frac1M, \qquad A(1) = \frac{\log 2}{2},

    the integral of the region's bound; about $1 / (3 M^2)$ for large M.

    Parameters
    ----------
    least
        M, at least 1.

    Raises
    ------
    UsageError
        If ``least`` is below 1.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025,
    for the region.

    Examples
    --------
    >>> [round(sensitive_region_area(least), 5) for least in (1, 2, 10)]
    [0.34657, 0.07392, 0.00321]
    """
    _least("sensitive_region_area", least)
    if least == 1:
        return math.log(2) / 2
    root = math.sqrt(least)
    return math.atanh(1 / root) / root - math.atanh(1 / least)


def _law(g: Any) -> Link:
    from scipy import stats

    known: dict[str, Any] = {"bradley-terry": stats.logistic, "probit": stats.norm}
    if isinstance(g, str):
        if g not in known:
            raise UsageError(
                f"sensitivity: g must be one of {', '.join(known)} or a Link, got {g}."
            )
        g = known[g]
    found: Link = g
    return found


def _probabilities(who: str, *values: npt.ArrayLike) -> list[np.ndarray]:
    arrays = [np.asarray(each, float) for each in values]
    if not all(((each >= 0) & (each <= 1)).all() for each in arrays):
        raise UsageError(f"{who}: probabilities must be from 0 to 1, without gaps.")
    return arrays


def _least(who: str, least: float) -> None:
    if not 1 <= least < math.inf:
        raise UsageError(f"{who}: least must be at least 1, got {least:g}.")
