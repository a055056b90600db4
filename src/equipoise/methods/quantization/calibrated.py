"""Quantisers that learn from calibration data: GPTQ and SmoothQuant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import Rng, between, setting
from equipoise.kit.data import content_hash
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.quantized import Scheme
from equipoise.methods.quantization._quantiser import Quantiser


@dataclass(frozen=True)
class GPTQ(Quantiser):
    r"""Round weights column by column, and let later columns make up for the error.

    Keeps $\lVert X W^\top - X \hat W^\top \rVert$ small on calibration inputs X,
    layer after layer, each seeing what the layers rounded before it give.
    Columns keep their order; damping is 1 % of the Hessian's mean diagonal.
    Activations are rounded to nearest, one step per token.

    Parameters
    ----------
    weights
        Bits of weights.
    activations
        Bits of the inputs of linear layers; 16 leaves them in floating point.
    weight_group
        Weights of an output channel that share a step; 0 is the whole channel.
    calibration
        Text (see `equipoise.kit.data.read_texts`), or for a module without a
        tokenizer rows of numbers (``.npy`` or a table). It must not be what a
        task tests on.
    samples
        Windows of text.
    length
        Tokens in a window.
    clip_search
        Whether each output channel's range is searched for (slow).

    References
    ----------
    Frantar et al., "GPTQ", ICLR 2023.

    Examples
    --------
    >>> import torch
    >>> from equipoise.kit.torch.gptq import gptq
    >>> gptq(torch.tensor([[1.0, 0.4]]), torch.tensor([[2.0, 1.9], [1.9, 2.0]]), bits=4).shape
    torch.Size([1, 2])
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=16)
    weight_group: int = between(0, 65536, default=0)
    calibration: str = setting("builtin:python_topics")
    samples: int = between(1, 100_000, default=16)
    length: int = between(1, 1_000_000, default=512)
    clip_search: bool = False

    random: ClassVar[bool] = True

    @classmethod
    def tiny(cls) -> Self:
        return cls(activations=4, samples=2, length=32)

    @classmethod
    def null(cls) -> Self:
        return cls(weights=16, samples=1, length=8)

    def content(self) -> Any:
        return content_hash(self.calibration)

    def batches(self, subject: Any, rng: Rng) -> list[Any]:
        return calibration_batches(
            subject, self.calibration, rng, samples=self.samples, length=self.length
        )

    def scheme(self) -> Scheme:
        return Scheme(
            weights=self.weights,
            activations=self.activations,
            weight_group=self.weight_group,
            compensate=True,
            clip_search=self.clip_search,
        )


@dataclass(frozen=True)
class SmoothQuant(Quantiser):
    r"""Move the difficulty of outlier channels from activations into weights, then round.

    Inputs are divided by fixed $s_j = \max|X_j|^\alpha / \max|W_j|^{1-\alpha}$, found
    on calibration data, and weights multiplied. Layers that read the same input
    share s. Here s is kept beside the layer instead of being merged into the
    norm before it, so that it serves every linear layer; the numbers are the same.

    Parameters
    ----------
    weights
        Bits of weights, rounded to nearest per output channel; 16 leaves them.
    activations
        Bits of the inputs of linear layers, one step per token.
    alpha
        How much of the difficulty moves into the weights.
    calibration
        Text, or for a module without a tokenizer rows of numbers (``.npy`` or a
        table). It must not be what a task tests on.
    samples
        Windows of text.
    length
        Tokens in a window.

    References
    ----------
    Xiao et al., "SmoothQuant", ICML 2023.

    Examples
    --------
    >>> import torch
    >>> from equipoise.kit.torch.quantizers import smoothquant_scales
    >>> smoothquant_scales(torch.tensor([4.0, 1.0]), torch.tensor([[1.0, -1.0]]))
    tensor([2., 1.])
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=4)
    alpha: float = between(0.0, 1.0, default=0.5)
    calibration: str = setting("builtin:python_topics")
    samples: int = between(1, 100_000, default=16)
    length: int = between(1, 1_000_000, default=512)

    random: ClassVar[bool] = True

    @classmethod
    def tiny(cls) -> Self:
        return cls(samples=2, length=32)

    def content(self) -> Any:
        return content_hash(self.calibration)

    def batches(self, subject: Any, rng: Rng) -> list[Any]:
        return calibration_batches(
            subject, self.calibration, rng, samples=self.samples, length=self.length
        )

    def scheme(self) -> Scheme:
        return Scheme(weights=self.weights, activations=self.activations, migrate=self.alpha)
