r"""Fine-tuning: a language model goes on learning, wholly or through low-rank adapters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from equipoise.core import (
    Capability,
    HasModule,
    Rng,
    Task,
    Treatment,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.about import annotate
from equipoise.kit.data import content_hash

if TYPE_CHECKING:
    from torch import nn

    from equipoise.kit.language.lessons import Lesson
    from equipoise.kit.language.likelihood import NextToken, TokenBatch
    from equipoise.kit.torch.training import Recipe

_RATES = {"full": 2e-5, "lora": 2e-4}
_LOOKS = 10


@dataclass(frozen=True)
class FineTune(Treatment):
    r"""Train a language model further on text, chats, prompts or the train units of a task.

    A step takes $B$ sequences and lowers the mean over their $n$ learned tokens,

    $$L = -\frac{1}{n} \sum_t \log p(x_t \mid x_{<t}),$$

    by AdamW with $\beta = (0.9, 0.999)$. Learned are all tokens of prose, and of chats,
    prompts and questions only what the model itself would say, its end mark included.
    ``full`` changes weights $W$ themselves; ``lora`` freezes them and learns
    $W + \frac{\alpha}{r} B A$ with $A$ of $r$ rows. The result is of ordinary layers, which
    any later treatment may edit, unless ``keep_adapter`` is set.

    The same seed gives the same weights to the last bit on one machine with one number of
    processor threads. A run that is killed goes on where it was, and ends with the same
    weights. A loss that is not finite ends training with the weights before it and a note.
    A subject in bfloat16 is trained with weights in float32 and products in bfloat16, and
    rounded at the end; small changes may be lost in that rounding.

    Parameters
    ----------
    data
        Prose as `equipoise.kit.data.read_texts` takes it, or rows with
        ``messages``, or rows with ``prompt`` and ``completion``.
    task
        In place of ``data``: a task with train units and a method
        ``example(unit)``. Its test units are never read.
    method
        ``full`` or ``lora``.
    layers
        What is trained: ``all`` parameters (with ``lora`` all linear layers of
        the blocks), the ``linear`` layers of the blocks, those of
        ``attention``, or those of the ``feed_forward`` parts.
    rank
        $r$ of LoRA.
    lora_alpha
        $\alpha$ of LoRA.
    dropout
        Share of an adapter's inputs left out while it trains.
    keep_adapter
        Leave LoRA's matrices beside the layers instead of adding them in.
    steps
        Updates; by default as many as ``epochs`` take. 0 changes nothing.
    epochs
        Times through the data, where ``steps`` are not given.
    batch
        Sequences in memory at once.
    accumulation
        Batches to an update; the gradient is that of one large batch.
    length
        Most tokens in a sequence. Prose is cut into such windows; longer
        chats, prompts and questions are left out, and a note says how many.
    packing
        Whether documents of prose share windows.
    chat
        Whether prompts and questions are put as a user's message, where the
        tokenizer has a chat template; otherwise as plain text.
    rate
        Highest learning rate; by default 2e-5 for ``full`` and 2e-4 for ``lora``.
    schedule
        After the warm-up: ``constant``, ``linear`` or ``cosine`` down to nothing.
    warmup
        Share of the steps in which the rate rises.
    weight_decay
        Of matrices; biases and gains do not decay.
    clip
        Longest gradient; 0 leaves it as it is.
    held_out
        Share of the sequences that are not trained on, whose loss is drawn
        beside the training loss.
    gradient_checkpointing
        Make activations a second time instead of keeping them: a third more
        work, a fraction of the memory. By default with ``lora`` only.
    checkpoint_seconds
        How often what is needed to go on after a kill is written.

    References
    ----------
    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.

    Examples
    --------
    >>> from equipoise.kit.about import about
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> part = FineTune("builtin:python_topics", steps=3, batch=2, length=32, rate=1e-3)
    >>> curve = about(part.apply(tiny_model(), Rng(0)))["curves"]["loss"]
    >>> [int(step) for step, loss in curve]
    [1, 2, 3]
    """

    data: str | None = setting(None)
    task: Task | None = None
    method: str = one_of("full", "lora", default="full")
    layers: str = one_of("all", "linear", "attention", "feed_forward", default="all")
    rank: int = between(1, 65_536, default=16)
    lora_alpha: float = between(0.0, 1e6, default=32.0)
    dropout: float = between(0.0, 0.99, default=0.0)
    keep_adapter: bool = False
    steps: int | None = between(0, 100_000_000, default=None)
    epochs: float = between(0.0, 10_000.0, default=1.0)
    batch: int = between(1, 65_536, default=8)
    accumulation: int = between(1, 65_536, default=1)
    length: int = between(2, 1_000_000, default=512)
    packing: bool = True
    chat: bool = True
    rate: float | None = between(0.0, 10.0, default=None)
    schedule: str = one_of("constant", "linear", "cosine", default="cosine")
    warmup: float = between(0.0, 1.0, default=0.05)
    weight_decay: float = between(0.0, 1.0, default=0.0)
    clip: float = between(0.0, 1e9, default=1.0)
    held_out: float = between(0.0, 0.9, default=0.0)
    gradient_checkpointing: bool | None = setting(None)
    checkpoint_seconds: float = setting(300.0, low=0.0, high=math.inf)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True
    edits: ClassVar[frozenset[str]] = frozenset({"linear layers"})

    @property
    def replaces(self) -> frozenset[str]:  # type: ignore[override]
        """Linear layers, where an adapter is kept beside them."""
        kept = self.method == "lora" and self.keep_adapter
        return frozenset({"linear layers"}) if kept else frozenset()

    def check(self) -> None:
        if (self.data is None) == (self.task is None):
            raise UsageError("FineTune: give either data (texts or rows) or a task.")
        if self.keep_adapter and self.method != "lora":
            raise UsageError("FineTune: keep_adapter needs method lora; full has no adapter.")
        if self.dropout and self.method != "lora":
            raise UsageError("FineTune: dropout is that of LoRA's adapters; full has none.")

    @classmethod
    def tiny(cls) -> Self:
        return cls("builtin:python_topics", steps=2, batch=2, length=32, rate=1e-3)

    @classmethod
    def null(cls) -> Self:
        """Return the setting that changes nothing."""
        return cls("builtin:python_topics", steps=0)

    def content(self) -> Any:
        return None if self.data is None else content_hash(self.data)

    def apply(self, subject: Any, rng: Rng) -> Any:
        from equipoise.kit.language.likelihood import NextToken
        from equipoise.kit.torch.adapters import merge_lora
        from equipoise.kit.torch.checkpoints import Checkpoint, run_key
        from equipoise.kit.torch.training import finished, fit, recomputing

        if self.steps == 0:
            return self.skeleton(subject, rng)
        names = self._chosen(subject)
        lessons, notes = self._lessons(subject, rng)
        kept, shown = self._split(lessons, rng)
        recipe = self.recipe(len(shown))
        objective = NextToken(subject.module)
        learner = self._learner(subject, names, rng)
        how = [repr(self), self.content()]
        with recomputing(learner, self._recomputed(subject)):
            history = fit(
                learner,
                self._batches(shown, subject.device, rng),
                objective.total,
                recipe=recipe,
                rng=rng.child("dropout"),
                size=_count,
                watch=self._watch(kept, objective, subject.device),
                watch_every=max(1, recipe.steps // _LOOKS),
                checkpoint=Checkpoint(run_key(rng, how, subject.module), self.checkpoint_seconds),
                what="fine-tuning",
            )
        if self.method == "lora" and not self.keep_adapter:
            made = finished(merge_lora(learner, subject.module), subject.module)
        else:
            made = finished(learner, subject.module)
        notes += [f"FineTune: {history.note}"] if history.note else []
        return annotate(subject.with_module(made), notes=notes, curves=history.curves())

    def skeleton(self, subject: Any, rng: Rng | None = None) -> Any:
        from equipoise.kit.torch.training import finished, trainable_copy

        if self.method == "lora" and self.keep_adapter:
            made = self._adapted(subject, self._chosen(subject), rng)
        else:
            made = trainable_copy(subject.module, ())
        return subject.with_module(finished(made, subject.module))

    def recipe(self, count: int) -> Recipe:
        """Return how weights are updated, for so many sequences to train on."""
        from equipoise.kit.torch.training import Recipe

        steps = self.steps
        if steps is None:
            steps = math.ceil(round(count * self.epochs) / self._a_step)
        return Recipe(
            steps=steps,
            rate=_RATES[self.method] if self.rate is None else self.rate,
            schedule=self.schedule,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            clip=self.clip,
        )

    @property
    def _a_step(self) -> int:
        return self.batch * self.accumulation

    def _chosen(self, subject: Any) -> list[str]:
        """Return the layers to train, or an empty list for every parameter."""
        import torch

        from equipoise.kit.language.structure import structure_of
        from equipoise.kit.torch.linear import is_transposed

        if getattr(subject, "tokenizer", None) is None:
            raise UsageError("FineTune: the subject has no tokenizer, so it is no language model.")
        module = subject.module
        for part in module.modules():
            if getattr(part, "weight", None) is not None and part.weight.dtype == torch.float16:
                raise UsageError(
                    "FineTune: float16 is too narrow for gradients; load the subject with dtype"
                    " float32 or bfloat16."
                )
        structure = structure_of(module)
        names = {
            "all": structure.linear_layers(),
            "linear": structure.linear_layers(),
            "attention": [n for b in structure.blocks for s in b.stages()[:2] for n in s],
            "feed_forward": [n for b in structure.blocks for s in b.stages()[2:] for n in s],
        }[self.layers]
        for name in names:
            part = module.get_submodule(name)
            if type(part) is not torch.nn.Linear and not is_transposed(part):
                raise UsageError(
                    f"FineTune: {name} is a {type(part).__name__}, no ordinary linear layer;"
                    " fine-tune before other treatments replace layers."
                )
        return [] if self.layers == "all" and self.method == "full" else names

    def _lessons(self, subject: Any, rng: Rng) -> tuple[list[Lesson], list[str]]:
        """Return what can be learned, and what is to be said of the rest."""
        from equipoise.kit.language._forward import Forward
        from equipoise.kit.language._prompts import Prompts
        from equipoise.kit.language.lessons import read_lessons, taught

        limit = Forward(subject.module).limit
        if limit is not None and self.length > limit:
            raise UsageError(
                f"FineTune: length must be at most the model's {limit} positions,"
                f" got {self.length}."
            )
        prompts = Prompts(subject.tokenizer, getattr(subject, "name", "the subject"))
        if self.task is not None:
            found = taught(self.task, rng.child("data"), prompts, chat=self.chat)
        else:
            found = read_lessons(
                str(self.data), prompts,
                length=self.length, packing=self.packing, chat=self.chat,
            )  # fmt: skip
        found = [each for each in found if each.teaches]
        short = [each for each in found if len(each) <= self.length]
        longer = len(found) - len(short)
        if not longer:
            return short, []
        if not short:
            raise UsageError(
                f"FineTune: all {longer} sequences are longer than {self.length} tokens;"
                " raise length."
            )
        return short, [
            f"FineTune: {longer} of {len(found)} sequences are longer than {self.length} tokens"
            " and were left out."
        ]

    def _split(self, lessons: Sequence[Lesson], rng: Rng) -> tuple[list[Lesson], list[Lesson]]:
        """Return held-out lessons and those to train on."""
        count = math.ceil(len(lessons) * self.held_out)
        order = rng.child("held out").numpy().permutation(len(lessons))
        kept, shown = sorted(order[:count]), sorted(order[count:])
        if len(shown) < self._a_step:
            raise UsageError(
                f"FineTune: there are {len(shown)} sequences to train on, too few for steps of"
                f" {self._a_step}; give more data, or lower batch, accumulation or length."
            )
        return [lessons[i] for i in kept], [lessons[i] for i in shown]

    def _batches(
        self, lessons: Sequence[Lesson], device: Any, rng: Rng
    ) -> Callable[[int], list[TokenBatch]]:
        from equipoise.kit.language.lessons import Order, collate

        order = Order(len(lessons), rng.child("order"))
        every = math.inf if self.steps is not None else round(len(lessons) * self.epochs)

        def read(step: int) -> list[TokenBatch]:
            begin = step * self._a_step
            end = int(min(begin + self._a_step, every))
            chosen = [lessons[index] for index in order.at(range(begin, end))]
            if self.accumulation > 1:  # sequences of like length share a batch: less padding
                chosen.sort(key=len)
            starts = range(0, len(chosen), self.batch)
            return [collate(chosen[start : start + self.batch], device) for start in starts]

        return read

    def _watch(
        self, lessons: Sequence[Lesson], objective: NextToken, device: Any
    ) -> Callable[[nn.Module], Mapping[str, float]] | None:
        from equipoise.kit.language.lessons import collate

        if not lessons:
            return None

        def look(module: nn.Module) -> dict[str, float]:
            total = count = 0.0
            for start in range(0, len(lessons), self.batch):
                batch = collate(lessons[start : start + self.batch], device)
                total += float(objective.total(module, batch))
                count += batch.count
            return {"held-out loss": total / count}

        return look

    def _learner(self, subject: Any, names: list[str], rng: Rng) -> nn.Module:
        import torch

        from equipoise.kit.torch.training import trainable_copy

        if self.method == "lora":
            return self._adapted(subject, names, rng)
        every = dict(subject.module.named_parameters())
        inside = tuple(f"{name}." for name in names)
        chosen = [name for name in every if not inside or name.startswith(inside)]
        return trainable_copy(subject.module, chosen, torch.float32)

    def _recomputed(self, subject: Any) -> list[str]:
        """Return the blocks whose activations are made a second time."""
        from equipoise.kit.language.structure import structure_of

        saving = self.gradient_checkpointing
        if not (self.method == "lora" if saving is None else saving):
            return []
        return [block.name for block in structure_of(subject.module).blocks]

    def _adapted(self, subject: Any, names: list[str], rng: Rng | None) -> nn.Module:
        from equipoise.kit.torch.adapters import add_lora

        return add_lora(
            subject.module, names,
            rank=self.rank, alpha=self.lora_alpha, dropout=self.dropout,
            rng=None if rng is None else rng.child("adapters"),
        )  # fmt: skip


def _count(batch: TokenBatch) -> float:
    return batch.count
