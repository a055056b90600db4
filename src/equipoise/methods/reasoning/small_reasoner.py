"""A small transformer that learns to reason from worked examples alone, from scratch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from equipoise.core import (
    Capability,
    Generates,
    Generation,
    HasModule,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    Split,
    Subject,
    Task,
    Treatment,
    Unit,
    Usage,
    UsageError,
    between,
    learnable,
    setting,
)
from equipoise.kit.language.canned import Canned, message_text
from equipoise.kit.language.normalise import last_number

if TYPE_CHECKING:
    from equipoise.kit.worlds.small_language_model import SmallTransformer
    from equipoise.kit.worlds.words import Words

_TENSORS = "model.safetensors"


@dataclass(frozen=True)
class SmallReasoner(Subject):
    """A transformer of about a million parameters that knows nothing yet.

    `TrainReasoner` teaches it; before that its answers are empty. Words,
    digits and marks are its tokens, and it learns which words there are from
    what it is trained on. It answers greedily.

    Parameters
    ----------
    width
        Size of a token's vector, a multiple of ``2 * heads``.
    layers, heads
        How many.
    tokens
        Size of the vocabulary; rarer words are one unknown token.
    batch_size
        Most sequences at once.

    Examples
    --------
    >>> SmallReasoner(width=32, layers=1).load(Rng(0)).generate([Request("1 + 1")])[0].text
    ''
    """

    width: int = between(8, 4096, default=128)
    layers: int = between(1, 64, default=3)
    heads: int = between(1, 64, default=4)
    tokens: int = between(16, 100_000, default=512)
    batch_size: int = setting(64, low=1, high=65_536)

    provides: ClassVar[frozenset[Capability]] = frozenset({Generates, HasModule})

    @classmethod
    def tiny(cls) -> SmallReasoner:
        return cls(width=16, layers=1, heads=2)

    def check(self) -> None:
        if self.width % (2 * self.heads):
            raise UsageError(
                f"SmallReasoner: width must be a multiple of twice the heads, {2 * self.heads},"
                f" got {self.width}."
            )

    def load(self, rng: Rng) -> Reasoner:
        from equipoise.kit.worlds.small_language_model import SmallTransformer

        module = SmallTransformer.blank(self.width, self.layers, self.heads, self.tokens)
        module.start(rng.torch())
        return Reasoner(module, self.batch_size)


@dataclass(frozen=True)
class TrainReasoner(Treatment):
    """Teach a small reasoner worked solutions, from new weights.

    Parameters
    ----------
    data
        A task with train units and worked solutions, such as ``mathgap``; its
        test units are never read.
    steps
        Updates of the weights.
    batch_tokens
        Tokens in a batch.
    rate
        Peak learning rate of AdamW.

    Examples
    --------
    >>> from equipoise.core import Unit
    >>> TrainReasoner(data=None)
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: TrainReasoner: data must be a task, got None.
    """

    data: Task
    steps: int = between(1, 1_000_000, default=6_000)
    batch_tokens: int = between(16, 1_000_000, default=1_024)
    rate: float = between(1e-6, 1.0, default=4e-3)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True

    @classmethod
    def tiny(cls) -> TrainReasoner:
        return cls(Additions.tiny(), steps=5, batch_tokens=200)

    @classmethod
    def tiny_subject(cls) -> Reasoner:
        return SmallReasoner.tiny().load(Rng(0))

    def apply(self, subject: Any, rng: Rng) -> Reasoner:
        from equipoise.kit.worlds.small_language_model import train

        learner = self.skeleton(subject)
        train(
            learner.module,
            self.pairs(rng),
            steps=self.steps,
            batch_tokens=self.batch_tokens,
            rate=self.rate,
            seed=rng.child("weights").seed_for_request(),
        )
        return learner

    def pairs(self, rng: Rng) -> list[tuple[str, str]]:
        """Return what is taught: questions and worked solutions."""
        example = getattr(self.data, "example", None)
        if example is None:
            raise UsageError(
                f"TrainReasoner: {type(self.data).__name__} has no worked solutions; give mathgap"
                " or another task with a method example(unit)."
            )
        units = learnable(self.data, rng.child("data"))
        if not units:
            raise UsageError("TrainReasoner: data has no train units; set train to some thousands.")
        return [(str(question), str(answer)) for question, answer in map(example, units)]

    def skeleton(self, subject: Any) -> Reasoner:
        if not isinstance(subject, Reasoner):
            raise UsageError("TrainReasoner: the subject must be a small_reasoner.")
        return subject.with_module(subject.module.untaught())


@dataclass(frozen=True)
class Additions(Task):
    """Sums of two numbers: half for learning, half for testing. The smallest thing to teach.

    Sums of even difference are for learning, the others test.

    Parameters
    ----------
    largest
        Numbers go from 0 to this.

    Examples
    --------
    >>> [Additions.example(u) for u in Additions(largest=1).units(Rng(0)) if u.split == "train"]
    [('0 + 0', '= 0'), ('1 + 1', '= 2')]
    """

    largest: int = between(1, 1_000, default=20)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (ScoreSpec("correct", True, 0, 1),)

    @classmethod
    def tiny(cls) -> Additions:
        return cls(largest=5)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield every pair, in order; ``rng`` is not used."""
        for one in range(self.largest + 1):
            for two in range(self.largest + 1):
                split: Split = "test" if (one - two) % 2 else "train"
                yield Unit(f"{one}+{two}", {"prompt": f"{one} + {two}"}, one + two, split=split)

    @staticmethod
    def example(unit: Unit) -> tuple[str, str]:
        """Return a unit's question and its answer."""
        return unit.content["prompt"], f"= {unit.target}"

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score the last number of each answer."""
        requests = [Request(unit.content["prompt"], max_tokens=8) for unit in units]
        return [
            Outcome(u.id, {"correct": float(last_number(g.text) == u.target)}, output=g.text)
            for u, g in zip(units, subject.generate(requests), strict=True)
        ]

    def oracle(self) -> Canned:
        return Canned(_added)


def _added(request: Request) -> str:
    return str(sum(int(each) for each in _text(request).split(" + ")))


class Reasoner:
    """A live small reasoner; never changed once made."""

    def __init__(self, module: SmallTransformer, batch_size: int = 64) -> None:
        self.module = module.eval()
        self.batch_size = batch_size

    @property
    def tokenizer(self) -> Words:
        """The words it knows."""
        from equipoise.kit.worlds.words import Words

        return Words.from_tensor(self.module.words)

    @property
    def device(self) -> Any:
        return self.module.embed.weight.device

    def with_module(self, module: SmallTransformer) -> Reasoner:
        """Return a reasoner around another module."""
        return Reasoner(module, self.batch_size)

    def save(self, folder: Path | str) -> None:
        """Write all it knows, words included, as safetensors."""
        from safetensors.torch import save_file

        Path(folder).mkdir(parents=True, exist_ok=True)
        save_file(self.module.state_dict(), str(Path(folder) / _TENSORS))

    def fill(self, folder: Path | str) -> Reasoner:
        """Return a reasoner of this shape with the tensors of a folder.

        Raises
        ------
        UsageError
            If the folder holds no tensors, or others than this shape has.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path, module = Path(folder) / _TENSORS, self.module.untaught()
        try:
            module.load_state_dict(load_file(path))
        except (OSError, RuntimeError, SafetensorError) as error:
            raise UsageError(
                f"{path}: holds no tensors that fit this small_reasoner; delete the folder to make"
                " them again."
            ) from error
        return self.with_module(module)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer each request greedily; samples of one request are all alike."""
        from equipoise.kit.worlds.small_language_model import answer

        written = answer(
            self.module,
            [_text(request) for request in requests],
            [request.max_tokens for request in requests],
            self.batch_size,
        )
        return [
            _generation(request, *each) for request, each in zip(requests, written, strict=True)
        ]


def _text(request: Request) -> str:
    if isinstance(request.prompt, str):
        return request.prompt
    return "\n".join(message_text(message) for message in request.prompt)


def _generation(request: Request, text: str, ended: bool, read: int, wrote: int) -> Generation:
    for mark in request.stop:
        found = text.find(mark)
        if found >= 0:
            text, ended = text[:found], True
    finish = "stop" if ended else "length"
    usage = Usage(read, wrote * request.n)
    return Generation((text,) * request.n, (finish,) * request.n, usage=usage)
