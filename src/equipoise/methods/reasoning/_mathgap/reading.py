"""Solves a problem from its text alone: a grammar of the sentences, then substitution."""

from __future__ import annotations

import re

from equipoise.core import Request, UnitError
from equipoise.kit.language.canned import asked

_A = r"([A-Z][a-z]+(?: [A-Z][a-z]+)?)"
_THING = r"[a-z][a-z ]*"
_SENTENCES = {
    "has": rf"{_A} has (\d+) (?!more |fewer |less |times ){_THING}\.",
    "more": rf"{_A} has (\d+) more {_THING} than {_A}\.",
    "less": rf"{_A} has (\d+) (?:fewer|less) {_THING} than {_A}\.",
    "times": rf"{_A} has (\d+) times as many {_THING} as {_A}\.",
    "fraction": rf"{_A} has 1/(\d+) as many {_THING} as {_A}\.",
    "gave": rf"{_A} gave {_A} (\d+) {_THING}\.",
    "gave to": rf"{_A} gave (\d+) {_THING} to {_A}\.",
    "got": rf"Then {_A} got (\d+) more {_THING} from {_A}\.",
    "equals": rf"The number of {_THING} that {_A} has more than {_A} equals the difference"
    rf" between {_A} and {_A}\.",
    "beyond": rf"What {_A} has in {_THING} beyond {_A} is the difference between {_A} and {_A}\.",
    "ask all": rf"(?:How many {_THING} do they all have together"
    rf"|If everybody puts their {_THING} together, how many {_THING} are there"
    rf"|What is the total number of {_THING} that they all have)\?",
    "ask": rf"(?:How many|What number of) {_THING} does {_A} have(?: in the end| altogether)?\?",
    "ask whether": rf"Can you tell how many {_THING} {_A} has\?",
}
_GRAMMAR = [(kind, re.compile(pattern)) for kind, pattern in _SENTENCES.items()]
_State = tuple[str, int]
"""An agent, and how many transfers have touched them."""


def answer(text: str) -> int:
    """Return what the last question in a text asks for.

    Sentences outside the grammar (instructions, say) are passed over.

    Raises
    ------
    ValueError
        If there is no question, or the sentences don't determine the answer.
    """
    now: dict[str, int] = {}
    known: dict[_State, int] = {}
    open_: list[tuple[str, list[_State], int]] = []
    asked: _State | str | None = None

    def state(agent: str) -> _State:
        return agent, now.get(agent, 0)

    def change(agent: str, amount: int) -> None:
        before = state(agent)
        now[agent] = before[1] + 1
        open_.append(("more", [state(agent), before], amount))

    for sentence in re.split(r"(?<=[.?])\s+", text.strip()):
        match _parsed(sentence):
            case ["has", a, q]:
                known[state(a)] = int(q)
            case ["more" | "less" | "times" | "fraction" as kind, a, q, b]:
                open_.append((kind, [state(a), state(b)], int(q)))
            case ["gave", sender, receiver, q] | ["gave to", sender, q, receiver] | [
                "got", receiver, q, sender,
            ]:  # fmt: skip
                change(sender, -int(q))
                change(receiver, int(q))
            case ["equals" | "beyond", *agents]:
                open_.append(("equals", [state(each) for each in agents], 0))
            case ["ask all", *_]:
                asked = "all"
            case ["ask" | "ask whether", a]:
                asked = state(a)
    while open_:
        left = [each for each in open_ if not _settle(known, *each)]
        if len(left) == len(open_):
            break
        open_ = left
    if asked == "all":
        return sum(known.values())
    if asked not in known:
        raise ValueError("the sentences do not determine what is asked")
    return known[asked]


def _parsed(sentence: str) -> list[str]:
    for kind, pattern in _GRAMMAR:
        found = pattern.fullmatch(sentence)
        if found:
            return [kind, *found.groups()]
    return []


def _settle(known: dict[_State, int], kind: str, states: list[_State], q: int) -> bool:
    """Work out the one unknown of a relation; say whether nothing is left unknown."""
    a, b = states[:2]
    if kind == "equals":
        if states[2] not in known or states[3] not in known:
            return False
        kind, q = "more", abs(known[states[2]] - known[states[3]])
    if b in known:
        x = known[b]
        known[a] = {"more": x + q, "less": x - q, "times": x * q, "fraction": x // max(q, 1)}[kind]
    elif a in known:
        x = known[a]
        known[b] = {"more": x - q, "less": x + q, "times": x // max(q, 1), "fraction": x * q}[kind]
    return a in known


def solve(request: Request) -> str:
    """Answer a request by reading what it asks; the oracle of the task."""
    text = asked(request.prompt).split("\n\n")[-1]
    try:
        return f"The answer is {answer(text)}."
    except ValueError as error:
        raise UnitError(f"The solver cannot read this problem: {error}.", "garbage") from error
