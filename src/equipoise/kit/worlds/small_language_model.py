"""A transformer of a few million parameters that learns one kind of text from scratch.

Words, digits and marks are its tokens. The words it knows are a buffer of the
module, so that a trained model is all in its ``state_dict``. Numbers are read
digit by digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from equipoise.kit.torch.threads import one_thread
from equipoise.kit.worlds.words import ANSWER, END, LONGEST, PAD, SPECIAL, START, Words

_BACK = 3
_QUESTION = 0.2


class SmallTransformer(nn.Module):
    """A decoder with rotary positions, RMS norms and tied embeddings.

    Parameters
    ----------
    width
        Size of a token's vector, a multiple of ``2 * heads``.
    layers, heads
        How many.
    tokens
        Size of the vocabulary, special tokens included.
    """

    words: Tensor

    def __init__(self, width: int, layers: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width, padding_idx=PAD)
        # What stood before a token is added to it, so that one layer of attention
        # can find "the place after the last time I saw this" and copy from there.
        self.back = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(_BACK))
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.register_buffer("words", torch.zeros(tokens - SPECIAL, LONGEST, dtype=torch.uint8))
        self.shape = (width, layers, heads, tokens)
        self.heads, self.size = heads, width // heads

    def untaught(self) -> SmallTransformer:
        """Return a model of the same shape, its weights yet to be filled in."""
        return SmallTransformer.blank(*self.shape)

    @classmethod
    def blank(cls, width: int, layers: int, heads: int, tokens: int) -> SmallTransformer:
        """Return a model whose weights are yet to be drawn or filled in."""
        # Layers draw from torch's global generator when they are made.
        with torch.random.fork_rng(devices=[]):
            return cls(width, layers, heads, tokens)

    def start(self, generator: torch.Generator) -> None:
        """Draw the first weights."""
        spread = 0.02
        with torch.no_grad():
            for name, tensor in self.named_parameters():
                scale = spread
                if tensor.dim() == 1:
                    continue
                if name.startswith(("embed", "back")):
                    scale = tensor.shape[1] ** -0.5
                elif ".out." in name:
                    # Outputs of layers add up, so they begin smaller the more layers there are.
                    scale = spread / (2 * len(self.blocks)) ** 0.5
                tensor.normal_(0.0, scale, generator=generator)
            self.embed.weight[PAD] = 0

    def forward(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return states ``(batch, tokens, width)`` before the output layer.

        ``mask`` is true where a query may look, ``(batch, 1, queries, keys)``;
        without one, each token sees those before it.
        """
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        turn = _rotations(positions, self.size)
        before = torch.full((len(ids), _BACK), PAD, device=ids.device)
        if cache is not None:
            before, cache.last = cache.last, torch.cat([cache.last, ids], 1)[:, -_BACK:]
        vectors = self.embed(torch.cat([before, ids], 1))
        x = vectors[:, _BACK:]
        for distance, mix in enumerate(self.back, start=1):
            x = x + mix(vectors[:, _BACK - distance : vectors.shape[1] - distance])
        for layer, block in enumerate(self.blocks):
            x = block(x, turn, mask, cache, layer)
        states: Tensor = self.norm(x)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Return scores of the next token."""
        return functional.linear(states, self.embed.weight)


class Cache:
    """Keys and values of what has been read, in room taken once."""

    def __init__(self, model: SmallTransformer, batch: int, room: int) -> None:
        shape = (len(model.blocks), 2, batch, model.heads, room, model.size)
        self.held = torch.zeros(shape, device=model.embed.weight.device)
        self.last = torch.full((batch, _BACK), PAD, device=self.held.device)
        self.length = 0

    def add(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + key.shape[2]
        self.held[layer, 0, :, :, self.length : end] = key
        self.held[layer, 1, :, :, self.length : end] = value
        return self.held[layer, 0, :, :, :end], self.held[layer, 1, :, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Drop the sequences that have ended."""
        self.held, self.last = self.held[:, :, rows].contiguous(), self.last[rows]


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.ModuleDict(
            {
                "attention": nn.Linear(width, width, bias=False),
                "hidden": nn.Linear(4 * width, width, bias=False),
            }
        )
        self.between = nn.RMSNorm(width)
        self.hidden = nn.Linear(width, 4 * width, bias=False)

    def forward(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        mask: Tensor | None,
        cache: Cache | None,
        layer: int,
    ) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        query, key = _turned(query, turn), _turned(key, turn)
        if cache is not None:
            key, value = cache.add(layer, key, value)
        seen = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        x = x + self.out["attention"](seen.transpose(1, 2).reshape(batch, length, width))
        after: Tensor = x + self.out["hidden"](functional.gelu(self.hidden(self.between(x))))
        return after


def _rotations(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    rates = 1_000.0 ** (-torch.arange(0, size, 2, device=positions.device) / size)
    angles = positions[:, None, :, None] * rates
    return angles.cos(), angles.sin()


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = turn
    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * cosine - two * sine, two * cosine + one * sine], dim=-1)


