"""Pairs of a better and a worse response with stored scores or texts, and scorers of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from equipoise.core import (
    Acts,
    Embeds,
    Forecasts,
    Generates,
    GeneratesAsync,
    HasModule,
    Judges,
    Measure,
    Message,
    Outcome,
    Rng,
    ScoresText,
    Subject,
    Task,
    Treatment,
    Unit,
    between,
    setting,
)
from equipoise.kit.data import content_hash
from equipoise.methods.alignment._pair_files import pair_units
from equipoise.methods.alignment._pair_scoring import (
    PAIR_SCORES,
    Alike,
    Knows,
    lengths_of,
    responses_of,
    scored,
)
from equipoise.methods.alignment._responses import GivesRewards, Responses, conversations


@dataclass(frozen=True)
class RecordedScores(Subject):
    """A scorer whose scores lie in a column of the responses.

    Parameters
    ----------
    column
        Name of the column: ``score`` for RewardBench's files and for the columns
        ``score_chosen`` and ``score_rejected`` of a table.

    Examples
    --------
    >>> scorer = RecordedScores().load(Rng(0))
    >>> scorer.rewards(Responses(columns={"score": np.array([1.0, 2.0])}))
    array([1., 2.])
    """

    provides = frozenset({GivesRewards})

    column: str = "score"

    def load(self, rng: Rng) -> GivesRewards:
        """Return the scorer."""
        return _Column(self.column)


@dataclass(frozen=True)
class _Column:
    column: str

    def rewards(self, responses: Responses) -> np.ndarray:
        if self.column not in responses.columns:
            responses.characteristic(self.column)  # says what there is
        return np.asarray(responses.columns[self.column], float)


_OTHER = frozenset({Acts, Embeds, Forecasts, Generates, GeneratesAsync, HasModule})


@dataclass(frozen=True)
class JudgeRewards(Treatment):
    """Take a judge's scores as rewards of responses, each judged by itself.

    Examples
    --------
    >>> class Curt:
    ...     def judge(self, conversations):
    ...         return np.array([1 / len(each[-1]["content"]) for each in conversations])
    >>> scorer = JudgeRewards().apply(Curt(), Rng(0))
    >>> scorer.rewards(Responses(prompts=("2+2?", "2+2?"), texts=("4", "four")))
    array([1.  , 0.25])
    """

    needs = frozenset({Judges})
    adds = frozenset({GivesRewards})
    removes = _OTHER | {Judges, ScoresText}

    @classmethod
    def tiny_subject(cls) -> Judges:
        """Return a judge who finds all alike."""
        return _Indifferent()

    def apply(self, subject: Any, rng: Rng) -> GivesRewards:
        """Return the scorer."""
        return _FromJudge(subject)


@dataclass(frozen=True)
class LikelihoodRewards(Treatment):
    r"""Take a language model's mean log-likelihood of a response as its reward.

    .. math:: r(x) = \frac{1}{T} \sum_{t \le T} \log p(y_t \mid \text{prompt}, y_{<t})

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> scorer = LikelihoodRewards().apply(tiny_model(), Rng(0))
    >>> scorer.rewards(Responses(prompts=("2+2?",), texts=("4",))).shape
    (1,)
    """

    needs = frozenset({ScoresText})
    adds = frozenset({GivesRewards})
    removes = _OTHER | {Judges, ScoresText}

    def apply(self, subject: Any, rng: Rng) -> GivesRewards:
        """Return the scorer."""
        return _FromLikelihood(subject)


_LAST: WeakKeyDictionary[Any, tuple[Any, np.ndarray]] = WeakKeyDictionary()
"""What each model or judge said last, so that arms that share it and pairs share the work."""


def _once(
    model: Any, how: str, responses: Responses, score: Callable[[], np.ndarray]
) -> np.ndarray:
    """Return scores of responses, or what they were when the model was last asked, and so."""
    key = (how, tuple(responses.prompts), tuple(responses.texts))
    if model not in _LAST or _LAST[model][0] != key:
        _LAST[model] = key, score()
    return _LAST[model][1].copy()


@dataclass(frozen=True, eq=False)
class _FromJudge:
    base: Judges

    def rewards(self, responses: Responses) -> np.ndarray:
        def score() -> np.ndarray:
            return np.asarray(self.base.judge(conversations(responses)), float)

        return _once(self.base, "judge", responses, score)


@dataclass(frozen=True, eq=False)
class _FromLikelihood:
    base: ScoresText

    def rewards(self, responses: Responses) -> np.ndarray:
        def score() -> np.ndarray:
            asked = [(each[:-1], str(each[-1]["content"])) for each in conversations(responses)]
            return np.array([s.log_probs.mean() for s in self.base.log_likelihood(asked)], float)

        return _once(self.base, "likelihood", responses, score)


@dataclass(frozen=True, eq=False)
class _Indifferent:
    def judge(self, conversations: Sequence[Sequence[Message]]) -> np.ndarray:
        return np.full(len(conversations), 0.5)


@dataclass(frozen=True)
class StoredPairScores(Task):
    r"""Pairs of responses, and whether a scorer puts the better one first.

    One unit a pair, right where the margin :math:`r(chosen) - r(rejected)` is above 0;
    ``preference`` is its sigmoid. All pairs are scored together, whichever are asked, so that a
    calibration that learns from what it scores is the same however the work is cut.

    ``data`` is RewardBench's JSON of stored scores (parallel lists ``scores_chosen``,
    ``scores_rejected``, ``subset`` and where given ``text_chosen``, ``text_rejected``; their
    lengths are those of the whole conversation), or a table with a row a pair. Its columns come in
    twos, such as ``score_chosen`` and ``score_rejected``: ``text`` is the responses, all others
    are numbers. ``prompt``, ``subset``, ``cluster`` and ``id`` are used where given.

    Parameters
    ----------
    data
        Path of a CSV, JSON, JSONL or Parquet file, or ``hf:NAME_OR_FOLDER``. Results follow its
        content, not its place.
    length
        What ``length_chosen`` and ``length_rejected`` in the outcomes are: ``characters``,
        ``words``, ``markdown`` or a column.
    calibration
        Share of the pairs that treatments may learn from instead of being scored.

    Examples
    --------
    >>> task = StoredPairScores.tiny()
    >>> outcomes = task.perform(RecordedScores().load(Rng(0)), task.units(Rng(0)), Rng(0))
    >>> sum(each.scores["correct"] for each in outcomes), len(outcomes)
    (20.0, 30)
    """

    needs = frozenset({GivesRewards})
    scores = PAIR_SCORES
    batch = 1_000_000

    data: str = setting()
    length: str = "characters"
    calibration: float = between(0.0, 0.99, default=0.0)

    @classmethod
    def tiny(cls) -> StoredPairScores:
        """Return the example that lies beside this module."""
        return cls(str(Path(__file__).with_name("stored_pair_scores_example.csv")))

    def content(self) -> Any:
        """Return what identifies the data, wherever it lies."""
        return content_hash(self.data)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a pair, in the file's order."""
        return list(pair_units(self.data, self.calibration, str(self.content())))

    def responses(self, units: Sequence[Unit]) -> Responses:
        """Return the responses of some pairs, two a pair."""
        return responses_of(units)

    def perform(self, subject: GivesRewards, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score all pairs and return the outcomes of those asked."""
        whole = [unit for unit in self.units(rng) if unit.split == "test"]
        return scored(subject, whole, units, self.length)

    def measures(self) -> Sequence[Measure]:
        """Return how rewards go with length, and the score by section where they are known."""
        from equipoise.methods.alignment.reward_measures import (
            CharacteristicCorrelation,
            SectionedPairAccuracy,
            known_subsets,
        )

        units = pair_units(self.data, self.calibration, str(self.content()))
        found: list[Measure] = []
        if len(units) > 1 and lengths_of(responses_of(units[:1]), self.length) is not None:
            found.append(CharacteristicCorrelation())
        if {unit.stratum for unit in units} <= known_subsets():
            found.append(SectionedPairAccuracy())
        return found

    def oracle(self) -> Any:
        """Return a scorer that knows which response is better."""
        return Knows.of([unit for unit in self.units(Rng(0)) if unit.split == "test"])

    def constant(self) -> Any:
        """Return a scorer that finds all alike."""
        return Alike()
