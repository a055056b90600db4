"""A small Llama trained here, with outliers that are known because they were put in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from equipoise.core import (
    Embeds,
    Generates,
    HasModule,
    Rng,
    ScoresText,
    Subject,
    UsageError,
    between,
    setting,
)
from equipoise.kit.data import content_hash

if TYPE_CHECKING:
    from equipoise.kit.language.local import LanguageModel


@dataclass(frozen=True)
class SmallLlama(Subject):
    r"""A Llama of under a million parameters that learns text byte by byte in a minute.

    With ``outliers`` some channels after norms, of values, and between up and down
    layers are made ``factor`` times as large, and the layers that read them make up
    for it: the model computes the same, and it is known what a quantiser must undo.
    Its weights were never rounded.

    Parameters
    ----------
    width
        Of the residual stream, a multiple of twice ``heads``.
    layers
        Blocks.
    heads
        Query heads, an even number; two share a key and a value.
    channels
        Of the feed-forward part.
    steps
        Updates in training, each on 8 windows of 128 bytes.
    data
        Text to learn from (see `equipoise.kit.data.read_texts`).
    weight_seed
        Of weights and windows, so that every arm has the same model.
    outliers
        Channels in each place.
    factor
        How much larger they are.

    Examples
    --------
    >>> live = SmallLlama(width=32, layers=1, heads=2, channels=64, steps=1).load(Rng(0))
    >>> live.tokenize("hi")
    [104, 105]
    """

    width: int = between(8, 4096, default=128)
    layers: int = between(1, 64, default=4)
    heads: int = between(2, 64, default=4)
    channels: int = between(8, 16384, default=384)
    steps: int = between(0, 1_000_000, default=300)
    data: str = setting("builtin:python_topics")
    weight_seed: int = between(0, 2**31 - 1, default=0)
    outliers: int = between(0, 4096, default=0)
    factor: float = between(1.0, 1e6, default=20.0)

    provides: ClassVar = frozenset({Generates, ScoresText, Embeds, HasModule})

    def check(self) -> None:
        if self.heads % 2 or self.width % (2 * self.heads):
            raise UsageError(
                "SmallLlama: heads must be even and width a multiple of twice as many, got"
                f" {self.heads} heads and a width of {self.width}."
            )

    @classmethod
    def tiny(cls) -> Self:
        return cls(width=32, layers=1, heads=2, channels=64, steps=2, outliers=2)

    def content(self) -> Any:
        return content_hash(self.data)

    def load(self, rng: Rng) -> LanguageModel:
        """Return the live model; its weights come from ``weight_seed`` alone."""
        try:
            from equipoise.kit.worlds.small_llama import language_model, trained, with_outliers
        except ModuleNotFoundError as error:
            raise UsageError(
                f"SmallLlama: the package {error.name} is not installed:"
                " pip install 'equipoise[language]'."
            ) from error
        module = trained(
            self.width, self.layers, self.heads, self.channels, self.data, self.steps,
            self.weight_seed,
        )  # fmt: skip
        if self.outliers:
            drawn = Rng(self.weight_seed).child("outliers")
            module = with_outliers(module, self.outliers, self.factor, drawn)
        return language_model(module)
