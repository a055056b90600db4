"""What is pruned of a model and what is left whole, before any score is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.language.structure import Attention, Block, structure_of
from equipoise.kit.torch.linear import is_transposed
from equipoise.methods.pruning._scores import kept_count, raised_ratio

Kind = Literal["channels", "heads"]


@dataclass(frozen=True)
class Piece:
    """One attention or feed-forward part that is pruned.

    Parameters
    ----------
    kind, block
        What its units are and which block it is in.
    keep, total
        Units kept and there before.
    width
        Channels a unit has in the input of ``output``: 1, or the size of a head.
    inputs
        Linear layers whose outputs are cut.
    output
        The linear layer whose inputs are cut; its weight scores the units.
    """

    kind: Kind
    block: Block
    keep: int
    total: int
    width: int
    inputs: tuple[str, ...]
    output: str

    @property
    def part(self) -> str:
        """Name of the module it is."""
        return self.block.attention.name if self.kind == "heads" else self.block.feed_forward.name

    @property
    def norm(self) -> str:
        """Name of the norm before it."""
        return self.block.norms[0 if self.kind == "heads" else -1]

    @property
    def label(self) -> str:
        """A name for its tensors, without dots."""
        return f"{self.kind}_{self.block.index}"

    def columns(self, kept: Tensor) -> Tensor:
        """Return the inputs of ``output`` that belong to kept units."""
        return spread(kept, self.width)

    def rows(self, kept: Tensor) -> dict[str, Tensor]:
        """Return the outputs of each of ``inputs`` that belong to kept units."""
        attention = self.block.attention
        if self.kind == "channels":
            return dict.fromkeys(self.inputs, kept)
        found: dict[str, list[Tensor]] = {name: [] for name in self.inputs}
        for what in ("query", "key", "value") if _own_keys(attention) else ("query",):
            rows = attention.rows(what).to(kept.device)
            found[getattr(attention, what)].append(rows.view(-1, self.width)[kept].flatten())
        return {name: torch.cat(rows).sort().values for name, rows in found.items()}


def spread(kept: Tensor, width: int) -> Tensor:
    """Return the channels of kept units of ``width`` channels each.

    Examples
    --------
    >>> spread(torch.tensor([0, 2]), 2)
    tensor([0, 1, 4, 5])
    """
    if width == 1:
        return kept
    return (kept[:, None] * width + torch.arange(width, device=kept.device)).flatten()


def plan(
    module: nn.Module, ratio: float, prune: str, *, multiple: int, spared: int
) -> tuple[float, list[Piece]]:
    """Return the raised ratio and the pieces that lose units, none where none is lost.

    Raises
    ------
    UsageError
        If the model has been pruned already, its layers are not its own, or the ratio
        and the blocks that are spared do not fit it.
    """
    structure = structure_of(module)
    raised = raised_ratio(ratio, len(structure.blocks), spared)
    pieces = []
    for block in structure.blocks[spared:]:
        attention, mlp = block.attention, block.feed_forward
        if prune in ("heads", "both"):
            names = [attention.query]
            if _own_keys(attention):
                names += [attention.key, attention.value]
            pieces.append(
                Piece(
                    "heads", block, kept_count(attention.heads, raised), attention.heads,
                    attention.head_size, tuple(dict.fromkeys(names)), attention.output,
                )
            )  # fmt: skip
        if prune in ("channels", "both"):
            into = (mlp.up,) if mlp.gate is None else (mlp.gate, mlp.up)
            pieces.append(
                Piece(
                    "channels", block, kept_count(mlp.channels, raised, multiple), mlp.channels,
                    1, into, mlp.down,
                )
            )  # fmt: skip
    pieces = [piece for piece in pieces if piece.keep < piece.total]
    for piece in pieces:
        for name in (*piece.inputs, piece.output):
            if not is_own(module.get_submodule(name)):
                raise UsageError(f"{name} is no linear layer of the model's own to be pruned.")
    return raised, pieces


def is_own(part: nn.Module) -> bool:
    """Say whether a layer is a plain linear one, whose weight is all there is to it."""
    return type(part) is nn.Linear or is_transposed(part)


def _own_keys(attention: Attention) -> bool:
    """Say whether every head has keys and values of its own, which can go with it."""
    return attention.heads == attention.key_value_heads
