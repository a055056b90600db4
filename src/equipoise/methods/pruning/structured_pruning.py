r"""Static structured pruning: the same channels or heads go for every input.

Each method scores the input channels of the linear layer W that ends a part (the down
projection, the output projection) from W and from calibration text, and removes the
lowest. These are the baselines of Probe Pruning, which scores anew for each batch.

What is removed is gone from the layers while the model runs. In a file of ordinary
layers it is zeros instead, so that the file is no smaller and any loader opens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from equipoise.core import (
    Capability,
    HasModule,
    Rng,
    Treatment,
    between,
    one_of,
    setting,
)
from equipoise.kit.data import content_hash
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.linear import weight_of
from equipoise.methods.pruning._moments import Moments, moments_of
from equipoise.methods.pruning._plan import Piece, plan
from equipoise.methods.pruning._scores import best, best_of_all, flap_scores, wanda_sp_scores
from equipoise.methods.pruning._static import cut_module


@dataclass(frozen=True)
class WandaSp(Treatment):
    r"""Remove the channels or heads whose weights times activations are smallest: Wanda-sp.

    $I_k = \lVert X_{:k} \rVert_2 \sum_i |W_{ik}|$ over calibration text X, summed over the
    channels of a head; every block that is pruned loses the same share.

    Parameters
    ----------
    ratio
        Share of the units of the whole model to remove, from 0 to 0.99; blocks that are
        pruned lose more, to make up for those spared: see `raised_ratio`.
    prune
        ``channels`` of feed-forward parts, attention ``heads``, or ``both``. Where heads
        share keys and values, only query and output lose a head; softmax is computed for
        all heads.
    multiple
        Kept channels are rounded up to a multiple of it, for the sake of the processor.
    spared
        How many of the first blocks stay whole.
    calibration
        Text to learn activations from. It must not be what a task tests on.
    samples, length
        Windows of calibration text, and tokens in each.

    References
    ----------
    An et al., "Fluctuation-based Adaptive Structured Pruning for Large Language Models",
    AAAI 2024, after Sun et al., "A Simple and Effective Pruning Approach for Large Language
    Models", ICLR 2024.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> treated = WandaSp(0.5, spared=0, samples=2, length=32).apply(tiny_model(), Rng(0))
    >>> treated.module.model.layers[0].mlp.up_proj
    Linear(in_features=32, out_features=32, bias=False)
    """

    ratio: float = between(0.0, 0.99, default=0.4)
    prune: str = one_of("channels", "heads", "both", default="channels")
    multiple: int = between(1, 4096, default=8)
    spared: int = between(0, 1000, default=3)
    calibration: str = setting("builtin:python_topics")
    samples: int = between(1, 100_000, default=64)
    length: int = between(2, 1_000_000, default=128)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True
    edits: ClassVar[frozenset[str]] = frozenset({"linear layers", "attention"})

    @classmethod
    def tiny(cls) -> Self:
        return cls(spared=0, samples=2, length=32)

    @classmethod
    def null(cls) -> Self:
        return cls(ratio=0.0, spared=0)

    def content(self) -> Any:
        return content_hash(self.calibration)

    def apply(self, subject: Any, rng: Rng) -> Any:
        _, pieces = _pieces(self, subject)
        if not pieces:
            return subject.with_module(copy_module(subject.module))
        found = _moments(self, subject, pieces, rng)
        kept: dict[Piece, Tensor | None] = {}
        for piece in pieces:
            weight = weight_of(subject.module.get_submodule(piece.output)).detach()
            energy = found[piece.output].square.sum(0)
            kept[piece] = best(wanda_sp_scores(weight, energy, piece.width), piece.keep)
        return subject.with_module(cut_module(subject.module, kept))

    def skeleton(self, subject: Any) -> Any:
        return _skeleton(self, subject)


@dataclass(frozen=True)
class Flap(Treatment):
    r"""Remove the channels or heads whose outputs vary least, and add their mean: FLAP.

    $I_k = \sigma^2(X_{:k}) \sum_i W_{ik}^2$, where the variance over calibration samples is
    summed over positions. Scores are standardised in each block and one threshold goes
    through all blocks, so that some lose more than others; heads and channels have a
    threshold each. What the removed channels put out on average, $W \bar x$, becomes a bias.

    Parameters
    ----------
    ratio
        Share of the units of the whole model to remove, from 0 to 0.99; blocks that are
        pruned lose more, to make up for those spared: see `raised_ratio`.
    prune
        ``channels`` of feed-forward parts, attention ``heads``, or ``both``. Where heads
        share keys and values, only query and output lose a head; softmax is computed for
        all heads.
    multiple
        Kept channels of a block are rounded up to a multiple of it, so that slightly less
        than the ratio goes.
    spared
        How many of the first blocks stay whole.
    calibration
        Text to learn activations from. It must not be what a task tests on.
    samples, length
        Windows of calibration text, at least 2, and tokens in each.

    References
    ----------
    An et al., "Fluctuation-based Adaptive Structured Pruning for Large Language Models",
    AAAI 2024.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> part = Flap(0.5, multiple=1, spared=0, samples=2, length=32)
    >>> treated = part.apply(tiny_model(), Rng(0))
    >>> [layer.mlp.down_proj.in_features for layer in treated.module.model.layers]
    [32, 32]
    """

    ratio: float = between(0.0, 0.99, default=0.4)
    prune: str = one_of("channels", "heads", "both", default="channels")
    multiple: int = between(1, 4096, default=8)
    spared: int = between(0, 1000, default=3)
    calibration: str = setting("builtin:python_topics")
    samples: int = between(2, 100_000, default=64)
    length: int = between(2, 1_000_000, default=128)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True
    edits: ClassVar[frozenset[str]] = frozenset({"linear layers", "attention"})

    @classmethod
    def tiny(cls) -> Self:
        return cls(spared=0, samples=2, length=32)

    @classmethod
    def null(cls) -> Self:
        return cls(ratio=0.0, spared=0)

    def content(self) -> Any:
        return content_hash(self.calibration)

    def apply(self, subject: Any, rng: Rng) -> Any:
        ratio, pieces = _pieces(self, subject)
        if not pieces:
            return subject.with_module(copy_module(subject.module))
        found = _moments(self, subject, pieces, rng)
        kept: dict[Piece, Tensor | None] = {}
        offsets = {}
        for kind in ("heads", "channels"):
            alike = [piece for piece in pieces if piece.kind == kind]
            if not alike:
                continue
            weights = [weight_of(subject.module.get_submodule(p.output)).detach() for p in alike]
            scores = [
                flap_scores(weight, found[piece.output].variance.sum(0), piece.width)
                for piece, weight in zip(alike, weights, strict=True)
            ]
            multiple = self.multiple if kind == "channels" else 1
            places = best_of_all(scores, ratio, multiple)
            for piece, weight, place in zip(alike, weights, places, strict=True):
                kept[piece] = place
                mean = found[piece.output].mean.mean(0).clone()  # over samples and positions
                mean[piece.columns(place)] = 0.0
                offsets[piece.output] = weight.float() @ mean
        return subject.with_module(cut_module(subject.module, kept, offsets, compensated=True))

    def skeleton(self, subject: Any) -> Any:
        return _skeleton(self, subject, compensated=True)


@dataclass(frozen=True)
class RandomPruning(Treatment):
    """Remove channels or heads drawn at random: what any method must beat.

    Parameters
    ----------
    ratio
        Share of the units of the whole model to remove, from 0 to 0.99; blocks that are
        pruned lose more, to make up for those spared: see `raised_ratio`.
    prune
        ``channels`` of feed-forward parts, attention ``heads``, or ``both``. Where heads
        share keys and values, only query and output lose a head; softmax is computed for
        all heads.
    multiple
        Kept channels are rounded up to a multiple of it, for the sake of the processor.
    spared
        How many of the first blocks stay whole.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> treated = RandomPruning(0.5, spared=0).apply(tiny_model(), Rng(0))
    >>> treated.module.model.layers[0].mlp.down_proj
    Linear(in_features=32, out_features=32, bias=False)
    """

    ratio: float = between(0.0, 0.99, default=0.4)
    prune: str = one_of("channels", "heads", "both", default="channels")
    multiple: int = between(1, 4096, default=8)
    spared: int = between(0, 1000, default=3)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True
    edits: ClassVar[frozenset[str]] = frozenset({"linear layers", "attention"})

    @classmethod
    def tiny(cls) -> Self:
        return cls(spared=0)

    @classmethod
    def null(cls) -> Self:
        return cls(ratio=0.0, spared=0)

    def apply(self, subject: Any, rng: Rng) -> Any:
        _, pieces = _pieces(self, subject)
        if not pieces:
            return subject.with_module(copy_module(subject.module))
        kept: dict[Piece, Tensor | None] = {}
        for piece in pieces:
            draws = rng.child(piece.label).numpy().random(piece.total)
            kept[piece] = best(torch.from_numpy(draws), piece.keep)
        return subject.with_module(cut_module(subject.module, kept))

    def skeleton(self, subject: Any) -> Any:
        return _skeleton(self, subject)


def _pieces(part: WandaSp | Flap | RandomPruning, subject: Any) -> tuple[float, list[Piece]]:
    return plan(subject.module, part.ratio, part.prune, multiple=part.multiple, spared=part.spared)


def _moments(
    part: WandaSp | Flap, subject: Any, pieces: list[Piece], rng: Rng
) -> dict[str, Moments]:
    windows = calibration_batches(
        subject,
        part.calibration,
        rng.child("calibration"),
        samples=part.samples,
        length=part.length,
    )
    return moments_of(subject.module, [piece.output for piece in pieces], windows)


def _skeleton(
    part: WandaSp | Flap | RandomPruning, subject: Any, *, compensated: bool = False
) -> Any:
    _, pieces = _pieces(part, subject)
    if not pieces:
        return subject.with_module(copy_module(subject.module))
    hollow: dict[Piece, Tensor | None] = dict.fromkeys(pieces)
    return subject.with_module(cut_module(subject.module, hollow, compensated=compensated))
