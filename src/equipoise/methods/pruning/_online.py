"""Pruning anew for each batch: a probe goes first, and says what the batch needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.torch.copies import copy_module, replace_modules
from equipoise.kit.torch.linear import weight_of
from equipoise.kit.torch.tokens import current_mask
from equipoise.methods.pruning._layers import CutLinear
from equipoise.methods.pruning._plan import Piece
from equipoise.methods.pruning._scores import (
    best,
    fuse,
    grouped_norm,
    ppsp_strength,
    select_probe,
)
from equipoise.methods.pruning._static import Pruned


@dataclass(frozen=True)
class Probing:
    """How the probe is chosen and what it is fused with; as for `ProbePruning`."""

    samples: float = 0.05
    tokens: float = 0.5
    fusion: str = "scaled"
    weight: float = 0.5
    momentum: float = 0.99

    @property
    def remembers(self) -> bool:
        """Whether the history counts for anything."""
        return self.fusion != "none"


class Passage(nn.Module):
    """Tells a new text from one that goes on from a cache; a pre-hook of the whole decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = False
        self.learns = False

    def forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        caches = [each for each in (*args, *kwargs.values()) if hasattr(each, "get_seq_length")]
        self.goes_on = any(cache.get_seq_length() > 0 for cache in caches)


