"""Linear layers of torch and of GPT-2, which keeps its weights transposed, in one way."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def is_linear(part: nn.Module) -> bool:
    """Say whether a module is a linear layer: of torch, or GPT-2's with its weight transposed."""
    return isinstance(part, nn.Linear) or is_transposed(part) or hasattr(part, "equipoise_linear")


def is_transposed(part: nn.Module) -> bool:
    """Say whether a linear layer keeps its weight as ``(in, out)``, as GPT-2 does."""
    return type(part).__name__ == "Conv1D" and hasattr(part, "nf")


def weight_of(part: nn.Module) -> Tensor:
    """Return a linear layer's weight as ``(out, in)``; a view, whichever way it is kept."""
    weight: Tensor = part.weight  # type: ignore[assignment]
    return weight.T if is_transposed(part) else weight


def set_linear(part: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Give a linear layer of your own copy other tensors, ``weight`` as ``(out, in)``.

    The layer's own tensors are replaced, not written to, and its sizes follow.
    """
    if is_transposed(part):
        part.weight = nn.Parameter(weight.T.contiguous(), requires_grad=False)
        part.nf, part.nx = weight.shape
    else:
        part.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
        part.out_features, part.in_features = weight.shape
    part.bias = None if bias is None else nn.Parameter(bias.contiguous(), requires_grad=False)
