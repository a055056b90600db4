"""The edit report: how far an edited language model is from the one it was made of."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    HasModule,
    Json,
    Outcome,
    Rng,
    ScoreSpec,
    ScoresText,
    Subject,
    Task,
    Unit,
    UnitError,
    Usage,
    between,
    setting,
)
from equipoise.kit.about import about
from equipoise.kit.data import content_hash, read_texts
from equipoise.kit.language.talk import each, error_outcome

_CHARACTERS = 16
"""Characters that are sure to hold a token; more would be tokenised for nothing."""


@dataclass(frozen=True)
class EditReport(Task):
    r"""What an edit did to a language model, beside what it did to the tasks.

    In windows of prose spread over the text, with p the reference's next-token
    distribution and q the subject's after the same tokens:

    - ``kl``, the mean of $\mathrm{KL}(p \| q) = \sum_v p_v \ln(p_v / q_v)$ over
      the window's tokens but the first;
    - ``agreement``, the share of tokens after which both find the same token
      likeliest.

    Each outcome also holds the share of the reference's weights that changed,
    the bytes of the subject's tensors as they lie in memory (a quantised model
    that is simulated in floating point is no smaller), the most memory its
    forward passes took besides, what its making had to say, and the seconds of
    its forward pass. A subject with another tokenizer has no scores.

    A trial adds this task, as ``edit``, whenever an arm edits the module of a
    language model; ``edit_report: false`` in the trial file leaves it out.

    Parameters
    ----------
    reference
        The subject before the edit.
    windows
        How many windows.
    length
        Tokens in a window.
    data
        Prose, as for `Perplexity`.

    Examples
    --------
    >>> task = EditReport.tiny()
    >>> outcome = task.contrast(task.oracle(), task.oracle(), list(task.units(Rng(0))), Rng(0))[0]
    >>> outcome.scores
    {'kl': 0.0, 'agreement': 1.0}
    """

    reference: Subject
    windows: int = between(1, 100_000, default=8)
    length: int = between(2, 100_000, default=128)
    data: str = setting("builtin:sklearn_descriptions")

    needs: ClassVar[frozenset[Capability]] = frozenset({ScoresText, HasModule})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("kl", False, low=0.0, unit="nats per token"),
        ScoreSpec("agreement", True, low=0.0, high=1.0),
    )

    def content(self) -> Json:
        return content_hash(self.data)

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.language.hf import HuggingFace

        return cls(HuggingFace.tiny(), windows=2, length=16)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the windows, whose number depends on no subject; ``rng`` is not used."""
        for index in range(self.windows):
            yield Unit(f"window-{index:04d}", content={"window": index})

    def contrast(
        self, subject: Any, reference: Any, units: Sequence[Unit], rng: Rng
    ) -> list[Outcome]:
        text = "\n\n".join(read_texts(self.data))
        pieces = [self._piece(text, unit) for unit in units]
        found = each(lambda wanted: [self._window(subject, piece) for piece in wanted], pieces)
        windows = [window for window in found if not isinstance(window, UnitError)]
        theirs = (reference.tokenize(piece)[: self.length] for piece in pieces)
        alike = reference is subject or all(
            isinstance(own, UnitError) or own == list(other)
            for own, other in zip(found, theirs, strict=True)
        )
        facts = _facts(subject, reference, windows[0]) if windows else {}
        return [
            error_outcome(unit, window)
            if isinstance(window, UnitError)
            else self._outcome(
                unit,
                window,
                subject,
                reference if alike else None,
                # Curves are long and the same for every window.
                facts if window is windows[0] else facts | {"curves": {}},
            )
            for unit, window in zip(units, found, strict=True)
        ]

    def oracle(self) -> Any:
        """Return the reference itself."""
        return self.reference.load(Rng(0))

    def constant(self) -> Any:
        """Return a model to which every token is as likely as any other."""
        from torch import nn

        from equipoise.kit.language.tiny import tiny_model
        from equipoise.kit.torch.copies import copy_module, output_head

        live = tiny_model()
        module = copy_module(live.module)
        head: Any = output_head(module)
        head.weight = nn.Parameter(head.weight * 0, requires_grad=False)
        return live.with_module(module)

    def _piece(self, text: str, unit: Unit) -> str:
        """Return the text that a window is taken from; pieces lie evenly and do not overlap."""
        size = len(text) // self.windows
        start = unit.content["window"] * size
        piece = text[start : start + min(size, _CHARACTERS * self.length)]
        return piece if start == 0 else piece[piece.find(" ") + 1 :]

    def _window(self, subject: Any, piece: str) -> list[int]:
        """Return a window's tokens."""
        ids = list(subject.tokenize(piece))
        if len(ids) < self.length:
            raise UnitError(
                f"EditReport: {self.data} is too short for {self.windows} windows of"
                f" {self.length} tokens; ask for fewer or shorter ones.",
                "too_short",
            )
        return ids[: self.length]

    def _outcome(
        self, unit: Unit, window: list[int], subject: Any, reference: Any, facts: dict[str, Json]
    ) -> Outcome:
        import torch

        from equipoise.kit.language.divergence import kl_divergence, next_token_logits

        began = time.perf_counter()
        logits = next_token_logits(subject.module, torch.tensor(window))
        seconds = time.perf_counter() - began
        scores = {}
        if reference is not None:
            wanted = next_token_logits(reference.module, torch.tensor(window))
            # Models of one tokenizer may differ in how far their vocabulary is padded.
            common = min(wanted.shape[-1], logits.shape[-1])
            wanted, logits = wanted[1:, :common].to(logits.device), logits[1:, :common]
            same = wanted.argmax(-1) == logits.argmax(-1)
            scores = {
                "kl": float(kl_divergence(wanted, logits).mean()),
                "agreement": float(same.float().mean()),
            }
        return Outcome(
            unit.id,
            scores=scores,
            output=facts,
            usage=Usage(input_tokens=len(window)),
            seconds=seconds,
        )


def _facts(subject: Any, reference: Any, window: list[int]) -> dict[str, Json]:
    """Return what is true of the whole subject; its first forward pass is the one watched."""
    import torch

    from equipoise.kit.language.divergence import (
        next_token_logits,
        share_changed,
        size_in_bytes,
    )
    from equipoise.kit.memory import peak_memory

    with peak_memory(subject.device) as peak:
        next_token_logits(subject.module, torch.tensor(window))
    return {
        "changed": share_changed(reference.module, subject.module),
        "bytes": size_in_bytes(subject.module),
        "reference_bytes": size_in_bytes(reference.module),
        "working_bytes": peak.bytes,
        **about(subject),
    }
