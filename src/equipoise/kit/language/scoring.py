r"""Log-likelihood of continuations under a local causal model.

For a context $c$ and a continuation $w_1 \dots w_k$ the scores are
$\log p(w_i \mid c, w_1 \dots w_{i-1})$. Where several continuations share a
context it goes through the model once and its key-value cache is spread over
them; the output layer is applied at the positions that are asked about and
nowhere else, and its logits are held a block at a time.

A module marked ``equipoise_whole_sequence`` (its result depends on the whole
sequence seen at once) gets every sequence whole, without a cache; so does one
with recurrent states, which cannot be spread.

In float32 the scores agree with a plain forward pass of each sequence alone to
1e-4, whatever the order and the batch size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from equipoise.core import Prompt, TokenScores, UnitError
from equipoise.kit.language._forward import LOGITS_AT_ONCE, Forward
from equipoise.kit.language._prompts import Prompts

_WASTE = 64  # padding tokens that cost less than one more pass
_CACHE_BYTES = 512 << 20


def log_likelihood(
    forward: Forward,
    prompts: Prompts,
    pairs: Sequence[tuple[Prompt, str | Sequence[int]]],
    *,
    batch_size: int | None = None,
    batch_tokens: int = 1024,
) -> list[TokenScores]:
    """Score continuations, in order.

    Parameters
    ----------
    forward, prompts
        The model and its tokenizer.
    pairs
        A prompt and what continues it, as text or token ids. How text is cut
        into context and continuation: `Prompts.pair`.
    batch_size
        Most sequences at once; by default as many as ``batch_tokens`` allows.
    batch_tokens
        Most tokens that go through the model at once, padding included.

    Raises
    ------
    UnitError
        If a context and its continuation do not fit the model.
    """
    places: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for number, (prompt, continuation) in enumerate(pairs):
        context, rest = prompts.pair(prompt, continuation)
        if forward.limit is not None and len(context) + len(rest) - 1 > forward.limit:
            raise UnitError(
                f"{prompts.name}: a context of {len(context)} tokens and a continuation of"
                f" {len(rest)} do not fit {forward.limit}; shorten them.",
                kind="too_long",
            )
        places[tuple(context), tuple(rest)].append(number)
    book = _Book()
    whole = forward.whole_sequence or not forward.spreads
    rows, shared = _plan(book, list(places), whole=whole)
    for batch in _batches(rows, batch_size, batch_tokens):
        _run_whole(forward, book, batch)
    for batch in _batches(shared, batch_size, batch_tokens):
        _run_shared(forward, book, batch)
    found: list[TokenScores | None] = [None] * len(pairs)
    for numbers, (start, end) in zip(places.values(), book.spans, strict=True):
        scores = TokenScores(
            np.array(book.log_probs[start:end]), bool(np.all(book.greedy[start:end]))
        )
        for number in numbers:
            found[number] = scores
    return [each for each in found if each is not None]


@dataclass(slots=True)
class _Book:
    """All scores in one line; each continuation has a span of it."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    log_probs: np.ndarray = field(default_factory=lambda: np.empty(0))
    greedy: np.ndarray = field(default_factory=lambda: np.empty(0, bool))

    def open(self, lengths: Sequence[int]) -> None:
        ends = np.cumsum([0, *lengths])
        self.spans = [(int(a), int(b)) for a, b in pairwise(ends)]
        self.log_probs = np.full(int(ends[-1]), np.nan)
        self.greedy = np.zeros(int(ends[-1]), bool)


@dataclass(slots=True)
class _Row:
    """A sequence to run, and what to read off it.

    ``wanted`` holds (first column, where its scores go, tokens): the token read
    off column ``first + i`` is ``tokens[i]``. ``options`` are the continuations
    that go on from the cache: (input, where, tokens).
    """

    ids: tuple[int, ...]
    wanted: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    options: list[_Row] = field(default_factory=list)


def _plan(
    book: _Book, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], *, whole: bool
) -> tuple[list[_Row], list[_Row]]:
    """Sort pairs into sequences run whole and contexts that options share."""
    book.open([len(rest) for _, rest in pairs])
    groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for (context, rest), (start, _) in zip(pairs, book.spans, strict=True):
        if rest:
            groups[context].append((rest, start))
    rows: dict[tuple[int, ...], _Row] = {}
    shared = []
    for context, options in groups.items():
        inputs = {rest[:-1] for rest, _ in options}
        apart = sum(len(context) + len(each) for each in inputs)
        saved = (len(inputs) - 1) * len(context)
        if whole or saved <= 0.1 * apart:
            for rest, start in options:
                ids = context + rest[:-1]
                row = rows.setdefault(ids, _Row(ids))
                row.wanted.append((len(context) - 1, start, rest))
            continue
        row = _Row(context)
        further: dict[tuple[int, ...], _Row] = {}
        for rest, start in options:
            row.wanted.append((len(context) - 1, start, rest[:1]))
            if len(rest) > 1:
                option = further.setdefault(rest[:-1], _Row(rest[:-1]))
                option.wanted.append((0, start + 1, rest[1:]))
        row.options = list(further.values())
        shared.append(row)
    return list(rows.values()), shared


