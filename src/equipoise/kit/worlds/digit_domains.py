"""Handwritten digits seen in four ways, and a residual network that learns them.

Four input domains with one set of labels stand for the many tasks of a foundation
model: it is pre-trained on a little of each, and fine-tuned on much of one.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from equipoise.core import Split, UsageError
from equipoise.kit.data.identity import split_of
from equipoise.kit.progress import report
from equipoise.kit.torch.threads import one_thread

DOMAINS = ("upright", "rotated", "inverted", "mirrored")
SIDE, CLASSES = 8, 10

Array = np.ndarray


def view(images: Array, domain: str) -> Array:
    """Return images as a domain shows them.

    Parameters
    ----------
    images
        Shape ``(n, 8, 8)``, from 0 to 1.
    domain
        ``upright`` as they are, ``rotated`` by 90 degrees, ``inverted`` in
        brightness, ``mirrored`` left to right under a pattern of stripes.

    Examples
    --------
    >>> corner = np.zeros((1, 8, 8))
    >>> corner[0, 0, 0] = 1.0
    >>> [float(view(corner, domain)[0, 0, 0]) for domain in DOMAINS]
    [1.0, 0.0, 0.0, 0.4]
    """
    if domain == "rotated":
        return np.rot90(images, axes=(1, 2))
    if domain == "inverted":
        return 1.0 - images
    if domain == "mirrored":
        stripes: Array = 0.4 * (np.indices((SIDE, SIDE)).sum(0) % 2 == 0)
        return stripes + 0.6 * images[:, :, ::-1]
    return images


@functools.cache
def digits() -> tuple[Array, Array, tuple[Split, ...]]:
    """Return the digits that scikit-learn carries: images ``(1797, 8, 8)``, labels, splits.

    Half of them is for training, a fifth for calibration, the rest for testing;
    an image is in the same split in every domain.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise UsageError(
            "The digits come with the package scikit-learn, which is not installed:"
            " pip install 'equipoise[predictors]'."
        ) from error
    found = load_digits()
    images = found.images / 16.0
    images.setflags(write=False)
    splits = tuple(split_of(str(n), train=0.5, calibration=0.2) for n in range(len(images)))
    return images, found.target, splits


def examples(
    domains: Sequence[str], split: Split, most: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return rows ``(n, 64)`` and labels ``(n,)`` of a split, ``most`` images a domain."""
    images, labels, splits = digits()
    chosen = np.flatnonzero(np.array(splits) == split)[:most]
    rows = np.concatenate([view(images[chosen], domain) for domain in domains])
    return (
        torch.from_numpy(rows.reshape(len(rows), -1)).float(),
        torch.from_numpy(np.tile(labels[chosen], len(domains))).long(),
    )


class ResidualNetwork(nn.Module):
    """Blocks of a norm and two layers on a residual stream, between an input layer and a head.

    Parameters
    ----------
    width
        Of the residual stream; a block's inner layer is twice as wide.
    blocks
        How many.
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.embed = nn.Linear(SIDE * SIDE, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, rows: Tensor) -> Tensor:
        """Return class scores ``(n, 10)`` of rows ``(n, 64)``."""
        x = self.embed(rows)
        for block in self.blocks:
            x = x + block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(functional.relu(self.up(self.norm(x))))
        return found


def train(
    module: nn.Module,
    rows: Tensor,
    labels: Tensor,
    *,
    steps: int,
    rate: float,
    seed: int,
    batch: int = 64,
    frozen: Sequence[str] = (),
    told: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Minimise cross-entropy by Adam, in place, on batches drawn with replacement.

    One thread does it, so the number of processors does not move the result.

    Parameters
    ----------
    module
        Its parameters are overwritten.
    rows, labels
        What is learnt from.
    steps, rate, batch
        Updates, their learning rate, and rows in each.
    seed
        Of the batches.
    frozen
        Children whose parameters stay.
    told
        Called with step and loss after every update.
    """
    generator = torch.Generator().manual_seed(seed)
    learnt = [p for name, p in module.named_parameters() if name.partition(".")[0] not in frozen]
    optimizer = torch.optim.Adam(learnt, lr=rate, fused=True)
    with one_thread():
        for step in range(steps):
            chosen = torch.randint(len(rows), (batch,), generator=generator)
            loss = functional.cross_entropy(module(rows[chosen]), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            told(step, float(loss.detach()))


@functools.lru_cache(maxsize=32)
def pretrained(width: int, blocks: int, images: int, steps: int, seed: int) -> ResidualNetwork:
    """Return a network trained on ``images`` digits of every domain; never write to it."""
    with torch.random.fork_rng(devices=[]):  # layers draw when they are made
        torch.manual_seed(seed)
        module = ResidualNetwork(width, blocks)
    rows, labels = examples(DOMAINS, "train", images)
    train(module, rows, labels, steps=steps, rate=2e-3, seed=seed)
    return module.eval().requires_grad_(False)


@functools.lru_cache(maxsize=64)
def fine_tuned(
    module: ResidualNetwork, domain: str, steps: int, rate: float, seed: int
) -> tuple[ResidualNetwork, list[float]]:
    """Return a network trained on all of one domain, its head left, and the losses.

    Arms that begin alike ask for the same one, which is made once; never write to it.
    """
    losses: list[float] = []

    def note(step: int, loss: float) -> None:
        report(f"fine-tuning on {domain} digits, loss {loss:.2f}", step + 1, steps)
        losses.append(loss)

    learner = copy.deepcopy(module).requires_grad_(True)
    rows, labels = examples([domain], "train")
    train(learner, rows, labels, steps=steps, rate=rate, seed=seed, frozen=("head",), told=note)
    return learner.eval().requires_grad_(False), losses
