"""How free-text answers are compared with right ones."""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_)\]])([-+−]?)[$€£]?"
    r"((?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<!\.)\.[0-9]+)"
    r"((?:[eE][-+]?[0-9]+)?)"
)


def squad(text: str) -> str:
    """Return text in lower case without punctuation, English articles and extra blanks.

    The normalisation of the SQuAD evaluation script (Rajpurkar et al., 2016).

    Examples
    --------
    >>> squad("The  Eiffel-Tower, a landmark.")
    'eiffeltower landmark'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def token_f1(answer: str, right: str) -> float:
    r"""Return the F1 of two texts as bags of words, after `squad` normalisation.

    With $c$ words in common, counted with multiplicity, precision $c/|answer|$
    and recall $c/|right|$, it is their harmonic mean. When one side is empty it
    is 1 if both are, else 0 (as in SQuAD 2.0).

    Examples
    --------
    >>> token_f1("the cat sat", "A cat sat down")
    0.8
    """
    found, wanted = squad(answer).split(), squad(right).split()
    if not found or not wanted:
        return float(found == wanted)
    common = (Counter(found) & Counter(wanted)).total()
    # 2PR / (P + R) with P = c/|found| and R = c/|wanted|.
    return 2 * common / (len(found) + len(wanted))


def last_number(text: str) -> float | None:
    """Return the last number in a text, or None.

    Thousands may be set off by commas, a currency sign may stand before the
    digits, and exponents are read. A minus between two terms is no sign, and
    digits that end a word (``km2``) are no number. Fractions are not read.

    Examples
    --------
    >>> last_number("She pays 3 times $1,234.50."), last_number("10-3"), last_number("none")
    (1234.5, 3.0, None)
    """
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return None
    sign, digits, exponent = last.groups()
    value = float(digits.replace(",", "") + exponent)
    return -value if sign in ("-", "−") else value
