"""Perplexity of whole batches: for what is done to a model batch by batch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Json,
    Outcome,
    Prompt,
    Rng,
    ScoreSpec,
    ScoresText,
    Task,
    TokenScores,
    Unit,
    UnitError,
    between,
    setting,
)
from equipoise.kit.data import content_hash, read_texts
from equipoise.kit.language.canned import CannedScores
from equipoise.kit.language.talk import each, error_outcome
from equipoise.kit.language.tokens import known_tokens


@dataclass(frozen=True)
class BatchPerplexity(Task):
    r"""Negative log-likelihood of batches of windows, each batch through the model at once.

    A unit is a batch, or a stream of them in order, so that a subject whose answers depend
    on their company (`probe_pruning`) has the same company every time: neither the batch size
    of the subject nor the order of units changes a score. Batches take turns among the texts:
    the first is of the first text, the next of the second, and so on; ``mixed`` batches hold
    windows of all texts in turn. Windows of a text do not overlap, and the first token of
    each is context only. Over the n scored tokens of a unit,

    $$\mathrm{nll} = -\frac{1}{n} \sum_t \log p(t \mid \text{window before } t).$$

    ``gflop`` counts the multiplications and additions that matrix products of a local model
    take, the same on every machine; ``seconds`` is the time it took here. ``overlap`` is the share
    of pruned units that successive batches of a stream have in common, the mean over blocks;
    it is missing where streams have one batch, or nothing is pruned.

    Parameters
    ----------
    batches
        How many units: batches, or streams of them.
    size
        Windows in a batch.
    length
        Tokens in a window, of the subject's own tokenizer.
    stream
        Batches in a stream; the history of `probe_pruning` moves from one to the next.
    mixed
        Whether every batch holds windows of all texts.
    data
        Texts, each as for `perplexity`.

    Examples
    --------
    >>> task = BatchPerplexity(batches=2, size=2, length=8)
    >>> task.perform(task.oracle(), list(task.units(Rng(0))), Rng(0))[0].scores["tokens"]
    14.0
    """

    batches: int = between(1, 1_000_000, default=16)
    size: int = between(1, 100_000, default=10)
    length: int = between(2, 1_000_000, default=64)
    stream: int = between(1, 100_000, default=1)
    mixed: bool = False
    data: tuple[str, ...] = setting(("builtin:sklearn_descriptions", "builtin:python_code"))

    needs: ClassVar[frozenset[Capability]] = frozenset({ScoresText})
    batch: ClassVar[int] = 4  # units are large: what is done is stored often
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("nll", False, unit="nats per token"),
        ScoreSpec("log_likelihood", True, unit="nats"),
        ScoreSpec("tokens", None, unit="tokens"),
        ScoreSpec("gflop", False, unit="GFLOP"),
        ScoreSpec("seconds", False, unit="s"),
        ScoreSpec("overlap", None, 0.0, 1.0),
    )

    def content(self) -> Json:
        return [content_hash(text) for text in self.data]

    @classmethod
    def tiny(cls) -> Self:
        return cls(batches=2, size=2, length=8, stream=2)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the streams, whose number depends on no subject; ``rng`` is not used."""
        alone = self.stream == 1 and not self.mixed
        for index in range(self.batches):
            first = index * self.stream
            stratum = self.data[first % len(self.data)] if alone else None
            numbers = list(range(first, first + self.stream))
            yield Unit(f"stream-{index:04d}", content={"batches": numbers}, stratum=stratum)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        texts = [known_tokens(subject, "\n\n".join(read_texts(text))) for text in self.data]
        whole = _together(subject, self.size)

        def one(unit: Unit) -> Outcome:
            batches = [self._windows(texts, batch) for batch in unit.content["batches"]]
            return self._outcome(unit, whole, batches)

        found = [each(lambda units: [one(*units)], [unit])[0] for unit in units]
        return [
            error_outcome(unit, result) if isinstance(result, UnitError) else result
            for unit, result in zip(units, found, strict=True)
        ]

    def oracle(self) -> CannedScores:
        """Return a subject to which the text is certain."""
        return CannedScores()

    def constant(self) -> CannedScores:
        """Return a subject to which every byte is as likely as any other."""
        return CannedScores(_never, wrong=-math.log(256))

    def _windows(self, texts: Sequence[list[int]], batch: int) -> list[list[int]]:
        """Return the windows of a batch, each of which no other batch has."""
        many, found = len(texts), []
        for row in range(self.size):
            if self.mixed:
                place, which = divmod(batch * self.size + row, many)
            else:
                turn, which = divmod(batch, many)
                place = turn * self.size + row
            end = (place + 1) * self.length
            if end > len(texts[which]):
                raise UnitError(
                    f"BatchPerplexity: {self.data[which]} has {len(texts[which]):,} tokens, too"
                    f" few for window {place + 1} of {self.length}: ask for fewer or smaller"
                    " batches.",
                    "too_short",
                )
            found.append(texts[which][place * self.length : end])
        return found

    def _outcome(self, unit: Unit, subject: Any, batches: Sequence[list[list[int]]]) -> Outcome:
        module = getattr(subject, "module", None)
        scores: list[TokenScores] = []
        masks = []
        flops = 0
        began = time.perf_counter()
        with _stream(module):
            for batch in batches:
                pairs = [(window[:1], window[1:]) for window in batch]
                with _counter(module) as counter:
                    scores += subject.log_likelihood(pairs)
                flops += 0 if counter is None else counter.get_total_flops()
                masks.append(_masks(module))
        seconds = time.perf_counter() - began
        total = math.fsum(score.total for score in scores)
        tokens = sum(len(score.log_probs) for score in scores)
        found = {"nll": -total / tokens, "log_likelihood": total, "tokens": float(tokens)}
        if module is not None:
            found |= {"gflop": flops / 1e9, "seconds": seconds}
        shared = [_overlap(one, two) for one, two in pairwise(masks) if one]
        if shared:
            found["overlap"] = float(np.mean(shared))
        return Outcome(
            unit.id, scores=found, output={"perplexity": math.exp(min(-total / tokens, 700.0))}
        )


def _never(prompt: Prompt) -> str:
    return ""


def _together(subject: Any, size: int) -> Any:
    """Return the subject with batches of ``size`` where it is a local model.

    A subject around it that rewrites prompts leaves windows of tokens as they are.
    """
    if not hasattr(subject, "module"):
        return subject
    from equipoise.kit.language.local import LanguageModel
    from equipoise.kit.language.wrap import Rewritten

    inner = subject
    while isinstance(inner, Rewritten):
        inner = inner.subject
    if type(inner) is not LanguageModel:
        return subject
    made = LanguageModel(inner.module, inner.tokenizer, batch_size=size, name=inner.name)
    # The first pass of a model tries out how its logits come about, which is no batch of ours.
    made.log_likelihood([([0], [0])])
    return made


def _stream(module: Any) -> AbstractContextManager[None]:
    if module is None:
        return nullcontext()
    from equipoise.methods.pruning._online import batch_stream

    return batch_stream(module)


def _counter(module: Any) -> AbstractContextManager[Any]:
    if module is None:
        return nullcontext()
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)


def _masks(module: Any) -> dict[str, Any]:
    if module is None:
        return {}
    from equipoise.methods.pruning._online import kept_units

    return kept_units(module)


def _overlap(one: dict[str, Any], two: dict[str, Any]) -> float:
    from equipoise.methods.pruning._scores import mask_overlap

    found = [mask_overlap(one[name][0], two[name][0], one[name][1]) for name in one]
    return float(np.mean(found))
