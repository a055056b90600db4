"""What a language model holds inside and expects next at the end of a text, many texts at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.core import Prompt, Request, UnitError, UsageError
from equipoise.kit.language._forward import Forward
from equipoise.kit.language._prompts import Prompts
from equipoise.kit.language.structure import Structure, structure_of
from equipoise.kit.language.wrap import Rewritten
from equipoise.kit.torch.copies import copy_module


def last_states(subject: Any, texts: Sequence[str], blocks: Sequence[int]) -> np.ndarray:
    """Return the outputs of some blocks at the last token of each text.

    They are read off the blocks themselves. The list that transformers gives
    as ``hidden_states`` holds the embedding first and, at its end, what the
    final norm makes of the last block's output.

    Parameters
    ----------
    subject
        A live subject with a decoder-only module and a tokenizer.
    texts
        Plain text, read as the tokenizer reads it, special tokens included.
    blocks
        Numbers of blocks, from 0.

    Returns
    -------
    numpy.ndarray
        Float32, shape ``(texts, blocks, width)``.

    Raises
    ------
    UsageError
        If there is no such block.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> last_states(tiny_model(), ["one", "and two"], [0, 1]).shape
    (2, 2, 32)
    """
    module = copy_module(subject.module)  # a copy, because hooks are put on it
    structure = structure_of(module)
    forward, prompts = Forward(module), _prompts(subject)
    rows = [prompts.ids(text) for text in texts]
    found = np.empty((len(rows), len(blocks), structure.hidden), np.float32)
    caught: dict[int, Tensor] = {}
    for block in blocks:
        name = checked_block(structure, block, "last_states")
        module.get_submodule(name).register_forward_hook(partial(_catch, caught, block))
    for places, ids, real in _padded(rows, subject):
        forward.hidden(ids, real)
        ends = real.sum(1) - 1
        lines = torch.arange(len(places), device=ids.device)
        for column, block in enumerate(blocks):
            found[places, column] = caught[block][lines, ends].float().cpu().numpy()
    return found


def checked_block(structure: Structure, block: int, who: str) -> str:
    """Return the dotted name of a block, or raise `UsageError` in the name of ``who``."""
    if not 0 <= block < len(structure.blocks):
        raise UsageError(
            f"{who}: blocks must be from 0 to {len(structure.blocks) - 1} for this model,"
            f" got {block}."
        )
    return structure.blocks[block].name


def next_token_log_probs(subject: Any, prompts: Sequence[Prompt]) -> np.ndarray:
    r"""Return $\ln p(\cdot \mid \mathrm{prompt})$ over the whole vocabulary, prompt by prompt.

    Parameters
    ----------
    subject
        A live subject with a module and a tokenizer; one behind a rewriting of
        its requests is asked what it would be asked.
    prompts
        Text, messages or token ids.

    Returns
    -------
    numpy.ndarray
        Float32, shape ``(prompts, vocabulary)``.

    Raises
    ------
    UnitError
        If a prompt does not fit the model.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> found = next_token_log_probs(tiny_model(), ["one", [97, 98, 99]])
    >>> found.shape, bool(abs(np.exp(found).sum(1) - 1).max() < 1e-5)
    ((2, 259), True)
    """
    rows = [prompt_ids(subject, prompt) for prompt in prompts]
    inner, _ = _opened(subject, "")
    forward = Forward(inner.module)
    longest = max(map(len, rows), default=0)
    if forward.limit is not None and longest > forward.limit:
        raise UnitError(
            f"A prompt of {longest} tokens does not fit the model's {forward.limit}.", "too_long"
        )
    found: dict[int, np.ndarray] = {}
    for places, ids, real in _padded(rows, inner):
        states = forward.states(ids, real=real)
        ends = states[torch.arange(len(places), device=ids.device), real.sum(1) - 1]
        scores = forward.logits(ends).log_softmax(-1).cpu().numpy()
        found |= dict(zip(places, scores, strict=True))
    return np.stack([found[place] for place in range(len(rows))]) if rows else np.empty((0, 0))


def prompt_ids(subject: Any, prompt: Prompt) -> list[int]:
    """Return the token ids that a prompt is to a subject, special tokens included.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> prompt_ids(tiny_model(), "ab")
    [97, 98]
    """
    inner, asked = _opened(subject, prompt)
    return _prompts(inner).ids(asked)


def cut(
    subject: Any, prompt: Prompt, continuations: Sequence[str]
) -> tuple[list[int], list[list[int]]]:
    """Return a prompt's token ids and those of each continuation, as they are cut in context.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> cut(tiny_model(), "a", [" b", " c"])
    ([97], [[32, 98], [32, 99]])
    """
    inner, asked = _opened(subject, prompt)
    prompts = _prompts(inner)
    pairs = [prompts.pair(asked, each) for each in continuations]
    return pairs[0][0], [rest for _, rest in pairs]


def _opened(subject: Any, prompt: Prompt) -> tuple[Any, Prompt]:
    """Return the subject behind rewritings of requests, and what it is asked for a prompt."""
    while isinstance(subject, Rewritten):
        if isinstance(prompt, str) or (len(prompt) and isinstance(prompt[0], Mapping)):
            prompt = subject.rewrite(Request(prompt)).prompt  # type: ignore[arg-type]
        subject = subject.subject  # type: ignore[attr-defined]
    return subject, prompt


def _prompts(subject: Any) -> Prompts:
    if getattr(subject, "tokenizer", None) is None:
        raise UsageError(f"{type(subject).__name__} has no tokenizer, so it cannot read text.")
    return Prompts(subject.tokenizer, getattr(subject, "name", "the model"))


def _padded(
    rows: Sequence[Sequence[int]], subject: Any
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield batches of like length: which rows, their ids, and which ids are real.

    Padding comes last, where causal attention of real tokens never looks and
    positions need no shift.
    """
    most = getattr(subject, "batch_tokens", None) or 1024
    size = getattr(subject, "batch_size", None)
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
    while order:
        longest = len(rows[order[0]])
        count = size or max(1, most // max(longest, 1))
        places, order = order[:count], order[count:]
        ids = torch.zeros(len(places), longest, dtype=torch.long)
        real = torch.zeros(len(places), longest, dtype=torch.bool)
        for line, place in enumerate(places):
            ids[line, : len(rows[place])] = torch.tensor(rows[place])
            real[line, : len(rows[place])] = True
        yield places, ids.to(subject.device), real.to(subject.device)


def _catch(
    caught: dict[int, Tensor], block: int, module: nn.Module, given: Any, output: Any
) -> None:
    caught[block] = output[0] if isinstance(output, tuple) else output
