r"""Scores of feed-forward channels and attention heads, as plain functions of tensors.

A unit to prune is an input channel k of the linear layer W, shape (C_out, C_in), that
ends an attention or feed-forward part, or the ``width`` channels of one head together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.core import UsageError

EPSILON = 1e-6  # keeps the share of two zeros defined


def raised_ratio(ratio: float, blocks: int, spared: int) -> float:
    r"""Return the ratio for the blocks that are pruned, so that the model's average is ``ratio``.

    $r' = \mathrm{round}(r L / (L - s), 2)$ for L blocks of which the first s are spared.

    Parameters
    ----------
    ratio
        Share of each kind of unit to remove from the whole model, in [0, 1).
    blocks, spared
        How many blocks there are, and how many of the first are left whole.

    Raises
    ------
    UsageError
        If no block is left to prune, or the others would have to lose all.

    Examples
    --------
    >>> raised_ratio(0.4, 32, 3), raised_ratio(0.4, 30, 3)
    (0.44, 0.44)
    """
    if spared >= blocks:
        raise UsageError(f"Of {blocks} blocks {spared} are spared, which leaves none to prune.")
    raised = round(blocks / (blocks - spared) * ratio, 2)
    if raised >= 1:
        raise UsageError(
            f"A ratio of {ratio} over {blocks} blocks would take everything from the"
            f" {blocks - spared} that are not spared; choose a lower ratio, or spare fewer."
        )
    return raised


def kept_count(total: int, ratio: float, multiple: int = 1) -> int:
    """Return how many units stay when the share ``ratio`` goes, rounded up to a multiple.

    Examples
    --------
    >>> kept_count(1536, 0.44), kept_count(1536, 0.44, 64)
    (861, 896)
    """
    kept = total - math.floor(round(ratio * total, 9))
    return min(total, -(-kept // multiple) * multiple)


def ppsp_strength(weight: Tensor) -> Tensor:
    r"""Return $(\sum_i W_{ik}^4)^{1/2}$ of each input channel, float32, shape (C_in,)."""
    return weight.float().square().square().sum(0).sqrt()


def ppsp_scores(weight: Tensor, energy: Tensor, width: int = 1) -> Tensor:
    r"""Return the scores of Probe Pruning, one a channel or a head.

    $I_k = \lVert (W_{ik}^2 e_k)_i \rVert_2 = e_k (\sum_i W_{ik}^4)^{1/2}$; a head's norm runs
    over its channels too.

    Parameters
    ----------
    weight
        W, shape (C_out, C_in).
    energy
        Squared activations $e$ of each channel, summed over tokens, shape (C_in,).
    width
        Channels in a unit: 1, or the size of a head.

    Examples
    --------
    >>> ppsp_scores(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2))
    tensor([ 9.0554, 16.4924])
    """
    return grouped_norm(energy * ppsp_strength(weight), width)


def grouped_norm(scores: Tensor, width: int) -> Tensor:
    """Return the 2-norm of each run of ``width`` scores; themselves where it is 1."""
    return scores if width == 1 else scores.view(-1, width).norm(dim=1)


def wanda_sp_scores(weight: Tensor, energy: Tensor, width: int = 1) -> Tensor:
    r"""Return the scores of Wanda-sp, $I_k = \sqrt{e_k} \sum_i |W_{ik}|$, summed over a head.

    Parameters are those of `ppsp_scores`.

    Examples
    --------
    >>> wanda_sp_scores(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2))
    tensor([4., 6.])
    """
    return (energy.sqrt() * weight.float().abs().sum(0)).view(-1, width).sum(1)


def flap_scores(weight: Tensor, fluctuation: Tensor, width: int = 1) -> Tensor:
    r"""Return the scores of FLAP, $I_k = \sigma^2_k \sum_i W_{ik}^2$, summed over a head.

    Parameters
    ----------
    weight, width
        As for `ppsp_scores`.
    fluctuation
        Variance $\sigma^2$ of each channel over samples, summed over positions, shape (C_in,).

    Examples
    --------
    >>> flap_scores(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 0.5]))
    tensor([10., 10.])
    """
    return (fluctuation * weight.float().square().sum(0)).view(-1, width).sum(1)


def best(scores: Tensor, count: int) -> Tensor:
    """Return the places of the ``count`` largest scores in rising order; of equals the first."""
    return scores.argsort(descending=True, stable=True)[:count].sort().values


def best_of_all(scores: Sequence[Tensor], ratio: float, multiple: int = 1) -> list[Tensor]:
    """Return the places each layer keeps under one threshold for all, on standardised scores.

    A layer keeps at least one unit; what it keeps is rounded up to the multiple.

    Examples
    --------
    >>> a, b = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0.0, 0.0, 0.0, 10.0])
    >>> [len(kept) for kept in best_of_all([a, b], 0.5)]
    [3, 1]
    """
    standard = [(each - each.mean()) / each.std().clamp_min(1e-12) for each in scores]
    places = best(torch.cat(standard), kept_count(sum(map(len, standard)), ratio))
    found, start = [], 0
    for each in standard:
        inside = int(((places >= start) & (places < start + len(each))).sum())
        rounded = min(len(each), -(-max(1, inside) // multiple) * multiple)
        found.append(best(each, rounded))
        start += len(each)
    return found


def select_probe(
    residual: Tensor, samples: float, tokens: float, real: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Return which samples and which tokens of a batch make up the probe, in their order.

    With $U_{ns} = \lVert R_{ns} \rVert_2$ the tokens with the largest $\sum_n U_{ns}^2$ are kept,
    at least two, and of the samples those with the largest $\sum_s U_{ns}^2$ over these tokens.
    Where at most ten tokens are kept, the first of them gives way to token 0.

    Parameters
    ----------
    residual
        R, the hidden states before the norm, shape (N, S, D).
    samples, tokens
        Shares to keep, in (0, 1]; rounded up.
    real
        True at tokens that are no padding, shape (N, S); None when all are.

    Examples
    --------
    >>> residual = torch.tensor([[1.0, 2.0, 3.0, 4.0], [9.0, 0.0, 0.0, 0.0]])[..., None]
    >>> select_probe(residual, 0.5, 0.5)
    (tensor([1]), tensor([0, 3]))
    """
    power = residual.float().square().sum(-1)  # U², (N, S)
    if real is not None:
        power = torch.where(real, power, 0.0)
    size, length = power.shape
    count = min(length, max(2, _share(tokens, length)))
    kept = best(power.sum(0), count)
    if count <= 10:
        kept[0] = 0
    return best(power[:, kept].sum(1), _share(samples, size)), kept