def train(
    model: SmallTransformer,
    pairs: Sequence[tuple[str, str]],
    *,
    steps: int,
    batch_tokens: int,
    rate: float,
    seed: int,
    report: Callable[[int, float], None] | None = None,
) -> float:
    """Teach a model, in place, to continue the first text of a pair by the second.

    Pairs of about the same length make a batch. The loss counts a question's
    tokens too, at a fifth: what they repeat teaches the model to look things up.
    One thread does it, so the number of processors does not move the result.

    Parameters
    ----------
    model
        Its weights and its words are overwritten.
    pairs
        Texts asked and answers.
    steps
        Updates of the weights.
    batch_tokens
        Tokens in a batch, padding included.
    rate
        Peak learning rate of AdamW; it rises over a twentieth of the steps
        and falls to a twentieth of itself by a cosine.
    seed
        Of the first weights and of the order.

    Returns
    -------
    float
        Mean weighted loss in nats per token over the last twentieth of the steps.
    """
    generator = torch.Generator().manual_seed(seed)
    model.start(generator)
    words = Words.learn((text for pair in pairs for text in pair), len(model.words))
    model.words.copy_(words.as_tensor(len(model.words)))
    batches = _batches(words, pairs, batch_tokens, np.random.default_rng(seed))
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
        lr=rate, betas=(0.9, 0.98), foreach=True,
    )  # fmt: skip
    losses = []
    with one_thread():
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate * _schedule(step, steps)
            loss = _loss(model, next(batches))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
            if report is not None:
                report(step, losses[-1])
    return float(np.mean(losses[-max(1, steps // 20) :]))


def _schedule(step: int, steps: int) -> float:
    rise = min(1.0, (step + 1) / max(1.0, 0.05 * steps))
    return float(rise * (0.05 + 0.475 * (1 + np.cos(np.pi * step / steps))))


def _loss(model: SmallTransformer, ids: Tensor) -> Tensor:
    wanted, real = ids[:, 1:], ids[:, 1:] != PAD
    weight = torch.where((ids == ANSWER).cumsum(1)[:, :-1] > 0, 1.0, _QUESTION)[real]
    scores = model.logits(model(ids[:, :-1])[real])
    each = functional.cross_entropy(scores, wanted[real], reduction="none")
    return (weight * each).sum() / weight.sum()


def _batches(
    words: Words, pairs: Sequence[tuple[str, str]], batch_tokens: int, draws: np.random.Generator
) -> Iterator[Tensor]:
    sequences = []
    for asked, answer in pairs:
        sequences.append([START, *words.encode(asked), ANSWER, *words.encode(answer), END])
    lengths = np.array([len(ids) for ids in sequences])
    while True:
        # Sorting within a jitter of a few tokens mixes what stands together.
        order = np.argsort(lengths + draws.uniform(0, 8, len(lengths)), kind="stable")
        groups: list[list[int]] = [[]]
        for index in order:
            longest = max((lengths[i] for i in groups[-1]), default=0)
            if (len(groups[-1]) + 1) * max(longest, lengths[index]) > batch_tokens and groups[-1]:
                groups.append([])
            groups[-1].append(int(index))
        for at in draws.permutation(len(groups)):
            yield _padded([sequences[i] for i in groups[at]])


def _padded(chosen: Sequence[list[int]]) -> Tensor:
    table = torch.full((len(chosen), max(map(len, chosen))), PAD)
    for row, ids in enumerate(chosen):
        table[row, : len(ids)] = torch.tensor(ids)
    return table


@torch.inference_mode()
def answer(
    model: SmallTransformer, prompts: Sequence[str], limits: Sequence[int], batch: int = 64
) -> list[tuple[str, bool, int, int]]:
    """Continue prompts greedily.

    Returns
    -------
    list of (text, ended, tokens read, tokens written)
        ``ended`` is false where the limit cut the answer.
    """
    words = Words.from_tensor(model.words)
    asked = [[START, *words.encode(prompt), ANSWER] for prompt in prompts]
    order = sorted(range(len(asked)), key=lambda i: (len(asked[i]), i))
    found: list[Any] = [None] * len(asked)
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        written = _greedy(model, [asked[i] for i in chosen], [limits[i] for i in chosen])
        for i, (ids, ended) in zip(chosen, written, strict=True):
            found[i] = (words.decode(ids), ended, len(asked[i]), len(ids))
    return found


def _greedy(
    model: SmallTransformer, asked: Sequence[list[int]], limits: Sequence[int]
) -> list[tuple[list[int], bool]]:
    longest, count = max(map(len, asked)), len(asked)
    device = model.embed.weight.device
    ids = torch.full((count, longest), PAD)
    for row, tokens in enumerate(asked):
        ids[row, longest - len(tokens) :] = torch.tensor(tokens)
    ids = ids.to(device)
    real = ids != PAD
    positions = (real.cumsum(1) - 1).clamp(min=0)
    causal = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    # A padded query looks at itself, or its softmax would have nothing to sum.
    itself = torch.eye(longest, dtype=torch.bool, device=device)
    mask = (causal & real[:, None, None, :]) | itself
    cache = Cache(model, count, longest + max(limits))
    states = model(ids, positions, mask, cache)[:, -1:]
    cache.length = longest
    rows = torch.arange(count, device=device)
    out: list[list[int]] = [[] for _ in asked]
    ended = [False] * count
    place = positions[:, -1:]
    seen = torch.cat([real, torch.ones(count, max(limits), dtype=torch.bool, device=device)], 1)
    for _ in range(max(limits)):
        chosen = model.logits(states[:, -1]).argmax(-1)
        stay = []
        for at, (row, token) in enumerate(zip(rows.tolist(), chosen.tolist(), strict=True)):
            if token == END:
                ended[row] = True
                continue
            out[row].append(token)
            if len(out[row]) < limits[row]:
                stay.append(at)
        if not stay:
            break
        if len(stay) < len(rows):
            kept = torch.tensor(stay, device=device)
            rows, chosen, place, seen = rows[kept], chosen[kept], place[kept], seen[kept]
            cache.keep(kept)
        place = place + 1
        mask = seen[:, None, None, : cache.length + 1]
        states = model(chosen[:, None], place, mask, cache)
        cache.length += 1
    return list(zip(out, ended, strict=True))
