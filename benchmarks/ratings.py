"""Bradley-Terry beside evalica, as JSON lines: 1,000,000 comparisons of 100 models, and bootstraps.

Runs in the peers' venv, which has both. Comparisons are indexed beforehand on both sides; CPU
seconds of this process on one thread, in turns. evalica's bootstrap refits all rows each round, so
a few rounds are measured and their mean is compared with ours over 1,000.

    OMP_NUM_THREADS=1 python benchmarks/ratings.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from typing import Any

import evalica
import numpy as np
from _peers import in_turns, say

from equipoise.core import Rng
from equipoise.kit.statistics import bradley_terry, bradley_terry_draws, elo
from equipoise.kit.statistics.comparisons import Comparisons

ROWS, MODELS, ROUNDS, THEIR_ROUNDS = 1_000_000, 100, 1_000, 3


def world(rows: int, models: int) -> Comparisons:
    """Return random pairs of models whose strengths are normal, a tenth of them ties."""
    generator = np.random.default_rng(0)
    strength = generator.normal(size=models)
    first = generator.integers(models, size=rows)
    second = (first + 1 + generator.integers(models - 1, size=rows)) % models
    chance = 1 / (1 + np.exp(strength[second] - strength[first]))
    draw = generator.random(rows)
    score = np.where(draw < 0.9 * chance, 1.0, np.where(draw < 0.9 * chance + 0.1, 0.5, 0.0))
    return Comparisons(tuple(f"m{i:03d}" for i in range(models)), first, second, score)


def main() -> None:
    met = world(ROWS, MODELS)
    first = [met.models[each] for each in met.first]
    second = [met.models[each] for each in met.second]
    winners = {1.0: evalica.Winner.X, 0.5: evalica.Winner.Draw, 0.0: evalica.Winner.Y}
    winner = [winners[each] for each in met.score.tolist()]
    *_, index = evalica.indexing(first, second)

    def theirs(**more: Any) -> Any:
        return evalica.bradley_terry(first, second, winner, index=index, **more)

    exact = np.log(theirs(tolerance=1e-13, limit=10_000).scores.sort_index().to_numpy())
    apart = float(np.abs(bradley_terry(met).scores - (exact - exact.mean())).max())
    ours, other = in_turns(lambda: bradley_terry(met), theirs)
    say(what="bradley_terry with standard errors", rows=ROWS, models=MODELS, cpu_seconds=ours,
        evalica=other, evalica_over_ours=other / ours, largest_difference=apart)  # fmt: skip

    (drawn,) = in_turns(lambda: bradley_terry_draws(met, draws=ROUNDS, rng=Rng(0)), rounds=1)

    def their_rounds(count: int) -> Any:
        return evalica.bootstrap(
            evalica.bradley_terry, first, second, winner,
            n_resamples=count, bootstrap_method="percentile",
        )  # fmt: skip

    # What comes before the rounds is left out: only what more rounds add counts.
    few, more = in_turns(lambda: their_rounds(2), lambda: their_rounds(2 + THEIR_ROUNDS), rounds=1)
    each = (more - few) / THEIR_ROUNDS
    say(what="bootstrap", rounds=ROUNDS, rows=ROWS, cpu_seconds=drawn, a_round=drawn / ROUNDS,
        evalica_a_round=each, evalica_over_ours=each * ROUNDS / drawn)  # fmt: skip

    small = world(10_000, MODELS)
    groups = np.repeat(np.arange(1_000), 10)
    grouped = Comparisons(small.models, small.first, small.second, small.score, cluster=groups)
    (drawn,) = in_turns(
        lambda: bradley_terry_draws(grouped, prior=1, draws=ROUNDS, rng=Rng(0)), rounds=1
    )
    say(what="bootstrap of 1,000 clusters", rounds=ROUNDS, rows=10_000, cpu_seconds=drawn)
    (spent,) = in_turns(lambda: elo(small, rng=Rng(0)), rounds=1)
    say(what="elo, 100 random orders and intervals", rows=10_000, cpu_seconds=spent)


if __name__ == "__main__":
    main()
