"""Names, things and sentences. Every wording has a counterpart in `reading`."""

from __future__ import annotations

from random import Random
from typing import Literal

from equipoise.methods.reasoning._mathgap.forms import (
    Comp,
    CompEq,
    Cont,
    Form,
    PartWhole,
    Thing,
    Transfer,
)

Surface = Literal["mixed", "plain", "attribute", "unit"]

NAMES = (
    "Ada", "Alan", "Alma", "Amos", "Anton", "Astrid", "Aziz", "Bela", "Bianca", "Boris", "Bram",
    "Bruno", "Carla", "Cedric", "Celia", "Clara", "Cosmo", "Cyrus", "Dalia", "Dario", "Della",
    "Diego", "Dora", "Dylan", "Edgar", "Edith", "Elena", "Elias", "Elsa", "Emil", "Enzo",
    "Erin", "Esther", "Ezra", "Fatima", "Felix", "Fiona", "Flora", "Frida", "Gemma", "Gerda",
    "Gideon", "Gloria", "Greta", "Gustav", "Hamid", "Hazel", "Hector", "Heidi", "Helga", "Hugo",
    "Ida", "Igor", "Ilse", "Imran", "Ines", "Ingrid", "Irma", "Ivan", "Ivy", "Jasper", "Jenna",
    "Joan", "Jonas", "Judith", "Julia", "Kai", "Karim", "Keiko", "Kira", "Kurt", "Lara", "Lars",
    "Leah", "Leila", "Leon", "Lina", "Lotte", "Louis", "Luca", "Magda", "Malik", "Marco",
    "Marta", "Maya", "Milo", "Mira", "Moira", "Nadia", "Naomi", "Nils", "Nina", "Noel", "Nora",
    "Olaf", "Olga", "Omar", "Oscar", "Otis", "Otto", "Paula", "Pavel", "Perla", "Petra",
    "Quinn", "Rafael", "Ramona", "Renata", "Rita", "Rosa", "Ruben", "Rufus", "Sara", "Selma",
    "Simon", "Sonja", "Stella", "Sven", "Tamar", "Tariq", "Tessa", "Theo", "Tilda", "Tomas",
    "Ulla", "Uma", "Ursula", "Vera", "Viktor", "Viola", "Wanda", "Wendy", "Yara", "Yusuf",
    "Zelda", "Zoe",
)  # fmt: skip

FAMILIES = (
    "Adler", "Baker", "Castro", "Dupont", "Engel", "Fischer", "Gomez", "Haas", "Ito", "Jansen",
    "Keller", "Lang", "Moreau", "Novak", "Okafor", "Perez", "Quint", "Rossi", "Sato", "Turner",
    "Unger", "Vogel", "Weber", "Xu", "Young", "Zeller",
)  # fmt: skip

ENTITIES = (
    "balls", "bells", "books", "boxes", "buttons", "cakes", "candles", "caps", "cards",
    "chairs", "coins", "combs", "cushions", "dolls", "drums", "envelopes", "flags", "forks",
    "gloves", "hats", "jars", "kites", "ladders", "lamps", "magnets", "maps", "marbles", "mugs",
    "needles", "notebooks", "pencils", "pillows", "plates", "puzzles", "ribbons", "scarves",
    "shells", "shovels", "spoons", "stamps", "stickers", "stones", "tickets", "towels", "trays",
    "whistles",
)  # fmt: skip

ATTRIBUTES = (
    "red", "blue", "green", "yellow", "white", "black", "purple", "orange", "small", "large",
    "old", "new", "heavy", "light", "round", "square", "wooden", "shiny",
)  # fmt: skip

UNITS = {
    "water": "litres",
    "juice": "bottles",
    "honey": "jars",
    "flour": "kilograms",
    "sugar": "spoonfuls",
    "rice": "bags",
    "tea": "cups",
    "paper": "sheets",
    "string": "metres",
    "cloth": "yards",
    "land": "hectares",
    "wood": "stacks",
    "sand": "buckets",
    "bread": "loaves",
    "soap": "bars",
}

WHOLES = {
    "fruits": ("pears", "plums", "cherries", "lemons", "peaches", "figs"),
    "vegetables": ("carrots", "onions", "radishes", "turnips", "leeks", "beets"),
    "flowers": ("tulips", "roses", "daisies", "lilies", "poppies", "violets"),
    "tools": ("hammers", "saws", "pliers", "chisels", "drills", "files"),
    "toy animals": ("toy bears", "toy lions", "toy rabbits", "toy whales", "toy tigers"),
}

