r"""Sets of labels for table rows: do they hold the right one, and how large are they?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from equipoise.core import (
    Outcome,
    PredictsSet,
    Rng,
    ScoreSpec,
    Unit,
    UnitError,
    UsageError,
    between,
)
from equipoise.kit.arrays.examples import inputs_of
from equipoise.kit.data.source import Source
from equipoise.kit.data.table_task import Recall, Rows, TableTask, leaked
from equipoise.kit.data.targets import classes
from equipoise.methods.conformal._levels import check_levels, level_score


@dataclass(frozen=True)
class SetPrediction(TableTask):
    r"""Give a set of labels for each row of a table.

    A unit is a row; its content is the list of its features. With :math:`C` the set asked for at
    ``alpha`` and :math:`y` the right class, the scores are

    - ``covered``: 1 when :math:`y \in C`;
    - ``set_size``: :math:`|C|`, labels that the data do not have included;
    - ``singleton_correct``: 1 when :math:`C = \{y\}`, an answer that needs no second look;
    - ``empty``: 1 when :math:`C` is empty;
    - ``covered_at_A`` for every ``A`` of ``alphas``.

    A row that the subject has learned from or calibrated on is a failed unit.

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
    alpha
        Share of rows whose set may lack the right label, strictly between 0 and 1.
    alphas
        Further error rates, for a curve of coverage.

    Examples
    --------
    >>> task = SetPrediction("builtin:iris")
    >>> unit = next(unit for unit in task.units(Rng(0)) if unit.split == "test")
    >>> (outcome,) = task.perform(task.oracle(), [unit], Rng(0))
    >>> outcome.scores["covered"], outcome.scores["set_size"]
    (1.0, 1.0)
    """

    alpha: float = between(0.0, 1.0, default=0.1)
    alphas: tuple[float, ...] = ()

    needs = frozenset({PredictsSet})
    scores = (
        ScoreSpec("covered", low=0.0, high=1.0),
        ScoreSpec("set_size", higher_is_better=False, low=0.0, unit="labels"),
        ScoreSpec("singleton_correct", low=0.0, high=1.0),
        ScoreSpec("empty", higher_is_better=False, low=0.0, high=1.0),
    )

    def check(self) -> None:
        super().check()
        check_levels(self)

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:iris")

    def targets(self, source: Source) -> tuple[Any, ...]:
        return classes(source, self.target)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score a shard with one call of ``predict_set`` for each error rate."""
        made = leaked(subject, units)
        asked = [unit for unit in units if unit.id not in made]
        if not asked:
            return [made[unit.id] for unit in units]
        inputs, labels = inputs_of(asked), [unit.target for unit in asked]
        names = np.asarray(subject.classes_).tolist()
        sets = _sets(subject.predict_set(inputs, self.alpha), len(asked), len(names))
        columns = dict(set_scores(labels, sets, names))
        for alpha in self.alphas:
            more = _sets(subject.predict_set(inputs, alpha), len(asked), len(names))
            columns[level_score(alpha)] = set_scores(labels, more, names)["covered"]
        for row, unit in enumerate(asked):
            held = [name for name, inside in zip(names, sets[row], strict=True) if inside]
            values = {name: float(column[row]) for name, column in columns.items()}
            made[unit.id] = Outcome(unit.id, values, output={"set": held})
        return [made[unit.id] for unit in units]

    def constant(self) -> Any:
        """Return a live subject that gives every row the first class alone."""
        return _First(self.rows())

    def oracle(self) -> Any:
        return _RecallSet(self.rows())


def set_scores(
    targets: Sequence[Any], sets: ArrayLike, classes: Sequence[Any]
) -> Mapping[str, np.ndarray]:
    """Return the scores of `SetPrediction`, one entry a row.

    Parameters
    ----------
    targets
        Right labels, ``(n,)``.
    sets
        True where a label is in the set, ``(n, classes)``.
    classes
        Labels of the columns.

    Returns
    -------
    dict of ndarray
        ``covered``, ``set_size``, ``singleton_correct`` and ``empty``, each ``(n,)``. A label
        that is not among ``classes`` is never covered.

    Raises
    ------
    UsageError
        If shapes do not fit.

    Examples
    --------
    >>> found = set_scores(["a", "b"], [[True, False], [True, True]], ["a", "b"])
    >>> found["set_size"], found["singleton_correct"]
    (array([1., 2.]), array([1., 0.]))
    """
    inside, names = np.asarray(sets, bool), list(classes)
    if inside.shape != (len(targets), len(names)):
        raise UsageError(
            f"set_scores: sets must be of shape ({len(targets)}, {len(names)}), got {inside.shape}."
        )
    right = np.array([[name == target for name in names] for target in targets], bool)
    covered = (inside & right.reshape(inside.shape)).any(axis=1)
    size = inside.sum(axis=1)
    return {
        "covered": covered.astype(float),
        "set_size": size.astype(float),
        "singleton_correct": (covered & (size == 1)).astype(float),
        "empty": (size == 0).astype(float),
    }


def _sets(found: Any, n: int, classes: int) -> np.ndarray:
    sets = np.asarray(found)
    if sets.shape != (n, classes):
        raise UnitError(
            f"The subject gave sets of shape {sets.shape} for {n} rows and {classes} classes.",
            "garbage",
        )
    if sets.dtype != bool and not np.isin(sets, (0, 1)).all():
        raise UnitError("The subject gave sets that are not true or false.", "garbage")
    return sets.astype(bool)


class _First:
    def __init__(self, rows: Rows) -> None:
        self.classes_ = np.array(rows.classes)

    def predict_set(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        return np.tile(np.arange(len(self.classes_)) == 0, (len(inputs), 1))


class _RecallSet(Recall):
    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.classes_ = np.array(rows.classes)

    def predict_set(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        found: np.ndarray = self.predict(inputs)[:, None] == self.classes_[None, :]
        return found
