"""Responses to be scored, what may be counted in them, and scorers of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from equipoise.core import Message, UsageError, nearest

_HEADER = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+", re.MULTILINE)
_ITEM = re.compile(r"^[ \t]*(?:[-+*]|\d+\.)[ \t]", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")


def markdown_count(text: str) -> int:
    """Return the number of headers, list items and bold spans in a text.

    Examples
    --------
    >>> markdown_count("# Why\\n- **one**\\n- two\\n1. three")
    5
    """
    return sum(len(pattern.findall(text)) for pattern in (_HEADER, _ITEM, _BOLD))


_COUNTS = {
    "characters": len,
    "words": lambda text: len(text.split()),
    "markdown": markdown_count,
}


@dataclass(frozen=True, slots=True)
class Responses:
    """Responses as columns, all of length ``n``.

    Parameters
    ----------
    pair
        Integer codes: two responses with one code answer the same prompt; None where
        responses do not come in pairs.
    prompts, texts
        What was asked and answered, or empty where only numbers are known.
    columns
        Numbers by name: recorded scores, and what was counted in the responses.

    Examples
    --------
    >>> Responses(texts=("one two", "three")).characteristic("words")
    array([2., 1.])
    """

    pair: np.ndarray | None = None
    prompts: Sequence[str] = ()
    texts: Sequence[str] = ()
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        if self.texts:
            return len(self.texts)
        return len(next(iter(self.columns.values()), ()))

    def characteristic(self, name: str) -> np.ndarray:
        """Return a column, or what is counted in the texts.

        ``characters``, ``words`` and ``markdown`` (headers, list items and bold spans) are
        counted where there is no column of that name.

        Raises
        ------
        UsageError
            If there is neither, or a value is missing.
        """
        if name in self.columns:
            found = np.asarray(self.columns[name], float)
        elif name in _COUNTS and self.texts:
            found = np.array([_COUNTS[name](text) for text in self.texts], float)
        else:
            known = [*self.columns, *(_COUNTS if self.texts else ())]
            text = "" if self.texts or name not in _COUNTS else " There are no texts to count in."
            raise UsageError(
                f'No column "{name}" of the responses.{text}{nearest(name, known)}'
                f" There are: {', '.join(known) or 'none'}."
            )
        missing = int((~np.isfinite(found)).sum())
        if missing:
            raise UsageError(
                f'"{name}" is missing or not finite in {missing} of {len(found)} responses; leave'
                " these pairs out."
            )
        return found


@runtime_checkable
class GivesRewards(Protocol):
    """Scores responses, the higher the better, on any scale; shape ``(n,)``."""

    def rewards(self, responses: Responses) -> np.ndarray: ...


def conversations(responses: Responses) -> list[list[Message]]:
    """Return prompts and responses as conversations, for a subject that judges these."""
    if not responses.texts:
        raise UsageError("A judge needs the texts of responses, and there are none.")
    prompts = responses.prompts or [""] * len(responses)
    return [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, responses.texts, strict=True)
    ]
