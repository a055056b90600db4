"""The loss of learned tokens and its gradients against plain cross-entropy over whole logits."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from equipoise.core import Rng
from equipoise.kit.language import likelihood
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.likelihood import NextToken, TokenBatch

IDS = torch.randint(0, 256, (3, 11), generator=Rng(0).torch())
LEARNED = torch.rand(3, 11, generator=Rng(1).torch()) < 0.6
LEARNED[:, 0] = False
REAL = torch.ones(3, 11, dtype=torch.bool)
REAL[2, 7:] = LEARNED[2, 7:] = False
BATCH = TokenBatch(IDS, LEARNED, REAL)


def plain(module, weights):
    """Return the weighted sum of each sequence's loss, the long way, with padding masked."""
    logits = module(IDS, attention_mask=REAL.long()).logits[:, :-1].float()
    losses = functional.cross_entropy(logits.transpose(1, 2), IDS[:, 1:], reduction="none")
    each = torch.where(LEARNED[:, 1:], losses, 0.0).sum(1)
    return each, (each * weights).sum()


def gradients(module, loss):
    module.zero_grad()
    loss.backward()
    return {name: each.grad.clone() for name, each in module.named_parameters()}


def assert_close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        assert (found[name] - each).abs().max() <= 2e-5 * each.abs().max() + 1e-6, name


@pytest.mark.parametrize("block", [1 << 23, 700])  # at once, and two tokens at a time
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_every_gradient(family, block, monkeypatch):
    monkeypatch.setattr(likelihood, "LOGITS_AT_ONCE", block)
    module = copy.deepcopy(random_model(family).module)
    objective = NextToken(module)
    each, whole = plain(module, torch.ones(3))
    wanted = gradients(module, whole)
    found = objective.total(module, BATCH)
    assert found.item() == pytest.approx(whole.item(), rel=1e-5)
    assert_close(gradients(module, found), wanted)
    weights = torch.tensor([1.0, -2.0, 0.5])
    wanted = gradients(module, plain(module, weights)[1])
    apart = objective.each(module, BATCH)
    assert torch.allclose(-apart, each, rtol=1e-5, atol=1e-4)
    assert_close(gradients(module, -(apart * weights).sum()), wanted)


def test_a_bias_of_the_head_is_learned():
    module = copy.deepcopy(random_model("gpt_neox").module)
    head = module.lm_head
    head.bias = nn.Parameter(torch.randn(head.out_features, generator=Rng(2).torch()))
    wanted = gradients(module, plain(module, torch.ones(3))[1])
    found = gradients(module, NextToken(module).total(module, BATCH))
    assert "lm_head.bias" in wanted
    assert_close(found, wanted)


def test_logits_that_are_more_than_the_head_are_taken_whole():
    module = copy.deepcopy(random_model("llama").module)

    def halved(module, given, output):
        output.logits = output.logits / 2
        return output

    module.register_forward_hook(halved)
    each, whole = plain(module, torch.ones(3))
    wanted = gradients(module, whole)
    objective = NextToken(module)
    assert_close(gradients(module, objective.total(module, BATCH)), wanted)
    assert torch.allclose(-objective.each(module, BATCH), each, rtol=1e-5, atol=1e-4)


def test_frozen_parts_get_no_gradient():
    module = copy.deepcopy(random_model("llama").module)
    module.requires_grad_(False)
    module.model.layers[0].mlp.up_proj.weight.requires_grad_(True)
    NextToken(module).total(module, BATCH).backward()
    having = [name for name, each in module.named_parameters() if each.grad is not None]
    assert having == ["model.layers.0.mlp.up_proj.weight"]


def test_it_is_what_scoring_says():
    model = random_model("qwen3")
    (scores,) = model.log_likelihood([(IDS[0, :5].tolist(), IDS[0, 5:].tolist())])
    learned = torch.arange(11)[None] >= 5
    batch = TokenBatch(IDS[:1], learned, torch.ones_like(learned))
    found = NextToken(model.module).total(model.module, batch).item()
    assert found == pytest.approx(-sum(scores.log_probs), rel=1e-5)
    assert batch.count == 6


def test_bfloat16_is_near_float32():
    module = random_model("llama").module
    wanted = plain(module, torch.ones(3))[1].item()
    half = copy.deepcopy(module).bfloat16()
    objective = NextToken(half)
    assert objective.total(half, BATCH).item() == pytest.approx(wanted, rel=0.05)
    single = half.float()  # masters in float32, products in bfloat16
    assert objective.total(single, BATCH).item() == pytest.approx(wanted, rel=0.05)
