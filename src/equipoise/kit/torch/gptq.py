r"""GPTQ: rounds weights one column at a time and spreads each error over the columns to come.

Follows Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
Pre-trained Transformers", ICLR 2023, algorithm 1, without reordering columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from equipoise.core import UsageError
from equipoise.kit.torch.quantizers import integer_range, search_clip, step_size


class Hessian:
    r"""The second moment $H = 2 X^\top X / n$ of a layer's inputs, added up batch by batch.

    Parameters
    ----------
    size
        Input channels, K.

    Examples
    --------
    >>> hessian = Hessian(2)
    >>> hessian.add(torch.tensor([[1.0, 0.0], [1.0, 2.0]]))
    >>> hessian.value()
    tensor([[2., 2.],
            [2., 4.]])
    """

    def __init__(self, size: int) -> None:
        self.sum = torch.zeros(size, size)
        self.count = 0

    def add(self, x: Tensor) -> None:
        """Add inputs of shape ``(..., K)``."""
        rows = x.detach().flatten(0, -2).to(torch.float32)
        if not bool(torch.isfinite(rows).all()):
            raise UsageError("GPTQ: calibration gave inputs that are not finite.")
        self.sum = self.sum.to(rows.device)
        self.sum += rows.T @ rows
        self.count += len(rows)

    def value(self) -> Tensor:
        """Return H, shape ``(K, K)``."""
        if not self.count:
            raise UsageError("GPTQ: a layer saw no calibration data.")
        return self.sum * (2 / self.count)


def gptq(
    w: Tensor,
    hessian: Tensor,
    bits: int,
    *,
    group: int = 0,
    search: bool = False,
    damp: float = 0.01,
    block: int = 128,
) -> Tensor:
    r"""Return fake-quantised weights that keep $\lVert X W^\top - X \hat W^\top \rVert$ small.

    Column by column, $\hat w_i$ is $w_i$ rounded, and the error
    $(w_i - \hat w_i) / U_{ii}$ times $U_{i, j}$ is taken from every later column $j$,
    with $U$ the upper Cholesky factor of $(H + \lambda I)^{-1}$.

    Parameters
    ----------
    w
        Weights ``(M, K)``.
    hessian
        $H$, shape ``(K, K)``, symmetric and positive semidefinite.
    bits, group, search
        As in `quantizers.round_weights`. With groups, steps follow the
        weights as corrected so far.
    damp
        $\lambda$ as a share of H's mean diagonal.
    block
        Columns between updates of the rest; changes speed, not results.

    Examples
    --------
    >>> w = torch.tensor([[0.3, -1.0, 0.52]])
    >>> gptq(w, torch.eye(3), 3)  # without correlation it is rounding to nearest
    tensor([[ 0.3333, -1.0000,  0.6667]])
    """
    low, high = integer_range(bits)
    columns = w.shape[1]
    if group:
        block = max(block // group, 1) * group  # a group never straddles two blocks
    if hessian.shape != (columns, columns):
        raise UsageError(
            f"GPTQ: the Hessian must be {columns} by {columns}, got {tuple(hessian.shape)}."
        )
    work = w.detach().float().clone()
    step = search_clip(work, bits) if search else step_size(work, bits)
    silent = hessian.diagonal() == 0
    work[:, silent] = 0.0  # a column no input reaches takes no part
    upper = _inverse_factor(hessian.float(), silent, damp)
    found = torch.empty_like(work)
    for start in range(0, columns, block):
        stop = min(start + block, columns)
        errors = torch.empty_like(work[:, start:stop])
        local = upper[start:stop, start:stop]
        for i in range(stop - start):
            j = start + i
            if group and j % group == 0:
                ahead = work[:, j : j + group]
                step = search_clip(ahead, bits) if search else step_size(ahead, bits)
            column = work[:, j : j + 1]
            rounded = torch.clamp(torch.round(column / step), low, high) * step
            error = (column - rounded) / local[i, i]
            found[:, j : j + 1] = rounded
            errors[:, i : i + 1] = error
            work[:, j + 1 : stop] -= error * local[i, i + 1 :]
        work[:, stop:] -= errors @ upper[start:stop, stop:]
    return found.to(w.dtype)


def _inverse_factor(hessian: Tensor, silent: Tensor, damp: float) -> Tensor:
    hessian = hessian.clone()
    diagonal = hessian.diagonal()
    diagonal[silent] = 1.0
    diagonal += damp * diagonal.mean()
    try:
        lower = torch.linalg.cholesky(hessian)
        upper: Tensor = torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
    except RuntimeError as error:
        raise UsageError(
            "GPTQ: the Hessian is not positive definite; raise damp or give more calibration data."
        ) from error
    return upper
