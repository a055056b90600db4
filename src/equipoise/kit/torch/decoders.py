"""Decoders of any family: run block by block, and with keys and values rounded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.language.structure import Structure, structure_of
from equipoise.kit.torch.quantizers import quantize_
from equipoise.kit.torch.rotations import HadamardRotation, has_hadamard


def decoder_of(module: nn.Module) -> Structure | None:
    """Return the structure of a causal language model, or None for any other module."""
    try:
        return structure_of(module)
    except UsageError:
        return None


class KeyValueQuantizer(nn.Module):
    """Rounds keys per head and values per token.

    Keys are turned by a Hadamard matrix first, and queries with them, where the
    size of a head has one.
    """

    def __init__(self, bits: int, head_size: int) -> None:
        super().__init__()
        self.bits = bits
        self.rotation = HadamardRotation(size=head_size) if has_hadamard(head_size) else None

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take and return ``(batch, heads, tokens, head size)`` tensors."""
        if self.rotation is not None:
            query, key = self.rotation(query), self.rotation(key)
        else:
            key = key.clone()
        key = quantize_(key, self.bits)
        together = value.transpose(1, 2).flatten(-2).clone()
        rounded = quantize_(together, self.bits)
        heads = torch.unflatten(rounded, -1, (value.shape[1], value.shape[3]))
        value = heads.transpose(1, 2)
        return query, key, value

    def make_plain(self, root: nn.Module, name: str) -> str:
        """Return why there is no plain form."""
        return f"keys and values are rounded to {self.bits} bits while it runs"


_OURS = "equipoise_quantized_keys_values_"


def quantize_keys_values(module: Any, structure: Structure | None, bits: int) -> None:
    """Make a copied decoder's attention read keys and values rounded to ``bits``.

    The cache keeps them unrounded and they are rounded when read, which gives
    the same numbers. The attention that follows is the one the module had.

    Raises
    ------
    UsageError
        If it is no decoder, or its attention cannot be replaced.
    """
    if structure is None:
        raise UsageError(
            f"Keys and values are those of a decoder-only language model, and"
            f" {type(module).__name__} is none."
        )
    first: Any = module.get_submodule(structure.blocks[0].attention.name)
    inner = str(module.config._attn_implementation)
    usable = getattr(module, "_supports_attention_backend", False)
    if not usable or (inner == "eager" and _eager(first) is None):
        raise UsageError(
            f"Keys and values of {type(module).__name__} cannot be rounded: its attention cannot"
            " be replaced."
        )
    _register(inner)
    for block in structure.blocks:
        attention: Any = module.get_submodule(block.attention.name)
        attention.key_value_quantizer = KeyValueQuantizer(bits, block.attention.head_size)
    module.config._attn_implementation = _OURS + inner


def _register(inner: str) -> None:
    """Give transformers an attention that rounds, then does what ``inner`` does."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attend(
        attention: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any
    ) -> tuple[Tensor, Tensor | None]:
        rounded = attention.key_value_quantizer(query, key, value)
        function = ALL_ATTENTION_FUNCTIONS.get_interface(inner, _eager(attention))
        found: tuple[Tensor, Tensor | None] = function(attention, *rounded, *rest, **more)
        return found

    AttentionInterface.register(_OURS + inner, attend)
    if inner in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(_OURS + inner, ALL_MASK_ATTENTION_FUNCTIONS[inner])


def _eager(attention: Any) -> Any:
    """Return the plain attention function of a model's own file, or None."""
    return getattr(sys.modules[type(attention).__module__], "eager_attention_forward", None)


BlockInput = tuple[tuple[Any, ...], dict[str, Any]]


@torch.no_grad()
def block_inputs(
    module: nn.Module, structure: Structure, calibration: Sequence[Any]
) -> tuple[list[Tensor], list[list[BlockInput]]]:
    """Return the first block's hidden states, and what else each block is given, by batch.

    Blocks are not all given the same: masks and positions may depend on their kind.
    """
    hidden: list[Tensor] = []
    others: list[list[BlockInput]] = [[] for _ in structure.blocks]

    def catch(number: int) -> Callable[..., None]:
        def hook(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            named = dict(named)
            first = inputs[0] if inputs else named.pop("hidden_states")
            if number == 0:
                hidden.append(first)
            others[number].append((inputs[1:], named))

        return hook

    hooks = [
        module.get_submodule(block.name).register_forward_pre_hook(
            catch(block.index), with_kwargs=True
        )
        for block in structure.blocks
    ]
    try:
        for batch in calibration:
            call(module, batch)
    finally:
        for handle in hooks:
            handle.remove()
    return hidden, others


@torch.no_grad()
def run_block(
    block: nn.Module, hidden: Sequence[Tensor], others: Sequence[BlockInput]
) -> list[Tensor]:
    """Return the hidden states that the next block is given, for each batch."""
    found: list[Tensor] = []
    for states, (rest, named) in zip(hidden, others, strict=True):
        output = block(states, *rest, **named)
        found.append(output[0] if isinstance(output, tuple) else output)
    return found


@torch.no_grad()
def call(module: nn.Module, batch: Tensor) -> Any:
    """Run a module on one batch: token ids for a transformers model, else features.

    Raises
    ------
    UsageError
        If the batch is not of the kind the module takes, or longer than it can be.
    """
    first = next(module.parameters())
    config: Any = getattr(module, "config", None)
    if not batch.is_floating_point():
        if config is None:
            raise UsageError("Calibration gave token ids, and this module takes features.")
        limit = getattr(config, "max_position_embeddings", None)
        if isinstance(limit, int) and batch.shape[-1] > limit:
            raise UsageError(
                f"Calibration windows of {batch.shape[-1]} tokens are longer than the {limit}"
                " positions of the model; lower length."
            )
        return module(batch.to(first.device), use_cache=False)
    if config is not None:
        raise UsageError("Calibration gave features, and this module takes token ids.")
    return module(batch.to(first.device, first.dtype))
