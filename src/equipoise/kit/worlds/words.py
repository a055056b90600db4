"""A vocabulary of words, single digits and marks, learnt from texts and kept as a tensor."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

_TOKEN = re.compile(r"[^\W\d_][\w'-]*|\d|[^\w\s]")
LONGEST = 24
"""Most bytes in a word."""

PAD, START, ANSWER, END, UNKNOWN = range(5)
SPECIAL = 5
"""How many ids come before those of words."""


class Words:
    """A vocabulary of words, single digits and marks.

    Parameters
    ----------
    words
        Known tokens, the most frequent first; five special ones come before.

    Examples
    --------
    >>> words = Words(["Ada", "has", "1", "2", "keys", "."])
    >>> words.decode(words.encode("Ada has 12 keys."))
    'Ada has 12 keys.'
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.ids = {word: place for place, word in enumerate(self.words, start=SPECIAL)}

    @staticmethod
    def split(text: str) -> list[str]:
        """Cut text into tokens."""
        return _TOKEN.findall(text)

    @classmethod
    def learn(cls, texts: Iterable[str], most: int) -> Words:
        """Return the ``most`` frequent tokens of some texts; ties by the alphabet."""
        counts = Counter(token for text in texts for token in cls.split(text))
        short = [(token, n) for token, n in counts.items() if len(token.encode()) <= LONGEST]
        ranked = sorted(short, key=lambda each: (-each[1], each[0]))
        return cls([token for token, _ in ranked[:most]])

    def encode(self, text: str) -> list[int]:
        return [self.ids.get(token, UNKNOWN) for token in self.split(text)]

    def decode(self, ids: Sequence[int]) -> str:
        tokens = [self.words[i - SPECIAL] for i in ids if SPECIAL <= i < SPECIAL + len(self.words)]
        text = " ".join(tokens)
        text = re.sub(r"(?<=\d) (?=\d)", "", text)
        return re.sub(r" (?=[.,?!;:])", "", text)

    def as_tensor(self, rows: int) -> Tensor:
        table = np.zeros((rows, LONGEST), np.uint8)
        for row, word in zip(table, self.words, strict=False):
            raw = word.encode()
            row[: len(raw)] = np.frombuffer(raw, np.uint8)
        return torch.from_numpy(table)

    @classmethod
    def from_tensor(cls, table: Tensor) -> Words:
        raw = [bytes(row.tolist()).rstrip(b"\0") for row in table.cpu()]
        return cls([word.decode() for word in raw if word])
