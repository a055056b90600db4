"""Measures of scorers of responses: length in the rewards, accuracy by section, win rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    ScoreSpec,
    Series,
    UsageError,
    between,
    one_of,
)
from equipoise.kit.statistics import resampling
from equipoise.kit.statistics.columns import (
    clusters_of,
    complete,
    enclosing,
    first_score,
    noted,
    rows_of,
)
from equipoise.methods.alignment._pair_statistics import (
    REWARD_BENCH,
    characteristic_correlation,
    section_weights,
    sectioned_accuracy,
    spearman,
    weighted_accuracy,
)
from equipoise.methods.alignment._win_rates import (
    gameability,
    length_controlled_win_rate,
    length_model,
)

__all__ = [
    "CharacteristicCorrelation",
    "Gameability",
    "LengthControlledWinRate",
    "SectionedPairAccuracy",
    "characteristic_correlation",
    "gameability",
    "known_subsets",
    "length_controlled_win_rate",
    "sectioned_accuracy",
]

_BINS = 12


def known_subsets() -> frozenset[str | None]:
    """Return the names of RewardBench's subsets."""
    return frozenset(name for subsets in REWARD_BENCH.values() for name in subsets)


@dataclass(frozen=True)
class CharacteristicCorrelation(Measure):
    """Spearman's correlation of rewards with length, over all responses.

    The plain function is `characteristic_correlation`. The picture shows the mean reward by
    length.

    Parameters
    ----------
    rewards, characteristics
        Names of the scores, one for each response of a unit, in the same order.
    level, draws
        Coverage and bootstrap resamples of units.

    Examples
    --------
    >>> outcomes = Outcomes.of(
    ...     reward_chosen=[3, 4], reward_rejected=[1, 2],
    ...     length_chosen=[30, 40], length_rejected=[10, 20])
    >>> round(CharacteristicCorrelation().statistic(outcomes), 6)
    1.0
    """

    higher_is_better = None

    rewards: tuple[str, ...] = ("reward_chosen", "reward_rejected")
    characteristics: tuple[str, ...] = ("length_chosen", "length_rejected")
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=1000)

    def check(self) -> None:
        """Refuse lists that do not fit each other."""
        if not self.rewards or len(self.rewards) != len(self.characteristics):
            raise UsageError(
                "CharacteristicCorrelation: rewards and characteristics must name as many scores,"
                f" got {len(self.rewards)} and {len(self.characteristics)}."
            )

    @classmethod
    def tiny(cls) -> CharacteristicCorrelation:
        """Return few resamples."""
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 300 units whose responses have normal rewards and lengths, correlated 0.5."""
        generator, rho, columns = rng.numpy(), 0.5, {}
        for reward, length in zip(self.rewards, self.characteristics, strict=True):
            x, e = generator.normal(size=(2, 300))
            columns[length] = np.exp(x)
            columns[reward] = rho * x + np.sqrt(1 - rho**2) * e
        return rows_of(columns), float(6 / np.pi * np.arcsin(rho / 2))

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the correlation with its interval."""
        rows, note = self._rows(outcomes)
        found = characteristic_correlation(
            self._table(rows, self.rewards),
            self._table(rows, self.characteristics),
            clusters=clusters_of(rows),
            level=self.level,
            draws=self.draws,
            rng=rng,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the correlation without its interval."""
        rows, _ = self._rows(outcomes)
        r, c = self._table(rows, self.rewards), self._table(rows, self.characteristics)
        return spearman(r.ravel(), c.ravel())

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the mean reward by length, less its mean over all, for each arm."""
        series = []
        for arm, each in outcomes.items():
            try:
                rows, _ = self._rows(each)
            except UsageError:
                continue
            r = self._table(rows, self.rewards).ravel()
            c = self._table(rows, self.characteristics).ravel()
            found = _by_length(arm, r, c)
            if found is not None:
                series.append(found)
        if not series:
            return None
        return Figure(
            "Rewards by length",
            "length",
            "standard deviations above the mean reward",
            series,
            f"Mean reward of responses in {_BINS} groups of equal size by length, with 95 %"
            " intervals; flat where a reward owes length nothing.",
        )

    def _rows(self, outcomes: Outcomes) -> tuple[Outcomes, str]:
        return complete(type(self).__name__, outcomes, *self.rewards, *self.characteristics)

    @staticmethod
    def _table(rows: Outcomes, names: tuple[str, ...]) -> np.ndarray:
        return np.column_stack([rows.score(name) for name in names])


def _by_length(arm: str, r: np.ndarray, c: np.ndarray) -> Series | None:
    if len(r) < 4 * _BINS or np.ptp(r) == 0:
        return None
    r = (r - r.mean()) / r.std()
    groups = np.array_split(np.argsort(c, kind="stable"), _BINS)
    x = [float(c[each].mean()) for each in groups]
    y = np.array([r[each].mean() for each in groups])
    reach = np.array([1.96 * r[each].std(ddof=1) / np.sqrt(len(each)) for each in groups])
    return Series(arm, x, y.tolist(), (y - reach).tolist(), (y + reach).tolist(), look="line")


@dataclass(frozen=True)
class SectionedPairAccuracy(Measure):
    """RewardBench's accuracy: sections of weighted subsets, and their plain mean.

    The plain function is `sectioned_accuracy`. Subsets are the units' strata.

    Parameters
    ----------
    section
        ``all`` for the mean of the sections, or one of them; the details hold the others.
    score
        Score with 1 where the better response came first.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = replace(
    ...     Outcomes.of(correct=[1, 0, 1, 1]),
    ...     stratum=np.array([0, 0, 1, 1]), strata=("donotanswer", "hep-go"))
    >>> SectionedPairAccuracy().statistic(outcomes)
    0.75
    """

    section: str = one_of("all", *REWARD_BENCH, default="all")
    score: str = "correct"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 60 pairs of each subset, with an accuracy of its own."""
        generator = rng.numpy()
        names = [name for subsets in REWARD_BENCH.values() for name in subsets]
        rates = np.linspace(0.5, 0.95, len(names))
        code = np.repeat(np.arange(len(names)), 60)
        rows = rows_of({self.score: (generator.random(len(code)) < rates[code]).astype(float)})
        weights = self._chosen(section_weights(names))
        truth, _ = weighted_accuracy(rates, np.array(names), weights)
        return replace(rows, stratum=code, strata=tuple(names)), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the accuracy; ``rng`` is not used."""
        rows, names, note = self._read(outcomes)
        table = sectioned_accuracy(
            rows.score(self.score), names.tolist(), clusters=clusters_of(rows), level=self.level
        )
        if self.section not in table:
            raise UsageError(f"SectionedPairAccuracy: there are no pairs of {self.section}.")
        found = table[self.section]
        others = {name: each.value for name, each in table.items()}
        return noted(replace(found, details={**found.details, **others}), note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the accuracy without its interval."""
        rows, names, _ = self._read(outcomes)
        weights = self._chosen(section_weights(sorted(set(names.tolist()))))
        used = np.isin(names, [name for subsets in weights.values() for name in subsets])
        return weighted_accuracy(rows.score(self.score)[used], names[used], weights)[0]

    def _chosen(self, weights: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        if self.section == "all":
            return weights
        if self.section not in weights:
            raise UsageError(f"SectionedPairAccuracy: there are no pairs of {self.section}.")
        return {self.section: weights[self.section]}

    def _read(self, outcomes: Outcomes) -> tuple[Outcomes, np.ndarray, str]:
        rows, note = complete(type(self).__name__, outcomes, self.score)
        if rows.stratum is None:
            raise UsageError(
                "SectionedPairAccuracy: the units have no strata; the pairs' subsets must be known."
            )
        return rows, np.asarray(rows.strata)[rows.stratum], note


@dataclass(frozen=True)
class LengthControlledWinRate(Measure):
    r"""Share of wins that a logistic model predicts for responses as long as the baseline's.

    The plain function is `length_controlled_win_rate`. Of a unit's two responses the first is the
    model's, the second the baseline's: ``chosen`` and ``rejected`` in a table of pairs.

    Parameters
    ----------
    preference
        Score with the preference for the model, from 0 to 1.
    length, baseline_length
        Scores with the lengths.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(
    ...     preference=[0, 0, 1, 1, 0, 1, 0, 1] * 10,
    ...     length_chosen=[100, 200, 400, 600] * 20, length_rejected=[300] * 80)
    >>> round(LengthControlledWinRate().statistic(outcomes), 2)
    0.49
    """

    preference: str = "preference"
    length: str = "length_chosen"
    baseline_length: str = "length_rejected"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 400 comparisons of a model that wins 40 % at equal length and likes to be long."""
        generator = rng.numpy()
        mine, other = (
            np.exp(generator.normal(6.8, 0.5, 400)),
            np.exp(generator.normal(6.5, 0.5, 400)),
        )
        d = (mine - other) / (mine - other).std(ddof=1)
        p = 1 / (1 + np.exp(-(np.log(0.4 / 0.6) + 1.0 * np.tanh(d))))
        won = (generator.random(400) < p).astype(float)
        columns = {self.preference: won, self.length: mine, self.baseline_length: other}
        return rows_of(columns), 0.4

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the win rate; ``rng`` is not used."""
        rows, note = self._rows(outcomes)
        found = length_controlled_win_rate(
            rows.score(self.preference),
            rows.score(self.length) - rows.score(self.baseline_length),
            clusters=clusters_of(rows),
            level=self.level,
        )
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the win rate without its interval."""
        rows, _ = self._rows(outcomes)
        d = rows.score(self.length) - rows.score(self.baseline_length)
        return length_model(rows.score(self.preference), d, None).rate

    def _rows(self, outcomes: Outcomes) -> tuple[Outcomes, str]:
        names = self.preference, self.length, self.baseline_length
        return complete(type(self).__name__, outcomes, *names)


@dataclass(frozen=True)
class Gameability(Measure):
    """How far asking models to be verbose or concise moves a score, in percent.

    The plain function is `gameability`. Arms named ``NAME_verbose`` and ``NAME_concise`` are
    variants of the arm ``NAME``; units are resampled for all arms together.

    Parameters
    ----------
    score
        Score whose mean is the metric; None is the task's first.
    reference
        Score whose spread over arms sets the scale; None takes the metric as it is.
    level, draws
        Coverage and bootstrap resamples of units.

    Examples
    --------
    >>> arms = {name: Outcomes.of(won=[1] * wins + [0] * (10 - wins))
    ...         for name, wins in (("a", 5), ("a_verbose", 6), ("a_concise", 4))}
    >>> round(Gameability().measure(arms, Rng(0)).value, 6)
    20.0
    """

    scope = "arms"
    higher_is_better = False

    score: str | None = None
    reference: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=1000)

    @classmethod
    def tiny(cls) -> Gameability:
        """Return few resamples."""
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Mapping[str, Outcomes], float]:
        """Return 500 units of two models that win far more often when they are verbose."""
        rates = {"a": 0.5, "a_verbose": 0.7, "a_concise": 0.3}
        rates |= {"b": 0.4, "b_verbose": 0.6, "b_concise": 0.2}
        generator = rng.numpy()
        own, scale = self.score or "won", self.reference
        found = {}
        for name, rate in rates.items():
            won = (generator.random(500) < rate).astype(float)
            columns = {own: won} if scale is None else {own: won, scale: won}
            rows = rows_of(columns)
            found[name] = replace(rows, specs=(ScoreSpec(own, low=0, high=1),))
        return found, gameability(rates)

    def measure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Estimate:
        """Return the gameability with its interval."""
        if not outcomes:
            raise UsageError("Gameability: there are no arms.")
        arms = list(outcomes)
        name = first_score(outcomes[arms[0]], self.score)
        names = [name] if self.reference is None else [name, self.reference]
        tables = [self._by_unit(outcomes[arm], names) for arm in arms]
        shared = sorted(set(tables[0]).intersection(*tables))
        if len(shared) < 2:
            raise UsageError(f"Gameability: the arms share {len(shared)} units; two are needed.")
        cube = np.array([[table[unit] for table in tables] for unit in shared])

        def statistic(rows: np.ndarray) -> float:
            means = rows.mean(axis=0)
            metric, *rest = (dict(zip(arms, each, strict=True)) for each in means.T)
            return gameability(metric, rest[0] if rest else None)

        statistic(cube)  # says what is wrong before the resamples do
        found = resampling.bootstrap(
            statistic, (cube,), level=self.level, draws=self.draws, rng=rng, method="bca"
        )
        lost = len(set().union(*tables)) - len(shared)
        return noted(enclosing(found), f"{lost} units are not in every arm." if lost else "")

    @staticmethod
    def _by_unit(outcomes: Outcomes, names: list[str]) -> dict[int, np.ndarray]:
        rows, _ = complete("Gameability", outcomes, *names)
        units, place = np.unique(rows.unit, return_inverse=True)
        count = np.bincount(place)
        means = [np.bincount(place, rows.score(name)) / count for name in names]
        return dict(zip(units.tolist(), np.column_stack(means), strict=True))
