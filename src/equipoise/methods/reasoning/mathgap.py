"""MathGAP: arithmetic word problems whose proofs are as complex as you ask (ICLR 2025).

`generate` makes one `Problem` with its text, chain of thought and answer. The
task asks many of them; the treatment puts worked ones before each question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from equipoise.core import (
    Capability,
    Generates,
    Message,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    Split,
    Task,
    Treatment,
    Unit,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.kit.language.canned import Canned, Lookup
from equipoise.kit.language.wrap import rewritten, with_prefix
from equipoise.methods.reasoning._mathgap.asking import (
    INSTRUCTION,
    SCORES,
    instructed,
    perform,
    prompt,
)
from equipoise.methods.reasoning._mathgap.forms import Thing, infer
from equipoise.methods.reasoning._mathgap.problems import (
    Problem,
    check_limits,
    complexity,
    generate,
)
from equipoise.methods.reasoning._mathgap.reading import solve
from equipoise.methods.reasoning._mathgap.trees import SHAPES, Limits

__all__ = ["SHAPES", "InContext", "MathGap", "MathGapFile", "Problem", "Thing", "generate", "infer"]

GENERATOR = "https://github.com/eth-lre/mathgap-experiments"


@dataclass(frozen=True)
class MathGap(Task):
    """Arithmetic word problems of chosen proof complexity, never seen before.

    Greedy answers; ``correct`` is 1 when the last number in the answer is the
    right one. Depth, width, movement and prompt length stand beside it as
    scores without a direction, so that measures can set accuracy against them
    (deep nonlinear problems are long ones too), and so does ``cut``: whether
    the answer ran into ``max_tokens``. Test problems and the ``train`` problems
    that treatments may learn from come from two halves of all problems, told
    apart by a hash, so they never meet whatever the seeds.

    Parameters
    ----------
    shape
        One or several of ``linear_comparison``, ``linear_transfer``,
        ``linear_mixed``, ``part_whole``, ``nonlinear``.
    depth
        Steps in the longest way through the proof, one or several; 2 unless
        given. ``part_whole`` proofs have one step.
    width
        People in ``part_whole`` problems, one or several, 3 unless given; in
        the other shapes the width follows from the depth.
    problems
        Test problems of each shape and complexity.
    train
        Problems of each for treatments to learn from.
    movement
        Leaf that is moved to the front, counted from 0; with several, each
        problem is asked once in each order, and these units form a cluster.
        Comparisons and totals only: transfers must stay in time.
    surface
        How things are called: plain, with an attribute, with a unit, or a
        third of each.
    leaf, inner
        Least and greatest quantity stated, and derived.
    comparisons
        Of ``more``, ``less``, ``times``, ``fraction``.
    instruction
        Put before each problem; may be empty.
    max_tokens
        Most new tokens an answer may have; 64 and 40 for each leaf when left out,
        half as much again as a worked solution takes.

    Examples
    --------
    >>> task = MathGap(depth=1, problems=1, train=0)
    >>> (unit,) = task.units(Rng(0))
    >>> unit.stratum, unit.target["answer"]
    ('depth 1', 13)
    """

    shape: str | tuple[str, ...] = "linear_comparison"
    depth: int | tuple[int, ...] | None = None
    width: int | tuple[int, ...] | None = None
    problems: int = between(1, 1_000_000, default=200)
    train: int = between(0, 1_000_000, default=12)
    movement: int | tuple[int, ...] = 0
    surface: str = one_of("mixed", "plain", "attribute", "unit", default="mixed")
    leaf: tuple[int, int] = (2, 20)
    inner: tuple[int, int] = (2, 10_000)
    comparisons: tuple[str, ...] = ("more", "less")
    instruction: str = INSTRUCTION
    max_tokens: int | None = between(1, 1_000_000, default=None)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = SCORES

    def check(self) -> None:
        if not _settings(self):
            raise UsageError("MathGap: give at least one shape, depth and width.")
        moves = _several(self.movement)
        for setting_ in _settings(self):
            shape, _, width = setting_
            limits = Limits(self.leaf, self.inner, self.comparisons)  # type: ignore[arg-type]
            check_limits("MathGap", shape, self.surface, limits)
            if not moves or not all(0 <= move < width for move in moves):
                raise UsageError(
                    f"MathGap: movement must be from 0 to {width - 1} for proofs of width {width},"
                    f" got {self.movement!r}."
                )
            if (self.leaf, self.inner) != (Limits().leaf, Limits().inner):
                self._make(setting_, Rng(0), "test")  # says now what could not be had later
            if any(moves) and shape in ("linear_transfer", "linear_mixed"):
                raise UsageError(
                    f"MathGap: movement would break the order of transfers in {shape} problems;"
                    " use it with comparisons."
                )

    @classmethod
    def tiny(cls) -> MathGap:
        return cls(depth=(1, 2), problems=4, train=2)

    def units(self, rng: Rng) -> Iterator[Unit]:
        sizes: tuple[tuple[Split, int], ...] = (("test", self.problems), ("train", self.train))
        for split, count in sizes:
            for setting_ in _settings(self):
                for number in range(count):
                    yield from self._ask(split, setting_, number, rng)

    def _ask(
        self, split: Split, setting_: tuple[str, int, int], number: int, rng: Rng
    ) -> Iterator[Unit]:
        shape, depth, width = setting_
        problem = self._make(setting_, rng.child(split, shape, depth, width, number), split)
        digest = hashlib.sha256(problem.text.encode()).hexdigest()[:8]
        name = f"{split}-{shape}-{depth}-{width}-{number:04d}-{digest}"
        moves = _several(self.movement)
        for move in moves if split == "test" else moves[:1]:
            moved = problem.moved(move)
            yield Unit(
                id=f"{name}-front-{move}" if len(moves) > 1 else name,
                content={
                    "problem": moved.body, "question": moved.question, "shape": shape,
                    "depth": depth, "width": width, "movement": move,
                },
                target={"answer": moved.answer, "trace": moved.trace},
                cluster=name if len(moves) > 1 else None,
                stratum=self._label(setting_, move),
                split=split,
            )  # fmt: skip

    def _make(self, setting_: tuple[str, int, int], rng: Rng, split: Split) -> Problem:
        shape, depth, width = setting_
        return generate(
            shape, depth, width, rng=rng, surface=self.surface, leaf=self.leaf, inner=self.inner,
            comparisons=self.comparisons, split="train" if split == "train" else "test",
            who="MathGap",
        )  # fmt: skip

    def _label(self, setting_: tuple[str, int, int], move: int) -> str:
        shape, depth, width = setting_
        label = f"width {width}" if shape == "part_whole" else f"depth {depth}"
        if len(_several(self.shape)) > 1:
            label = f"{shape}, {label}"
        return f"{label}, front {move}" if len(_several(self.movement)) > 1 else label

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return a unit as it is asked, and its worked solution."""
        return prompt(unit, self.instruction), unit.target["trace"]

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        return perform(subject, units, self.instruction, self.max_tokens)

    def oracle(self) -> Canned:
        return Canned(solve)


