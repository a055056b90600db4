"""Linear layers of which only the rows or columns of kept units are used."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import UninitializedBuffer

from equipoise.kit.torch.linear import weight_of


class CutLinear(nn.Module):
    """A linear layer that uses some of its outputs, or some of its inputs.

    Parameters
    ----------
    layer
        A linear layer of torch, or GPT-2's. Where ``kept`` is given its weight has been
        cut already; otherwise it is whole, and each pass takes the slices that `keep` named.
    side
        ``out`` when outputs are cut, ``in`` when inputs are.
    kept
        Outputs or inputs that stay, or None when they change while the model runs.
    wide
        How wide the layer looks to its neighbours: outputs that are gone are zeros, inputs
        that are gone are not read. None when the neighbours are as narrow as it is.
    """

    def __init__(
        self,
        layer: nn.Module,
        side: Literal["in", "out"],
        kept: Tensor | None = None,
        wide: int | None = None,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.side = side
        self.wide = wide
        self.whole = whole
        self.listens = False
        self.silent = False
        self.heard: Tensor | None = None
        places = kept
        if kept is None and not whole:
            places = UninitializedBuffer(dtype=torch.long)  # type: ignore[call-arg]
        # What changes while the model runs is no part of the model's state.
        self.register_buffer("kept", places, persistent=not whole)

    def keep(self, kept: Tensor | None) -> None:
        """Use these outputs or inputs from now on; None uses all."""
        self.kept = kept

    def extra_repr(self) -> str:
        return self.side

    def forward(self, x: Tensor) -> Tensor:
        kept = self.kept
        weight: Any = weight_of(self.layer)
        bias: Any = self.layer.bias
        if self.side == "in":
            if kept is not None and self.wide is not None:
                x = x.index_select(-1, kept)
            if self.listens:
                self.heard = x
            if self.silent:  # its input was wanted, its output is not
                return x.new_zeros(()).expand(*x.shape[:-1], len(weight))
            if kept is not None and self.whole:
                weight = weight.index_select(1, kept)
            return functional.linear(x, weight, bias)
        if kept is not None and self.whole:
            weight = weight.index_select(0, kept)
            bias = None if bias is None else bias.index_select(0, kept)
        found = functional.linear(x, weight, bias)
        if kept is None or self.wide is None:
            return found
        return found.new_zeros(*found.shape[:-1], self.wide).index_copy_(-1, kept, found)