def _share(share: float, of: int) -> int:
    return math.ceil(round(share * of, 9))


def fuse(probe: Tensor, history: Tensor) -> Tensor:
    r"""Return the importance-scaled fusion of two energies, elementwise.

    $E = \rho a + (1 - \rho) b$ with $\rho = a / (a + b + 10^{-6})$: nearly $(a^2 + b^2)/(a + b)$,
    so that the larger one counts for more.

    Parameters
    ----------
    probe, history
        Energies a and b, not negative, of one shape.

    Examples
    --------
    >>> fuse(torch.tensor([2.0, 0.0, 1e6]), torch.tensor([2.0, 3.0, 1.0]))
    tensor([2.0000e+00, 3.0000e+00, 1.0000e+06])
    """
    share = probe / (probe + history + EPSILON)
    return share * probe + (1 - share) * history


def mask_overlap(one: Tensor, two: Tensor, total: int) -> float:
    """Return which share of the removed units two masks have in common, in [0, 1].

    Parameters
    ----------
    one, two
        Places of the units that are kept, as integers below ``total``.
    total
        How many units there are.

    Returns
    -------
    float
        Units removed by both over the mean number removed by one; 1 where none is removed.

    Examples
    --------
    >>> mask_overlap(torch.tensor([0, 1]), torch.tensor([1, 2]), 4)
    0.5
    """
    gone = torch.ones(2, total, dtype=torch.bool)
    gone[0, one.cpu()] = False
    gone[1, two.cpu()] = False
    removed = int(gone.sum())
    return 2 * int(gone.all(0).sum()) / removed if removed else 1.0
