"""Random models of each supported family, small enough for checks and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from equipoise.kit.language.tiny import byte_tokenizer

if TYPE_CHECKING:
    from equipoise.kit.language.local import LanguageModel

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2")
"""Families whose models every white-box treatment is tested on."""

_SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 257,
    "eos_token_id": 258,
    "pad_token_id": 256,
}
_OLD = {  # GPT-2's names for the same
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}


def random_model(family: str, seed: int = 0, **changes: Any) -> LanguageModel:
    """Return a random model of a family: 4 blocks of width 32, bytes for tokens.

    Parameters
    ----------
    family
        One of `FAMILIES`.
    seed
        Of the weights. Biases and gains are random too, so that a method that
        forgets them is found out.
    **changes
        To the sizes, by their names in a Llama configuration.

    Examples
    --------
    >>> random_model("gpt2").module.config.n_embd
    32
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from equipoise.kit.language._pretrained import quiet
    from equipoise.kit.language.local import LanguageModel

    sizes: dict[str, Any] = {**_SIZES, "tie_word_embeddings": family != "gpt_neox", **changes}
    if family in ("gpt2", "gpt_neox"):
        del sizes["num_key_value_heads"]
    if family == "gpt2":
        sizes = {_OLD.get(name, name): value for name, value in sizes.items()}
    elif family == "qwen3":
        sizes.setdefault("head_dim", sizes["hidden_size"] // sizes["num_attention_heads"])
    maker: Any = AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]), quiet():  # layers draw when they are made
        module = maker.from_config(AutoConfig.for_model(family, **sizes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.3, generator=generator)
            else:
                middle = 1.0 if name.endswith("weight") else 0.0
                parameter.normal_(middle, 0.1, generator=generator)
    return LanguageModel(module, byte_tokenizer(), name=family)
