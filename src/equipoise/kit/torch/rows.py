r"""Training of modules on rows of a table: class scores by cross-entropy, values by squares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.training import History, Recipe, fit

Batch = tuple[Tensor, Tensor]


class Scaled(nn.Module):
    """A module whose inputs, and values to predict, are brought to mean 0 and variance 1.

    Parameters
    ----------
    module
        Maps scaled rows to class scores or scaled values.
    inputs, targets
        What it learns from, ``(n, features)`` and ``(n,)``; ``targets`` is None for
        class scores, which stay as they are. A constant column is only centred.

    Examples
    --------
    >>> made = Scaled(nn.Identity(), torch.tensor([[0.0], [4.0]]), torch.tensor([10.0, 20.0]))
    >>> made(torch.tensor([[4.0]])).item()
    20.0
    """

    mean: Tensor
    spread: Tensor
    target_mean: Tensor
    target_spread: Tensor

    def __init__(self, module: nn.Module, inputs: Tensor, targets: Tensor | None) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("mean", inputs.mean(0))
        self.register_buffer("spread", _spread(inputs))
        if targets is None:
            middle, unit = inputs.new_tensor(0.0), inputs.new_tensor(1.0)
        else:
            middle, unit = targets.mean(), _spread(targets)
        self.register_buffer("target_mean", middle)
        self.register_buffer("target_spread", unit)

    def forward(self, rows: Tensor) -> Tensor:
        """Return class scores or values in their own unit."""
        found: Tensor = self.module((rows - self.mean) / self.spread)
        return self.target_mean + self.target_spread * found


def _spread(values: Tensor) -> Tensor:
    found = values.std(0, correction=0)
    return torch.where(found > 0, found, torch.ones_like(found))


def fit_rows(
    module: nn.Module,
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    recipe: Recipe,
    rng: Rng,
    batch: int = 64,
    what: str = "training",
) -> History:
    r"""Train a module on rows, in place.

    Integer targets are columns of class scores and are learned by cross-entropy;
    of two classes a single column may hold the log-odds of the second. Other targets
    are values: squared error, in units of the targets' variance so that a rate suits
    any scale.

    Parameters
    ----------
    module
        One that no one else uses; ``(n, features)`` to ``(n, classes)``, ``(n, 1)`` or ``(n,)``.
    inputs, targets
        ``(n, features)`` and ``(n,)``.
    recipe
        How weights are updated.
    rng
        Draws the order of rows, anew in every pass, and dropout.
    batch
        Rows to an update.
    what
        What progress is called.

    Raises
    ------
    UsageError
        If the module does not fit the rows or their classes.

    Examples
    --------
    >>> line = nn.Linear(1, 1)
    >>> x = np.linspace(-1, 1, 32)[:, None]
    >>> recipe = Recipe(steps=300, rate=0.1, schedule="cosine", clip=0.0)
    >>> _ = fit_rows(line, x, 3 * x[:, 0], recipe=recipe, rng=Rng(0))
    >>> round(line.weight.item(), 2)
    3.0
    """
    first = next(module.parameters(), None)
    if first is None:
        raise UsageError(f"{type(module).__name__} has no parameters to train.")
    classes = np.issubdtype(targets.dtype, np.integer)
    x = torch.from_numpy(np.ascontiguousarray(inputs)).to(first.device, first.dtype)
    y = torch.from_numpy(np.ascontiguousarray(targets))
    y = y.to(first.device, torch.int64 if classes else first.dtype)
    unit = 1.0 if classes else float(y.var(correction=0)) or 1.0

    def loss(network: nn.Module, rows: Batch) -> Tensor:
        found: Tensor = network(rows[0])
        if not classes:
            return functional.mse_loss(found.reshape(len(found), -1)[:, 0], rows[1]) / unit
        if found.numel() == len(found):
            odds = found.reshape(-1)
            return functional.binary_cross_entropy_with_logits(odds, rows[1].to(odds.dtype))
        return functional.cross_entropy(found, rows[1])

    try:
        return fit(module, _batches(x, y, batch, rng), loss, recipe=recipe, rng=rng, what=what)
    except (RuntimeError, IndexError) as error:  # shapes that do not fit
        raise UsageError(
            f"{type(module).__name__} cannot learn from rows of {x.shape[1]} features "
            f"({str(error).splitlines()[0]})."
        ) from error


def _batches(x: Tensor, y: Tensor, size: int, rng: Rng) -> Callable[[int], list[Batch]]:
    """Return what each step reads: every row once in a pass, in an order of its own."""
    size = min(size, len(x))
    a_pass = len(x) // size
    kept: dict[int, Tensor] = {}

    def batches(step: int) -> list[Batch]:
        number, place = divmod(step, a_pass)
        if number not in kept:
            kept.clear()
            order = rng.child("pass", number).numpy().permutation(len(x))
            kept[number] = torch.from_numpy(order).to(x.device)
        chosen = kept[number][place * size : (place + 1) * size]
        return [(x[chosen], y[chosen])]

    return batches
