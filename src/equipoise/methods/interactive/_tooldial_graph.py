r"""The paper's graph of interfaces: whose output can be whose input.

An edge goes from output $o$ of $A$ to input $i$ of $B$ when three similarities exceed their
thresholds: of names, $2\,\mathrm{LCS}(o, i) / (|o| + |i|) > 0.83$, of keywords, $\cos > 0.5$, and
of descriptions, $\cos > 0.77$; and when calling $A$ and feeding what it returns into $B$ works.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from equipoise.core import UsageError
from equipoise.kit.worlds.api_dialogues import Api, ApiError, World

Edge = tuple[str, str, str, str]
"""Interface, output, interface, input."""

Embed = Callable[[Sequence[str]], np.ndarray]

THRESHOLDS = (0.83, 0.5, 0.77)
_DIMENSIONS = 1024
_BLOCK = 256  # names compared at once on one side


def plain(text: str) -> str:
    """Return a name in lower case, letters and digits only.

    Examples
    --------
    >>> plain("Video_Id")
    'videoid'
    """
    return re.sub(r"[^a-z0-9]", "", text.lower())


def name_similarity(one: Sequence[str], other: Sequence[str]) -> np.ndarray:
    r"""Return the similarity of every name with every other, shape ``(one, other)``.

    $2\,\mathrm{LCS}(a, b) / (|a| + |b|)$ over the longest common subsequence of `plain` names, by
    dynamic programming over all pairs at once; two empty names are alike.

    Parameters
    ----------
    one, other
        Names.

    References
    ----------
    ToolDial: Multi-turn Dialogue Generation Method for Tool-Augmented Language Models, ICLR 2025.

    Examples
    --------
    >>> name_similarity(["video_id", "lat"], ["videoId", "latitude"]).round(3)
    array([[1.   , 0.4  ],
           [0.   , 0.545]])
    """
    left, right = _codes(one), _codes(other)
    blocks = [
        _similar(left[start : start + _BLOCK], right) for start in range(0, len(left), _BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(other)))


def _codes(names: Sequence[str]) -> np.ndarray:
    """Return names as codes, ``(names, longest)``, padded with 0."""
    cleaned = [plain(name).encode() for name in names]
    longest = max([len(name) for name in cleaned], default=0)
    return np.array([list(name.ljust(longest, b"\0")) for name in cleaned], np.uint8).reshape(
        len(names), longest
    )


def _similar(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    m, n = left.shape[1], right.shape[1]
    # best[j] is the LCS of what was read of the left name and the first j letters of the right.
    best = np.zeros((n + 1, len(left), len(right)), np.int16)
    for i in range(m):
        before = np.zeros_like(best[0])
        for j in range(n):
            a, b = left[:, i, None], right[None, :, j]
            match = (a == b) & (a > 0)
            above = best[j + 1].copy()
            best[j + 1] = np.maximum(np.maximum(above, best[j]), before + match)
            before = above
    sizes = (left > 0).sum(1)[:, None] + (right > 0).sum(1)[None, :]
    found: np.ndarray = np.where(sizes > 0, 2 * best[n] / np.maximum(sizes, 1), 1.0)
    return found


def ngram_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return texts as unit vectors of hashed words and of pieces of 3 to 5 letters.

    Deterministic and without training, ``(texts, 1024)``; a stand-in where no encoder is at hand.

    Examples
    --------
    >>> a, b, c = ngram_vectors(["identifier of a hotel", "a hotel's identifier", "win rate"])
    >>> bool(a @ b > 0.6 > a @ c)
    True
    """
    found = np.zeros((len(texts), _DIMENSIONS))
    for row, text in enumerate(texts):
        words = re.findall(r"[a-z0-9.]+", text.lower())
        for word in words:
            padded = f" {word} "
            pieces = [padded[i : i + n] for n in (3, 4, 5) for i in range(len(padded) - n + 1)]
            weight = 1 / max(len(pieces), 1)
            for piece in pieces:
                found[row, zlib.crc32(piece.encode()) % _DIMENSIONS] += weight
            found[row, zlib.crc32(word.encode()) % _DIMENSIONS] += 1.0
    sizes = np.linalg.norm(found, axis=1, keepdims=True)
    scaled: np.ndarray = found / np.where(sizes > 0, sizes, 1)
    return scaled


