"""A Llama of under a million parameters that learns from text in a minute.

Bytes are its tokens. Some of its channels can be made outliers that change nothing it
computes, so it is known what a quantiser has to undo.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from equipoise.core import Rng, UsageError
from equipoise.kit.data import read_texts
from equipoise.kit.language._pretrained import quiet
from equipoise.kit.language.local import LanguageModel
from equipoise.kit.language.structure import structure_of
from equipoise.kit.language.tiny import byte_tokenizer
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.threads import one_thread
from equipoise.kit.torch.training import Recipe, finished, fit, trainable_copy
from equipoise.kit.torch.transforms import BlockTransforms, Transforms, fold_


@functools.lru_cache(maxsize=4)
def trained(
    width: int, layers: int, heads: int, channels: int, data: str, steps: int, seed: int
) -> nn.Module:
    """Return a Llama trained on windows of text; never write to it.

    Two query heads share a key and a value. A step reads 8 windows of 128 bytes;
    AdamW's rate rises to 0.004 and falls by a cosine. One thread does it, so the
    number of processors does not move the result.

    Parameters
    ----------
    width, layers, heads, channels
        Sizes; ``width`` is a multiple of ``2 * heads``, and heads are even.
    data
        Text, as in `equipoise.kit.data.read_texts`.
    steps
        Updates of the weights.
    seed
        Of the first weights and of the windows.

    Raises
    ------
    UsageError
        If the text has less than a window.
    """
    ids = torch.tensor(list("\n\n".join(read_texts(data)).encode()))
    length, batch = 128, 8
    if len(ids) <= length:
        raise UsageError(f"SmallLlama: {data} has {len(ids)} bytes, fewer than {length + 1}.")
    rng = Rng(seed).child("small_llama")
    control = _blank(width, layers, heads, channels)
    _draw(control, rng.child("weights"))

    def batches(step: int) -> list[Tensor]:
        starts = rng.child("step", step).numpy().integers(len(ids) - length, size=batch)
        return [torch.stack([ids[start : start + length + 1] for start in starts.tolist()])]

    def loss(module: nn.Module, chosen: Tensor) -> Tensor:
        logits = module(chosen[:, :-1], use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1), chosen[:, 1:].flatten())

    learner = trainable_copy(control, {name for name, _ in control.named_parameters()})
    recipe = Recipe(steps=steps, rate=4e-3, schedule="cosine", warmup=0.05, betas=(0.9, 0.98))
    with one_thread():
        fit(learner, batches, loss, recipe=recipe, rng=rng.child("fit"), what="training a Llama")
    return finished(learner, control)


@torch.no_grad()
def with_outliers(module: nn.Module, count: int, factor: float, rng: Rng) -> nn.Module:
    """Return a copy with outlier channels that computes the same.

    In every block ``count`` channels after each norm, of the values and between up
    and down layers are made ``factor`` times as large, and the layers that read
    them make up for it.

    Parameters
    ----------
    module
        A Llama; left as it is.
    count
        Channels in each place; values have at most as many as one head has.
    factor
        How much larger.
    rng
        Draws the channels.

    Examples
    --------
    >>> plain = trained(32, 1, 2, 64, "builtin:python_topics", 0, 0)
    >>> ids = torch.arange(40)[None]
    >>> loud = with_outliers(plain, 2, 20.0, Rng(0))
    >>> bool((loud(ids).logits - plain(ids).logits).abs().max() < 1e-4)
    True
    """
    made = copy_module(module)
    structure = structure_of(made)
    blocks = []
    for block in structure.blocks:
        attention = block.attention
        values = attention.key_value_heads, attention.head_size
        sizes = (structure.hidden,), (structure.hidden,), values, (block.feed_forward.channels,)
        scales = []
        for place, shape in enumerate(sizes):
            scale = torch.ones(math.prod(shape), dtype=torch.float64)
            draw = rng.child(block.index, place).numpy()
            scale[torch.from_numpy(draw.permutation(len(scale))[:count])] = factor
            scales.append(scale.view(shape))
        after, between, each, up = scales
        blocks.append(
            BlockTransforms(attention=after, feed_forward=between, value_scale=each, channels=up)
        )
    fold_(made, structure, Transforms(tuple(blocks)))
    return made


def language_model(module: nn.Module) -> LanguageModel:
    """Return the live subject around a module that reads bytes."""
    return LanguageModel(module, byte_tokenizer(), name="small_llama")


def _blank(width: int, layers: int, heads: int, channels: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=259,
        hidden_size=width,
        intermediate_size=channels,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=2048,
        bos_token_id=257,
        eos_token_id=258,
        pad_token_id=256,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]), quiet():  # layers draw when they are made
        return LlamaForCausalLM(config)


@torch.no_grad()
def _draw(module: Any, rng: Rng) -> None:
    generator = rng.torch()
    for name, tensor in sorted(module.named_parameters()):
        if tensor.dim() > 1:
            spread = tensor.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                # Outputs of layers add up, so they begin smaller the more layers there are.
                spread /= (2 * module.config.num_hidden_layers) ** 0.5
            tensor.normal_(0.0, spread, generator=generator)
