"""Training as a treatment, so that builds repeat it with other seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from equipoise.core import (
    Predicts,
    PredictsProba,
    Rng,
    Task,
    Trains,
    Treatment,
    UsageError,
    between,
    learnable,
    one_of,
)
from equipoise.kit.arrays.examples import learns_from


@dataclass(frozen=True)
class Train(Treatment):
    """Let the subject learn from units of a task, from the start.

    What the subject learned before is not used. Give the trial's task the same
    data and split as ``data``: a row met in both is a failed unit.

    Parameters
    ----------
    data
        Task with the units to learn from; test units are never read.
    rows
        Learn from so many units, drawn without replacement; None for all. Units to
        calibrate with are never fewer for it.
    parameters
        Parameters of the subject that are changed before it learns.
    split
        Which units to learn from; by default those that the subject reads: train,
        and calibration too where it calibrates itself.

    Examples
    --------
    >>> from equipoise.methods.tables import Classification, Estimator
    >>> bare = Estimator("DecisionTreeClassifier").load(Rng(0))
    >>> iris = Classification("builtin:iris")
    >>> tree = Train(iris, parameters={"max_depth": 1}).apply(bare, Rng(0))
    >>> tree.model.get_depth()
    1
    """

    data: Task
    rows: int | None = between(1, math.inf, default=None)
    parameters: Mapping[str, Any] | None = None
    split: Literal["train", "calibration"] | None = one_of(
        "train", "calibration", None, default=None
    )

    needs = frozenset({Trains})
    adds = frozenset({Predicts, PredictsProba})
    random = True

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.tables.classification import Classification

        return cls(Classification.tiny())

    @classmethod
    def tiny_subject(cls) -> Any:
        from equipoise.methods.tables.estimator import Estimator

        return Estimator("GaussianNB").load(Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Any:
        stream = rng.child("data")
        splits = learns_from(subject) if self.split is None else (self.split,)
        units = learnable(self.data, stream, splits[0])
        if self.rows is not None:
            if self.rows > len(units):
                raise UsageError(
                    f"Train: rows must be at most the {len(units)} {splits[0]} units there are, "
                    f"got {self.rows}."
                )
            chosen = rng.child("rows").numpy().choice(len(units), self.rows, replace=False)
            units = [units[index] for index in sorted(chosen)]
        for split in splits[1:]:
            units += learnable(self.data, stream, split)
        if self.parameters:
            if not hasattr(subject, "with_parameters"):
                raise UsageError(
                    "Train: this subject's parameters cannot be changed; leave out parameters."
                )
            subject = subject.with_parameters(self.parameters)
        return subject.fit(units, rng)
