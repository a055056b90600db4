r"""Classification of table rows: labels, and probabilities where the subject gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import (
    Outcome,
    Predicts,
    PredictsProba,
    Rng,
    ScoreSpec,
    Split,
    Unit,
    UnitError,
    UsageError,
)
from equipoise.kit.arrays.examples import inputs_of
from equipoise.kit.data.source import Source
from equipoise.kit.data.table_task import (
    Constant,
    RecallProba,
    TableTask,
    leaked,
    stratified,
)
from equipoise.kit.data.targets import classes

_EPSILON = float(np.finfo(np.float64).eps)
_SUM_TOLERANCE = 1e-3  # half-precision softmax over a few hundred classes stays inside


@dataclass(frozen=True)
class Classification(TableTask):
    r"""Tell the class of each row of a table.

    A unit is a row; its content is the list of its features. With $p$ the
    probabilities given and $y$ the right class, the scores are

    - ``correct``: 1 when the predicted label is right;
    - ``log_loss``: $-\ln p_y$ in nats, $p_y$ taken as at least $2^{-52}$;
    - ``brier``: $\sum_k (p_k - [k = y])^2$, from 0 to 2 (Brier, 1950);
    - ``true_probability``: $p_y$, 0 for a class the subject does not know;
    - ``confidence``: the probability of the predicted label;
    - ``probability``: of two classes, that of the second, as measures such as
      ``auroc`` and ``expected_calibration_error`` read it beside ``label``;
    - ``label``, ``predicted``: numbers of the classes in sorted order, from 0.

    All but ``correct``, ``label`` and ``predicted`` need a subject that gives
    probabilities. A row whose probabilities are not finite, negative or do not
    sum to 1 is a failed unit, and so is one that the subject has learned from.

    Parameters
    ----------
    data
        Path, ``hf:NAME`` or ``builtin:NAME`` (``digits``, ``iris``, ``wine``,
        ``breast_cancer``); `equipoise.kit.data.read_rows` says which files.
    target
        Column with the class: text, integers, or true and false.
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
    stratified
        Give every class its fractions, to the nearest row. Appended rows may
        then move others.

    Examples
    --------
    >>> task = Classification("builtin:iris")
    >>> unit = next(unit for unit in task.units(Rng(0)) if unit.split == "test")
    >>> unit.content, unit.target
    ([4.9, 3.0, 1.4, 0.2], 'setosa')
    """

    stratified: bool = False

    needs = frozenset({Predicts})
    scores = (
        ScoreSpec("correct", low=0.0, high=1.0),
        ScoreSpec("log_loss", higher_is_better=False, low=0.0, high=-np.log(_EPSILON), unit="nats"),
        ScoreSpec("brier", higher_is_better=False, low=0.0, high=2.0),
        ScoreSpec("true_probability", low=0.0, high=1.0),
        ScoreSpec("confidence", higher_is_better=None, low=0.0, high=1.0),
        ScoreSpec("probability", higher_is_better=None, low=0.0, high=1.0),
        ScoreSpec("label", higher_is_better=None),
        ScoreSpec("predicted", higher_is_better=None),
    )

    def check(self) -> None:
        super().check()
        if self.stratified and (self.cluster or self.split):
            other = "cluster" if self.cluster else "split"
            raise UsageError(
                f"Classification: stratified and {other} cannot go together; drop one."
            )

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:iris")

    def targets(self, source: Source) -> tuple[Any, ...]:
        return classes(source, self.target, " (for other numbers there is the task regression)")

    def split_groups(self, keys: Sequence[str], targets: Sequence[Any]) -> list[Split]:
        if not self.stratified:
            return super().split_groups(keys, targets)
        return stratified(keys, targets, self.train, self.calibration, self.split_seed)

    def classes(self) -> tuple[Any, ...]:
        """Return the classes in the order of their numbers."""
        return self.rows().classes

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score a shard with one call of ``predict`` and one of ``predict_proba``."""
        failures = leaked(subject, units)
        asked = [unit for unit in units if unit.id not in failures]
        if not asked:
            return [failures[unit.id] for unit in units]
        inputs, classes = inputs_of(asked), self.classes()
        predictions = _labels(subject.predict(inputs), len(asked))
        probabilities = None
        if isinstance(subject, PredictsProba):
            probabilities = _aligned(
                subject.predict_proba(inputs), subject.classes_, classes, len(asked)
            )
        scores = classification_scores(
            [unit.target for unit in asked], predictions, probabilities, classes
        )
        made = failures
        for row, unit in enumerate(asked):
            if probabilities is not None and np.isnan(probabilities[row, 0]):
                made[unit.id] = Outcome(
                    unit.id,
                    status="error",
                    error_kind="garbage",
                    error="The subject gave probabilities that are not finite, or negative, or do "
                    "not sum to 1.",
                )
                continue
            output: dict[str, Any] = {"prediction": predictions[row]}
            if probabilities is not None:
                output["probabilities"] = probabilities[row].tolist()
            values = {name: float(column[row]) for name, column in scores.items()}
            if values["predicted"] < 0:  # a label that the data do not have
                del values["predicted"]
            made[unit.id] = Outcome(unit.id, values, output=output)
        return [made[unit.id] for unit in units]

    def constant(self) -> Any:
        """Return a live subject that gives every row the first class."""
        return Constant(self.classes()[0])

    def oracle(self) -> Any:
        return RecallProba(self.rows())


