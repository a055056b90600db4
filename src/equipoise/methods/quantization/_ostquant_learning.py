"""Learns the transforms of OSTQuant: start, quantised forward pass, descent on a manifold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.structure import Attention, Structure
from equipoise.kit.progress import report
from equipoise.kit.torch.linear import weight_of
from equipoise.kit.torch.quantized import UNROUNDED
from equipoise.kit.torch.rotations import (
    Rotation,
    hadamard,
    has_hadamard,
    random_orthogonal,
    random_rotation,
    suitable,
)
from equipoise.kit.torch.threads import one_thread
from equipoise.kit.torch.training import History
from equipoise.kit.torch.transforms import (
    BlockTransforms,
    Transforms,
    keep_ones,
    norm_readers,
    ones_basis,
    rotary_size,
)
from equipoise.methods.quantization._ostquant_student import Plan, Student


class LearnedTransforms(nn.Module):
    """The transforms of a decoder as parameters: matrices in float64, scales as logarithms.

    Parameters
    ----------
    module
        A decoder whose norms are fused.
    structure
        Of the decoder.
    plan
        What there is to learn.
    rng
        Draws signs of Hadamard matrices, and orthogonal matrices where a size
        has none.
    """

    def __init__(self, module: nn.Module, structure: Structure, plan: Plan, rng: Rng) -> None:
        super().__init__()
        self.centred = structure.centred
        self.online: list[Rotation | None] = [None] * len(structure.blocks)
        first = structure.blocks[0]
        device = _device(module)
        self.residual: Tensor | None = None
        self.values: Tensor | None = None
        if plan.rotation:
            start = start_of_residual(module, structure, plan.initial, rng.child("residual"))
            turns = [
                start_of_values(module, block.attention, plan.initial, rng.child("values", number))
                for number, block in enumerate(structure.blocks)
            ]
            self.residual = _on_manifold(start.to(device))
            self.values = _on_manifold(torch.stack(turns).to(device))
            if plan.online:
                channels = first.feed_forward.channels
                kind = suitable("hadamard", channels)
                self.online = [
                    random_rotation(kind, channels, rng.child("down", number)).to(device)
                    for number in range(len(structure.blocks))
                ]
        self.norms: Tensor | None = None
        self.value_scale: Tensor | None = None
        self.query_key: Tensor | None = None
        self.channels: Tensor | None = None
        attention, count = first.attention, len(structure.blocks)
        groups, size = attention.key_value_heads, attention.head_size
        pairs = rotary_size(module, attention) // 2
        self.turns_together = torch.cat([torch.arange(pairs), torch.arange(size - pairs)])
        if plan.scaling:
            self.norms = _zeros(device, count, len(first.norms), structure.hidden)
            self.value_scale = _zeros(device, count, groups, size)
            if plan.keys_values < UNROUNDED:
                rows = _query_key_rows(module, structure)
                if rows:
                    self.query_key = _zeros(device, count, rows, size - pairs)
            if first.feed_forward.gate is not None:
                self.channels = _zeros(device, count, first.feed_forward.channels)

    def transforms(self, dtype: torch.dtype) -> Transforms:
        """Return the transforms that the parameters stand for; gradients flow through."""
        residual = None
        if self.residual is not None:
            residual = keep_ones(self.residual) if self.centred else self.residual

        def scale(logarithms: Tensor | None, *place: int) -> Tensor | None:
            if logarithms is None or place[-1] >= logarithms.shape[len(place) - 1]:
                return None
            return logarithms[place].to(dtype).exp()

        blocks = []
        for number, online in enumerate(self.online):
            query_key = scale(self.query_key, number)
            blocks.append(
                BlockTransforms(
                    attention=scale(self.norms, number, 0),
                    feed_forward=scale(self.norms, number, 1),
                    values=None if self.values is None else self.values[number].to(dtype),
                    value_scale=scale(self.value_scale, number),
                    query_key=None if query_key is None else query_key[:, self.turns_together],
                    channels=scale(self.channels, number),
                    online=online,
                )
            )
        return Transforms(tuple(blocks), None if residual is None else residual.to(dtype))


def start_of_residual(module: nn.Module, structure: Structure, initial: str, rng: Rng) -> Tensor:
    r"""Return the first rotation of the residual stream, or the part of it that can be chosen.

    With ``womi`` it is $Q H$: Q has the eigenvectors of the second moment
    $\sum W^\top W$ of all weights that read the stream, H is a normalised Hadamard
    matrix (a random orthogonal one where the size has none). Under LayerNorm a
    reflection after it makes it keep $(1, \dots, 1)$; what is returned is then $R'$ of
    `transforms.keep_ones`.
    """
    size = structure.hidden
    ones = torch.full((size,), size**-0.5, dtype=torch.float64)
    found = _spread(size, rng)
    if initial == "womi":
        moment = torch.zeros(size, size, dtype=torch.float64)
        for block in structure.blocks:
            for _, readers in norm_readers(block):
                for name in readers:
                    weight = weight_of(module.get_submodule(name)).detach().double().cpu()
                    if structure.centred:  # what is along the ones is never read
                        weight = weight - torch.outer(weight @ ones, ones)
                    moment += weight.T @ weight
        found = _eigenvectors(moment) @ found
    if not structure.centred:
        return found
    axis = ones @ found - ones
    found = found - 2 / axis.square().sum().clamp_min(1e-30) * torch.outer(found @ axis, axis)
    basis = ones_basis(size)
    return (basis @ found @ basis)[1:, 1:]


def start_of_values(module: nn.Module, attention: Attention, initial: str, rng: Rng) -> Tensor:
    """Return the first rotations of values, ``(key-value heads, head size, head size)``."""
    groups, size = attention.key_value_heads, attention.head_size
    spreads = torch.stack([_spread(size, rng.child(group)) for group in range(groups)])
    if initial == "hadamard":
        return spreads
    weight = weight_of(module.get_submodule(attention.output)).detach().double().cpu()
    heads = torch.unflatten(weight, 1, (groups, attention.heads // groups, size))
    moments = torch.einsum("oghi,oghj->gij", heads, heads)
    return torch.stack([_eigenvectors(each) for each in moments]) @ spreads


def learn(
    teacher: nn.Module,
    fused: nn.Module,
    structure: Structure,
    plan: Plan,
    windows: Sequence[Tensor],
    rng: Rng,
) -> tuple[Transforms, History]:
    """Return the transforms that plan and calibration text lead to, in float64.

    Parameters
    ----------
    teacher
        The untreated module.
    fused
        A float32 copy whose norms are fused; left as it is.
    structure
        Of the decoder.
    plan
        What is learned and how.
    windows
        Token ids, each ``(1, length)``.
    rng
        Draws rotations and the order of windows.
    """
    learned = LearnedTransforms(fused, structure, plan, rng.child("start"))
    parameters = dict(learned.named_parameters())
    history = History()
    if plan.steps and not plan.nothing_rounded:
        student = Student(fused, structure, plan)
        optimizer = _optimizer(parameters.values(), plan)
        order = _order(len(windows), plan, rng.child("order"))
        good = {name: each.detach().clone() for name, each in parameters.items()}
        with one_thread():
            for step, chosen in enumerate(order):
                ids = torch.cat([windows[place] for place in chosen]).to(_device(fused))
                loss = student.loss(teacher, ids, learned.transforms(torch.float32))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                gradients = [each.grad for each in parameters.values() if each.grad is not None]
                if not _finite([loss.detach(), *gradients]):
                    break
                good = {name: each.detach().clone() for name, each in parameters.items()}
                for group in optimizer.param_groups:
                    group["lr"] = group["rate"] * 0.5 * (1 + math.cos(math.pi * step / plan.steps))
                optimizer.step()
                history.losses.append(float(loss.detach()))
                report(f"learning, loss {history.losses[-1]:.3f}", step + 1, plan.steps)
        done = len(history.losses)
        if done < plan.steps or not _finite(parameters.values()):
            history.note = (
                f"The loss or its gradient was not finite after {done} of {plan.steps} steps;"
                " learning stopped with the last transforms whose loss was finite."
            )
            with torch.no_grad():
                for name, each in parameters.items():
                    each.copy_(good[name])
    return learned.requires_grad_(False).transforms(torch.float64), history


def _device(module: nn.Module) -> torch.device:
    """Return where a module's first parameter lies."""
    return next(iter(module.parameters())).device


