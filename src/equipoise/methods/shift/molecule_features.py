"""One kind of features of molecules at a time, so that arms are compared on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import Rng, Split, Trains, Treatment, UsageError, one_of
from equipoise.kit.arrays.examples import Examples, examples, learns_from


@dataclass(frozen=True)
class MoleculeFeatures(Treatment):
    """Let a learner see one kind of features of molecules that come with both.

    The task `similarity_shift` with ``representation: both`` gives eight descriptors first, then
    bits; arms that learn from one kind each are compared on the same test rows this way.

    Parameters
    ----------
    features
        ``"descriptors"`` or ``"ecfp"``; ``"both"`` changes nothing.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> from equipoise.kit.arrays.learners import Untrained
    >>> learner = MoleculeFeatures("ecfp").apply(Untrained(KNeighborsRegressor(1)), Rng(0))
    >>> rows = np.hstack([np.zeros((3, 8)), np.eye(3)])
    >>> learner.fit(Examples(rows, np.array([1.0, 2.0, 3.0])), Rng(0)).predict(rows)
    array([1., 2., 3.])
    """

    features: str = one_of("both", "descriptors", "ecfp", default="both")

    needs = frozenset({Trains})

    @classmethod
    def tiny(cls) -> Self:
        """Return the one that sees bits."""
        return cls("ecfp")

    @classmethod
    def null(cls) -> Self:
        """Return the setting that changes nothing."""
        return cls("both")

    @classmethod
    def tiny_subject(cls) -> Any:
        """Return an untrained learner."""
        from sklearn.linear_model import Ridge

        from equipoise.kit.arrays.learners import Untrained

        return Untrained(Ridge())

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return the learner with its eyes on some columns."""
        if self.features == "both":
            return subject
        from equipoise.kit.arrays.molecules import DESCRIPTORS

        wide = len(DESCRIPTORS)
        return _Seeing(
            subject, slice(0, wide) if self.features == "descriptors" else slice(wide, None)
        )


@dataclass(frozen=True)
class _Seeing:
    """A learner, or what it has learned, that sees some columns."""

    base: Any
    columns: slice

    @property
    def learns_from(self) -> tuple[Split, ...]:
        return learns_from(self.base)

    def fit(self, data: Any, rng: Rng) -> Any:
        found = examples(data)
        seen = Examples(self._see(found.inputs), found.targets, found.split, found.group, found.ids)
        fitted = self.base.fit(seen, rng)
        kind = _SeeingClasses if hasattr(fitted, "predict_proba") else _SeeingFitted
        return kind(fitted, self.columns)

    def _see(self, inputs: np.ndarray) -> np.ndarray:
        seen = np.asarray(inputs)[:, self.columns]
        if not seen.shape[1]:
            raise UsageError(
                "MoleculeFeatures: the rows do not come with both kinds of features; say "
                "representation: both in the task."
            )
        return seen


@dataclass(frozen=True)
class _SeeingFitted(_Seeing):
    @property
    def learned_from(self) -> frozenset[bytes]:
        return getattr(self.base, "learned_from", frozenset())

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.base.predict(self._see(inputs)))


@dataclass(frozen=True)
class _SeeingClasses(_SeeingFitted):
    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.base.classes_)

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.base.predict_proba(self._see(inputs)))
