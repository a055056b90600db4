"""Round-to-nearest: the quantiser every other one must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from equipoise.core import between
from equipoise.kit.torch.quantized import Scheme
from equipoise.methods.quantization._quantiser import Quantiser


@dataclass(frozen=True)
class RoundToNearest(Quantiser):
    r"""Round weights and activations to evenly spaced levels.

    Each output channel of a weight and each token of an activation has its own
    step $d = \max_j |x_j| / (2^{b-1} - 1)$, and
    $q = \mathrm{clamp}(\mathrm{round}(x / d), -2^{b-1}, 2^{b-1} - 1)$. Every linear
    layer is quantised but a language model's output head; embeddings stay as
    they are. Where only weights are rounded the model has an ordinary form.

    Parameters
    ----------
    weights
        Bits of weights; 16 leaves them in floating point.
    activations
        Bits of the inputs of linear layers; 16 leaves them in floating point.
    weight_group
        Weights of an output channel that share a step; 0 is the whole channel.
    activation_group
        Channels of a token that share a step; 0 is the whole token.
    clip
        Ratio that each token's range is shrunk by.
    clip_search
        Whether each output channel's range is the one that loses least, by
        $\sum_j |\hat w_j - w_j|^{2.4}$ (slow).
    keys_values
        Bits of keys and values in attention, for language models; 16 leaves
        them in floating point.

    Examples
    --------
    >>> import torch
    >>> from equipoise.core import Rng
    >>> from equipoise.kit.torch.subjects import ModuleSubject
    >>> layer = torch.nn.Linear(3, 1, bias=False)
    >>> layer.weight.data = torch.tensor([[1.0, 0.2, -0.9]])
    >>> RoundToNearest(weights=2).apply(ModuleSubject(layer), Rng(0)).module.weight.tolist()
    [[1.0, 0.0, -1.0]]
    """

    weights: int = between(2, 16, default=4)
    activations: int = between(2, 16, default=16)
    weight_group: int = between(0, 65536, default=0)
    activation_group: int = between(0, 65536, default=0)
    clip: float = between(0.1, 1.0, default=1.0)
    clip_search: bool = False
    keys_values: int = between(2, 16, default=16)

    @classmethod
    def tiny(cls) -> Self:
        return cls(weights=4, activations=4)

    @classmethod
    def null(cls) -> Self:
        return cls(weights=16, activations=16)

    def scheme(self) -> Scheme:
        return Scheme(
            weights=self.weights,
            activations=self.activations,
            weight_group=self.weight_group,
            activation_group=self.activation_group,
            clip=self.clip,
            clip_search=self.clip_search,
            keys_values=self.keys_values,
        )