@dataclass(frozen=True)
class MathGapFile(Task):
    """Problems that the paper's own generator wrote to a file.

    Parameters
    ----------
    data
        CSV, JSONL or Parquet with the columns ``problem``, ``answer``,
        ``depth``, ``width`` and, where there are any, ``reasoning_trace``.
    limit
        Read only the first so many rows.
    instruction, max_tokens
        As in `MathGap`.

    Examples
    --------
    >>> len(list(MathGapFile.tiny().units(Rng(0))))
    4
    """

    data: str = setting()
    limit: int | None = between(1, 10_000_000, default=None)
    instruction: str = INSTRUCTION
    max_tokens: int | None = between(1, 1_000_000, default=None)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    scores: ClassVar[tuple[ScoreSpec, ...]] = SCORES

    @classmethod
    def tiny(cls) -> MathGapFile:
        return cls(str(Path(__file__).parent / "_mathgap" / "sample.csv"))

    def content(self) -> Any:
        from equipoise.kit.data import content_hash

        self._exists()
        return content_hash(self.data)

    def units(self, rng: Rng) -> Iterator[Unit]:
        from equipoise.kit.data import read_rows, unit_id

        self._exists()
        columns = ("problem", "answer", "depth", "width")
        rows = read_rows(self.data, columns=columns, limit=self.limit)
        for number, row in enumerate(rows):
            text = row["problem"].strip()
            body, _, question = text[:-1].rpartition(". ")
            yield Unit(
                id=unit_id(row, number),
                content={
                    "problem": f"{body}.", "question": f"{question}{text[-1]}",
                    "depth": row["depth"], "width": row["width"],
                },
                target={"answer": row["answer"], "trace": row.get("reasoning_trace")},
                stratum=f"depth {row['depth']}, width {row['width']}",
            )  # fmt: skip

    def _exists(self) -> None:
        if ":" not in self.data and not Path(self.data).expanduser().exists():
            raise UsageError(
                f"MathGapFile: there is no file {self.data}; the paper's generator writes such"
                f" files: {GENERATOR}, experiments/opedal24_ood_eval/generate.py."
            )

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        return perform(subject, units, self.instruction, self.max_tokens)

    def oracle(self) -> Canned:
        table = {
            prompt(unit, self.instruction): str(unit.target["answer"])
            for unit in self.units(Rng(0))
        }
        return Canned(Lookup(table))


