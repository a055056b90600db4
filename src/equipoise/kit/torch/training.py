r"""A training loop for any module and loss: the same to the last bit, and resumed after a kill.

A method says what a step reads, ``batches(step)``, and what is lost on it,
``loss(module, batch)``; `fit` does the rest: gradients summed over a step's batches,
clipping, AdamW with a schedule, checkpoints, the loss curve, and a stop where the loss is
not finite. Because a step is named by its number, nothing but the number has to be kept to
go on after a kill: no place in the data, no state of a generator.

>>> from equipoise.core import Rng
>>> control = nn.Linear(1, 1, bias=False)
>>> learner = trainable_copy(control, {"weight"})
>>> x = torch.ones(4, 1)
>>> found = fit(
...     learner,
...     lambda step: [x],
...     lambda module, batch: (module(batch) - 3.0).square().mean(),
...     recipe=Recipe(steps=200, rate=0.3, schedule="cosine"),
...     rng=Rng(0),
... )
>>> round(float(finished(learner, control).weight), 2)
3.0
>>> len(found.losses), learner.training, control.weight is learner.weight
(200, False, False)

What is guaranteed: on one machine with one number of processor threads the same arguments
give the same weights to the last bit, whether the run was stopped or not. Another number of
threads may round sums otherwise. Accelerators add in no fixed order unless torch is told so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as checkpoint_

from equipoise.core import Part, Rng, UsageError, between, one_of
from equipoise.kit.progress import report
from equipoise.kit.torch.checkpoints import Checkpoint
from equipoise.kit.torch.copies import copy_module

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Recipe(Part):
    r"""How weights are updated, and how often.

    AdamW, with gradient $g$ and update number $t$ from 1,
    $m_t = \beta_1 m_{t-1} + (1 - \beta_1) g$, $v_t = \beta_2 v_{t-1} + (1 - \beta_2) g^2$,

    $$w \leftarrow w - \eta_t \left( \lambda w + \frac{m_t / (1 - \beta_1^t)}
    {\sqrt{v_t / (1 - \beta_2^t)} + \epsilon} \right),$$

    or plain gradient descent, $w \leftarrow w - \eta_t (g + \lambda w)$. Only matrices decay:
    biases and gains of norms do not.

    Parameters
    ----------
    steps
        Updates.
    rate
        Highest learning rate.
    schedule
        What follows the warm-up: ``constant``, ``linear`` to nothing, or half a
        ``cosine`` to nothing.
    warmup
        Share of the steps in which the rate rises from nothing.
    weight_decay
        $\lambda$.
    clip
        Longest gradient, all parameters together; 0 leaves it as it is.
    optimizer
        ``adamw`` or ``sgd``.
    betas, epsilon
        Of AdamW.

    Examples
    --------
    >>> recipe = Recipe(steps=4, rate=1.0, schedule="linear", warmup=0.5)
    >>> [recipe.rate_at(step) for step in range(4)]
    [0.0, 0.5, 1.0, 0.5]
    """

    steps: int = between(0, 100_000_000, default=100)
    rate: float = between(0.0, 10.0, default=2e-5)
    schedule: str = one_of("constant", "linear", "cosine", default="constant")
    warmup: float = between(0.0, 1.0, default=0.0)
    weight_decay: float = between(0.0, 1.0, default=0.0)
    clip: float = between(0.0, 1e9, default=1.0)
    optimizer: str = one_of("adamw", "sgd", default="adamw")
    betas: tuple[float, float] = between(0.0, 1.0, default=(0.9, 0.999))
    epsilon: float = between(0.0, 1.0, default=1e-8)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        rise = math.ceil(self.steps * self.warmup)
        if step < rise:
            return self.rate * step / rise
        done = (step - rise) / max(1, self.steps - rise)
        if self.schedule == "linear":
            return self.rate * (1.0 - done)
        if self.schedule == "cosine":
            return self.rate * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.rate


@dataclass
class History:
    """How training went.

    Parameters
    ----------
    losses
        Of each step, before its update.
    watched
        By name, points ``[step, value]``.
    note
        A sentence where training stopped early, else empty.
    """

    losses: list[float] = field(default_factory=list)
    watched: dict[str, list[list[float]]] = field(default_factory=dict)
    note: str = ""

    def curves(self, points: int = 400) -> dict[str, list[list[float]]]:
        """Return curves for `equipoise.kit.about.annotate`.

        A long loss curve becomes the means of ``points`` equal stretches.

        Examples
        --------
        >>> History([4.0, 2.0, 1.0]).curves()
        {'loss': [[1.0, 4.0], [2.0, 2.0], [3.0, 1.0]]}
        >>> History([4.0, 2.0, 1.0, 1.0]).curves(2)
        {'loss': [[1.5, 3.0], [3.5, 1.0]]}
        """
        found = {}
        if self.losses:
            numbers = np.arange(1, len(self.losses) + 1)
            parts = zip(
                np.array_split(numbers, min(points, len(numbers))),
                np.array_split(np.array(self.losses), min(points, len(numbers))),
                strict=True,
            )
            found["loss"] = [[float(x.mean()), float(y.mean())] for x, y in parts]
        return found | self.watched


def fit(
    module: nn.Module,
    batches: Callable[[int], Sequence[Batch]],
    loss: Callable[[nn.Module, Batch], Tensor],
    *,
    recipe: Recipe,
    rng: Rng,
    size: Callable[[Batch], float] | None = None,
    watch: Callable[[nn.Module], Mapping[str, float]] | None = None,
    watch_every: int = 0,
    checkpoint: Checkpoint | None = None,
    what: str = "training",
) -> History:
    r"""Train those parameters of a module that require gradients, in place.

    A step's loss is $\sum_b \ell(b) / \sum_b n(b)$ over its batches $b$, of which one at a
    time is in memory: several give the gradient of one large batch. The module is in training
    mode while it learns and in evaluation mode afterwards; its dropout draws from a stream
    named by the step. Global generators are left as they were.

    Parameters
    ----------
    module
        A copy that no one else uses, such as `trainable_copy` gives.
    batches
        Returns what a step reads, counted from 0; the same whenever it is asked.
    loss
        Returns a number with a gradient: the sum over what ``size`` counts.
    recipe
        How weights are updated.
    rng
        Seeds dropout.
    size
        What a batch counts for, such as tokens; 1 each by default, so that
        ``loss`` is a mean.
    watch
        Returns further numbers by name, without gradients: a held-out loss.
        It is asked before the first step and after the last one.
    watch_every
        Ask it every so many steps as well; 0 does not.
    checkpoint
        Where to keep what is needed to go on after a kill.
    what
        What progress is called.

    Returns
    -------
    History
        With a note where the loss or its gradient was not finite: the weights
        are then those before that step.

    Raises
    ------
    UsageError
        If no parameter requires a gradient.
    """
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    if not trained:
        raise UsageError(f"{type(module).__name__} has no parameters to train.")
    optimizer = _optimizer(list(trained.values()), recipe)
    history = History()
    start = checkpoint.restore(trained, optimizer, history) if checkpoint else 0
    module.train()
    try:
        with _own_randomness(trained.values()):
            for step in range(start, recipe.steps):
                if watch and (step == 0 or (watch_every and step % watch_every == 0)):
                    _look(module, watch, step, history)
                torch.manual_seed(rng.child("step", step).seed_for_request())
                for group in optimizer.param_groups:
                    group["lr"] = recipe.rate_at(step)
                value = _gradient(module, batches(step), loss, size, optimizer)
                fault = _clipped(trained.values(), value, recipe.clip)
                if fault:
                    history.note = (
                        f"The {fault} was not finite at step {step + 1} of {recipe.steps};"
                        f" training stopped with the weights before it."
                    )
                    break
                optimizer.step()
                history.losses.append(value)
                report(f"{what}, loss {value:.2f}", step + 1, recipe.steps)
                if checkpoint and step + 1 < recipe.steps:
                    checkpoint.save_when_due(trained, optimizer, history)
            optimizer.zero_grad(set_to_none=True)
            if watch:
                _look(module, watch, len(history.losses), history)
    finally:
        module.eval()
    if checkpoint:
        checkpoint.remove()
    return history


def trainable_copy(
    module: nn.Module, chosen: Collection[str], dtype: torch.dtype | None = None
) -> nn.Module:
    """Return a copy of which the chosen parameters can be trained, and no others.

    The chosen ones are copied, the others share their memory with the module's. Parameters
    under several names, such as tied embeddings, stay one.

    Parameters
    ----------
    module
        Left as it is.
    chosen
        Names of parameters; one name of several is enough.
    dtype
        Of the copies: float32 for a module in half precision, whose small
        updates would otherwise be rounded away.

    Raises
    ------
    UsageError
        If a chosen parameter is not of floating point.
    """
    every = dict(module.named_parameters(remove_duplicate=False))
    for name in chosen:
        if not every[name].is_floating_point():
            raise UsageError(f"{name} holds {every[name].dtype}, which cannot be trained.")
    mine = {id(each) for name, each in every.items() if name in chosen}
    made, new = copy_module(module), {}
    for old in {id(each): each for each in every.values()}.values():
        data = old.detach()
        if id(old) in mine:
            data = data.to(dtype or data.dtype, copy=True)
        new[id(old)] = nn.Parameter(data, requires_grad=id(old) in mine)
    for part in made.modules():
        for key, old_ in part._parameters.items():
            if old_ is not None:
                part._parameters[key] = new[id(old_)]
    return made


def finished(learner: nn.Module, control: nn.Module) -> nn.Module:
    """Return a trained copy in evaluation mode, its parameters frozen and of the control's types.

    What was not trained goes on sharing its memory with the control's.
    """
    types = {n: each.dtype for n, each in control.named_parameters(remove_duplicate=False)}
    new: dict[int, nn.Parameter] = {}
    for name, part in learner.named_modules():
        for key, old in part._parameters.items():
            if old is not None and id(old) not in new:
                whole = f"{name}.{key}" if name else key
                data = old.detach().to(types.get(whole, old.dtype))
                new[id(old)] = nn.Parameter(data, requires_grad=False)
            if old is not None:
                part._parameters[key] = new[id(old)]
    return learner.eval()


@contextmanager
def recomputing(module: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Make what submodules compute inside a second time in the backward pass, and not keep it.

    Parameters
    ----------
    module
        A copy that no one else uses.
    names
        Of submodules, such as the blocks of a decoder.
    """
    parts = [module.get_submodule(name) for name in names]
    for part in parts:
        part.forward = partial(checkpoint_, part.forward, use_reentrant=False)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in parts:
            del part.forward


