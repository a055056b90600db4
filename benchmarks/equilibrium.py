"""Speed of ratings at an equilibrium, as JSON lines.

Three specialists, a weak model and a strong one on three tasks, against polarix where it is
installed (affinity kernel, strategies of maximal affinity entropy, then the path of quantal
responses, with its defaults up to 45,000 updates): ratings and seconds of both in one run. Then
50 models on 500 prompts, with and without resampling, and 200 on 2,000.

    OMP_NUM_THREADS=1 python benchmarks/equilibrium.py
    OMP_NUM_THREADS=1 python benchmarks/equilibrium.py 50 500   # one size alone
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import importlib.util
import sys
import time

import numpy as np
from _peers import peak_mib, show, timed

from equipoise.methods.evaluation import equilibrium_ratings, win_rate_game
from equipoise.methods.evaluation._equilibrium_game import Game

SCORES = np.array([[6.0, 4, 3], [3, 5, 2], [1, 3, 7], [3, 4, 3], [5, 4, 5]])
EXACT = np.array([0, -1 / 3, 0, -1 / 4, 0])


def small() -> None:
    errors = np.full(SCORES.shape, 0.1)
    equilibrium_ratings(win_rate_game(SCORES, errors))  # imports
    rounds, started = 50, time.perf_counter()
    for _ in range(rounds):
        found = equilibrium_ratings(win_rate_game(SCORES, errors))
    ours = (time.perf_counter() - started) / rounds
    line = {
        "what": "5 models, 3 prompts",
        "seconds": round(ours, 5),
        "from_exact": float(np.abs(found.ratings - EXACT).max()),
        "exploitability": found.exploitability,
    }
    if importlib.util.find_spec("polarix") is not None:
        theirs, ratings, left = polarix(errors)
        line |= {
            "polarix": round(theirs, 2),
            "times_faster": round(theirs / ours),
            "polarix_from_exact": float(np.abs(ratings - EXACT).max()),
            "polarix_exploitability": left,
            "largest_difference": float(np.abs(found.ratings - ratings).max()),
        }
    show(**line)


def polarix(errors: np.ndarray) -> tuple[float, np.ndarray, float]:
    import jax
    import jax.numpy as jnp
    import polarix as peer

    names = np.arange(len(SCORES)), np.arange(SCORES.shape[1])
    game = peer.agent_vs_task_game(
        agents=names[0], tasks=names[1], agent_vs_task=jnp.asarray(SCORES),
        agent_vs_task_stddev=jnp.asarray(errors), normalizer="winrate",
    )  # fmt: skip
    started = time.perf_counter()
    kernel = peer.affinity_kernel(jax.random.PRNGKey(0))
    start = peer.solve(
        game,
        lambda each: peer.max_affinity_entropy_marginals(each, kernel),
        max_num_iterations=20_000,
        disable_progress_bar=True,
    )
    target = [jnp.log(each) for each in start.marginals]
    found = peer.solve(
        game,
        lambda each: peer.lle(each, target_logits=target),
        max_num_iterations=45_000,
        disable_progress_bar=True,
    )
    spent = time.perf_counter() - started
    assert found.extra is not None
    return spent, np.asarray(found.ratings[1]), float(found.extra["exp"])


def skilled(models: int, prompts: int) -> Game:
    """Return models that trade skills for one another, on prompts that ask for some of them."""
    generator = np.random.default_rng(0)
    skills = generator.dirichlet(np.ones(4), models) * 4 + 0.3 * generator.normal(size=(models, 1))
    able = (generator.dirichlet(np.full(4, 0.3), prompts) @ skills.T).astype(np.float32)
    margin = np.empty((prompts, models, models), np.float32)
    for t, row in enumerate(able):
        margin[t] = np.tanh((row[:, None] - row) / 2)
    return Game(margin, 0.5, tuple(map(str, range(prompts))), tuple(map(str, range(models))))


def large(models: int, prompts: int) -> None:
    game = skilled(models, prompts)
    for selection in ("nash", "cce") if models * models * prompts < 2**24 else ("nash",):
        found, spent = timed(lambda which=selection: equilibrium_ratings(game, selection=which))
        show(
            what=f"{models} models, {prompts} prompts", selection=selection, **spent,
            exploitability=found.exploitability, peak_mib=peak_mib(),
            played=[int((found.prompt_weights > 1e-6).sum()),
                    int((found.model_weights > 1e-6).sum())],
        )  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) == 3:
        large(int(sys.argv[1]), int(sys.argv[2]))
    else:
        small()
        large(50, 500)
        large(200, 2000)
