import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.rotations import (
    HadamardRotation,
    empty_rotation,
    hadamard,
    hadamard_factors,
    has_hadamard,
    random_orthogonal,
    random_rotation,
    walsh_hadamard,
)

ORDERS = [1, 2, 4, 8, 12, 20, 24, 28, 36, 40, 44, 60, 72, 108, 140, 196, 576, 1536]


@pytest.mark.parametrize("order", [1, 2, 4, 32, 256, 1024])
def test_powers_of_two_are_scipys(order):
    assert np.array_equal(hadamard(order), scipy.linalg.hadamard(order))


@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_orthogonal_signs(order):
    matrix = hadamard(order).astype(float)  # exact, and far faster than integers
    assert set(np.unique(matrix)) <= {-1, 1}
    assert np.array_equal(matrix @ matrix.T, order * np.eye(order))


@pytest.mark.parametrize("order", [2, 16, 32, 128, 12, 24, 36, 576, 1536])
def test_butterfly_equals_the_matrix(order):
    x = torch.from_numpy(Rng(0).numpy().normal(size=(3, order)))
    expected = x @ torch.from_numpy(hadamard(order)).double()
    assert torch.allclose(walsh_hadamard(x), expected, atol=1e-10)
    sideways = walsh_hadamard(x.T[None].expand(2, -1, -1), axis=1)
    assert torch.allclose(sideways[1], expected.T, atol=1e-10)


def test_factors_take_the_smallest_core():
    assert hadamard_factors(576) == (4, 36)
    assert hadamard_factors(1536) == (7, 12)
    assert hadamard_factors(11008) == (1, 5504)  # the width of a 7B Llama's MLP


@pytest.mark.parametrize("order", [3, 6, 9, 10, 0, 92])
def test_unknown_orders_are_refused(order):
    assert not has_hadamard(order)
    with pytest.raises(UsageError, match=f"order {order} is known here; use rotation orthogonal"):
        hadamard(order)


@pytest.mark.parametrize(("kind", "size"), [("hadamard", 36), ("hadamard", 64), ("orthogonal", 9)])
def test_rotations_are_orthogonal(kind, size):
    rotation = random_rotation(kind, size, Rng(1))
    matrix = rotation(torch.eye(size, dtype=torch.float64))
    assert (matrix @ matrix.T - torch.eye(size)).abs().max() < 1e-12


def test_a_spike_is_spread_evenly():
    spike = torch.zeros(2, 1024, dtype=torch.float64)
    spike[0, 17] = 1000.0
    turned = random_rotation("hadamard", 1024, Rng(3))(spike)
    assert torch.allclose(turned[0].abs(), torch.full((1024,), 1000.0 / 32).double())
    assert turned[1].abs().max() == 0


def test_blocks_of_the_last_axis_turn_apart():
    rotation = random_rotation("hadamard", 8, Rng(0))
    x = torch.randn(5, 24, generator=Rng(0).torch(), dtype=torch.float64)
    assert torch.allclose(rotation(x)[:, 8:16], rotation(x[:, 8:16]))


def test_inner_rotation_mixes_heads():
    x = torch.randn(5, 4 * 6, generator=Rng(0).torch(), dtype=torch.float64)
    across = HadamardRotation(size=4, inner=6)
    matrix = torch.kron(torch.from_numpy(hadamard(4)).double() / 2, torch.eye(6).double())
    assert torch.allclose(across(x), x @ matrix)


def test_input_is_not_written_to():
    x = torch.ones(2, 16)
    random_rotation("hadamard", 16, Rng(0))(x)
    HadamardRotation(size=16)(x)
    assert torch.equal(x, torch.ones(2, 16))


def test_same_stream_same_rotation():
    one, two, other = (random_rotation("hadamard", 64, Rng(seed)).signs for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_orthogonal_matrices_are_uniform():
    # Any entry of a uniform rotation of size n has variance 1/n and mean 0.
    entries = torch.stack([random_orthogonal(3, Rng(seed)) for seed in range(2000)]).flatten(1)
    error = 4 * math.sqrt(1 / 3 / 2000)
    assert entries.mean(0).abs().max() < error
    assert (entries.square().mean(0) - 1 / 3).abs().max() < error


@pytest.mark.parametrize("kind", ["hadamard", "orthogonal"])
def test_skeleton_is_filled_to_the_same_rotation(kind):
    made, hollow = random_rotation(kind, 12, Rng(5)), empty_rotation(kind, 12)
    hollow.load_state_dict(made.state_dict(), assign=True)
    x = torch.randn(4, 12, generator=Rng(1).torch())
    assert torch.equal(made(x), hollow(x))


def test_gradients_flow_after_inference_mode():
    with torch.inference_mode():
        walsh_hadamard(torch.ones(1, 48))
    x = torch.ones(1, 48, requires_grad=True)
    walsh_hadamard(x)[0, 0].backward()
    assert torch.equal(x.grad, torch.from_numpy(hadamard(48)[:, :1].T.copy()).float())


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([4, 12, 32, 36, 144]), st.integers(0, 10**6))
def test_lengths_are_kept(order, seed):
    x = torch.from_numpy(Rng(seed).numpy().normal(size=(2, order)))
    turned = random_rotation("hadamard", order, Rng(seed))(x)
    assert torch.allclose(turned.norm(dim=1), x.norm(dim=1), atol=1e-9)
