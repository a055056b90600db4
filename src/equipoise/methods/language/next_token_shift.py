"""How far and how unsure the next token is on a task's questions, against an untreated model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from equipoise.core import (
    Capability,
    HasModule,
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UnitError,
    UsageError,
)
from equipoise.kit.language.talk import each, error_outcome


@dataclass(frozen=True)
class NextTokenShift(Task):
    r"""What a change did to the first new token after prompts, beside what it did to answers.

    With $p_0$ the reference's distribution over the whole vocabulary and
    $p$ the subject's, after the same tokens: ``kl``, $\mathrm{KL}(p_0 \| p)$ as
    in `equipoise.methods.steering.intervention_kl`; ``entropy`` of p;
    ``entropy_change``, that less the entropy of $p_0$, all in nats; and
    ``agreement``, whether both find the same token likeliest.

    Parameters
    ----------
    data
        A task whose test questions are the prompts, such as ``ioi``.
    reference
        The untreated subject.

    References
    ----------
    "Improving Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    >>> task = NextTokenShift.tiny()
    >>> unit, *_ = task.units(Rng(0))
    >>> task.contrast(task.oracle(), task.oracle(), [unit], Rng(0))[0].scores["kl"]
    0.0
    """

    data: Task
    reference: Subject

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("kl", False, low=0, unit="nats"),
        ScoreSpec("entropy", None, low=0, unit="nats"),
        ScoreSpec("entropy_change", None, unit="nats"),
        ScoreSpec("agreement", True, 0, 1),
    )

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.language.hf import HuggingFace
        from equipoise.methods.language.multiple_choice import MultipleChoice

        return cls(MultipleChoice.tiny(), HuggingFace.tiny())

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the prompts of the task's test units."""
        example = getattr(self.data, "example", None)
        if example is None:
            raise UsageError(
                f"NextTokenShift: {type(self.data).__name__} does not say how its units are shown;"
                " give a task with a method example(unit)."
            )
        for unit in self.data.units(rng):
            if unit.split == "test":
                yield Unit(
                    unit.id,
                    content={"prompt": str(example(unit)[0])},
                    cluster=unit.cluster,
                    stratum=unit.stratum,
                )

    def contrast(
        self, subject: Any, reference: Any, units: Sequence[Unit], rng: Rng
    ) -> list[Outcome]:
        def compared(some: Sequence[Unit]) -> list[Outcome]:
            return _compared(subject, reference, some)

        return [
            error_outcome(unit, found) if isinstance(found, UnitError) else found
            for unit, found in zip(units, each(compared, units), strict=True)
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


def _compared(subject: Any, reference: Any, units: Sequence[Unit]) -> list[Outcome]:
    from equipoise.kit.language.distributions import intervention_kl, next_token_entropy
    from equipoise.kit.language.states import next_token_log_probs, prompt_ids

    prompts = [unit.content["prompt"] for unit in units]
    mine = [prompt_ids(subject, prompt) for prompt in prompts]
    if mine != [prompt_ids(reference, prompt) for prompt in prompts]:
        raise UsageError("NextTokenShift: subject and reference must read text by one tokenizer.")
    theirs = next_token_log_probs(reference, mine)
    log_probs = next_token_log_probs(subject, mine)
    before, after = next_token_entropy(theirs), next_token_entropy(log_probs)
    far = intervention_kl(theirs, log_probs)
    same = theirs.argmax(1) == log_probs.argmax(1)
    return [
        Outcome(
            unit.id,
            {
                "kl": float(far[line]),
                "entropy": float(after[line]),
                "entropy_change": float(after[line] - before[line]),
                "agreement": float(same[line]),
            },
        )
        for line, unit in enumerate(units)
    ]
