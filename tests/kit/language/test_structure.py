"""Structures are found by shape, for every family."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from equipoise.core import UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.structure import structure_of
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.linear import is_linear, is_transposed, set_linear, weight_of


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_linear_layer_of_a_block_has_a_place(family: str) -> None:
    module = random_model(family).module
    found = structure_of(module)
    there = {name for name, part in module.named_modules() if is_linear(part)}
    assert there - {found.head} == set(found.linear_layers())
    assert len(found.blocks) == 4
    assert found.hidden == 32


def test_sizes_and_roles(family: str) -> None:
    found = structure_of(random_model(family).module)
    block = found.blocks[2]
    assert (block.attention.heads, block.attention.head_size) == (4, 8)
    assert block.attention.key_value_heads == (4 if family.startswith("gpt") else 2)
    assert block.feed_forward.channels == 64
    assert (block.feed_forward.gate is None) == family.startswith("gpt")
    assert len(block.norms) == 2
    assert found.centred == family.startswith("gpt")
    assert found.tied == (family != "gpt_neox")
    assert (found.positions is not None) == (family == "gpt2")
    assert block.attention.rotary == (family != "gpt2")
    assert block.parallel == (family == "gpt_neox")
    assert (block.attention.query_norm is not None) == (family == "qwen3")


def test_rows_of_fused_layers_are_what_the_attention_reads(family: str) -> None:
    """Setting the value rows to zero silences attention and nothing else."""
    module = random_model(family).module
    block = structure_of(module).blocks[0]
    mine = copy_module(module)
    layer = mine.get_submodule(block.attention.value)
    rows = block.attention.rows("value")
    weight = weight_of(layer).detach().clone()
    weight[rows] = 0
    bias = None if layer.bias is None else layer.bias.detach().clone()
    if bias is not None:
        bias[rows] = 0
    set_linear(layer, weight, bias)
    seen: list[torch.Tensor] = []
    mine.get_submodule(block.attention.output).register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0])
    )
    mine(torch.arange(6)[None])
    assert seen[0].abs().max() == 0
    module(torch.arange(6)[None])
    assert len(seen) == 1


def test_query_rows_of_one_head_move_that_head_alone(family: str) -> None:
    module = random_model(family).module
    attention = structure_of(module).blocks[0].attention
    mine = copy_module(module)
    layer = mine.get_submodule(attention.query)
    weight = weight_of(layer).detach().clone()
    size = attention.head_size
    weight[attention.rows("query")[size : 2 * size]] *= -2
    set_linear(layer, weight, layer.bias)
    outputs = []
    for each in (module, mine):
        each.get_submodule(attention.output).register_forward_pre_hook(
            lambda _, inputs: outputs.append(inputs[0].unflatten(-1, (-1, size)))
        )
        each(torch.tensor([[5, 9, 70, 33, 8]]))
    moved = (outputs[0] - outputs[1]).abs().amax((0, 1, 3))
    assert moved[1] > 1e-4
    assert moved[[0, 2, 3]].max() == 0


def test_block_of_needs_the_whole_prefix(family: str) -> None:
    module = random_model(family).module
    found = structure_of(module)
    for name, _ in module.named_parameters():
        number = found.block_of(name)
        assert (number is None) == (found.container not in name)
    assert found.block_of(f"{found.container}.1.mlp.0.weight") == 1
    assert found.block_of("x.0.weight") is None


def test_set_linear_leaves_the_control_alone(family: str) -> None:
    module = random_model(family).module
    down = structure_of(module).blocks[0].feed_forward.down
    before = weight_of(module.get_submodule(down)).detach().clone()
    mine = copy_module(module)
    layer = mine.get_submodule(down)
    kept = weight_of(layer)[:, ::2]
    set_linear(layer, kept, layer.bias)
    assert layer(torch.ones(1, 32)).shape == (1, 32)
    assert torch.equal(weight_of(module.get_submodule(down)), before)
    assert is_transposed(layer) == (family == "gpt2")


def test_other_modules_are_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"^Linear is not a decoder-only language model\.$"):
        structure_of(nn.Linear(2, 2))


def test_an_unknown_feed_forward_part_is_named() -> None:
    module = random_model("llama").module
    module.model.layers[0].mlp.extra = nn.Linear(32, 7)
    with pytest.raises(UsageError, match="feed-forward part is of no known kind"):
        structure_of(module)


def test_opt_has_its_layers_in_the_block() -> None:
    sizes = {"word_embed_proj_dim": 32, "ffn_dim": 64}
    module = random_model("opt", **sizes).module
    found = structure_of(module)
    assert found.blocks[0].feed_forward.name == found.blocks[0].name
    assert found.blocks[0].feed_forward.up.endswith("fc1")
