r"""Selection of a correlated equilibrium: the one nearest to the strategies of maximal entropy.

Among the joint distributions :math:`s` in which nobody gains more than :math:`\epsilon` on average
by deviating, the one of least :math:`\mathrm{KL}(s \| m_P \times m_K \times m_R)` is

.. math:: s \propto m_P m_K m_R \exp\Big(-\sum_{i, b} \lambda_i(b)
          \big(u_i(b, \cdot) - u_i(\cdot)\big)\Big)

with a dual :math:`\lambda_i(b) \ge 0` for every deviation: from whatever was recommended to
:math:`b` (coarse), or from each recommended action apart. King and rebel share theirs. The duals
minimise the logarithm of the normaliser plus :math:`\epsilon \sum \lambda`: smooth and convex.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import UsageError
from equipoise.kit import progress
from equipoise.methods.evaluation._equilibrium_game import Array, Game
from equipoise.methods.evaluation._equilibrium_path import LARGE

ROUNDS = 5000
"""Rounds of L-BFGS-B at most."""

MOST_DEVIATIONS = 2**24
"""Duals of a correlated equilibrium that is not coarse, at most."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint distribution of prompt, king and rebel, and the most anybody gains by deviating."""

    joint: Array
    exploitability: float
    rounds: int


def nearest_equilibrium(
    game: Game,
    prompt_target: Array,
    model_target: Array,
    *,
    slack: float = 1e-4,
    coarse: bool = True,
) -> Joint:
    r"""Return the (coarse) correlated equilibrium nearest to the targets' product.

    Parameters
    ----------
    game
        Best without copies.
    prompt_target, model_target
        :math:`m`, without zeros.
    slack
        :math:`\epsilon`, what a deviation may gain; above 0, so that the duals stay finite.
    coarse
        One dual for every deviation; else one for every pair of recommended and other action.

    Raises
    ------
    UsageError
        If the game is too large for one that is not coarse.
    """
    from scipy.optimize import minimize

    p, m, _ = game.margin.shape
    sizes = (p, m) if coarse else (p * p, m * m)
    if sum(sizes) > MOST_DEVIATIONS:
        raise UsageError(
            f"equilibrium_ratings: {p} prompts are too many for selection: ce; use cce or nash."
        )
    log_m = np.log(model_target)
    base = (np.log(prompt_target)[:, None, None] + log_m[:, None] + log_m).astype(game.margin.dtype)
    system = _Coarse(game, base) if coarse else _Full(game, base)
    rounds = 0

    def loss(duals: Array) -> tuple[float, Array]:
        value, gains_p, gains_m, _ = system.at(duals[: sizes[0]], duals[sizes[0] :])
        total = value + slack * (duals[: sizes[0]].sum() + 2 * duals[sizes[0] :].sum())
        return float(total), np.append(slack - gains_p, 2 * (slack - gains_m))

    def tell(_: Array) -> None:
        nonlocal rounds
        rounds += 1
        if game.margin.size >= LARGE:
            progress.report("towards the equilibrium", rounds, ROUNDS)

    solve: Any = minimize  # its annotations know no objective that returns its gradient
    options = {
        "maxiter": ROUNDS,
        "maxfun": 2 * ROUNDS,
        "maxcor": 30,
        "ftol": 1e-15,
        "gtol": slack / 100,
    }
    found = solve(
        loss,
        np.zeros(sum(sizes)),
        jac=True,
        method="L-BFGS-B",
        callback=tell,
        bounds=[(0, math.inf)] * sum(sizes),
        options=options,
    )
    _, gains_p, gains_m, joint = system.at(found.x[: sizes[0]], found.x[sizes[0] :])
    return Joint(joint, float(max(gains_p.max(), gains_m.max(), 0)), rounds)


class _Coarse:
    """One dual for every deviation."""

    def __init__(self, game: Game, base: Array) -> None:
        self.game, self.base = game, base

    def at(self, prompt: Array, model: Array) -> tuple[float, Array, Array, Array]:
        """Return the normaliser's logarithm, what deviations gain, and the joint distribution."""
        game, (p, m, _) = self.game, self.game.margin.shape
        flat = game.margin.reshape(p, m * m)
        rest = np.zeros(m * m)
        for block in game.blocks():
            rest += prompt[block] @ np.abs(flat[block])
        joint = self.base - rest.reshape(m, m)
        total = float(prompt.sum())
        for block in game.blocks():
            part = game.margin[block]
            # The king's terms in S_tij and the rebel's in S_tji cancel.
            beaten = game.gain * (model.astype(part.dtype) @ part)
            joint[block] += total * np.abs(part) - beaten[:, :, None] - beaten[:, None, :]
        value = _normalise(joint)
        faced = joint.sum(axis=0).ravel()
        gains_p, now = np.empty(p), 0.0
        gains_m = np.zeros(m)
        for block in game.blocks():
            size = np.abs(flat[block])
            gains_p[block] = size @ faced
            now += float((size * joint[block].reshape(size.shape)).sum())
            rebel = joint[block].sum(axis=1)
            gains_m += np.einsum("tbj,tj->b", game.margin[block], rebel)
        return value, gains_p - now, game.gain * gains_m, joint


class _Full:
    """A dual for every deviation from every recommended action."""

    def __init__(self, game: Game, base: Array) -> None:
        self.game, self.base = game, base
        p, m, _ = game.margin.shape
        self.size = np.abs(game.margin.reshape(p, m * m))

    def at(self, prompt: Array, model: Array) -> tuple[float, Array, Array, Array]:
        """Return the normaliser's logarithm, what deviations gain, and the joint distribution."""
        game, (p, m, _) = self.game, self.game.margin.shape
        a, c = prompt.reshape(p, p), model.reshape(m, m)  # [deviation, recommended]
        lead = a.sum(axis=0)[:, None] * self.size - a.T @ self.size
        king = c.sum(axis=0)[:, None] * game.margin - np.einsum("bi,tbj->tij", c, game.margin)
        joint = self.base + lead.reshape(p, m, m) + game.gain * (king + king.transpose(0, 2, 1))
        value = _normalise(joint)
        by_prompt = self.size @ joint.reshape(p, m * m).T
        by_model = np.einsum("tbj,tij->bi", game.margin, joint)
        gains_p = by_prompt - by_prompt.diagonal()
        gains_m = game.gain * (by_model - by_model.diagonal())
        return value, gains_p.ravel(), gains_m.ravel(), joint


def _normalise(logits: Array) -> float:
    """Turn logits into probabilities in place and return the normaliser's logarithm."""
    top = float(logits.max())
    logits -= top
    np.exp(logits, out=logits)
    total = float(logits.sum(dtype=np.float64))
    logits /= total
    return top + math.log(total)
