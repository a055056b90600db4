r"""Orthogonal rotations of the last axis: Hadamard with random signs, or random orthogonal.

A Hadamard matrix of order $K = 2^a m$ is the Kronecker product $H_m \otimes H_{2^a}$
of a Paley matrix and Sylvester's, and is applied in $O(K (16 \log_{16} 2^a + m))$
operations instead of $K^2$.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.core import Rng, UsageError

_RADIX = 16  # strides below it are one small matrix product, which is faster than adding pairs

RotationKind = Literal["hadamard", "orthogonal"]


def hadamard(order: int) -> np.ndarray:
    r"""Return a Hadamard matrix: entries ±1 and $H H^\top = K I$.

    Sylvester's doubling is applied to a matrix by Paley's first construction
    (order $q + 1$ for a prime $q \equiv 3 \pmod 4$) or his second (order
    $2(q + 1)$ for a prime $q \equiv 1 \pmod 4$). A power of two is Sylvester's
    alone.

    Parameters
    ----------
    order
        The number of rows, $K$.

    Returns
    -------
    numpy.ndarray
        int8, shape ``(order, order)``.

    Raises
    ------
    UsageError
        If these constructions give no matrix of this order.

    References
    ----------
    R. E. A. C. Paley, "On orthogonal matrices", J. Math. Phys. 12 (1933).

    Examples
    --------
    >>> hadamard(2)
    array([[ 1,  1],
           [ 1, -1]], dtype=int8)
    >>> bool((hadamard(36).astype(int) @ hadamard(36).T == 36 * np.eye(36)).all())
    True
    """
    doublings, core = hadamard_factors(order)
    return np.kron(_paley(core), _sylvester(2**doublings))


@functools.cache
def hadamard_factors(order: int) -> tuple[int, int]:
    """Return ``(a, m)`` with ``order == 2**a * m`` and the smallest ``m`` that has a matrix.

    Raises
    ------
    UsageError
        If there is none.

    Examples
    --------
    >>> hadamard_factors(576), hadamard_factors(1536), hadamard_factors(64)
    ((4, 36), (7, 12), (6, 1))
    """
    if order >= 1:
        doublings = (order & -order).bit_length() - 1
        for a in range(doublings, -1, -1):
            if _paley_prime(order >> a) is not None:
                return a, order >> a
    raise UsageError(f"No Hadamard matrix of order {order} is known here; use rotation orthogonal.")


def has_hadamard(order: int) -> bool:
    """Say whether `hadamard` can make this order."""
    try:
        hadamard_factors(order)
    except UsageError:
        return False
    return True


def walsh_hadamard(x: Tensor, axis: int = -1) -> Tensor:
    r"""Return $x H_K$ along an axis, not normalised; equal to its own inverse times $K$ for $2^a$.

    Examples
    --------
    >>> walsh_hadamard(torch.tensor([1.0, 0.0, 0.0, 2.0]))
    tensor([ 3., -1., -1.,  3.])
    """
    axis = axis % x.dim()
    order = x.shape[axis]
    doublings, core = hadamard_factors(order)
    after = math.prod(x.shape[axis + 1 :])
    shape = x.shape
    x = x.contiguous()
    left = 2**doublings
    stride = after
    while left > 1:
        radix = min(left, _RADIX)
        x = _mix(x, _sylvester_tensor(radix, x.dtype, x.device), stride)
        stride *= radix
        left //= radix
    if core > 1:
        x = _mix(x, _paley_tensor(core, x.dtype, x.device), stride)
    return x.view(shape)


def _mix(x: Tensor, matrix: Tensor, stride: int) -> Tensor:
    """Multiply groups of entries that lie ``stride`` apart by a matrix, from the right."""
    size = matrix.shape[0]
    if stride == 1:
        return x.view(-1, size) @ matrix
    return torch.matmul(matrix.T, x.view(-1, size, stride))


class HadamardRotation(nn.Module):
    r"""The rotation $R = \mathrm{diag}(\pm 1)\, H_K / \sqrt{K}$.

    A last axis that is a multiple of $K$ is rotated block by block, as the
    heads of an attention layer are.

    Parameters
    ----------
    signs
        ±1, shape ``(K,)``; None for all +1.
    size
        $K$, where there are no signs.
    inner
        Features that move together: the rotation mixes the first axis of the
        last dimension seen as ``(K, inner)``. With the head dimension here it
        mixes heads.
    """

    signs: Tensor | None

    def __init__(self, signs: Tensor | None = None, size: int = 0, inner: int = 1) -> None:
        super().__init__()
        self.size = size if signs is None else len(signs)
        self.inner = inner
        hadamard_factors(self.size)  # refuses an order that has no matrix
        self.register_buffer("signs", signs)

    def forward(self, x: Tensor) -> Tensor:
        """Return $x R$ along the last axis."""
        if self.inner > 1:
            parts = torch.unflatten(x, -1, (-1, self.size, self.inner))
            if self.signs is not None:
                parts = parts * self.signs.to(x.dtype)[:, None]
            return walsh_hadamard(parts, -2).mul_(self.size**-0.5).reshape(x.shape)
        x = torch.unflatten(x, -1, (-1, self.size))
        scale = self.size**-0.5
        if self.signs is None:
            return walsh_hadamard(x).mul_(scale).flatten(-2)
        return walsh_hadamard(x * (self.signs.to(x.dtype) * scale)).flatten(-2)

    def extra_repr(self) -> str:
        return f"size={self.size}, inner={self.inner}, signs={self.signs is not None}"


class OrthogonalRotation(nn.Module):
    """A rotation by any orthogonal matrix, shape ``(K, K)``, block by block of the last axis."""

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.size = matrix.shape[0]
        self.register_buffer("matrix", matrix)

    def forward(self, x: Tensor) -> Tensor:
        """Return $x R$ along the last axis."""
        blocks = torch.unflatten(x, -1, (-1, self.size))
        return torch.matmul(blocks, self.matrix.to(x.dtype)).flatten(-2)

    def extra_repr(self) -> str:
        return f"size={self.size}"


class OnesKeepingRotation(nn.Module):
    r"""Another rotation R and a reflection after it, which together keep $(1, \dots, 1)$.

    With $u$ that direction and $w = u R - u$ the reflection
    $I - 2 w^\top w / \lVert w \rVert^2$ takes $u R$ back to $u$. A LayerNorm
    commutes with such a rotation, since it leaves every row's mean as it is.

    Parameters
    ----------
    inner
        R; a Hadamard matrix stays nearly one, as the reflection moves entries of
        size $K^{-1/2}$ by $O(K^{-1})$.
    size
        Features, K.

    Examples
    --------
    >>> keeping = OnesKeepingRotation(random_rotation("hadamard", 64, Rng(0)), 64)
    >>> x = torch.arange(64.0)[None]
    >>> bool((keeping(x).mean() - x.mean()).abs() < 1e-4)
    True
    """

    axis: Tensor

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner = inner
        ones = torch.full((1, size), size**-0.5, dtype=torch.float64)
        axis = (inner(ones) - ones)[0]
        length = torch.linalg.vector_norm(axis)
        self.register_buffer("axis", axis / length if length > 1e-12 else axis * 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last axis of ``x`` rotated."""
        turned: Tensor = self.inner(x)
        axis = self.axis.to(x.dtype)
        return turned - 2 * (turned @ axis)[..., None] * axis


