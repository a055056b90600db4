r"""Rules for rating models, put on trial: what copies of prompts do to them, and what they reward.

Here the thing on trial is the rule itself. Models and prompts have skills, so that who would beat
whom is known; a task adds copies, or lets models and prompts in that the rule rates highest, and
scores what became of the ratings or of the skills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    between,
    one_of,
)
from equipoise.kit.statistics.ratings import bradley_terry
from equipoise.methods.evaluation._equilibrium import equilibrium_ratings
from equipoise.methods.evaluation._equilibrium_game import king_of_the_hill_game

Array = npt.NDArray[np.float64]

TIES = 4
"""Decimals to which ratings, divided by their range, are compared when they are ranked."""


@dataclass(frozen=True, slots=True)
class Rated:
    """Ratings of the models, and how much each prompt and each model counts in a rating."""

    models: Array
    prompt_weights: Array
    model_weights: Array


@runtime_checkable
class RatesGames(Protocol):
    """Rates models by win rates ``w[prompt, i, j]``."""

    def rate(self, w: Array) -> Rated: ...


@dataclass(frozen=True)
class _Average:
    def rate(self, w: Array) -> Rated:
        p, m, _ = w.shape
        won = (w.mean(axis=0).sum(axis=1) - 0.5) / (m - 1)
        return Rated(won, np.full(p, 1 / p), np.full(m, 1 / m))


@dataclass(frozen=True)
class _BradleyTerry:
    def rate(self, w: Array) -> Rated:
        table = w.sum(axis=0)
        np.fill_diagonal(table, 0)
        uniform = _Average().rate(w)
        scores = bradley_terry(table).scores
        return Rated(scores, uniform.prompt_weights, uniform.model_weights)


@dataclass(frozen=True)
class _Equilibrium:
    selection: Any
    variance: float

    def rate(self, w: Array) -> Rated:
        game = king_of_the_hill_game(w)
        found = equilibrium_ratings(game, selection=self.selection, variance=self.variance)
        return Rated(found.ratings, found.prompt_weights, found.model_weights)


@dataclass(frozen=True)
class RatingRule(Subject):
    """A way to rate models by who beats whom.

    Parameters
    ----------
    by
        ``"average"`` of win rates over prompts and opponents; ``"bradley_terry"``, which ranks by
        the average as well where all have met equally often, as Elo does; ``"nash"`` or ``"cce"``,
        ratings at an equilibrium.
    variance
        Of equilibria: payoffs further apart than about three of its roots are different actions.

    Examples
    --------
    >>> w = np.array([[[0.5, 0.8], [0.2, 0.5]]])
    >>> RatingRule(by="average").load(Rng(0)).rate(w).models.round(3).tolist()
    [0.8, 0.2]
    >>> (RatingRule(by="nash").load(Rng(0)).rate(w).models.round(3) + 0).tolist()
    [0.0, -0.3]
    """

    provides = frozenset({RatesGames})

    by: str = one_of("average", "bradley_terry", "nash", "cce", default="average")
    variance: float = between(1e-12, 1.0, default=1e-6)

    def load(self, rng: Rng) -> RatesGames:
        """Return the rule."""
        if self.by == "average":
            return _Average()
        if self.by == "bradley_terry":
            return _BradleyTerry()
        return _Equilibrium(self.by, self.variance)


def _draws(count: int, rng: Rng) -> list[Unit]:
    """Return one unit a draw, with its seed."""
    seeds = [rng.child("draw", i).seed_for_request() for i in range(count)]
    return [Unit(f"draw-{i:06d}", content={"seed": seed}) for i, seed in enumerate(seeds)]


def _win_rates(skills: Array, prompts: Array, sharpness: float) -> Array:
    """Return ``w[t, i, j]`` of models with ``skills`` on prompts that ask for some of them."""
    able = prompts @ skills.T
    half = np.tanh(sharpness / 2 * (able[:, :, None] - able[:, None, :])) / 2
    return np.asarray(0.5 + half)


@dataclass(frozen=True)
class RedundantPrompts(Task):
    r"""Whether a rule rates as before once copies of the prompts of one skill are added.

    A unit is one draw. Models have skills, drawn from a Dirichlet law; prompts ask for a mix of
    skills, mostly for one:
    :math:`w_{tij} = \sigma(\mathrm{sharpness} \cdot p_t \cdot (\theta_i - \theta_j))`.
    The rule rates the models with and without the copies. ``kendall`` is Kendall's tau-b of the
    two rankings, 0 where either ranks nobody; ``shift`` the largest change of a rating, divided by
    the range of those without copies.

    Parameters
    ----------
    models, prompts, skills
        How many; prompts before copies.
    copies
        How many copies are added, of the prompts that ask most for one skill drawn at random.
    noise
        Standard deviation of what is added to the log odds of each copy's win rates; 0 makes exact
        copies.
    sharpness
        How decisive skills are.
    draws
        How many units.

    Examples
    --------
    >>> task = RedundantPrompts(copies=50, draws=1)
    >>> average = RatingRule(by="average").load(Rng(0))
    >>> task.perform(average, list(task.units(Rng(0))), Rng(0))[0].scores["shift"] > 0.05
    True
    """

    needs = frozenset({RatesGames})
    scores = (
        ScoreSpec("kendall", low=-1.0, high=1.0),
        ScoreSpec("shift", higher_is_better=False, low=0.0),
    )

    models: int = between(2, 500, default=8)
    prompts: int = between(2, 5000, default=40)
    skills: int = between(2, 50, default=4)
    copies: int = between(0, 10_000, default=50)
    noise: float = between(0.0, 10.0, default=0.0)
    sharpness: float = between(0.01, 100.0, default=4.0)
    draws: int = between(1, 1_000_000, default=100)

    @classmethod
    def tiny(cls) -> RedundantPrompts:
        """Return few draws."""
        return cls(draws=12)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a draw, with its seed."""
        return _draws(self.draws, rng)

    def perform(self, subject: RatesGames, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Rate with and without copies; every arm sees the same draws."""
        return [self._play(subject, unit) for unit in units]

    def oracle(self) -> Any:
        """Return the average over prompts that differ."""
        return _AverageOfDifferent()

    def constant(self) -> Any:
        """Return a rule that rates all alike."""
        return _Alike()

    def _play(self, subject: RatesGames, unit: Unit) -> Outcome:
        generator = np.random.default_rng(unit.content["seed"])
        skills = generator.dirichlet(np.ones(self.skills), self.models)
        asked = generator.dirichlet(np.full(self.skills, 0.2), self.prompts)
        w = _win_rates(skills, asked, self.sharpness)
        chosen = generator.integers(self.skills)
        pool = np.flatnonzero(asked.argmax(axis=1) == chosen)
        if not len(pool):
            pool = np.array([asked[:, chosen].argmax()])
        copies = w[generator.choice(pool, self.copies)]
        if self.noise:
            off = np.triu(generator.normal(0, self.noise, copies.shape), 1)
            odds = np.log(copies / (1 - copies)) + off - off.transpose(0, 2, 1)
            copies = 1 / (1 + np.exp(-odds))
        before = subject.rate(w).models
        after = subject.rate(np.concatenate([w, copies])).models
        spread = float(np.ptp(before)) or 1.0
        shift = float(np.abs(after - before).max()) / spread
        scores = {"kendall": _kendall(before / spread, after / spread), "shift": shift}
        return Outcome(unit.id, scores=scores, output=[float(each) for each in after])


def _kendall(a: Array, b: Array) -> float:
    from scipy.stats import kendalltau

    found = float(kendalltau(a.round(TIES), b.round(TIES)).statistic)
    return found if np.isfinite(found) else 0.0


@dataclass(frozen=True)
class RatedInvention(Task):
    r"""Round by round the prompt and the model that a rule rates highest are let in.

    A unit is one draw. A pool starts with a prompt and a model for every skill. Every round some
    prompts and models are drawn; of the prompts that one is added which tells the models in the
    pool apart best, of the models that one which beats them most often, both as the rule weighs
    prompts and models: equally for averages, by how often they are played at an equilibrium.
    Developers who chase ratings do the same. Scores are entropies of skills; :math:`\log` of their
    number is the most, and a rule that rewards what is already common drives them down:
    ``prompt_entropy`` of the skills that the last pool's prompts ask for, as the rule weighs them,
    ``model_entropy`` of those its models have; ``added_prompt_entropy`` and
    ``added_model_entropy`` of what was added, all alike.

    Parameters
    ----------
    skills
        How many.
    rounds
        How many prompts, and models, are added.
    candidates
        How many of each are drawn a round.
    sharpness
        How decisive skills are.
    draws
        How many units.

    Examples
    --------
    >>> task = RatedInvention(rounds=3, draws=1)
    >>> average = RatingRule(by="average").load(Rng(0))
    >>> sorted(task.perform(average, list(task.units(Rng(0))), Rng(0))[0].scores)
    ['added_model_entropy', 'added_prompt_entropy', 'model_entropy', 'prompt_entropy']
    """

    needs = frozenset({RatesGames})
    scores = (
        ScoreSpec("prompt_entropy", low=0.0, unit="nats"),
        ScoreSpec("model_entropy", low=0.0, unit="nats"),
        ScoreSpec("added_prompt_entropy", low=0.0, unit="nats"),
        ScoreSpec("added_model_entropy", low=0.0, unit="nats"),
    )

    skills: int = between(2, 50, default=4)
    rounds: int = between(1, 1000, default=50)
    candidates: int = between(2, 1000, default=16)
    sharpness: float = between(0.01, 100.0, default=4.0)
    draws: int = between(1, 1_000_000, default=30)

    @classmethod
    def tiny(cls) -> RatedInvention:
        """Return few short draws."""
        return cls(rounds=12, draws=12)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a draw, with its seed."""
        return _draws(self.draws, rng)

    def perform(self, subject: RatesGames, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Play the rounds; every arm is offered the same candidates."""
        return [self._play(subject, unit) for unit in units]

    def oracle(self) -> Any:
        """Return a rule that weighs prompts and models by what they add."""
        return _Equilibrium("nash", 1e-6)

    def constant(self) -> Any:
        """Return a rule that rates, and weighs, all alike."""
        return _Alike()

    def _play(self, subject: RatesGames, unit: Unit) -> Outcome:
        generator = np.random.default_rng(unit.content["seed"])
        k = self.skills
        skills, asked = 0.5 * np.eye(k) + 0.5 / k, np.eye(k)
        for _ in range(self.rounds):
            prompts = generator.dirichlet(np.full(k, 0.2), self.candidates)
            models = generator.dirichlet(np.ones(k), self.candidates)
            now = subject.rate(_win_rates(skills, asked, self.sharpness))
            x, y = now.prompt_weights, now.model_weights
            apart = np.abs(2 * _win_rates(skills, prompts, self.sharpness) - 1)
            best_prompt = int(np.argmax(np.einsum("tij,i,j->t", apart, y, y)))
            able, theirs = asked @ models.T, asked @ skills.T
            won = np.tanh(self.sharpness / 2 * (able[:, :, None] - theirs[:, None, :]))
            best_model = int(np.argmax(np.einsum("tcj,t,j->c", won, x, y)))
            asked = np.vstack([asked, prompts[best_prompt]])
            skills = np.vstack([skills, models[best_model]])
        last = subject.rate(_win_rates(skills, asked, self.sharpness))
        scores = {
            "prompt_entropy": _entropy(last.prompt_weights @ asked),
            "model_entropy": _entropy(last.model_weights @ skills),
            "added_prompt_entropy": _entropy(asked[k:].mean(axis=0)),
            "added_model_entropy": _entropy(skills[k:].mean(axis=0)),
        }
        return Outcome(unit.id, scores=scores)


def _entropy(share: Array) -> float:
    return float(-(share * np.log(np.maximum(share, 1e-300))).sum())


@dataclass(frozen=True)
class _Alike:
    def rate(self, w: Array) -> Rated:
        uniform = _Average().rate(w)
        return Rated(np.zeros(w.shape[1]), uniform.prompt_weights, uniform.model_weights)


@dataclass(frozen=True)
class _AverageOfDifferent:
    def rate(self, w: Array) -> Rated:
        return _Average().rate(np.unique(w, axis=0))
