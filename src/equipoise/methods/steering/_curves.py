"""Dose-response curves from arrays of scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, UsageError

Array = npt.NDArray[np.float64]


def dose_response(
    doses: Sequence[float],
    scores: npt.ArrayLike,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> dict[str, Estimate]:
    r"""Return how scores move with a dose that every unit got at every strength.

    Each number is the mean over units of a contrast $\sum_k w_k y_{ik}$ of the
    unit's scores $y_{ik}$ at doses $\alpha_k$, with the interval of that mean:

    - ``at D``: the score at dose D itself;
    - ``slope``: the coefficient b of the least-squares line $a + b \alpha$;
    - ``curvature``: c of $a + b \alpha + c \alpha^2$ (three doses or more);
    - ``slope below zero``, ``slope above zero``: b over the doses up to 0, and
      from 0 on, where there are two or more on that side. A U around zero has
      the first below zero and the second above (the two-lines test).

    Parameters
    ----------
    doses
        Strengths, all different, shape ``(k,)``.
    scores
        Shape ``(k, n)``: one row a dose, the same units in each.
    units, clusters, builds
        Labels of the columns, shape ``(n,)``, as in
        `equipoise.kit.statistics.mean`.
    level
        Coverage of each interval.

    Raises
    ------
    UsageError
        If there are fewer than two doses, two are alike, or shapes do not fit.

    References
    ----------
    Simonsohn, "Two lines: A valid alternative to the invalid testing of
    U-shaped relationships with quadratic regressions", 2018.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> dose = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    >>> found = dose_response(dose, dose[:, None] ** 2 + rng.normal(0, 0.1, (5, 50)))
    >>> found["slope below zero"].high < 0 < found["slope above zero"].low
    True
    >>> round(found["curvature"].value, 1)
    1.0
    """
    from equipoise.kit.statistics.single import mean

    strengths, rows = np.asarray(doses, float), np.asarray(scores, float)
    if rows.ndim != 2 or len(rows) != len(strengths):
        raise UsageError(
            f"dose_response: scores must be (doses, units), got {rows.shape} for"
            f" {len(strengths)} doses."
        )
    if len(strengths) < 2 or len(np.unique(strengths)) < len(strengths):
        raise UsageError("dose_response: needs two doses or more, all different.")
    found = {}
    for name, weights in _contrasts(strengths).items():
        found[name] = mean(
            weights @ rows, units=units, clusters=clusters, builds=builds, level=level
        )
    return found


def _contrasts(doses: Array) -> dict[str, Array]:
    """Return the weights of each number, in order of dose."""
    found = {f"at {doses[place]:g}": np.eye(len(doses))[place] for place in np.argsort(doses)} | {
        "slope": _coefficient(doses, 1, 1)
    }
    if len(doses) > 2:
        found["curvature"] = _coefficient(doses, 2, 2)
    for name, side in (("below", doses <= 0), ("above", doses >= 0)):
        if side.sum() > 1 and not side.all():
            found[f"slope {name} zero"] = _coefficient(doses, 1, 1, side)
    return found


def _coefficient(
    doses: Array, degree: int, power: int, side: npt.NDArray[np.bool_] | None = None
) -> Array:
    """Return weights whose sum with scores is a coefficient of the least-squares polynomial."""
    chosen = np.ones(len(doses), bool) if side is None else side
    weights = np.zeros(len(doses))
    design = np.vander(doses[chosen], degree + 1, increasing=True)
    weights[chosen] = np.linalg.pinv(design)[power]
    return weights
