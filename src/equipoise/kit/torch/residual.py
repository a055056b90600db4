"""Rotating a decoder's residual stream unseen, so that its activations spread out.

Rotating the residual stream by an orthogonal matrix changes nothing that a
decoder computes, once the norms' gains are moved into the layers that follow
(computational invariance; QuaRot, NeurIPS 2024). A LayerNorm subtracts the mean
besides, so there the matrix must keep the direction of ones.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.structure import Structure, structure_of
from equipoise.kit.torch.rotations import (
    HadamardRotation,
    OnesKeepingRotation,
    RotationKind,
    empty_rotation,
    has_hadamard,
    random_rotation,
    suitable,
)
from equipoise.kit.torch.transforms import fuse_norms, hollow_, norm_readers, untie


class _Stop(Exception):
    pass


@torch.no_grad()
def turns_as_a_whole(module: nn.Module) -> bool:
    """Say whether rotating the residual stream, and rotating back, leaves a decoder as it is.

    One block of the same class and configuration, with weights of no meaning, is run on
    three vectors and looked at: they go into it as they are (with positions added),
    norms come right before the layers that read them and do nothing but divide by
    the size (and subtract the mean) and multiply by gains, and what comes out is the
    sum of what went in and what both parts give. Tensors of the module itself do
    not matter, so a skeleton is judged as the real thing.

    Parameters
    ----------
    module
        A decoder, of which `structure_of` finds the parts.

    Examples
    --------
    >>> from equipoise.kit.language.families import random_model
    >>> turns_as_a_whole(random_model("gpt2").module)
    True
    >>> turns_as_a_whole(random_model("olmo2").module)  # norms come after each part
    False
    """
    sample = _sample(module)
    structure = structure_of(sample)
    block = structure.blocks[0]
    try:
        readers = norm_readers(block)
    except UsageError:
        return False
    last = sample.get_submodule(structure.norm) if structure.norm else None
    if type(last) is not type(sample.get_submodule(readers[0][0])):
        return False
    names = [*block.norms, *structure.linear_layers(), block.name]
    if structure.positions:
        names.append(structure.positions)
    for name in names:
        for parameter in sample.get_submodule(name).parameters():
            parameter.copy_(_scattered(parameter.numel()).view_as(parameter))
    stream = _scattered(3 * structure.hidden).view(1, 3, -1)
    seen = _watched(sample, names, block.name, stream)
    if set(names) - seen.keys():
        return False
    x, y = seen[block.name]
    expected = stream + seen[structure.positions][1] if structure.positions else stream
    written = [block.attention.output, block.feed_forward.down]
    parts = [seen[name][1].reshape(x.shape) for name in written]
    streams = [x, x if block.parallel else x + parts[0]]
    plain = [_close(x, expected), _close(y, x + parts[0] + parts[1])]
    for (name, reading), before in zip(readers, streams, strict=False):
        given, normed = seen[name]
        plain.append(_close(given.reshape(x.shape), before))
        plain.append(_normalises(sample.get_submodule(name), given, structure.centred))
        plain += [seen[layer][0].data_ptr() == normed.data_ptr() for layer in reading]
    return all(plain)


def _sample(module: Any) -> Any:
    """Return a decoder of one block, made as this one was, with nothing in its tensors."""
    from transformers.initialization import no_init_weights

    config = copy.deepcopy(module.config)
    config.num_hidden_layers = 1
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1]
    with torch.random.fork_rng(devices=[]), no_init_weights():
        return type(module)(config).float().eval()


def _scattered(count: int) -> Tensor:
    """Return numbers from -0.5 to 0.5; repeating a few is far faster than drawing all."""
    few = torch.rand(4099, generator=torch.Generator().manual_seed(0)).sub_(0.5)
    return few.repeat(count // len(few) + 1)[:count]


def _watched(
    sample: Any, names: Sequence[str], last: str, stream: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what modules are given and give, up to the last one."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
            x = given[0] if given else next(iter(named.values()))
            seen[name] = (x, found[0] if isinstance(found, tuple) else found)
            if name == last:
                raise _Stop

        return hook

    for name in names:
        sample.get_submodule(name).register_forward_hook(note(name), with_kwargs=True)
    with contextlib.suppress(_Stop):
        sample(inputs_embeds=stream, use_cache=False)
    return seen


def _close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= 1e-3 * other.abs().max())


def _normalises(norm: Any, x: Tensor, centred: bool) -> bool:
    """Say whether a norm is what its name says, its gain a plain factor."""
    x = 1000 * x / x.abs().max()  # so that no small constant in it counts
    rest = (x - x.mean(-1, keepdim=True)) if centred else x
    expected = rest / rest.square().mean(-1, keepdim=True).sqrt() * norm.weight
    bias = getattr(norm, "bias", None)
    return _close(norm(x), expected if bias is None else expected + bias)


def rotate_decoder(
    module: Any, structure: Structure, kind: RotationKind, rng: Rng | None = None
) -> None:
    r"""Rotate a decoder so that its outputs stay the same and its activations spread out.

    With norms fused into the layers after them and Q the rotation of the residual
    stream: embeddings become $E Q$; layers that read the stream and the head
    $W Q$; layers that write to it $Q^\top W$. Value heads are rotated within each
    head, offline; before attention's output layer heads are mixed online where
    their number has a Hadamard matrix; before the down layer the input is rotated
    online. A head tied to the embeddings is untied. LayerNorms take a Q that keeps
    $(1, \dots, 1)$ (see `rotations.OnesKeepingRotation`).

    Parameters
    ----------
    module
        A copy of your own whose linear layers are `quantized.QuantizedLinear`,
        and which `turns_as_a_whole`; its tensors are replaced, not written.
    structure
        Of the module before its layers were replaced.
    kind
        Of the residual stream's rotation. The others are Hadamard; random
        orthogonal takes its place where a size has no Hadamard matrix.
    rng
        Draws the rotations; None leaves tensors to be filled in.
    """
    if rng is None:
        hollow_(module, structure)
        untie(module, structure)
    else:
        fuse_norms(module, structure)
        stream: nn.Module = random_rotation(
            suitable(kind, structure.hidden), structure.hidden, rng.child("rotation", "residual")
        )
        if structure.centred:
            stream = OnesKeepingRotation(stream, structure.hidden)
        _turn_outside(module, structure, stream)
    for block in structure.blocks:
        attention, channels = block.attention, block.feed_forward.channels
        into, (output,), up, (down,) = block.stages()
        across = None
        if attention.heads > 1 and has_hadamard(attention.heads):
            across = HadamardRotation(size=attention.heads, inner=attention.head_size)
        within, online = suitable("hadamard", attention.head_size), suitable("hadamard", channels)
        last = module.get_submodule(down)
        if rng is None:
            last.rotation = empty_rotation(online, channels)
        else:
            own = rng.child("layer", block.index)
            heads = random_rotation(within, attention.head_size, own.child("rotation", "values"))
            for name in into:
                spread = [heads] if name == attention.value else []
                rows = attention.rows("value")
                _turn(module.get_submodule(name), inputs=[stream], outputs=spread, rows=rows)
            mixed = [heads] if across is None else [heads, across]
            _turn(module.get_submodule(output), inputs=mixed, outputs=[stream])
            for name in up:
                _turn(module.get_submodule(name), inputs=[stream])
            channel = random_rotation(online, channels, own.child("rotation", "down"))
            _turn(last, inputs=[channel], outputs=[stream])
            last.rotation = channel.to(last.weight.dtype)
        module.get_submodule(output).rotation = across


def _turn_outside(module: Any, structure: Structure, stream: nn.Module) -> None:
    """Rotate what meets the residual stream outside linear layers, and the head."""
    for name in (structure.embeddings, structure.positions, structure.head):
        if name is not None:
            _turn(module.get_submodule(name), inputs=[stream])
    norms = [name for block in structure.blocks for name in block.norms]
    for name in [*norms, structure.norm or ""]:
        norm = module.get_submodule(name)
        if getattr(norm, "bias", None) is not None:
            turned = stream(norm.bias.detach().double()[None])[0].to(norm.bias.dtype)
            norm.bias = nn.Parameter(turned, requires_grad=False)


@torch.no_grad()
def _turn(
    layer: Any,
    *,
    inputs: Sequence[nn.Module] = (),
    outputs: Sequence[nn.Module] = (),
    rows: Tensor | None = None,
) -> None:
    """Replace a layer's weight by the one for rotated inputs, and outputs (of some rows)."""
    dtype = layer.weight.dtype
    weight = layer.weight.double()
    for turn in inputs:
        weight = turn.to(weight.device)(weight)
    bias = getattr(layer, "bias", None)
    if outputs:
        chosen = slice(None) if rows is None else rows.to(weight.device)
        weight = weight.clone() if weight is layer.weight else weight
        shift = None if bias is None else bias.double().clone()
        for turn in outputs:
            weight[chosen] = turn(weight[chosen].T.contiguous()).T
            if shift is not None:
                shift[chosen] = turn(shift[chosen][None])[0]
        if shift is not None:
            layer.bias = nn.Parameter(shift.to(dtype), requires_grad=False)
    layer.weight = nn.Parameter(weight.to(dtype).contiguous(), requires_grad=False)
