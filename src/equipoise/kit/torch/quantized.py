"""Linear layers that run as a quantised one would, and modules made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.structure import Structure
from equipoise.kit.progress import report
from equipoise.kit.torch.calibrated import compensate, migrate
from equipoise.kit.torch.copies import copy_module, linear_layers, replace_modules
from equipoise.kit.torch.decoders import decoder_of, quantize_keys_values
from equipoise.kit.torch.linear import is_transposed, weight_of
from equipoise.kit.torch.quantizers import quantize_, round_weights, smoothing_scales
from equipoise.kit.torch.residual import rotate_decoder, turns_as_a_whole
from equipoise.kit.torch.rotations import (
    Rotation,
    RotationKind,
    empty_rotation,
    random_rotation,
    suitable,
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
    transposed
        Whether it stands for a layer that keeps its weight as ``(in, out)``, as
        GPT-2's do; here it is ``(out, in)`` all the same.
    """

    equipoise_linear: ClassVar[bool] = True

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
        transposed: bool = False,
    ) -> None:
        super().__init__()
        shared = isinstance(weight, nn.Parameter)
        self.weight = weight if shared else nn.Parameter(weight, requires_grad=False)
        self.register_parameter("bias", bias)
        self.rotation = rotation
        self.register_buffer("divisor", divisor)
        self.bits, self.group, self.clip, self.smooth = bits, group, clip, smooth
        self.transposed = transposed

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

    def make_plain(self, root: nn.Module, name: str) -> str | None:
        """Put an ordinary layer in place, or return why there is none.

        Where inputs are not rounded, what is done to them goes into the weight.
        """
        if self.bits < UNROUNDED:
            return f"inputs of linear layers are rounded to {self.bits} bits while it runs"
        if root is self:
            return "a linear layer alone cannot be put in its own place"
        layer = _ordinary(self._folded(), self.bias, self.transposed)
        replace_modules(root, {name: layer.train(self.training)})
        return None

    @torch.no_grad()
    def _folded(self) -> Tensor:
        weight = self.weight.detach()
        if self.divisor is None and self.rotation is None:
            return weight
        wide = weight.double()
        if self.divisor is not None:
            wide = wide / self.divisor
        if self.rotation is not None:
            found = torch.empty_like(wide)
            for start in range(0, self.in_features, 512):  # a few rows of the matrix at a time
                rows = torch.zeros(
                    min(512, self.in_features - start), self.in_features,
                    dtype=wide.dtype, device=wide.device,
                )  # fmt: skip
                rows.diagonal(start).fill_(1.0)
                found[:, start : start + 512] = wide @ self.rotation(rows).T
            wide = found
        return wide.to(weight.dtype)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bits={self.bits}, group={self.group}, smooth={self.smooth}"
        )


def _ordinary(weight: Tensor, bias: Tensor | None, transposed: bool) -> nn.Module:
    outputs, inputs = weight.shape
    layer: Any
    with torch.device("meta"):
        if transposed:
            from transformers.pytorch_utils import Conv1D

            layer = Conv1D(outputs, inputs)  # type: ignore[no-untyped-call]
        else:
            layer = nn.Linear(inputs, outputs, bias=bias is not None)
    kept = weight.T.contiguous() if transposed else weight
    layer.weight = nn.Parameter(kept, requires_grad=False)
    layer.bias = bias
    made: nn.Module = layer
    return made


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

    @property
    def touches(self) -> frozenset[str]:
        """What is the model's own before and no longer afterwards (`Treatment.replaces`)."""
        found = {"linear layers"}
        if self.rotation is not None:
            found.add("residual stream")
        if self.keys_values < UNROUNDED:
            found.add("attention")
        return frozenset(found)


