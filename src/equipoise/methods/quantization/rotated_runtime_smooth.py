r"""Rotated Runtime Smooth: 4-bit activations without training.

A linear layer computes $Y = X W^\top$ for N tokens, X of shape (N, K), W of shape
(M, K). *Channel-wise* outliers make the same columns of X large in every token,
*spikes* are a few huge single entries. Runtime smoothing divides each column by
its maximum and deals with the first; a rotation spreads the second over all
channels of their token; the method does both, in the order rotate, smooth, round.

Smoothing looks at all tokens of a sequence. A sequence of one token with groups
of one channel keeps the token itself in the scales and ±1 in the integers, so
nothing here is a claim about decoding token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import Rng, between, one_of, setting
from equipoise.kit.data import content_hash
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.quantized import Scheme
from equipoise.methods.quantization._quantiser import Quantiser


@dataclass(frozen=True)
class RuntimeSmooth(Quantiser):
    r"""Divide each channel by its largest entry in the sequence, round, multiply back.

    $s_j = \max(\max_i |X_{ij}|, 10^{-5})$, found anew for every sequence;
    $Y \approx \sum_j s_j\, Q(X / s)_{ij}\, W_{ij}$ with one step per token. Channels
    sorted by $s$ may share the largest scale of their group. In language models
    query, key and value projections are left without smoothing, as in the
    paper's code. A spike inflates its whole channel and pushes the other
    tokens' entries to zero.

    Parameters
    ----------
    weights
        Bits of weights, rounded to nearest per output channel; 16 leaves them.
    activations
        Bits of the inputs of linear layers; 16 leaves them, unsmoothed.
    group
        Channels that share a scale (g); the last group may be smaller.
    clip_search
        Whether each output channel's range is searched for (slow).
    keys_values
        Bits of keys and values in attention, for language models.

    Examples
    --------
    >>> import torch
    >>> from equipoise.kit.torch.subjects import ModuleSubject
    >>> control = ModuleSubject(torch.nn.Linear(8, 2))
    >>> RuntimeSmooth(weights=16).apply(control, Rng(0)).module
    QuantizedLinear(in_features=8, out_features=2, bits=4, group=0, smooth=1)
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=4)
    group: int = between(1, 65536, default=1)
    clip_search: bool = False
    keys_values: int = between(2, 16, default=16)

    @classmethod
    def null(cls) -> Self:
        return cls(weights=16, activations=16)

    def scheme(self) -> Scheme:
        return Scheme(
            weights=self.weights,
            activations=self.activations,
            smooth=self.group,
            clip_search=self.clip_search,
            keys_values=self.keys_values,
        )


