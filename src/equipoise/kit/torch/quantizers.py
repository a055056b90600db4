r"""Symmetric integer quantisers, and the scales that make their work easier.

Everything here is a plain function of tensors. Rows are the last axis: a token's
channels in activations ``(..., N, K)``, an output channel's inputs in weights
``(M, K)``. "Fake" quantisation returns what the integers stand for, in the dtype
that came in; ``bits=None`` means no rounding at all (infinitely many bits).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FLOOR = 1e-5
"""Least smoothing scale, so that a silent channel is not divided by zero."""


def integer_range(bits: int) -> tuple[int, int]:
    r"""Return the least and greatest integer, $-2^{b-1}$ and $2^{b-1} - 1$.

    Examples
    --------
    >>> integer_range(4)
    (-8, 7)
    """
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def quantize(
    x: Tensor, bits: int, *, group: int = 0, clip: float = 1.0, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Round to integers with one step per row, or per group of a row.

    $d = c \cdot \max_j |x_j| / (2^{b-1} - 1)$ and
    $q = \mathrm{clamp}(\mathrm{round}(x / d), -2^{b-1}, 2^{b-1} - 1)$. A row of
    zeros has $d = 1$.

    Parameters
    ----------
    x
        Shape ``(..., K)``.
    bits
        Width $b$ of an integer, at least 2.
    group
        Entries that share a step; 0 is the whole row. The last group may be
        shorter.
    clip
        Ratio $c$ in (0, 1] that the range is shrunk by.
    scale
        The step itself, where it is known already.

    Returns
    -------
    tuple
        Integers held as floats and the step, both of the shape of ``x``
        (the step broadcasts to it).

    Examples
    --------
    >>> q, d = quantize(torch.tensor([[7.0, -3.4, 0.0]]), 4)
    >>> q.tolist(), d.tolist()
    ([[7.0, -3.0, 0.0]], [[1.0]])
    """
    low, high = integer_range(bits)
    if scale is None:
        scale = step_size(x, bits, group=group, clip=clip)
    return torch.clamp(torch.round(x / scale), low, high), scale


