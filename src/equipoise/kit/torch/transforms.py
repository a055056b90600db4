r"""Rotations and scales of a decoder that leave what it computes as it is.

Rows are activations, so a linear layer is $Y = X W^\top + b$. After `fuse_norms`
every norm is without gain and bias, and `folded` moves a pair $T = R S$ (rotation,
then scale) in front of each layer into tensors the decoder has already:

- the residual stream is turned by one R: embeddings become $E R$, layers that
  read it $W R$, layers that write to it $R^\top W$;
- a scale between norm and layers becomes the norm's gain;
- values are scaled and turned within each head, and the output layer turned back;
- queries are scaled and keys divided by the same;
- channels between up and down layers are scaled, where a gate makes this linear.

A LayerNorm subtracts the mean, which commutes with R if R keeps the direction
$(1, \dots, 1)$: then $R = U \, \mathrm{diag}(1, R') \, U^\top$, with $U$ orthogonal and
its first column $d^{-1/2} (1, \dots, 1)$.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.language.structure import Attention, Block, Structure
from equipoise.kit.torch.linear import is_transposed, weight_of
from equipoise.kit.torch.rotations import Rotation

_SMALLEST_GAIN = 1e-6


@dataclass(frozen=True)
class BlockTransforms:
    """What is done inside one block; None leaves a place as it is.

    Parameters
    ----------
    attention, feed_forward
        Scales between norm and linear layers, ``(hidden,)``. Where one norm
        serves both parts of a block only ``attention`` counts.
    values
        Rotations of values, ``(key-value heads, head size, head size)``.
    value_scale
        Scales of values before their rotation, ``(key-value heads, head size)``.
    query_key
        What queries are multiplied and keys divided by, ``(key-value heads,
        head size)``; one row where there are norms on queries and keys.
    channels
        Scales of the up layer's outputs, ``(channels,)``.
    online
        Rotation that the input of the down layer goes through while it runs;
        only the layer's weight is turned here.
    """

    attention: Tensor | None = None
    feed_forward: Tensor | None = None
    values: Tensor | None = None
    value_scale: Tensor | None = None
    query_key: Tensor | None = None
    channels: Tensor | None = None
    online: Rotation | None = None


@dataclass(frozen=True)
class Transforms:
    """Rotations and scales of a whole decoder.

    Parameters
    ----------
    blocks
        One for each block.
    residual
        Rotation of the residual stream, ``(hidden, hidden)``, or None.
    """

    blocks: tuple[BlockTransforms, ...]
    residual: Tensor | None = None


def norm_readers(block: Block) -> list[tuple[str, list[str]]]:
    """Return each norm of a block with the linear layers that read it, attention's first.

    Raises
    ------
    UsageError
        If the block has no norm, or norms after its parts.
    """
    attention, _, feed_forward, _ = block.stages()
    if len(block.norms) == 1 and block.parallel:
        return [(block.norms[0], attention + feed_forward)]
    if len(block.norms) != 2:
        raise UsageError(
            f"{block.name} has {len(block.norms)} norms of the residual stream; it can be rotated"
            " and scaled where there is one before attention and one before the feed-forward part."
        )
    return [(block.norms[0], attention), (block.norms[1], feed_forward)]


def untie(module: Any, structure: Structure) -> None:
    """Let a module of your own have a head of its own; it is still to be given one."""
    if structure.tied:
        module.config.tie_word_embeddings = False
        if getattr(module, "all_tied_weights_keys", None):
            module.all_tied_weights_keys = {}


@torch.no_grad()
def fuse_norms(module: Any, structure: Structure) -> None:
    """Move gains and biases of norms into the layers that read them, and untie the head.

    A bias goes into the readers' biases where all have one; else it stays with
    the norm, divided by the gain.

    Parameters
    ----------
    module
        A copy of your own; its tensors are replaced, not written to.
    structure
        From `structure_of`.

    Raises
    ------
    UsageError
        If a norm has no gain, or a bias that can go nowhere because a gain is zero.
    """
    untie(module, structure)
    if structure.norm is None:
        raise UsageError(f"{type(module).__name__} has no norm after its last block.")
    pairs = [pair for block in structure.blocks for pair in norm_readers(block)]
    for name, readers in [*pairs, (structure.norm, [structure.head])]:
        norm = _part(module, name)
        layers = [_part(module, each) for each in readers]
        gain = norm.weight.detach()
        bias = getattr(norm, "bias", None)
        if bias is not None:
            bias = bias.detach()
            if all(layer.bias is not None for layer in layers):
                for layer in layers:
                    added = weight_of(layer).double() @ bias.double()
                    _set(layer, "bias", layer.bias + added.to(layer.bias.dtype))
                bias = torch.zeros_like(bias)
            elif bool((gain.abs() <= _SMALLEST_GAIN * gain.abs().max()).any()):
                raise UsageError(
                    f"{name} has a bias and gains of zero, and its layers have no biases:"
                    " it cannot be rotated."
                )
            else:
                bias = bias / gain
            _set(norm, "bias", bias)
        for layer in layers:
            set_weight(layer, weight_of(layer) * gain)
        _set(norm, "weight", torch.ones_like(gain))


def folded(
    module: nn.Module, structure: Structure, transforms: Transforms
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a decoder with transforms folded in, by name of parameter.

    Arithmetic has the transforms' number format, and gradients go through it,
    so ``dict(folded(...))`` can be given to `torch.func.functional_call`.

    Parameters
    ----------
    module
        Its norms are fused, or the residual stream is not turned.
    structure
        From `structure_of`.
    transforms
        What to fold in.
    """
    turn = transforms.residual
    for block, each in zip(structure.blocks, transforms.blocks, strict=True):
        yield from _folded_block(module, block, each, turn)
    if turn is None:
        return
    outside = [structure.embeddings, structure.head]
    for name in outside + ([structure.positions] if structure.positions else []):
        layer = _part(module, name)
        yield f"{name}.weight", _columns(weight_of(layer), turn)
    norm = _part(module, structure.norm or "")
    if getattr(norm, "bias", None) is not None:
        yield f"{structure.norm}.bias", _columns(norm.bias, turn)


