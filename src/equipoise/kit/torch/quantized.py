"""Linear layers that run as a quantised one would, and modules made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import Rng, UsageError
from equipoise.kit.torch import decoders
from equipoise.kit.torch.copies import copy_module, linear_layers, replace_modules
from equipoise.kit.torch.gptq import Hessian, gptq
from equipoise.kit.torch.quantizers import (
    quantize_,
    round_weights,
    smoothing_scales,
    smoothquant_scales,
)
from equipoise.kit.torch.rotations import (
    Rotation,
    RotationKind,
    empty_rotation,
    random_rotation,
)
from equipoise.kit.torch.tokens import current_mask

UNROUNDED = 16
"""Bits from which on numbers are left in floating point."""


class QuantizedLinear(nn.Module):
    r"""A linear layer whose input is rotated, smoothed and rounded while it runs.

    Computes $Y = Q(X R) \hat W^\top + b$ in floating point, with the values that
    integer arithmetic would give. ``weight`` holds $\hat W$, rotated and rounded
    already. Padding (see `tokens.current_mask`) does not enter the smoothing.

    Parameters
    ----------
    weight, bias
        As in `torch.nn.Linear`.
    bits
        Width of the input's integers; 16 leaves it as it is.
    group
        Channels of a token that share a step; 0 is all of them.
    clip
        Ratio the input's range is shrunk by.
    smooth
        Channels that share a runtime-smooth scale; 0 is no smoothing.
    rotation
        Applied to the input.
    divisor
        Fixed scales the input is divided by (SmoothQuant), shape ``(K,)``.
    """

    bias: nn.Parameter | None
    divisor: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        bias: nn.Parameter | None = None,
        *,
        bits: int = UNROUNDED,
        group: int = 0,
        clip: float = 1.0,
        smooth: int = 0,
        rotation: Rotation | None = None,
        divisor: Tensor | None = None,
    ) -> None:
        super().__init__()
        shared = isinstance(weight, nn.Parameter)
        self.weight = weight if shared else nn.Parameter(weight, requires_grad=False)
        self.register_parameter("bias", bias)
        self.rotation = rotation
        self.register_buffer("divisor", divisor)
        self.bits, self.group, self.clip, self.smooth = bits, group, clip, smooth

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]

    def transform(self, x: Tensor) -> Tensor:
        """Return the input as the weight expects it: rotated, divided, not rounded."""
        if self.rotation is not None:
            x = self.rotation(x)
        return x if self.divisor is None else x / self.divisor

    def smoothed(self, x: Tensor) -> Tensor:
        """Return what the quantiser sees: transformed and smoothed."""
        x = self.transform(x)
        if self.smooth and self.bits < UNROUNDED:
            x = x / self._scales(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for ``x`` of shape ``(..., K)``."""
        received = x
        x = self.transform(x)
        if self.bits < UNROUNDED:
            scale = self._scales(x) if self.smooth else None
            if scale is not None:
                x = x / scale
            elif x is received:
                x = x.clone()
            x = quantize_(x, self.bits, group=self.group, clip=self.clip)
            if scale is not None:
                x.mul_(scale)
        return nn.functional.linear(x, self.weight, self.bias)

    def _scales(self, x: Tensor) -> Tensor:
        if x.dim() < 2:
            raise UsageError("Runtime smoothing needs the tokens of a sequence, got one vector.")
        mask = current_mask()
        if mask is not None and mask.shape != x.shape[:-1]:
            mask = None  # not the tokens of this batch
        return smoothing_scales(x, self.smooth, mask=mask)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bits={self.bits}, group={self.group}, smooth={self.smooth}"
        )