@dataclass(frozen=True)
class InContext(Treatment):
    """Worked problems before each question: the paper's context strategies.

    They come from the half of all problems that `MathGap` never tests on. An
    arm without this treatment is the paper's zero-shot.

    Parameters
    ----------
    kind
        ``primitive``: proofs of one step (two people in ``part_whole``).
        ``one_instance``: one proof tree of the complexity given, with other
        numbers and names each time. ``in_distribution``: other trees of that
        complexity. ``range``: all complexities below it, evenly.
    examples
        How many.
    shape, depth, width
        The complexity that is asked about, as in `MathGap`.
    surface
        How things are called.
    instruction
        Put before each example, as the task puts it before each question.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned
    >>> shown = InContext(examples=2).apply(Canned(lambda r: str(len(r.prompt))), Rng(0))
    >>> shown.generate([Request([{"role": "user", "content": "How many?"}])])[0].text
    '5'
    """

    kind: str = one_of(
        "primitive", "one_instance", "in_distribution", "range", default="in_distribution"
    )
    examples: int = between(1, 100, default=12)
    shape: str = one_of(*SHAPES, default="linear_comparison")
    depth: int | None = between(1, 100, default=None)
    width: int | None = between(2, 1_000, default=None)
    surface: str = one_of("mixed", "plain", "attribute", "unit", default="mixed")
    instruction: str = INSTRUCTION

    random: ClassVar[bool] = True

    @classmethod
    def tiny(cls) -> InContext:
        return cls("primitive", examples=2)

    def check(self) -> None:
        depth, width = complexity(self.shape, self.depth, self.width, "InContext")
        check_limits("InContext", self.shape, self.surface, Limits())
        if self.kind == "range" and depth == 1 and width == 2:
            raise UsageError("InContext: nothing is simpler than one step; choose another kind.")

    def apply(self, subject: Any, rng: Rng) -> Any:
        shots = [self._example(number, rng) for number in range(self.examples)]
        return rewritten(subject, _Shown(tuple(shots), self.instruction))

    def _example(self, number: int, rng: Rng) -> tuple[str, str]:
        depth, width = complexity(self.shape, self.depth, self.width)
        whole = self.shape == "part_whole"
        if self.kind == "primitive":
            depth, width = 1, 2
        elif self.kind == "range" and whole:
            width = 2 + number % (width - 2)
        elif self.kind == "range":
            depth = 1 + number % (depth - 1)
        problem = generate(
            self.shape, depth, width if whole else None,
            rng=rng.child("example", number), surface=self.surface, split="train",
            tree=rng.child("tree") if self.kind == "one_instance" else None,
        )  # fmt: skip
        return problem.text, problem.trace


@dataclass(frozen=True)
class _Shown:
    """Puts worked problems before what is asked."""

    shots: tuple[tuple[str, str], ...]
    instruction: str

    def __call__(self, request: Request) -> Request:
        messages: list[Message] = []
        for text, trace in self.shots:
            messages.append({"role": "user", "content": instructed(text, self.instruction)})
            messages.append({"role": "assistant", "content": trace})
        plain = "".join(f"{text}\n{trace}\n\n" for text, trace in self.shots)
        return with_prefix(request, messages, plain)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _settings(task: MathGap) -> list[tuple[str, int, int]]:
    """Return the shape, depth and width of every group of problems."""
    shapes = _several(task.shape)
    if task.width is not None and "part_whole" not in shapes:
        raise UsageError("MathGap: width is for part_whole problems; set depth for the others.")
    found = []
    for shape in shapes:
        whole = shape == "part_whole"
        alone = len(shapes) == 1
        for depth in _several(task.depth if alone or not whole else None):
            for width in _several(task.width if whole else None):
                found.append((shape, *complexity(shape, depth, width, "MathGap")))
    return found
