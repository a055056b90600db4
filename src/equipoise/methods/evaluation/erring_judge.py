r"""A judge who errs with known chances: to try an evaluation before a model judges in it.

It calls an answer right that holds the reference with chance :math:`p` (sensitivity) and any
other with chance :math:`1 - q` (specificity). Of a pair it prefers the answer that it calls right;
or, with chances of their own, the one it is shown first, or the longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equipoise.core import Capability, Judges, Message, Rng, Subject, UnitError, between
from equipoise.kit.language.judging import (
    Case,
    GivesVerdicts,
    Verdict,
    both_orders,
    scores_of,
    share_of_win,
)
from equipoise.kit.language.normalise import squad


@dataclass(frozen=True)
class ErringJudge(Subject):
    r"""A judge with known faults who goes by the reference answer.

    An answer is right where it holds the reference as whole words, after the normalisation of
    SQuAD. Asked in both orders, it names the same answer of a pair with chance
    :math:`(1-f)^2 + f(1-f) P(\text{no tie})` where :math:`f` is ``first``.

    Parameters
    ----------
    sensitivity
        Share of right answers that it calls right.
    specificity
        Share of wrong answers that it calls wrong.
    first
        Chance that, of a pair, it takes the answer it is shown first.
    longer
        Chance that, of a pair, it takes the longer answer, whatever the order.

    Examples
    --------
    >>> judge = ErringJudge(sensitivity=1, specificity=1).load(Rng(0))
    >>> from equipoise.kit.language.judging import Case, verdicts_on
    >>> [verdict.score for verdict in verdicts_on(judge, [
    ...     Case("2+2?", "It is 4.", reference="4"), Case("2+2?", "5", "4", reference="4")])]
    [1.0, 0.0]
    """

    sensitivity: float = between(0.0, 1.0, default=0.9)
    specificity: float = between(0.0, 1.0, default=0.8)
    first: float = between(0.0, 1.0, default=0.0)
    longer: float = between(0.0, 1.0, default=0.0)

    provides: ClassVar[frozenset[Capability]] = frozenset({Judges, GivesVerdicts})

    def load(self, rng: Rng) -> _Live:
        """Return the live judge; its errors hang on the trial's seed and the answer alone."""
        return _Live(self, Rng(rng.seed).child("erring judge"))


@dataclass(frozen=True)
class _Live:
    recipe: ErringJudge
    rng: Rng

    def judge(self, conversations: Sequence[Sequence[Message]]) -> np.ndarray:
        """Return NaN for each: a conversation holds no reference, and without one it is lost."""
        return scores_of(self, conversations)

    async def verdict(self, case: Case) -> Verdict:
        """Return the verdict on a case that has a reference."""
        if case.reference is None:
            raise UnitError("ErringJudge: the case has no reference answer.", "no_reference")
        one = self._calls_right(case, case.answer)
        if case.other is None:
            return Verdict(one)
        other = self._calls_right(case, case.other)
        score = share_of_win(one, other)
        sizes = len(case.answer), len(case.other)
        if self._draw(case, "longer") < self.recipe.longer and sizes[0] != sizes[1]:
            score = float(sizes[0] > sizes[1])
        # On trial the answer stands first, then second.
        first, second = (
            Verdict(side if self._draw(case, "first", side) < self.recipe.first else score)
            for side in (1.0, 0.0)
        )
        return both_orders(first, second, first.score == second.score)

    def _calls_right(self, case: Case, answer: str) -> float:
        right = f" {squad(case.reference or '')} " in f" {squad(answer)} "
        recipe = self.recipe
        chance = recipe.sensitivity if right else 1 - recipe.specificity
        return float(self._draw(case, "right", answer) < chance)

    def _draw(self, case: Case, *what: object) -> float:
        stream = self.rng.child(case.question, case.answer, case.other, *what)
        return float(stream.numpy().random())