Rotation = HadamardRotation | OrthogonalRotation


def suitable(kind: RotationKind, size: int) -> RotationKind:
    """Return the kind, or random orthogonal where a size has no Hadamard matrix here.

    Examples
    --------
    >>> suitable("hadamard", 896), suitable("hadamard", 14)
    ('hadamard', 'orthogonal')
    """
    return kind if kind == "orthogonal" or has_hadamard(size) else "orthogonal"


def random_rotation(kind: RotationKind, size: int, rng: Rng) -> Rotation:
    """Return a random rotation of ``size`` features.

    Parameters
    ----------
    kind
        ``"hadamard"`` (random signs) or ``"orthogonal"`` (uniform over the
        orthogonal group).
    size
        Features.
    rng
        The stream that signs or the matrix are drawn from.

    Examples
    --------
    >>> rotation = random_rotation("hadamard", 1024, Rng(0))
    >>> spike = torch.zeros(1, 1024)
    >>> spike[0, 3] = 32.0
    >>> rotation(spike).abs().unique()
    tensor([1.])
    """
    if kind == "orthogonal":
        return OrthogonalRotation(random_orthogonal(size, rng))
    signs = rng.numpy().choice(np.array([-1.0, 1.0], np.float32), size)
    return HadamardRotation(torch.from_numpy(signs))


