"""How soon ``stop: early`` ends, and how often it is wrong, as JSON lines.

Two arms of zeros and ones on 2,000 units, once with a true difference of 10 points and once with
none, at several base rates and correlations of the arms (a Gaussian copula). The simulation goes
through the sequence, the looks and the verdict of the engine; a smaller number of trials goes
through the whole engine with a store. ``share`` is the median of the units looked at per arm,
of 2,000; ``false_positives`` the share of A/A trials that ended with any verdict for "b beats a".

    OMP_NUM_THREADS=1 python benchmarks/early_stopping.py [TRIALS]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import norm

from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.store import Store
from equipoise.trial.early import BLOCK, Watched
from equipoise.trial.engine import run
from equipoise.trial.trial import Arm, Claim, Trial

UNITS = 2_000
CLAIM = Claim("b", "beats", "a", "toss")


def trial(p: float, q: float, seed: int = 0) -> Trial:
    arms = {"a": Arm(Coin(p)), "b": Arm(Coin(q))}
    return Trial("early", arms, {"toss": Tosses(UNITS)}, [CLAIM], seed=seed, stop="early")


def differences(p: float, q: float, correlation: float, rng: np.random.Generator) -> np.ndarray:
    """Return b less a, unit by unit."""
    z = rng.normal(size=(2, UNITS))
    z[1] = correlation * z[0] + np.sqrt(1 - correlation**2) * z[1]
    return (z[1] < norm.ppf(q)).astype(float) - (z[0] < norm.ppf(p))


def once(about: Trial, values: np.ndarray) -> tuple[int, bool]:
    """Return after how many units a trial ends, and whether with a verdict."""
    watched = Watched(about, CLAIM)
    seen = 0
    while seen < UNITS:
        here = values[seen : seen + max(BLOCK, seen // 8)]
        seen += len(here)
        kept = np.ones(len(here), bool)
        watched.feed(here, kept, kept, None)
        if watched.decided():
            return seen, True
    return seen, False


def simulate(p: float, q: float, correlation: float, trials: int) -> dict[str, object]:
    about = trial(p, q)
    rng = np.random.default_rng([round(1_000 * p), round(1_000 * q), round(100 * correlation)])
    found = [once(about, differences(p, q, correlation, rng)) for _ in range(trials)]
    ends = np.array([end for end, _ in found])
    return {
        "rates": [p, q],
        "correlation": correlation,
        "trials": trials,
        "share": round(float(np.median(ends)) / UNITS, 3),
        "share_of_the_slowest_tenth": round(float(np.quantile(ends, 0.9)) / UNITS, 3),
        "decided": round(float(np.mean([decided for _, decided in found])), 4),
    }


def engine(p: float, q: float, trials: int) -> dict[str, object]:
    """Run whole trials, each with a seed of its own."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "s.sqlite") as store:
        results = [run(trial(p, q, seed), store=store) for seed in range(trials)]
    ends = np.array([result.sequences[0]["steps"][-1]["n"] for result in results])
    decided = [result.claims[0].verdict != "inconclusive" for result in results]
    return {
        "rates": [p, q],
        "trials": trials,
        "share": round(float(np.median(ends)) / UNITS, 3),
        "decided": round(float(np.mean(decided)), 4),
    }


def show(what: str, row: dict[str, object]) -> None:
    print(json.dumps({"what": what, **row}), flush=True)


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    for low in (0.1, 0.3, 0.45, 0.6, 0.85):
        for correlation in (0.0, 0.5, 0.9):
            show("ten points", simulate(low, round(low + 0.1, 2), correlation, trials // 10))
    show("ten points, engine", engine(0.45, 0.55, trials // 50))
    for rate in (0.1, 0.5, 0.9):
        for correlation in (0.0, 0.8):
            row = simulate(rate, rate, correlation, trials)
            show("A/A", row | {"false_positives": row.pop("decided")})
    row = engine(0.5, 0.5 + 1e-9, trials // 20)  # another arm, though as good
    show("A/A, engine", row | {"false_positives": row.pop("decided")})