def step_size(x: Tensor, bits: int, *, group: int = 0, clip: float = 1.0) -> Tensor:
    """Return the quantiser's step $d$ for each row or group, broadcastable to ``x``."""
    columns = x.shape[-1]
    top = integer_range(bits)[1] / clip
    if group <= 0 or group >= columns:
        largest = _absolute_maximum(x, -1)
        return torch.where(largest == 0, 1.0, largest / top)
    groups = -(-columns // group)
    padded = torch.nn.functional.pad(x, (0, groups * group - columns))
    largest = _absolute_maximum(torch.unflatten(padded, -1, (groups, group)), -1)
    step = torch.where(largest == 0, 1.0, largest / top)
    return step.expand(*step.shape[:-1], group).flatten(-2)[..., :columns]


def fake_quantize(x: Tensor, bits: int | None, *, group: int = 0, clip: float = 1.0) -> Tensor:
    """Return what is left of ``x`` after rounding to integers, $q d$.

    Examples
    --------
    >>> fake_quantize(torch.tensor([[1.0, 0.2, -0.9]]), 2)
    tensor([[ 1.,  0., -1.]])
    """
    if bits is None:
        return x
    q, step = quantize(x, bits, group=group, clip=clip)
    return q.mul_(step)


def smoothing_scales(
    x: Tensor, group: int = 1, *, mask: Tensor | None = None, floor: float = FLOOR
) -> Tensor:
    r"""Return runtime-smooth scales, one a channel, from the sequence itself.

    $s_j = \max(\max_i |X_{ij}|, \text{floor})$. With groups, channels are sorted
    by $s$, cut into groups of ``group``, and each takes the largest of its
    group; the sort is undone.

    Parameters
    ----------
    x
        Activations ``(..., N, K)``: N tokens of one sequence, K channels.
    group
        Channels that share a scale; the last group may be smaller.
    mask
        True at real tokens, shape ``(..., N)``; padding does not count.
    floor
        Least scale.

    Returns
    -------
    torch.Tensor
        Shape ``(..., 1, K)``.

    Notes
    -----
    With a single token and ``group=1`` the scale is the token itself: every
    entry becomes ±1, and the smoother stores the activations in its scales. It
    says nothing about decoding token by token.

    References
    ----------
    Rotated Runtime Smooth, ICLR 2025, section 3.1.

    Examples
    --------
    >>> x = torch.tensor([[1.0, -5.0, 0.5, 2.0], [-3.0, 1.0, 0.1, 0.0]])
    >>> smoothing_scales(x)
    tensor([[3.0000, 5.0000, 0.5000, 2.0000]])
    >>> smoothing_scales(x, group=2)
    tensor([[5., 5., 2., 2.]])
    """
    if mask is not None:
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
    scale = _absolute_maximum(x, -2).clamp_(min=floor)
    if group <= 1:
        return scale
    ordered, order = scale.sort(dim=-1, descending=True, stable=True)
    largest = ordered[..., ::group].repeat_interleave(group, -1)[..., : x.shape[-1]]
    return torch.empty_like(scale).scatter_(-1, order, largest)


def runtime_smooth(
    x: Tensor,
    bits: int | None,
    *,
    group: int = 1,
    clip: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Smooth, round each token, and undo the smoothing: $s \cdot Q(X / s)$.

    Parameters
    ----------
    x
        Activations ``(..., N, K)``.
    bits
        Width of an integer; None smooths without rounding.
    group, mask
        As in `smoothing_scales`.
    clip
        As in `quantize`.

    Examples
    --------
    A matrix of rank one keeps one number a token, so it survives four bits:

    >>> x = torch.outer(torch.tensor([7.0, -3.0]), torch.tensor([1.0, 10.0, 0.1]))
    >>> runtime_smooth(x, 4)
    tensor([[  7.0000,  70.0000,   0.7000],
            [ -3.0000, -30.0000,  -0.3000]])
    """
    scale = smoothing_scales(x, group, mask=mask)
    if bits is None:
        return x / scale * scale
    return quantize_(x / scale, bits, clip=clip).mul_(scale)


def quantize_(x: Tensor, bits: int, *, group: int = 0, clip: float = 1.0) -> Tensor:
    """Fake-quantise in place, in as few passes over memory as can be, and return ``x``."""
    with torch.no_grad():
        step = step_size(x, bits, group=group, clip=clip)
    x.div_(step).round_()
    if clip < 1.0:  # otherwise no entry is beyond the range
        x.clamp_(*integer_range(bits))
    return x.mul_(step)


def search_clip(
    w: Tensor, bits: int, *, group: int = 0, power: float = 2.4, grid: int = 100, most: float = 0.8
) -> Tensor:
    r"""Return the step per row whose range, shrunk by $p$, loses least.

    Tries $p = 1 - i / \text{grid}$ for $i = 0, \dots, \text{most} \cdot \text{grid} - 1$
    and keeps the one with the least $\sum_j |\hat w_j - w_j|^{2.4}$.

    Parameters
    ----------
    w
        Weights ``(M, K)``.
    bits, group
        As in `quantize`.
    power
        Exponent of the loss.
    grid, most
        How fine the search is and how far the range may shrink.

    Examples
    --------
    >>> w = torch.tensor([[1.0, 1.0, 1.0, 1.4]])
    >>> bool(search_clip(w, 2) < step_size(w, 2))
    True
    """
    columns = w.shape[-1]
    if group and group < columns:
        groups = -(-columns // group)
        padded = torch.nn.functional.pad(w, (0, groups * group - columns))
        found = search_clip(
            torch.unflatten(padded, -1, (groups, group)).flatten(0, -2),
            bits, power=power, grid=grid, most=most,
        )  # fmt: skip
        return found.expand(-1, group).reshape(*w.shape[:-1], -1)[..., :columns]
    low, high = integer_range(bits)
    full = step_size(w, bits)
    best = full.clone()
    least = torch.full_like(full, math.inf)
    scratch = torch.empty_like(w)
    for i in range(int(most * grid)):
        step = full * (1 - i / grid)
        torch.div(w, step, out=scratch)
        scratch.round_().clamp_(low, high).mul_(step).sub_(w).abs_().pow_(power)
        loss = scratch.sum(-1, keepdim=True)
        better = loss < least
        least = torch.where(better, loss, least)
        best = torch.where(better, step, best)
    return best


def round_weights(w: Tensor, bits: int, *, group: int = 0, search: bool = False) -> Tensor:
    """Return fake-quantised weights ``(M, K)``, one step per output channel or group.

    Parameters
    ----------
    w
        Weights, one row an output channel.
    bits, group
        As in `quantize`.
    search
        Whether to choose the range by `search_clip`.
    """
    scale = search_clip(w, bits, group=group) if search else None
    q, step = quantize(w, bits, group=group, scale=scale)
    return q.mul_(step)


def smoothquant_scales(activations: Tensor, weights: Tensor, alpha: float = 0.5) -> Tensor:
    r"""Return SmoothQuant's $s_j = \max|X_j|^{\alpha} / \max|W_j|^{1-\alpha}$.

    Activations are divided by it and the weights' columns multiplied, so the
    product is unchanged.

    Parameters
    ----------
    activations
        Largest absolute value of each input channel on calibration data, ``(K,)``.
    weights
        ``(M, K)``; the rows of every layer that reads these activations.
    alpha
        How much of the difficulty moves into the weights, in [0, 1].

    References
    ----------
    Xiao et al., "SmoothQuant", ICML 2023, eq. 4.

    Examples
    --------
    >>> smoothquant_scales(torch.tensor([4.0, 1.0]), torch.tensor([[1.0, -1.0]]))
    tensor([2., 1.])
    """
    largest = weights.abs().amax(0).clamp(min=FLOOR)
    return (activations.clamp(min=FLOOR).pow(alpha) / largest.pow(1 - alpha)).clamp(min=FLOOR)


def relative_error(output: Tensor, reference: Tensor) -> float:
    r"""Return $\lVert Y - Y^* \rVert_F / \lVert Y^* \rVert_F$; 0 is exact.

    Examples
    --------
    >>> relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0]))
    1.3333333333333333
    """
    output, reference = output.detach().double(), reference.detach().double()
    size = torch.linalg.vector_norm(reference)
    distance = torch.linalg.vector_norm(output - reference)
    if size == 0:
        return 0.0 if distance == 0 else math.inf
    return float(distance / size)


def outlier_statistics(x: Tensor) -> dict[str, float]:
    """Say how outliers lie in activations ``(..., K)``.

    Returns
    -------
    dict
        ``crest``: mean over tokens of the largest absolute entry over the root
        mean square, what a per-token quantiser's error grows with (3.3 for
        1,024 Gaussian channels); ``channel_spread``: largest over median
        channel maximum, large for channel-wise outliers.

    Examples
    --------
    >>> outlier_statistics(torch.ones(2, 4))
    {'crest': 1.0, 'channel_spread': 1.0}
    """
    rows = x.detach().flatten(0, -2).double()
    rms = rows.square().mean(-1).sqrt()
    live = rms > 0
    peaks = rows.abs().amax(-1)
    crest = float((peaks[live] / rms[live]).mean()) if bool(live.any()) else 0.0
    channels = rows.abs().amax(0)
    middle = channels.median()
    spread = float(channels.max() / middle) if middle > 0 else math.inf
    return {"crest": crest, "channel_spread": spread}


def _absolute_maximum(x: Tensor, axis: int) -> Tensor:
    # Two reductions are several times faster on a CPU than one over x.abs().
    return torch.maximum(x.amax(axis, keepdim=True), x.amin(axis, keepdim=True).neg_())
