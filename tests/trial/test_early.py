"""``stop: early`` ends soon where arms differ, and seldom where they do not."""

import numpy as np

from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.trial.early import BLOCK, Watched
from equipoise.trial.trial import Arm, Claim, Trial

CLAIM = Claim("b", "beats", "a", "toss")


def ends(p, q, units, seed):
    """Return after how many units the engine's looks and verdict end a trial, and whether so."""
    trial = Trial(
        "early", {"a": Arm(Coin(p)), "b": Arm(Coin(q))}, {"toss": Tosses(units)}, [CLAIM],
        stop="early",
    )  # fmt: skip
    draws = np.random.default_rng([77, seed]).random((2, units))
    values = (draws[1] < q).astype(float) - (draws[0] < p)
    watched, seen = Watched(trial, CLAIM), 0
    while seen < units:
        here = values[seen : seen + max(BLOCK, seen // 8)]
        seen += len(here)
        kept = np.ones(len(here), bool)
        watched.feed(here, kept, kept, None)
        if watched.decided():
            return seen, True
    return seen, False


def test_ten_points_end_a_trial_after_two_fifths_of_2000_units():
    # Independent arms in the middle are the hardest; benchmarks/early_stopping.py has the rest.
    found = [ends(0.6, 0.7, 2_000, seed) for seed in range(100)]
    assert np.median([units for units, _ in found]) <= 800
    assert np.mean([decided for _, decided in found]) > 0.9


def test_arms_alike_end_a_trial_no_oftener_than_the_level():
    # 13 and more of 120 would come once in 200 such tests at 5 %.
    found = [ends(0.5, 0.5, 1_000, 1_000 + seed)[1] for seed in range(120)]
    assert sum(found) <= 12
