r"""A learner trained and tested at growing distance from home, threshold by threshold."""

from __future__ import annotations

import functools
import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import (
    EquipoiseError,
    Measure,
    Outcome,
    Rng,
    ScoreSpec,
    Split,
    Task,
    Trains,
    Unit,
    UnitError,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.arrays.examples import Examples, examples, learns_from
from equipoise.kit.data.identity import content_hash, split_of
from equipoise.kit.data.table_task import Constant
from equipoise.kit.progress import report
from equipoise.methods.shift import _rows
from equipoise.methods.shift._rows import Rows
from equipoise.methods.shift.similarity_split import ALGORITHMS, USABLE, threshold_grid

_KEPT = 64  # answers of a subject at a threshold, kept for shards to come
_answers: OrderedDict[Any, tuple[Any, np.ndarray | EquipoiseError]] = OrderedDict()

_SHARED = (
    ScoreSpec("target", higher_is_better=None),
    ScoreSpec("predicted", higher_is_better=None),
    ScoreSpec("threshold", higher_is_better=None, low=0.0, high=1.0),
    ScoreSpec("weight", higher_is_better=None, low=0.0, high=1.0),
)
_NUMBERS = (
    ScoreSpec("absolute_error", higher_is_better=False, low=0.0),
    ScoreSpec("squared_error", higher_is_better=False, low=0.0),
    *_SHARED,
)
_CLASSES = (ScoreSpec("correct", low=0.0, high=1.0), *_SHARED)


@dataclass(frozen=True)
class SimilarityShift(Task):
    r"""Train at each threshold of likeness, and predict rows that are no nearer than it.

    At threshold :math:`\lambda` no test row is :math:`\lambda` or more like a training row. A
    unit is a test row at a threshold, its stratum the threshold, its cluster the row. The subject
    is an untrained learner: it is trained once a threshold, on the training rows there.

    The scores are ``absolute_error`` and ``squared_error``, or with ``classes`` ``correct``; for
    measures, such as ``au_good``, ``target`` and ``predicted`` (classes by their number in sorted
    order, -1 for one that is unknown), ``threshold``, and, where a deployment is given,
    ``weight``, its share at the threshold. A prediction that is not finite is a failed unit.

    Parameters
    ----------
    data
        Path, ``hf:NAME`` or ``builtin:NAME`` (``freesolv``, ``solubility``).
    target
        Column with the value, or the class.
    molecule
        Column with SMILES. Without it rows are compared and learned by ``features``.
    features
        Columns of numbers; by default all that are left.
    classes
        Whether targets are classes.
    representation
        What learners get of molecules: ``"ecfp"`` (2,048 bits, radius 2), ``"descriptors"``
        (eight, of size, polarity and shape), or ``"both"``, descriptors first; the treatment
        ``molecule_features`` lets one learner see one kind.
    similarity
        ``"tanimoto"`` of bits or ``"cosine"``; by default the first for molecules and the second
        for features.
    algorithm
        As for `similarity_partition`; with ``"random"`` there is one split, at threshold 1.
    thresholds
        In (0, 1]; by default 0.1, 0.15, ..., 0.95.
    test_size
        Share of rows to test.
    smallest
        Thresholds with a smaller share of rows in test are left out.
    balance
        Balance the targets between training and test.
    validation
        Share of the training rows that are given to calibrate with, at random, to learners that
        calibrate themselves.
    seed
        Shuffles components of equal size, and the random split.
    deployment
        Molecules or rows that the model will meet, without targets: a path, ``hf:NAME`` or
        ``builtin:NAME`` with the same columns. They are compared with all rows of ``data``.

    References
    ----------
    "A New Framework for Evaluating Model Out-of-Distribution Generalisation for the Biochemical
    Domain", ICLR 2025, section 3.

    Examples
    --------
    >>> task = SimilarityShift("builtin:iris", classes=True, thresholds=(0.999,), smallest=0.0)
    >>> unit = next(iter(task.units(Rng(0))))
    >>> unit.stratum, unit.content["threshold"]
    ('0.999', 0.999)
    """

    data: str = setting()
    target: str = "target"
    molecule: str | None = None
    features: tuple[str, ...] = ()
    classes: bool = False
    representation: str = one_of("ecfp", "descriptors", "both", default="ecfp")
    similarity: str | None = one_of("tanimoto", "cosine", None, default=None)
    algorithm: str = one_of(*ALGORITHMS, default="ccpart")
    thresholds: tuple[float, ...] = between(0.0, 1.0, default=())
    test_size: float = between(0.01, 0.99, default=0.2)
    smallest: float = between(0.0, 0.99, default=USABLE)
    balance: bool = False
    validation: float = between(0.01, 0.9, default=0.1)
    seed: int = between(0, 2**31 - 1, default=0)
    deployment: str | None = setting(None)

    needs = frozenset({Trains})
    scores = _NUMBERS
    batch = 2048  # a threshold or more: what is trained is asked for all its rows at once

    def check(self) -> None:
        """Refuse what does not go together; scores follow ``classes``."""
        object.__setattr__(self, "scores", _CLASSES if self.classes else _NUMBERS)
        if any(a >= b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False)):
            raise UsageError(f"SimilarityShift: thresholds must rise, got {self.thresholds}.")
        if 0.0 in self.thresholds:
            raise UsageError("SimilarityShift: thresholds must be above 0: all rows are as alike.")
        if self.molecule and self.features:
            raise UsageError(
                "SimilarityShift: rows are compared by molecule or by features; drop one."
            )
        if self.algorithm == "random" and (self.deployment or self.thresholds):
            other = "deployment" if self.deployment else "thresholds"
            raise UsageError(f"SimilarityShift: a random split has no {other}; drop one.")

    @classmethod
    def tiny(cls) -> Self:
        """Return iris at one threshold."""
        return cls("builtin:iris", classes=True, thresholds=(0.999, 0.9999), smallest=0.05)

    def content(self) -> Any:
        """Return what identifies the data, wherever they lie."""
        met = None if self.deployment is None else content_hash(self.deployment)
        return [content_hash(self.data), met]

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield test rows by rising threshold; ``seed`` makes the splits, not ``rng``."""
        rows = self.rows()
        for threshold, part in rows.partitions.items():
            name = _name(threshold)
            for row in part.test:
                content = {"threshold": threshold, "row": int(row)}
                if rows.molecules:
                    content["molecule"] = rows.molecules[row]
                yield Unit(
                    f"{name}/{rows.ids[row]}",
                    content=content,
                    target=rows.targets[row].item(),
                    cluster=rows.ids[row],
                    stratum=name,
                )

    def rows(self) -> Rows:
        """Return the table with its partitions; read once while the files stay as they are."""
        return _read(self, json.dumps(self.content(), sort_keys=True))

    def measures(self) -> Sequence[Measure]:
        """Report the area under the curve beside the mean."""
        from equipoise.methods.shift.good_curves import AUGOOD

        return [AUGOOD(metric="mcc" if self.classes else "spearman")]

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Train at each threshold once, and look the units' rows up."""
        rows = self.rows()
        made: dict[str, Outcome] = {}
        for threshold in dict.fromkeys(unit.content["threshold"] for unit in units):
            part = rows.partitions[threshold]
            answers = self._ask(subject, rows, threshold, rng)
            place = {int(row): index for index, row in enumerate(part.test)}
            for unit in units:
                if unit.content["threshold"] == threshold:
                    row = unit.content["row"]
                    made[unit.id] = self._outcome(unit, rows, row, answers[place[row]])
        return [made[unit.id] for unit in units]

    def constant(self) -> Any:
        """Return a learner that answers the mean of its training rows, or the first class."""
        first = self.rows().classes[:1]
        return _Learns(lambda data: Constant(first[0] if first else float(data.targets.mean())))

    def oracle(self) -> Any:
        """Return a learner that knows every row; of equal rows it knows the first."""
        rows = self.rows()
        known: dict[bytes, Any] = {}
        for values, target in zip(rows.inputs, rows.targets, strict=True):
            known.setdefault(values.tobytes(), target)
        return _Learns(lambda data: _Knows(known))

    def _ask(self, subject: Any, rows: Rows, threshold: float, rng: Rng) -> np.ndarray:
        """Return the trained subject's answers for all test rows of a threshold."""
        key = (id(subject), self, threshold, rng)
        if key not in _answers:
            while len(_answers) >= _KEPT:
                _answers.popitem(last=False)
            try:
                found: np.ndarray | EquipoiseError = self._train(subject, rows, threshold, rng)
            except EquipoiseError as error:  # asked again for every unit, it fails at once
                found = error
            # The subject is kept as well, so that its id stays its own.
            _answers[key] = (subject, found)
        answers = _answers[key][1]
        if isinstance(answers, EquipoiseError):
            raise answers
        return answers

    def _train(self, subject: Any, rows: Rows, threshold: float, rng: Rng) -> np.ndarray:
        part, name = rows.partitions[threshold], _name(threshold)
        report(f"training at similarity {name}", list(rows.partitions).index(threshold),
               len(rows.partitions))  # fmt: skip
        targets = rows.targets[part.train]
        if self.classes and len(np.unique(targets)) < 2:
            raise UsageError(
                f"SimilarityShift: at threshold {name} all training rows have the class "
                f"{targets[0]!r}; say balance: true, or give other thresholds."
            )
        split = np.full(len(part.train), "train", dtype="<U11")
        if "calibration" in learns_from(subject):
            share = 1 - self.validation
            split[:] = [self._split(f"{name}/{rows.ids[row]}", share) for row in part.train]
        data = Examples(rows.inputs[part.train], targets, split)
        fitted = subject.fit(data, rng.child("fit", name))
        found = np.asarray(fitted.predict(rows.inputs[part.test]))
        if found.shape == (len(part.test), 1):
            found = found[:, 0]
        if found.shape != (len(part.test),):
            raise UnitError(
                f"The subject gave predictions of shape {found.shape} for {len(part.test)} rows.",
                "garbage",
            )
        return found

    def _split(self, key: str, share: float) -> Split:
        return split_of(key, train=share, calibration=1 - share, seed=self.seed)

    def _outcome(self, unit: Unit, rows: Rows, row: int, answer: Any) -> Outcome:
        threshold = unit.content["threshold"]
        scores = {"target": float(rows.codes[row]), "threshold": threshold}
        if rows.weights:
            scores["weight"] = rows.weights[threshold]
        given = answer.item() if isinstance(answer, np.generic) else answer
        if self.classes:
            code = rows.classes.index(given) if given in rows.classes else -1
            scores |= {"correct": float(given == unit.target), "predicted": float(code)}
            return Outcome(unit.id, scores, output={"prediction": given})
        try:
            value = float(given)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite((value - unit.target) ** 2 if abs(value) < 1e150 else math.nan):
            return Outcome(
                unit.id,
                status="error",
                error_kind="garbage",
                error=f"The subject predicted {given}, which is not a finite number to score.",
            )
        error = value - unit.target
        scores |= {"absolute_error": abs(error), "squared_error": error**2, "predicted": value}
        return Outcome(unit.id, scores, output={"prediction": value})


@dataclass(frozen=True, eq=False)
class _Learns:
    """Learns by a function of the training rows."""

    make: Any

    def fit(self, data: Any, rng: Rng) -> Any:
        return self.make(examples(data))


@dataclass(frozen=True, eq=False)
class _Knows:
    answers: dict[bytes, Any]

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.array([self.answers[row.tobytes()] for row in np.asarray(inputs, float)])


@functools.lru_cache(maxsize=4)
def _read(task: SimilarityShift, content: str) -> Rows:
    default = "tanimoto" if task.molecule else "cosine"
    random = task.algorithm == "random"
    return _rows.read(
        task.data,
        target=task.target,
        molecule=task.molecule,
        features=task.features,
        classes=task.classes,
        representation=task.representation,  # type: ignore[arg-type]
        similarity=task.similarity or default,
        thresholds=(1.0,) if random else task.thresholds or tuple(threshold_grid()),
        smallest=task.smallest,
        balance=task.balance,
        deployment=task.deployment,
        options={"test_size": task.test_size, "algorithm": task.algorithm, "seed": task.seed},
    )


def _name(threshold: float) -> str:
    return f"{threshold:.2f}" if round(threshold, 2) == threshold else f"{threshold:g}"
