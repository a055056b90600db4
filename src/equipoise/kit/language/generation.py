r"""Generation from a local causal model: batched, seeded request by request.

Requests of one batch share forward passes and nothing else. Rows are padded on
the left; equal prompts, and the ``n`` samples of one request, share their
prefill; a row that has ended leaves the batch. Models with recurrent states,
which cannot be spread over rows, generate one sample at a time.

**Sampling.** With temperature $T$ and logits $z$ the probabilities are
$p_i \propto \exp(z_i / T)$. With ``top_p`` below 1 only the fewest most probable
tokens whose mass reaches it are kept (equal ones: lower id first). A token is
drawn by inverting the cumulative distribution, in the order of token ids, at one
uniform number from the stream of (seed, sample). The order of ids, rather than
of probabilities, keeps two nearly equal tokens from changing places. A request
without a seed has seed 0.

**What batching may change.** Sums of floats depend on the shapes of matrices.
In float32 log-probabilities move by less than 1e-4; a greedy choice can differ
only where the two best tokens are that close, and a sampled one only where the
uniform number is that close to a boundary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.core import Generation, Request, UnitError, Usage, UsageError
from equipoise.kit.language._forward import LOGITS_AT_ONCE, Forward
from equipoise.kit.language._prompts import Prompts
from equipoise.kit.language.tools import calls_in

_MOST_ROWS = 128  # larger batches are hardly faster and hold more memory
_CACHE_BYTES = 2 << 30
_BEFORE = 4  # prompt tokens that an answer is decoded behind


def generate(
    forward: Forward,
    prompts: Prompts,
    requests: Sequence[Request],
    *,
    batch_size: int | None = None,
    batch_tokens: int = 1024,
) -> list[Generation]:
    """Answer requests, in order.

    Log-probabilities are those of the model itself, before temperature and
    ``top_p``; there is one for every token generated, including the one that
    ends the text and those of a stop string.

    Parameters
    ----------
    forward, prompts
        The model and its tokenizer.
    requests
        What to generate from.
    batch_size
        Most samples generated at once; by default as many as a key-value cache
        of 2 GiB holds, at most 128.
    batch_tokens
        Most prompt tokens that go through the model at once.

    Raises
    ------
    UsageError
        If a request asks for what cannot be.
    UnitError
        If a prompt fills the model's context.
    """
    for request in requests:
        _check(request, prompts.name)
    rows: list[_Row] = []
    sizes = []
    ends = _ends(forward, prompts)
    for number, request in enumerate(requests):
        ids = tuple(prompts.ids(request.prompt, request.tools))
        room = request.max_tokens if forward.limit is None else forward.limit - len(ids)
        if room < 1 <= request.max_tokens:
            raise UnitError(
                f"{prompts.name}: a prompt of {len(ids)} tokens leaves no room in a context of"
                f" {forward.limit}; shorten it.",
                kind="too_long",
            )
        sizes.append(len(ids))
        most = min(request.max_tokens, room)
        samples = request.n if request.temperature > 0 else 1  # greedy ones are all alike
        rows += [_Row(number, sample, ids, most, request) for sample in range(samples)]
    waiting = sorted(
        (row for row in rows if row.most > 0),
        key=lambda row: (-len(row.prompt), row.prompt, row.request, row.sample),
    )
    while waiting:
        size = _fit(waiting, forward, batch_size)
        _run(waiting[:size], forward, prompts, ends, batch_tokens)
        del waiting[:size]
    found: list[list[_Row]] = [[] for _ in requests]
    for row in rows:
        found[row.request].append(row)
    return [
        _generation(request, size, drawn if len(drawn) == request.n else drawn * request.n)
        for request, size, drawn in zip(requests, sizes, found, strict=True)
    ]


@dataclass(slots=True)
class _Row:
    """One sample under way."""

    request: int
    sample: int
    prompt: tuple[int, ...]
    most: int
    asked: Request
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish: str = ""
    text: str = ""
    before: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    uniform: np.random.Generator | None = None

    def __post_init__(self) -> None:
        if isinstance(self.asked.prompt, str) and not self.asked.tools:
            self.before = self.prompt[-_BEFORE:]  # the text goes on from there
        if self.asked.temperature > 0:
            seed = (self.asked.seed or 0) % 2**64
            self.uniform = np.random.default_rng([seed, self.sample])
        if self.most == 0:
            self.finish = "length"

    def add(self, token: int, log_prob: float | None, ends: frozenset[int], by: Prompts) -> bool:
        """Take in a token and say whether the sample has ended."""
        self.tokens.append(token)
        if log_prob is not None:
            self.log_probs.append(log_prob)
        if token in ends:
            self._end("stop", self.tokens[:-1], by)
        elif self.asked.stop and self._stopped(by):
            self._end("stop", self.tokens, by)
        elif len(self.tokens) >= self.most:
            self._end("length", self.tokens, by)
        return bool(self.finish)

    def _stopped(self, by: Prompts) -> bool:
        # A token stands for a byte at least, so that a stop string that has just
        # been completed lies within as many tokens as it has bytes; a few more
        # make up for a character cut in two.
        reach = max(len(stop.encode()) for stop in self.asked.stop) + _BEFORE
        early = max(0, len(self.tokens) - reach)
        before = (*self.before, *self.tokens[:early])[-_BEFORE:]
        recent = by.decode(self.tokens[early:], before)
        return any(stop in recent for stop in self.asked.stop)

    def _end(self, finish: str, tokens: Sequence[int], by: Prompts) -> None:
        text = by.decode(tokens, self.before)
        if self.asked.log_probs:
            ids = [*self.before, *self.tokens]
            at = len(self.before)
            self.pieces = tuple(
                by.decode([token], ids[max(0, place - _BEFORE) : place])
                for place, token in enumerate(self.tokens, at)
            )
        cuts = [text.find(stop) for stop in self.asked.stop if stop in text]
        self.finish = "stop" if cuts else finish
        self.text = text[: min(cuts)] if cuts else text


def _run(
    rows: list[_Row],
    forward: Forward,
    prompts: Prompts,
    ends: frozenset[int],
    batch_tokens: int,
) -> None:
    """Generate one batch to its end; rows come longest prompt first, equal ones together."""
    from equipoise.kit.language._cache import keep

    logits, cache, seen = _prefill(rows, forward, batch_tokens, max(row.most for row in rows) - 1)
    live = list(rows)
    while True:
        tokens, log_probs = next_tokens(logits, live)
        alive = [
            place
            for place, row in enumerate(live)
            if not row.add(
                int(tokens[place]),
                float(log_probs[place]) if row.asked.log_probs else None,
                ends,
                prompts,
            )
        ]
        if not alive:
            return
        if len(alive) < len(live):
            order = keep(cache, alive, len(live))
            live = [live[place] for place in order]
            tokens = tokens[order]
            seen = None if seen is None else seen[order]
        if seen is not None:
            seen = torch.cat([seen, seen.new_ones(len(live), 1)], dim=1)
        new = torch.from_numpy(tokens)[:, None].to(forward.device)
        logits = forward.logits(forward.states(new, seen=seen, cache=cache)[:, -1])


def _prefill(
    rows: list[_Row], forward: Forward, batch_tokens: int, room: int
) -> tuple[Tensor, Any, Tensor | None]:
    """Run the distinct prompts and return logits, cache and mask with one entry a row."""
    from equipoise.kit.language._cache import plain, spread

    distinct = list(dict.fromkeys(row.prompt for row in rows))
    uses = dict.fromkeys(distinct, 0)
    for row in rows:
        uses[row.prompt] += 1
    mixes = plain(forward.new_cache())
    parts: list[tuple[Any, list[int]]] = []
    logits = []
    start = 0
    while start < len(distinct):
        length = len(distinct[start])
        count = max(1, batch_tokens // length) if mixes else len(distinct)
        chunk = distinct[start : start + count]
        start += count
        ids = torch.zeros(len(chunk), length, dtype=torch.long)
        seen = torch.zeros(len(chunk), length, dtype=torch.bool)
        for place, prompt in enumerate(chunk):
            ids[place, length - len(prompt) :] = torch.tensor(prompt)
            seen[place, length - len(prompt) :] = True
        cache = forward.new_cache()
        states = forward.states(
            ids.to(forward.device),
            seen=None if bool(seen.all()) else seen.to(forward.device),
            cache=cache,
        )
        index = [place for place, prompt in enumerate(chunk) for _ in range(uses[prompt])]
        logits.append(forward.logits(states[:, -1])[torch.tensor(index, device=states.device)])
        parts.append((cache, index))
    lengths = torch.tensor([len(row.prompt) for row in rows], device=forward.device)
    longest = int(lengths.max())
    seen_rows = torch.arange(longest, device=forward.device) >= (longest - lengths)[:, None]
    return (
        torch.cat(logits),
        spread(parts, room, empty=True) if forward.spreads else parts[0][0],
        None if bool(seen_rows.all()) else seen_rows,
    )


def next_tokens(logits: Tensor, rows: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Choose a token for each row of logits ``(rows, vocabulary)``.

    Returns tokens ``(rows,)`` and their log-probabilities under the model, NaN
    where no one asked for them.
    """
    tokens = logits.argmax(-1)
    for place, row in enumerate(rows):
        if row.uniform is not None:
            asked: Request = row.asked
            tokens[place] = draw(
                logits[place], asked.temperature, asked.top_p, float(row.uniform.random())
            )
    found = np.full(len(rows), math.nan)
    wanted = [place for place, row in enumerate(rows) if row.asked.log_probs]
    if wanted:
        few = logits[torch.tensor(wanted, device=logits.device)]
        chosen = few.gather(1, tokens[wanted][:, None])[:, 0] - few.logsumexp(-1)
        found[wanted] = chosen.double().cpu().numpy()
    return tokens.cpu().numpy(), found


