r"""Survival on table rows: the curve of each row, scored although times are cut short."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from equipoise.core import (
    Measure,
    Outcome,
    PredictsSurvival,
    Rng,
    ScoreSpec,
    Unit,
    UnitError,
    UsageError,
    between,
    setting,
)
from equipoise.kit.arrays.examples import inputs_of
from equipoise.kit.arrays.survival import (
    StepCurve,
    brier_scores,
    censoring_curve,
    check_grid,
    kaplan_meier,
    times_and_events,
)
from equipoise.kit.data.identity import content_hash
from equipoise.kit.data.source import Source
from equipoise.kit.data.table_task import TableTask, leaked
from equipoise.methods.survival._rows import SHARES, curve_names, time_and_event_rows

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Survival(TableTask):
    r"""Tell how long each row of a table lasts, where many times are cut short.

    A unit is a row; its target is time and event. The subject gives the curve
    $\hat S(t) = P(T > t)$ at ten times, the tenths of ``horizon``. With $G$ the Kaplan-Meier curve
    of the censoring time over all rows, the scores are

    - ``brier``: the mean over the ten times of $\hat S(t)^2 / G(\tilde T-)$ where the event came
      by $t$, of $(1 - \hat S(t))^2 / G(t)$ where the row lasted beyond, 0 where it was lost from
      sight before (Graf et al., 1999);
    - ``brier_at_horizon``: the same at the horizon alone;
    - ``log_score``: minus the log of the probability given to the tenth in which the event came,
      or, where the row was lost or lasted, to all that is later, in nats;
    - ``risk``: the time out of the horizon that the curve expects to be lost, for ``concordance``
      beside ``time`` and ``event``;
    - ``survival_10`` to ``survival_100``: the curve, for ``kaplan_meier``, at these percents of
      ``horizon``.

    A curve that is not finite, leaves [0, 1] or rises is a failed unit, and so is a row that the
    subject has learned from.

    Parameters
    ----------
    data
        Path, ``hf:NAME`` or ``builtin:NAME`` (``gbsg2``, ``rossi``, ``lung``, ``larynx``,
        ``kidney_transplant`` of lifelines; ``flchain``, ``veterans``, ``whas500`` of
        scikit-survival); `equipoise.kit.data.read_rows` says which files.
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
    horizon
        Time up to which curves are scored, in the column's unit; by default the 80 % quantile of
        all times, events or not, or the last time beyond which a row is followed.

    Examples
    --------
    >>> task = Survival("builtin:rossi", horizon=50)
    >>> unit = next(unit for unit in task.units(Rng(0)) if unit.split == "test")
    >>> unit.content, unit.target
    ([0.0, 27.0, 1.0, 0.0, 0.0, 1.0, 3.0], [20.0, 1.0])
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
    horizon: float | None = between(0.0, np.inf, default=None)

    needs = frozenset({PredictsSurvival})
    scores = (
        ScoreSpec("brier", higher_is_better=False, low=0.0),
        ScoreSpec("brier_at_horizon", higher_is_better=False, low=0.0),
        ScoreSpec("log_score", higher_is_better=False, low=0.0, high=-np.log(_EPSILON),
                  unit="nats"),
        ScoreSpec("risk", higher_is_better=None, low=0.0),
        ScoreSpec("time", higher_is_better=None, low=0.0),
        ScoreSpec("event", higher_is_better=None, low=0.0, high=1.0),
        ScoreSpec("horizon", higher_is_better=None, low=0.0),
        *(ScoreSpec(name, higher_is_better=None, low=0.0, high=1.0) for name in curve_names()),
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        if self.horizon == 0:
            raise UsageError("Survival: horizon must be above 0.")

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:rossi")

    def answers(self) -> tuple[str, ...]:
        return self.target, self.event

    def targets(self, source: Source) -> tuple[Any, ...]:
        return time_and_event_rows(source, self.target, self.event)

    def grid(self) -> np.ndarray:
        """Return the ten times at which curves are scored."""
        return _scale(self, json.dumps(content_hash(self.data), sort_keys=True))[0]

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score a shard with one call of ``predict_survival``."""
        made = leaked(subject, units)
        asked = [unit for unit in units if unit.id not in made]
        if not asked:
            return [made[unit.id] for unit in units]
        grid, censoring = _scale(self, json.dumps(content_hash(self.data), sort_keys=True))
        curves = np.asarray(subject.predict_survival(inputs_of(asked), grid), float)
        if curves.shape != (len(asked), len(grid)):
            raise UnitError(
                f"The subject gave curves of shape {curves.shape} for {len(asked)} rows and "
                f"{len(grid)} times.",
                "garbage",
            )
        times, events = times_and_events([unit.target for unit in asked], "Survival")
        whole = _are_curves(curves)
        kept = np.where(whole[:, None], curves, 1)
        scores = survival_scores(times, events, kept, grid, censoring)
        for row, unit in enumerate(asked):
            if not whole[row]:
                made[unit.id] = Outcome(
                    unit.id,
                    status="error",
                    error_kind="garbage",
                    error="The subject gave a survival curve that is not finite, leaves 0 to 1, or "
                    "rises.",
                )
                continue
            values = {name: float(column[row]) for name, column in scores.items()}
            values |= dict(zip(curve_names(), map(float, curves[row]), strict=True))
            output = {"times": grid.tolist(), "survival": curves[row].tolist()}
            made[unit.id] = Outcome(unit.id, values, output=output)
        return [made[unit.id] for unit in units]

    def measures(self) -> Sequence[Measure]:
        from equipoise.methods.survival.concordance import Concordance
        from equipoise.methods.survival.kaplan_meier import KaplanMeier

        return Concordance(), KaplanMeier()

    def constant(self) -> Any:
        """Return a live subject that gives every row the Kaplan-Meier curve of all."""
        return _Alike(kaplan_meier(*times_and_events(self.rows().targets, "Survival")))

    def oracle(self) -> Any:
        return _Recall(self.rows())


@functools.lru_cache(maxsize=4)
def _scale(task: Survival, content: str) -> tuple[np.ndarray, StepCurve]:
    times, events = times_and_events(task.rows().targets, "Survival")
    if not events.any():
        raise UsageError(
            f'{task.data}: "{task.event}" is 0 in every row, so there is no event to predict.'
        )
    censoring = censoring_curve(times, events)
    followed = censoring.times[censoring.survival > 0].max(initial=0)
    end = min(float(np.quantile(times, 0.8)), followed) if task.horizon is None else task.horizon
    if not 0 < end <= followed:
        raise UsageError(
            f"{task.data}: no row is followed beyond the horizon {end:g}; it must be above 0 and "
            f"at most {followed:g}."
        )
    return end * np.array(SHARES), censoring


def survival_scores(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    survival: npt.ArrayLike,
    at: npt.ArrayLike,
    censoring: StepCurve | None = None,
) -> Mapping[str, np.ndarray]:
    r"""Return the scores of `Survival`, one entry a row.

    Parameters
    ----------
    times, events
        ``(n,)``.
    survival
        ``(n, k)``: the curve of each row.
    at
        ``(k,)``: the times they are about, rising; the last is the horizon.
    censoring
        Curve of the censoring time; by default from these rows.

    Examples
    --------
    >>> found = survival_scores([1, 3], [1, 0], [[0.5, 0.2], [0.9, 0.8]], [1, 2])
    >>> found["brier"], found["log_score"].round(2)
    (array([0.145, 0.025]), array([0.69, 0.22]))
    """
    t, e = np.asarray(times, float), np.asarray(events, bool)
    grid, curves = check_grid(at, "survival_scores"), np.asarray(survival, float)
    brier = brier_scores(t, e, curves, grid, censoring or censoring_curve(t, e))
    whole = np.concatenate([np.ones((len(t), 1)), curves, np.zeros((len(t), 1))], axis=1)
    row = np.arange(len(t))
    # The tenth (a, b] that holds the event; a row that is lost has at least lasted up to a.
    tenth = np.searchsorted(grid, t, side="left")
    lost = np.searchsorted(grid, t, side="right")
    given = np.where(e, whole[row, tenth] - whole[row, tenth + 1], whole[row, lost])
    steps = np.diff(grid, prepend=0.0)
    middle = (whole[:, :-2] + whole[:, 1:-1]) / 2
    return {
        "brier": brier.mean(axis=1),
        "brier_at_horizon": brier[:, -1],
        "log_score": -np.log(np.clip(given, _EPSILON, 1)),
        "risk": grid[-1] - middle @ steps,
        "time": t,
        "event": e.astype(float),
        "horizon": np.full(len(t), grid[-1]),
    }


def _are_curves(curves: np.ndarray) -> np.ndarray:
    near = 1e-6  # sums in single precision may rise by so much
    with np.errstate(invalid="ignore"):
        inside = ((curves >= 0) & (curves <= 1)).all(axis=1)
        falls = (np.diff(curves, axis=1) <= near).all(axis=1)
    return np.asarray(inside & falls)


class _Alike:
    def __init__(self, curve: StepCurve) -> None:
        self._curve = curve

    def predict_survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        return np.tile(self._curve.at(times), (len(inputs), 1))


class _Recall:
    """Knows when each row's event came; of equal rows it knows the first."""

    def __init__(self, rows: Any) -> None:
        self._ends: dict[bytes, float] = {}
        for values, (time, event) in zip(rows.inputs, rows.targets, strict=True):
            self._ends.setdefault(values.tobytes(), time if event else np.inf)

    def predict_survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        ends = [self._ends[row.tobytes()] for row in np.asarray(inputs, np.float64)]
        return (np.array(ends)[:, None] > times).astype(float)
