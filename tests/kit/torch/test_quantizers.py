import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core import Rng
from equipoise.kit.torch.quantizers import (
    fake_quantize,
    integer_range,
    outlier_statistics,
    quantize,
    quantize_,
    relative_error,
    round_weights,
    runtime_smooth,
    search_clip,
    smoothing_scales,
    smoothquant_scales,
    step_size,
)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.from_numpy(Rng(seed).numpy().normal(size=shape)).to(dtype)


def test_a_row_worked_by_hand():
    q, d = quantize(torch.tensor([[-14.0, 3.0, 5.1, 0.9]]), 4)
    assert d.item() == 2.0
    assert q.tolist() == [[-7.0, 2.0, 3.0, 0.0]]  # 1.5 rounds to even
    assert fake_quantize(torch.tensor([[-14.0, 3.0, 5.1, 0.9]]), 4).tolist() == [[-14, 4, 6, 0]]


def test_clip_shrinks_the_range_and_clamps():
    q, d = quantize(torch.tensor([[7.0, -7.0, 1.0]]), 4, clip=0.5)
    assert d.item() == 0.5
    assert q.tolist() == [[7.0, -8.0, 2.0]]


def test_zero_rows_have_step_one():
    assert step_size(torch.zeros(2, 5), 4).tolist() == [[1.0], [1.0]]
    assert torch.equal(fake_quantize(torch.zeros(2, 5), 4), torch.zeros(2, 5))


def test_groups_have_their_own_step_and_the_last_may_be_short():
    x = torch.tensor([[7.0, 1.0, 70.0, 10.0, 0.7]])
    q, d = quantize(x, 4, group=2)
    assert torch.allclose(d, torch.tensor([[1.0, 1.0, 10.0, 10.0, 0.1]]))
    assert q.tolist() == [[7.0, 1.0, 7.0, 1.0, 7.0]]
    assert torch.equal(fake_quantize(x, 4, group=5), fake_quantize(x, 4))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 8), st.integers(0, 9), st.integers(0, 10**6))
def test_error_is_at_most_half_a_step(bits, group, seed):
    x = normal(3, 9, seed=seed)
    q, d = quantize(x, bits, group=group)
    low, high = integer_range(bits)
    assert q.min() >= low
    assert q.max() <= high
    assert ((q * d - x).abs() <= d / 2 + 1e-12).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 8), st.sampled_from([0, 3, 4]), st.sampled_from([1.0, 0.7]))
def test_the_fast_quantiser_is_the_plain_one(bits, group, clip):
    x = normal(2, 5, 9)
    assert torch.equal(
        quantize_(x.clone(), bits, group=group, clip=clip),
        fake_quantize(x, bits, group=group, clip=clip),
    )


def test_no_bits_is_the_identity():
    x = normal(6, 8)
    assert fake_quantize(x, None) is x
    assert (runtime_smooth(x, None) - x).abs().max() < 1e-10
    assert (runtime_smooth(x, None, group=3) - x).abs().max() < 1e-10


def test_many_bits_come_close():
    x = normal(6, 8)
    assert (runtime_smooth(x, 32) - x).abs().max() < 1e-7


def test_rank_one_is_one_level_a_row():
    x = torch.outer(normal(40, seed=1), normal(64, seed=2))
    q, _ = quantize(x / smoothing_scales(x), 4)
    assert (q.abs() == 7).all()
    assert (runtime_smooth(x, 4) - x).abs().max() < 1e-10


def test_a_group_scale_is_its_largest_channel():
    x = normal(20, 50)
    alone, shared = smoothing_scales(x), smoothing_scales(x, 8)
    assert (shared >= alone).all()
    assert len(shared.unique()) == math.ceil(50 / 8)
    order = alone[0].argsort(descending=True)
    assert torch.equal(shared[0, order[:8]], alone.max().expand(8))
    assert torch.equal(shared[0, order[48:]], alone[0, order[48]].expand(2))


def test_one_group_is_plain_rounding():
    x = normal(20, 50)
    assert (runtime_smooth(x, 4, group=50) - fake_quantize(x, 4)).abs().max() < 1e-12


def test_silent_channels_have_the_floor():
    x = torch.zeros(4, 3)
    assert smoothing_scales(x).tolist() == [[pytest.approx(1e-5)] * 3]
    assert torch.equal(runtime_smooth(x, 4), x)


def test_sequences_of_a_batch_do_not_mix():
    x = normal(3, 10, 16)
    together = runtime_smooth(x, 4, group=4)
    assert torch.equal(together[1], runtime_smooth(x[1], 4, group=4))


def test_padding_does_not_count():
    x = normal(1, 10, 16)
    padded = torch.cat([torch.full((1, 4, 16), 99.0, dtype=x.dtype), x], 1)
    mask = torch.tensor([[False] * 4 + [True] * 10])
    assert torch.equal(smoothing_scales(padded, 4, mask=mask), smoothing_scales(x, 4))


def test_a_single_token_degenerates():
    x = normal(1, 16)
    assert (runtime_smooth(x, 4) - x).abs().max() < 1e-12


def test_victims_are_pushed_to_zero():
    x = normal(100, 32).clamp(-3, 3)
    x[7, 5] = 1000.0
    rounded = runtime_smooth(x, 4)
    others = torch.arange(100) != 7
    assert (rounded[others, 5] == 0).all()


def test_clip_search_never_loses_to_the_full_range():
    w = normal(32, 128)

    def loss(search):
        return (round_weights(w, 4, search=search) - w).abs().pow(2.4).sum(1)

    assert (loss(True) <= loss(False)).all()
    assert loss(True).sum() < 0.9 * loss(False).sum()


def test_clip_search_is_the_best_of_the_grid():
    w = normal(1, 16)
    full = step_size(w, 3).item()
    losses = {}
    for i in range(80):
        step = full * (1 - i / 100)
        q = (w / step).round().clamp(-4, 3) * step
        losses[step] = (q - w).abs().pow(2.4).sum().item()
    assert search_clip(w, 3).item() == pytest.approx(min(losses, key=losses.get))


def test_grouped_clip_search_is_that_of_each_group():
    w = normal(3, 10)
    found = search_clip(w, 4, group=4)
    assert torch.equal(found[:, 4:8], search_clip(w[:, 4:8], 4).expand(-1, 4))
    assert torch.equal(found[:, 8:], search_clip(w[:, 8:], 4).expand(-1, 2))


def test_smoothquant_balances():
    # With alpha 1/2 activations and weights end with the same maximum in each channel.
    x, w = normal(50, 8) * torch.arange(1, 9), normal(20, 8, seed=3)
    s = smoothquant_scales(x.abs().amax(0), w, 0.5)
    assert torch.allclose((x / s).abs().amax(0), (w * s).abs().amax(0))
    assert torch.allclose((x / s) @ (w * s).T, x @ w.T)


def test_errors_and_outliers_by_hand():
    assert relative_error(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0])) == 1.0
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0.0
    assert relative_error(torch.ones(2), torch.zeros(2)) == math.inf
    x = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    assert outlier_statistics(x) == {"crest": 2.0, "channel_spread": math.inf}


def test_four_bits_of_a_gaussian_lose_what_theory_says():
    # Uniform rounding error has variance d^2 / 12, and d = max / 7.
    x = normal(512, 1024)
    expected = ((x.abs().amax(1) / 7).square().mean() / 12).sqrt().item()
    assert relative_error(fake_quantize(x, 4), x) == pytest.approx(expected, rel=0.02)
