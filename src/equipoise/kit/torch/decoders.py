"""Llama-like decoders from transformers: their parts, and how to rotate them unseen.

Rotating the residual stream by an orthogonal matrix changes nothing that a
decoder with root-mean-square norms computes, once the norms' gains are moved into
the layers that follow (computational invariance; QuaRot, NeurIPS 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.quantizers import quantize_
from equipoise.kit.torch.rotations import (
    HadamardRotation,
    Rotation,
    RotationKind,
    empty_rotation,
    has_hadamard,
    random_rotation,
)

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose residual stream can be rotated: pre-norm, RMS norms, gated MLP."""


@dataclass(frozen=True)
class Block:
    """One decoder layer by the name of its module."""

    name: str

    def stages(self) -> list[list[str]]:
        """Return linear layers that share an input, in the order they run."""
        attention, mlp = f"{self.name}.self_attn.", f"{self.name}.mlp."
        return [
            [f"{attention}{each}_proj" for each in "qkv"],
            [f"{attention}o_proj"],
            [f"{mlp}gate_proj", f"{mlp}up_proj"],
            [f"{mlp}down_proj"],
        ]


@dataclass(frozen=True)
class Decoder:
    """The sizes and layers of a decoder."""

    layers: tuple[Block, ...]
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_size: int


def decoder_of(module: nn.Module) -> Decoder | None:
    """Return what there is to know of a Llama-like causal language model, or None."""
    config = getattr(module, "config", None)
    if getattr(config, "model_type", None) not in FAMILIES or not hasattr(module, "lm_head"):
        return None
    assert config is not None
    heads = config.num_attention_heads
    return Decoder(
        layers=tuple(Block(f"model.layers.{i}") for i in range(config.num_hidden_layers)),
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=heads,
        key_value_heads=config.num_key_value_heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
    )


def rotate_decoder(
    module: Any, decoder: Decoder, kind: RotationKind, rng: Rng | None = None
) -> None:
    r"""Rotate a decoder so that its outputs stay the same and its activations spread out.

    With norm gains fused into the layers after them and Q the rotation of the
    residual stream: embeddings become $E Q$; query, key, value, gate, up and the
    head $W Q$; output and down $Q^\top W$. Value heads are rotated within each
    head, offline; before the output projection heads are mixed online where
    their number has a Hadamard matrix; before the down projection the input is
    rotated online. A head tied to the embeddings is untied.

    Parameters
    ----------
    module
        A copy of your own whose linear layers are `quantized.QuantizedLinear`;
        its tensors are replaced, not written.
    decoder
        From `decoder_of`.
    kind
        Of the residual stream's rotation. The others are Hadamard where their
        size has a matrix and random orthogonal where not.
    rng
        Draws the rotations; None leaves tensors to be filled in.
    """
    residual = _make(kind, decoder.hidden, rng, "residual")
    spread = _kind(decoder.head_size)
    for number, block in enumerate(decoder.layers):
        layer = module.get_submodule(block.name)
        attention, mlp = layer.self_attn, layer.mlp
        stream = None if rng is None else rng.child("layer", number)
        within = _make(spread, decoder.head_size, stream, "values")
        across = None
        if decoder.heads > 1 and has_hadamard(decoder.heads):
            across = HadamardRotation(size=decoder.heads, inner=decoder.head_size)
        online = _make(_kind(decoder.intermediate), decoder.intermediate, stream, "down")
        if rng is not None:
            gain, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
            for linear in (attention.q_proj, attention.k_proj):
                _turn(linear, gain=gain, inputs=[residual])
            _turn(attention.v_proj, gain=gain, inputs=[residual], outputs=[within])
            heads = [within] if across is None else [within, across]
            _turn(attention.o_proj, inputs=heads, outputs=[residual])
            for linear in (mlp.gate_proj, mlp.up_proj):
                _turn(linear, gain=after, inputs=[residual])
            _turn(mlp.down_proj, inputs=[online], outputs=[residual])
            online.to(mlp.down_proj.weight.dtype)
        else:
            for stage in block.stages():
                for name in stage:
                    _hollow(module.get_submodule(name))
        attention.o_proj.rotation = across
        mlp.down_proj.rotation = online
        _ones(layer.input_layernorm)
        _ones(layer.post_attention_layernorm)
    _untie(module)
    embeddings, head, norm = module.model.embed_tokens, module.lm_head, module.model.norm
    if rng is not None:
        _turn(head, gain=norm.weight, inputs=[residual])
        _turn(embeddings, inputs=[residual])
    else:
        _hollow(head)
        _hollow(embeddings)
    _ones(norm)


