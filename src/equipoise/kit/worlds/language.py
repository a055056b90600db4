"""A language model small enough for every test: random weights, bytes as tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokenizer() -> Any:
    """Return a tokenizer whose tokens are bytes, with a chat template.

    Examples
    --------
    >>> byte_tokenizer()("ab").input_ids
    [68, 69]
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|end|>": 0} | {letter: i + 1 for i, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",  # noqa: S106 - a token of text
        bos_token="<|end|>",  # noqa: S106
        pad_token="<|end|>",  # noqa: S106
        chat_template=TEMPLATE,
    )


def tiny_llama(*, seed: int = 0, layers: int = 2, hidden: int = 32, heads: int = 4) -> Any:
    """Return a random Llama in float32 for `byte_tokenizer`, made without global generators.

    Weights are normal with a spread that makes its answers far from uniform.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=257,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        module = LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" not in name:
                parameter.normal_(0.0, 0.3, generator=generator)
    return module.requires_grad_(False)


@cache
def tiny_language_model(seed: int = 0) -> Any:
    """Return a live subject around `tiny_llama`; kept, since treatments never write to it."""
    from equipoise.kit.language.local import LanguageModel

    return LanguageModel(tiny_llama(seed=seed), byte_tokenizer(), name="tiny")
