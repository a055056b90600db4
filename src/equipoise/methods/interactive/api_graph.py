r"""Which interface can feed which: the three-threshold rule on interfaces whose edges are known.

The plain functions are `name_similarity`, `api_edges`, `verified_edges` and `edge_quality`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Embeds,
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UnitError,
    UsageError,
    between,
)
from equipoise.kit.language.talk import each, error_outcome
from equipoise.kit.worlds.api_dialogues import glosses, make_world
from equipoise.methods.interactive._tooldial_graph import (
    api_edges,
    edge_quality,
    name_similarity,
    ngram_vectors,
    verified_edges,
)

__all__ = [
    "ApiGraph",
    "NgramEmbedder",
    "api_edges",
    "edge_quality",
    "name_similarity",
    "ngram_vectors",
    "verified_edges",
]


@dataclass(frozen=True)
class ApiGraph(Task):
    r"""Finds whose output can be whose input, by names, keywords and descriptions.

    A unit is a set of generated interfaces whose true edges are known by type. An edge is found
    where $2\,\mathrm{LCS}/(|o|+|i|)$ of names, the cosine of keywords and the cosine of
    descriptions, in the subject's vectors, all exceed their thresholds. Spellings vary, some names
    stand for different things, and some things have two names. Scores: ``precision`` and
    ``recall`` of the edges found, ``verified_precision`` and ``verified_recall`` of those among
    them that work when both interfaces are called, ``edges`` their number before that.

    Parameters
    ----------
    worlds
        Sets of interfaces.
    apis
        Interfaces in a set.
    names, keywords, descriptions
        Thresholds; -1 switches a criterion off.

    References
    ----------
    "ToolDial: Multi-turn Dialogue Generation Method for Tool-Augmented Language Models", ICLR 2025.

    Examples
    --------
    >>> task = ApiGraph(worlds=1)
    >>> (outcome,) = task.perform(NgramEmbedder().load(Rng(0)), list(task.units(Rng(0))), Rng(0))
    >>> outcome.scores["precision"], outcome.scores["recall"] > 0.7
    (1.0, True)
    """

    worlds: int = between(1, 10_000, default=20)
    apis: int = between(24, 400, default=120)
    names: float = between(-1, 1, default=0.83)
    keywords: float = between(-1, 1, default=0.5)
    descriptions: float = between(-1, 1, default=0.77)

    needs: ClassVar[frozenset[Capability]] = frozenset({Embeds})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("precision", True, 0, 1),
        ScoreSpec("recall", True, 0, 1),
        ScoreSpec("verified_precision", True, 0, 1),
        ScoreSpec("verified_recall", True, 0, 1),
        ScoreSpec("edges", None, low=0),
    )

    @classmethod
    def tiny(cls) -> Self:
        return cls(worlds=2)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield a unit a set of interfaces; its content is the seed that draws them."""
        for number in range(self.worlds):
            seed = rng.child("api_graph", number).seed_for_request()
            yield Unit(f"{seed:08x}", {"seed": seed, "apis": self.apis})

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        found = each(lambda some: [self._outcome(subject, unit) for unit in some], units)
        return [
            error_outcome(unit, one) if isinstance(one, UnitError) else one
            for unit, one in zip(units, found, strict=True)
        ]

    def _outcome(self, subject: Any, unit: Unit) -> Outcome:
        world = make_world(unit.content["apis"], Rng(unit.content["seed"]))
        thresholds = (self.names, self.keywords, self.descriptions)
        # At -1 a criterion lets everything pass, vectors that point the other way included.
        a, b, c = (-2.0 if threshold == -1 else threshold for threshold in thresholds)
        try:
            found = api_edges(world.apis.values(), subject.embed, thresholds=(a, b, c))
        except UsageError as error:  # vectors that are not finite, or too few
            raise UnitError(str(error), "garbage") from error
        true, kept = list(world.edges()), verified_edges(world, found)
        precision, recall = edge_quality(found, true)
        verified = edge_quality(kept, true)
        return Outcome(
            unit.id,
            {
                "precision": precision,
                "recall": recall,
                "verified_precision": verified[0],
                "verified_recall": verified[1],
                "edges": float(len(found)),
            },
            output={"found": len(found), "verified": len(kept), "true": len(true)},
        )

    def oracle(self) -> Any:
        """Return an embedder that knows which descriptions mean the same."""
        return _Knows()

    def constant(self) -> Any:
        """Return an embedder to which all texts are alike."""
        return _Alike()


@dataclass(frozen=True)
class NgramEmbedder(Subject):
    """Embeds texts by their words and pieces of words, without training and without a download.

    The plain function is `ngram_vectors`: hashed words and pieces of 3 to 5 letters, of length 1.

    Examples
    --------
    >>> NgramEmbedder().load(Rng(0)).embed(["a hotel", "a flight"]).shape
    (2, 1024)
    """

    provides: ClassVar[frozenset[Capability]] = frozenset({Embeds})

    def load(self, rng: Rng) -> Any:
        """Return the live embedder; nothing is drawn."""
        return _Ngrams()


class _Ngrams:
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return ngram_vectors(texts)


class _Alike:
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), 1))


class _Knows:
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Mark what each text is about; texts that do not say are alike."""
        known = glosses()
        found = np.zeros((len(texts), len(known) + 1))
        for row, text in enumerate(texts):
            about = [place for place, gloss in enumerate(known) if gloss in text]
            found[row, about[0] if about else -1] = 1.0
        return found