def draw(logits: Tensor, temperature: float, top_p: float, uniform: float) -> int:
    """Return the token that a uniform number in [0, 1) picks.

    Parameters
    ----------
    logits
        Shape ``(vocabulary,)``.
    temperature
        Above 0.
    top_p
        Mass of the nucleus, in (0, 1].
    uniform
        Where to invert the cumulative distribution.

    Examples
    --------
    >>> logits = torch.tensor([0.5, 0.3, 0.2]).log()
    >>> [draw(logits, 1.0, 1.0, u) for u in (0.49, 0.51, 0.81)]
    [0, 1, 2]
    >>> [draw(logits, 1.0, 0.6, u) for u in (0.49, 0.63, 0.99)]
    [0, 1, 1]
    """
    mass = (logits.double() / temperature).softmax(-1)
    if top_p < 1:
        mass = mass * _nucleus(mass, top_p)
    reached = mass.cumsum(-1)
    place = torch.searchsorted(reached, uniform * reached[-1], right=True)
    # Rounding can carry the number past the end, into tokens of no mass.
    last = int(mass.nonzero()[-1])
    return min(int(place), last)


def _nucleus(mass: Tensor, top_p: float) -> Tensor:
    """Return a mask of the fewest most probable tokens that hold ``top_p`` of the mass."""
    size = min(256, len(mass))  # sorting the whole vocabulary costs more than the model's head
    while True:
        top = mass.topk(size).values
        if size == len(mass) or float(top.sum()) >= top_p:
            break
        size = min(8 * size, len(mass))
    count = int((top.cumsum(-1) < top_p).sum()) + 1
    edge = top[min(count, size) - 1]
    above = mass > edge
    ties = (mass == edge).nonzero()[:, 0][: count - int(above.sum())]
    above[ties] = True
    return above


