import pytest
import torch

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.gptq import Hessian, gptq
from equipoise.kit.torch.quantizers import round_weights


def normal(*shape, seed=0):
    return torch.from_numpy(Rng(seed).numpy().normal(size=shape)).float()


def correlated(rows=2000, columns=48):
    mix = normal(columns, columns, seed=5)
    return normal(rows, 6, seed=6) @ normal(6, columns, seed=7) + 0.1 * normal(rows, columns) @ mix


def hessian_of(x):
    hessian = Hessian(x.shape[1])
    for part in x.split(300):
        hessian.add(part)
    return hessian.value()


def test_hessian_is_the_second_moment():
    x = normal(1000, 5)
    assert torch.allclose(hessian_of(x), 2 * x.T @ x / 1000, atol=1e-5)


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("group", [0, 7])
def test_without_correlation_it_rounds_to_nearest(group, search):
    w = normal(9, 40)
    found = gptq(w, 2 * torch.eye(40), 4, group=group, search=search)
    assert torch.equal(found, round_weights(w, 4, group=group, search=search))


@pytest.mark.parametrize("bits", [3, 4])
def test_it_beats_rounding_on_correlated_inputs(bits):
    x, w = correlated(), normal(30, 48)

    def lost(rounded):
        return ((x @ (rounded - w).T) ** 2).sum().item()

    assert lost(gptq(w, hessian_of(x), bits)) < 0.6 * lost(round_weights(w, bits))


def test_two_columns_by_hand():
    # w = (0.4, 1.0) in steps of 1/7 with H = [[2, r], [r, 2]]: the first column loses
    # e = 0.4 - 3/7, and the second takes r/2 of it before rounding.
    hessian = torch.tensor([[2.0, 1.9], [1.9, 2.0]])
    w = torch.tensor([[0.55, 1.0, 0.0]])
    full = torch.eye(3) * 2
    full[:2, :2] = hessian
    found = gptq(w, full, 2, damp=0.0)
    # The step is 1: 0.55 rounds to 1, and 1.0 becomes 1.0 + 0.95 * (0.55 - 1) = 0.57 -> 1.
    assert found.tolist() == [[1.0, 1.0, 0.0]]
    w = torch.tensor([[0.45, 1.0, 0.0]])
    # 0.45 rounds to 0, and 1.0 becomes 1.0 + 0.95 * 0.45 = 1.43 -> 1.
    assert gptq(w, full, 2, damp=0.0).tolist() == [[0.0, 1.0, 0.0]]
    w = torch.tensor([[0.55, 0.9, -1.0]])
    # 0.55 rounds to 1, and 0.9 becomes 0.9 - 0.4275 = 0.47 -> 0: not the nearest to 0.9.
    assert gptq(w, full, 2, damp=0.0).tolist() == [[1.0, 0.0, -1.0]]


def test_blocks_change_nothing():
    x, w = correlated(), normal(30, 48)
    hessian = hessian_of(x)
    whole = gptq(w, hessian, 4, block=48)
    for block in (1, 16, 20):
        assert (gptq(w, hessian, 4, block=block) - whole).abs().max() < 1e-4
    grouped = [gptq(w, hessian, 4, group=8, block=block) for block in (8, 20, 48)]
    assert (grouped[0] - grouped[1]).abs().max() < 1e-4
    assert (grouped[0] - grouped[2]).abs().max() < 1e-4


def test_silent_columns_are_zero():
    x = correlated()
    x[:, 3] = 0.0
    assert (gptq(normal(4, 48), hessian_of(x), 4)[:, 3] == 0).all()


def test_the_weights_are_left_alone():
    w = normal(4, 48)
    before = w.clone()
    gptq(w, hessian_of(correlated()), 4)
    assert torch.equal(w, before)


def test_bad_calibration_is_refused():
    with pytest.raises(UsageError, match="no calibration data"):
        Hessian(3).value()
    with pytest.raises(UsageError, match="not finite"):
        Hessian(1).add(torch.tensor([[float("nan")]]))
    with pytest.raises(UsageError, match="must be 2 by 2"):
        gptq(torch.ones(1, 2), torch.eye(3), 4)
    with pytest.raises(UsageError, match="not positive definite"):
        gptq(torch.ones(1, 2), torch.tensor([[1.0, 9.0], [9.0, 1.0]]), 4)
