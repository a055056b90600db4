r"""Interfaces with typed parameters, a back end that answers for them, and dialogues that use them.

Everything is drawn from a stream: `make_world` gives interfaces and the table behind them,
`make_dialogue` a conversation between a user and a system in which one interface may have to supply
a parameter of another. What is right at every turn is known by construction.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.core import Rng, Split, UsageError
from equipoise.kit.worlds._api_talk import USER_ACTIONS, Dialogue, Speech, Turn, write
from equipoise.kit.worlds._api_words import ADJECTIVES, FACTS, FILTERS, THINGS

__all__ = [
    "CATEGORIES",
    "SYSTEM_ACTIONS",
    "USER_ACTIONS",
    "Api",
    "ApiError",
    "Dialogue",
    "Entity",
    "Turn",
    "World",
    "glosses",
    "make_dialogue",
    "make_world",
]

SYSTEM_ACTIONS = (
    "request",
    "response",
    "clarify",
    "suggest",
    "response_fail",
    "system_bye",
    "call",
    "retriever_call",
)
CATEGORIES = ("yesyes", "yeszero", "zeroyes", "zerozero")

_IDS = 40  # identifiers a thing has in the table
_SEVERAL = 3  # rows of a search that finds several
_OPENINGS = {"clear": 4, "add": 3, "vague_clear": 3, "vague_add": 2, "affirm": 3, "negate": 1}


class ApiError(Exception):
    """A call that the back end refuses; the text says why."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An input or an output of an interface.

    Parameters
    ----------
    name
        As the interface spells it.
    kind
        Its true type; an output fits an input of the same type.
    keywords, description
        What a documentation says about it.
    """

    name: str
    kind: str
    keywords: str
    description: str


@dataclass(frozen=True, slots=True)
class Api:
    """An interface: what it takes and what it returns.

    Parameters
    ----------
    name, description
        As a documentation has them.
    thing
        What it is about, such as ``"travel:hotel"``.
    required, optional, outputs
        Its parameters and results.
    several
        Whether a call returns several rows to choose from.
    """

    name: str
    description: str
    thing: str
    required: tuple[Entity, ...]
    optional: tuple[Entity, ...]
    outputs: tuple[Entity, ...]
    several: bool = False

    @property
    def searches(self) -> bool:
        """Whether it supplies an identifier of its thing."""
        return any(each.kind == self.thing for each in self.outputs)

    def document(self) -> dict[str, Any]:
        """Return what a documentation shows, as JSON."""

        def listed(some: tuple[Entity, ...]) -> dict[str, str]:
            return {each.name: each.description for each in some}

        return {
            "api_name": self.name,
            "api_description": self.description,
            "required_parameters": listed(self.required),
            "optional_parameters": listed(self.optional),
        }


@dataclass(frozen=True)
class World:
    """Interfaces by name, and the seeded table that answers their calls.

    Examples
    --------
    >>> world = make_world(60, Rng(0))
    >>> api = next(each for each in world.apis.values() if each.searches and not each.required)
    >>> sorted(world.call(api.name, {})[0]) == sorted(output.name for output in api.outputs)
    True
    """

    apis: Mapping[str, Api]
    seed: int
    splits: Mapping[str, Split] = field(default_factory=dict)
    """Each thing's split: dialogues of different splits are about different things."""

    def call(self, name: str, parameters: Mapping[str, Any]) -> list[dict[str, str]]:
        """Return the rows that a call finds.

        Raises
        ------
        ApiError
            If the interface is unknown, or a parameter is missing, unknown or has a value that is
            not in the table.
        """
        if name not in self.apis:
            raise ApiError(f"there is no interface {name}")
        api = self.apis[name]
        known = {each.name: each for each in (*api.required, *api.optional)}
        for each in api.required:
            if parameters.get(each.name) in (None, ""):
                raise ApiError(f"{name} needs {each.name}")
        for key, value in parameters.items():
            if key not in known:
                raise ApiError(f"{name} has no parameter {key}")
            if value != "" and str(value) not in self.values(known[key].kind):
                raise ApiError(f"{name} knows no {key} {value}")
        given = sorted((key, str(value)) for key, value in parameters.items() if value != "")
        rows = []
        for number in range(_SEVERAL if api.several else 1):
            row = {}
            for output in api.outputs:
                row[output.name] = self._cell(output.kind, name, str(given), number)
            rows.append(row)
        return rows

    def values(self, kind: str) -> tuple[str, ...]:
        """Return the values that a type of parameter can have."""
        domain, _, word = kind.partition(":")
        for name, _, values in FILTERS[domain]:
            if name == word:
                return values
        start = (domain[:2] + word[:3]).upper()  # no two things share it
        step = 1 + _hashed(self.seed, kind) % 97
        return tuple(f"{start}-{1000 + (step * (i + 1) * 89) % 8999}" for i in range(_IDS))

    def edges(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield every true edge: interface, output, interface, required input of the same type."""
        for one in self.apis.values():
            for output in one.outputs:
                for other in self.apis.values():
                    for needed in other.required:
                        if output.kind == needed.kind and one.name != other.name:
                            yield one.name, output.name, other.name, needed.name

    def _cell(self, kind: str, *key: object) -> str:
        draw = _hashed(self.seed, kind, *key)
        word = kind.partition(":")[2]
        if word == "label":
            return f"{ADJECTIVES[draw % len(ADJECTIVES)]} {1 + draw // 8 % 90}"
        if word.startswith("fact "):
            return str(10 + draw % 9000)
        values = self.values(kind)
        # Rows of one search differ: each takes the next value.
        first = _hashed(self.seed, kind, *key[:-1])
        return values[(first + int(str(key[-1]))) % len(values)]


def _hashed(*key: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=6).digest(), "big")


def make_world(apis: int, rng: Rng) -> World:
    """Return a world of interfaces about travel, sports and shopping.

    Each thing has two searches that supply its identifier, one of which asks for something, and
    two or more interfaces that need the identifier and tell facts, half of which ask for more.
    Spellings and descriptions vary, and some names stand for different things in different domains.

    Parameters
    ----------
    apis
        How many, from 24 to 400.
    rng
        The stream that all is drawn from.

    Raises
    ------
    UsageError
        If there are to be too few or too many.
    """
    if not 24 <= apis <= 400:
        raise UsageError(f"make_world: apis must be from 24 to 400, got {apis:,}.")
    draw = rng.child("world").numpy()
    words = [f"{domain}:{word}" for domain, some in THINGS.items() for word, _ in some]
    words = [words[i] for i in draw.permutation(len(words))][: max(apis // 4, 6)]
    found: dict[str, Api] = {}
    for index in range(apis):
        round_, place = divmod(index, len(words))
        api = _api(words[place], round_, draw)
        found[api.name] = api
    return World(found, rng.seed_for_request(), _splits(words, draw))


def _splits(words: list[str], draw: np.random.Generator) -> dict[str, Split]:
    """Give three words in ten to test and two words to calibration, with all their meanings."""
    plain = sorted({word.partition(":")[2] for word in words})
    order = [plain[i] for i in draw.permutation(len(plain))]
    test = math.ceil(0.3 * len(order))
    learned = test + (2 if len(order) > 9 else 1)  # some are left to train on, however few
    found: dict[str, Split] = {}
    for word in words:
        place = order.index(word.partition(":")[2])
        found[word] = "test" if place < test else "calibration" if place < learned else "train"
    return found


def _api(thing: str, round_: int, draw: np.random.Generator) -> Api:
    domain, _, word = thing.partition(":")
    gloss = dict(THINGS[domain])[word]
    searches, asks = round_ % 4 in (0, 2) and round_ < 4, round_ % 4 in (0, 1)
    filters = [FILTERS[domain][i] for i in draw.permutation(len(FILTERS[domain]))]
    extra = tuple(_filter(domain, filters[i], draw) for i in range(int(draw.integers(1, 3))))
    optional = (_filter(domain, filters[3], draw),) if asks and draw.random() < 0.4 else ()
    identifier = _identifier(thing, word, gloss, draw)
    title = word.capitalize()
    if searches:
        how = "By" + "And".join(each.name.title().replace("_", "") for each in extra)
        label = Entity(f"{word}_label", f"{domain}:label", f"{word} label", f"Label of {gloss}.")
        return Api(
            f"{domain.capitalize()}{title}Search{how if asks else 'Trending'}",
            f"Finds {gloss}{' by ' + ' and '.join(e.name for e in extra) if asks else ''}.",
            thing, extra if asks else (), optional, (identifier, label),
            several=bool(draw.random() < 0.5),
        )  # fmt: skip
    facts = [FACTS[domain][(round_ + i) % len(FACTS[domain])] for i in range(2)]
    outputs = tuple(
        Entity(each.replace(" ", "_"), f"{domain}:fact {word} {each}", f"{word} {each}",
               f"The {each} of {gloss}.")
        for each in facts
    )  # fmt: skip
    return Api(
        f"{domain.capitalize()}{title}{facts[0].title().replace(' ', '')}{round_}",
        f"Tells the {facts[0]} and the {facts[1]} of {gloss}.",
        thing, (identifier, *(extra if asks else ())), optional, outputs,
    )  # fmt: skip


def _identifier(thing: str, word: str, gloss: str, draw: np.random.Generator) -> Entity:
    spellings = (f"{word}_id", f"{word}Id", f"{word.capitalize()}ID", f"{word}_identifier")
    name = spellings[draw.choice(4, p=[0.4, 0.3, 0.2, 0.1])]
    said = ("Identifier of {}.", "The identifier that names {}.", "Unique identifier of {}.")
    described = said[draw.integers(len(said))].format(gloss)
    return Entity(name, thing, f"{word} identifier {gloss.split()[-1]}", described)


def glosses() -> tuple[str, ...]:
    """Return what each thing is, as descriptions put it.

    Examples
    --------
    >>> "a hotel where travellers stay overnight" in glosses()
    True
    """
    return tuple(gloss for some in THINGS.values() for _, gloss in some)


def _filter(
    domain: str, known: tuple[str, str, tuple[str, ...]], draw: np.random.Generator
) -> Entity:
    name, gloss, _ = known
    said = ("The {}.", "The {}, as text.")[draw.integers(2)]
    return Entity(name, f"{domain}:{name}", f"{name.replace('_', ' ')}", said.format(gloss))


def make_dialogue(world: World, name: str, split: Split, rng: Rng) -> Dialogue:
    """Return a dialogue about things of one split.

    A category is drawn evenly from those that the split has, then an edge of it, how the user
    opens, whether the user knows the parameter that the edge could supply, and all values.

    Parameters
    ----------
    world
        From `make_world`.
    name
        The dialogue's id.
    split
        Whose things to talk about.
    rng
        The dialogue's own stream.
    """
    draw = rng.numpy()
    pairs: dict[str, list[tuple[Api, Api]]] = {each: [] for each in CATEGORIES}
    for source, target in _chains(world, split):
        asks = "yes" if source.required else "zero"
        more = "yes" if len(target.required) > 1 else "zero"
        pairs[asks + more].append((source, target))
    categories = [each for each in CATEGORIES if pairs[each]]
    category = categories[draw.integers(len(categories))]
    source, target = pairs[category][draw.integers(len(pairs[category]))]
    weights = np.array(list(_OPENINGS.values()), float)
    opening = list(_OPENINGS)[draw.choice(len(weights), p=weights / weights.sum())]
    known = opening in ("add", "vague_add") or bool(draw.random() < 0.5)
    speech = Speech(world, source, target, draw)
    turns = write(speech, opening, known=known, others=bool(draw.random() < 0.5))
    return Dialogue(name, category, source.name, target.name, tuple(turns))


def _chains(world: World, split: Split) -> Iterator[tuple[Api, Api]]:
    """Yield pairs whose first supplies the identifier that the second needs."""
    for source in world.apis.values():
        if source.searches and world.splits.get(source.thing) == split:
            for target in world.apis.values():
                if target.thing == source.thing and not target.searches:
                    yield source, target
