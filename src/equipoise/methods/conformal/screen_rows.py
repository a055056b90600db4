r"""Which rows of a table are abnormal? Test rows are asked in families, each screened together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from equipoise.core import (
    Outcome,
    Rng,
    ScoreSpec,
    Screens,
    Task,
    Unit,
    UsageError,
    between,
    setting,
)
from equipoise.kit.arrays.examples import row_digest
from equipoise.kit.data.identity import content_hash, position, split_of, unit_id
from equipoise.kit.data.rows import kind_of, load
from equipoise.kit.data.source import Source
from equipoise.kit.data.tables import feature_names, matrix
from equipoise.methods.conformal._screened import outlier_scores, screened

_WRONG = ScoreSpec("false_discovery_proportion", higher_is_better=False, low=0.0, high=1.0)
_FLAGGED = ScoreSpec("flagged", higher_is_better=None, low=0.0, high=1.0)


@dataclass(frozen=True)
class ScreenRows(Task):
    r"""Find the abnormal rows of a table, with a false discovery rate.

    A unit is a family of test rows that are screened together; its output holds the ids of the
    flagged rows and their p-values, the strangest first. With ``truth`` the scores are ``power``
    (share of the abnormal rows found; missing where a family has none),
    ``false_discovery_proportion`` (share of the flagged that are not abnormal) and ``flagged``, the
    share of all rows; without it, ``flagged`` alone. Rows known to be abnormal are never
    train or calibration rows: a test needs these to be normal. A family with a row that the
    subject has learned from fails.

    Parameters
    ----------
    data
        Path, ``hf:NAME`` or ``builtin:NAME``; `equipoise.kit.data.read_rows` says which files.
    target
        Column with the value that may be strange given the features, finite numbers; None where
        rows are strange by themselves.
    truth
        Column that says which rows are abnormal, where that is known.
    abnormal
        Value of ``truth``, as text, that says so; by default true and 1.
    features
        Columns to predict from; by default all that are left.
    family
        Column that says which rows are screened together, such as a month.
    families
        Without it, the number of families that test rows are dealt to, by a hash of their
        features.
    alpha
        False discovery rate asked for.
    train, calibration
        Fractions of rows; the rest is tested.
    split_seed
        Another seed gives another split.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from equipoise.core import learnable
    >>> from equipoise.kit.arrays.learners import Untrained
    >>> from equipoise.methods.conformal import LocalizedOutlierTest
    >>> task = ScreenRows("builtin:diabetes", target="target", families=1)
    >>> learner = LocalizedOutlierTest(given=(2,)).apply(Untrained(LinearRegression()), Rng(0))
    >>> rows = learnable(task, Rng(0)) + learnable(task, Rng(0), "calibration")
    >>> fitted = learner.fit(rows, Rng(0))
    >>> family = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    >>> found = task.perform(fitted, family, Rng(0))[0]
    >>> len(found.output["flagged"]), found.scores["flagged"]
    (0, 0.0)
    """

    data: str = setting()
    target: str | None = None
    truth: str | None = None
    abnormal: str | None = None
    features: tuple[str, ...] = ()
    family: str | None = None
    families: int = between(1, 100_000, default=10)
    alpha: float = between(1e-6, 0.999999, default=0.1)
    train: float = between(0.01, 0.98, default=0.4)
    calibration: float = between(0.01, 0.98, default=0.3)
    split_seed: int = between(0, 2**31 - 1, default=0)

    needs = frozenset({Screens})
    scores = (ScoreSpec("power", low=0.0, high=1.0), _WRONG, _FLAGGED)
    batch = 1

    def check(self) -> None:
        if self.train + self.calibration >= 1:
            raise UsageError(
                f"ScreenRows: train and calibration must be below 1 together so that rows are "
                f"left to test, got {self.train} and {self.calibration}."
            )
        if self.abnormal is not None and self.truth is None:
            raise UsageError("ScreenRows: abnormal is a value of truth; name that column too.")
        if self.truth is None:
            object.__setattr__(self, "scores", (_FLAGGED,))

    def content(self) -> Any:
        return content_hash(self.data)

    @classmethod
    def tiny(cls) -> Self:
        return cls(
            "builtin:breast_cancer", truth="target", abnormal="malignant", families=3,
            features=("mean_radius", "mean_texture", "mean_smoothness"),
        )  # fmt: skip

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield normal train and calibration rows, then the families of test rows."""
        table = _read(self, json.dumps(content_hash(self.data), sort_keys=True))
        families: dict[str, list[int]] = {}
        for row, key in enumerate(table.keys):
            split = split_of(
                key, train=self.train, calibration=self.calibration, seed=self.split_seed
            )
            if split == "test":
                families.setdefault(table.families[row], []).append(row)
            elif not table.abnormal[row]:
                yield table.unit(row, split=split)
        if not families:
            raise UsageError(
                f"{self.data}: none of its {len(table.keys)} rows is left to test; lower train and "
                f"calibration, or give more rows."
            )
        for name in sorted(families):
            rows = families[name]
            yield Unit(
                f"family-{name}",
                content={"ids": [table.ids[r] for r in rows], "rows": table.inputs[rows].tolist()},
                target={
                    "values": [table.targets[r] for r in rows],
                    "abnormal": [bool(table.abnormal[r]) for r in rows],
                },
            )

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Screen each family."""
        return [self._one(subject, unit, rng.child(unit.id)) for unit in units]

    def _one(self, subject: Any, unit: Unit, rng: Rng) -> Outcome:
        content: Any = unit.content
        target: Any = unit.target
        if self._seen(subject, content, target):
            return Outcome(
                unit.id,
                status="error",
                error_kind="leak",
                error="The subject has learned from a row of this family; give the task and the "
                "training data the same split.",
            )
        rows = np.asarray(content["rows"], np.float64)
        values = None if self.target is None else np.asarray(target["values"], np.float64)
        p, flagged = screened(subject.screen(rows, values, self.alpha, rng), (len(rows),))
        scores = outlier_scores(flagged, np.asarray(target["abnormal"], bool))
        if self.truth is None:
            scores = {"flagged": scores["flagged"]}
        strangest = sorted(np.flatnonzero(flagged).tolist(), key=lambda row: float(p[row]))
        output = {
            "flagged": [content["ids"][row] for row in strangest],
            "p_values": [float(p[row]) for row in strangest],
            "rows": len(rows),
        }
        return Outcome(unit.id, scores, output=output)

    def _seen(self, subject: Any, content: Any, target: Any) -> bool:
        learned = getattr(subject, "learned_from", None)
        if not learned:
            return False
        rows = zip(content["ids"], content["rows"], target["values"], strict=True)
        return any(row_digest(Unit(name, row, value)) in learned for name, row, value in rows)

    def constant(self) -> Any:
        """Return a live subject that flags nothing."""
        return _Flags({})

    def oracle(self) -> Any:
        """Return a live subject that knows which rows are abnormal."""
        table = _read(self, json.dumps(content_hash(self.data), sort_keys=True))
        known = {
            row.tobytes(): bool(a) for row, a in zip(table.inputs, table.abnormal, strict=True)
        }
        return _Flags(known)


class _Flags:
    """Flags the rows it knows to be abnormal."""

    def __init__(self, known: dict[bytes, bool]) -> None:
        self._known = known

    def screen(
        self, inputs: np.ndarray, targets: np.ndarray | None, alpha: float, rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        flagged = np.array([self._known.get(row.tobytes(), False) for row in inputs], bool)
        return 1.0 - flagged, flagged


@dataclass(frozen=True, slots=True)
class _Table:
    inputs: np.ndarray
    targets: tuple[float, ...]
    abnormal: np.ndarray
    ids: tuple[str, ...]
    keys: tuple[str, ...]
    families: tuple[str, ...]

    def unit(self, row: int, split: Any) -> Unit:
        return Unit(self.ids[row], self.inputs[row].tolist(), self.targets[row], split=split)


@lru_cache(maxsize=4)
def _read(task: ScreenRows, content: str) -> _Table:
    named = [each for each in (task.target, task.truth, task.family) if each is not None]
    source = load(task.data, columns=[*named, *task.features])
    inputs = matrix(source, feature_names(source, set(named), task.features))
    keys = tuple(row.tobytes().hex() for row in inputs)
    if task.family is None:
        width = len(str(task.families - 1))
        families = tuple(
            f"{int(task.families * position(f'family {key}', task.split_seed)):0{width}d}"
            for key in keys
        )
    else:
        families = tuple(str(row[task.family]) for row in source.rows)
    return _Table(
        inputs,
        _targets(source, task.target),
        _abnormal(source, task),
        tuple(unit_id(row, index) for index, row in enumerate(source.rows)),
        keys,
        families,
    )


def _targets(source: Source, name: str | None) -> tuple[float, ...]:
    """Return the values, 0 where no column is named."""
    if name is None:
        return (0.0,) * len(source.rows)
    return tuple(matrix(source, [name])[:, 0].tolist())


def _abnormal(source: Source, task: ScreenRows) -> np.ndarray:
    found = np.zeros(len(source.rows), bool)
    if task.truth is None:
        return found
    for index, row in enumerate(source.rows):
        value = row[task.truth]
        if task.abnormal is not None:
            found[index] = str(value) == task.abnormal
        elif isinstance(value, (bool, int, float)) and value in (0, 1):
            found[index] = bool(value)
        else:
            raise UsageError(
                f'{source.at(index)}: "{task.truth}" is {value!r}, {kind_of(value)}; truth is true '
                f"or false, or 1 or 0, or give the value that says a row is abnormal as abnormal."
            )
    if not found.any():
        raise UsageError(
            f'{task.data}: no row is abnormal by "{task.truth}"; look at its values and abnormal, '
            f"or leave truth out."
        )
    return found
