"""Units, scores and outcomes: what was asked, how it is scored, what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from equipoise.core.errors import UsageError, nearest
from equipoise.core.language import Json, Message, Usage

Split = Literal["train", "calibration", "test"]

EXCUSED = ("reference", "tests", "user", "judge")
"""Kinds of error that are not the subject's: the benchmark's reference or its tests do not work,
or a simulated user or a judge failed. Such units are left out, in pairs, and never scored as the
worst."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing a task asks.

    Parameters
    ----------
    id
        Stable across processes and machines, unique in its task.
    content
        What the subject is given, as JSON.
    target
        What is right, as JSON.
    cluster
        Units of one cluster (passage, user, repository) are not independent.
    stratum
        A group to report apart, such as a subject or a depth.
    split
        Trials score ``test`` units; treatments may read the others only.
    """

    id: str
    content: Json = None
    target: Json = None
    cluster: str | None = None
    stratum: str | None = None
    split: Split = "test"


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """How to read one score.

    Parameters
    ----------
    name
        Key in an outcome's scores.
    higher_is_better
        Direction; None for a number that has none, such as a length.
    low, high
        Bounds, where there are any. Failed units take the worse one.
    unit
        Unit of measure for axes and tables, such as ``"nats per token"``.
    share
        A share of many things, such as the coverage of a whole draw: a 1 is no pass and a 0 no
        failure, even where every unit has one of them.
    """

    name: str
    higher_is_better: bool | None = True
    low: float | None = None
    high: float | None = None
    unit: str = ""
    share: bool = False

    @property
    def worst(self) -> float | None:
        """The value a failed unit gets, or None when there is no bound to take."""
        if self.higher_is_better is None or self.low is None or self.high is None:
            return None
        return self.low if self.higher_is_better else self.high

    @property
    def binary(self) -> bool:
        """Whether the bounds are 0 and 1; unless it is a share, the data decide if it is a pass."""
        return self.low == 0 and self.high == 1 and not self.share


@dataclass(slots=True)
class Outcome:
    """What came of one unit, before the engine adds arm, build and repeat.

    ``status`` is ``"ok"``, ``"error"`` (the unit failed; ``error_kind`` and
    ``error`` say how) or ``"limit"`` (a limit of tokens, time or steps ended
    it). ``artifacts`` maps names to bytes or arrays that a page can show.
    """

    unit: str
    scores: dict[str, float] = field(default_factory=dict)
    status: Literal["ok", "error", "limit"] = "ok"
    output: Json = None
    transcript: Sequence[Message] = ()
    artifacts: Mapping[str, bytes | np.ndarray] = field(default_factory=dict)
    error_kind: str | None = None
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float | None = None
    seed: int | None = None
    sandbox: str | None = None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The scores of one arm on one task as columns, all of length ``n``.

    Parameters
    ----------
    unit
        Unit numbers, the same in every arm of a task, shape ``(n,)``.
    scores
        Score name to float array; NaN where a score is missing.
    failed
        Units that ended in an error.
    excused
        Those of them for which the subject is not to blame, or None where there are none.
    cluster, stratum
        Integer codes or None; ``strata`` names the stratum codes.
    build, repeat
        Integers from 0.
    specs
        How each score is read.
    arm, task
        Labels for messages.

    Examples
    --------
    >>> Outcomes.of(correct=[1, 0, 1]).score("correct")
    array([1., 0., 1.])
    """

    unit: np.ndarray
    scores: Mapping[str, np.ndarray]
    failed: np.ndarray
    build: np.ndarray
    repeat: np.ndarray
    cluster: np.ndarray | None = None
    stratum: np.ndarray | None = None
    excused: np.ndarray | None = None
    strata: tuple[str, ...] = ()
    specs: tuple[ScoreSpec, ...] = ()
    arm: str = ""
    task: str = ""

    @classmethod
    def of(
        cls,
        *,
        cluster: Sequence[object] | np.ndarray | None = None,
        specs: Sequence[ScoreSpec] = (),
        **scores: Sequence[float] | np.ndarray,
    ) -> Outcomes:
        """Make outcomes from plain arrays, one unit a row."""
        columns = {name: np.asarray(values, float) for name, values in scores.items()}
        sizes = {len(values) for values in columns.values()}
        if len(sizes) != 1:
            raise UsageError(f"Outcomes: scores must have one length, got {sorted(sizes)}.")
        n = sizes.pop()
        codes = None if cluster is None else np.unique(np.asarray(cluster), return_inverse=True)[1]
        zeros = np.zeros(n, int)
        return cls(
            unit=np.arange(n),
            scores=columns,
            failed=np.zeros(n, bool),
            build=zeros,
            repeat=zeros,
            cluster=codes,
            specs=tuple(specs) or tuple(ScoreSpec(name) for name in columns),
        )

    def __len__(self) -> int:
        return len(self.unit)

    def score(self, name: str) -> np.ndarray:
        """Return a score's column, or raise `UsageError` with the nearest names."""
        if name not in self.scores:
            where = f"task {self.task}" if self.task else "these outcomes"
            raise UsageError(
                f'No score "{name}" in {where}.{nearest(name, self.scores)}'
                f" There are: {', '.join(self.scores) or 'none'}."
            )
        return self.scores[name]

    def spec(self, name: str) -> ScoreSpec:
        """Return how a score is read; an undeclared one is higher-is-better, unbounded."""
        return next((each for each in self.specs if each.name == name), ScoreSpec(name))

    def take(self, rows: np.ndarray) -> Outcomes:
        """Return the chosen rows, by index or mask; all of them in order without a copy."""
        if _all(rows, len(self)):
            return self
        return replace(
            self,
            unit=self.unit[rows],
            scores={name: values[rows] for name, values in self.scores.items()},
            failed=self.failed[rows],
            build=self.build[rows],
            repeat=self.repeat[rows],
            cluster=None if self.cluster is None else self.cluster[rows],
            stratum=None if self.stratum is None else self.stratum[rows],
            excused=None if self.excused is None else self.excused[rows],
        )

    @property
    def blamed(self) -> np.ndarray:
        """Failed units that the subject is to blame for."""
        return self.failed if self.excused is None else self.failed & ~self.excused


def _all(rows: np.ndarray, n: int) -> bool:
    if len(rows) != n:
        return False
    return bool(rows.all() if rows.dtype == bool else np.array_equal(rows, np.arange(n)))
