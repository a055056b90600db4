"""bAbI task 15, basic deduction: who is afraid of what, from two facts among eight."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Generates,
    Json,
    Outcome,
    Rng,
    ScoreSpec,
    ScoresText,
    Split,
    Task,
    Unit,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.methods.reasoning import _closed

ANIMALS = {"cat": "cats", "mouse": "mice", "sheep": "sheep", "wolf": "wolves"}
MOST = 10_000  # of the 3^4 x 4^4 = 20,736 sets of facts
NAMES = ("Emily", "Gertrude", "Jessica", "Winona")
SOURCE = "https://huggingface.co/datasets/facebook/babi_qa"


@dataclass(frozen=True)
class BabiDeduction(Task):
    """Deduction of bAbI's task 15, generated anew or read from a file.

    Four facts say what each kind of animal is afraid of and four say what kind
    someone is; the question asks what one of them is afraid of. The prompt is
    ``Passage: ... Question: ... Answer:``, after as many solved ones as there
    are shots. No two generated problems, of whatever split, ask about one passage.

    By ``logit`` the answer is the animal whose first token is the most probable
    after the prompt. Scores: ``correct``; ``probability``, of the right animal
    among the four; ``mass``, of its first token over the whole vocabulary;
    ``margin``, its log-probability less that of the best other one; and, for
    subjects that open their module, ``entropy`` of the next token, in nats. By
    ``exact_match`` it is right if the animal stands in up to 10 new tokens
    before a line break.

    Parameters
    ----------
    data
        A file in place of generated problems: bAbI's own (``qa15_..._.txt``),
        or a CSV with the columns ``question`` (the whole prompt) and
        ``answer``.
    problems
        Generated problems to test on.
    train
        Generated problems for treatments to learn from.
    calibration
        Generated problems for treatments to choose settings by.
    shots
        Solved problems before each question, each with a passage of its own;
        not for a CSV, whose prompts are whole.
    split
        What all rows of a file are: ``train``, ``calibration`` or ``test``.
    evaluation
        ``logit`` or ``exact_match``.

    References
    ----------
    Weston et al., "Towards AI-Complete Question Answering: A Set of
    Prerequisite Toy Tasks", 2015; the evaluation is that of "Improving
    Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    >>> (unit,) = BabiDeduction(problems=1, train=0).units(Rng(0))
    >>> print(unit.content["prompt"])
    Passage: ...
    Question: What is ... afraid of?
    Answer:
    >>> solve(unit.content["prompt"]) == unit.target
    True
    """

    data: str | None = setting(None)
    problems: int = between(1, 10_000, default=300)
    train: int = between(0, 10_000, default=200)
    calibration: int = between(0, 10_000, default=0)
    shots: int = between(0, 100, default=0)
    split: str = one_of("train", "calibration", "test", default="test")
    evaluation: str = one_of("logit", "exact_match", default="logit")

    needs: ClassVar[frozenset[Capability]] = frozenset({ScoresText})
    scores: ClassVar[tuple[ScoreSpec, ...]] = _closed.SCORES

    @classmethod
    def tiny(cls) -> Self:
        return cls(problems=6, train=4, calibration=2, shots=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation == "exact_match":  # text is enough, so endpoints can be asked too
            object.__setattr__(self, "needs", frozenset({Generates}))

    def check(self) -> None:
        asked = self.problems + self.train + self.calibration
        if self.data is None and asked > MOST:
            raise UsageError(
                f"BabiDeduction: problems, train and calibration must be at most {MOST:,} together,"
                f" got {asked:,}: there are not many more passages."
            )

    def content(self) -> Json:
        from equipoise.kit.data import content_hash

        return None if self.data is None else content_hash(self._file())

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield problems, or the questions of the file in order."""
        if self.data is not None:
            yield from _read_csv(self) if self.data.endswith(".csv") else _read_babi(self)
            return
        sizes: dict[Split, int] = {
            "test": self.problems, "train": self.train, "calibration": self.calibration,
        }  # fmt: skip
        seen: set[frozenset[str]] = set()
        for split, size in sizes.items():
            for number in range(size):
                draws = rng.child("babi_deduction", split, number).numpy()
                asked, shown = (
                    _new_story(draws, seen),
                    [_new_story(draws, set()) for _ in range(self.shots)],
                )
                yield _unit(f"{split}-{number:05d}", asked, shown, split, None)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        return _closed.perform(self.evaluation, subject, units)

    def example(self, unit: Unit) -> tuple[str, str]:
        """Return what is asked and the right animal."""
        return _closed.example(unit)

    def negative(self, unit: Unit) -> str:
        """Return what is asked and an animal that is not the answer."""
        wrong = [kind for kind in unit.content["candidates"] if kind != unit.target]
        digest = hashlib.sha256(unit.id.encode()).digest()
        return f"{unit.content['prompt']} {wrong[digest[0] % len(wrong)]}"

    def oracle(self) -> Any:
        return _closed.oracle(self.evaluation, solve)

    def constant(self) -> Any:
        return _closed.constant(self.evaluation)

    def _file(self) -> str:
        assert self.data is not None
        if not Path(self.data).expanduser().is_file():
            raise UsageError(
                f"BabiDeduction: there is no file {self.data}; leave data out to generate problems,"
                f" or get task 15 of bAbI from {SOURCE}."
            )
        return str(Path(self.data).expanduser())


@dataclass(frozen=True)
class Story:
    """Facts, in order, who is asked about, and what is right."""

    facts: tuple[str, ...]
    question: str
    answer: str

    def prompt(self) -> str:
        """Return passage and question, up to where the answer goes."""
        return f"Passage: {' '.join(self.facts)}\nQuestion: {self.question}\nAnswer:"


