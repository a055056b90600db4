"""Low-rank adapters: nothing at first, anything at full rank, merged as apart."""

import pytest
import torch
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.structure import structure_of
from equipoise.kit.torch.adapters import add_lora, merge_lora
from equipoise.kit.torch.plain import plain_module
from equipoise.kit.torch.training import Recipe, fit

IDS = torch.arange(40).view(2, 20)


def moved(learner):
    """Give the adapters numbers other than zero."""
    generator = Rng(3).torch()
    with torch.no_grad():
        for name, each in learner.named_parameters():
            if "lora_B" in name:
                each.normal_(0, 0.05, generator=generator)
    return learner


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_at_first_and_merged_as_apart(family):
    control = random_model(family).module
    layers = structure_of(control).linear_layers()
    with torch.no_grad():
        before = control(IDS).logits
        learner = add_lora(control, layers, rank=4, alpha=8, rng=Rng(0))
        assert torch.equal(learner(IDS).logits, before)
        apart = moved(learner)(IDS).logits
        merged = merge_lora(learner, control)(IDS).logits
        plain = plain_module(learner)
    assert (apart - before).abs().max() > 0.1
    assert (merged - apart).abs().max() < 1e-5 * apart.abs().max()
    assert type(plain) is type(control)
    assert {n: type(p) for n, p in plain.named_modules()} == {
        n: type(p) for n, p in control.named_modules()
    }
    with torch.no_grad():
        assert torch.equal(plain(IDS).logits, merged)
        assert torch.equal(control(IDS).logits, before)


def test_only_adapters_train_and_the_rest_shares_memory():
    control = random_model("llama").module
    learner = add_lora(control, ["model.layers.0.mlp.up_proj"], rank=2, alpha=4, rng=Rng(0))
    trained = [name for name, each in learner.named_parameters() if each.requires_grad]
    assert len(trained) == 2
    assert all("lora_" in name for name in trained)
    theirs = {each.data_ptr() for each in control.parameters()}
    frozen = [each for each in learner.parameters() if not each.requires_grad]
    assert {each.data_ptr() for each in frozen} == theirs
    assert all(each.requires_grad for each in control.parameters())


def test_full_rank_reaches_any_weight():
    control = nn.Module()
    control.inner = nn.Linear(4, 3, bias=False)
    with torch.no_grad():
        control.inner.weight.copy_(torch.randn(3, 4, generator=Rng(0).torch()))
    wanted = torch.randn(3, 4, generator=Rng(1).torch())
    x = torch.randn(64, 4, generator=Rng(2).torch())
    learner = add_lora(control, ["inner"], rank=3, alpha=3, rng=Rng(0))

    def loss(module, batch):
        return (module.inner(batch) - batch @ wanted.T).square().mean()

    recipe = Recipe(steps=1500, rate=0.02, schedule="cosine", clip=0)
    history = fit(learner, lambda step: [x], loss, recipe=recipe, rng=Rng(0))
    made = merge_lora(learner, control)
    assert history.losses[-1] < 1e-8
    assert (made.inner.weight - wanted).abs().max() < 1e-3


def test_draws_come_from_the_stream_given():
    control = random_model("qwen2").module
    name = structure_of(control).linear_layers()[0]

    def first(seed):
        learner = add_lora(control, [name], rank=2, alpha=4, rng=Rng(seed))
        return next(each for key, each in learner.named_parameters() if "lora_A" in key)

    state = torch.get_rng_state()
    one = first(0)
    assert torch.equal(first(0), one)
    assert not torch.equal(first(1), one)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_rank_above_the_width_is_refused():
    control = random_model("llama").module
    with pytest.raises(UsageError, match=r"A rank of 33 is more than .* which has 32, can use"):
        add_lora(control, ["model.layers.0.self_attn.q_proj"], rank=33, alpha=1, rng=Rng(0))
