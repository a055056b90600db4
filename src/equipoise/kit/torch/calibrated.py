"""Weights fixed by what goes through them on calibration data: SmoothQuant and GPTQ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from equipoise.kit.language.structure import Structure
from equipoise.kit.progress import report
from equipoise.kit.torch.decoders import block_inputs, call, run_block
from equipoise.kit.torch.gptq import Hessian, gptq
from equipoise.kit.torch.quantizers import smoothquant_scales

if TYPE_CHECKING:
    from equipoise.kit.torch.quantized import QuantizedLinear, Scheme


@torch.no_grad()
def migrate(
    module: nn.Module,
    structure: Structure | None,
    layers: Mapping[str, QuantizedLinear],
    alpha: float,
    calibration: Sequence[Any],
) -> None:
    """Move difficulty from activations into weights (SmoothQuant), by stage.

    Parameters
    ----------
    module
        Your own, with ``layers`` in place; their tensors are replaced.
    structure
        Of a decoder: layers that read the same input share scales.
    layers
        By dotted name.
    alpha
        How much of the difficulty moves.
    calibration
        Batches for `decoders.call`.
    """
    largest: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found = layers[name].transform(inputs[0]).abs().flatten(0, -2).amax(0)
            largest[name] = torch.maximum(largest[name], found) if name in largest else found

        return hook

    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        for done, batch in enumerate(calibration):
            report("watching activations", done, len(calibration))
            call(module, batch)
    finally:
        for hook in hooks:
            hook.remove()
    for stage in _stages(structure, layers):
        together = torch.cat([layers[name].weight for name in stage]).float()
        peaks = torch.stack([largest[name] for name in stage if name in largest] or [together[0]])
        scale = smoothquant_scales(peaks.amax(0).float(), together, alpha)
        for name in stage:
            layer = layers[name]
            layer.divisor = scale.to(layer.weight.dtype, copy=True)  # saved with each layer
            layer.weight = nn.Parameter(layer.weight * layer.divisor, requires_grad=False)


def _stages(structure: Structure | None, layers: Mapping[str, Any]) -> list[list[str]]:
    """Group layers that read the same input, in the order they run."""
    inside = [] if structure is None else [s for block in structure.blocks for s in block.stages()]
    return inside + [[name] for name in _others(structure, layers)]


def _others(structure: Structure | None, layers: Mapping[str, Any]) -> list[str]:
    """Return the layers outside blocks."""
    known = set() if structure is None else set(structure.linear_layers())
    return [name for name in layers if name not in known]


@torch.no_grad()
def compensate(
    module: nn.Module,
    structure: Structure | None,
    layers: Mapping[str, QuantizedLinear],
    scheme: Scheme,
    calibration: Sequence[Any],
) -> None:
    """Round weights by GPTQ, each stage seeing inputs from the stages rounded before it.

    Parameters
    ----------
    module
        Your own, with ``layers`` in place; their tensors are replaced.
    structure
        Of a decoder, which is run block by block; any other module is run as a
        whole for each layer.
    layers
        By dotted name.
    scheme
        Bits, groups and clip search of weights.
    calibration
        Batches for `decoders.call`.
    """

    def run_all() -> None:
        for batch in calibration:
            call(module, batch)

    if structure is not None:
        hidden, others = block_inputs(module, structure, calibration)
        for block in structure.blocks:
            report("rounding weights block by block", block.index, len(structure.blocks))
            part, rest = module.get_submodule(block.name), others[block.index]

            def run(part: nn.Module = part, rest: Any = rest) -> list[Tensor]:
                return run_block(part, hidden, rest)  # noqa: B023 - called before it changes

            for stage in block.stages():
                _gptq_stage([layers[name] for name in stage], scheme, run)
            hidden = run()
    for name in _others(structure, layers):
        _gptq_stage([layers[name]], scheme, run_all)


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
