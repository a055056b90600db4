"""Adding a vector to the output of a block while the model runs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.language.states import checked_block
from equipoise.kit.language.structure import structure_of
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.plain import NotPlain, open_biases

_NAME = "control_vector"
WHO = "ResidualControlVector"


class Injection(nn.Module):
    r"""A forward hook that adds $\alpha c$ to every token of its block's output.

    It is a submodule of the block, so that its vector is saved and moved with
    the model. Padding gets the vector too; no real token attends to it.

    Parameters
    ----------
    vector
        $c$, shape ``(width,)``.
    strength
        $\alpha$.
    normalize
        Whether each token then gets back the length it had.
    """

    vector: Tensor

    def __init__(self, vector: Tensor, strength: float, normalize: bool) -> None:
        super().__init__()
        self.register_buffer("vector", vector)
        self.strength = strength
        self.normalize = normalize

    def forward(self, block: nn.Module, given: Any, output: Any) -> Any:
        """Return the block's output with the vector added; blocks give a tensor or a tuple."""
        if isinstance(output, tuple):
            return (self.added(output[0]), *output[1:])
        return self.added(output)

    def added(self, states: Tensor) -> Tensor:
        """Return states ``(..., width)`` with the vector added, in their own precision."""
        step = self.strength * self.vector
        if not self.normalize:
            return states + step.to(states.dtype)
        exact = states.to(torch.promote_types(states.dtype, torch.float32))
        moved = exact + step
        before, after = (each.norm(dim=-1, keepdim=True) for each in (exact, moved))
        scale = before / after.clamp_min(torch.finfo(torch.float32).tiny)
        scaled: Tensor = (moved * scale).to(states.dtype)
        return scaled

    def extra_repr(self) -> str:
        return f"width={len(self.vector)}, strength={self.strength}, normalize={self.normalize}"

    def make_plain(self, root: nn.Module, name: str) -> str | None:
        """Turn the vector into a bias of the block's last layer, unless tokens are rescaled."""
        if self.normalize:
            return "each token gets back its length while the model runs"
        try:
            open_biases(root, "feed_forward")
        except NotPlain as reason:
            return f"a vector is added to a block's output, and {str(reason).rstrip('.')}"
        place, _, own = name.rpartition(".")
        block: Any = root.get_submodule(place)
        for key, hook in list(block._forward_hooks.items()):
            if hook is self:
                del block._forward_hooks[key]
        delattr(block, own)
        found = next(each for each in structure_of(root).blocks if each.name == place)
        layer: Any = root.get_submodule(found.feed_forward.down)
        bias = layer.bias.float() + self.strength * self.vector.float()
        layer.bias = nn.Parameter(bias.to(layer.weight.dtype), requires_grad=False)
        return None


def add_vectors(
    module: nn.Module,
    vectors: Mapping[int, np.ndarray | Tensor],
    strength: float = 1.0,
    normalize: bool = False,
) -> nn.Module:
    r"""Return a copy of a language model that adds $\alpha c_l$ to the output of each block l.

    $H'_l = H_l + \alpha c_l$ at every token of prompt and answer, with a
    key-value cache or without; with ``normalize``, $H'_l \leftarrow H'_l\,
    |H_l| / |H'_l|$ token by token.

    Parameters
    ----------
    module
        A decoder-only transformers model; left as it is.
    vectors
        Number of a block, from 0, to its vector, shape ``(width,)``.
    strength
        $\alpha$; 0 gives the model's own outputs, bit for bit.
    normalize
        Whether each token gets back the length it had.

    Raises
    ------
    UsageError
        If there is no such block, or a vector has not the model's width or is
        not finite.

    References
    ----------
    "Improving Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> steered = add_vectors(tiny_model().module, {1: np.ones(32)}, strength=2.0)
    >>> steered.model.layers[1].control_vector
    Injection(width=32, strength=2.0, normalize=False)
    """
    treated = copy_module(module)
    structure = structure_of(treated)
    for block, vector in sorted(vectors.items()):
        place: Any = treated.get_submodule(checked_block(structure, block, WHO))
        some = next(chain(place.parameters(), place.buffers()))  # quantised layers have buffers
        values = torch.as_tensor(vector).detach().to(torch.float32).clone()
        if tuple(values.shape) != (structure.hidden,):
            raise UsageError(
                f"{WHO}: the vector of block {block} must have this model's width"
                f" {structure.hidden}, got {tuple(values.shape)}; it is of another model."
            )
        if not bool(values.isfinite().all()):
            raise UsageError(f"{WHO}: the vector of block {block} is not finite.")
        hook = Injection(values.to(some.device), strength, normalize)
        name, number = _NAME, 1
        while hasattr(place, name):  # vectors of several treatments add up
            name, number = f"{_NAME}_{number}", number + 1
        place.add_module(name, hook)
        place.register_forward_hook(hook)
    return treated


def vectors_of(module: nn.Module) -> dict[int, np.ndarray]:
    r"""Return what is added to each block of a steered model, $\sum \alpha c_l$, as float32.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> steered = add_vectors(tiny_model().module, {1: np.ones(32)}, strength=2.0)
    >>> {block: float(vector[0]) for block, vector in vectors_of(steered).items()}
    {1: 2.0}
    """
    found: dict[int, np.ndarray] = {}
    for block in structure_of(module).blocks:
        for hook in module.get_submodule(block.name).children():
            if isinstance(hook, Injection):
                step = (hook.strength * hook.vector.float()).cpu().numpy()
                found[block.index] = found.get(block.index, 0) + step
    return found
