"""Speed of a decision about which arm to run next, as JSON lines.

UCB-E and UCB-E-LRF at 100 arms x 1,000 units, from the first cell to a share of all, and the same
steps by banditeval where it is installed; the mean time of a decision and the ratio. The policies
are fed from one matrix of zeros and ones, which costs nothing, so that what is measured is the
deciding. CPU seconds of this process on one thread.

    OMP_NUM_THREADS=1 python benchmarks/allocation.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib.util
import time
from typing import Any

import numpy as np
from _peers import say

from equipoise.core import Rng
from equipoise.kit.statistics.allocation import UCBE, Allocation, UCBELowRank

ARMS, UNITS, BATCH = 100, 1_000, 32


def scores() -> np.ndarray:
    generator = np.random.default_rng(0)
    ability, difficulty = generator.normal(0, 0.5, (ARMS, 1)), generator.normal(0, 1, UNITS)
    chance = 1 / (1 + np.exp(difficulty - ability))
    return (generator.random((ARMS, UNITS)) < chance).astype(float)


def ours(policy: Allocation, truth: np.ndarray, known: np.ndarray, steps: int) -> float:
    """Return milliseconds a decision, telling of the answers included."""
    policy.tell(*np.nonzero(known), truth[known])
    started = time.process_time()
    for _ in range(steps):
        arms, units = policy.next()
        policy.tell(arms, units, truth[arms, units])
    return 1e3 * (time.process_time() - started) / steps


def peers(step: Any, truth: np.ndarray, known: np.ndarray, steps: int) -> float:
    """Return milliseconds of a step of banditeval, which has no state but the matrix."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    whole = torch.tensor(truth, dtype=torch.float32)
    matrix = torch.where(torch.tensor(known), whole, torch.nan)
    started = time.process_time()
    for _ in range(steps):
        rows, columns = step(matrix)
        matrix[rows, columns] = whole[rows, columns]
    return 1e3 * (time.process_time() - started) / steps


def main() -> None:
    truth, generator = scores(), np.random.default_rng(1)
    order = generator.permutation(UNITS)
    here = importlib.util.find_spec("banditeval") is not None
    for name, shares, steps in (
        ("ucb_e", (0.0, 0.05, 0.5), 500),
        ("ucb_e_lrf", (0.05, 0.15, 0.5), 20),
    ):
        for share in shares:
            known = generator.random((ARMS, UNITS)) < share + 0.001 * (share > 0)
            policy: Allocation = (
                UCBE(ARMS, order, batch=BATCH)
                if name == "ucb_e"
                else UCBELowRank(ARMS, UNITS, Rng(0), batch=BATCH)
            )
            row = {"ms": ours(policy, truth, known, steps)}
            if here:
                from banditeval import bandits

                step = (
                    bandits.upper_confidence_bound_exploration
                    if name == "ucb_e"
                    else bandits.upper_confidence_bound_exploration_low_rank_factorization
                )
                row["banditeval_ms"] = peers(step, truth, known, steps if name == "ucb_e" else 1)
                row["times_faster"] = row["banditeval_ms"] / row["ms"]
            say(what=f"a decision of {name}", arms=ARMS, units=UNITS, known=share, **row)


if __name__ == "__main__":
    main()