@dataclass(frozen=True)
class Rotate(Quantiser):
    r"""Rotate what goes into linear layers, then round: $X W^\top = (X R)(W R)^\top$.

    $R = \mathrm{diag}(\pm 1) H_K / \sqrt{K}$ with a Hadamard matrix, or a random
    orthogonal matrix. In a language model one R turns the whole residual
    stream, heads are turned within (and across, where their number has a
    Hadamard matrix), and the down projection's input is turned while it runs
    (as QuaRot does). Norms that subtract the mean take an R that keeps the
    direction of ones: a rotation and one reflection after it. In any other
    module, or a decoder whose norms do not come right before its layers, each
    linear layer's input is turned while it runs.

    Parameters
    ----------
    weights
        Bits of weights, rounded to nearest per output channel; 16 leaves them.
    activations
        Bits of the inputs of linear layers, one step per token; 16 leaves them.
    rotation
        ``hadamard``, where a width without such a matrix takes a random
        orthogonal one, or ``orthogonal`` throughout.
    clip_search
        Whether each output channel's range is searched for (slow).
    keys_values
        Bits of keys and values in attention, for language models.

    References
    ----------
    Ashkboos et al., "QuaRot", NeurIPS 2024.

    Examples
    --------
    Without rounding a rotation changes nothing:

    >>> import torch
    >>> from equipoise.kit.torch.subjects import ModuleSubject
    >>> control = ModuleSubject(torch.nn.Linear(12, 2).double())
    >>> turned = Rotate(weights=16, activations=16).apply(control, Rng(0))
    >>> x = torch.ones(5, 12, dtype=torch.float64)
    >>> bool((turned.module(x) - control.module(x)).abs().max() < 1e-12)
    True
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=4)
    rotation: str = one_of("hadamard", "orthogonal", default="hadamard")
    clip_search: bool = False
    keys_values: int = between(2, 16, default=16)

    random: ClassVar[bool] = True

    @classmethod
    def null(cls) -> Self:
        return cls(weights=16, activations=16)

    def scheme(self) -> Scheme:
        return Scheme(
            weights=self.weights,
            activations=self.activations,
            rotation=self.rotation,  # type: ignore[arg-type]
            clip_search=self.clip_search,
            keys_values=self.keys_values,
        )


@dataclass(frozen=True)
class RotatedRuntimeSmooth(Quantiser):
    r"""Rotate, smooth by the sequence's own channel maxima, round: the paper's method.

    $Y \approx \sum_j s_j\, Q(X R / s)_{ij}\, \hat W_{ij}$ with $\hat W$ the rounded
    $W R$ and s shared by groups of g channels sorted by size. The rotation turns a
    spike of size A into entries $\pm A / \sqrt{K}$ of its own token, which the
    token's step absorbs; smoothing then takes what channel structure is left.
    It beats a rotation alone only where channel outliers keep their sign and no
    single token rules the maxima: a lone huge token (the first one in many
    language models) makes s its own image, which fits no other token.

    Parameters
    ----------
    weights
        Bits of weights, one step per output channel; 16 leaves them.
    activations
        Bits of the inputs of linear layers; 16 leaves them.
    group
        Channels that share a smoothing scale (g); the last group may be smaller.
    rotation
        ``hadamard``, where a width without such a matrix takes a random
        orthogonal one, or ``orthogonal`` throughout.
    weight_method
        ``rtn`` rounds to nearest; ``gptq`` compensates errors by calibration.
    calibration
        What GPTQ learns from: text, or for a module without a tokenizer rows of
        numbers. It must not be what a task tests on.
    samples
        Windows of text GPTQ sees.
    length
        Tokens in a window.
    clip_search
        Whether each output channel's range is searched for (slow).
    keys_values
        Bits of keys and values in attention, for language models.

    References
    ----------
    "Rotated Runtime Smooth: Training-Free Activation Smoother for Accurate INT4
    Inference", ICLR 2025.

    Examples
    --------
    >>> import torch
    >>> from equipoise.kit.torch.quantizers import relative_error
    >>> from equipoise.kit.torch.subjects import ModuleSubject
    >>> control = ModuleSubject(torch.nn.Linear(1024, 8))
    >>> x = torch.randn(256, 1024, generator=Rng(0).torch())
    >>> strong = torch.randperm(1024, generator=Rng(1).torch())[:8]
    >>> x[:, strong] = 60 + 6 * x[:, strong]  # the same channels stand out in every token
    >>> x[range(20), range(20)] = 1000.0  # and some tokens have a spike
    >>> found = {}
    >>> for part in (RuntimeSmooth(16, 4, 128), Rotate(16, 4), RotatedRuntimeSmooth(16, 4, 128)):
    ...     treated = part.apply(control, Rng(1))
    ...     name = type(part).__name__
    ...     found[name] = relative_error(treated.module(x)[20:], control.module(x)[20:])
    >>> min(found, key=found.get)
    'RotatedRuntimeSmooth'
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=4)
    group: int = between(1, 65536, default=128)
    rotation: str = one_of("hadamard", "orthogonal", default="hadamard")
    weight_method: str = one_of("rtn", "gptq", default="rtn")
    calibration: str = setting("builtin:python_topics")
    samples: int = between(1, 100_000, default=16)
    length: int = between(1, 1_000_000, default=512)
    clip_search: bool = False
    keys_values: int = between(2, 16, default=16)

    random: ClassVar[bool] = True

    @classmethod
    def null(cls) -> Self:
        return cls(weights=16, activations=16)

    def content(self) -> Any:
        return content_hash(self.calibration) if self.weight_method == "gptq" else None

    def batches(self, subject: Any, rng: Rng) -> list[Any]:
        if self.weight_method == "rtn":
            return []
        stream = rng.child("calibration")
        return calibration_batches(
            subject, self.calibration, stream, samples=self.samples, length=self.length
        )

    def scheme(self) -> Scheme:
        return Scheme(
            weights=self.weights,
            activations=self.activations,
            rotation=self.rotation,  # type: ignore[arg-type]
            smooth=self.group,
            compensate=self.weight_method == "gptq",
            clip_search=self.clip_search,
            keys_values=self.keys_values,
        )
