"""Token sequences to learn from: prose, chats, prompts with completions, questions of a task.

A `Lesson` is a sequence and which of its tokens are to be predicted. Questions are put as a
model is asked them and answers follow as it would write them, its end mark included, by the
same rules as scoring uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from equipoise.core import Message, Rng, Task, UsageError, learnable
from equipoise.kit.data import read_rows, read_texts
from equipoise.kit.language._prompts import Prompts
from equipoise.kit.language.likelihood import TokenBatch


@dataclass(frozen=True)
class Lesson:
    """A sequence and which of its tokens are to be predicted from those before.

    Parameters
    ----------
    ids
        Tokens.
    learned
        As many truths; the first is false, since nothing is before it.

    Examples
    --------
    >>> Lesson.of([1, 2], [3]).learned
    (False, False, True)
    >>> Lesson.of([], [3, 4]).learned
    (False, True)
    """

    ids: tuple[int, ...]
    learned: tuple[bool, ...]

    @classmethod
    def of(cls, *pieces: Sequence[int]) -> Lesson:
        """Join pieces of which every second one is to be learned, the first one not."""
        ids = tuple(token for piece in pieces for token in piece)
        learned = [bool(n % 2) for n, piece in enumerate(pieces) for _ in piece]
        return cls(ids, (False, *learned[1:]))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def teaches(self) -> bool:
        """Whether any token is to be learned."""
        return any(self.learned)


def read_lessons(
    data: str, prompts: Prompts, *, length: int, packing: bool = True, chat: bool = True
) -> list[Lesson]:
    """Return the lessons of a data set, by the columns it has.

    Parameters
    ----------
    data
        Rows with ``messages`` (OpenAI's shape; what assistants say is learned,
        unless its ``weight`` is 0), rows with ``prompt`` and ``completion``
        (the completion is learned), or prose as in
        `equipoise.kit.data.read_texts` (all of it is learned).
    prompts
        Of the model that learns.
    length, packing
        For prose, as in `windows`.
    chat
        As in `question`, for prompts and completions.

    Raises
    ------
    UsageError
        One sentence that names the row at fault.
    """
    columns = _columns(data)
    if "messages" in columns:
        rows = read_rows(data, columns=["messages"])
        found = []
        for number, row in enumerate(rows, 1):
            with_place = _Placed(data, number)
            found += with_place(conversation, prompts, row["messages"], row.get("tools") or ())
        return found
    if "prompt" in columns and "completion" in columns:
        rows = read_rows(data, columns=["prompt", "completion"])
        found = []
        for number, row in enumerate(rows, 1):
            asked, answer = row["prompt"], row["completion"]
            if not isinstance(asked, str) or not isinstance(answer, str):
                raise UsageError(f"{data}, row {number}: prompt and completion must be text.")
            found += _Placed(data, number)(question, prompts, asked, answer, chat=chat)
        return found
    texts = read_texts(data)
    return windows(texts, prompts, length) if packing else documents(texts, prompts, length)


def windows(texts: Iterable[str], prompts: Prompts, length: int) -> list[Lesson]:
    """Return all documents, each with its end mark, joined and cut into windows.

    No token is left out and none comes twice; the last window may be shorter. A window may
    hold the end of one document and the beginning of the next.
    """
    end = _end(prompts)
    ids = [token for text in texts for token in (*prompts.tokenize(text), *end)]
    cuts = [ids[start : start + length] for start in range(0, len(ids), length)]
    return [Lesson.of((), cut) for cut in cuts]


def documents(texts: Iterable[str], prompts: Prompts, length: int) -> list[Lesson]:
    """Return each document with its end mark, cut where it is longer than ``length``."""
    return [lesson for text in texts for lesson in windows([text], prompts, length)]


def question(prompts: Prompts, asked: str, answer: str, *, chat: bool = True) -> list[Lesson]:
    """Return a question whose answer is to be learned.

    Parameters
    ----------
    prompts
        Of the model that learns.
    asked, answer
        Texts.
    chat
        Put them as a user's and an assistant's message where the tokenizer has
        a chat template; else the answer and an end mark follow the question,
        after a blank if neither has one there.
    """
    if chat and getattr(prompts.tokenizer, "chat_template", None):
        messages: list[Message] = [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": answer},
        ]
        return conversation(prompts, messages)
    apart = asked[-1:].isspace() or answer[:1].isspace() or not asked
    context, rest = prompts.pair(asked, answer if apart else f" {answer}")
    return [Lesson.of(context, [*rest, *_end(prompts)])]


def conversation(
    prompts: Prompts, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> list[Lesson]:
    """Return a conversation of which the assistant's turns are to be learned, end marks included.

    It is one lesson, or one a turn where the chat template writes earlier turns otherwise than
    the last (without their reasoning, say).

    Raises
    ------
    UsageError
        If no turn is to be learned, or the template does not begin an answer as
        it writes one.
    """
    turns = []
    for number, message in enumerate(messages):
        _check_message(message)
        if message["role"] == "assistant" and message.get("weight", 1):
            turns.append(number)
    if not turns or turns[0] == 0:
        raise UsageError(
            "a conversation needs a message of the assistant, and another one before it."
        )
    spans = []
    for number in turns:
        before = prompts.render(messages[:number], tools)
        after = prompts.render(messages[: number + 1], tools, closed=True).rstrip()
        if not after.startswith(before):
            raise UsageError(
                f"{prompts.name}: the chat template writes an answer otherwise than it begins one,"
                " so what is to be learned cannot be told apart."
            )
        spans.append((before, after))
    whole = spans[-1][1]
    if all(whole.startswith(after) for _, after in spans):
        return [Lesson.of(*_cut(prompts, whole, [len(edge) for span in spans for edge in span]))]
    return [Lesson.of(*_cut(prompts, after, [len(before)])) for before, after in spans]


def taught(task: Task, rng: Rng, prompts: Prompts, *, chat: bool = True) -> list[Lesson]:
    """Return the train units of a task as questions whose answers are to be learned.

    Raises
    ------
    UsageError
        If the task has no right answers to show, or no train units.
    """
    name = type(task).__name__
    example = getattr(task, "example", None)
    if example is None:
        raise UsageError(
            f"{name} shows no right answers: it has no method example(unit), so it cannot teach."
        )
    units = learnable(task, rng)
    if not units:
        raise UsageError(f"{name} has no train units; give it some, or a split column.")
    found = []
    for unit in units:
        asked, answer = example(unit)
        found += question(prompts, str(asked), str(answer), chat=chat)
    return found


def collate(lessons: Sequence[Lesson], device: torch.device | str = "cpu") -> TokenBatch:
    """Put lessons side by side, padded at the end."""
    shape = len(lessons), max(map(len, lessons))
    ids = np.zeros(shape, np.int64)
    learned, real = np.zeros(shape, bool), np.zeros(shape, bool)
    for row, lesson in enumerate(lessons):
        ids[row, : len(lesson)] = lesson.ids
        learned[row, : len(lesson)] = lesson.learned
        real[row, : len(lesson)] = True
    return TokenBatch(*(torch.from_numpy(each).to(device) for each in (ids, learned, real)))


class Order:
    """In which order lessons come: shuffled anew for each time through them.

    Parameters
    ----------
    count
        How many there are.
    rng
        Shuffles them.

    Examples
    --------
    >>> order = Order(4, Rng(0))
    >>> sorted(order.at(range(4))), sorted(order.at(range(4, 8)))
    ([0, 1, 2, 3], [0, 1, 2, 3])
    """

    def __init__(self, count: int, rng: Rng) -> None:
        self.count = count
        self._rng = rng
        self._known: tuple[int, np.ndarray] | None = None

    def at(self, places: Iterable[int]) -> list[int]:
        """Return which lessons stand at places of the endless row."""
        return [int(self._epoch(place // self.count)[place % self.count]) for place in places]

    def _epoch(self, number: int) -> np.ndarray:
        if self._known is None or self._known[0] != number:
            shuffled = self._rng.child("epoch", number).numpy().permutation(self.count)
            self._known = number, shuffled
        return self._known[1]


@dataclass(frozen=True)
class _Placed:
    """Calls a function and says which row was at fault."""

    data: str
    row: int

    def __call__(self, function: Callable[..., list[Lesson]], *given: Any, **how: Any) -> Any:
        try:
            return function(*given, **how)
        except UsageError as error:
            raise UsageError(f"{self.data}, row {self.row}: {error}") from error


def _columns(data: str) -> frozenset[str]:
    try:
        return frozenset(read_rows(data, limit=1)[0])
    except UsageError:
        return frozenset({"text"})  # a text file, or a fault that reading it as text will name


def _check_message(message: Any) -> None:
    if not isinstance(message, Mapping) or "role" not in message:
        raise UsageError(f"a message needs a role and a content, got {str(message)[:40]!r}.")


def _end(prompts: Prompts) -> list[int]:
    end = prompts.tokenizer.eos_token_id
    return [] if end is None else [int(end)]


def _cut(prompts: Prompts, text: str, places: Sequence[int]) -> list[list[int]]:
    """Return the ids of a text in pieces, cut at places; the end of the text is the last place.

    The text is encoded as one where tokens do not reach over a place, and piece by piece else.
    """
    whole = prompts.tokenize(text)
    starts = [prompts.tokenize(text[:place]) for place in places]
    if all(whole[: len(start)] == start for start in starts):
        cuts = [0, *map(len, starts), len(whole)]
        pieces = [whole[a:b] for a, b in itertools.pairwise(cuts)]
    else:
        cuts = [0, *places, len(text)]
        pieces = [prompts.tokenize(text[a:b]) for a, b in itertools.pairwise(cuts)]
    return pieces if pieces[-1] else pieces[:-1]
