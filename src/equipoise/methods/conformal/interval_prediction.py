r"""Intervals for the values of table rows: do they hold them, and how wide are they?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from equipoise.core import (
    Outcome,
    PredictsInterval,
    Rng,
    ScoreSpec,
    Unit,
    UnitError,
    UsageError,
    between,
)
from equipoise.kit.arrays.conformal import checked_alphas
from equipoise.kit.arrays.examples import inputs_of
from equipoise.kit.data.source import Source
from equipoise.kit.data.table_task import Recall, TableTask, leaked
from equipoise.kit.data.targets import numbers
from equipoise.methods.conformal._levels import check_levels, level_score


@dataclass(frozen=True)
class IntervalPrediction(TableTask):
    r"""Give an interval for the value that goes with each row of a table.

    A unit is a row; its content is the list of its features. With :math:`[l, u]` the interval
    asked for at ``alpha`` and :math:`y` the value, the scores are

    - ``covered``: 1 when :math:`l \le y \le u`;
    - ``width``: :math:`u - l`;
    - ``interval_score``: :math:`u - l + \frac{2}{\alpha} \max(l - y, y - u, 0)`, which true
      quantiles make smallest (Winkler, 1972);
    - ``unbounded``: 1 when an end is infinite;
    - ``covered_at_A`` for every ``A`` of ``alphas``.

    An infinite interval covers and has no width or interval score: those two are then missing, so
    that a claim about them is withheld when more than one unit in a hundred has none. An interval
    whose ends are not numbers or in the wrong order is a failed unit, and so is a row that the
    subject has learned from or calibrated on.

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
    alpha
        Share of values that may lie outside, strictly between 0 and 1.
    alphas
        Further error rates, for a curve of coverage.

    Examples
    --------
    >>> task = IntervalPrediction("builtin:diabetes", alpha=0.2)
    >>> unit = next(unit for unit in task.units(Rng(0)) if unit.split == "test")
    >>> (outcome,) = task.perform(task.oracle(), [unit], Rng(0))
    >>> outcome.scores["covered"], outcome.scores["width"]
    (1.0, 0.0)
    """

    alpha: float = between(0.0, 1.0, default=0.1)
    alphas: tuple[float, ...] = ()

    needs = frozenset({PredictsInterval})
    scores = (
        ScoreSpec("covered", low=0.0, high=1.0),
        ScoreSpec("width", higher_is_better=False, low=0.0),
        ScoreSpec("interval_score", higher_is_better=False, low=0.0),
        ScoreSpec("unbounded", higher_is_better=False, low=0.0, high=1.0),
    )

    def check(self) -> None:
        super().check()
        check_levels(self)

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:diabetes")

    def targets(self, source: Source) -> tuple[Any, ...]:
        return numbers(source, self.target)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score a shard with one call of ``predict_interval`` for each error rate."""
        made = leaked(subject, units)
        asked = [unit for unit in units if unit.id not in made]
        if not asked:
            return [made[unit.id] for unit in units]
        inputs, targets = inputs_of(asked), np.array([unit.target for unit in asked])
        ends = _intervals(subject.predict_interval(inputs, self.alpha), len(asked))
        columns = dict(interval_scores(targets, ends, self.alpha))
        for alpha in self.alphas:
            more = _intervals(subject.predict_interval(inputs, alpha), len(asked))
            columns[level_score(alpha)] = interval_scores(targets, more, alpha)["covered"]
        for row, unit in enumerate(asked):
            made[unit.id] = _outcome(
                unit, ends[row], {k: float(v[row]) for k, v in columns.items()}
            )
        return [made[unit.id] for unit in units]

    def constant(self) -> Any:
        """Return a live subject that gives every row the mean of all, as an interval."""
        return _Same(float(np.mean(self.rows().targets)))

    def oracle(self) -> Any:
        return _RecallInterval(self.rows())


def interval_scores(
    targets: ArrayLike, intervals: ArrayLike, alpha: float
) -> Mapping[str, np.ndarray]:
    r"""Return the scores of `IntervalPrediction`, one entry a row.

    Parameters
    ----------
    targets
        Values, ``(n,)``.
    intervals
        Lower and upper ends, ``(n, 2)``; one or both may be infinite.
    alpha
        Error rate the intervals were asked for, in (0, 1).

    Returns
    -------
    dict of ndarray
        ``covered``, ``width``, ``interval_score`` and ``unbounded``, each ``(n,)``. Width and
        interval score are NaN where an end is infinite; all four are NaN where an end is not a
        number or the lower one is above the upper one.

    Raises
    ------
    UsageError
        If shapes do not fit or ``alpha`` is outside (0, 1).

    Examples
    --------
    >>> found = interval_scores([1.0, 5.0], [[0.0, 2.0], [0.0, 4.0]], alpha=0.5)
    >>> found["covered"], found["interval_score"]
    (array([1., 0.]), array([2., 8.]))
    """
    (level,) = checked_alphas(alpha)
    y, ends = np.asarray(targets, np.float64), np.asarray(intervals, np.float64)
    if ends.shape != (len(y), 2):
        raise UsageError(
            f"interval_scores: intervals must be of shape ({len(y)}, 2), got {ends.shape}."
        )
    low, high = ends.T
    bad = ~(low <= high)
    endless = np.isinf(ends).any(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        width = np.where(endless, np.nan, high - low)
        missed = np.maximum(np.maximum(low - y, y - high), 0)
        found = {
            "covered": ((low <= y) & (y <= high)).astype(float),
            "width": width,
            "interval_score": width + 2 / level * missed,
            "unbounded": endless.astype(float),
        }
    return {name: np.where(bad, np.nan, values) for name, values in found.items()}


def _outcome(unit: Unit, ends: np.ndarray, scores: dict[str, float]) -> Outcome:
    low, high = ends.tolist()
    levels = {name: value for name, value in scores.items() if name.startswith("covered")}
    if any(np.isnan(value) for value in levels.values()):
        return Outcome(
            unit.id,
            status="error",
            error_kind="garbage",
            error=f"The subject gave the interval [{low}, {high}], whose ends are not numbers in "
            f"rising order.",
        )
    kept = {name: value for name, value in scores.items() if not np.isnan(value)}
    said = [end if np.isfinite(end) else None for end in (low, high)]
    return Outcome(unit.id, kept, output={"interval": said})


def _intervals(found: Any, n: int) -> np.ndarray:
    try:
        ends = np.asarray(found, np.float64)
    except (TypeError, ValueError) as error:
        raise UnitError("The subject gave intervals that are not numbers.", "garbage") from error
    if ends.shape != (n, 2):
        raise UnitError(
            f"The subject gave intervals of shape {ends.shape} for {n} rows.", "garbage"
        )
    return ends


class _Same:
    def __init__(self, value: float) -> None:
        self._value = value

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        return np.full((len(inputs), 2), self._value)


class _RecallInterval(Recall):
    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        return np.repeat(self.predict(inputs)[:, None], 2, axis=1)
