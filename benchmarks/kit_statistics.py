"""Speed of the resampling tests and of confidence sequences, as JSON lines.

Everything is measured in this process, on one thread, as CPU seconds; a peer that would take
minutes runs fewer draws, and its line says how many and what that scales to.

    OMP_NUM_THREADS=1 python benchmarks/kit_statistics.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np
from _peers import say
from scipy import stats

from equipoise.core import Rng
from equipoise.kit.statistics import (
    AsymptoticSequence,
    BettingSequence,
    bootstrap_mean,
    sign_flip,
)

UNITS = DRAWS = 10_000


def cpu(work: Callable[[], object], rounds: int = 3) -> float:
    """Return the least CPU seconds of a few rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def loop_bootstrap(d: np.ndarray, draws: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    n = d.size
    means = np.array([d[generator.integers(n, size=n)].mean() for _ in range(draws)])
    return np.quantile(means, [0.025, 0.975])


def loop_flips(d: np.ndarray, draws: int) -> float:
    generator = np.random.default_rng(0)
    seen = abs(d.sum())
    extreme = sum(
        abs((d * generator.choice([-1.0, 1.0], size=d.size)).sum()) >= seen for _ in range(draws)
    )
    return (extreme + 1) / (draws + 1)


def resampling() -> None:
    generator = np.random.default_rng(1)
    columns = {
        "continuous": generator.normal(size=UNITS) + 0.01,
        "binary pairs": generator.choice([1.0, 0.0, -1.0], p=[0.1, 0.82, 0.08], size=UNITS),
    }
    few = DRAWS // 20
    for name, d in columns.items():
        ours = cpu(lambda d=d: bootstrap_mean(d, rng=Rng(0), draws=DRAWS))
        loop = cpu(lambda d=d: loop_bootstrap(d, DRAWS), rounds=1)
        peer = cpu(
            lambda d=d: stats.bootstrap(
                (d,), np.mean, n_resamples=few, method="percentile", batch=100,
                rng=np.random.default_rng(0),
            ),
            rounds=1,
        ) * (DRAWS / few)  # fmt: skip
        say(
            what="bootstrap_mean", data=name, units=UNITS, draws=DRAWS, cpu_seconds=ours,
            loop_over_ours=loop / ours, scipy_bootstrap_over_ours=peer / ours,
            scipy_note=f"percentile, {few} draws scaled by {DRAWS // few}; ours is BCa",
        )  # fmt: skip
        ours = cpu(lambda d=d: sign_flip(d, rng=Rng(0), draws=DRAWS))
        loop = cpu(lambda d=d: loop_flips(d, DRAWS), rounds=1)
        peer = cpu(
            lambda d=d: stats.permutation_test(
                (d,), lambda x, axis: x.sum(axis=axis), permutation_type="samples",
                vectorized=True, n_resamples=few, batch=100, rng=np.random.default_rng(0),
            ),
            rounds=1,
        ) * (DRAWS / few)  # fmt: skip
        say(
            what="sign_flip", data=name, units=UNITS, draws=DRAWS, cpu_seconds=ours,
            loop_over_ours=loop / ours, scipy_permutation_test_over_ours=peer / ours,
            scipy_note=f"{few} draws scaled by {DRAWS // few}",
        )  # fmt: skip
    clusters = np.arange(UNITS) // 5
    d = columns["continuous"]
    say(
        what="bootstrap_mean", data="2,000 clusters of 5", units=UNITS, draws=DRAWS,
        cpu_seconds=cpu(lambda: bootstrap_mean(d, clusters=clusters, rng=Rng(0), draws=DRAWS)),
    )  # fmt: skip


def sequences() -> None:
    """Time one update after few and after many: the same, as nothing past is gone through."""
    x = np.random.default_rng(2).random(100_000)
    for name, make in (
        ("BettingSequence", lambda: BettingSequence(0, 1)),
        ("AsymptoticSequence", lambda: AsymptoticSequence()),
    ):
        found = {}
        for seen in (100, 100_000):
            sequence = make()
            sequence.update_many(x[:seen])

            def one_by_one(sequence=sequence):
                for value in x[:1000]:
                    sequence.update(value)
                    _ = sequence.interval

            found[seen] = cpu(one_by_one) / 1000
        together = cpu(lambda make=make: make().update_many(x), rounds=1) / x.size
        say(
            what=name, seconds_per_update_after_100=found[100],
            seconds_per_update_after_100_000=found[100_000],
            growth=found[100_000] / found[100], seconds_per_unit_in_update_many=together,
        )  # fmt: skip


if __name__ == "__main__":
    resampling()
    sequences()
