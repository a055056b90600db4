r"""Numbers for a proof tree: a direct draw from the uniform distribution given all limits.

The paper draws leaves uniformly and rejects assignments in which some inner value
leaves its limits, or climbs a gradient until they hold. Premises of a step have no
quantity in common, so the number of assignments that give a node the value $v$ is a
convolution of its premises' counts,

$$N(v) = \sum_{a \circ b = v} N_a(a)\, N_b(b) \quad\text{for } v \text{ within limits},$$

and drawing the root's value in proportion to $N$, then splitting downwards, gives
what rejection would give, with no tries wasted however deep the tree.
"""

from __future__ import annotations

import functools
from random import Random
from typing import Any

import numpy as np

Recipe = Any
"""How a value comes about: None for a leaf, else (sign, recipe, recipe)."""

Drawn = Any
"""A leaf's integer, or (value, drawn, drawn)."""

Limits = tuple[int, int]


def draw(recipe: Recipe, leaf: Limits, inner: Limits, random: Random) -> Drawn | None:
    """Return values in the shape of ``recipe``, or None when no assignment is possible."""
    counts = _counts(recipe, leaf, inner)
    if counts is None:
        return None
    low, shares = counts
    return _split(recipe, low + _pick(shares, random), leaf, inner, random)


def value(drawn: Drawn) -> int:
    """Return the value at the top of what `draw` gave."""
    found: int = drawn if isinstance(drawn, int) else drawn[0]
    return found


def _split(recipe: Recipe, v: int, leaf: Limits, inner: Limits, random: Random) -> Drawn:
    if recipe is None:
        return v
    sign, left, right = recipe
    one, two = _counts(left, leaf, inner), _counts(right, leaf, inner)
    assert one is not None
    assert two is not None
    b = np.arange(two[0], two[0] + len(two[1]))
    weights = two[1]
    if sign == "*":
        whole = v % b == 0
        b, weights = b[whole], weights[whole]
    a = v - b if sign == "+" else v + b if sign == "-" else v // b if sign == "*" else v * b
    place = a - one[0]
    inside = (place >= 0) & (place < len(one[1]))
    a, b = a[inside], b[inside]
    at = _pick(one[1][place[inside]] * weights[inside], random)
    return (
        v,
        _split(left, int(a[at]), leaf, inner, random),
        _split(right, int(b[at]), leaf, inner, random),
    )


def _pick(weights: np.ndarray, random: Random) -> int:
    ladder = weights.cumsum()
    # A draw that rounds up to the total must not fall on a weight of zero behind it.
    last = int(ladder.searchsorted(ladder[-1]))
    return min(int(ladder.searchsorted(random.random() * ladder[-1], side="right")), last)


@functools.lru_cache(maxsize=1024)
def _counts(recipe: Recipe, leaf: Limits, inner: Limits) -> tuple[int, np.ndarray] | None:
    """Return the lowest value and the share of assignments for each value from there."""
    if recipe is None:
        low, shares = leaf[0], np.full(leaf[1] - leaf[0] + 1, 1.0)
    else:
        sign, left, right = recipe
        one, two = _counts(left, leaf, inner), _counts(right, leaf, inner)
        if one is None or two is None:
            return None
        low, shares = _combine(sign, *one, *two, most=inner[1])
        cut = max(0, inner[0] - low)
        low, shares = low + cut, shares[cut:]
        shares = shares[: max(0, inner[1] - low + 1)]
    total = shares.sum()
    if not total > 0:
        return None
    return low, shares / total  # counts overflow in deep trees, shares do not


def _combine(
    sign: str, a: int, left: np.ndarray, b: int, right: np.ndarray, *, most: int
) -> tuple[int, np.ndarray]:
    if sign == "+":
        return a + b, np.convolve(left, right)
    if sign == "-":
        return a - (b + len(right) - 1), np.convolve(left, right[::-1])
    shares = np.zeros(most + 1)
    over = np.arange(a, a + len(left))
    for factor, weight in enumerate(right, start=b):
        if sign == "*":
            found, share = over * factor, left
        else:
            whole = over % factor == 0
            found, share = over[whole] // factor, left[whole]
        kept = found <= most
        shares[found[kept]] += weight * share[kept]
    return 0, shares
