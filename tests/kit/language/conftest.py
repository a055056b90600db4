import pytest
import torch

from equipoise.kit.language.local import LanguageModel
from equipoise.kit.language.tiny import tiny_model


@pytest.fixture(scope="session")
def tiny() -> LanguageModel:
    return tiny_model()


def _module(kind: str) -> torch.nn.Module:
    import transformers as t

    sizes = {"vocab_size": 259, "bos_token_id": 257, "eos_token_id": 258, "pad_token_id": 256}
    common = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        **sizes,
    }
    made = {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**common)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256, **sizes)
        ),
        "sliding": lambda: t.MistralForCausalLM(t.MistralConfig(sliding_window=6, **common)),
        "softcap": lambda: t.Gemma2ForCausalLM(
            t.Gemma2Config(head_dim=8, sliding_window=7, final_logit_softcapping=2.0, **common)
        ),
        "alibi": lambda: t.BloomForCausalLM(
            t.BloomConfig(hidden_size=32, n_layer=2, n_head=4, **sizes)
        ),
        "recurrent": lambda: t.MambaForCausalLM(
            t.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=4, **sizes)
        ),
    }
    torch.manual_seed(0)  # the module is random once and for all; tests do not draw from it
    module = made[kind]().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.mul_(8.0)
    return module


@pytest.fixture(scope="session", params=["llama", "gpt2", "sliding", "softcap", "alibi"])
def each(request: pytest.FixtureRequest, tiny: LanguageModel) -> LanguageModel:
    """A random model of each architecture that is run differently."""
    return LanguageModel(_module(request.param), tiny.tokenizer, name=request.param)


@pytest.fixture(scope="session")
def recurrent(tiny: LanguageModel) -> LanguageModel:
    """A random model whose state is no key-value cache."""
    return LanguageModel(_module("recurrent"), tiny.tokenizer, name="recurrent")
