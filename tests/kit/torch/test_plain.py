"""Treated modules go back to ordinary layers where there are such, or say why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from equipoise.catalog import part
from equipoise.core import Rng
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.structure import structure_of
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.plain import NotPlain, open_biases, plain_module

IDS = torch.tensor([[5, 70, 200, 9, 9, 31]])


def logits(module: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = module(IDS).logits
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_an_untreated_model_is_plain(family: str) -> None:
    module = random_model(family).module
    made = plain_module(module)
    assert made is not module
    assert torch.equal(logits(made), logits(module))


@pytest.mark.parametrize("family", FAMILIES)
def test_rounded_weights_are_plain(family: str) -> None:
    live = random_model(family)
    treated = part("round_to_nearest", weights=4, activations=16).apply(live, Rng(0))
    made = plain_module(treated.module)
    assert {type(each) for each in made.modules()} == {type(each) for each in live.module.modules()}
    # GPT-2 multiplies by the weight the other way round, which adds up in another order.
    torch.testing.assert_close(logits(made), logits(treated.module), rtol=1e-5, atol=2e-4)


def test_rounded_activations_are_not() -> None:
    treated = part("round_to_nearest", weights=4, activations=4).apply(
        random_model("llama"), Rng(0)
    )
    with pytest.raises(NotPlain, match=r"acts while it runs: inputs of linear layers are rounded"):
        plain_module(treated.module)


def test_a_hook_is_not_plain() -> None:
    module = copy_module(random_model("llama").module)
    module.model.layers[1].register_forward_hook(lambda *_: None)
    with pytest.raises(NotPlain, match=r"model\.layers\.1 is hooked"):
        plain_module(module)


def test_another_shape_is_not_plain() -> None:
    module: Any = copy_module(random_model("llama").module)
    down = module.model.layers[1].mlp.down_proj
    down.weight = nn.Parameter(down.weight[:, ::2].clone())
    with pytest.raises(NotPlain, match=r"down_proj\.weight has the shape"):
        plain_module(module)


@pytest.mark.parametrize("where", ["feed_forward", "attention"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_biases_of_zero_change_nothing(family: str, where: str) -> None:
    module = random_model(family).module
    mine = copy_module(module)
    open_biases(mine, where)
    assert torch.equal(logits(mine), logits(module))
    assert logits(plain_module(mine)).shape == logits(module).shape
    block = structure_of(mine).blocks[3]
    name = block.feed_forward.down if where == "feed_forward" else block.attention.output
    assert mine.get_submodule(name).bias is not None


def test_a_family_without_such_biases_is_named() -> None:
    module = copy_module(random_model("qwen2").module)
    with pytest.raises(NotPlain, match=r"^Qwen2ForCausalLM knows no biases of feed-forward"):
        open_biases(module, "feed_forward")
