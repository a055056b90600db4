r"""A language model taught some preferences, and asked for one it was not taught.

Direct preference optimisation is Bradley-Terry with $s = \beta \log(\pi / \pi_{ref})$: options
are words, a label says with which probability the first of two is preferred, and what the model
then says of two options that never met is as sensitive as the model of preferences says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    HasModule,
    Outcome,
    Rng,
    ScoreSpec,
    Task,
    Treatment,
    Unit,
    UsageError,
    between,
)
from equipoise.methods.alignment._preference_questions import (
    HELD_OUT,
    TAUGHT,
    Tail,
    asked,
    option_tokens,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

_ANIMALS = ("cats", "dogs", "birds")
_BEFORE = "equipoise_before_preferences"


def dpo_loss(margin: Tensor, reference: Tensor, share: Tensor, beta: float) -> Tensor:
    r"""Return the loss of direct preference optimisation with soft labels, a mean over rows.

    .. math:: -p \log\sigma(\beta (m - m_{ref})) - (1 - p) \log\sigma(-\beta (m - m_{ref})),
              \qquad m = \log\pi(w) - \log\pi(l).

    Parameters
    ----------
    margin, reference
        $m$ and $m_{ref}$ of each row, ``(rows,)``.
    share
        $p$, how likely w is preferred to l.
    beta
        How dear it is to leave the reference.

    Examples
    --------
    >>> import torch
    >>> one, none = torch.ones(1), torch.zeros(1)
    >>> round(float(dpo_loss(one, none, one, beta=2.0)), 4)  # -log sigmoid(2)
    0.1269
    """
    from torch.nn.functional import logsigmoid

    d = beta * (margin - reference)
    return -(share * logsigmoid(d) + (1 - share) * logsigmoid(-d)).mean()


@dataclass(frozen=True)
class DPOOnFixedPreferences(Treatment):
    r"""Teach a language model how likely each option is preferred to the next one, and no more.

    Of options A, B, C the pairs A-B and B-C are taught, in both orders, in six questions that end
    where the answer is one word. The last block learns, by full-batch AdamW on `dpo_loss`; states
    below it are computed once. Nothing is drawn at random. The subject keeps what it was before, so
    that `UnseenPreference` can ask how far it moved.

    Parameters
    ----------
    options
        Words that the model's tokenizer has a token for, at least two.
    preferences
        How likely each option is preferred to the next one, from 0 to 1: one fewer than options.
    beta
        $\beta$ of the loss.
    steps
        Updates; 0 changes nothing.
    rate
        Learning rate, falling to nothing by half a cosine.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025;
    Rafailov et al., "Direct Preference Optimization", NeurIPS 2023.

    Examples
    --------
    >>> from equipoise.kit.about import about
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> part = DPOOnFixedPreferences(("a", "b", "c"), (0.9, 0.5), steps=20, rate=0.01)
    >>> curve = about(part.apply(tiny_model(), Rng(0)))["curves"]["loss"]
    >>> curve[-1][1] < curve[0][1]
    True
    """

    options: tuple[str, ...] = _ANIMALS
    preferences: tuple[float, ...] = between(0.0, 1.0, default=(0.99, 0.5))
    beta: float = between(1e-6, 1e6, default=1.0)
    steps: int = between(0, 1_000_000, default=40)
    rate: float = between(0.0, 10.0, default=1e-3)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    edits: ClassVar[frozenset[str]] = frozenset({"linear layers"})

    def check(self) -> None:
        if len(set(self.options)) < max(2, len(self.options)):
            raise UsageError(
                "DPOOnFixedPreferences: options must be at least two different words,"
                f" got {list(self.options)}."
            )
        if len(self.preferences) != len(self.options) - 1:
            raise UsageError(
                f"DPOOnFixedPreferences: {len(self.options)} options take"
                f" {len(self.options) - 1} preferences, each over the next one,"
                f" got {len(self.preferences)}."
            )

    @classmethod
    def tiny(cls) -> Self:
        return cls(("a", "b", "c"), (0.9, 0.5), steps=3, rate=0.01)

    @classmethod
    def null(cls) -> Self:
        """Return the setting that changes nothing."""
        return cls(("a", "b", "c"), steps=0)

    def apply(self, subject: Any, rng: Rng) -> Any:
        from equipoise.kit.about import annotate
        from equipoise.kit.torch.training import Recipe, finished, fit, trainable_copy

        if not self.steps:
            return _knowing(annotate(subject), subject)
        tokens, lead = option_tokens(subject, self.options)
        rows, wins, loses, share = [], [], [], []
        for place, p in enumerate(self.preferences):
            pair = self.options[place : place + 2]
            for question, (x, y) in itertools.product(TAUGHT, (pair, pair[::-1])):
                rows.append(asked(subject, question, x, y, lead))
                wins.append(place)
                loses.append(place + 1)
                share.append(p)
        tail = Tail(subject, rows, tokens)
        learner = trainable_copy(subject.module, tail.parameters)
        target = tail.tensor(share)

        def margin(module: nn.Module) -> Tensor:
            logits = tail(module)
            at = range(len(rows))
            return logits[at, wins] - logits[at, loses]

        reference = margin(subject.module).detach()
        history = fit(
            learner,
            lambda step: [None],
            lambda module, _: dpo_loss(margin(module), reference, target, self.beta),
            recipe=Recipe(steps=self.steps, rate=self.rate, schedule="cosine"),
            rng=rng,
            what="learning preferences",
        )
        notes = [f"DPOOnFixedPreferences: {history.note}"] if history.note else []
        made = finished(learner, subject.module)
        taught = annotate(subject.with_module(made), notes=notes, curves=history.curves())
        return _knowing(taught, subject)


@dataclass(frozen=True)
class UnseenPreference(Task):
    r"""What a model that was taught preferences says of the two options that never met.

    A unit is a held-out question. With $\Delta_{XY}$ the log-ratio of X to Y, less that from before
    `DPOOnFixedPreferences`, both orders averaged, $p_{XY} = \sigma(\beta \Delta_{XY})$. Scores:
    ``unseen``, $p_{AC}$ of the first and the last option; ``taught_first`` and ``taught_last``, the
    first and the last taught pair; ``implied``, what Bradley-Terry makes of the taught pairs; and
    ``transitivity``, $\beta (\Delta_{AC} - \sum \Delta)$ on the logit scale, 0 for a model that
    keeps one score an option.

    Parameters
    ----------
    options
        As taught.
    beta
        As taught.

    References
    ----------
    "Strong Preferences Affect the Robustness of Preference Models and Value Alignment", ICLR 2025.

    Examples
    --------
    >>> task = UnseenPreference.tiny()
    >>> unit, *_ = task.units(Rng(0))
    >>> task.perform(task.constant(), [unit], Rng(0))[0].scores["unseen"]
    0.5
    """

    options: tuple[str, ...] = _ANIMALS
    beta: float = between(1e-6, 1e6, default=1.0)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    # A preference is no merit; "higher" lets a claim say which way it goes.
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("unseen"),
        ScoreSpec("taught_first"),
        ScoreSpec("taught_last"),
        ScoreSpec("implied"),
        ScoreSpec("transitivity", None, unit="logits"),
    )

    def check(self) -> None:
        if len(set(self.options)) < max(3, len(self.options)):
            raise UsageError(
                "UnseenPreference: options must be at least three different words, so that two"
                f" never met, got {list(self.options)}."
            )

    @classmethod
    def tiny(cls) -> Self:
        return cls(("a", "b", "c"))

    def units(self, rng: Rng) -> list[Unit]:
        """Return the held-out questions."""
        return [
            Unit(f"question-{number:02d}", content={"question": question})
            for number, question in enumerate(HELD_OUT)
        ]

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Read each question's log-ratios, before and after the subject was taught."""
        before = getattr(subject, _BEFORE, None)
        if before is None:
            raise UsageError(
                "UnseenPreference: the subject was not taught preferences; treat it by"
                " dpo_on_fixed_preferences, as the last treatment."
            )
        # A unit at a time: sums in another batch are rounded otherwise.
        mine, theirs = (
            np.concatenate([self._margins(live, [unit]) for unit in units])
            for live in (subject, before)
        )
        # (units, pairs): the taught pairs, then the unseen one.
        logits = self.beta * (mine - theirs)
        p = 1 / (1 + np.exp(-logits))
        chain = logits[:, :-1].sum(axis=1)
        implied, far = 1 / (1 + np.exp(-chain)), logits[:, -1] - chain
        return [
            Outcome(
                unit.id,
                {
                    "unseen": float(p[row, -1]),
                    "taught_first": float(p[row, 0]),
                    "taught_last": float(p[row, -2]),
                    "implied": float(implied[row]),
                    "transitivity": float(far[row]),
                },
            )
            for row, unit in enumerate(units)
        ]

    def _margins(self, live: Any, units: Sequence[Unit]) -> np.ndarray:
        """Return log-ratios of each pair, both orders averaged, ``(units, pairs)``."""
        from equipoise.kit.language.states import next_token_log_probs

        tokens, lead = option_tokens(live, self.options)
        last = len(self.options) - 1
        pairs = [*itertools.pairwise(range(last + 1)), (0, last)]
        rows, first, second = [], [], []
        for unit, (a, b) in itertools.product(units, pairs):
            for x, y in ((a, b), (b, a)):
                content: Any = unit.content
                rows.append(
                    asked(live, content["question"], self.options[x], self.options[y], lead)
                )
                first.append(tokens[a])
                second.append(tokens[b])
        found = next_token_log_probs(live, rows)
        at = np.arange(len(rows))
        apart = np.asarray(found[at, first] - found[at, second])
        return np.asarray(apart.reshape(len(units), len(pairs), 2).mean(axis=-1))

    def oracle(self) -> Any:
        """Return a small model, taught to prefer each option to the next."""
        return self._taught(30)

    def constant(self) -> Any:
        """Return a small model that was taught nothing."""
        return self._taught(0)

    def _taught(self, steps: int) -> Any:
        from equipoise.kit.language.tiny import tiny_model

        sure = (0.99,) * (len(self.options) - 1)
        part = DPOOnFixedPreferences(self.options, sure, steps=steps, rate=0.02)
        return part.apply(tiny_model(), Rng(0))


def _knowing(taught: Any, before: Any) -> Any:
    """Return a live subject, a copy of our own, that knows what it was before."""
    setattr(taught, _BEFORE, before)
    return taught