@dataclass(frozen=True)
class Scheme:
    """How a module is quantised.

    Parameters
    ----------
    weights, activations
        Bits; 16 leaves them in floating point.
    weight_group, activation_group
        Entries of a row that share a step; 0 is the whole row.
    clip
        Ratio the activations' range is shrunk by.
    clip_search
        Whether each weight row's range is chosen by `quantizers.search_clip`.
    rotation
        ``"hadamard"``, ``"orthogonal"`` or None.
    smooth
        Channels that share a runtime-smooth scale; 0 is no smoothing.
    compensate
        Whether weights are rounded by GPTQ; needs calibration.
    migrate
        SmoothQuant's alpha, or None; needs calibration.
    keys_values
        Bits of an attention layer's keys (per head, after the position
        embedding and a Hadamard rotation) and values (per token).
    """

    weights: int = UNROUNDED
    activations: int = UNROUNDED
    weight_group: int = 0
    activation_group: int = 0
    clip: float = 1.0
    clip_search: bool = False
    rotation: RotationKind | None = None
    smooth: int = 0
    compensate: bool = False
    migrate: float | None = None
    keys_values: int = UNROUNDED


NOT_SMOOTHED = ("q_proj", "k_proj", "v_proj")
"""Layers of a decoder that the paper's code leaves without runtime smoothing."""


def quantize_module(
    module: nn.Module,
    scheme: Scheme,
    rng: Rng | None = None,
    calibration: Sequence[Any] = (),
) -> nn.Module:
    """Return a copy of a module whose linear layers run quantised.

    Every `torch.nn.Linear` is replaced but a language model's output head;
    embeddings stay as they are. A Llama-like decoder is rotated as a whole
    (see `decoders.rotate_decoder`), any other module layer by layer, at its
    input. Tensors that do not change are shared with the original.

    Parameters
    ----------
    module
        Left as it is.
    scheme
        What to do.
    rng
        Draws rotations. None makes the skeleton: the same structure with
        tensors yet to be filled in.
    calibration
        Inputs: token ids ``(1, tokens)`` for a language model, else float
        tensors ``(..., features)``.

    Raises
    ------
    UsageError
        If there is no linear layer, or no rotation of the kind for a width,
        or calibration is needed and missing.

    Examples
    --------
    >>> layer = nn.Linear(64, 8)
    >>> quantize_module(layer, Scheme(weights=4, activations=4, rotation="hadamard"), Rng(0))
    QuantizedLinear(
      in_features=64, out_features=8, bits=4, group=0, smooth=0
      (rotation): HadamardRotation(size=64, inner=1, signs=True)
    )
    """
    treated: Any = copy_module(module)
    layers = linear_layers(treated)
    if not layers:
        raise UsageError("There are no linear layers to quantise in this module.")
    made = {name: QuantizedLinear(old.weight, old.bias) for name, old in layers.items()}
    treated = replace_modules(treated, made)
    decoder = decoders.decoder_of(treated)
    if scheme.rotation is not None:
        if decoder is not None:
            decoders.rotate_decoder(treated, decoder, scheme.rotation, rng)
        else:
            for name, layer in made.items():
                _rotate_layer(layer, scheme.rotation, name, rng)
    if rng is None:
        _empty(made.values(), scheme)
    else:
        needed = scheme.compensate or scheme.migrate is not None
        if needed and not calibration:
            raise UsageError("This way of quantising needs calibration data, and none was given.")
        _fix_weights(treated, made, scheme, calibration)
    for name, layer in made.items():
        kept = decoder is not None and name.rpartition(".")[2] in NOT_SMOOTHED
        layer.bits = scheme.activations
        layer.group = scheme.activation_group
        layer.clip = scheme.clip
        layer.smooth = 0 if kept else scheme.smooth
    if scheme.keys_values < UNROUNDED:
        if decoder is None:
            raise UsageError("Quantising keys and values needs a Llama-like decoder.")
        decoders.quantize_keys_values(treated, decoder, scheme.keys_values)
    if scheme.smooth and scheme.activations < UNROUNDED:
        treated.equipoise_whole_sequence = True
    made_of: nn.Module = treated
    return made_of


def _rotate_layer(layer: QuantizedLinear, kind: RotationKind, name: str, rng: Rng | None) -> None:
    if rng is None:
        layer.rotation = empty_rotation(kind, layer.in_features)
        return
    rotation = random_rotation(kind, layer.in_features, rng.child("rotation", name))
    weight = layer.weight.detach()
    rotated = rotation.to(weight.device)(weight.double())
    layer.weight = nn.Parameter(rotated.to(weight.dtype), requires_grad=False)
    layer.rotation = rotation.to(weight.dtype)


