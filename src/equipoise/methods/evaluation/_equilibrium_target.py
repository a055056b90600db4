r"""Affinity entropy: an entropy that copies of an action do not raise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError
from equipoise.methods.evaluation._equilibrium_game import Array, Game

SPLIT = 1e-4
"""Weight of the plain entropy that decides among strategies of equal affinity entropy."""


def affinity_entropy(x: npt.ArrayLike, kernel: npt.ArrayLike, p: float = 1.0) -> float:
    r"""Return the affinity entropy of a mixed strategy.

    .. math:: H_p(x) = \frac1p \Big(1 - \sum_i y_i^{p+1}\Big), \quad y = K (x / c), \quad
              c_j = \Big(\sum_i K_{ij}^{p+1}\Big)^{1/(p+1)},

    and for :math:`p \to 0` the Jensen-Shannon divergence of the kernel's columns: the entropy of
    their mean, weighted by :math:`x`, less the mean of their entropies. With the identity as the
    kernel it is Tsallis's entropy, and Shannon's at :math:`p = 0`.

    Parameters
    ----------
    x
        Probabilities of the actions, shape ``(n,)``.
    kernel
        How alike two actions are, from 0 to 1, symmetric with a diagonal of 1, shape ``(n, n)``.
    p
        Order, in [0, 1].

    Raises
    ------
    UsageError
        If ``x`` is no distribution, the kernel none of its size, or ``p`` outside [0, 1].

    References
    ----------
    "Re-evaluating Open-ended Evaluation of Large Language Models", ICLR 2025.

    Examples
    --------
    >>> round(affinity_entropy([1/3, 1/3, 1/3], np.eye(3), p=0), 6)
    1.098612
    >>> copies = np.eye(4)
    >>> copies[2, 3] = copies[3, 2] = 1
    >>> round(affinity_entropy([1/3, 1/3, 1/6, 1/6], copies, p=0), 6)
    1.098612
    """
    mix, k = np.asarray(x, float), np.asarray(kernel, float)
    if not 0 <= p <= 1:
        raise UsageError(f"affinity_entropy: p must be from 0 to 1, got {p}.")
    if k.shape != (len(mix), len(mix)) or not ((k >= 0) & (k <= 1)).all():
        raise UsageError(
            "affinity_entropy: the kernel must be square, of numbers from 0 to 1, a row for every"
            " action."
        )
    if not (mix >= 0).all() or abs(mix.sum() - 1) > 1e-6:
        raise UsageError("affinity_entropy: x must be probabilities that add up to 1.")
    spread = k / _columns(k, p)
    y = spread @ mix
    if p:
        return float(1 - (y ** (p + 1)).sum()) / p
    inside = -_xlogx(spread).sum(axis=0)
    return float(-_xlogx(y).sum() - inside @ mix)


def max_affinity_entropy(kernel: npt.ArrayLike, p: float = 1.0) -> Array:
    r"""Return the mixed strategy of the highest affinity entropy.

    Copies have many; a plain entropy of little weight decides for one that treats them alike:

    .. math:: \max_x H_p(x) + \tau H_{\mathrm{Shannon}}(x), \quad
              \tau = 10^{-4} (p + 1) \sum_i \bar y_i^{p+1},

    where :math:`\bar y` belongs to the uniform strategy. Newton's method on the logarithms, from a
    large :math:`\tau` down.

    Parameters
    ----------
    kernel, p
        As for `affinity_entropy`.

    Examples
    --------
    >>> copies = np.eye(4)
    >>> copies[2, 3] = copies[3, 2] = 1
    >>> max_affinity_entropy(copies).round(3).tolist()
    [0.333, 0.333, 0.167, 0.167]
    """
    k = np.asarray(kernel, float)
    apart = k - np.diag(k.diagonal()) < 1e-9
    alone = apart.all(axis=1)
    if alone.all():
        return np.full(len(k), 1 / len(k))
    near = k[~alone][:, ~alone]
    spread = near / _columns(near, p)
    fixed = _xlogx(spread).sum(axis=0) if p == 0 else np.zeros(len(near))
    times = np.ones(len(near))
    if alone.any():  # actions like no other get equal shares, so one stands for all of them
        count = float(alone.sum())
        spread = np.block(
            [
                [spread, np.zeros((len(near), 1))],
                [np.zeros((1, len(near))), np.full((1, 1), 1 / count)],
            ]
        )
        fixed, times = np.append(fixed, 0.0), np.append(times, count)
    x = _concave_maximum(spread, fixed, times, p)
    out = np.empty(len(k))
    out[~alone] = x[: len(near)]
    out[alone] = x[-1] / times[-1]
    return out


def _concave_maximum(spread: Array, fixed: Array, times: Array, p: float) -> Array:
    uniform = times / times.sum()
    final = SPLIT * (p + 1) * float((times * (spread @ uniform) ** (p + 1)).sum())
    for stages, rounds in (((1.0,), 8), ((1e4, 1e3, 1e2, 1e1, 1.0), 40)):
        u = np.log(uniform)
        for stage in stages:
            u, settled = _newton(u, spread, fixed, times, p, final * stage, rounds)
        if settled:
            break
    return softmax(u)


def _newton(
    u: Array, spread: Array, fixed: Array, times: Array, p: float, tau: float, rounds: int
) -> tuple[Array, bool]:
    def value(x: Array, y: Array) -> float:
        """Return what is to be as high as possible, divided by ``tau``."""
        plain = float((_xlogx(x) - x * np.log(times)).sum())
        if p:
            return -float((times * y ** (p + 1)).sum()) / p / tau - plain
        return (float(fixed @ x) - float((times * _xlogx(y)).sum())) / tau - plain

    x = softmax(u)
    y = spread @ x
    now = value(x, y)
    for _ in range(rounds):
        slope = -(np.log(y) + 1) if p == 0 else -(p + 1) / p * y**p
        want = np.log(times) + (spread.T @ (times * slope) + fixed) / tau
        curve = (p + 1) * y ** (p - 1) * times
        bend = (spread.T @ (curve[:, None] * spread)) * x / tau
        jacobian = np.eye(len(x)) + bend - np.outer(bend.sum(axis=1), x)
        step = np.linalg.solve(jacobian, want - want @ x - (u - u @ x))
        size = float((np.abs(step) * x).max())
        if size < 1e-12:
            return u, True
        share = 1.0
        while share > 1e-6:  # it leads upwards, but may lead too far
            x = softmax(u + share * step)
            y = spread @ x
            there = value(x, y)
            if there >= now - 1e-12 * abs(now):
                break
            share /= 2
        u, now = u + share * step, there
    return u, False


def affinity_kernels(game: Game, variance: float = 1e-6) -> tuple[Array, Array]:
    r"""Return how alike prompts are to the prompt player, and models to the king.

    .. math:: K_{ab} = \exp(-D_{ab} / 2v), \quad D_{ab} = E_z (u(a, z) - u(b, z))^2,

    where the other two players mix by independent :math:`z \sim \mathrm{Dirichlet}(1, \dots, 1)`.
    The expectation has a closed form, since
    :math:`E z_i z_j = (1 + \delta_{ij}) / (n (n + 1))`: it is taken exactly, not sampled.

    Parameters
    ----------
    game
        Best without copies, which would count as opponents too.
    variance
        :math:`v`: actions whose payoffs differ by more than about :math:`3 \sqrt v` are different.

    Returns
    -------
    tuple
        Kernels of the prompts and of the models.
    """
    p, m, _ = game.margin.shape
    ends = np.zeros((p, p))
    sums = np.empty((p, m))  # over one opponent
    for block in game.blocks():
        sums[block] = np.abs(game.margin[block]).sum(axis=2, dtype=np.float64)
    step = max(1, 2**24 // (p * m))
    for start in range(0, m, step):
        part = np.abs(game.margin[:, start : start + step]).reshape(p, -1)
        part = part - part.mean(axis=0)
        ends += part @ part.T
    sums -= sums.mean(axis=0)
    ends += 2 * sums @ sums.T + np.outer(sums.sum(axis=1), sums.sum(axis=1))
    prompts = _kernel(ends / (m * (m + 1)) ** 2, variance)

    by_prompt = np.empty((m, p))
    both = np.zeros((m, m))
    by_rebel = np.zeros((m, m))
    for block in game.blocks():
        part = game.margin[block] - game.margin[block].mean(axis=1, keepdims=True)
        by_prompt[:, block] = part.sum(axis=2, dtype=np.float64).T
        by_rebel += part.sum(axis=0, dtype=np.float64)
        flat = part.transpose(1, 0, 2).reshape(m, -1)
        both += flat @ flat.T
    all_sums = by_prompt.sum(axis=1)
    both += by_prompt @ by_prompt.T + by_rebel @ by_rebel.T + np.outer(all_sums, all_sums)
    both *= game.gain**2 / (p * (p + 1) * m * (m + 1))
    return prompts, _kernel(both, variance)


def softmax(u: Array) -> Array:
    """Return the probabilities of logits."""
    e = np.exp(u - u.max())
    return np.asarray(e / e.sum())


def _kernel(gram: Array, variance: float) -> Array:
    size = gram.diagonal()
    apart = np.maximum(size[:, None] + size - 2 * gram, 0)
    np.fill_diagonal(apart, 0)
    return np.asarray(np.exp(-(apart + apart.T) / (4 * variance)))


def _columns(kernel: Array, p: float) -> Array:
    return np.asarray((kernel ** (p + 1)).sum(axis=0) ** (1 / (p + 1)))


def _xlogx(values: Array) -> Array:
    return np.where(values > 0, values * np.log(np.where(values > 0, values, 1)), 0)