def _finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in tensors)


def _optimizer(parameters: Iterable[Tensor], plan: Plan) -> Any:
    geoopt = _geoopt()
    groups: dict[float, list[Tensor]] = {}
    for each in parameters:
        turns = isinstance(each, geoopt.ManifoldParameter)
        groups.setdefault(plan.rotation_rate if turns else plan.scale_rate, []).append(each)
    return geoopt.optim.RiemannianAdam(
        [{"params": each, "lr": rate, "rate": rate} for rate, each in groups.items()]
    )


def _geoopt() -> Any:
    try:
        import geoopt
    except ModuleNotFoundError as error:
        raise UsageError(
            f"OrthogonalScalingQuantization: the package {error.name} is not installed:"
            " pip install 'equipoise[quantization]'."
        ) from error
    return geoopt


def _on_manifold(matrix: Tensor) -> Tensor:
    geoopt = _geoopt()
    made: Tensor = geoopt.ManifoldParameter(matrix, manifold=geoopt.Stiefel())
    return made


def _zeros(device: torch.device, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, device=device))


def _spread(size: int, rng: Rng) -> Tensor:
    """Return an orthogonal matrix with entries of one size, or a random one, float64."""
    if not has_hadamard(size):
        return random_orthogonal(size, rng)
    signs: Tensor = torch.from_numpy(rng.numpy().choice([-1.0, 1.0], size))
    even: Tensor = torch.from_numpy(hadamard(size)).double() * size**-0.5
    return signs[:, None] * even


def _eigenvectors(moment: Tensor) -> Tensor:
    """Return eigenvectors by falling eigenvalue, each with a sum that is not negative."""
    found: Tensor = torch.linalg.eigh(moment).eigenvectors.flip(-1)
    return torch.where(found.sum(0) < 0, -found, found)


def _query_key_rows(module: nn.Module, structure: Structure) -> int:
    """Return how many rows of scales queries and keys can have; 0 where they can have none."""
    attention = structure.blocks[0].attention
    norms = [name for name in (attention.query_norm, attention.key_norm) if name is not None]
    if not norms:
        return attention.key_value_heads
    gains = [module.get_parameter(f"{name}.weight") for name in norms]
    sizes = {gain.numel() for gain in gains}
    return 1 if len(norms) == 2 and sizes == {attention.head_size} else 0


def _order(windows: int, plan: Plan, rng: Rng) -> list[list[int]]:
    """Return which windows each step reads: all once before any is read again."""
    generator = rng.numpy()
    places: list[int] = []
    while len(places) < plan.steps * plan.batch:
        places += generator.permutation(windows).tolist()
    return [places[step * plan.batch :][: plan.batch] for step in range(plan.steps)]