@torch.no_grad()
def fold_(module: nn.Module, structure: Structure, transforms: Transforms) -> None:
    """Fold transforms into a module of your own, as `folded` does.

    Tensors are replaced, not written to, and keep their number format.
    """
    for name, tensor in folded(module, structure, transforms):
        owner, _, last = name.rpartition(".")
        part = _part(module, owner)
        dtype = getattr(part, last).dtype
        setattr(part, last, nn.Parameter(tensor.to(dtype).contiguous(), requires_grad=False))


def hollow_(module: nn.Module, structure: Structure) -> None:
    """Give every tensor that `fuse_norms` and `fold_` replace one yet to be filled in."""
    names = [structure.embeddings, structure.positions, structure.norm, structure.head]
    names += structure.linear_layers()
    for block in structure.blocks:
        names += [*block.norms, block.attention.query_norm, block.attention.key_norm]
    for name in names:
        if name is not None:
            part = _part(module, name)
            for label, tensor in list(part.named_parameters(recurse=False)):
                empty = torch.empty_like(tensor, device="meta")
                setattr(part, label, nn.Parameter(empty, requires_grad=False))


def rotary_size(module: nn.Module, attention: Attention) -> int:
    """Return how many of a head's numbers turn with the position: the first ones, or none.

    Number $i$ of the first half turns with number $i$ of the second.
    """
    if not attention.rotary:
        return 0
    for name, buffer in module.named_buffers():
        if name.rpartition(".")[2] == "inv_freq":
            return 2 * len(buffer)
    return attention.head_size


def ones_basis(size: int) -> Tensor:
    r"""Return U: symmetric, orthogonal, its first column $d^{-1/2} (1, \dots, 1)$; float64.

    Examples
    --------
    >>> ones_basis(4)[0]
    tensor([0.5000, 0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """
    axis = torch.full((size,), size**-0.5, dtype=torch.float64)
    axis[0] -= 1.0
    length = axis.square().sum()
    whole = torch.eye(size, dtype=torch.float64)
    return whole if length == 0 else whole - 2 / length * torch.outer(axis, axis)


def keep_ones(inner: Tensor) -> Tensor:
    r"""Return $U \, \mathrm{diag}(1, R') \, U$, which keeps $(1, \dots, 1)$; U is `ones_basis`.

    Parameters
    ----------
    inner
        $R'$, orthogonal, shape ``(d - 1, d - 1)``.

    Examples
    --------
    >>> turned = keep_ones(-torch.eye(3, dtype=torch.float64))
    >>> torch.ones(4, dtype=torch.float64) @ turned
    tensor([1., 1., 1., 1.], dtype=torch.float64)
    """
    basis = ones_basis(len(inner) + 1).to(inner)
    whole: Tensor = torch.block_diag(inner.new_ones(1, 1), inner)  # type: ignore[no-untyped-call]
    return basis @ whole @ basis


def _part(module: nn.Module, name: str) -> Any:
    return module.get_submodule(name)


