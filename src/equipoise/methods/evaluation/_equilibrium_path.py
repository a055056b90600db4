r"""Selection of a Nash equilibrium by the path of quantal responses.

At temperature :math:`T = 1 / \beta` everybody answers the others by

.. math:: x_t \propto m_t e^{\beta g_t}, \qquad y_i \propto m_i e^{\beta g_i},

where :math:`g` are expected payoffs and :math:`m` the strategies of maximal affinity entropy. From
:math:`T = \infty`, where the answer is :math:`m`, one path leads to a Nash equilibrium as
:math:`T \to 0`: the limiting logit equilibrium. King and rebel play a symmetric game from one
start, so they share :math:`y` all along; the prompt's answer to :math:`y` is explicit; what is
left are as many unknowns as there are models. The path is followed by a predictor and Newton's
method on an arc of it, round its bends, where lowering the temperature step by step would jump.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from equipoise.kit import progress
from equipoise.methods.evaluation._equilibrium_game import Array, Game
from equipoise.methods.evaluation._equilibrium_target import softmax

START = math.log(0.5)
"""Logarithm of the first beta: the answers to payoffs in [0, 1] are unique there."""

COLDEST = math.log(1e9)
"""Where the path ends at the latest."""

STEPS = 2000
"""Steps along the path, at most."""

ASLEEP = 80.0
"""Prompts whose chance is below this, as a negative logarithm, rest."""

LARGE = 2**18
"""Games of fewer numbers are not made smaller on the way, and soon done."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where the path has come to: strategies of the prompt and of king and rebel."""

    x: Array
    y: Array
    beta: float
    exploitability: float
    steps: int
    bends: int


@dataclass(frozen=True, slots=True)
class _State:
    """The residual at a point, its derivatives, and what the players expect."""

    residual: Array
    jacobian: Array
    slope: Array  # along log beta
    log_x: Array
    x: Array
    y: Array
    prompt_payoff: Array
    king_payoff: Array

    @property
    def exploitability(self) -> float:
        return max(
            float(self.prompt_payoff.max() - self.x @ self.prompt_payoff),
            float(self.king_payoff.max() - self.y @ self.king_payoff),
        )


class _Answers:
    """The quantal responses of a game, with prompts that are never chosen any more left out."""

    def __init__(self, game: Game, prompt_target: Array, model_target: Array) -> None:
        self.whole, self.log_p, self.log_m = game, np.log(prompt_target), np.log(model_target)
        self.awake = np.ones(len(prompt_target), bool)
        self.part = game

    def near(self, u: Array, level: float) -> _State:
        """Return the state at logits ``u`` of the models and log beta ``level``."""
        return _state(self.part, u, level, self.log_p[self.awake], self.log_m)

    def at(self, u: Array, level: float) -> _State:
        """Return the same with every prompt."""
        return _state(self.whole, u, level, self.log_p, self.log_m)

    def overslept(self, state: _State) -> bool:
        """Say whether a prompt that was left out has a chance by now."""
        return bool((state.log_x[~self.awake] > math.log(1e-14)).any())

    def rest(self, state: _State) -> None:
        """Leave out what ``state``, of the whole game, gives no chance."""
        if self.whole.margin.size < LARGE:
            return
        awake = state.log_x > -ASLEEP
        if (awake & ~self.awake).any() or awake.sum() < 0.7 * self.awake.sum():
            self.awake = awake
            self.part = self.whole.restrict(awake)


def _state(game: Game, u: Array, level: float, log_p: Array, log_m: Array) -> _State:
    beta, gain = math.exp(level), game.gain
    y = softmax(u)
    ahead, apart = game.against(y)
    payoff = apart @ y
    log_x = log_p + beta * payoff
    top = log_x.max()
    log_x = log_x - top - math.log(float(np.exp(log_x - top).sum()))
    x = np.exp(log_x)
    mean_ahead = x @ ahead
    king = gain * mean_ahead
    # dx_t / dy = 2 beta x_t (|S_t| y - its mean); y is a softmax of u.
    weighted = x[:, None] * ahead
    pull = weighted.T @ apart - np.outer(mean_ahead, x @ apart)
    turn = beta * gain * (game.mixed(x) + 2 * beta * pull) * y
    jacobian = np.outer(turn.sum(axis=1), y) - turn
    jacobian[np.diag_indices(len(y))] += 1
    sway = weighted.T @ payoff - mean_ahead * (x @ payoff)
    return _State(
        u - log_m - beta * king,
        jacobian,
        -beta * gain * (mean_ahead + beta * sway),
        log_x,
        x,
        y,
        payoff,
        king,
    )


