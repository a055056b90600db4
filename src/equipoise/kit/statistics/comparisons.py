"""Comparisons of pairs: who met whom on what, and how it went."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Outcomes, Rng, UsageError
from equipoise.kit.statistics.columns import row_keys


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Comparisons of pairs of models as columns, all of length ``n``.

    Parameters
    ----------
    models
        Names.
    first, second
        Who met, as places in ``models``.
    score
        How it went for the first: 1 won, 0 lost, 0.5 tied, anything between a preference.
    prompts, prompt
        Names of what they were compared on, and the place of each row's; None where
        the prompts are not known.
    cluster
        Integer codes of rows that are not independent, or None.

    Raises
    ------
    UsageError
        If columns differ in length, a score leaves [0, 1], or a model meets itself.

    Examples
    --------
    >>> met = Comparisons.of(["a", "b", "a"], ["b", "c", "c"], [1, 0.5, 1])
    >>> met.models, met.wins()[0].tolist()
    (('a', 'b', 'c'), [0.0, 1.0, 1.0])
    """

    models: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    score: np.ndarray
    prompts: tuple[str, ...] = ()
    prompt: np.ndarray | None = None
    cluster: np.ndarray | None = None

    def __post_init__(self) -> None:
        columns = [self.first, self.second, self.score]
        columns += [each for each in (self.prompt, self.cluster) if each is not None]
        if len({len(each) for each in columns}) > 1:
            raise UsageError("Comparisons: the columns must have one length.")
        if not len(self.score):
            raise UsageError("Comparisons: there is not one.")
        if not ((self.score >= 0) & (self.score <= 1)).all():
            raise UsageError("Comparisons: scores must be from 0 (lost) to 1 (won), without gaps.")
        if (self.first == self.second).any():
            name = self.models[int(self.first[self.first == self.second][0])]
            raise UsageError(f"Comparisons: {name} is compared with itself.")

    @classmethod
    def of(
        cls,
        first: Sequence[str],
        second: Sequence[str],
        score: npt.ArrayLike,
        *,
        prompt: Sequence[str] | None = None,
        cluster: Sequence[object] | None = None,
    ) -> Comparisons:
        """Make comparisons from plain columns; models and prompts in order of their names."""
        models, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
        prompts, places = ((), None) if prompt is None else np.unique(prompt, return_inverse=True)
        groups = None
        if cluster is not None:
            groups = np.unique(np.asarray(cluster), return_inverse=True)[1]
        return cls(
            tuple(map(str, models)),
            codes[: len(first)],
            codes[len(first) :],
            np.asarray(score, float),
            tuple(map(str, prompts)),
            places,
            groups,
        )

    @classmethod
    def between_arms(cls, outcomes: Mapping[str, Outcomes], score: str) -> Comparisons:
        """Compare every two arms on every unit, build and repeat that both have a score for.

        The better score wins, equal ones tie. Units are the prompts.
        """
        models = tuple(outcomes)
        keys = [row_keys(each) for each in outcomes.values()]
        rows: list[tuple[np.ndarray, ...]] = []
        for i, j in itertools.combinations(range(len(models)), 2):
            a, b = outcomes[models[i]], outcomes[models[j]]
            _, at_a, at_b = np.intersect1d(
                keys[i], keys[j], assume_unique=True, return_indices=True
            )
            x, y = a.score(score)[at_a], b.score(score)[at_b]
            both = ~(np.isnan(x) | np.isnan(y))
            at_a, x, y = at_a[both], x[both], y[both]
            sign = -1.0 if a.spec(score).higher_is_better is False else 1.0
            won = 0.5 + 0.5 * np.sign(sign * (x - y))
            group = a.unit if a.cluster is None else a.cluster
            rows.append((np.full(len(x), i), np.full(len(x), j), won, a.unit[at_a], group[at_a]))
        if not rows:
            raise UsageError("Comparisons: one arm cannot be compared.")
        first, second, won, unit, group = (np.concatenate(each) for each in zip(*rows, strict=True))
        units, prompt = np.unique(unit, return_inverse=True)
        return cls(models, first, second, won, tuple(map(str, units)), prompt, group)

    def __len__(self) -> int:
        return len(self.score)

    def games(self) -> np.ndarray:
        """Return how many comparisons each model was in, shape ``(models,)``."""
        m = len(self.models)
        return np.bincount(self.first, minlength=m) + np.bincount(self.second, minlength=m)

    def wins(self) -> np.ndarray:
        """Return how often row's model beat column's, ties half, shape ``(models, models)``."""
        m = len(self.models)
        at = self.first * m + self.second
        back = self.second * m + self.first
        found = np.bincount(at, self.score, m * m) + np.bincount(back, 1 - self.score, m * m)
        return np.asarray(found.reshape(m, m))


@runtime_checkable
class Rates(Protocol):
    """A measure that rates models by how they compare, such as Elo or Bradley-Terry."""

    def rate(self, comparisons: Comparisons, rng: Rng) -> Mapping[str, Estimate]:
        """Return each model's rating with its interval, by name."""
