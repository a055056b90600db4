r"""Post-hoc reward calibration: rewards without the part that length explains.

Works on scores that exist already, with no training and no labels: the mean reward at each
length is estimated from the scores themselves and taken away. The same for any other number that
can be counted in a response. The plain functions are `local_mean`, `lowess` and the estimator
`RewardCalibration`; symbols are the paper's, see the card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import (
    Judges,
    Message,
    Rng,
    Task,
    Treatment,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.language.canned import message_text
from equipoise.methods.alignment._responses import (
    GivesRewards,
    Responses,
    conversations,
    markdown_count,
)
from equipoise.methods.alignment._reward_bias import (
    ESTIMATORS,
    RewardCalibration,
    local_mean,
    lowess,
)

__all__ = [
    "GivesRewards",
    "PostHocRewardCalibration",
    "Responses",
    "RewardCalibration",
    "local_mean",
    "lowess",
    "markdown_count",
]


@dataclass(frozen=True)
class PostHocRewardCalibration(Treatment):
    r"""Take from a scorer's rewards what the length of responses explains, or another number.

    With :math:`m(c)` an estimate of the mean reward at characteristic :math:`c`, the calibrated
    reward is :math:`r - \lambda\,(m(c) - \bar m)`. Without ``data`` it learns from the responses
    that are scored together, as in the paper: no labels are needed, but a response's score hangs
    on the others. With ``data`` it learns once from rewards of train and calibration units.

    It holds where better responses are no longer or shorter than worse ones. Where length tells
    quality, it takes that away too.

    Parameters
    ----------
    scorer
        What the subject is: ``rewards`` (recorded scores, reward models, likelihoods: any scale)
        or ``judge`` (a subject with `Judges`: scores in [0, 1], which calibrated ones are cut to).
    characteristics
        What to take away, one after another: ``characters``, ``words``, ``markdown`` (headers,
        list items and bold spans), or the name of a column of numbers.
    estimator
        ``lowess`` (RC-LWR), ``local_mean`` (RC-Mean), or ``penalty``: a fixed amount for each
        unit of the characteristic.
    lam
        :math:`\lambda`, one for all characteristics or one each; 0 changes nothing.
    frac
        Share of the responses in a window of ``lowess``; near 1 it takes away almost a straight
        line and no more.
    ratio
        The window of ``local_mean`` reaches as far to both sides as the mean difference of
        length within pairs over this.
    min_count
        Fewest rewards in a window of ``local_mean``; a pair with fewer keeps its rewards.
    weight
        What ``penalty`` takes for each unit.
    data
        Task whose train and calibration units are scored to learn from, such as
        `stored_pair_scores`; None learns from what is scored together.

    References
    ----------
    Post-hoc Reward Calibration: A Case Study on Length Bias, ICLR 2025, section 3.

    Examples
    --------
    >>> class ByLength:
    ...     def rewards(self, responses):
    ...         return responses.characteristic("words")
    >>> scorer = PostHocRewardCalibration(characteristics=("words",)).apply(ByLength(), Rng(0))
    >>> scorer.rewards(Responses(texts=("a", "a b", "a b c", "a b c d", "a b"))).round(6)
    array([2.4, 2.4, 2.4, 2.4, 2.4])
    """

    scorer: str = one_of("rewards", "judge", default="rewards")
    characteristics: tuple[str, ...] = ("characters",)
    estimator: str = one_of(*ESTIMATORS, default="lowess")
    lam: tuple[float, ...] = between(0.0, 100.0, default=(1.0,))
    frac: float = between(1e-6, 1.0, default=0.5)
    ratio: float = between(1e-6, 1e6, default=4.0)
    min_count: int = between(1, 1_000_000_000, default=20)
    weight: float = between(-1e12, 1e12, default=0.001)
    data: Task | None = None

    needs = frozenset({GivesRewards})

    @classmethod
    def null(cls) -> Self:
        """Return the setting that takes nothing away."""
        return cls(lam=(0.0,))

    @classmethod
    def tiny_subject(cls) -> Any:
        """Return a scorer that likes long responses."""
        return _ByLength()

    def check(self) -> None:
        """Refuse lists that do not fit, and say what the subject must have."""
        if not self.characteristics:
            raise UsageError(
                "PostHocRewardCalibration: name at least one characteristic, such as characters."
            )
        if len(self.lam) not in (1, len(self.characteristics)):
            raise UsageError(
                f"PostHocRewardCalibration: lam must be one number or one for each of"
                f" {len(self.characteristics)} characteristics, got {len(self.lam)}."
            )
        if self.data is not None and not hasattr(self.data, "responses"):
            raise UsageError(
                f"PostHocRewardCalibration: {type(self.data).__name__} has no responses to learn"
                " from; give a task such as stored_pair_scores."
            )
        wanted = Judges if self.scorer == "judge" else GivesRewards
        object.__setattr__(self, "needs", frozenset({wanted}))

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return a scorer whose rewards are calibrated."""
        if not any(self.lam):
            return subject
        fitted = None
        if self.data is not None:
            data: Any = self.data
            units = learnable(data, rng) + learnable(data, rng, "calibration")
            if not units:
                raise UsageError(
                    f"PostHocRewardCalibration: {type(data).__name__} has no train or calibration"
                    " units; raise its share above 0, or leave data out to learn from what is"
                    " scored together."
                )
            responses = data.responses(units)
            if self.scorer == "judge":
                raw = np.asarray(subject.judge(conversations(responses)), float)
            else:
                raw = np.asarray(subject.rewards(responses), float)
            table = self._table(responses)
            self._varies(table)
            fitted = self._unfitted().fit(raw, table, responses.pair)
        wrapper = _CalibratedJudge if self.scorer == "judge" else _CalibratedRewards
        return wrapper(subject, self, fitted)

    def calibrated(
        self, raw: np.ndarray, responses: Responses, fitted: RewardCalibration | None
    ) -> np.ndarray:
        """Return calibrated rewards of responses, by a fitted calibration or one of their own."""
        if not len(responses):
            return raw
        table, pairs = self._table(responses), responses.pair
        if fitted is not None:
            return fitted.transform(raw, table, pairs)
        self._varies(table)
        return self._unfitted().fit_transform(raw, table, pairs)

    def _table(self, responses: Responses) -> np.ndarray:
        return np.column_stack([responses.characteristic(name) for name in self.characteristics])

    def _varies(self, table: np.ndarray) -> None:
        for name, column in zip(self.characteristics, table.T, strict=True):
            if self.estimator != "penalty" and np.ptp(column) == 0:
                raise UsageError(
                    f"PostHocRewardCalibration: {name} is {column[0]:g} in all {len(column)}"
                    " responses, so it explains nothing; name another characteristic."
                )

    def _unfitted(self) -> RewardCalibration:
        return RewardCalibration(
            estimator=self.estimator,
            lam=self.lam,
            frac=self.frac,
            ratio=self.ratio,
            min_count=self.min_count,
            weight=self.weight,
        )


@dataclass(frozen=True, eq=False)
class _CalibratedRewards:
    base: GivesRewards
    how: PostHocRewardCalibration
    fitted: RewardCalibration | None

    def rewards(self, responses: Responses) -> np.ndarray:
        raw = np.asarray(self.base.rewards(responses), float)
        return self.how.calibrated(raw, responses, self.fitted)


@dataclass(frozen=True, eq=False)
class _CalibratedJudge:
    base: Judges
    how: PostHocRewardCalibration
    fitted: RewardCalibration | None

    def judge(self, conversations: Sequence[Sequence[Message]]) -> np.ndarray:
        raw = np.asarray(self.base.judge(conversations), float)
        answers = tuple(message_text(each[-1]) for each in conversations)
        found = self.how.calibrated(raw, Responses(texts=answers), self.fitted)
        return np.asarray(np.clip(found, 0.0, 1.0))


@dataclass(frozen=True)
class _ByLength:
    def rewards(self, responses: Responses) -> np.ndarray:
        return responses.characteristic("characters")
