"""What tasks on tables share: rows as units, and their splits."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import Outcome, Rng, Split, Task, Unit, UsageError, between, setting
from equipoise.kit.arrays.examples import row_digest
from equipoise.kit.data.identity import content_hash, position, split_of, unit_id
from equipoise.kit.data.rows import load
from equipoise.kit.data.source import Source
from equipoise.kit.data.tables import feature_names, matrix

_SPLITS: dict[Any, Split] = {
    "train": "train", "calibration": "calibration", "validation": "calibration", "test": "test",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """A table as a task needs it; every sequence but ``classes`` has one entry a row."""

    inputs: np.ndarray
    targets: tuple[Any, ...]
    classes: tuple[Any, ...]
    ids: tuple[str, ...]
    clusters: tuple[str | None, ...]
    strata: tuple[str | None, ...]
    splits: tuple[Split, ...]


@dataclass(frozen=True)
class TableTask(Task):
    """Rows of a table, split by content so that equal rows stay together."""

    data: str = setting()
    target: str = "target"
    features: tuple[str, ...] = ()
    cluster: str | None = None
    stratum: str | None = None
    split: str | None = None
    train: float = between(0.0, 0.99, default=0.5)
    calibration: float = between(0.0, 0.99, default=0.2)
    split_seed: int = between(0, 2**31 - 1, default=0)

    def check(self) -> None:
        if self.train + self.calibration >= 1:
            raise UsageError(
                f"{type(self).__name__}: train and calibration must be below 1 together so that "
                f"rows are left to test, got {self.train} and {self.calibration}."
            )

    def content(self) -> Any:
        return content_hash(self.data)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the rows; splits follow their content and ``split_seed``, not ``rng``."""
        rows = self.rows()
        for row, values in enumerate(rows.inputs):
            yield Unit(
                rows.ids[row],
                content=values.tolist(),
                target=rows.targets[row],
                cluster=rows.clusters[row],
                stratum=rows.strata[row],
                split=rows.splits[row],
            )

    def rows(self) -> Rows:
        """Return the table; read once while the file stays as it is."""
        key = json.dumps(content_hash(self.data), sort_keys=True)
        return _read(self, key)

    def answers(self) -> tuple[str, ...]:
        """Return the columns that tell what is right, and so are no features."""
        return (self.target,)

    def targets(self, source: Source) -> tuple[Any, ...]:
        """Return the targets as JSON, refusing those the task cannot score."""
        raise NotImplementedError

    def split_groups(self, keys: Sequence[str], targets: Sequence[Any]) -> list[Split]:
        """Return the split of each row; rows of one key are in one split."""
        return [
            split_of(k, train=self.train, calibration=self.calibration, seed=self.split_seed)
            for k in keys
        ]


@functools.lru_cache(maxsize=4)
def _read(task: TableTask, content: str) -> Rows:
    data = task.data
    others = [each for each in (task.cluster, task.stratum, task.split) if each is not None]
    answers = task.answers()
    source = load(data, columns=[*answers, *task.features, *others])
    names = feature_names(source, {*answers, *others}, task.features)
    inputs = matrix(source, names)
    targets = task.targets(source)
    clusters = _column(source, task.cluster)
    splits = _split_column(source, task.split) if task.split else None
    if splits is None:
        equal = [row.tobytes().hex() for row in inputs]
        keys = equal if task.cluster is None else [f"cluster {each}" for each in clusters]
        splits = task.split_groups(keys, targets)
    if "test" not in splits:
        raise UsageError(
            f"{data}: none of its {len(splits)} rows is left to test; "
            f"lower train and calibration, or give more rows."
        )
    return Rows(
        inputs,
        targets,
        tuple(sorted(set(targets))) if isinstance(targets[0], (str, int)) else (),
        tuple(unit_id(row, index) for index, row in enumerate(source.rows)),
        clusters,
        _column(source, task.stratum),
        tuple(splits),
    )


def _column(source: Source, name: str | None) -> tuple[str | None, ...]:
    if name is None:
        return (None,) * len(source.rows)
    return tuple(str(row[name]) for row in source.rows)


def _split_column(source: Source, name: str) -> list[Split]:
    found = []
    for index, row in enumerate(source.rows):
        if row[name] not in _SPLITS:
            raise UsageError(
                f'{source.at(index)}: "{name}" must be train, calibration (or validation) or test, '
                f"got {row[name]!r}."
            )
        found.append(_SPLITS[row[name]])
    return found


def stratified(
    keys: Sequence[str], targets: Sequence[Any], train: float, calibration: float, seed: int
) -> list[Split]:
    """Return splits that give every class its fractions, to the nearest row.

    A key met with two classes counts for the first, so that it stays together.
    """
    classes: dict[Any, dict[str, None]] = {}
    seen: set[str] = set()
    for key, target in zip(keys, targets, strict=True):
        if key not in seen:
            seen.add(key)
            classes.setdefault(target, {})[key] = None
    split: dict[str, Split] = {}
    for members in classes.values():
        ordered = sorted(members, key=lambda key: position(key, seed))
        first = round(train * len(ordered))
        second = round((train + calibration) * len(ordered))
        for rank, key in enumerate(ordered):
            split[key] = "train" if rank < first else "calibration" if rank < second else "test"
    return [split[key] for key in keys]


def leaked(subject: Any, units: Sequence[Unit]) -> dict[str, Outcome]:
    """Return error outcomes of the units that the subject has learned from."""
    learned = getattr(subject, "learned_from", None)
    if not learned:
        return {}
    return {
        unit.id: Outcome(
            unit.id,
            status="error",
            error_kind="leak",
            error="The subject has learned from this row; give the task and the training data "
            "the same split.",
        )
        for unit in units
        if row_digest(unit) in learned
    }


class Constant:
    """Gives every row one answer: what a predictor has to beat."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.full(len(inputs), self._answer)


class Recall:
    """Answers every row right: the oracle of a table task.

    Where equal rows have different targets it gives the first.
    """

    def __init__(self, rows: Rows) -> None:
        self._answers: dict[bytes, Any] = {}
        for values, target in zip(rows.inputs, rows.targets, strict=True):
            self._answers.setdefault(values.tobytes(), target)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.array([self._answers[row.tobytes()] for row in np.asarray(inputs, np.float64)])


class RecallProba(Recall):
    """The oracle that gives all probability to the right class."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.classes_ = np.array(rows.classes)

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.predict(inputs)[:, None] == self.classes_[None, :]
        return found.astype(float)