def api_edges(
    apis: Iterable[Api],
    embed: Embed = ngram_vectors,
    *,
    thresholds: tuple[float, float, float] = THRESHOLDS,
) -> list[Edge]:
    r"""Return the edges whose name, keyword and description similarities exceed their thresholds.

    Parameters
    ----------
    apis
        Interfaces, with their inputs and outputs.
    embed
        Maps texts to vectors ``(texts, dimensions)``: any subject's ``embed``, or `ngram_vectors`.
    thresholds
        Of names, keywords and descriptions.

    Raises
    ------
    UsageError
        If the vectors are not finite or not one a text.

    References
    ----------
    ToolDial: Multi-turn Dialogue Generation Method for Tool-Augmented Language Models, ICLR 2025.

    Examples
    --------
    >>> from equipoise.core import Rng
    >>> from equipoise.kit.worlds.api_dialogues import make_world
    >>> world = make_world(40, Rng(0))
    >>> len(api_edges(world.apis.values())) > 0
    True
    """
    found = list(apis)
    outputs = [(api.name, each) for api in found for each in api.outputs]
    inputs = [(api.name, each) for api in found for each in api.required]
    if not outputs or not inputs:
        return []
    near = name_similarity([e.name for _, e in outputs], [e.name for _, e in inputs])
    fits = near > thresholds[0]
    for threshold, field in zip(thresholds[1:], ("keywords", "description"), strict=True):
        texts = [getattr(each, field) for _, each in (*outputs, *inputs)]
        vectors = _unit(embed(texts), len(texts))
        fits &= vectors[: len(outputs)] @ vectors[len(outputs) :].T > threshold
    return [
        (outputs[o][0], outputs[o][1].name, inputs[i][0], inputs[i][1].name)
        for o, i in zip(*np.nonzero(fits), strict=True)
        if outputs[o][0] != inputs[i][0]
    ]


def _unit(vectors: np.ndarray, n: int) -> np.ndarray:
    found = np.asarray(vectors, float)
    if found.ndim != 2 or len(found) != n or not np.isfinite(found).all():
        raise UsageError(
            f"api_edges: embed must return {n} finite vectors, got shape {found.shape}."
        )
    sizes = np.linalg.norm(found, axis=1, keepdims=True)
    scaled: np.ndarray = found / np.where(sizes > 0, sizes, 1)
    return scaled


def verified_edges(world: World, edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges whose interfaces work one after the other on the back end.

    The first is called with the first value of each of its parameters; what it returns is given to
    the second, with the first value of its others.

    Examples
    --------
    >>> from equipoise.core import Rng
    >>> from equipoise.kit.worlds.api_dialogues import make_world
    >>> world = make_world(40, Rng(0))
    >>> edges = list(world.edges())
    >>> verified_edges(world, edges) == edges
    True
    """
    return [edge for edge in edges if _works(world, *edge)]


def _works(world: World, source: str, output: str, target: str, needed: str) -> bool:
    try:
        rows = world.call(source, _first_values(world, source))
        given = _first_values(world, target) | {needed: rows[0][output]}
        world.call(target, given)
    except ApiError:
        return False
    return True


def _first_values(world: World, name: str) -> dict[str, str]:
    return {each.name: world.values(each.kind)[0] for each in world.apis[name].required}


def edge_quality(found: Iterable[Edge], true: Iterable[Edge]) -> tuple[float, float]:
    """Return precision and recall of edges; 1 where there is nothing to be wrong about.

    Examples
    --------
    >>> a, b, c = [("A", "id", other, "id") for other in "XYZ"]
    >>> edge_quality([a, b], [b, c])
    (0.5, 0.5)
    """
    ours, right = set(found), set(true)
    both = len(ours & right)
    return (both / len(ours) if ours else 1.0, both / len(right) if right else 1.0)