class Watch(nn.Module):
    """Keeps what goes into a norm: the residual stream; a pre-hook of the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.seen = args[0]


class Probed(nn.Module):
    """An attention or feed-forward part that prunes itself for each batch.

    Parameters
    ----------
    part
        The module, whose linear layers around the units are `CutLinear`.
    piece
        What its units are.
    probing
        How the probe is chosen.
    strength
        Root of summed fourth powers of the output layer's weight, shape (channels,).
    history
        V, mean squared activations by position, shape (positions, channels); or None.
    watch, passage
        The hooks that see the residual stream, and the pass as a whole.
    """

    def __init__(
        self,
        part: nn.Module,
        piece: Piece,
        probing: Probing,
        strength: Tensor,
        history: Tensor | None,
        watch: Watch,
        passage: Passage,
    ) -> None:
        super().__init__()
        self.part = part
        self.piece = piece
        self.probing = probing
        self.register_buffer("strength", strength)
        self.register_buffer("history", history)
        self.watch = watch
        self.passage = passage
        self.kept: Tensor | None = None
        self.recent: Tensor | None = None  # V as the stream under way has moved it

    def make_plain(self, root: nn.Module, name: str) -> str | None:
        return "what is pruned is chosen for each batch"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        residual, self.watch.seen = self.watch.seen, None
        goes_on = self.passage.goes_on and self.kept is not None
        if not goes_on:
            self.kept = self._choose(residual, args, kwargs)
        assert self.kept is not None
        self._cut(self.kept)
        output = self._output
        output.listens = self.passage.learns and self.probing.remembers and not goes_on
        try:
            found = self.part(*args, **kwargs)
            if output.listens:
                self._learn(output.heard)
        finally:
            output.listens, output.heard = False, None
        return found

    @property
    def _output(self) -> CutLinear:
        found = self.part.get_submodule(_inside(self.piece.output, self.piece.part))
        assert isinstance(found, CutLinear)
        return found

    def _cut(self, kept: Tensor | None) -> None:
        rows = {} if kept is None else self.piece.rows(kept)
        for name in self.piece.inputs:
            layer: Any = self.part.get_submodule(_inside(name, self.piece.part))
            layer.keep(rows.get(name))
        self._output.keep(None if kept is None else self.piece.columns(kept))

    def _choose(
        self, residual: Tensor | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Tensor:
        assert residual is not None
        how, real = self.probing, current_mask()
        samples, tokens = select_probe(residual, how.samples, how.tokens, real)
        squares = self._probe(samples, tokens, real, args, kwargs).float().square()  # P²
        count: Any = len(samples)
        if real is not None:
            here = real[samples][:, tokens]
            squares, count = squares * here[..., None], here.sum(0).clamp_min(1)[:, None]
        energy = squares.sum(0) / count  # a, (tokens, channels)
        if how.remembers:
            past = self._past
            past = past[tokens.clamp_max(len(past) - 1)]  # b; beyond calibration the last position
            if how.fusion == "scaled":
                energy = fuse(energy, past)
            else:
                energy = how.weight * energy + (1 - how.weight) * past
        strength: Any = self.strength
        scores = grouped_norm(energy.sum(0) * strength, self.piece.width)
        return best(scores, self.piece.keep)

    @property
    def _past(self) -> Tensor:
        found = self.history if self.recent is None else self.recent
        assert isinstance(found, Tensor)
        return found

    def _probe(
        self,
        samples: Tensor,
        tokens: Tensor,
        real: Tensor | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Tensor:
        """Return P: what the probe alone makes of the input of the output layer, unpruned."""
        x = args[0] if args else kwargs["hidden_states"]
        given: dict[str, Any] = {}
        if self.piece.kind == "heads":
            here = None if real is None else real[samples][:, tokens]
            given["attention_mask"] = _causal(x, len(samples), len(tokens), here)
            if kwargs.get("position_embeddings") is not None:
                given["position_embeddings"] = tuple(
                    (each if len(each) == 1 else each[samples])[:, tokens]
                    for each in kwargs["position_embeddings"]
                )
        self._cut(None)
        output = self._output
        output.listens = output.silent = True
        try:
            self.part(x[samples][:, tokens], **given)
            assert output.heard is not None
            return output.heard
        finally:
            output.listens = output.silent = False
            output.heard = None

    def _learn(self, heard: Tensor | None) -> None:
        """Move V towards this batch, at the kept channels."""
        assert heard is not None
        assert self.kept is not None
        squares, real = heard.float().square(), current_mask()
        if real is None:
            batch = squares.mean(0)
            there = torch.ones(len(batch), dtype=torch.bool, device=batch.device)
        else:
            count = real.sum(0)
            batch = (squares * real[..., None]).sum(0) / count.clamp_min(1)[:, None]
            there = count > 0
        past = self._past.clone()
        length = min(len(past), len(batch))
        place = there[:length].nonzero(), self.piece.columns(self.kept)[None]
        old, rate = past[place], self.probing.momentum
        past[place] = rate * old + (1 - rate) * batch[:length][there[:length]]
        self.recent = past


def _inside(name: str, part: str) -> str:
    return name.removeprefix(f"{part}.")


def _causal(x: Tensor, samples: int, tokens: int, real: Tensor | None) -> Tensor:
    """Return the additive mask of the compacted order, (samples, 1, tokens, tokens)."""
    seen = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).tril()
    seen = seen.expand(samples, 1, tokens, tokens)
    if real is not None:
        itself = torch.eye(tokens, dtype=torch.bool, device=x.device)
        seen = (seen & real[:, None, None]) | itself  # padding sees itself, and no one sees it
    return torch.where(seen, 0.0, torch.finfo(x.dtype).min).to(x.dtype)


def probe_module(
    module: nn.Module,
    pieces: Sequence[Piece],
    probing: Probing,
    histories: Mapping[str, Tensor] | None = None,
    *,
    length: int = 0,
) -> nn.Module:
    """Return a copy whose pieces prune themselves for each batch.

    Parameters
    ----------
    module
        A decoder-only language model; left as it is.
    pieces
        What is pruned.
    probing
        How.
    histories
        V by name of the output layer; where None its tensors, of ``length`` positions, are
        yet to be filled in.
    length
        Positions calibrated on.
    """
    made = copy_module(module)
    root: Any = made
    root.equipoise_whole_sequence = True
    passage = Passage()
    base: Any = getattr(made, "base_model", made)
    base.register_forward_pre_hook(passage, with_kwargs=True)
    for piece in pieces:
        if piece.part == piece.block.name or len(piece.block.norms) != 2:
            raise UsageError(
                f"{type(module).__name__}: probing needs blocks with one norm before attention"
                " and one before a feed-forward module of its own."
            )
        weight = weight_of(made.get_submodule(piece.output))
        blank = histories is None
        strength = weight.new_empty(weight.shape[1], dtype=torch.float32)
        history = None
        if probing.remembers:
            shape = (length, weight.shape[1])
            history = strength.new_empty(shape) if blank else histories[piece.output]  # type: ignore[index]
        if not blank:
            strength = ppsp_strength(weight.detach())
        watch = Watch()
        made.get_submodule(piece.norm).register_forward_pre_hook(watch)
        wide = {
            name: len(weight_of(made.get_submodule(name))) if piece.kind == "heads" else None
            for name in piece.inputs
        }
        cuts: dict[str, nn.Module] = {
            name: CutLinear(made.get_submodule(name), "out", wide=wide[name], whole=True)
            for name in piece.inputs
        }
        cuts[piece.output] = CutLinear(
            made.get_submodule(piece.output),
            "in",
            wide=weight.shape[1] if piece.kind == "heads" else None,
            whole=True,
        )
        replace_modules(made, cuts)
        part = made.get_submodule(piece.part)
        probed = Probed(part, piece, probing, strength, history, watch, passage)
        replace_modules(made, {piece.part: probed})
    return made


def kept_units(module: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Return what a pruned model keeps at present: places and total, by block and kind.

    Of a model that prunes itself for each batch these are the places of the last one;
    a piece that has seen none is left out.

    Parameters
    ----------
    module
        Any module; one that nothing was pruned of gives nothing.
    """
    found = {}
    for part in module.modules():
        if isinstance(part, Probed) and part.kept is not None:
            found[part.piece.label] = (part.kept, part.piece.total)
        elif isinstance(part, Pruned):
            found |= {piece.label: (part.kept(piece), piece.total) for piece in part.pieces}
    return found


@contextmanager
def batch_stream(module: nn.Module) -> Iterator[None]:
    """Let the history move from batch to batch inside the block, from where calibration left it.

    Outside such a block it stands still, and each block begins anew, so that no answer
    depends on what was asked before. A module that does not probe is left alone. Every forward
    pass inside counts as a batch, also one whose result is thrown away.

    Parameters
    ----------
    module
        The module that the batches go through.
    """
    parts = [part for part in module.modules() if isinstance(part, Probed)]
    before = [(part, part.recent, part.passage.learns) for part in parts]
    for part in parts:
        part.recent, part.passage.learns = None, True
    try:
        yield
    finally:
        for part, recent, learns in before:
            part.recent, part.passage.learns = recent, learns