def _empty(layers: Iterable[QuantizedLinear], scheme: Scheme) -> None:
    for layer in layers:
        if scheme.weights < UNROUNDED or scheme.migrate is not None:
            hollow = torch.empty_like(layer.weight, device="meta")
            layer.weight = nn.Parameter(hollow, requires_grad=False)
        if scheme.migrate is not None:
            layer.divisor = torch.empty(layer.in_features, device="meta")


def _fix_weights(
    module: nn.Module,
    layers: dict[str, QuantizedLinear],
    scheme: Scheme,
    calibration: Sequence[Any],
) -> None:
    if scheme.migrate is not None:
        _migrate(module, layers, scheme.migrate, calibration)
    if scheme.weights >= UNROUNDED:
        return
    if scheme.compensate:
        _compensate(module, layers, scheme, calibration)
        return
    for layer in layers.values():
        weight = layer.weight.detach()
        rounded = round_weights(
            weight if weight.dtype == torch.float64 else weight.float(),
            scheme.weights,
            group=scheme.weight_group,
            search=scheme.clip_search,
        )
        layer.weight = nn.Parameter(rounded.to(weight.dtype), requires_grad=False)


@torch.no_grad()
def _migrate(
    module: nn.Module,
    layers: dict[str, QuantizedLinear],
    alpha: float,
    calibration: Sequence[Any],
) -> None:
    """Move difficulty from activations into weights (SmoothQuant), by stage."""
    largest: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found = layers[name].transform(inputs[0]).abs().flatten(0, -2).amax(0)
            largest[name] = torch.maximum(largest[name], found) if name in largest else found

        return hook

    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        for batch in calibration:
            decoders.call(module, batch)
    finally:
        for hook in hooks:
            hook.remove()
    for stage in _stages(module, layers):
        together = torch.cat([layers[name].weight for name in stage]).float()
        peaks = torch.stack([largest[name] for name in stage if name in largest] or [together[0]])
        scale = smoothquant_scales(peaks.amax(0).float(), together, alpha)
        for name in stage:
            layer = layers[name]
            dtype = layer.weight.dtype
            layer.divisor = scale.to(dtype)
            layer.weight = nn.Parameter(layer.weight * layer.divisor, requires_grad=False)


def _stages(module: nn.Module, layers: dict[str, QuantizedLinear]) -> list[list[str]]:
    """Group layers that read the same input, in the order they run."""
    decoder = decoders.decoder_of(module)
    if decoder is None:
        return [[name] for name in layers]
    return [stage for layer in decoder.layers for stage in layer.stages()]


@torch.no_grad()
def _compensate(
    module: nn.Module,
    layers: dict[str, QuantizedLinear],
    scheme: Scheme,
    calibration: Sequence[Any],
) -> None:
    """Round weights by GPTQ, each stage seeing inputs from the stages rounded before it."""
    decoder = decoders.decoder_of(module)
    if decoder is None:
        for name in layers:
            _gptq_stage([layers[name]], scheme, lambda: _run_all(module, calibration))
        return
    inputs = decoders.first_layer_inputs(module, decoder, calibration)
    for block in decoder.layers:
        run = functools.partial(decoders.run_layer, module.get_submodule(block.name), inputs)
        for stage in block.stages():
            _gptq_stage([layers[name] for name in stage], scheme, run)
        inputs = run()


def _run_all(module: nn.Module, calibration: Sequence[Any]) -> None:
    for batch in calibration:
        decoders.call(module, batch)


def _gptq_stage(
    stage: Sequence[QuantizedLinear], scheme: Scheme, run: Callable[[], object]
) -> None:
    hessian = Hessian(stage[0].in_features)

    def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        hessian.add(stage[0].transform(inputs[0]))

    handle = stage[0].register_forward_pre_hook(hook)
    try:
        run()
    finally:
        handle.remove()
    rounded = gptq(
        torch.cat([layer.weight for layer in stage]),
        hessian.value(),
        scheme.weights,
        group=scheme.weight_group,
        search=scheme.clip_search,
    )
    start = 0
    for layer in stage:
        own = rounded[start : start + layer.out_features].clone()
        start += len(own)
        layer.weight = nn.Parameter(own, requires_grad=False)
