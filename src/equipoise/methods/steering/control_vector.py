r"""Control vectors: a direction found in a model's own activations, added while it runs.

A text P gives hidden states $H_l(P)$, (tokens, width), at the output of block l;
$h_l(P)$ is that of its last token. Positive texts are questions with their right
answers, negative texts are something else. The functions `control_direction` and
`add_vectors` are the method; the treatment reads the texts off a task.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    HasModule,
    Json,
    Rng,
    Task,
    Treatment,
    UsageError,
    between,
    one_of,
    setting,
)
from equipoise.methods.steering._injection import WHO, add_vectors, vectors_of
from equipoise.methods.steering._vector_files import read_vectors, write_vectors

if TYPE_CHECKING:
    from equipoise.kit.language.structure import Structure

__all__ = [
    "ResidualControlVector",
    "add_vectors",
    "control_direction",
    "read_vectors",
    "vectors_of",
    "write_vectors",
]

KINDS = ("reading", "reading_contrast", "pca_contrast", "pca_reading")


def control_direction(
    kind: str,
    positive: np.ndarray,
    negative: np.ndarray | None = None,
    *,
    standardize: bool = False,
) -> np.ndarray:
    r"""Return the direction c of one block from hidden states of positive and negative texts.

    With $d_i = h(P^+_i) - h(P^-_i)$:

    - ``reading``: $c = \frac1n \sum_i h(P^+_i)$;
    - ``reading_contrast``: $c = \frac1n \sum_i d_i$;
    - ``pca_contrast``: the first principal direction of the $d_i$, of length 1;
    - ``pca_reading``: that of the $h(P^+_i)$.

    Principal directions are of what is left when the mean is taken off. So
    where $d_i = m u + \varepsilon_i$, the contrast's mean is along u, and its
    principal direction is that in which $\varepsilon$ varies most, which may be
    orthogonal to u. Their sign is free; here their mean projection is positive.

    Parameters
    ----------
    kind
        One of the above.
    positive, negative
        Hidden states, shape ``(texts, width)``; the two are paired. Kinds
        without a contrast take no negative ones.
    standardize
        Multiply a principal direction by $|\frac1n \sum_i d_i|$ (or the norm of
        the mean of $h(P^+_i)$).

    Returns
    -------
    numpy.ndarray
        Float64, shape ``(width,)``.

    Raises
    ------
    UsageError
        If texts are too few or all alike, or shapes do not fit.

    References
    ----------
    "Improving Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    Two differences: the principal direction is along what tells them apart.

    >>> high, low = np.array([[4.0, 0.0], [1.0, 0.0]]), np.zeros((2, 2))
    >>> control_direction("pca_contrast", high, low).tolist()
    [1.0, 0.0]
    >>> control_direction("reading_contrast", high, low).tolist()
    [2.5, 0.0]
    """
    if kind not in KINDS:
        raise UsageError(f"control_direction: kind must be one of {', '.join(KINDS)}, got {kind}.")
    rows = np.asarray(positive, np.float64)
    if kind.endswith("contrast"):
        if negative is None or np.shape(negative) != rows.shape:
            raise UsageError(
                f"control_direction: {kind} needs negative states in pairs with the positive ones."
            )
        rows = rows - np.asarray(negative, np.float64)
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        raise UsageError("control_direction: states must be (texts, width) of finite numbers.")
    middle: np.ndarray = rows.mean(0)
    if not kind.startswith("pca"):
        return middle
    left = rows - middle
    if np.abs(left).max() <= 1e-12 * np.abs(rows).max():
        raise UsageError(f"control_direction: {kind} needs at least two texts that differ.")
    first: np.ndarray = np.linalg.svd(left, full_matrices=False)[2][0]
    along = float(first @ middle)
    if abs(along) <= 1e-12 * np.linalg.norm(middle):  # no side is the positive one
        along = first[np.abs(first).argmax()]
    first = first if along >= 0 else -first
    return first * np.linalg.norm(middle) if standardize else first


@dataclass(frozen=True)
class ResidualControlVector(Treatment):
    r"""Add a direction of the model's own activations to the residual stream while it runs.

    At the output of each block l that is named, $H'_l = H_l + \alpha c_l$ for
    every token of prompt and answer; with ``normalize`` each token then gets
    back its length, $H'_l \leftarrow H'_l |H_l| / |H'_l|$. The vector $c_l$ is
    one of four kinds made from last-token states of positive and negative texts
    (see `control_direction`). Arms that differ in strength, kind, direction or
    normalisation alone share those texts, so that a sweep of strengths is one
    vector in several doses.

    Without ``normalize`` the treatment is a bias on each block's last layer,
    and can be saved as an ordinary model of families that know such biases.

    Parameters
    ----------
    data
        A task whose train units and their right answers are the positive texts.
    pairs
        Positive and negative texts themselves, in place of ``data``.
    file
        Vectors from a file in place of ``data``: as `write_vectors` writes
        them, or a GGUF control vector of llama.cpp or repeng.
    kind
        ``reading``, ``reading_contrast``, ``pca_contrast`` or ``pca_reading``.
    blocks
        Numbers from 0; the middle one when left out (all in the file, for a
        file).
    strength
        $\alpha$, of either sign; 0 changes nothing.
    normalize
        Whether each token gets back the length it had.
    standardize
        Give a principal direction the length of the mean difference.
    direction
        ``learned``; ``random``, a Gaussian direction of the same length;
        ``shuffled``, learned with positive and negative swapped in a random
        half of the pairs, and given the same length.
    draw
        Which random direction, or which shuffling.
    negatives
        For ``data``: ``random_strings`` (letters, digits and blanks, as many as
        the positive text has, up to 64); ``task``, where a task offers
        ``negative(unit)``; or ``answers``: positive texts are then questions
        with the subject's own right answers, negative ones with its wrong ones.
    only_right
        Use only train units that the subject answers right.
    samples
        Most train units to read.
    save
        A file to write the vectors to, before their strength.

    References
    ----------
    "Improving Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> part = ResidualControlVector(pairs=(("yes, of course", "no, never"),), blocks=(1,))
    >>> steered = part.apply(tiny_model(), Rng(0))
    >>> steered.module.model.layers[1].control_vector
    Injection(width=32, strength=1.0, normalize=False)
    """

    data: Task | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    file: str | None = setting(None)
    kind: str = one_of(*KINDS, default="reading_contrast")
    blocks: tuple[int, ...] = between(0, 10_000, default=())
    strength: float = between(-1e6, 1e6, default=1.0)
    normalize: bool = False
    standardize: bool = False
    direction: str = one_of("learned", "random", "shuffled", default="learned")
    draw: int = between(0, 1_000_000, default=0)
    negatives: str = one_of("random_strings", "task", "answers", default="random_strings")
    only_right: bool = True
    samples: int = between(1, 1_000_000, default=200)
    save: str | None = setting(None)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    edits: ClassVar[frozenset[str]] = frozenset({"residual stream"})

    @classmethod
    def tiny(cls) -> Self:
        return cls(pairs=(("up and away", "down"), ("over the top", "under it all")), strength=2.0)

    @classmethod
    def null(cls) -> Self:
        return cls(strength=0.0)

    def check(self) -> None:
        given = [name for name in ("data", "pairs", "file") if getattr(self, name)]
        if len(given) != 1 and self.strength:
            raise UsageError(
                f"{WHO}: give one of data (a task with train units), pairs of texts or a file, got"
                f" {' and '.join(given) or 'none'}."
            )
        if self.standardize and not self.kind.startswith("pca"):
            raise UsageError(f"{WHO}: standardize is for pca_contrast and pca_reading.")
        if self.direction == "shuffled" and (self.file or not self.kind.endswith("contrast")):
            raise UsageError(
                f"{WHO}: shuffled needs reading_contrast or pca_contrast, made from texts."
            )
        if len(set(self.blocks)) != len(self.blocks):
            raise UsageError(f"{WHO}: blocks names a block twice.")

    def content(self) -> Json:
        from equipoise.kit.data import content_hash

        return None if self.file is None else content_hash(self.file)

    def apply(self, subject: Any, rng: Rng) -> Any:
        if not self.strength:
            return subject
        vectors = self.vectors(subject, rng)
        if self.save:
            write_vectors(self.save, vectors)
        return subject.with_module(
            add_vectors(subject.module, vectors, self.strength, self.normalize)
        )

    def skeleton(self, subject: Any) -> Any:
        from equipoise.kit.language.structure import structure_of

        if self.save and not Path(self.save).expanduser().exists():
            raise UsageError(f"{WHO}: {self.save} is still to be written.")
        if not self.strength:
            return subject
        structure = structure_of(subject.module)
        blocks = (
            read_vectors(self.file) if self.file and not self.blocks else self.places(structure)
        )
        hollow = {block: np.zeros(structure.hidden) for block in blocks}
        return subject.with_module(
            add_vectors(subject.module, hollow, self.strength, self.normalize)
        )

    def places(self, structure: Structure) -> tuple[int, ...]:
        """Return the blocks of a model that get a vector."""
        return self.blocks or (len(structure.blocks) // 2,)

    def vectors(self, subject: Any, rng: Rng) -> dict[int, np.ndarray]:
        """Return the vector of each block, before its strength.

        Parameters
        ----------
        subject
            A live subject with a module.
        rng
            Any stream of the trial; the vectors follow from its seed.
        """
        if self.file:
            vectors = read_vectors(self.file)
            missing = [block for block in self.blocks if block not in vectors]
            if missing:
                there = ", ".join(map(str, vectors))
                raise UsageError(
                    f"{WHO}: {self.file} has no vector for block {missing[0]}; it has {there}."
                )
            vectors = {block: vectors[block] for block in self.blocks or vectors}
        else:
            vectors = self._learned(subject, rng)
        if self.direction == "random":
            draws = self._stream(rng).child("random").numpy()
            for block, vector in vectors.items():
                vectors[block] = _as_long(draws.standard_normal(len(vector)), vector)
        return vectors

    def texts(self, subject: Any, rng: Rng) -> list[tuple[str, str]]:
        """Return the positive and negative texts, in pairs."""
        if self.data is None:
            return list(self.pairs)
        from equipoise.methods.steering._texts import task_texts

        return task_texts(
            WHO, self.data, subject, rng,
            negatives=self.negatives, only_right=self.only_right, samples=self.samples,
        )  # fmt: skip

    def _learned(self, subject: Any, rng: Rng) -> dict[int, np.ndarray]:
        from equipoise.kit.language.structure import structure_of

        blocks = self.places(structure_of(subject.module))
        positive, negative = self._states(subject, blocks, rng)
        found = {}
        for column, block in enumerate(blocks):
            high, low = positive[:, column], negative[:, column]
            vector = control_direction(self.kind, high, low, standardize=self.standardize)
            if self.direction == "shuffled":
                swap = self._stream(rng).child("shuffled").numpy().permutation(len(high)) % 2 == 0
                mixed = [np.where(swap[:, None], a, b) for a, b in ((high, low), (low, high))]
                other = control_direction(self.kind, *mixed, standardize=self.standardize)
                vector = _as_long(other, vector)
            found[block] = vector
        return found

    def _states(
        self, subject: Any, blocks: Sequence[int], rng: Rng
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return states of both kinds of text, read once for all arms that share them."""
        from equipoise.kit.language.states import last_states

        what = replace(
            self, kind="reading", blocks=tuple(blocks), strength=1.0, normalize=False,
            standardize=False, direction="learned", draw=0, save=None,
        )  # fmt: skip
        key = f"{rng.seed} {subject!r} {what!r}"  # what is asked may be rewritten
        known = _read.setdefault(subject.module, {})
        if key not in known:
            texts = self.texts(subject, rng)
            known[key] = tuple(
                last_states(subject, [pair[side] for pair in texts], blocks) for side in (0, 1)
            )
        high, low = known[key]
        return high, low

    def _stream(self, rng: Rng) -> Rng:
        # Not the treatment's own stream: that has the strength in its name.
        return Rng(rng.seed).child(WHO, self.draw)


_read: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _as_long(vector: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return a vector of another's length."""
    size = float(np.linalg.norm(vector))
    if size == 0:
        raise UsageError(f"{WHO}: the shuffled direction is zero; give more pairs.")
    found: np.ndarray = vector * (np.linalg.norm(other) / size)
    return found
