r"""Low-rank adapters: small matrices beside frozen layers, kept apart or merged into them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.copies import copy_module

_NAME = "default"
_MARK = "equipoise_adapters"


def add_lora(
    module: nn.Module,
    layers: Sequence[str],
    *,
    rank: int,
    alpha: float,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> nn.Module:
    r"""Return a copy whose layers compute $W x + \frac{\alpha}{r} B A x$, of which A and B train.

    $A$ ($r \times$ inputs) is drawn and $B$ (outputs $\times r$) is zero, so that nothing has
    changed yet. Everything else is frozen and shares its memory with the module's. The
    adapters are those of the package peft, in float32.

    Parameters
    ----------
    module
        Left as it is.
    layers
        Dotted names of linear layers.
    rank, alpha
        $r$ and $\alpha$.
    dropout
        Share of an adapter's inputs left out while it trains.
    rng
        Draws $A$. Without it the adapters hold no numbers yet.

    Raises
    ------
    UsageError
        If peft is not installed, or the rank is above a layer's width.

    References
    ----------
    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as error:
        raise UsageError(
            f"LoRA needs the package {error.name}, which is not installed:"
            " pip install 'equipoise[language]'."
        ) from error
    from equipoise.kit.torch.linear import is_transposed, weight_of
    from equipoise.kit.torch.training import trainable_copy

    made = trainable_copy(module, ())
    parts = {name: made.get_submodule(name) for name in layers}
    for name, part in parts.items():
        width = min(weight_of(part).shape)
        if rank > width:
            raise UsageError(f"A rank of {rank} is more than {name}, which has {width}, can use.")
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        lora_dropout=dropout,
        target_modules=list(layers),
        fan_in_fan_out=any(map(is_transposed, parts.values())),
        bias="none",
    )
    with warnings.catch_warnings(), torch.random.fork_rng(devices=_devices(made)):
        warnings.simplefilter("ignore")
        if rng is not None:
            torch.manual_seed(rng.seed_for_request())
        made = inject_adapter_in_model(config, made, _NAME, low_cpu_mem_usage=rng is None)
    for _, part in _adapted(made):
        for each in (*part.lora_A.parameters(), *part.lora_B.parameters()):
            each.data = each.data.float()
    made.add_module(_MARK, _Adapters())
    return made.eval()


def merge_lora(adapted: nn.Module, control: nn.Module) -> nn.Module:
    r"""Return a copy of the control with $W + \frac{\alpha}{r} B A$ for each adapted weight.

    Its layers are the control's kind of layers; untouched tensors share their memory.

    Parameters
    ----------
    adapted
        What `add_lora` made of the control, trained.
    control
        Left as it is.
    """
    made = copy_module(control)
    for name, part in _adapted(adapted):
        made.get_submodule(name).weight = _merged(part)
    return made


class _Adapters(nn.Module):
    """Stands in an adapted module and knows how to merge; see `equipoise.kit.torch.plain`."""

    def make_plain(self, root: Any, name: str) -> None:
        """Put each adapted layer's own kind back, with the adapter in its weight."""
        for where, part in list(_adapted(root)):
            layer = copy_module(part.get_base_layer())
            layer.weight = _merged(part)
            root.set_submodule(where, layer)
        delattr(root, name)
        vars(root).pop("peft_config", None)


def _merged(part: Any) -> nn.Parameter:
    weight = part.get_base_layer().weight.detach()
    with torch.no_grad():
        found = weight.float() + part.get_delta_weight(_NAME).float()
    return nn.Parameter(found.to(weight.dtype), requires_grad=False)


def _adapted(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, part in module.named_modules():
        if hasattr(part, "lora_A") and hasattr(part, "get_delta_weight"):
            yield name, part


def _devices(module: nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
