"""A linear layer under activations with known outliers, and what is left of its output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    HasModule,
    Outcome,
    Predicts,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UsageError,
    between,
    one_of,
)

if TYPE_CHECKING:
    from equipoise.kit.torch.subjects import ModuleSubject

KINDS = ("gaussian", "zero_mean_channels", "spikes", "signed_channels", "signed_channels_spikes")


@dataclass(frozen=True)
class LinearLayer(Subject):
    r"""One linear layer with Gaussian weights, $Y = X W^\top$.

    Parameters
    ----------
    inputs
        Channels, K.
    outputs
        Rows of W, M.
    weight_seed
        Draws the weights, so that every arm and every task has the same layer.

    Examples
    --------
    >>> LinearLayer(inputs=4, outputs=2).load(Rng(0)).predict(np.ones((3, 4))).shape
    (3, 2)
    """

    inputs: int = between(1, 65536, default=1024)
    outputs: int = between(1, 65536, default=256)
    weight_seed: int = between(0, 2**31 - 1, default=0)

    provides: ClassVar[frozenset[Capability]] = frozenset({HasModule, Predicts})

    @classmethod
    def tiny(cls) -> Self:
        return cls(inputs=32, outputs=8)

    def load(self, rng: Rng) -> ModuleSubject:
        """Return the live layer; its weights come from ``weight_seed`` alone."""
        import torch

        from equipoise.kit.torch.subjects import ModuleSubject

        drawn = Rng(self.weight_seed).child("linear_layer").numpy()
        weight = drawn.standard_normal((self.outputs, self.inputs)) / np.sqrt(self.inputs)
        with torch.device("meta"):
            layer = torch.nn.Linear(self.inputs, self.outputs, bias=False)
        layer.weight = torch.nn.Parameter(torch.from_numpy(weight.astype(np.float32)))
        return ModuleSubject(layer)


@dataclass(frozen=True)
class OutputError(Task):
    r"""Relative error of a treated module's output on activations with known outliers.

    Each unit is a draw of N tokens, the same for every arm. The score is
    $\lVert Y - Y^* \rVert_F / \lVert Y^* \rVert_F$ over ordinary tokens (those
    without a spike), with $Y^*$ the reference's output.

    Parameters
    ----------
    reference
        The untreated subject.
    activations
        ``gaussian``: standard normal. ``zero_mean_channels``: some channels 50
        times as large, of either sign. ``spikes``: single entries of 1,000 in
        a few tokens. ``signed_channels``: some channels at ±60 with 10 %
        jitter, the sign fixed by channel. ``signed_channels_spikes``: both.
    draws
        How many units.
    tokens
        Tokens in a draw, N.
    channels
        How many channels stand out.
    spikes
        How many single entries stand out, each in a token of its own.

    Examples
    --------
    >>> task = OutputError(LinearLayer(32, 8), draws=1, tokens=16)
    >>> (unit,) = task.units(Rng(0))
    >>> task.perform(task.oracle(), [unit], Rng(0))[0].scores["relative_error"]
    0.0
    """

    reference: Subject
    activations: str = one_of(*KINDS, default="gaussian")
    draws: int = between(1, 1_000_000, default=20)
    tokens: int = between(2, 1_000_000, default=512)
    channels: int = between(1, 65536, default=8)
    spikes: int = between(1, 65536, default=20)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("relative_error", False, low=0.0),
        ScoreSpec("crest", None),
        ScoreSpec("channel_spread", None),
    )

    def check(self) -> None:
        if "spikes" in self.activations and self.spikes >= self.tokens:
            raise UsageError(
                f"OutputError: spikes must be fewer than the {self.tokens} tokens, "
                f"got {self.spikes}."
            )

    @classmethod
    def tiny(cls) -> Self:
        return cls(LinearLayer.tiny(), "signed_channels_spikes", 3, 16, 2, 2)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield draws; a unit carries its seed, so that all arms see the same tokens."""
        for number in range(self.draws):
            seed = rng.child(self.activations, number).seed_for_request()
            # A store holds draws of many trials: their seed keeps them apart.
            yield Unit(f"draw-{number:03d}-{seed:08x}", content={"seed": seed})

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        import torch

        from equipoise.kit.torch.quantizers import outlier_statistics, relative_error

        control = self.reference.load(rng.child("reference"))
        width = _width(control.module)
        found = []
        for unit in units:
            x, ordinary = activations(
                self.activations,
                np.random.default_rng(unit.content["seed"]),
                tokens=self.tokens,
                width=width,
                channels=self.channels,
                spikes=self.spikes,
            )
            rows = torch.from_numpy(x)
            kept = torch.from_numpy(ordinary)
            with torch.inference_mode():
                wanted = control.module(rows.to(control.device))[kept]
                got = subject.module(rows.to(subject.device))[kept]
                seen = _quantizer_input(subject.module, rows.to(subject.device))[kept]
            scores = {"relative_error": relative_error(got.cpu(), wanted.cpu())}
            found.append(Outcome(unit.id, scores | outlier_statistics(seen)))
        return found

    def oracle(self) -> Any:
        """Return the reference itself."""
        return self.reference.load(Rng(0))

    def constant(self) -> Any:
        """Return a subject that answers zero."""
        import torch

        control = self.oracle()
        width = _width(control.module)
        outputs = control.module(torch.zeros(1, width)).shape[1]
        with torch.device("meta"):
            silent = torch.nn.Linear(width, outputs, bias=False)
        silent.weight = torch.nn.Parameter(torch.zeros(outputs, width))
        return control.with_module(silent)


def activations(
    kind: str,
    draw: np.random.Generator,
    *,
    tokens: int = 512,
    width: int = 1024,
    channels: int = 8,
    spikes: int = 20,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw activations with outliers of a kind.

    Parameters
    ----------
    kind
        As `OutputError.activations`.
    draw
        Generator.
    tokens, width
        Shape (N, K).
    channels, spikes
        How many stand out.

    Returns
    -------
    tuple
        Activations, float32, shape ``(N, K)``; and which tokens are ordinary,
        without a spike, shape ``(N,)``.

    Examples
    --------
    >>> x, ordinary = activations("spikes", np.random.default_rng(0), tokens=64, width=32)
    >>> int((np.abs(x) > 100).sum()), int(ordinary.sum())
    (20, 44)
    """
    if channels > width:
        raise UsageError(
            f"OutputError: channels must be at most the {width} there are, got {channels}."
        )
    x = draw.standard_normal((tokens, width)).astype(np.float32)
    ordinary = np.ones(tokens, bool)
    chosen = draw.choice(width, channels, replace=False)
    if kind == "zero_mean_channels":
        x[:, chosen] *= 50
    elif kind.startswith("signed_channels"):
        signs = draw.choice([-1.0, 1.0], channels)
        x[:, chosen] = signs * 60 * (1 + 0.1 * draw.standard_normal((tokens, channels)))
    if kind.endswith("spikes"):
        places = draw.choice(tokens, spikes, replace=False)
        x[places, draw.integers(width, size=spikes)] = 1000.0
        ordinary[places] = False
    return x, ordinary


def _width(module: Any) -> int:
    for layer in module.modules():
        width = getattr(layer, "in_features", None)
        if isinstance(width, int):
            return width
    raise UsageError("OutputError: the reference has no linear layer to take a width from.")


def _quantizer_input(module: Any, x: Any) -> Any:
    """Return what a lone quantised layer's rounding is applied to, else the input itself."""
    smoothed = getattr(module, "smoothed", None)
    return x if smoothed is None else smoothed(x)