def story(draws: np.random.Generator) -> Story:
    """Draw a problem: four kinds, each afraid of another, and four names.

    Examples
    --------
    >>> made = story(np.random.default_rng(0))
    >>> len(made.facts), solve(made.prompt()) == made.answer
    (8, True)
    """
    kinds = list(ANIMALS)
    fears = {k: str(draws.choice([other for other in kinds if other != k])) for k in kinds}
    beings = {name: str(draws.choice(kinds)) for name in NAMES}
    facts = [
        f"{ANIMALS[kind].capitalize()} are afraid of {ANIMALS[fears[kind]]}." for kind in kinds
    ]
    facts += [f"{name} is a {kind}." for name, kind in beings.items()]
    order = draws.permutation(len(facts))
    name = str(draws.choice(NAMES))
    return Story(
        tuple(facts[place] for place in order),
        f"What is {name} afraid of?",
        fears[beings[name]],
    )


def solve(prompt: str) -> str:
    """Return the answer to the last question of a prompt, by deduction.

    Examples
    --------
    >>> solve("Passage: Mice are afraid of cats. Emily is a mouse.\\n"
    ...       "Question: What is emily afraid of?\\nAnswer:")
    'cat'
    """
    passage = prompt.rpartition("Passage:")[2].lower()
    one = {plural: kind for kind, plural in ANIMALS.items()}
    fears = dict(re.findall(r"(\w+) are afraid of (\w+)\.", passage))
    beings = dict(re.findall(r"(\w+) is an? (\w+)\.", passage))
    name = re.findall(r"what is (\w+) afraid of\?", passage)[-1]
    return one[fears[ANIMALS[beings[name]]]]


def _new_story(draws: np.random.Generator, seen: set[frozenset[str]]) -> Story:
    """Draw a problem whose facts, in whatever order, no problem before has had."""
    while True:
        found = story(draws)
        facts = frozenset(found.facts)
        if facts not in seen:
            seen.add(facts)
            return found


def _unit(
    name: str, asked: Story, shown: Sequence[Story], split: Split, cluster: str | None
) -> Unit:
    before = "".join(f"{each.prompt()} {each.answer}\n\n" for each in shown)
    prompt = before + asked.prompt()
    digest = hashlib.sha256(prompt.encode()).hexdigest()[:8]
    return Unit(
        f"{name}-{digest}",
        content={"prompt": prompt, "candidates": sorted(ANIMALS)},
        target=asked.answer,
        cluster=cluster,
        split=split,
    )


def read_stories(text: str, who: str = "bAbI") -> list[list[Story]]:
    r"""Return the questions of bAbI's own format, one list a story.

    A line is a number, from 1 in each story, and a fact; or a number, a
    question, a tab, its answer, a tab and the numbers of the facts behind it.

    Examples
    --------
    >>> found = read_stories("1 Mice are afraid of cats.\n2 Emily is a mouse.\n"
    ...                      "3 What is emily afraid of?\tcat\t2 1\n")
    >>> found[0][0].facts, found[0][0].answer
    (('Mice are afraid of cats.', 'Emily is a mouse.'), 'cat')
    """
    stories: list[list[Story]] = []
    facts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place, _, rest = line.strip().partition(" ")
        if not place.isdigit() or not rest:
            raise UsageError(f"{who}, line {number}: must begin with a number and a blank.")
        if place == "1":
            facts = []
            stories.append([])
        if not stories:
            raise UsageError(f"{who}, line {number}: a story must begin with the number 1.")
        parts = [part.strip() for part in rest.split("\t")]
        if len(parts) == 1:
            facts.append(parts[0])
            continue
        if parts[1] not in ANIMALS:
            known = ", ".join(ANIMALS)
            raise UsageError(
                f'{who}, line {number}: the answer must be one of {known}, got "{parts[1]}".'
            )
        stories[-1].append(Story(tuple(facts), parts[0], parts[1]))
    return [questions for questions in stories if questions]


def _read_babi(task: BabiDeduction) -> Iterator[Unit]:
    file = task._file()
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"BabiDeduction: {task.data} cannot be read as text.") from error
    stories = read_stories(text, f"BabiDeduction: {task.data}")
    if len(stories) <= task.shots:
        raise UsageError(
            f"BabiDeduction: {task.data} has {len(stories)} stories, too few for"
            f" {task.shots} shots before each question."
        )
    for number, questions in enumerate(stories):
        # Shots come from the stories that follow, round and round.
        shown = [stories[(number + 1 + k) % len(stories)][0] for k in range(task.shots)]
        for place, asked in enumerate(questions):
            name = f"{number:05d}-{place}"
            yield _unit(name, asked, shown, task.split, f"story-{number}")  # type: ignore[arg-type]


def _read_csv(task: BabiDeduction) -> Iterator[Unit]:
    from equipoise.kit.data import read_rows, unit_id

    if task.shots:
        raise UsageError("BabiDeduction: shots must be 0 for a CSV, whose prompts are whole.")
    for index, row in enumerate(read_rows(task._file(), columns=("question", "answer"))):
        answer = str(row["answer"]).strip()
        if answer not in ANIMALS:
            known = ", ".join(ANIMALS)
            raise UsageError(
                f"BabiDeduction: {task.data}, row {index + 1}: answer must be one of {known},"
                f' got "{answer}".'
            )
        yield Unit(
            unit_id(row, index),
            content={"prompt": str(row["question"]), "candidates": sorted(ANIMALS)},
            target=answer,
            split=task.split,  # type: ignore[arg-type]
        )
