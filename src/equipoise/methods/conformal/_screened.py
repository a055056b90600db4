"""What screening tasks share: answers that fit the question, and their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from equipoise.core import UnitError


def screened(found: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values and decisions of a subject, or say what is wrong with them."""
    try:
        p, decided = (np.asarray(each) for each in found)
        p, decided = p.astype(np.float64), decided.astype(bool)
    except (TypeError, ValueError) as error:
        raise UnitError("The subject gave no p-values and decisions.", "garbage") from error
    if p.shape != shape or decided.shape != shape:
        raise UnitError(
            f"The subject gave p-values of shape {p.shape} and decisions of shape "
            f"{decided.shape} where {shape} was asked.",
            "garbage",
        )
    if not ((p >= 0) & (p <= 1)).all():
        raise UnitError("The subject gave p-values outside [0, 1].", "garbage")
    return p, decided


def outlier_scores(flagged: np.ndarray, outlier: np.ndarray) -> dict[str, float]:
    """Return power, false discovery proportion and the share flagged; no power without outliers."""
    found = {
        "false_discovery_proportion": float((flagged & ~outlier).sum() / max(1, flagged.sum())),
        "flagged": float(flagged.mean()) if len(flagged) else 0.0,
    }
    if outlier.any():
        found["power"] = float(flagged[outlier].mean())
    return found


def family_wise_scores(
    declared: np.ndarray, labels: np.ndarray, quadrant: np.ndarray
) -> dict[str, float]:
    """Return power and the share of rows with a false declaration, by quadrant too."""
    holds = labels.astype(bool)
    wrong = (declared & ~holds).any(axis=1)
    power = [declared[holds[:, k], k].mean() for k in range(labels.shape[1]) if holds[:, k].any()]
    found = {"family_wise_error": float(wrong.mean())}
    if power:
        found["power"] = float(np.mean(power))
    by_quadrant = {
        f"family_wise_error_{k + 1}": float(wrong[quadrant == k].mean())
        for k in range(4)
        if (quadrant == k).any()
    }
    return found | by_quadrant | {"worst_quadrant": max(by_quadrant.values())}
