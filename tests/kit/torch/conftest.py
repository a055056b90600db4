"""A Llama in float64 whose norms work in float64 too, so that identities show to 1e-10."""

import pytest
import torch
from torch import nn

from equipoise.core import Rng


class _Norm(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def exact_llama(*, heads=4, pairs=2, hidden=48, tied=True, bias=False, family="llama"):
    """transformers' norms compute in float32 whatever comes in; these replace them."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=50,
        hidden_size=hidden,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=pairs,
        head_dim=hidden // heads,
        tie_word_embeddings=tied,
    )
    if bias:
        config.attention_bias = config.mlp_bias = True
    with torch.random.fork_rng():
        module = AutoModelForCausalLM.from_config(config).double().eval()
    draw = Rng(0).child("weights").torch()
    for name, parameter in module.named_parameters():
        size = 0.3 if parameter.dim() > 1 else 1.0
        values = torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * size
        parameter.data = values + ("norm" in name)
    for layer in module.model.layers:
        layer.input_layernorm = _Norm(layer.input_layernorm.weight)
        layer.post_attention_layernorm = _Norm(layer.post_attention_layernorm.weight)
    module.model.norm = _Norm(module.model.norm.weight)
    return module.requires_grad_(False)


@pytest.fixture(scope="session")
def make_llama():
    return exact_llama


@pytest.fixture(scope="session")
def llama():
    return exact_llama()


@pytest.fixture(scope="session")
def ids():
    return torch.randint(50, (2, 17), generator=Rng(1).torch())