def _batches(rows: list[_Row], size: int | None, tokens: int) -> list[list[_Row]]:
    """Cut rows into batches of like length, the longest first."""
    found: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.ids)):
        last = found[-1] if found else []
        longest = len(last[0].ids) if last else 0
        most = size if size is not None else tokens // max(longest, 1)
        if last and len(last) < most:
            last.append(row)
        else:
            found.append([row])
    return found


def _run_whole(forward: Forward, book: _Book, rows: Sequence[_Row]) -> None:
    """Run whole sequences; padding comes last, where causal attention never looks."""
    ids, real = _padded(rows, left=False)
    states = forward.states(ids.to(forward.device), real=real.to(forward.device))
    _read(forward, book, states, rows, [0] * len(rows))


def _run_shared(forward: Forward, book: _Book, rows: Sequence[_Row]) -> None:
    """Run contexts once, then their options from the cache."""
    from equipoise.kit.language._cache import spread

    ids, real = _padded(rows, left=True)
    full = bool(real.all())
    cache = forward.new_cache()
    length = ids.shape[1]
    seen = real.to(forward.device)
    states = forward.states(ids.to(forward.device), seen=None if full else seen, cache=cache)
    _read(forward, book, states, rows, [length - len(row.ids) for row in rows])
    del states
    options = sorted(
        ((option, place) for place, row in enumerate(rows) for option in row.options),
        key=lambda each: -len(each[0].ids),
    )
    while options:
        longest, count, waste = len(options[0][0].ids), 0, 0
        most = max(1, _CACHE_BYTES // (forward.cache_bytes * (length + longest)))
        for option, _ in options[:most]:
            waste += longest - len(option.ids)
            if waste > _WASTE:
                break
            count += 1
        batch, places = zip(*options[:count], strict=True)
        del options[:count]
        ids, real = _padded(batch, left=False)
        new = real.to(forward.device)
        grown = spread([(cache, places)], longest)
        states = forward.states(
            ids.to(forward.device),
            seen=torch.cat([seen[list(places)], new], dim=1),
            cache=grown,
        )
        _read(forward, book, states, batch, [0] * len(batch))


def _read(
    forward: Forward,
    book: _Book,
    states: Tensor,
    rows: Sequence[_Row],
    shifts: Sequence[int],
) -> None:
    """Apply the output layer where a score is wanted, a block of positions at a time."""
    width = states.shape[1]
    spots, tokens, where = [], [], []
    for place, (row, shift) in enumerate(zip(rows, shifts, strict=True)):
        for first, start, wanted in row.wanted:
            base = place * width + shift + first
            spots.append(np.arange(base, base + len(wanted)))
            where.append(np.arange(start, start + len(wanted)))
            tokens.append(np.array(wanted))
    spot, which = np.unique(np.concatenate(spots), return_inverse=True)
    token, place_in_book = np.concatenate(tokens), np.concatenate(where)
    flat = states.reshape(-1, states.shape[-1])
    vocabulary = getattr(forward.config, "vocab_size", None) or states.shape[-1]
    block = max(1, LOGITS_AT_ONCE // vocabulary)
    for start in range(0, len(spot), block):
        here = (which >= start) & (which < start + block)
        index = torch.from_numpy(spot[start : start + block]).to(flat.device)
        logits = forward.logits(flat[index])
        line = torch.from_numpy(which[here] - start).to(flat.device)
        chosen = logits[line, torch.from_numpy(token[here]).to(flat.device)]
        scores = chosen - logits.logsumexp(-1)[line]
        book.log_probs[place_in_book[here]] = scores.double().cpu().numpy()
        book.greedy[place_in_book[here]] = (chosen >= logits.amax(-1)[line]).cpu().numpy()


def _padded(rows: Sequence[_Row], *, left: bool) -> tuple[Tensor, Tensor]:
    """Return ids and the mask of real ones, ``(rows, longest)``."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    real = torch.zeros(len(rows), longest, dtype=torch.bool)
    for place, row in enumerate(rows):
        start = longest - len(row.ids) if left else 0
        ids[place, start : start + len(row.ids)] = torch.tensor(row.ids)
        real[place, start : start + len(row.ids)] = True
    return ids, real