def classification_scores(
    targets: Sequence[Any],
    predictions: Sequence[Any],
    probabilities: np.ndarray | None = None,
    classes: Sequence[Any] | None = None,
) -> Mapping[str, np.ndarray]:
    """Return the scores of `Classification`, one entry a row.

    Parameters
    ----------
    targets, predictions
        Labels, ``(n,)``.
    probabilities
        ``(n, classes)``, a column for each of ``classes``; they may sum to less
        than 1 where the subject knows classes that the data do not have.
    classes
        In the order of the columns; by default the sorted targets.

    Returns
    -------
    dict of ndarray
        Each ``(n,)``. ``predicted`` is -1 for a label outside ``classes``.

    Examples
    --------
    >>> found = classification_scores(["a", "b"], ["a", "a"], np.array([[0.8, 0.2], [0.5, 0.5]]))
    >>> found["correct"], found["brier"].round(2)
    (array([1., 0.]), array([0.08, 0.5 ]))
    """
    known = sorted(set(targets)) if classes is None else list(classes)
    number = {name: code for code, name in enumerate(known)}
    label = np.array([number[each] for each in targets], int)
    prediction = np.array([number.get(each, -1) for each in predictions], int)
    scores = {"correct": (label == prediction).astype(float), "label": label.astype(float)}
    scores["predicted"] = prediction.astype(float)
    if probabilities is None:
        return scores
    row = np.arange(len(label))
    right = probabilities[row, label]
    # Probability on classes the data do not have is as wrong as on any other wrong class, taken
    # as one class.
    outside = np.clip(1 - probabilities.sum(axis=1), 0, None)
    square = (probabilities**2).sum(axis=1) + outside**2 - 2 * right + 1
    held = np.where(prediction >= 0, probabilities[row, prediction], outside)
    scores |= {
        "true_probability": right,
        "brier": np.clip(square, 0, 2),
        "log_loss": -np.log(np.clip(right, _EPSILON, 1)),
        "confidence": held,
    }
    if len(known) == 2:
        scores["probability"] = probabilities[:, 1]
    return scores


def _labels(found: Any, n: int) -> list[Any]:
    found = np.asarray(found)
    if found.shape == (n, 1):
        found = found[:, 0]
    if found.shape != (n,):
        raise UnitError(
            f"The subject gave predictions of shape {found.shape} for {n} rows.", "garbage"
        )
    labels: list[Any] = found.tolist()
    return labels


def _aligned(found: Any, given: Any, classes: Sequence[Any], n: int) -> np.ndarray:
    """Return probabilities with a column for each of ``classes``; unknown ones get 0.

    Rows that are no probabilities become NaN.
    """
    found, names = np.asarray(found, float), np.asarray(given).tolist()
    if found.shape != (n, len(names)):
        raise UnitError(
            f"The subject gave probabilities of shape {found.shape} for {n} rows and "
            f"{len(names)} classes.",
            "garbage",
        )
    bad = ~np.isfinite(found).all(axis=1) | (found < 0).any(axis=1)
    bad |= np.abs(found.sum(axis=1) - 1) > _SUM_TOLERANCE
    column = {name: place for place, name in enumerate(names)}
    result = np.zeros((n, len(classes)))
    for place, name in enumerate(classes):
        if name in column:
            result[:, place] = found[:, column[name]]
    result[bad] = np.nan
    return result