def _folded_block(
    module: nn.Module, block: Block, each: BlockTransforms, turn: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    scales = [each.attention, each.feed_forward]
    scale_of: dict[str, Tensor | None] = {}
    for (name, readers), scale in zip(norm_readers(block), scales, strict=False):
        scale_of |= dict.fromkeys(readers, scale)
        norm = _part(module, name)
        if scale is not None:
            yield f"{name}.weight", norm.weight * scale
        bias = getattr(norm, "bias", None)
        if bias is not None and (scale is not None or turn is not None):
            turned = bias if turn is None else _columns(bias, turn)
            yield f"{name}.bias", turned if scale is None else turned * scale
    yield from _folded_attention(module, block.attention, each, turn, scale_of)
    mlp = block.feed_forward
    for name in [mlp.up] if mlp.gate is None else [mlp.gate, mlp.up]:
        layer = _part(module, name)
        weight, bias = _read(weight_of(layer), turn, scale_of[name]), layer.bias
        if name == mlp.up and each.channels is not None:
            weight = each.channels[:, None] * weight
            bias = None if bias is None else bias * each.channels
        yield from _named(layer, name, weight, bias)
    down = _part(module, mlp.down)
    weight = weight_of(down)
    if each.channels is not None:
        weight = weight / each.channels
    if each.online is not None:
        weight = each.online(weight)
    yield from _named(down, mlp.down, *_written(weight, down.bias, turn))


def _folded_attention(
    module: nn.Module,
    attention: Attention,
    each: BlockTransforms,
    turn: Tensor | None,
    scale_of: dict[str, Tensor | None],
) -> Iterator[tuple[str, Tensor]]:
    heads, groups, size = attention.heads, attention.key_value_heads, attention.head_size
    normed = attention.query_norm is not None and attention.key_norm is not None
    if each.query_key is not None and normed:
        for name, gain in (
            (attention.query_norm, each.query_key[0]),
            (attention.key_norm, 1 / each.query_key[0]),
        ):
            yield f"{name}.weight", _part(module, name or "").weight * gain
    kinds: tuple[tuple[Any, str], ...] = (
        ("query", attention.query), ("key", attention.key), ("value", attention.value),
    )  # fmt: skip
    done: dict[str, list[tuple[Tensor, Tensor, Tensor | None]]] = {}
    for what, name in kinds:
        layer = _part(module, name)
        rows = attention.rows(what).to(layer.weight.device)
        weight = _read(weight_of(layer)[rows], turn, scale_of[name])
        bias = None if layer.bias is None else layer.bias[rows]
        if what == "value":
            if each.value_scale is not None:
                weight = each.value_scale.reshape(-1, 1) * weight
                bias = None if bias is None else each.value_scale.reshape(-1) * bias
            if each.values is not None:
                by_head = weight.to(each.values.dtype).view(groups, size, -1)
                weight = (each.values.mT @ by_head).flatten(0, 1)
                bias = None if bias is None else _by_head(bias, each.values)
        elif each.query_key is not None and not normed:
            scale = each.query_key
            if what == "query":
                scale = scale.repeat_interleave(heads // groups, 0).reshape(-1)
            else:
                scale = 1 / scale.reshape(-1)
            weight = scale[:, None] * weight
            bias = None if bias is None else scale * bias
        done.setdefault(name, []).append((rows, weight, bias))
    for name, parts in done.items():
        order = torch.cat([rows for rows, _, _ in parts]).argsort()
        biases = [bias for _, _, bias in parts if bias is not None]
        yield from _named(
            _part(module, name),
            name,
            torch.cat([weight for _, weight, _ in parts])[order],
            torch.cat(biases)[order] if biases else None,
        )
    layer = _part(module, attention.output)
    weight = weight_of(layer)
    if each.value_scale is not None:
        weight = weight / each.value_scale.repeat_interleave(heads // groups, 0).reshape(-1)
    if each.values is not None:
        weight = _by_head(weight, each.values.repeat_interleave(heads // groups, 0))
    yield from _named(layer, attention.output, *_written(weight, layer.bias, turn))


def _by_head(x: Tensor, turns: Tensor) -> Tensor:
    """Return rows ``(..., heads * size)`` times one matrix for each head."""
    parts = torch.unflatten(x.to(turns.dtype), -1, turns.shape[:2])
    return torch.einsum("...hi,hij->...hj", parts, turns).flatten(-2)


def _columns(x: Tensor, turn: Tensor) -> Tensor:
    return x.to(turn.dtype) @ turn


def _read(weight: Tensor, turn: Tensor | None, scale: Tensor | None) -> Tensor:
    if turn is not None:
        weight = _columns(weight, turn)
    return weight if scale is None else weight / scale


def _written(
    weight: Tensor, bias: Tensor | None, turn: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    if turn is None:
        return weight, bias
    return turn.mT @ weight.to(turn.dtype), None if bias is None else _columns(bias, turn)


def _named(
    layer: nn.Module, name: str, weight: Tensor, bias: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", weight.mT if is_transposed(layer) else weight
    if bias is not None:
        yield f"{name}.bias", bias


def set_weight(layer: nn.Module, weight: Tensor) -> None:
    """Replace a linear layer's weight by one of the same size, ``(out, in)``."""
    _set(layer, "weight", (weight.mT if is_transposed(layer) else weight).contiguous())


def _set(part: nn.Module, name: str, tensor: Tensor) -> None:
    setattr(part, name, nn.Parameter(tensor.detach(), requires_grad=False))
