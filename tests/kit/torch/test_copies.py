import pytest
import torch
from torch import nn

from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.copies import (
    copy_module,
    linear_layers,
    output_head,
    replace_modules,
    shared_tensors,
)


def test_copy_shares_every_tensor_and_no_module():
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    copied = copy_module(module)
    names = {name for name, _ in shared_tensors(copied, module)}
    assert names == set(module.state_dict())
    assert not set(copied.modules()) & set(module.modules())


def test_replacing_in_the_copy_leaves_the_original():
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    before = module[0].weight.clone()
    copied = copy_module(module)
    copied[0].weight = nn.Parameter(torch.zeros(3, 3))
    replaced = replace_modules(copied, {"1": nn.Identity()})
    assert isinstance(replaced[1], nn.Identity)
    assert isinstance(module[1], nn.ReLU)
    assert torch.equal(module[0].weight, before)


def test_tied_tensors_stay_tied_in_the_copy():
    copied = copy_module(_tied())
    assert copied.lm_head.weight is copied.model.embed_tokens.weight


def test_config_is_copied():
    module = _tied()
    copied = copy_module(module)
    copied.config.tie_word_embeddings = False
    assert module.config.tie_word_embeddings


def test_root_can_be_replaced_alone():
    new = nn.Identity()
    assert replace_modules(nn.Linear(1, 1), {"": new}) is new
    with pytest.raises(ValueError, match="root"):
        replace_modules(nn.Sequential(nn.Linear(1, 1)), {"": new, "0": new})


def test_unknown_name_is_refused():
    with pytest.raises(AttributeError):
        replace_modules(nn.Sequential(nn.Linear(1, 1)), {"7": nn.Identity()})


def test_linear_layers_leave_the_head_out():
    module = tiny_model().module
    names = linear_layers(module)
    assert len(names) == 2 * 7
    assert output_head(module) is module.lm_head
    assert "lm_head" not in names
    assert linear_layers(nn.Linear(2, 2)).keys() == {""}


def _tied():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
    )
