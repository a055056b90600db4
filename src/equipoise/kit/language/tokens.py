"""A text's tokens, cut once for all that share a tokenizer."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_known: WeakKeyDictionary[Any, dict[str, list[int]]] = WeakKeyDictionary()


def known_tokens(subject: Any, text: str) -> list[int]:
    """Return a text's tokens, kept for as long as what cuts it lives.

    Parameters
    ----------
    subject
        A live subject that scores text; treated ones share its tokenizer.
    text
        Kept as well, so meant for the few long texts that windows are cut from.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> live = tiny_model()
    >>> known_tokens(live, "hi") is known_tokens(live, "hi")
    True
    """
    own = getattr(subject, "tokenizer", None)
    try:
        known = _known.setdefault(subject if own is None else own, {})
    except TypeError:  # a subject that cannot be a key
        return list(subject.tokenize(text))
    if text not in known:
        known[text] = list(subject.tokenize(text))
    return known[text]