def quantize_module(
    module: nn.Module,
    scheme: Scheme,
    rng: Rng | None = None,
    calibration: Sequence[Any] = (),
) -> nn.Module:
    """Return a copy of a module whose linear layers run quantised.

    Every linear layer is replaced but a language model's output head; embeddings
    stay as they are. A decoder of any family with ordinary norms before its
    layers is rotated as a whole (see `residual.rotate_decoder`), any other module
    layer by layer, at its input. Layers that attention reads are left without
    runtime smoothing, as in the paper's code. Tensors that do not change are
    shared with the original.

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
        If there is no linear layer, or a treatment has replaced one already, or
        calibration is needed and missing, or the module has no keys and values.

    Examples
    --------
    >>> layer = nn.Linear(64, 8)
    >>> quantize_module(layer, Scheme(weights=4, activations=4, rotation="hadamard"), Rng(0))
    QuantizedLinear(
      in_features=64, out_features=8, bits=4, group=0, smooth=0
      (rotation): HadamardRotation(size=64, inner=1, signs=True)
    )
    """
    needed = scheme.compensate or scheme.migrate is not None
    if needed and rng is not None and not calibration:
        raise UsageError("This way of quantising needs calibration data, and none was given.")
    treated: Any = copy_module(module)
    layers = linear_layers(treated)
    if not layers:
        raise UsageError("There are no linear layers to quantise in this module.")
    structure = decoder_of(treated)
    rotated = scheme.rotation is not None
    whole = rotated and structure is not None and turns_as_a_whole(treated)
    made = {name: _running(old, hollow=rng is None) for name, old in layers.items()}
    treated = replace_modules(treated, made)
    if scheme.rotation is not None:
        if whole and structure is not None:
            rotate_decoder(treated, structure, scheme.rotation, rng)
        else:
            for name, layer in made.items():
                _rotate_layer(layer, scheme.rotation, name, rng)
    if rng is not None:
        _fix_weights(treated, structure, made, scheme, calibration)
    elif not whole:  # else the rotation has emptied all of them
        _empty(made.values(), scheme)
    unsmoothed = _attention_inputs(structure)
    for name, layer in made.items():
        layer.bits = scheme.activations
        layer.group = scheme.activation_group
        layer.clip = scheme.clip
        layer.smooth = 0 if name in unsmoothed else scheme.smooth
    if scheme.keys_values < UNROUNDED:
        quantize_keys_values(treated, structure, scheme.keys_values)
    if scheme.smooth and scheme.activations < UNROUNDED:
        treated.equipoise_whole_sequence = True
    made_of: nn.Module = treated
    return made_of


def _running(layer: Any, *, hollow: bool) -> QuantizedLinear:
    weight = layer.weight
    if is_transposed(layer):
        turned = weight_of(layer)
        # A skeleton's weight is filled in anyway, so it is not worth a copy.
        weight = torch.empty_like(turned, device="meta") if hollow else turned.detach().contiguous()
    return QuantizedLinear(weight, layer.bias, transposed=is_transposed(layer))


def _attention_inputs(structure: Structure | None) -> set[str]:
    if structure is None:
        return set()
    return {name for block in structure.blocks for name in block.stages()[0]}


def _rotate_layer(layer: QuantizedLinear, kind: RotationKind, name: str, rng: Rng | None) -> None:
    kind = suitable(kind, layer.in_features)
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
        if scheme.weights < UNROUNDED or scheme.migrate is not None or scheme.rotation is not None:
            hollow = torch.empty_like(layer.weight, device="meta")
            layer.weight = nn.Parameter(hollow, requires_grad=False)
        if scheme.migrate is not None:
            layer.divisor = torch.empty(layer.in_features, device="meta")


def _fix_weights(
    module: nn.Module,
    structure: Structure | None,
    layers: dict[str, QuantizedLinear],
    scheme: Scheme,
    calibration: Sequence[Any],
) -> None:
    if scheme.migrate is not None:
        migrate(module, structure, layers, scheme.migrate, calibration)
    if scheme.weights >= UNROUNDED:
        return
    if scheme.compensate:
        compensate(module, structure, layers, scheme, calibration)
        return
    for done, layer in enumerate(layers.values()):
        report("rounding weights", done, len(layers))
        weight = layer.weight.detach()
        rounded = round_weights(
            weight if weight.dtype == torch.float64 else weight.float(),
            scheme.weights,
            group=scheme.weight_group,
            search=scheme.clip_search,
        )
        layer.weight = nn.Parameter(rounded.to(weight.dtype), requires_grad=False)