def _fit(rows: Sequence[_Row], forward: Forward, batch_size: int | None) -> int:
    """Return how many of the waiting rows to take; the first has the longest prompt."""
    if not forward.spreads:
        return 1
    if batch_size is not None:
        return min(batch_size, len(rows))
    longest, most, taken = len(rows[0].prompt), 0, 0
    for row in rows[:_MOST_ROWS]:
        most = max(most, row.most)
        needed = (taken + 1) * (longest + most)
        if taken and needed * forward.cache_bytes > _CACHE_BYTES:
            break
        taken += 1
    by_logits = max(1, 4 * LOGITS_AT_ONCE // (getattr(forward.config, "vocab_size", None) or 1))
    return min(taken, by_logits)


def _ends(forward: Forward, prompts: Prompts) -> frozenset[int]:
    config = getattr(forward.module, "generation_config", None)
    named = getattr(config, "eos_token_id", None)
    found = list(named) if isinstance(named, (list, tuple)) else [named]
    found.append(prompts.tokenizer.eos_token_id)
    return frozenset(int(each) for each in found if each is not None)


def _check(request: Request, name: str) -> None:
    faults = {
        f"n must be an integer of at least 1, got {request.n!r}": request.n < 1,
        f"max_tokens must be an integer of at least 0, got {request.max_tokens!r}": (
            request.max_tokens < 0
        ),
        f"temperature must be a number of at least 0, got {request.temperature!r}": (
            not 0 <= request.temperature < math.inf
        ),
        f"top_p must be above 0 and at most 1, got {request.top_p!r}": not 0 < request.top_p <= 1,
        "a stop string must not be empty": "" in request.stop,
    }
    for fault, found in faults.items():
        if found:
            raise UsageError(f"{name}: {fault}.")


def _generation(request: Request, input_tokens: int, rows: Sequence[_Row]) -> Generation:
    calls = [calls_in(row.text) if request.tools else () for row in rows]
    finish = tuple(
        "tool_calls" if called else row.finish for row, called in zip(rows, calls, strict=True)
    )
    return Generation(
        texts=tuple(row.text for row in rows),
        finish=finish,
        tool_calls=tuple(calls) if request.tools else (),
        log_probs=tuple(np.array(row.log_probs) for row in rows) if request.log_probs else (),
        tokens=tuple(row.pieces for row in rows) if request.log_probs else (),
        usage=Usage(input_tokens, sum(len(row.tokens) for row in rows)),
    )
