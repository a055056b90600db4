"""Pruning once and for all: smaller layers while the model runs, zeros in a plain file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from equipoise.core import UsageError
from equipoise.kit.torch.copies import copy_module, replace_modules
from equipoise.kit.torch.linear import is_transposed, set_linear, weight_of
from equipoise.kit.torch.plain import open_biases
from equipoise.methods.pruning._layers import CutLinear
from equipoise.methods.pruning._plan import Piece, is_own

RECORD = "pruned"
"""Name of the submodule that knows what was removed."""


def cut_module(
    module: nn.Module,
    pieces: Mapping[Piece, Tensor | None],
    offsets: Mapping[str, Tensor] | None = None,
    *,
    compensated: bool = False,
) -> nn.Module:
    """Return a copy whose layers lack what is not kept.

    Parameters
    ----------
    module
        A decoder-only language model; left as it is.
    pieces
        Units each piece keeps, in rising order; None for tensors that a file fills in.
    offsets
        What is added to the bias of output layers, by name.
    compensated
        Whether output layers have a bias afterwards, whatever they had before.
    """
    if hasattr(module, RECORD):
        raise UsageError("The model has been pruned before; prune it once, by the whole ratio.")
    made = copy_module(module)
    record = Pruned()
    device = next(module.parameters()).device
    for piece, places in pieces.items():
        kept = None if places is None else places.to(device)
        rows = None if kept is None else piece.rows(kept)
        for name in piece.inputs:
            layer: Any = made.get_submodule(name)
            total = len(weight_of(layer))
            _cut(layer, None if rows is None else rows[name], 0, layer.bias is not None)
            if piece.kind == "heads":
                fixed = CutLinear(layer, "out", None if rows is None else rows[name], total)
                replace_modules(made, {name: fixed})
        output: Any = made.get_submodule(piece.output)
        columns = None if kept is None else piece.columns(kept)
        bare = output.bias is None
        _cut(output, columns, 1, compensated or not bare)
        if offsets is not None and kept is not None:
            extra = offsets[piece.output].to(weight_of(output))
            output.bias = nn.Parameter(
                extra if output.bias is None else output.bias + extra, requires_grad=False
            )
        if piece.kind == "heads":
            total = piece.total * piece.width
            replace_modules(made, {piece.output: CutLinear(output, "in", columns, total)})
        record.add(piece, kept, compensated and bare)
    made.add_module(RECORD, record)
    return made


def _cut(layer: Any, kept: Tensor | None, axis: int, biased: bool) -> None:
    """Leave a layer the kept rows (axis 0) or columns (axis 1) of its weight."""
    weight, bias = weight_of(layer), layer.bias
    if kept is None:
        like: Any = {"dtype": weight.dtype, "device": weight.device, "requires_grad": False}
        layer.weight = UninitializedParameter(**like)
        layer.bias = UninitializedParameter(**like) if biased else None
        layer.register_load_state_dict_post_hook(_measure)
        return
    if axis == 0 and bias is not None:
        bias = bias.detach()[kept]
    set_linear(layer, weight.detach().index_select(axis, kept), bias)


def _measure(layer: Any, _: Any) -> None:
    """Make a layer's sizes those of the weight that came from a file."""
    if is_transposed(layer):
        layer.nf, layer.nx = weight_of(layer).shape
    else:
        layer.out_features, layer.in_features = layer.weight.shape


class Pruned(nn.Module):
    """Which units each piece of a model has kept; it runs nothing.

    The places are buffers named ``channels_3`` or ``heads_3`` by block.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[Piece] = []
        self.opened: set[str] = set()

    def add(self, piece: Piece, kept: Tensor | None, opened: bool) -> None:
        """Note what a piece keeps, and whether its output layer had no bias of its own."""
        if kept is None:
            kept = UninitializedBuffer(dtype=torch.long)  # type: ignore[call-arg]
        self.register_buffer(piece.label, kept)
        self.pieces.append(piece)
        if opened:
            self.opened.add("attention" if piece.kind == "heads" else "feed_forward")

    def kept(self, piece: Piece) -> Tensor:
        """Return the places of the units a piece keeps."""
        found: Tensor = getattr(self, piece.label)
        return found

    def make_plain(self, root: nn.Module, name: str) -> str | None:
        """Write zeros where units were, and drop this record."""
        for piece in self.pieces:
            if piece.kind == "heads":
                for each in (*piece.inputs, piece.output):
                    part = root.get_submodule(each)
                    if isinstance(part, CutLinear):
                        replace_modules(root, {each: part.layer})
        layers = [each for piece in self.pieces for each in (*piece.inputs, piece.output)]
        if not all(is_own(root.get_submodule(each)) for each in layers):
            return "pruned layers were replaced by others that act while it runs"
        for piece in self.pieces:
            kept = self.kept(piece)
            for each, rows in piece.rows(kept).items():
                total = _before(piece, each)
                _widen(root.get_submodule(each), rows, total, 0)
            columns = piece.columns(kept)
            _widen(root.get_submodule(piece.output), columns, piece.total * piece.width, 1)
        for where in sorted(self.opened):
            open_biases(root, where)
        parent, _, last = name.rpartition(".")
        delattr(root.get_submodule(parent), last)
        return None


def _before(piece: Piece, name: str) -> int:
    """Return how many outputs an input layer had."""
    attention = piece.block.attention
    if piece.kind == "channels":
        return piece.total
    if attention.layout == "apart":
        return piece.total * piece.width
    return (attention.heads + 2 * attention.key_value_heads) * attention.head_size


def _widen(layer: Any, kept: Tensor, total: int, axis: int) -> None:
    weight, bias = weight_of(layer).detach(), layer.bias
    shape = list(weight.shape)
    shape[axis] = total
    whole = weight.new_zeros(shape).index_copy_(axis, kept.to(weight.device), weight)
    if axis == 0 and bias is not None:
        bias = bias.detach().new_zeros(total).index_copy_(0, kept.to(bias.device), bias.detach())
    set_linear(layer, whole, bias)
