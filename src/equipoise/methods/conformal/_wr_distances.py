r"""How far two laws of conformal scores are apart, and what that says about coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from equipoise.core import UsageError

if TYPE_CHECKING:
    from torch import Tensor


def wasserstein_1(
    u: ArrayLike,
    v: ArrayLike,
    u_weights: ArrayLike | None = None,
    v_weights: ArrayLike | None = None,
) -> float | np.ndarray:
    r"""Return the 1-Wasserstein distance of weighted samples on the line.

    With $z$ the sorted union of both samples and $F_u$, $F_v$ their distribution functions,

    $$W_1(u, v) = \int |F_u - F_v| = \sum_k |F_u(z_k) - F_v(z_k)|\, (z_{k+1} - z_k).$$

    Parameters
    ----------
    u, v
        Samples along the last axis; axes before it are broadcast, so that many pairs are
        compared at once.
    u_weights, v_weights
        Weights of the entries, at least 0 and not all 0; they need not sum to 1. None for
        equal ones.

    Returns
    -------
    float or ndarray
        In the unit of the samples; a number for one pair.

    Raises
    ------
    UsageError
        If a sample is empty or not finite, or weights are negative, all 0, or not one an entry.

    Examples
    --------
    >>> wasserstein_1([0.0, 1.0], [1.0, 2.0])
    1.0
    >>> wasserstein_1([0.0, 1.0], [1.0], u_weights=[1.0, 3.0])
    0.25
    """
    first, p = _weighted("u", u, u_weights)
    second, q = _weighted("v", v, v_weights)
    shape = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    z, mass = (
        np.concatenate([np.broadcast_to(each, (*shape, each.shape[-1])) for each in pair], axis=-1)
        for pair in ((first, second), (p, -q))
    )
    order = np.argsort(z, axis=-1)
    gap = np.cumsum(np.take_along_axis(mass, order, -1), axis=-1)[..., :-1]
    steps = np.diff(np.take_along_axis(z, order, -1), axis=-1)
    found: np.ndarray = (np.abs(gap) * steps).sum(-1)
    return found if found.ndim else float(found)


def wasserstein_1_torch(
    u: Tensor, v: Tensor, u_weights: Tensor | None = None, v_weights: Tensor | None = None
) -> Tensor:
    r"""Return the 1-Wasserstein distance as a tensor with a gradient in both samples.

    The same sum as `wasserstein_1`. Weights are held fixed; between ties the distance is linear
    in the samples, so the gradient through the sorting is exact almost everywhere.

    Parameters
    ----------
    u, v
        Samples along the last axis, with equal axes before it.
    u_weights, v_weights
        Positive weights of the shapes of ``u`` and ``v``; None for equal ones.

    Examples
    --------
    >>> import torch
    >>> u = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> wasserstein_1_torch(u, torch.tensor([1.0, 2.0])).backward()
    >>> u.grad
    tensor([-0.5000, -0.5000])
    """
    import torch

    p = torch.ones_like(u) if u_weights is None else u_weights
    q = torch.ones_like(v) if v_weights is None else v_weights
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    z, order = torch.cat([u, v], -1).sort(dim=-1)
    gap = torch.cat([p, -q], -1).detach().gather(-1, order).cumsum(-1)[..., :-1]
    return (gap.abs() * z.diff(dim=-1)).sum(-1)


def coverage_gap_bound(distance: ArrayLike, density: ArrayLike) -> float | np.ndarray:
    r"""Return how far two laws can differ in coverage at any threshold.

    If one of the two laws of scores has a density of at most $L$, then for every $\tau$

    $$|F_P(\tau) - F_Q(\tau)| \le \sqrt{2 L\, W_1(P, Q)}.$$

    For a difference of $d$ at $\tau$, the functions stay apart by at least $d - L t$ at a
    distance of $t$ to one side, until $t = d/L$: a triangle with the area $d^2/(2L)$ that
    $W_1$ must contain. The triangle is attained, so the constant cannot be smaller.

    Parameters
    ----------
    distance
        $W_1(P, Q)$, at least 0.
    density
        $L$, above 0; in the inverse unit of ``distance``.

    Returns
    -------
    float or ndarray
        At most 1, where it says nothing.

    Raises
    ------
    UsageError
        If a distance is negative or a density not above 0.

    Examples
    --------
    >>> coverage_gap_bound(0.02, 1.0)
    0.2
    """
    w, bound = np.asarray(distance, float), np.asarray(density, float)
    if not ((w >= 0).all() and (bound > 0).all()):
        raise UsageError(
            f"coverage_gap_bound: distance must be at least 0 and density above 0, "
            f"got {distance!r} and {density!r}."
        )
    found = np.minimum(np.sqrt(2 * bound * w), 1.0)
    return found if found.ndim else float(found)


def total_variation(u: ArrayLike, v: ArrayLike, *, points: int = 100) -> float:
    r"""Return the total variation distance of two samples, by kernel densities on a grid.

    That is $\frac{1}{2} \int |p - q|$, with Gaussian kernels of Scott's bandwidth and the
    trapezoid rule from the least to the largest value.

    Parameters
    ----------
    u, v
        Samples of two or more different numbers.
    points
        Of the grid.

    Raises
    ------
    UsageError
        If a sample has fewer than two different numbers.

    Examples
    --------
    >>> total_variation([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    0.0
    """
    grid, p, q = _densities(u, v, points)
    return float(0.5 * np.trapezoid(np.abs(p - q), grid))


def kl_divergence(u: ArrayLike, v: ArrayLike, *, points: int = 100) -> float:
    r"""Return the Kullback-Leibler divergence of two samples, by kernel densities on a grid.

    That is $\int p \log(p/q)$ with $p$ of ``u`` and $q$ of ``v``, computed as in
    `total_variation`. Densities below the rounding error of 1 count as that.

    Parameters
    ----------
    u, v
        Samples of two or more different numbers.
    points
        Of the grid.

    Raises
    ------
    UsageError
        If a sample has fewer than two different numbers.

    Examples
    --------
    >>> kl_divergence([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    0.0
    """
    grid, p, q = _densities(u, v, points)
    p, q = (np.maximum(each, np.finfo(float).eps) for each in (p, q))
    return float(np.trapezoid(p * np.log(p / q), grid))


def mean_difference(u: ArrayLike, v: ArrayLike) -> float:
    """Return how far the means of two samples are apart.

    Parameters
    ----------
    u, v
        Samples of one or more numbers.

    Examples
    --------
    >>> mean_difference([0.0, 2.0], [3.0])
    2.0
    """
    return float(abs(np.mean(_sample("u", u)) - np.mean(_sample("v", v))))


def _densities(u: ArrayLike, v: ArrayLike, points: int) -> tuple[np.ndarray, ...]:
    from scipy.stats import gaussian_kde

    both = [_sample(name, each) for name, each in (("u", u), ("v", v))]
    if any(np.ptp(each) == 0 for each in both):
        raise UsageError("A density needs samples of two or more different numbers.")
    grid = np.linspace(min(e.min() for e in both), max(e.max() for e in both), points)
    p, q = (gaussian_kde(each)(grid) for each in both)
    return grid, p, q


def _sample(name: str, values: ArrayLike) -> np.ndarray:
    found = np.asarray(values, float)
    if not found.ndim or not found.size or not np.isfinite(found).all():
        raise UsageError(f"Sample {name} must be one or more finite numbers.")
    return found


def _weighted(
    name: str, values: ArrayLike, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return a sample and its weights, which sum to 1 along the last axis."""
    sample = _sample(name, values)
    w = np.ones_like(sample) if weights is None else np.asarray(weights, float)
    if w.shape[-1:] != sample.shape[-1:]:
        raise UsageError(
            f"wasserstein_1: {name}_weights must have one entry for each of {sample.shape[-1]}, "
            f"got shape {w.shape}."
        )
    if not (np.isfinite(w).all() and (w >= 0).all() and (w.sum(-1) > 0).all()):
        raise UsageError(
            f"wasserstein_1: {name}_weights must be finite, at least 0, and not all 0."
        )
    sample, w = np.broadcast_arrays(sample, w)
    return sample, w / w.sum(-1, keepdims=True)
