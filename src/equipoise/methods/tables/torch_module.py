"""Predictors that are PyTorch modules: rows in, class scores or values out."""

from __future__ import annotations

from collections.abc import Mapping
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
    UnitError,
    UsageError,
    one_of,
    setting,
)
from equipoise.kit.data.identity import content_hash
from equipoise.kit.data.objects import named_object, source_hash
from equipoise.kit.data.source import existing, one_line


@dataclass(frozen=True)
class TorchModule(Subject):
    """A module that maps rows ``(n, features)`` to class scores or values.

    Class scores ``(n, classes)`` become probabilities by softmax; a single
    column is the log-odds of the second of two classes. Values are ``(n,)`` or
    ``(n, 1)``. Without ``weights`` the module keeps those it is made with, drawn
    from the trial's seed.

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
    device: str = setting("cpu")
    batch_size: int = setting(1024, low=1, high=10**9)

    provides = frozenset({HasModule, Predicts, PredictsProba})

    def check(self) -> None:
        labels = self.labels()
        if self.predicts == "values":
            if labels:
                raise UsageError("TorchModule: classes go with predicts: classes only.")
            object.__setattr__(self, "provides", frozenset({HasModule, Predicts}))
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
        module = module_from(self.factory, self.arguments or {}, rng)
        if self.weights is not None:
            _fill(module, self.weights)
        try:
            module = module.to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"TorchModule: device {self.device} cannot be used ({one_line(error)})."
            ) from error
        kind = _Values if self.predicts == "values" else _Classes
        return kind(module, self.labels(), self.batch_size)


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
        return type(self)(module, self._labels, self.batch_size)

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
