"""Means and variances of what goes into layers, by position, over samples of text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.kit.progress import report

_TOKENS = 2048  # that go through the module at once


class Moments:
    """Running mean and variance over samples, shape (positions, channels), float32.

    Examples
    --------
    >>> found = Moments()
    >>> found.add(torch.tensor([[[1.0]], [[3.0]]]))
    >>> found.add(torch.tensor([[[5.0]]]))
    >>> found.mean.item(), round(found.variance.item(), 4), round(found.square.item(), 4)
    (3.0, 2.6667, 11.6667)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(())
        self._scatter = torch.zeros(())

    def add(self, x: Tensor) -> None:
        """Take in samples, shape (samples, positions, channels)."""
        x = x.float()
        new, before = len(x), self.count
        self.count = before + new
        mean = x.mean(0)
        shift = mean - self.mean  # Chan et al.: large means lose no digits of the variance
        self._scatter = (
            self._scatter
            + (x - mean).square().sum(0)
            + shift.square() * (before * new / self.count)
        )
        self.mean = self.mean + shift * (new / self.count)

    @property
    def variance(self) -> Tensor:
        """Mean squared distance from the mean."""
        return self._scatter / self.count

    @property
    def square(self) -> Tensor:
        """Mean square."""
        return self.variance + self.mean.square()


def moments_of(
    module: nn.Module, layers: Sequence[str], windows: Sequence[Tensor]
) -> dict[str, Moments]:
    """Return the moments of the inputs of layers over windows of text.

    Parameters
    ----------
    module
        A causal language model; it is run and left as it is.
    layers
        Dotted names of linear layers.
    windows
        Token ids, each (1, length).
    """
    found = {name: Moments() for name in layers}
    device = next(module.parameters()).device
    step = max(1, _TOKENS // windows[0].shape[1])
    base: Any = getattr(module, "base_model", module)  # the output layer has nothing to say here
    with ExitStack() as stack, torch.no_grad():
        for name, moments in found.items():
            layer = module.get_submodule(name)
            stack.enter_context(layer.register_forward_pre_hook(_listener(moments)))
        for start in range(0, len(windows), step):
            report("calibrating", start, len(windows))
            base(input_ids=torch.cat(list(windows[start : start + step])).to(device))
    return found


def _listener(moments: Moments) -> Any:
    def listen(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        moments.add(args[0])

    return listen