def follow(game: Game, prompt_target: Array, model_target: Array, tolerance: float) -> Point:
    r"""Follow the path from the target until nobody gains more than ``tolerance`` by deviating.

    Parameters
    ----------
    game
        Best without copies.
    prompt_target, model_target
        Strategies the path starts from, without zeros.
    tolerance
        Exploitability to stop at.

    Returns
    -------
    Point
        Its exploitability is above the tolerance where the path could not be followed further.
    """
    answers = _Answers(game, prompt_target, model_target)
    top = max(float(np.abs(game.margin[block]).max()) for block in game.blocks())
    u, level = np.log(model_target), START - math.log(max(top, 1.0))
    for _ in range(100):
        here = answers.at(u, level)
        move = np.linalg.solve(here.jacobian, -here.residual)
        u = u + move
        if float((here.y * np.abs(move)).max()) < 1e-12:
            break
    here = answers.at(u, level)
    tangent = _tangent(here, np.append(np.zeros(len(u)), 1.0))
    place = _Place(u, level, here, tangent, _side(here, tangent), 0.3)
    steps = bends = 0
    while place.state.exploitability > tolerance and place.level < COLDEST and steps < STEPS:
        onward = _onward(answers, place)
        if onward is None:
            break
        steps += 1
        bends += bool(onward.tangent[-1] * place.tangent[-1] < 0)
        place = onward
        answers.rest(place.state)
        if game.margin.size >= LARGE:
            gain = place.state.exploitability
            done = round(100 * (place.level - START) / (COLDEST - START))
            progress.report(f"towards the equilibrium, {gain:.1g} to gain", max(done, 0), 100)
    here = place.state
    return Point(here.x, here.y, math.exp(place.level), here.exploitability, steps, bends)


@dataclass(frozen=True, slots=True)
class _Place:
    """A point of the path, which way it goes on, and how long a step to try."""

    u: Array
    level: float
    state: _State
    tangent: Array
    side: float
    length: float


def _onward(answers: _Answers, place: _Place) -> _Place | None:
    """Return the next point, or None where no step is short enough."""
    u, level, here, tangent = place.u, place.level, place.state, place.tangent
    along, up = tangent[:-1], float(tangent[-1])
    rail = np.append(here.y * along, up)
    length = place.length
    while length > 1e-9:
        # Off the bends logits grow with beta, not with its logarithm.
        reach = math.expm1(length * up) / up if abs(up) > 0.1 else length
        found = _corrected(answers, u + reach * along, level + length * up, rail)
        if found is not None:
            v, to, drift, rounds = found
            there = answers.at(v, to)
            onward = _tangent(there, rail)
            side = _side(there, onward)
            turn = float((np.sqrt(there.y * here.y) * along) @ onward[:-1] + up * onward[-1])
            # A path keeps its side of the determinant; only where two paths cross does it not.
            lost = side != place.side or turn < 0.8 or drift > 0.3
            if answers.overslept(there):
                answers.rest(there)
            elif not lost or (length < 1e-6 and drift < 0.3):
                if rounds <= 3 and turn > 0.95:
                    length = min(1.7 * length, 1.0)
                elif rounds >= 6:
                    length /= 1.5
                return _Place(v, to, there, onward, side, length)
        length /= 2
    return None


def _corrected(
    answers: _Answers, u: Array, level: float, rail: Array
) -> tuple[Array, float, float, int] | None:
    """Return the path's point across ``rail`` from here, how far it was, and Newton's rounds."""
    start_u, start_level, last = u, level, math.inf
    first: _State | None = None
    for rounds in range(9):
        state = answers.near(u, level)
        first = first or state
        off = rail[:-1] @ (u - start_u) + rail[-1] * (level - start_level)
        move = _solve(_bordered(state, rail), -np.append(state.residual, off))
        if move is None:
            return None
        size = max(float((state.y * np.abs(move[:-1])).max()), abs(float(move[-1])))
        if size < 1e-9:
            drift = np.abs(state.x - first.x).sum(), np.abs(state.y - first.y).sum()
            return u, level, float(max(drift)), rounds
        if rounds > 2 and size > 0.9 * last:
            return None
        u, level, last = u + move[:-1], level + float(move[-1]), size
        if abs(level - start_level) > 2:
            return None
    return None


def _tangent(state: _State, rail: Array) -> Array:
    """Return the direction of the path, of length 1 where models weigh as they are played."""
    end = np.zeros(len(rail))
    end[-1] = 1.0
    found = np.linalg.solve(_bordered(state, rail), end)
    return np.asarray(found / math.sqrt(state.y @ found[:-1] ** 2 + found[-1] ** 2))


def _side(state: _State, tangent: Array) -> float:
    rail = np.append(state.y * tangent[:-1], tangent[-1])
    return float(np.linalg.slogdet(_bordered(state, rail))[0])


def _bordered(state: _State, rail: Array) -> Array:
    m = len(state.y)
    out = np.empty((m + 1, m + 1))
    out[:m, :m], out[:m, m], out[m] = state.jacobian, state.slope, rail
    return out


def _solve(matrix: Array, right: Array) -> Array | None:
    try:
        found = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None
