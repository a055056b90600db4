"""The quantised forward pass that OSTQuant learns through, and its losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from equipoise.kit.language.structure import Structure
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.decoders import quantize_keys_values
from equipoise.kit.torch.distillation import kl_top_loss
from equipoise.kit.torch.linear import is_transposed
from equipoise.kit.torch.quantized import UNROUNDED
from equipoise.kit.torch.quantizers import integer_range
from equipoise.kit.torch.transforms import Transforms, folded, norm_readers


@dataclass(frozen=True)
class Plan:
    """What is learned and how; the fields are those of the treatment."""

    weights: int
    activations: int
    keys_values: int
    rotation: bool
    scaling: bool
    initial: str
    loss: str
    top: int
    steps: int
    batch: int
    rotation_rate: float
    scale_rate: float

    @property
    def online(self) -> bool:
        """Whether the down layer's input is turned while the model runs."""
        return self.rotation and self.activations < UNROUNDED

    @property
    def nothing_rounded(self) -> bool:
        """Whether there is no loss to learn from."""
        return min(self.weights, self.activations, self.keys_values) >= UNROUNDED


class Student:
    r"""The fused model with what will be rounded rounded, as a function of the transforms.

    Where activations are rounded, weights stay in floating point, as they are
    rounded better afterwards. The residual stream is then not turned: each norm's
    output x becomes $Q(x R S) S^{-1} R^\top$, because it is less work to turn the
    tokens of a batch than all weights. Where activations are not rounded, all
    transforms are folded into the weights, which are rounded, at every step.

    Parameters
    ----------
    fused
        A float32 module whose norms are fused; left as it is.
    structure
        Of the module.
    plan
        Which numbers are rounded.
    """

    def __init__(self, fused: nn.Module, structure: Structure, plan: Plan) -> None:
        self.fused, self.structure, self.plan = fused, structure, plan
        self.module: Any = copy_module(fused)
        self.transforms = Transforms(())
        if plan.keys_values < UNROUNDED:
            quantize_keys_values(self.module, structure, plan.keys_values)
            for block in structure.blocks:
                attention = self.module.get_submodule(block.attention.name)
                attention.key_value_quantizer = _KeysValues(attention.key_value_quantizer)
        if plan.activations >= UNROUNDED:
            return
        for number, block in enumerate(structure.blocks):
            for place, (name, _) in enumerate(norm_readers(block)):
                norm = self.module.get_submodule(name)
                norm.register_forward_hook(self._after_norm(number, place))
            for name in (block.attention.output, block.feed_forward.down):
                turned = name == block.feed_forward.down
                layer = self.module.get_submodule(name)
                layer.register_forward_pre_hook(self._before(number if turned else None))

    def logits(self, ids: Tensor, transforms: Transforms) -> Tensor:
        """Return logits ``(batch, tokens, vocabulary)``."""
        self.transforms = transforms
        rounding = self.plan.weights < UNROUNDED <= self.plan.activations
        if self.plan.activations < UNROUNDED:
            inside = (replace(x, attention=None, feed_forward=None) for x in transforms.blocks)
            transforms = Transforms(tuple(inside))
        tensors = dict(folded(self.fused, self.structure, transforms))
        for name in self.structure.linear_layers() if rounding else ():
            layer: Any = self.fused.get_submodule(name)
            weight = tensors.get(f"{name}.weight", layer.weight)
            turned = is_transposed(layer)
            found = straight_through(weight.mT if turned else weight, self.plan.weights)
            tensors[f"{name}.weight"] = found.mT if turned else found
        given = {"use_cache": False}
        logits: Tensor = torch.func.functional_call(self.module, tensors, (ids,), given).logits
        return logits

    def loss(self, teacher: nn.Module, ids: Tensor, transforms: Transforms) -> Tensor:
        """Return the plan's loss on token ids ``(batch, length)``."""
        found = self.logits(ids, transforms)
        if self.plan.loss == "ce":
            return functional.cross_entropy(found[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        with torch.no_grad():
            wanted = teacher(ids, use_cache=False).logits.float()
        return kl_top_loss(found, wanted, self.plan.top if self.plan.loss == "kl_top" else None)

    def _after_norm(self, number: int, place: int) -> Callable[..., Tensor]:
        def hook(norm: nn.Module, inputs: tuple[Tensor, ...], x: Tensor) -> Tensor:
            turn, block = self.transforms.residual, self.transforms.blocks[number]
            scale = block.feed_forward if place else block.attention
            if turn is not None:
                x = x @ turn
            x = straight_through(x if scale is None else x * scale, self.plan.activations)
            x = x if scale is None else x / scale
            return x if turn is None else x @ turn.mT

        return hook

    def _before(self, number: int | None) -> Callable[..., tuple[Tensor]]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            online = None if number is None else self.transforms.blocks[number].online
            x = inputs[0] if online is None else online(inputs[0])
            return (straight_through(x, self.plan.activations),)

        return hook


class _KeysValues(nn.Module):
    """A key and value quantiser that gradients go through."""

    def __init__(self, like: Any) -> None:
        super().__init__()
        self.bits, self.rotation = like.bits, like.rotation

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.rotation is not None:
            query, key = self.rotation(query), self.rotation(key)
        together = straight_through(value.transpose(1, 2).flatten(-2), self.bits)
        heads = torch.unflatten(together, -1, (value.shape[1], value.shape[3]))
        return query, straight_through(key, self.bits), heads.transpose(1, 2)


def straight_through(x: Tensor, bits: int) -> Tensor:
    r"""Return x rounded as `quantizers.fake_quantize` does, for gradients to go through.

    $\hat x = x + d \cdot (\mathrm{round}(x / d) - x / d)$ where only the step d and the
    first x have gradients: the rounding counts as the identity, the step does not.

    Examples
    --------
    >>> x = torch.tensor([[7.0, 3.4]], requires_grad=True)
    >>> rounded = straight_through(x, 4)
    >>> rounded.tolist()
    [[7.0, 3.0]]
    >>> rounded.sum().backward()  # the step is a seventh of the first entry, the error -0.4
    >>> x.grad
    tensor([[0.9429, 1.0000]])
    """
    largest = x.abs().amax(-1, keepdim=True)
    step = torch.where(largest == 0, 1.0, largest / integer_range(bits)[1])
    with torch.no_grad():
        scaled = x / step
        error = scaled.round().sub_(scaled)
    return torch.addcmul(x, error, step.expand_as(x))
