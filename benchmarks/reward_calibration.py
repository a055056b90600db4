"""Speed of reward calibration on 300,000 scores, as JSON lines.

RC-Mean against a plain loop that bisects and averages the window of each score; RC-LWR in seconds,
for whole lengths (a fit at each) and for a characteristic without ties (fits in steps), and how far
the steps move the curve. CPU seconds of this process on one thread.

    OMP_NUM_THREADS=1 python benchmarks/reward_calibration.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import bisect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _peers import say

from equipoise.methods.alignment import RewardCalibration, local_mean, lowess

SCORES, LOOPED = 300_000, 3_000


def cpu(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return work(), time.process_time() - started


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    c = np.exp(draw.normal(6.5, 0.8, n))
    return draw.normal(size=n) + 1.2 * np.log(c / 665) + 0.6 * np.sin(c / 700), c


def loop(r: np.ndarray, c: np.ndarray, asked: np.ndarray, width: float) -> np.ndarray:
    order = np.argsort(c, kind="stable")
    sorted_c, sorted_r = c[order].tolist(), r[order].tolist()
    found = []
    for each in asked:
        first = bisect.bisect_left(sorted_c, each - width)
        last = bisect.bisect_right(sorted_c, each + width)
        found.append(np.mean(sorted_r[first:last]))
    return np.array(found)


def main() -> None:
    r, c = sample(SCORES)
    whole, width = np.round(c), 200.0
    ours, fast = cpu(lambda: local_mean(r, whole, width=width))
    theirs, slow = cpu(lambda: loop(r, whole, whole[:LOOPED], width))
    apart = float(np.abs(ours[:LOOPED] - theirs).max())
    times = slow * SCORES / LOOPED / fast
    say(what="local_mean", scores=SCORES, cpu_seconds=fast, times_faster=times, apart=apart)
    for name, column in (("whole lengths", whole), ("no ties", c)):
        for frac in (0.3, 0.5, 1.0):
            how = RewardCalibration(frac=frac)
            _, spent = cpu(lambda how=how, column=column: how.fit_transform(r, column))
            values = len(np.unique(column))
            say(what=f"lowess, {name}", frac=frac, values=values, scores=SCORES, cpu_seconds=spent)
    r, c = r[:10_000], c[:10_000]
    step = 1e-3 * float(np.diff(np.quantile(c, (0.01, 0.99)))[0])
    for frac in (0.1, 0.3, 0.5, 1.0):
        exact, spent = cpu(lambda frac=frac: lowess(r, c, frac=frac, delta=0.0))
        near, less = cpu(lambda frac=frac: lowess(r, c, frac=frac, delta=step))
        apart = float(np.abs(exact - near).max() / r.std())
        say(
            what="lowess in steps", frac=frac, scores=len(r), times_faster=spent / less, apart=apart
        )


if __name__ == "__main__":
    main()
