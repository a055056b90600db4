"""Next actions learned from dialogues: nearest neighbours, and a logistic regression on words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.progress import report
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS
from equipoise.methods.interactive._tooldial_rules import lines

Embed = Callable[[Sequence[str]], np.ndarray]

_SIZE = 1 << 16  # columns that words are hashed into
_BACK = 5  # lines that keep their place
_SEEN = 700  # characters that an embedding looks at, from the end
_BLOCK = 512
_WORD = re.compile(r"''|[a-z]+|\d\.\d|#")


class Nearest:
    """The most frequent action among the nearest dialogues, by cosine of their last lines."""

    def __init__(self, embed: Embed, texts: Sequence[str], actions: np.ndarray, k: int) -> None:
        self._embed, self._k, self._actions = embed, min(k, len(texts)), actions
        self._vectors = self._of(texts)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        if not len(texts):
            return []
        found: list[str] = []
        for start in range(0, len(texts), _BLOCK):
            near = self._of(texts[start : start + _BLOCK]) @ self._vectors.T
            picks = np.argsort(-near, axis=1, kind="stable")[:, : self._k]
            votes = np.eye(len(SYSTEM_ACTIONS))[self._actions[picks]].sum(axis=1)
            found += [SYSTEM_ACTIONS[i] for i in votes.argmax(axis=1)]
        return found

    def _of(self, texts: Sequence[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), _BLOCK):
            report("embedding dialogues", start, len(texts))
            ends = [_dialogue(text)[-_SEEN:] for text in texts[start : start + _BLOCK]]
            parts.append(np.asarray(self._embed(ends), np.float32))
        found = np.concatenate(parts)
        if found.ndim != 2 or not np.isfinite(found).all():
            raise UsageError("ActionPolicy: the embedder must return finite vectors, one a text.")
        sizes = np.linalg.norm(found, axis=1, keepdims=True)
        scaled: np.ndarray = found / np.where(sizes > 0, sizes, 1)
        return scaled


class Logistic:
    """A multinomial logistic regression on hashed words and where they stand."""

    def __init__(self, texts: Sequence[str], actions: np.ndarray) -> None:
        from sklearn.linear_model import LogisticRegression

        report("learning actions", 0, len(texts))
        self._model = LogisticRegression(C=1.0, max_iter=200, tol=1e-3)
        self._model.fit(matrix(texts), actions)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        if not len(texts):
            return []
        return [SYSTEM_ACTIONS[int(code)] for code in self._model.predict(matrix(texts))]


def matrix(texts: Sequence[str]) -> Any:
    """Return the words of texts as a sparse matrix of zeros and ones, ``(texts, 65536)``."""
    from scipy.sparse import csr_matrix

    columns: list[int] = []
    ends = [0]
    for text in texts:
        columns += sorted({zlib.crc32(word.encode()) % _SIZE for word in words(text)})
        ends.append(len(columns))
    shape = (len(texts), _SIZE)
    return csr_matrix((np.ones(len(columns)), np.array(columns, int), np.array(ends)), shape=shape)


def words(text: str) -> set[str]:
    """Return what a dialogue shows: words by line and kind of line, pairs, counts, first scores.

    Numbers keep one decimal, other digits become ``#``; names of interfaces are cut into words.

    Examples
    --------
    >>> sorted(words("User: Hi 12"))[:3]
    ['0:#', '0:User', '0:hi']
    """
    shown = lines(text)
    found: set[str] = set()
    for place, (kind, said) in enumerate(reversed(shown[-_BACK:])):
        tokens = _tokens(said)
        found |= {f"{place}:{kind}", *(f"{place}:{token}" for token in tokens)}
        found |= {f"{place}:{a} {b}" for a, b in pairwise(tokens)}
    last = shown[-1][0] if shown else ""
    for kind, said in dict(shown).items():
        found |= {f"{kind}:{token}" for token in _tokens(said)}
        found |= {f"{kind} {i}:{x}" for i, x in enumerate(re.findall(r"\d\.\d", said)[:2])}
    counts = [kind for kind, _ in shown]
    for kind in set(counts):
        found |= {f"n {kind} {counts.count(kind)}", f"n {last} {kind} {counts.count(kind)}"}
    for kind, said in shown:
        if kind in ("User", "Action"):
            found |= {f"{last} {kind} {token}" for token in _tokens(said)}
    return found


def _tokens(said: str) -> list[str]:
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", said[:2000]).lower().replace("_", " ")
    return _WORD.findall(re.sub(r"(?<![\d.])\d+(?![\d.])", "#", parted))


def _dialogue(text: str) -> str:
    """Leave out what stands around the dialogue in a prompt."""
    return "\n".join(f"{kind}: {said}" for kind, said in lines(text)) or text