def empty_rotation(kind: RotationKind, size: int) -> Rotation:
    """Return a rotation of the same structure whose tensors are yet to be filled in."""
    if kind == "orthogonal":
        return OrthogonalRotation(torch.empty(size, size, dtype=torch.float64, device="meta"))
    return HadamardRotation(torch.empty(size, device="meta"))


def random_orthogonal(size: int, rng: Rng) -> Tensor:
    """Return an orthogonal matrix drawn uniformly, float64, shape ``(size, size)``.

    The QR decomposition of a Gaussian matrix with the signs of R's diagonal
    moved into Q (Mezzadri 2007).

    Raises
    ------
    RuntimeError
        If the result is not orthogonal to 1e-10.
    """
    gaussian = torch.from_numpy(rng.numpy().standard_normal((size, size)))
    q, r = torch.linalg.qr(gaussian)
    q = torch.mul(q, torch.sign(torch.diagonal(r)))
    if (q @ q.T - torch.eye(size, dtype=q.dtype)).abs().max() > 1e-10:
        raise RuntimeError(f"QR gave a matrix of order {size} that is not orthogonal.")
    return q


@functools.cache
def _sylvester(order: int) -> np.ndarray:
    matrix = np.ones((1, 1), np.int8)
    while len(matrix) < order:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def _paley_prime(order: int) -> tuple[int, int] | None:
    """Return the prime and which of Paley's constructions gives this order (1 needs none)."""
    if order == 1:
        return 1, 0
    if order % 4 == 0:
        if _is_prime(order - 1):
            return order - 1, 1
        half = order // 2 - 1
        if half % 4 == 1 and _is_prime(half):
            return half, 2
    return None


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))


@functools.cache
def _paley(order: int) -> np.ndarray:
    found = _paley_prime(order)
    if found is None:
        raise UsageError(f"No Paley matrix of order {order}.")
    prime, construction = found
    if construction == 0:
        return np.ones((1, 1), np.int8)
    residues = np.zeros(prime, np.int8) - 1
    residues[np.arange(1, prime, dtype=np.int64) ** 2 % prime] = 1
    residues[0] = 0
    indices = np.arange(prime)
    jacobsthal = residues[(indices[:, None] - indices[None, :]) % prime]
    bordered = np.zeros((prime + 1, prime + 1), np.int8)
    bordered[1:, 1:] = jacobsthal
    bordered[0, 1:] = 1
    if construction == 1:
        bordered[1:, 0] = -1  # skew, so that adding the identity gives ±1 everywhere
        return bordered + np.eye(prime + 1, dtype=np.int8)
    bordered[1:, 0] = 1  # symmetric conference matrix
    on = np.array([[1, 1], [1, -1]], np.int8)
    off = np.array([[1, -1], [-1, -1]], np.int8)
    return np.kron(bordered, on) + np.kron(np.eye(prime + 1, dtype=np.int8), off)


@functools.lru_cache(maxsize=32)
def _sylvester_tensor(order: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a kept inference tensor would break later gradients
        return torch.from_numpy(_sylvester(order)).to(dtype=dtype, device=device)


@functools.lru_cache(maxsize=8)
def _paley_tensor(order: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.from_numpy(_paley(order)).to(dtype=dtype, device=device)
