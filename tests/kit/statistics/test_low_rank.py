"""Low-rank fits against plain loops over members and cells, closed forms and exact matrices."""

from __future__ import annotations

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.statistics.low_rank import _left_out, low_rank


def plain_fit(matrix, start, known, ridge, iterations):
    """One member by loops over cells, as the equation reads."""
    u = start.T.copy()
    eye = ridge * np.eye(u.shape[1])
    for _ in range(iterations):
        v = np.array(
            [
                np.linalg.solve(
                    sum(np.outer(u[i], u[i]) for i in np.flatnonzero(known[:, j])) + eye,
                    sum(matrix[i, j] * u[i] for i in np.flatnonzero(known[:, j])),
                )
                for j in range(matrix.shape[1])
            ]
        )
        u = np.array(
            [
                np.linalg.solve(
                    sum(np.outer(v[j], v[j]) for j in np.flatnonzero(known[i])) + eye,
                    sum(matrix[i, j] * v[j] for j in np.flatnonzero(known[i])),
                )
                for i in range(matrix.shape[0])
            ]
        )
    return u @ v.T


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank_is_the_loop_over_members_and_cells(rank):
    generator = np.random.default_rng(0)
    matrix = generator.random((8, 11))
    matrix[generator.random((8, 11)) < 0.4] = np.nan
    matrix[:, 0] = matrix[0, :] = 0.5
    mean, spread = low_rank(matrix, Rng(4), rank=rank, members=5, drop=0, iterations=4)
    starts = Rng(4).numpy().standard_normal((5, rank, 8))
    fits = [plain_fit(matrix, start, ~np.isnan(matrix), 0.1, 4) for start in starts]
    assert np.allclose(mean, np.mean(fits, axis=0), atol=1e-10)
    assert np.allclose(spread, np.std(fits, axis=0, ddof=1), atol=1e-7)


def test_low_rank_leaves_out_each_known_cell_with_the_probability():
    matrix = np.full((20, 30), 0.5)
    matrix[:5] = np.nan
    counts = np.zeros((20, 30))
    for seed in range(40):
        member, row, column = _left_out(matrix, 50, 0.05, np.random.default_rng(seed))
        assert len({*zip(member.tolist(), row.tolist(), column.tolist(), strict=True)}) == len(row)
        np.add.at(counts, (row, column), 1)
    assert counts[:5].sum() == 0
    # 2,000 tries a cell at 0.05: the chi-square of 450 cells has mean 450, deviation 30.
    statistic = float(((counts[5:] - 100) ** 2 / 95).sum())
    assert 330 < statistic < 570
    assert not _left_out(matrix, 50, 0.0, np.random.default_rng(0))[0].size


def test_low_rank_leaves_out_what_the_loop_leaves_out():
    matrix = np.random.default_rng(2).random((6, 9))
    generator = Rng(8).numpy()
    starts = generator.standard_normal((4, 2, 6))
    member, row, column = _left_out(matrix, 4, 0.3, generator)
    known = np.ones((4, 6, 9), dtype=bool)
    known[member, row, column] = False
    fits = [plain_fit(matrix, starts[k], known[k], 0.1, 3) for k in range(4)]
    mean, spread = low_rank(matrix, Rng(8), rank=2, members=4, drop=0.3, iterations=3)
    assert np.allclose(mean, np.mean(fits, axis=0), atol=1e-10)
    assert np.allclose(spread, np.std(fits, axis=0, ddof=1), atol=1e-7)


def test_low_rank_recovers_a_rank_one_matrix_from_a_part_of_its_cells():
    generator = np.random.default_rng(0)
    truth = np.outer(generator.uniform(0.2, 1, 40), generator.uniform(0.2, 1, 60))
    known = np.where(generator.random(truth.shape) < 0.7, truth, np.nan)
    mean, spread = low_rank(known, Rng(0), ridge=1e-9)
    assert np.abs(mean - truth).max() < 1e-6
    assert spread.max() < 1e-6


def test_the_ridge_takes_itself_off_the_singular_value():
    # ||M - u v'||^2 + r (|u|^2 + |v|^2) is least at (s - r) x y' for M = s x y'.
    x, y = np.array([3.0, 4.0, 0.0]) / 5, np.array([1.0, 2.0, 2.0]) / 3
    truth = 1.5 * np.outer(x, y)
    mean, spread = low_rank(truth, Rng(0), ridge=0.1, drop=0, iterations=200)
    assert np.allclose(mean, 1.4 * np.outer(x, y), atol=1e-9)
    assert spread.max() < 1e-6


def test_a_second_rank_is_recovered_by_two_factors_and_not_by_one():
    generator = np.random.default_rng(1)
    truth = generator.random((30, 2)) @ generator.random((2, 40)) / 2
    known = np.where(generator.random(truth.shape) < 0.8, truth, np.nan)
    two, _ = low_rank(known, Rng(0), rank=2, ridge=1e-4, iterations=100)
    one, _ = low_rank(known, Rng(0), rank=1, ridge=1e-4, iterations=100)
    assert np.abs(two - truth).max() < 0.02 < np.abs(one - truth).max()


def test_rows_without_a_known_cell_are_zero():
    matrix = np.full((3, 4), np.nan)
    mean, spread = low_rank(matrix, Rng(0))
    assert (mean == 0).all()
    assert (spread == 0).all()


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: low_rank([1.0], Rng(0)), "must be a matrix"),
        (lambda: low_rank([[1.0]], Rng(0), iterations=0), "iterations must be at least 1"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(make, fault):
    with pytest.raises(UsageError, match=fault):
        make()
