"""What conformal wrappers share: train and calibration rows, and predictions that are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from equipoise.core import Rng, Split, Task, UsageError, learnable
from equipoise.kit.arrays.examples import Examples, examples

LEARNS_FROM: tuple[Split, ...] = ("train", "calibration")


def parted(who: str, data: Any) -> tuple[Examples, Examples]:
    """Return the train and the calibration rows, or refuse where either is missing."""
    found = examples(data)
    train, calibration = found.of("train"), found.of("calibration")
    if not len(train) or not len(calibration):
        missing = "train" if not len(train) else "calibration"
        raise UsageError(
            f"{who}: there are no {missing} rows; it learns from train and calibration rows, so "
            f"give the task a share of both."
        )
    return train, calibration


def calibration_rows(who: str, task: Task, rng: Rng) -> Examples:
    """Return the calibration rows of a task, or refuse where there are none."""
    units = learnable(task, rng, "calibration")
    if not units:
        raise UsageError(
            f"{who}: {type(task).__name__} has no calibration rows; raise its calibration above 0."
        )
    return examples(units)


def untrained(who: str) -> UsageError:
    """Return what an untrained wrapper answers to every question."""
    return UsageError(
        f"{who} has not been trained; add the treatment train after it, or give it data if the "
        f"subject is trained already."
    )


def finite(who: str, values: np.ndarray) -> np.ndarray:
    """Return what was predicted for calibration rows, or refuse what is not finite."""
    if not np.isfinite(values.sum()):  # a sum of finite numbers may overflow: look again
        bad = int(np.count_nonzero(~np.isfinite(values)))
        if not bad:
            return values
        raise UsageError(
            f"{who}: the subject's predictions are not finite on {bad:,} of {len(values):,} "
            f"calibration rows, so there is nothing to calibrate."
        )
    return values
