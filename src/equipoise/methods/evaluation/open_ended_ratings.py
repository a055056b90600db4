r"""Ratings at an equilibrium: they do not move when somebody adds copies of a model or a prompt.

An average over prompts rates models by what prompts happen to be asked. Here evaluation is a game:
a prompt is chosen to tell two models apart, and models to beat one another; what is rated is how
far a model falls short at the game's equilibrium. The game, its selection and the symbols are the
paper's, see the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    UsageError,
    between,
    one_of,
)
from equipoise.kit import progress
from equipoise.kit.statistics.comparisons import Comparisons
from equipoise.kit.statistics.single import mean
from equipoise.methods.evaluation._equilibrium import (
    EquilibriumResult,
    Selection,
    equilibrium_ratings,
)
from equipoise.methods.evaluation._equilibrium_draws import independent, resampled
from equipoise.methods.evaluation._equilibrium_game import (
    Actions,
    Array,
    Game,
    Missing,
    difference_game,
    game_of_tables,
    king_of_the_hill_game,
    tables,
    win_rate_game,
)
from equipoise.methods.evaluation._equilibrium_target import (
    affinity_entropy,
    max_affinity_entropy,
)
from equipoise.methods.evaluation._rated_arms import compared, ladder

__all__ = [
    "AverageRatings",
    "EquilibriumRatings",
    "EquilibriumResult",
    "affinity_entropy",
    "difference_game",
    "equilibrium_ratings",
    "king_of_the_hill_game",
    "max_affinity_entropy",
    "win_rate_game",
]

KINDS = np.array([[0.0, 1, 2, 3], [1, 3, 2, 0], [0, 3, 2, 1], [1, 2, 3, 0]])
"""Scores of four models on four kinds of prompts, for simulation."""

SHARES = (0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class EquilibriumRatings(Measure):
    r"""Rate models by how far they fall short at an equilibrium of the evaluation game.

    The plain functions are `king_of_the_hill_game` and `equilibrium_ratings`. A rating is at most
    0: by how much more often the model would lose than the equilibrium's king, against its rebel
    and on its prompts. Several models may stand at the frontier, with a rating of 0.

    The interval is a percentile bootstrap over prompts, within clusters where those are the
    actions, and whole clusters where prompts are. It says what other prompts of the same kinds
    would have given. Since copies do not count, a resample of prompts is a game on some 63 % of
    them: a kind of prompt that was never asked is beyond it, and where every prompt is a kind of
    its own, ratings go on to change as prompts are added. Pool prompts into clusters then.

    Parameters
    ----------
    selection
        ``"nash"`` follows quantal responses to a Nash equilibrium, ``"cce"`` takes the coarse
        correlated equilibrium nearest to the strategies of maximal affinity entropy.
    actions
        ``"prompts"``: the prompt player chooses single prompts. ``"clusters"``: it chooses among
        clusters whose prompts are pooled, which takes the noise out.
    score
        Of arms: the score that says which did better on a unit; by default the first.
    smoothing
        Ties that every pair is imagined to have had on every prompt. Few noisy comparisons look
        more decisive than they are; this takes it back.
    missing
        What a pair is that never met on a prompt: ``"refuse"``, or ``"even"`` for a tie.
    variance
        :math:`v` of the affinity kernel: payoffs further apart than about :math:`3 \sqrt v` are
        different actions.
    draws
        Resamples; 0 gives no interval. A draw costs about a third of a second for 50 models on
        500 prompts.
    level
        Coverage aimed for.

    References
    ----------
    "Re-evaluating Open-ended Evaluation of Large Language Models", ICLR 2025.

    Examples
    --------
    Two prompts of a kind or two hundred, the rating is the same:

    >>> met = Comparisons.of(["a", "a", "a"], ["b", "b", "b"], [1, 1, 0], prompt=["p", "q", "r"])
    >>> {m: round(e.value, 3) + 0 for m, e in EquilibriumRatings(draws=0).rate(met, Rng(0)).items()}
    {'a': 0.0, 'b': 0.0}
    >>> AverageRatings().rate(met, Rng(0))["a"].value.__round__(3)
    0.667
    """

    scope = "arms"

    selection: str = one_of("nash", "cce", default="nash")
    actions: str = one_of("prompts", "clusters", default="prompts")
    score: str | None = None
    smoothing: float = between(0.0, 1000.0, default=0.0)
    missing: str = one_of("refuse", "even", default="refuse")
    variance: float = between(1e-12, 1.0, default=1e-6)
    draws: int = between(0, 100_000, default=100)
    level: float = between(0.5, 0.9999999, default=0.95)

    def check(self) -> None:
        """Refuse too few draws for an interval."""
        if 0 < self.draws < 50:
            raise UsageError(
                "EquilibriumRatings: draws must be at least 50, or 0 for no interval, got"
                f" {self.draws}."
            )

    @classmethod
    def tiny(cls) -> EquilibriumRatings:
        """Return few resamples."""
        return cls(draws=50)

    def simulate(self, rng: Rng) -> tuple[Mapping[str, Outcomes], Mapping[str, float]]:
        """Return 48 units of four kinds, and the ratings where every kind is known."""
        generator = rng.numpy()
        noisy = self.actions == "clusters"
        kind = np.repeat(np.arange(4), 40) if noisy else generator.choice(4, 48, p=SHARES)
        right = KINDS[kind]
        if noisy:
            right = (generator.random(right.shape) < 0.2 + 0.2 * right).astype(float)
            p = 0.2 + 0.2 * KINDS
            ahead = p[:, :, None] * (1 - p[:, None, :])
            margin = ahead - ahead.transpose(0, 2, 1)
        else:
            margin = np.sign(KINDS[:, :, None] - KINDS[:, None, :])
        names = tuple("abcd")
        truth = _at_most_zero(self._solve(Game(margin, 0.5, names, names)))
        arms = {
            arm: Outcomes.of(cluster=kind if noisy else None, **{self.score or "score": column})
            for arm, column in zip(names, right.T, strict=True)
        }
        return arms, dict(zip(names, map(float, truth), strict=True))

    def measure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Mapping[str, Estimate]:
        """Return each arm's rating."""
        return self.rate(compared(type(self).__name__, outcomes, self.score), rng)

    def rate(self, comparisons: Comparisons, rng: Rng) -> Mapping[str, Estimate]:
        """Return each model's rating with its interval, by name."""
        found = self.solve(comparisons)
        draws = self._draws(comparisons, rng) if self.draws else None
        n = len(comparisons.prompts) or len(comparisons)
        note = self._note(found)
        table = {}
        ratings = _at_most_zero(found)
        for place, model in enumerate(found.models):
            value = float(ratings[place])
            low = high = float("nan")
            if draws is not None:
                ends = np.quantile(draws[:, place], [(1 - self.level) / 2, (1 + self.level) / 2])
                # A resample has fewer prompts, so its ratings may all lie on one side.
                low = min(float(ends[0]), value) - found.exploitability
                high = min(max(float(ends[1]), value) + found.exploitability, 0.0)
            table[model] = Estimate(
                value, low, high, level=self.level, n=n, method="percentile over prompts",
                note=note,
                details={
                    "weight": float(found.model_weights[place]),
                    "exploitability": found.exploitability,
                },
            )  # fmt: skip
        return table

    def solve(self, comparisons: Comparisons) -> EquilibriumResult:
        """Return the equilibrium's ratings of models and prompts, and what each prompt added."""
        return self._solve(
            king_of_the_hill_game(
                comparisons,
                actions=cast(Actions, self.actions),
                smoothing=self.smoothing,
                missing=cast(Missing, self.missing),
            )
        )

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the models from best to worst, with their intervals."""
        return ladder(
            self.measure(outcomes, rng),
            "Ratings at the equilibrium",
            "won more than the king",
            "0 is the frontier, which several models may share; the others lose more often by so"
            " much on the prompts that tell models apart best.",
        )

    def _solve(self, game: Game, tolerance: float | None = None) -> EquilibriumResult:
        return equilibrium_ratings(
            game,
            selection=cast(Selection, self.selection),
            tolerance=tolerance,
            variance=self.variance,
        )

    def _note(self, found: EquilibriumResult) -> str:
        prompts, models = found.different
        said = []
        copies = len(found.prompts) - prompts, len(found.models) - models
        if copies[0]:
            said.append(f"{copies[0]} of {len(found.prompts)} prompts are copies")
        if copies[1]:
            said.append(f"{copies[1]} of {len(found.models)} models are copies")
        if models == 1:
            said.append("no two models differ on any prompt")
        goal = 1e-6 if self.selection == "nash" else 1e-4
        if found.exploitability > 2 * goal:
            said.append(
                f"no equilibrium was reached: a player still gains {found.exploitability:.2g}"
            )
        return "; ".join(said)

    def _draws(self, comparisons: Comparisons, rng: Rng) -> Array:
        generator = rng.child("draws").numpy()
        actions = cast(Actions, self.actions)
        row, stratum = independent(comparisons, actions)
        out = np.empty((self.draws, len(comparisons.models)))
        for i in range(self.draws):
            times = resampled(row, stratum, generator)
            # What a resample leaves out is no fault of the data, so nothing is refused here.
            net, games, prompts, models = tables(comparisons, actions, times)
            game = game_of_tables(
                net, games, prompts, models, smoothing=self.smoothing, missing="even"
            )
            with progress.listening(lambda *_: None):
                out[i] = _at_most_zero(self._solve(game, 1e-4))
            progress.report("resampling prompts", i + 1, self.draws)
        return out


def _at_most_zero(found: EquilibriumResult) -> Array:
    """Return the ratings, 0 where they are so but for what the solver left."""
    near = np.abs(found.ratings) <= found.exploitability
    return np.where(near, 0.0, np.minimum(found.ratings, 0.0))


@dataclass(frozen=True)
class AverageRatings(Measure):
    r"""Rate models by how often they win, averaged over opponents and prompts.

    .. math:: r_i = \frac1P \sum_t \frac{1}{M - 1} \sum_{j \neq i} w_{tij}.

    Every prompt counts the same, and so does every copy of one: this is what
    `equilibrium_ratings` is compared with. The interval is Student's over prompts, or over whole
    clusters.

    Parameters
    ----------
    score
        Of arms: the score that says which did better on a unit; by default the first.
    level
        Coverage aimed for.

    Examples
    --------
    >>> met = Comparisons.of(["a", "a"], ["b", "b"], [1, 0.5], prompt=["p", "q"])
    >>> AverageRatings().rate(met, Rng(0))["a"].value
    0.75
    """

    scope = "arms"

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Mapping[str, Outcomes], Mapping[str, float]]:
        """Return 60 units of four kinds, and how often each arm wins on average."""
        generator = rng.numpy()
        scores = KINDS[generator.choice(4, 60, p=SHARES)]
        won = (np.sign(KINDS[:, :, None] - KINDS[:, None, :]).sum(axis=2) / 3 + 1) / 2
        names = tuple("abcd")
        arms = {
            arm: Outcomes.of(**{self.score or "score": column})
            for arm, column in zip(names, scores.T, strict=True)
        }
        return arms, dict(zip(names, map(float, SHARES @ won), strict=True))

    def measure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Mapping[str, Estimate]:
        """Return each arm's average."""
        return self.rate(compared(type(self).__name__, outcomes, self.score), rng)

    def rate(self, comparisons: Comparisons, rng: Rng) -> Mapping[str, Estimate]:
        """Return how often each model wins, with its interval, by name."""
        models, m = comparisons.models, len(comparisons.models)
        prompt = np.zeros(len(comparisons), np.int64)
        if comparisons.prompt is not None:
            prompt = comparisons.prompt
        # Opponents count the same on a prompt, however often they were met.
        pair = np.concatenate(
            [comparisons.first * m + comparisons.second, comparisons.second * m + comparisons.first]
        )
        at = np.concatenate([prompt, prompt]) * (m * m) + pair
        cell, place = np.unique(at, return_inverse=True)
        won = np.bincount(place, np.concatenate([comparisons.score, 1 - comparisons.score]))
        rate = won / np.bincount(place)
        codes = None if comparisons.cluster is None else np.zeros(prompt.max() + 1, np.int64)
        if codes is not None and comparisons.cluster is not None:
            codes[prompt] = comparisons.cluster
        found = {}
        for i, model in enumerate(models):
            mine = cell // m % m == i
            if not mine.any():
                raise UsageError(
                    f"AverageRatings: {model} is in no comparison; leave out what was not compared."
                )
            on, codes_of = np.unique(cell[mine] // (m * m), return_inverse=True)
            each = np.bincount(codes_of, rate[mine]) / np.bincount(codes_of)
            found[model] = self._mean(each, None if codes is None else codes[on])
        return found

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the models from best to worst, with their intervals."""
        return ladder(
            self.measure(outcomes, rng),
            "Average ratings",
            "share of wins",
            "Averages over opponents and prompts; copies of a prompt move them.",
        )

    def _mean(self, each: Array, clusters: Array | None) -> Estimate:
        n = len(each) if clusters is None else len(np.unique(clusters))
        if n < 2:
            return Estimate(
                float(each.mean()), level=self.level, n=len(each), method="mean",
                note="no interval from one prompt or one cluster",
            )  # fmt: skip
        return mean(each, clusters=clusters, level=self.level)
