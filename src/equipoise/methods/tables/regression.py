r"""Regression on table rows: how far the predicted value is from the true one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import (  # fmt: skip
    Outcome,
    Predicts,
    Rng,
    ScoreSpec,
    Unit,
)
from equipoise.kit.arrays.examples import column_of, inputs_of
from equipoise.kit.data.source import Source
from equipoise.kit.data.table_task import Constant, Recall, TableTask, leaked
from equipoise.kit.data.targets import numbers


@dataclass(frozen=True)
class Regression(TableTask):
    r"""Tell the value that goes with each row of a table.

    A unit is a row; its content is the list of its features. With $\hat y$ the
    prediction and $y$ the true value, the scores are ``absolute_error``
    $|\hat y - y|$ and ``squared_error`` $(\hat y - y)^2$ (lower is better), and
    ``target`` $y$ and ``predicted`` $\hat y$ for measures that need both. A
    prediction that is not finite is a failed unit, and so is a row that the
    subject has learned from.

    Parameters
    ----------
    data
        Path, ``hf:NAME`` or ``builtin:NAME`` (``diabetes``);
        `equipoise.kit.data.read_rows` says which files.
    target
        Column with the value: finite numbers.
    features
        Columns to predict from; by default all that are left.
    cluster
        Column whose rows of one value are not independent and share a split.
    stratum
        Column with a group to report apart.
    split
        Column that says ``train``, ``calibration`` or ``test``; without it rows
        are split by a hash of their features, so that equal rows share a split
        and appended rows move no others.
    train, calibration
        Fractions of rows; the rest is tested.
    split_seed
        Another seed gives another split.

    Examples
    --------
    >>> task = Regression("builtin:diabetes")
    >>> next(iter(task.units(Rng(0)))).target
    151.0
    """

    needs = frozenset({Predicts})
    scores = (
        ScoreSpec("absolute_error", higher_is_better=False, low=0.0),
        ScoreSpec("squared_error", higher_is_better=False, low=0.0),
        ScoreSpec("target", higher_is_better=None),
        ScoreSpec("predicted", higher_is_better=None),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:diabetes")

    def targets(self, source: Source) -> tuple[Any, ...]:
        return numbers(source, self.target, " (for classes there is the task classification)")

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score a shard with one call of ``predict``."""
        made = leaked(subject, units)
        asked = [unit for unit in units if unit.id not in made]
        if asked:
            predictions = column_of(subject.predict(inputs_of(asked)), len(asked))
            scores = regression_scores([unit.target for unit in asked], predictions)
            for row, unit in enumerate(asked):
                made[unit.id] = _outcome(unit, {k: float(v[row]) for k, v in scores.items()})
        return [made[unit.id] for unit in units]

    def constant(self) -> Any:
        """Return a live subject that gives every row the mean of all."""
        return Constant(float(np.mean(self.rows().targets)))

    def oracle(self) -> Any:
        return Recall(self.rows())


def regression_scores(
    targets: Sequence[float] | np.ndarray, predictions: Sequence[float] | np.ndarray
) -> Mapping[str, np.ndarray]:
    """Return the scores of `Regression`, one entry a row.

    Parameters
    ----------
    targets, predictions
        Values, ``(n,)``.

    Examples
    --------
    >>> regression_scores([1.0, 2.0], [1.5, 2.0])["squared_error"]
    array([0.25, 0.  ])
    """
    y, found = np.asarray(targets, float), np.asarray(predictions, float)
    with np.errstate(over="ignore"):
        square = (found - y) ** 2
    return {
        "absolute_error": np.abs(found - y),
        "squared_error": square,
        "target": y,
        "predicted": found,
    }


def _outcome(unit: Unit, scores: dict[str, float]) -> Outcome:
    prediction = scores["predicted"]
    if not math.isfinite(scores["squared_error"]):
        return Outcome(
            unit.id,
            status="error",
            error_kind="garbage",
            error=f"The subject predicted {prediction}, which is not a finite number to score.",
        )
    return Outcome(unit.id, scores, output={"prediction": prediction})
