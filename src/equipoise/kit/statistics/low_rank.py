"""What a low-rank model makes of a matrix of scores with gaps, as an ensemble."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics._common import Array

Places = npt.NDArray[np.intp]

_Single = npt.NDArray[np.float32]  # twice as fast, and members differ by far more than its rounding


def low_rank(
    scores: npt.ArrayLike,
    rng: Rng,
    *,
    rank: int = 1,
    members: int = 64,
    ridge: float = 0.1,
    drop: float = 0.05,
    iterations: int = 10,
) -> tuple[Array, Array]:
    r"""Return what an ensemble of factorizations makes of every cell: mean and standard deviation.

    Each member starts at a normal $U$, leaves out each known cell with probability ``drop``, and
    fits $M \approx U V^\top$ by alternating least squares,

    .. math::
        v_j = \Bigl(\sum_i O_{ij} u_i u_i^\top + \lambda I\Bigr)^{-1} \sum_i O_{ij} M_{ij} u_i,

    $O$ its known cells and $\lambda$ the ridge, then $u_i$ in the same way.

    Parameters
    ----------
    scores
        Matrix of arms and units, NaN where a cell is not known.
    rng
        Stream of the starts and of what is left out.
    rank
        Columns of $U$ and $V$.
    members
        Factorizations, at least 2.
    ridge
        $\lambda$, above 0.
    drop
        Probability that a member leaves out a known cell, in [0, 1).
    iterations
        Rounds of alternation, at least 1.

    Returns
    -------
    mean, spread
        Arrays of the shape of ``scores``; ``spread`` is the sample standard deviation over the
        members. A row or column without a known cell is 0, as the ridge has it.

    Raises
    ------
    UsageError
        On something that is no matrix, or a parameter outside its range.

    Examples
    --------
    >>> scores = np.outer([0.25, 0.5, 0.75, 1.0], [0.2, 0.4, 0.6, 0.8, 1.0])
    >>> scores[2, 2] = np.nan
    >>> mean, spread = low_rank(scores, Rng(0))
    >>> round(float(mean[2, 2]), 1)
    0.4
    """
    check_fit("low_rank", rank, members, ridge, drop, iterations)
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim != 2:
        raise UsageError(f"low_rank: scores must be a matrix, got the shape {matrix.shape}.")
    generator = rng.numpy()
    u = generator.standard_normal((members, rank, len(matrix))).astype(np.float32)
    member, row, column = _left_out(matrix, members, drop, generator)
    weights = (~np.isnan(matrix)).astype(np.float32)
    filled = np.nan_to_num(matrix).astype(np.float32)
    values = filled[row, column]
    row_at, column_at = member * matrix.shape[0] + row, member * matrix.shape[1] + column
    v = u
    for _ in range(iterations):
        v = _half_step(u, weights, filled, row_at, column_at, values, ridge)
        u = _half_step(v, weights.T, filled.T, column_at, row_at, values, ridge)
    left, right = u.astype(np.float64), v.astype(np.float64)
    mean: Array = left.reshape(-1, len(matrix)).T @ right.reshape(-1, matrix.shape[1]) / members
    squares = _outer(left).T @ _outer(right) / members
    variance = np.maximum(squares - mean**2, 0.0) * (members / (members - 1))
    spread: Array = np.sqrt(variance)
    return mean, spread


def _half_step(
    factor: _Single,
    weights: _Single,
    filled: _Single,
    row_at: Places,
    column_at: Places,
    values: _Single,
    ridge: float,
) -> _Single:
    """Return the least-squares factor of the columns, shape (members, rank, columns).

    All members share one product with the whole matrix; what each leaves out is taken off:
    ``row_at`` and ``column_at`` are where, in arrays of members and rows or columns.
    """
    members, rank, rows = factor.shape
    columns = weights.shape[1]

    def off(terms: _Single) -> _Single:
        sums: _Single = np.bincount(column_at, terms, members * columns).astype(np.float32)
        return sums.reshape(members, columns)

    target = (factor.reshape(-1, rows) @ filled).reshape(members, rank, columns)
    gone = [factor[:, p].ravel().take(row_at) for p in range(rank)]
    for p in range(rank):
        target[:, p] -= off(values * gone[p])
    gram = np.empty((rank, rank, members, columns), np.float32)
    for p in range(rank):
        for q in range(p + 1):
            gram[p, q] = (factor[:, p] * factor[:, q]) @ weights - off(gone[p] * gone[q])
            gram[q, p] = gram[p, q]
        gram[p, p] = np.maximum(gram[p, p], 0.0) + ridge
    if rank == 1:
        target /= gram[0, 0][:, np.newaxis]
        return target
    solved = np.linalg.solve(gram.transpose(2, 3, 0, 1), target.transpose(0, 2, 1)[..., np.newaxis])
    found: _Single = np.ascontiguousarray(solved[..., 0].transpose(0, 2, 1))
    return found


def _left_out(
    matrix: Array, members: int, drop: float, generator: np.random.Generator
) -> tuple[Places, Places, Places]:
    """Return the member, row and column of the known cells that members leave out."""
    row, column = np.nonzero(~np.isnan(matrix))
    trials = members * row.size
    # Gaps of a Bernoulli process: as many draws as cells left out, not as cells.
    found = np.zeros(0, dtype=np.intp)
    last = -1
    while drop > 0 and last < trials - 1:
        draws = max(16, int(1.1 * drop * (trials - last)))
        more = last + np.cumsum(generator.geometric(drop, draws))
        found, last = np.concatenate([found, more]), int(more[-1])
    found = found[found < trials]
    cell = found % max(row.size, 1)
    return found // max(row.size, 1), row[cell], column[cell]


def _outer(factor: Array) -> Array:
    """Return the products of a member's components, shape (members rank rank, places)."""
    products: Array = factor[:, :, np.newaxis] * factor[:, np.newaxis]
    return products.reshape(-1, factor.shape[2])


def check(who: str, name: str, value: float, right: bool, wanted: str) -> None:
    """Refuse a parameter outside its range."""
    if not right:
        raise UsageError(f"{who}: {name} must be {wanted}, got {value}.")


def check_fit(
    who: str, rank: int, members: int, ridge: float, drop: float, iterations: int
) -> None:
    """Refuse parameters of a fit outside their ranges."""
    check(who, "rank", rank, rank >= 1, "at least 1")
    check(who, "members", members, members >= 2, "at least 2")
    check(who, "ridge", ridge, 0 < ridge < np.inf, "above 0 and finite")
    check(who, "drop", drop, 0 <= drop < 1, "from 0 to below 1")
    check(who, "iterations", iterations, iterations >= 1, "at least 1")
