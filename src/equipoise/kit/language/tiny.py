"""A random language model small enough to run in milliseconds, for checks and tests."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.kit.cache import cache_folder

if TYPE_CHECKING:
    from equipoise.kit.language.local import LanguageModel

_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_FORMAT = 2


def tiny_model(seed: int = 0, **settings: Any) -> LanguageModel:
    """Return a Llama of 2 layers, width 32 and 259 tokens (bytes and three marks).

    Weights are drawn from ``seed`` wide enough that it prefers some tokens
    clearly; ``settings`` go to `LanguageModel`.

    Examples
    --------
    >>> tiny_model().tokenize("hi")
    [104, 105]
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from equipoise.kit.language.local import LanguageModel

    config = LlamaConfig(
        vocab_size=259,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=257,
        eos_token_id=258,
        pad_token_id=256,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        module = LlamaForCausalLM(config)
    module = module.to_empty(device="cpu")
    module.tie_weights()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.3, generator=generator)
    # Rotary frequencies are no parameters: a module on no device cannot know them.
    module.model.rotary_emb = type(module.model.rotary_emb)(config)
    return LanguageModel(module, byte_tokenizer(), name="tiny", **settings)


def tiny_folder() -> Path:
    """Return a folder with `tiny_model` in it, made in the cache on the first call."""
    folder = cache_folder() / "models" / f"tiny-{_FORMAT}"
    if not (folder / "model.safetensors").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            tiny_model().save(made)
            if not folder.exists():
                made.rename(folder)
        except OSError:
            if not (folder / "model.safetensors").is_file():  # else another process was quicker
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def byte_tokenizer() -> Any:
    """Return a tokenizer whose ids 0 to 255 are the bytes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = _byte_letters()
    backend = Tokenizer(
        models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    marks = ["<|pad|>", "<|start|>", "<|end|>"]
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, pad_token=marks[0], bos_token=marks[1], eos_token=marks[2]
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def _byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in byte-level tokenizers."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]
