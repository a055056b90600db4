"""Predictors that are PyTorch modules: rows in, class scores or values out."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.special import softmax

from equipoise.core import (
    HasModule,
    Predicts,
    PredictsProba,
    Rng,
    Subject,
    Trains,
    Unit,
    UnitError,
    UsageError,
    between,
    nearest,
    one_of,
    setting,
)
from equipoise.core import parameters as part_parameters
from equipoise.kit.about import annotate
from equipoise.kit.arrays.examples import Examples, examples
from equipoise.kit.data.identity import content_hash
from equipoise.kit.data.objects import named_object, source_hash
from equipoise.kit.data.source import existing, one_line
from equipoise.kit.torch.rows import Scaled, fit_rows
from equipoise.kit.torch.training import Recipe


@dataclass(frozen=True)
class TorchModule(Subject):
    """A module that maps rows ``(n, features)`` to class scores or values.

    Class scores ``(n, classes)`` become probabilities by softmax; a single
    column is the log-odds of the second of two classes. Values are ``(n,)`` or
    ``(n, 1)``. Without ``weights`` the module has those it is made with, drawn
    from the trial's seed, and can learn: the treatment ``train`` draws them anew and
    updates them by AdamW, on cross-entropy or squared error.

    Parameters
    ----------
    factory
        Import path of a class or function that returns the module, such as
        ``mypackage.models:small``.
    arguments
        What it is called with.
    weights
        State dict: ``.safetensors``, or a ``.pt`` file, of which tensors only
        are read.
    predicts
        ``classes`` or ``values``.
    classes
        Labels in the order of the columns, or their number for 0, 1, 2, ...;
        needed unless it predicts values.
    scale
        Bring features, and values to predict, to mean 0 and variance 1 first, by the
        training rows.
    steps
        Updates when it learns.
    rate
        Learning rate.
    rows
        Rows to an update.
    weight_decay
        Of matrices, a step.
    device
        Where it runs, such as ``cpu`` or ``cuda``.
    batch_size
        Rows at a time.

    Examples
    --------
    >>> shape = {"in_features": 2, "out_features": 3}
    >>> part = TorchModule("torch.nn:Linear", shape, classes=("a", "b", "c"))
    >>> part.load(Rng(0)).predict_proba(np.zeros((4, 2))).shape
    (4, 3)
    """

    factory: str
    arguments: Mapping[str, Any] | None = None
    weights: str | None = setting(None)
    predicts: str = one_of("classes", "values", default="classes")
    classes: tuple[str | int, ...] | int = ()
    scale: bool = False
    steps: int = between(1, 100_000_000, default=1_000)
    rate: float = between(0.0, 10.0, default=1e-3)
    rows: int = between(1, 1_000_000, default=64)
    weight_decay: float = between(0.0, 1.0, default=0.0)
    device: str = setting("cpu")
    batch_size: int = setting(1024, low=1, high=10**9)

    # The most that a module can do; an instance narrows it to what it does.
    provides = frozenset({HasModule, Predicts, PredictsProba, Trains})

    def check(self) -> None:
        labels = self.labels()
        lacking: set[type] = {PredictsProba} if self.predicts == "values" else set()
        if self.weights is not None:
            lacking.add(Trains)
            if self.scale:
                raise UsageError("TorchModule: scale goes with a module that learns, not weights.")
        object.__setattr__(self, "provides", type(self).provides - lacking)
        if self.predicts == "values":
            if labels:
                raise UsageError("TorchModule: classes go with predicts: classes only.")
        elif len(set(labels)) < max(2, len(labels)):
            raise UsageError(
                f"TorchModule: classes must be two or more different labels in the order of the "
                f"module's columns, or their number, got {self.classes!r}; a module that predicts "
                f"numbers has predicts: values."
            )

    def content(self) -> Any:
        weights = None if self.weights is None else content_hash(self.weights)
        return {"code": source_hash(self.factory), "weights": weights}

    @classmethod
    def tiny(cls) -> Self:
        return cls("torch.nn:Linear", {"in_features": 2, "out_features": 2}, classes=2)

    def labels(self) -> tuple[str | int, ...]:
        """Return the label of each column."""
        return tuple(range(self.classes)) if isinstance(self.classes, int) else self.classes

    def load(self, rng: Rng) -> Any:
        module = self._module(rng)
        values = self.predicts == "values"
        if self.weights is not None:
            _fill(module, self.weights)
            return (_Values if values else _Classes)(module, self.labels(), self.batch_size)
        kind = _LearnsValues if values else _LearnsClasses
        return kind(module, self.labels(), self.batch_size, self)

    def _module(self, rng: Rng) -> torch.nn.Module:
        try:
            return module_from(self.factory, self.arguments or {}, rng).to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"TorchModule: device {self.device} cannot be used ({one_line(error)})."
            ) from error

    def trained(self, inputs: np.ndarray, targets: np.ndarray, rng: Rng) -> Any:
        """Return a module made anew that has learned from rows, and how it went.

        Parameters
        ----------
        inputs, targets
            ``(n, features)`` and ``(n,)``: numbers of columns, or values.
        rng
            Draws weights, order of rows and dropout.
        """
        module = self._module(rng)
        first = next(module.parameters(), torch.empty(0))
        if self.scale:
            x, y = (torch.from_numpy(np.asarray(each)).to(first) for each in (inputs, targets))
            module = Scaled(module, x, y if self.predicts == "values" else None).to(first.device)
        recipe = Recipe(
            steps=self.steps, rate=self.rate, weight_decay=self.weight_decay, schedule="cosine"
        )
        history = fit_rows(module, inputs, targets, recipe=recipe, rng=rng, batch=self.rows,
                           what=f"training {self.factory}")  # fmt: skip
        return module, history


def module_from(factory: str, arguments: Mapping[str, Any], rng: Rng) -> torch.nn.Module:
    """Return the module that a factory makes, its weights drawn from ``rng``.

    Parameters
    ----------
    factory
        Import path, ``package.module:name``.
    arguments
        What it is called with.
    rng
        Seeds torch's global generator while the factory runs; its state is put
        back afterwards.

    Raises
    ------
    UsageError
        If the factory is not there, fails, or gives something else.

    Examples
    --------
    >>> module_from("torch.nn:Linear", {"in_features": 2, "out_features": 1}, Rng(0))
    Linear(in_features=2, out_features=1, bias=True)
    """
    maker = named_object(factory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.child("weights").seed_for_request())
        try:
            module = maker(**arguments)
        except Exception as error:  # the factory is the user's
            raise UsageError(
                f"TorchModule: {factory} failed ({type(error).__name__}: {one_line(error)})."
            ) from error
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"TorchModule: {factory} must return a torch.nn.Module, got {type(module).__name__}."
        )
    return module


def _fill(module: torch.nn.Module, weights: str) -> None:
    path = existing(weights)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise many kinds
        raise UsageError(
            f"{weights}: cannot be read as safetensors or as a .pt file of tensors alone "
            f"({one_line(error)})."
        ) from error
    if not isinstance(state, Mapping):
        raise UsageError(f"{weights}: must hold a state dict, got {type(state).__name__}.")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise UsageError(f"{weights}: does not fit the module ({one_line(error)}).") from error


class _Live:
    """A module in evaluation mode, fed in batches."""

    tokenizer = None

    def __init__(self, module: torch.nn.Module, labels: tuple[Any, ...], batch_size: int) -> None:
        self.module = module.eval()
        self.batch_size = batch_size
        self._labels = labels

    @property
    def device(self) -> torch.device:
        first = next(self.module.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    def with_module(self, module: torch.nn.Module) -> Any:
        """Return a subject around another module, which is put into evaluation mode."""
        found = copy.copy(self)
        found.module = module.eval()
        return found

    def _forward(self, inputs: np.ndarray) -> np.ndarray:
        first = next((each for each in self.module.parameters() if each.is_floating_point()), None)
        dtype = torch.float32 if first is None else first.dtype
        rows = torch.from_numpy(np.ascontiguousarray(inputs, np.float64)).to(self.device, dtype)
        with torch.inference_mode():
            parts = [self.module(batch) for batch in torch.split(rows, self.batch_size)]
        found: np.ndarray = torch.cat(parts).double().cpu().numpy()
        return found


class _Values(_Live):
    def predict(self, inputs: np.ndarray) -> np.ndarray:
        if len(inputs) == 0:
            return np.empty(0)
        found = self._forward(inputs)
        return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


class _Classes(_Live):
    @property
    def classes_(self) -> np.ndarray:
        return np.array(self._labels)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        best: np.ndarray = self.predict_proba(inputs).argmax(axis=1)
        labels: np.ndarray = np.array(self._labels)[best]
        return labels

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        columns = len(self._labels)
        if len(inputs) == 0:
            return np.empty((0, columns))
        scores = self._forward(inputs)
        if columns == 2 and scores.size == len(scores):
            # One column is the log-odds of the second class; the first has 0.
            scores = np.stack([np.zeros(len(scores)), scores.reshape(-1)], axis=1)
        if scores.shape != (len(inputs), columns):
            raise UnitError(
                f"The module gave scores of shape {scores.shape} for {len(inputs)} rows and "
                f"{columns} classes.",
                "garbage",
            )
        found: np.ndarray = softmax(scores, axis=1)
        return found


class _Learns(_Live):
    """A module that can learn: from the start, whatever it has learned before."""

    learned_from: frozenset[bytes] = frozenset()

    def __init__(
        self, module: torch.nn.Module, labels: tuple[Any, ...], batch_size: int, part: TorchModule
    ) -> None:
        super().__init__(module, labels, batch_size)
        self.part = part

    def fit(self, data: Iterable[Unit] | Examples, rng: Rng) -> Any:
        """Return a subject whose module has learned from units: their contents and targets."""
        found = examples(data)
        targets = self._columns(found.targets)
        module, history = self.part.trained(found.inputs, targets, rng)
        made = self.with_module(module)
        made.learned_from = frozenset(found.ids)
        return annotate(made, notes=[history.note] if history.note else [], curves=history.curves())

    def with_parameters(self, parameters: Mapping[str, Any]) -> Any:
        """Return the same subject, untrained, with some of the part's parameters changed."""
        known = {each.name for each in part_parameters(TorchModule)}
        for name in parameters:
            if name not in known:
                raise UsageError(f'TorchModule has no parameter "{name}".{nearest(name, known)}')
        found = copy.copy(self)
        found.part = dataclasses.replace(self.part, **parameters)
        return found

    def _columns(self, targets: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class _LearnsValues(_Learns, _Values):
    def _columns(self, targets: np.ndarray) -> np.ndarray:
        if targets.ndim != 1 or targets.dtype.kind not in "biuf":
            raise UsageError("TorchModule: a module that predicts values learns from numbers.")
        return targets.astype(float)


class _LearnsClasses(_Learns, _Classes):
    def _columns(self, targets: np.ndarray) -> np.ndarray:
        place = {label: column for column, label in enumerate(self._labels)}
        unknown = sorted(set(targets.tolist()) - place.keys(), key=str)
        if unknown:
            raise UsageError(
                f"TorchModule: the data have the class {unknown[0]!r}, which classes do not name; "
                f"they are {', '.join(map(repr, self._labels))}."
            )
        return np.array([place[label] for label in targets.tolist()], np.int64)