def _kind(size: int) -> RotationKind:
    return "hadamard" if has_hadamard(size) else "orthogonal"


def _make(kind: RotationKind, size: int, rng: Rng | None, name: str) -> Rotation:
    return empty_rotation(kind, size) if rng is None else random_rotation(
        kind, size, rng.child("rotation", name)
    )  # fmt: skip


@torch.no_grad()
def _turn(
    layer: Any,
    *,
    gain: Tensor | None = None,
    inputs: Sequence[Rotation] = (),
    outputs: Sequence[Rotation] = (),
) -> None:
    """Replace a layer's weight by the one for rotated inputs and outputs."""
    dtype = layer.weight.dtype
    weight = layer.weight.double()
    if gain is not None:
        weight = weight * gain.double()
    for rotation in inputs:
        weight = rotation.to(weight.device)(weight)
    bias = getattr(layer, "bias", None)
    for rotation in outputs:
        weight = rotation(weight.T.contiguous()).T
        if bias is not None:
            bias = rotation(bias.double()[None])[0]
    layer.weight = nn.Parameter(weight.to(dtype).contiguous(), requires_grad=False)
    if bias is not None and outputs:
        layer.bias = nn.Parameter(bias.to(dtype), requires_grad=False)


def _hollow(layer: Any) -> None:
    for name, tensor in list(layer.named_parameters(recurse=False)):
        hollow = torch.empty_like(tensor, device="meta")
        setattr(layer, name, nn.Parameter(hollow, requires_grad=False))


def _ones(norm: Any) -> None:
    norm.weight = nn.Parameter(torch.ones_like(norm.weight), requires_grad=False)


def _untie(module: Any) -> None:
    module.config.tie_word_embeddings = False
    if getattr(module, "all_tied_weights_keys", None):
        module.all_tied_weights_keys = {}


class KeyValueQuantizer(nn.Module):
    """Rounds keys per head (after a Hadamard rotation that queries share) and values per token."""

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


_ATTENTION = "equipoise_quantized_keys_values"


def quantize_keys_values(module: Any, decoder: Decoder, bits: int) -> None:
    """Make a copied decoder's attention read keys and values rounded to ``bits``.

    The cache keeps them unrounded and they are rounded when read, which gives
    the same numbers.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attend(
        attention: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any
    ) -> tuple[Tensor, Tensor | None]:
        rounded = attention.key_value_quantizer(query, key, value)
        found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            attention, *rounded, *rest, **more
        )
        return found

    AttentionInterface.register(_ATTENTION, attend)
    AttentionMaskInterface.register(_ATTENTION, sdpa_mask)
    for block in decoder.layers:
        attention = module.get_submodule(block.name).self_attn
        attention.key_value_quantizer = KeyValueQuantizer(bits, decoder.head_size)
    module.config._attn_implementation = _ATTENTION


LayerInput = tuple[Tensor, dict[str, Any]]


class _Stop(Exception):
    pass


@torch.no_grad()
def first_layer_inputs(
    module: nn.Module, decoder: Decoder, calibration: Sequence[Any]
) -> list[LayerInput]:
    """Return what the first layer is given for each batch of token ids."""
    caught: list[LayerInput] = []

    def catch(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        caught.append((inputs[0] if inputs else named.pop("hidden_states"), named))
        raise _Stop

    first = module.get_submodule(decoder.layers[0].name)
    handle = first.register_forward_pre_hook(catch, with_kwargs=True)
    try:
        for batch in calibration:
            try:
                call(module, batch)
            except _Stop:
                continue
    finally:
        handle.remove()
    return caught


@torch.no_grad()
def run_layer(layer: nn.Module, inputs: Sequence[LayerInput]) -> list[LayerInput]:
    """Return what the next layer is given, for each batch."""
    found: list[LayerInput] = []
    for hidden, named in inputs:
        output = layer(hidden, **named)
        found.append((output[0] if isinstance(output, tuple) else output, named))
    return found


@torch.no_grad()
def call(module: nn.Module, batch: Tensor) -> Any:
    """Run a module on one batch: token ids for a transformers model, else features."""
    first = next(module.parameters())
    if not batch.is_floating_point():
        if not hasattr(module, "config"):
            raise UsageError("Calibration gave token ids, and this module takes features.")
        return module(batch.to(first.device), use_cache=False)
    if hasattr(module, "config"):
        raise UsageError("Calibration gave features, and this module takes token ids.")
    return module(batch.to(first.device, first.dtype))
