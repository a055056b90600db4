r"""Lower bounds on the survival times of table rows, and what can be said of their coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcome,
    Outcomes,
    PredictsInterval,
    Rng,
    ScoreSpec,
    Series,
    Unit,
    UnitError,
    UsageError,
    between,
    setting,
)
from equipoise.kit.arrays.examples import inputs_of
from equipoise.kit.arrays.survival import kaplan_meier, times_and_events
from equipoise.kit.data.source import Source
from equipoise.kit.data.table_task import Rows, TableTask, leaked
from equipoise.kit.statistics import single
from equipoise.methods.survival._rows import observed, time_and_event_rows

_MOST = 100  # points of a drawn curve


@dataclass(frozen=True)
class SurvivalBounds(TableTask):
    r"""Bound from below how long each row of a table lasts, where many times are cut short.

    A unit is a row; its target is time $\tilde T$ and event $e$. Whether $T \ge L$ is not known of
    a row that was lost before its bound $L$, so that the share of bounds that hold lies between
    two numbers:

    - ``coverage_low``: 1 when $\tilde T \ge L$, which is known to hold;
    - ``coverage_high``: 1 when $\tilde T \ge L$ or the row was lost, which may hold;
    - ``bound``: $L$; a larger one says more;
    - ``time`` and ``event``, for measures.

    A bound that is not a finite number is a failed unit, and so is a row that the subject has
    learned from.

    Parameters
    ----------
    data
        Path, ``hf:NAME`` or ``builtin:NAME`` (such as ``gbsg2``);
        `equipoise.kit.data.read_rows` says which files.
    target
        Column with the time to the event or to when the row was lost: numbers from 0.
    event
        Column that is 1 or true where the event was seen, 0 or false where not.
    features
        Columns to predict from; by default all that are left.
    cluster
        Column whose rows of one value are not independent and share a split.
    stratum
        Column with a group to report apart.
    split
        Column that says ``train``, ``calibration`` or ``test``; without it rows are split by a
        hash of their features, so that equal rows share a split and appended rows move no others.
    train, calibration
        Fractions of rows; the rest is tested.
    split_seed
        Another seed gives another split.
    alpha
        Share of rows that may last shorter than their bound.

    Examples
    --------
    >>> task = SurvivalBounds("builtin:gbsg2", alpha=0.1)
    >>> unit = next(unit for unit in task.units(Rng(0)) if unit.split == "test")
    >>> task.perform(task.oracle(), [unit], Rng(0))[0].scores
    {'coverage_low': 1.0, 'coverage_high': 1.0, 'bound': 1814.0, 'time': 1814.0, 'event': 1.0}
    """

    # Inherited fields again, in the order people give them.
    data: str = setting()
    target: str = "time"
    event: str = "event"
    features: tuple[str, ...] = ()
    cluster: str | None = None
    stratum: str | None = None
    split: str | None = None
    train: float = between(0.0, 0.99, default=0.5)
    calibration: float = between(0.0, 0.99, default=0.2)
    split_seed: int = between(0, 2**31 - 1, default=0)
    alpha: float = between(0.001, 0.999, default=0.1)

    needs = frozenset({PredictsInterval})
    scores = (
        ScoreSpec("coverage_low", low=0.0, high=1.0),
        ScoreSpec("coverage_high", low=0.0, high=1.0),
        ScoreSpec("bound"),
        ScoreSpec("time", higher_is_better=None, low=0.0),
        ScoreSpec("event", higher_is_better=None, low=0.0, high=1.0),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:gbsg2")

    def answers(self) -> tuple[str, ...]:
        return self.target, self.event

    def targets(self, source: Source) -> tuple[Any, ...]:
        return time_and_event_rows(source, self.target, self.event)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score a shard with one call of ``predict_interval``."""
        made = leaked(subject, units)
        asked = [unit for unit in units if unit.id not in made]
        if not asked:
            return [made[unit.id] for unit in units]
        found = np.asarray(subject.predict_interval(inputs_of(asked), self.alpha), float)
        if found.shape != (len(asked), 2):
            raise UnitError(
                f"The subject gave intervals of shape {found.shape} for {len(asked)} rows.",
                "garbage",
            )
        times, events = times_and_events([unit.target for unit in asked], "SurvivalBounds")
        scores = bound_scores(times, events, found[:, 0])
        for row, unit in enumerate(asked):
            if not np.isfinite(found[row, 0]):
                made[unit.id] = Outcome(
                    unit.id, status="error", error_kind="garbage",
                    error="The subject gave a lower bound that is not a finite number.",
                )  # fmt: skip
                continue
            values = {name: float(column[row]) for name, column in scores.items()}
            made[unit.id] = Outcome(unit.id, values, output={"bound": values["bound"]})
        return [made[unit.id] for unit in units]

    def measures(self) -> Sequence[Measure]:
        return (CensoredCoverageBounds(),)

    def constant(self) -> Any:
        """Return a live subject that bounds every row by the longest time."""
        return _Bounds(None, max(time for time, _ in self.rows().targets))

    def oracle(self) -> Any:
        return _Bounds(self.rows(), 0.0)