def _optimizer(parameters: list[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # One pass over memory an update instead of ten, where torch has such a kernel.
    fused = parameters[0].device.type in ("cpu", "cuda")
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.rate, fused=fused)
    return torch.optim.AdamW(
        groups, lr=recipe.rate, betas=recipe.betas, eps=recipe.epsilon, fused=fused
    )


def _gradient(
    module: nn.Module,
    pieces: Sequence[Batch],
    loss: Callable[[nn.Module, Batch], Tensor],
    size: Callable[[Batch], float] | None,
    optimizer: torch.optim.Optimizer,
) -> float:
    """Leave a step's gradient in the parameters and return its loss."""
    whole = sum(size(piece) for piece in pieces) if size else float(len(pieces))
    optimizer.zero_grad(set_to_none=True)
    value = 0.0
    for piece in pieces:
        part = loss(module, piece) / whole
        part.backward()  # type: ignore[no-untyped-call]
        value += float(part.detach())
    return value


def _clipped(parameters: Collection[nn.Parameter], value: float, clip: float) -> str:
    """Shorten the gradient to ``clip``; return what is not finite, if anything."""
    if not math.isfinite(value):
        return "loss"
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    if not math.isfinite(norm):
        return "gradient"
    if clip and norm > clip:
        torch._foreach_mul_(gradients, clip / (norm + 1e-6))
    return ""


def _look(
    module: nn.Module,
    watch: Callable[[nn.Module], Mapping[str, float]],
    step: int,
    history: History,
) -> None:
    module.eval()
    with torch.no_grad():
        for name, value in watch(module).items():
            history.watched.setdefault(name, []).append([float(step), float(value)])
    module.train()


@contextmanager
def _own_randomness(parameters: Collection[nn.Parameter]) -> Iterator[None]:
    # Layers such as dropout draw from the global generators and take no other.
    devices = {each.device.index for each in parameters if each.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(index or 0 for index in devices)):
        yield
