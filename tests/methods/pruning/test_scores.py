import math

import pytest
import torch

from equipoise.core import Rng
from equipoise.methods.pruning._scores import (
    best_of_all,
    flap_scores,
    fuse,
    kept_count,
    mask_overlap,
    ppsp_scores,
    raised_ratio,
    select_probe,
    wanda_sp_scores,
)


def test_hand_worked_scores():
    weight, energy = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2)
    expected = torch.tensor([math.sqrt(82), math.sqrt(272)])
    torch.testing.assert_close(ppsp_scores(weight, energy), expected)
    assert ppsp_scores(weight, energy).tolist() == pytest.approx([9.055, 16.492], abs=1e-3)
    assert wanda_sp_scores(weight, energy).tolist() == [4.0, 6.0]
    assert flap_scores(weight, energy).tolist() == [10.0, 20.0]
    # As one head of two channels.
    assert ppsp_scores(weight, energy, 2).item() == pytest.approx(math.sqrt(82 + 272))
    assert wanda_sp_scores(weight, energy, 2).item() == 10.0
    # Twice the energy: PPsp is linear in it, Wanda-sp goes with its root.
    assert ppsp_scores(weight, 2 * energy)[0].item() == pytest.approx(2 * math.sqrt(82))
    assert wanda_sp_scores(weight, 4 * energy)[0].item() == pytest.approx(8.0)


def test_ppsp_is_the_norm_it_is_said_to_be():
    weight, energy = torch.randn(5, 8, generator=Rng(0).torch()), torch.arange(8.0)
    each = torch.stack([(weight[:, k] ** 2 * energy[k]).norm() for k in range(8)])
    torch.testing.assert_close(ppsp_scores(weight, energy), each)
    heads = torch.stack([(weight[:, h : h + 4] ** 2 * energy[h : h + 4]).norm() for h in (0, 4)])
    torch.testing.assert_close(ppsp_scores(weight, energy, 4), heads)


def test_fusion_has_its_limits():
    a = torch.logspace(-2, 6, 50)[:, None].expand(50, 50)
    fused = fuse(a, a.T)
    assert torch.allclose(fused.diagonal(), a[:, 0])
    assert torch.equal(fuse(torch.zeros(3), torch.arange(3.0)), torch.arange(3.0))
    assert fuse(torch.tensor(1e6), torch.tensor(1.0)).item() == pytest.approx(1e6, rel=1e-5)
    assert (fused >= (a + a.T) / 2 - 1e-5).all()
    torch.testing.assert_close(fused, (a**2 + a.T**2) / (a + a.T), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "blocks", "raised"),
    [(0.4, 32, 0.44), (0.2, 30, 0.22), (0.4, 30, 0.44), (0.0, 30, 0.0)],
)
def test_spared_blocks_are_made_up_for(ratio, blocks, raised):
    assert raised_ratio(ratio, blocks, 3) == raised


def test_kept_counts_round_up():
    assert kept_count(1536, 0.44) == 1536 - 675
    assert kept_count(1536, 0.44, 8) == 864
    assert kept_count(100, 0.29) == 71  # 0.29 * 100 is below 29 in floats
    assert kept_count(10, 0.05, 8) == 10
    assert kept_count(9, 0.44) == 6


def test_one_threshold_for_all_layers():
    generator = Rng(0).torch()
    scores = [torch.rand(64, generator=generator) ** power for power in (1, 4, 8)]
    kept = best_of_all(scores, 0.5)
    assert sum(map(len, kept)) == 96
    standard = [(each - each.mean()) / each.std() for each in scores]
    inside = torch.cat([each[places] for each, places in zip(standard, kept, strict=True)])
    outside = torch.cat(
        [
            each[[k for k in range(64) if k not in places.tolist()]]
            for each, places in zip(standard, kept, strict=True)
        ]
    )
    assert inside.min() >= outside.max()
    assert len({len(places) for places in kept}) > 1
    assert all(len(places) % 8 == 0 for places in best_of_all(scores, 0.5, 8))
    assert [len(p) for p in best_of_all([torch.ones(4), torch.tensor([0.0, 0, 0, 9])], 0.9)] == [
        1, 1,
    ]  # fmt: skip


def test_probe_takes_the_loudest_tokens_and_then_samples():
    residual = torch.zeros(40, 30, 2)
    residual[:, 5:20] = 1.0
    residual[7, 8] = 10.0
    residual[33, 25] = 100.0  # the token is kept, and with it the sample
    samples, tokens = select_probe(residual, 0.05, 0.5)
    assert samples.tolist() == [7, 33]
    assert tokens.tolist() == [*range(5, 19), 25]
    few = select_probe(residual, 0.05, 0.2)[1]  # six tokens, so that the first gives way
    assert few.tolist() == [0, 6, 7, 8, 9, 25]
    assert len(select_probe(residual, 0.01, 0.01)[1]) == 2
    assert select_probe(residual[:1, :1], 0.5, 0.5)[1].tolist() == [0]


def test_probe_leaves_padding_out():
    residual = torch.ones(2, 30, 4)
    residual[0, 20:] = 1e6
    real = torch.ones(2, 30, dtype=torch.bool)
    real[0, 20:] = False
    samples, tokens = select_probe(residual, 0.5, 0.5, real)
    assert tokens.max() < 20
    assert samples.tolist() == [0] or samples.tolist() == [1]


def test_overlap_of_masks():
    assert mask_overlap(torch.tensor([0, 1]), torch.tensor([0, 1]), 4) == 1.0
    assert mask_overlap(torch.tensor([0, 1]), torch.tensor([2, 3]), 4) == 0.0
    assert mask_overlap(torch.tensor([0]), torch.tensor([0, 1]), 4) == pytest.approx(2 * 2 / 5)
    assert mask_overlap(torch.arange(4), torch.arange(4), 4) == 1.0