_CONT = ("{a} has {q} {e}.",)
_COMP = {
    "more": ("{a} has {q} more {e} than {b}.",),
    "less": ("{a} has {q} fewer {e} than {b}.", "{a} has {q} less {e} than {b}."),
    "times": ("{a} has {q} times as many {e} as {b}.",),
    "fraction": ("{a} has 1/{q} as many {e} as {b}.",),
}
_TRANSFER = (
    "{b} gave {a} {q} {e}.",
    "{b} gave {q} {e} to {a}.",
    "Then {a} got {q} more {e} from {b}.",
)
_COMPEQ = (
    "The number of {e} that {a} has more than {b} equals the difference between {c} and {d}.",
    "What {a} has in {e} beyond {b} is the difference between {c} and {d}.",
)
_WHOLE = ("Together {all} have {q} {e}.",)
_ASK = (
    "How many {e} does {a} have?",
    "How many {e} does {a} have in the end?",
    "How many {e} does {a} have altogether?",
    "What number of {e} does {a} have?",
    "Can you tell how many {e} {a} has?",
)
_ASK_ALL = (
    "How many {e} do they all have together?",
    "If everybody puts their {e} together, how many {e} are there?",
    "What is the total number of {e} that they all have?",
)
VARIANTS = 30
"""A multiple of every number of wordings, so that each is as likely as another."""


def names(count: int, random: Random) -> list[str]:
    """Return ``count`` different names; given names alone while they last."""
    if count <= len(NAMES):
        return random.sample(NAMES, count)
    if count > len(NAMES) * len(FAMILIES):
        raise ValueError(f"there are names for {len(NAMES) * len(FAMILIES)} agents, not {count}")
    numbers = random.sample(range(len(NAMES) * len(FAMILIES)), count)
    return [f"{NAMES[n // len(FAMILIES)]} {FAMILIES[n % len(FAMILIES)]}" for n in numbers]


def thing(surface: str, random: Random) -> Thing:
    """Return a thing to count, on the surface named."""
    if surface == "mixed":
        surface = random.choice(("plain", "attribute", "unit"))
    if surface == "unit":
        entity = random.choice(tuple(UNITS))
        return Thing(entity, unit=UNITS[entity])
    attribute = random.choice(ATTRIBUTES) if surface == "attribute" else None
    return Thing(random.choice(ENTITIES), attribute)


def parts(count: int, surface: str, random: Random) -> tuple[Thing, list[Thing]]:
    """Return a whole and ``count`` parts of it; parts may be alike, and have no units."""
    if surface == "mixed":
        surface = random.choice(("plain", "attribute"))
    attribute = random.choice(ATTRIBUTES) if surface == "attribute" else None
    whole = random.choice(tuple(WHOLES))
    chosen = [Thing(random.choice(WHOLES[whole]), attribute) for _ in range(count)]
    return Thing(whole, attribute), chosen


def state(form: Form, variant: int = 0) -> str:
    """Return the sentence that states a form."""
    match form:
        case Cont(a, q, thing):
            return _of(_CONT, variant).format(a=a, q=q, e=thing)
        case Comp(a, b, q, kind, thing):
            return _of(_COMP[kind], variant).format(a=a, b=b, q=q, e=thing)
        case Transfer(a, b, q, thing):
            return _of(_TRANSFER, variant).format(a=a, b=b, q=q, e=thing)
        case CompEq(a, b, c, d, thing):
            return _of(_COMPEQ, variant).format(a=a, b=b, c=c, d=d, e=thing)
        case PartWhole(agents, q, thing):
            return _of(_WHOLE, variant).format(all=_listed(agents), q=q, e=thing)


def ask(form: Form, variant: int = 0) -> str:
    """Return the question a form answers."""
    if isinstance(form, PartWhole):
        return _of(_ASK_ALL, variant).format(e=form.thing)
    assert isinstance(form, Cont)
    return _of(_ASK, variant).format(a=form.agent, e=form.thing)


def derive(form: Form, sum_: str) -> str:
    """Return the sentence that draws a conclusion; ``sum_`` reads ``x op y = z``."""
    match form:
        case Cont(a, _, thing):
            return f"So {a} has {sum_} {thing}."
        case Comp(a, b, _, kind, thing):
            return f"So {a} has {sum_} {'more' if kind == 'more' else 'fewer'} {thing} than {b}."
        case PartWhole(_, _, thing):
            return f"So together they have {sum_} {thing}."
    raise ValueError(f"{form!r} is never derived")


def vocabulary() -> list[str]:
    """Return every word and mark the sentences are made of, without numbers, sorted."""
    texts = [
        *NAMES, *FAMILIES, *ENTITIES, *ATTRIBUTES, *UNITS, *UNITS.values(), *WHOLES,
        *(part for kinds in WHOLES.values() for part in kinds),
        *_CONT, *(each for kinds in _COMP.values() for each in kinds), *_TRANSFER, *_COMPEQ,
        *_WHOLE, *_ASK, *_ASK_ALL, "So together they have more fewer than and", "+ - * / = , . ?",
    ]  # fmt: skip
    found = set()
    for text in texts:
        for blank in ("{a}", "{b}", "{c}", "{d}", "{e}", "{q}", "{all}", "1/"):
            text = text.replace(blank, " ")
        for mark in ".,?":
            text = text.replace(mark, f" {mark} ")
        found.update(text.split())
    return sorted(found)


def _of(wordings: tuple[str, ...], variant: int) -> str:
    return wordings[variant % len(wordings)]


def _listed(agents: tuple[str, ...]) -> str:
    return ", ".join(agents[:-1]) + " and " + agents[-1]
