"""Two answers side by side, the words that differ marked."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup, escape

from equipoise.report._text import visible

MOST_WORDS = 500
"""Words of each answer that are compared; the time grows with their square."""

ALIKE = 0.25
"""Answers less alike than this are not marked: everything would be."""

_MARKED = {"del": Markup("<del>{}</del>{}"), "ins": Markup("<ins>{}</ins>{}")}

_WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")


def marked(a: str, b: str) -> tuple[Markup, Markup]:
    """Return both texts as HTML, what is in one alone inside ``<del>`` and ``<ins>``.

    Examples
    --------
    >>> marked("It is 41.", "It is 42.")
    (Markup('It is <del>41</del>.'), Markup('It is <ins>42</ins>.'))
    """
    a, b = visible(a), visible(b)
    words_a, words_b = _WORDS.findall(a), _WORDS.findall(b)
    head_a, head_b = words_a[:MOST_WORDS], words_b[:MOST_WORDS]
    matcher = SequenceMatcher(None, head_a, head_b, autojunk=False)
    if not a or not b or a == b or matcher.ratio() < ALIKE:
        return escape(a), escape(b)
    left, right = Markup(""), Markup("")
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        left += _mark("".join(head_a[a1:a2]), "del" if tag != "equal" else "")
        right += _mark("".join(head_b[b1:b2]), "ins" if tag != "equal" else "")
    return (
        left + "".join(words_a[MOST_WORDS:]),
        right + "".join(words_b[MOST_WORDS:]),
    )


def _mark(text: str, tag: str) -> Markup:
    if not tag or not text:
        return escape(text)
    kept = text.rstrip() or text
    return _MARKED[tag].format(kept, text[len(kept) :])