def bound_scores(
    times: npt.ArrayLike, events: npt.ArrayLike, bounds: npt.ArrayLike
) -> Mapping[str, np.ndarray]:
    r"""Return the scores of `SurvivalBounds`, one entry a row.

    Parameters
    ----------
    times, events, bounds
        ``(n,)``.

    Examples
    --------
    >>> found = bound_scores([5, 3, 2], [1, 0, 1], [4, 4, 4])
    >>> found["coverage_low"], found["coverage_high"]
    (array([1., 0., 0.]), array([1., 1., 0.]))
    """
    t, e, bound = (np.asarray(each, float) for each in (times, events, bounds))
    known = t >= bound
    return {
        "coverage_low": known.astype(float),
        "coverage_high": (known | (e == 0)).astype(float),
        "bound": bound,
        "time": t,
        "event": e,
    }


@dataclass(frozen=True)
class CensoredCoverageBounds(Measure):
    r"""The two numbers between which the coverage of lower bounds lies, and the mean bound.

    ``lower`` is the share of rows that were seen to last as long as their bound, ``upper`` adds
    those that were lost before it. Each has the interval of a proportion; the coverage of new
    rows lies between the low end of the one and the high end of the other. The figure shows how
    large the bounds of each arm are beside the Kaplan-Meier curve of the times.

    Parameters
    ----------
    level
        Coverage each interval aims for.

    References
    ----------
    "Conformalized Survival Analysis for General Right-Censored Data", ICLR 2025.

    Examples
    --------
    >>> scores = bound_scores([5, 3, 2, 7], [1, 0, 1, 1], [1, 4, 1, 1])
    >>> table = CensoredCoverageBounds().measure(Outcomes.of(**scores), Rng(0))
    >>> table["lower"].value, table["upper"].value, table["mean bound"].value
    (0.75, 1.0, 1.75)
    """

    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, dict[str, float]]:
        r"""Return exponential times, cut short at a rate of one half, and bounds around 0.1.

        With a bound $L$ uniform on $[0, 0.2]$ the row is seen to last with chance
        $E\, e^{-1.5 L}$, and lost before with chance $(1 - E\, e^{-1.5 L}) / 3$.
        """
        generator = rng.numpy()
        times, cut = generator.exponential(size=150), generator.exponential(2.0, 150)
        bounds = generator.uniform(0, 0.2, 150)
        scores: dict[str, Any] = dict(bound_scores(np.minimum(times, cut), times <= cut, bounds))
        lasts = (1 - np.exp(-0.3)) / 0.3
        upper = lasts + (1 - lasts) / 3
        return Outcomes.of(**scores), {"lower": lasts, "upper": upper, "mean bound": 0.1}

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return ``lower``, ``upper`` and ``mean bound``; ``rng`` is not used."""
        rows = _complete(outcomes)
        once = len(np.unique(rows.unit)) == len(rows)
        columns = {"lower": "coverage_low", "upper": "coverage_high", "mean bound": "bound"}
        table = {}
        for name, score in columns.items():
            x = rows.score(score)
            if once and score != "bound":
                table[name] = single.proportion(x, clusters=rows.cluster, level=self.level)
            else:
                table[name] = single.mean(
                    x, units=rows.unit, clusters=rows.cluster,
                    builds=rows.build if len(np.unique(rows.build)) > 1 else None,
                    level=self.level,
                )  # fmt: skip
        return table

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the curve of the times, and the share of bounds above each time by arm."""
        first = _complete(next(iter(outcomes.values())))
        curve = kaplan_meier(first.score("time"), first.score("event"), level=self.level)
        kept = _some(len(curve.times))
        series = [observed("observed", curve, kept)]
        for arm, each in outcomes.items():
            bounds = np.sort(_complete(each).score("bound"))
            above = 1 - np.arange(1, len(bounds) + 1) / len(bounds)
            kept = _some(len(bounds))
            x, y = [0.0, *bounds[kept].tolist()], [1.0, *above[kept].round(4).tolist()]
            series.append(Series(f"{arm}, bounds", x, y, look="step"))
        return Figure(
            "Lower bounds beside survival",
            "time",
            "share above",
            series,
            "The further right the steps of an arm, the more its bounds say; the observed curve "
            "is Kaplan and Meier's, with pointwise intervals.",
        )


def _some(n: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, _MOST)).astype(int))


def _complete(outcomes: Outcomes) -> Outcomes:
    names = ("coverage_low", "coverage_high", "bound", "time", "event")
    whole = ~np.isnan(np.stack([outcomes.score(name) for name in names])).any(axis=0)
    if not whole.any():
        raise UsageError(f"CensoredCoverageBounds: no row has a bound in arm {outcomes.arm}.")
    return outcomes.take(whole)


class _Bounds:
    """Bounds each row by its own time, or all by one number."""

    def __init__(self, rows: Rows | None, otherwise: float) -> None:
        self._known: dict[bytes, float] = {}
        self._otherwise = otherwise
        if rows is not None:
            for values, (time, _) in zip(rows.inputs, rows.targets, strict=True):
                key = values.tobytes()
                self._known[key] = min(time, self._known.get(key, np.inf))

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        keys = [row.tobytes() for row in np.asarray(inputs, np.float64)]
        low = np.array([self._known.get(key, self._otherwise) for key in keys])
        return np.column_stack([low, np.full(len(low), np.inf)])
