"""Ratings of models and prompts at an equilibrium of the game they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from equipoise.core import UsageError
from equipoise.methods.evaluation._equilibrium_game import Array, Game, merged
from equipoise.methods.evaluation._equilibrium_joint import nearest_equilibrium
from equipoise.methods.evaluation._equilibrium_path import follow
from equipoise.methods.evaluation._equilibrium_target import (
    affinity_kernels,
    max_affinity_entropy,
)

Selection = Literal["nash", "cce", "ce"]


@dataclass(frozen=True, slots=True)
class EquilibriumResult:
    r"""Ratings at an equilibrium; see `equilibrium_ratings`.

    Parameters
    ----------
    models, prompts
        Names.
    ratings
        Of the models, shape ``(models,)``: what a model would win against the equilibrium's rebel
        on its prompts, less what the king wins. At most 0, save for the solver's tolerance.
    prompt_ratings
        Of the prompts, shape ``(prompts,)``: how well a prompt tells king and rebel apart, less
        how well the equilibrium's prompts do.
    model_weights, prompt_weights
        How often the equilibrium's king and prompt play each; copies share equally.
    contributions
        What each prompt adds to each model's rating, shape ``(models, prompts)``; rows add up to
        ``ratings``.
    exploitability
        The most that any player gains by deviating: how far from an equilibrium this is.
    selection
        ``"nash"``, ``"cce"`` or ``"ce"``.
    different
        How many different prompts and models there are, copies counted once.
    """

    models: tuple[str, ...]
    prompts: tuple[str, ...]
    ratings: Array
    prompt_ratings: Array
    model_weights: Array
    prompt_weights: Array
    contributions: Array
    exploitability: float
    selection: Selection
    different: tuple[int, int]


def equilibrium_ratings(
    game: Game,
    *,
    selection: Selection = "nash",
    tolerance: float | None = None,
    variance: float = 1e-6,
) -> EquilibriumResult:
    r"""Rate models and prompts at an equilibrium that copies do not move.

    A prompt is paid for telling two models apart, the king for beating the rebel, the rebel for
    beating the king. With the expected payoffs :math:`g_i` of player :math:`i` and its strategy
    :math:`x_i`,

    .. math:: r_i(a) = g_i(a) - g_i \cdot x_i .

    Of many equilibria, the strategies of maximal affinity entropy :math:`m` decide: ``"nash"``
    follows the path of quantal responses from :math:`m` to a Nash equilibrium, ``"cce"`` takes the
    coarse correlated equilibrium nearest to :math:`m` in relative entropy, ``"ce"`` the correlated
    one. Actions with equal payoffs share the place of one. Exact copies of a prompt or a model are
    merged first, so that they change nothing at all; those that are equal but for noise are known
    by the kernel, see ``variance``.

    Parameters
    ----------
    game
        From `king_of_the_hill_game`, `win_rate_game` or `difference_game`.
    selection
        ``"nash"``, ``"cce"`` or ``"ce"``. The last two keep a second tensor of the game's size, and
        ``"ce"`` is for small games.
    tolerance
        Exploitability aimed for; by default 1e-6 for ``"nash"`` and 1e-4 for the others.
    variance
        :math:`v` of the kernel :math:`\exp(-D / 2v)`. Payoffs that differ by more than about
        :math:`3 \sqrt v` make actions different: at 1e-6 that is 0.003, so that copies judged by
        a noisy judge are not copies any more. Pool prompts into clusters then.

    Returns
    -------
    EquilibriumResult
        Look at its ``exploitability``: it is above the tolerance where no equilibrium was reached.

    Raises
    ------
    UsageError
        If a setting is out of range, or the game too large for ``"ce"``.

    References
    ----------
    "Re-evaluating Open-ended Evaluation of Large Language Models", ICLR 2025.

    Examples
    --------
    Three models that beat one another in a circle, and one that loses to all:

    >>> from equipoise.methods.evaluation import king_of_the_hill_game
    >>> w = [[0.5, 1, 0, 1], [0, 0.5, 1, 1], [1, 0, 0.5, 1], [0, 0, 0, 0.5]]
    >>> found = equilibrium_ratings(king_of_the_hill_game(w))
    >>> (found.ratings.round(3) + 0).tolist(), found.model_weights.round(3).tolist()
    ([0.0, 0.0, 0.0, -0.5], [0.333, 0.333, 0.333, 0.0])
    """
    if selection not in ("nash", "cce", "ce"):
        raise UsageError(
            f"equilibrium_ratings: selection must be 'nash', 'cce' or 'ce', got {selection!r}."
        )
    goal = (1e-6 if selection == "nash" else 1e-4) if tolerance is None else tolerance
    if not (0 < goal < 1 and variance > 0):
        raise UsageError(
            "equilibrium_ratings: tolerance must be between 0 and 1 and variance above 0, got"
            f" {goal} and {variance}."
        )
    single = merged(game)
    kernels = affinity_kernels(single.game, variance)
    # No action may be left without a chance: an equilibrium may need it.
    targets = [np.maximum(max_affinity_entropy(each), 1e-300) for each in kernels]
    if selection == "nash":
        point = follow(single.game, targets[0], targets[1], goal)
        found = _at_nash(single.game, point.x, point.y)
        exploitability = point.exploitability
    else:
        near = nearest_equilibrium(
            single.game, targets[0], targets[1], slack=goal, coarse=selection == "cce"
        )
        found = _at_joint(single.game, near.joint)
        exploitability = near.exploitability
    prompt, model = single.prompt, single.model
    share = 1 / np.bincount(prompt)[prompt]
    return EquilibriumResult(
        game.models,
        game.prompts,
        found.contributions.sum(axis=1)[model],
        found.prompt_ratings[prompt],
        found.model_weights[model] / np.bincount(model)[model],
        found.prompt_weights[prompt] * share,
        found.contributions[model][:, prompt] * share,
        exploitability,
        selection,
        (len(single.game.prompts), len(single.game.models)),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """Ratings of a game without copies."""

    prompt_ratings: Array
    model_weights: Array
    prompt_weights: Array
    contributions: Array


def _at_nash(game: Game, x: Array, y: Array) -> _Found:
    ahead, apart = game.against(y)
    payoff = apart @ y
    # On every prompt king and rebel win alike, so what the king has is zero.
    return _Found(payoff - x @ payoff, y, x, game.gain * (x[:, None] * ahead).T)


def _at_joint(game: Game, joint: Array) -> _Found:
    p, m, _ = game.margin.shape
    faced = joint.sum(axis=0, dtype=np.float64)
    payoff, contributions, now = np.empty(p), np.empty((m, p)), 0.0
    for block in game.blocks():
        part, chance = game.margin[block], joint[block]
        payoff[block] = (np.abs(part) * faced).sum(axis=(1, 2))
        now += float((np.abs(part) * chance).sum())
        rebel = chance.sum(axis=1, dtype=np.float64)
        contributions[:, block] = game.gain * np.einsum("tij,tj->it", part, rebel)
    prompt = joint.sum(axis=(1, 2), dtype=np.float64)
    return _Found(payoff - now, faced.sum(axis=1), prompt, contributions)
