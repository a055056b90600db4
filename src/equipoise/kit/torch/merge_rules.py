r"""Rules that join task vectors $\tau_t = \theta_t - \theta_0$ entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equipoise.core import UsageError

Rule = Callable[[Tensor], Tensor]
"""From task vectors ``(models, ...)`` to the merged one ``(...)``."""


def total(taus: Tensor) -> Tensor:
    r"""Return $\sum_t \tau_t$ (task arithmetic) of task vectors ``(models, ...)``."""
    return taus.sum(0)


def average(taus: Tensor) -> Tensor:
    r"""Return $\frac{1}{N} \sum_t \tau_t$ of task vectors ``(models, ...)``."""
    return taus.mean(0)


def weighted(weights: Sequence[float]) -> Rule:
    r"""Return the rule $\sum_t w_t \tau_t$.

    Raises
    ------
    UsageError
        If the weights do not sum to 1, or (when the rule runs) are not one a model.

    Examples
    --------
    >>> weighted([0.25, 0.75])(torch.tensor([[4.0], [0.0]]))
    tensor([1.])
    """
    if not weights or abs(sum(weights) - 1) > 1e-6:
        raise UsageError(f"weights must sum to 1, got {list(weights)}.")

    def rule(taus: Tensor) -> Tensor:
        if len(taus) != len(weights):
            raise UsageError(f"weights must be one a model, got {len(weights)} for {len(taus)}.")
        return torch.einsum("t...,t->...", taus, taus.new_tensor(list(weights)))

    return rule


def ties(
    taus: Tensor,
    density: float = 0.2,
    *,
    thresholds: Tensor | None = None,
    combine: str = "mean",
) -> Tensor:
    r"""Merge by TIES: trim, elect a sign for each entry, join what agrees with it.

    Each task vector keeps its largest entries; the elected sign is that of
    their sum, and the entry's value is the mean (or sum) of those that have
    it. Where the sum is zero no sign is elected and the entry stays zero.

    Parameters
    ----------
    taus
        Task vectors, ``(models, ...)``.
    density
        Share of entries that each keeps, in (0, 1].
    thresholds
        Least magnitude that each keeps, ``(models,)``; found from ``density`` when None.
    combine
        ``"mean"`` or ``"sum"``.

    References
    ----------
    Yadav et al., "TIES-Merging: Resolving Interference When Merging Models", NeurIPS 2023.

    Examples
    --------
    The first entry has a quarrel that the larger side wins; small ones are trimmed.

    >>> ties(torch.tensor([[3.0, 1.0, 0.1, 0.0], [-1.0, 3.0, 0.2, 0.0]]), density=0.5)
    tensor([3., 2., 0., 0.])
    """
    flat = taus.reshape(len(taus), -1)
    if thresholds is None:
        keep = max(1, int(density * flat.shape[1]))
        thresholds = flat.abs().topk(keep, dim=1).values[:, -1] if flat.shape[1] else flat[:, :0]
    kept = torch.where(flat.abs() >= thresholds[:, None], flat, flat.new_zeros(()))
    elected = kept.sum(0).sign_()
    agreeing = (kept * elected).clamp_(min=0)  # magnitudes; what has the other sign is gone
    joined = agreeing.sum(0)
    if combine == "mean":
        joined /= agreeing.sign_().sum(0).clamp_(min=1)
    return joined.mul_(elected).reshape(taus.shape[1:])


def consensus(taus: Tensor, threshold: float = 0.4, least: int = 2) -> Tensor:
    r"""Merge by consensus: the sum, where enough models have a use for the entry.

    Model t's mask (TALL) is $|\tau_t| > \lambda\, |\sum_s \tau_s - \tau_t|$; an entry of the
    sum stays where at least ``least`` masks hold it.

    Parameters
    ----------
    taus
        Task vectors, ``(models, ...)``.
    threshold
        $\lambda$; the paper's search is over 0.2 to 0.6.
    least
        Masks that must hold an entry; 0 keeps all.

    References
    ----------
    Wang et al., "Localizing Task Information for Improved Model Merging and
    Compression", ICML 2024.

    Examples
    --------
    Both models move the first entry, only one the second:

    >>> consensus(torch.tensor([[1.0, 5.0], [1.0, 0.1]]))
    tensor([2., 0.])
    """
    joint = taus.sum(0)
    masks = taus.abs() > threshold * (joint - taus).abs()
    return torch.where(masks.sum(0) >= least, joint, joint.new_zeros(()))
