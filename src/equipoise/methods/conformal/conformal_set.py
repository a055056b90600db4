r"""Split conformal sets of labels around a classifier.

With :math:`p_k(x)` the probability of class :math:`k` and :math:`q` the
:math:`\lceil (n+1)(1-\alpha) \rceil`-th smallest score of :math:`n` calibration rows, the set holds
every label whose score is at most :math:`q`:

- ``lac``, the least ambiguous sets (Sadinle, Lei, Wasserman, JASA 2019): :math:`1 - p_y(x)`.
  Smallest on average; it may be empty.
- ``aps``, adaptive sets (Romano, Sesia, Candes, NeurIPS 2020): the mass of all labels at least as
  probable as :math:`y`. Larger, and nearer to even coverage over easy and hard rows.
- ``raps`` (Angelopoulos et al., ICLR 2021): the same, with a price on large sets that is chosen on
  a fifth of the calibration rows.
- ``top_k``: the rank of :math:`y`; all sets are of one size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from equipoise.core import (
    HasModule,
    Predicts,
    PredictsProba,
    PredictsSet,
    Rng,
    Task,
    Trains,
    Treatment,
    UsageError,
    learnable,
    one_of,
)
from equipoise.kit.arrays.learners import Untrained
from equipoise.methods.conformal._rows import calibration_rows
from equipoise.methods.conformal._sets import Learner, calibrated

__all__ = ["ConformalSet"]


@dataclass(frozen=True)
class ConformalSet(Treatment):
    r"""Give a classifier sets of labels that hold the right one with probability :math:`1-\alpha`.

    The error rate is asked when predicting, so one calibration serves all. Around an untrained
    subject this gives a learner: put ``train`` after it, which hands it train rows to learn from
    and calibration rows to calibrate on. Around a trained one, give ``data``. Calibration rows
    too few for :math:`\alpha` are refused.

    ``aps``, ``raps`` and ``top_k`` are MAPIE's: they need the extra ``conformal`` and at least
    three classes. A millionth is added to every probability before, since MAPIE takes 1e-8 for
    nothing and then misses its coverage around classifiers that are too sure.

    Parameters
    ----------
    score
        ``lac``, ``aps``, ``raps`` or ``top_k``.
    data
        Task whose calibration rows calibrate a classifier that is trained already.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from equipoise.methods.conformal import SetPrediction
    >>> task = SetPrediction("builtin:iris")
    >>> bayes = Untrained(GaussianNB()).fit(learnable(task, Rng(0)), Rng(0))
    >>> treated = ConformalSet(data=task).apply(bayes, Rng(0))
    >>> treated.predict_set([[5.0, 3.4, 1.5, 0.2], [6.0, 2.7, 5.0, 1.6]], alpha=0.04)
    array([[ True, False, False],
           [False,  True,  True]])
    """

    score: Literal["lac", "aps", "raps", "top_k"] = one_of(
        "lac", "aps", "raps", "top_k", default="lac"
    )
    data: Task | None = None

    needs = frozenset({Trains})
    adds = frozenset({Predicts, PredictsProba, PredictsSet})
    removes = frozenset({HasModule})
    random = True

    def check(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "needs", frozenset({PredictsProba}))

    @classmethod
    def tiny(cls) -> Self:
        return cls(data=_tiny_task())

    @classmethod
    def tiny_subject(cls) -> Any:
        from sklearn.naive_bayes import GaussianNB

        return Untrained(GaussianNB()).fit(learnable(_tiny_task(), Rng(0)), Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return a learner that calibrates itself, or, with ``data``, a calibrated classifier."""
        if self.data is None:
            return Learner(subject, self.score)
        if not isinstance(subject, PredictsProba):
            raise UsageError(
                "conformal_set: the subject gives no probabilities; take a trained classifier "
                "with predict_proba."
            )
        rows = calibration_rows("conformal_set", self.data, rng.child("data"))
        return calibrated(subject, rows, self.score, rng)


def _tiny_task() -> Task:
    from equipoise.methods.conformal.set_prediction import SetPrediction

    return SetPrediction.tiny()
