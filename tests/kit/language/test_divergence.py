"""Divergences against closed forms."""

from __future__ import annotations

import math

import torch
from torch import nn

from equipoise.kit.language.divergence import (
    kl_divergence,
    next_token_logits,
    share_changed,
    size_in_bytes,
)
from equipoise.kit.language.families import random_model
from equipoise.kit.torch.copies import copy_module


def test_kl_of_two_coins() -> None:
    p, q = 0.9, 0.6
    found = kl_divergence(torch.tensor([[p, 1 - p]]).log(), torch.tensor([[q, 1 - q]]).log())
    assert math.isclose(float(found), p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)),
                        rel_tol=1e-5)  # fmt: skip


def test_kl_ignores_a_constant_and_agrees_with_torch() -> None:
    one = torch.randn(50, 300, generator=torch.Generator().manual_seed(1)) * 3
    two = torch.randn(50, 300, generator=torch.Generator().manual_seed(2)) * 3
    assert kl_divergence(one, one + 7).max() < 1e-5
    expected = nn.functional.kl_div(
        two.log_softmax(-1), one.log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)
    torch.testing.assert_close(kl_divergence(one, two), expected)


def test_next_token_logits_are_the_modules() -> None:
    live = random_model("gpt2")
    ids = torch.tensor([3, 1, 4, 1, 5])
    with torch.no_grad():
        expected = live.module(ids[None]).logits[0]
    torch.testing.assert_close(next_token_logits(live.module, ids), expected)


def test_share_changed_counts_weights() -> None:
    module = random_model("llama").module
    mine = copy_module(module)
    assert share_changed(module, mine) == 0
    layer = mine.model.layers[0].mlp.up_proj
    weight = layer.weight.detach().clone()
    weight[0, :3] += 1
    layer.weight = nn.Parameter(weight)
    total = sum(each.numel() for each in module.parameters())
    assert math.isclose(share_changed(module, mine), 3 / total)
    layer.weight = nn.Parameter(weight[:10].clone())
    assert math.isclose(share_changed(module, mine), weight.numel() / total)


def test_size_counts_shared_storage_once() -> None:
    tied = random_model("llama").module
    untied = random_model("llama", tie_word_embeddings=False).module
    assert size_in_bytes(untied) - size_in_bytes(tied) == 259 * 32 * 4
