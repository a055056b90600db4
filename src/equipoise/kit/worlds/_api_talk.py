"""How `api_dialogues` writes a dialogue: who does what, what is known then, and what is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from equipoise.kit.worlds._api_words import SYSTEM, THOUGHTS, USER

if TYPE_CHECKING:
    from equipoise.kit.worlds.api_dialogues import Api, Entity, World

USER_ACTIONS = (
    "inform_intent_clear",
    "inform_intent_clear_add",
    "inform_intent_vague",
    "inform",
    "fail_inform",
    "affirm",
    "negate",
    "user_bye",
)
UNCONFIRMED: dict[str, Any] = {"api_confirmed": "false", "api_status": "none"}
_ORDINALS = ("first", "second", "third")
_OTHERS = 3  # interfaces that the retriever finds beside the right one


@dataclass(frozen=True, slots=True)
class Turn:
    """One action of the user or of the system.

    Parameters
    ----------
    speaker, action
        Who does what.
    message
        What is said, empty for actions that only the system sees.
    thought
        Why the system does it.
    state
        The dialogue state before the system acts, given all that was said and returned.
    retrieved
        Scores that a retriever call returned, by interface.
    documents
        Documentation that came with them.
    called, results
        The interface that was called, and what it returned.
    """

    speaker: Literal["user", "system"]
    action: str
    message: str = ""
    thought: str = ""
    state: Mapping[str, Any] | None = None
    retrieved: Mapping[str, float] | None = None
    documents: Mapping[str, Any] | None = None
    called: str | None = None
    results: Any = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A dialogue: its id, the category of its edge, both interfaces, and the turns."""

    id: str
    category: str
    source: str
    target: str
    turns: tuple[Turn, ...]


class Speech:
    """Draws what is said and which values it is about."""

    def __init__(self, world: World, source: Api, target: Api, draw: np.random.Generator) -> None:
        self.world, self.source, self.target, self.draw = world, source, target, draw
        self.word = target.thing.partition(":")[2]
        self.chain = next(each for each in target.required if each.kind == target.thing)
        self.fact = target.outputs[0].name.replace("_", " ")
        self.found = self.values(source.required) | self.whims(source)
        self.rows = world.call(source.name, self.found)
        self.pick = int(draw.integers(len(self.rows)))
        supplied = next(each for each in source.outputs if each.kind == target.thing)
        self.supplied = self.rows[self.pick][supplied.name]
        self.wanted = self.values(target.required) | self.whims(target)

    def values(self, entities: Sequence[Entity]) -> dict[str, str]:
        """Draw a value for each parameter."""
        found = {}
        for each in entities:
            known = self.world.values(each.kind)
            found[each.name] = known[self.draw.integers(len(known))]
        return found

    def whims(self, api: Api) -> dict[str, str]:
        """Draw values for optional parameters, or leave them out."""
        return self.values(api.optional) if self.draw.random() < 0.5 else {}

    def user(self, action: str, key: str = "", **places: str) -> Turn:
        return Turn("user", action, self._said(USER[key or action], **places))

    def system(self, action: str, state: Mapping[str, Any], key: str = "", **others: Any) -> Turn:
        places = {
            name: others.pop(name) for name in ("names", "options", "facts") if name in others
        }
        lines = SYSTEM.get(key or action)
        message = self._said(lines, **places) if lines else ""
        thought = THOUGHTS.get(key, THOUGHTS[action])
        return Turn("system", action, message, thought, state, **others)

    def _said(self, lines: Sequence[str], **places: str) -> str:
        article = "an" if self.word[0] in "aeiou" else "a"
        plural = self.word + ("es" if self.word[-2:] in ("ch", "sh") else "s")
        plural = "ferries" if self.word == "ferry" else plural
        known = {"thing": self.word, "things": plural, "a_thing": f"{article} {self.word}",
                 "fact": self.fact, "chain": self.chain.name}  # fmt: skip
        return lines[int(self.draw.integers(len(lines)))].format(**known, **places)

    def retrieved(self, api: Api | None, low: float, high: float) -> dict[str, float]:
        """Draw scores, the best of them from ``low`` to ``high`` and, if given, of ``api``."""
        names = [each for each in self.world.apis if api is None or each != api.name]
        picks = self.draw.choice(len(names), size=_OTHERS + (api is None), replace=False)
        best = round(float(self.draw.uniform(low, high)), 2)
        rest = np.sort(self.draw.uniform(0.2, best - 0.02, size=len(picks)))[::-1]
        found = [] if api is None else [(api.name, best)]
        found += [(names[i], round(float(x), 2)) for i, x in zip(picks, rest, strict=True)]
        return dict(found)

    def choice(self) -> tuple[str, str]:
        """Return how the system offers the rows found, and how the user picks one."""
        label = next(each.name for each in self.source.outputs if each.kind.endswith(":label"))
        labels = [row[label] for row in self.rows]
        if len(set(labels)) == len(labels) and self.draw.random() < 0.5:
            picked = f"I mean {labels[self.pick]}"
        else:
            picked = f"I mean the {_ORDINALS[self.pick]} one"
        return ", ".join(labels[:-1]) + f" and {labels[-1]}", picked


def state_of(api: Api, filled: Mapping[str, str]) -> dict[str, Any]:
    """Return the dialogue state in which ``api`` is confirmed and some parameters are filled."""
    return {
        "api_confirmed": "true",
        "api_status": {
            "api_name": api.name,
            "required_parameters": {e.name: filled.get(e.name, "") for e in api.required},
            "optional_parameters": {e.name: filled.get(e.name, "") for e in api.optional},
        },
    }


def _missing(api: Api, filled: Mapping[str, str]) -> list[str]:
    return [each.name for each in api.required if each.name not in filled]


def _listed(values: Mapping[str, str]) -> str:
    return " and ".join(f"the {name} is {value}" for name, value in values.items())


def _named(names: Sequence[str]) -> str:
    return " and ".join(f"the {name}" for name in names)


def _asked(api: Api, filled: Mapping[str, str]) -> str:
    """Name what a request asks for: what is missing, and what may be given."""
    names = _missing(api, filled)
    wishes = [each.name for each in api.optional if each.name not in filled]
    wish = f" (and, if you like, {_named(wishes)})" if wishes else ""
    return _named(names) + wish


def write(speech: Speech, opening: str, *, known: bool, others: bool) -> list[Turn]:
    """Write the turns: the opening, the parameters, the calls, the answer and the farewell.

    Parameters
    ----------
    speech
        What is said, and about what.
    opening
        ``clear``, ``add`` (with the chained parameter's value), either after a vague start that
        had to be clarified, or a vague start with a suggestion that is affirmed or negated.
    known
        Whether the user knows the parameter that the source could supply.
    others
        Whether a user who does not know it tells the others at once.
    """
    turns, filled = _opened(speech, opening)
    if opening == "negate":
        return turns
    target = speech.target
    if known:
        if _missing(target, filled):
            asked = speech.system("request", state_of(target, filled), names=_asked(target, filled))
            told = {name: value for name, value in speech.wanted.items() if name not in filled}
            filled |= told
            turns += [asked, speech.user("inform", values=_listed(told))]
    else:
        filled = _chained(speech, turns, others)
    turns.append(_call(speech, target, filled))
    facts = _listed({k.replace("_", " "): v for k, v in turns[-1].results[0].items()})
    full = state_of(target, filled)
    turns.append(speech.system("response", full, facts=facts))
    turns += [speech.user("user_bye"), speech.system("system_bye", full)]
    return turns


def _opened(speech: Speech, opening: str) -> tuple[list[Turn], dict[str, str]]:
    """Write the turns up to a confirmed interface, or to a negated suggestion."""
    target, turns = speech.target, []
    document = target.document()
    if opening in ("affirm", "negate"):
        scores = speech.retrieved(target, 0.5, 0.59)
        turns = [
            speech.user("inform_intent_vague"),
            speech.system("retriever_call", UNCONFIRMED, retrieved=scores, documents=document),
            speech.system("suggest", UNCONFIRMED),
            speech.user(opening),
        ]
        if opening == "negate":
            turns.append(speech.system("response_fail", UNCONFIRMED))
        return turns, {}
    if opening.startswith("vague"):
        scores = speech.retrieved(None, 0.3, 0.49)
        turns = [
            speech.user("inform_intent_vague"),
            speech.system("retriever_call", UNCONFIRMED, retrieved=scores),
            speech.system("clarify", UNCONFIRMED),
        ]
    filled = {}
    if opening.endswith("add"):
        filled = {speech.chain.name: speech.wanted[speech.chain.name]}
        turns.append(speech.user("inform_intent_clear_add", value=filled[speech.chain.name]))
    else:
        turns.append(speech.user("inform_intent_clear"))
    scores = speech.retrieved(target, 0.6, 0.92)
    found = speech.system("retriever_call", UNCONFIRMED, retrieved=scores, documents=document)
    return [*turns, found], filled


def _chained(speech: Speech, turns: list[Turn], others: bool) -> dict[str, str]:
    """Write how the source supplies what the user does not know; return what is filled at last."""
    source, target, chain = speech.source, speech.target, speech.chain.name
    rest = {name: value for name, value in speech.wanted.items() if name != chain}
    turns.append(speech.system("request", state_of(target, {}), names=_asked(target, {})))
    filled: dict[str, str] = {}
    if others and len(target.required) > 1:
        filled = dict(rest)
        turns.append(speech.user("fail_inform", "fail_inform_but", values=_listed(rest)))
    else:
        turns.append(speech.user("fail_inform"))
    turns.append(
        speech.system(
            "retriever_call", state_of(target, filled), "retriever_call_chain",
            retrieved=speech.retrieved(source, 0.6, 0.92), documents=source.document(),
        )
    )  # fmt: skip
    if source.required:
        asked = speech.system("request", state_of(source, {}), names=_asked(source, {}))
        turns += [asked, speech.user("inform", values=_listed(speech.found))]
    turns.append(_call(speech, source, speech.found))
    wanted = {name: rest[name] for name in rest if name not in filled}
    missing = [name for name in _missing(target, filled) if name != chain]
    if source.several:
        offer, picked = speech.choice()
        before, told = state_of(target, filled), picked
        if missing:
            offer += f", and I need {_asked(target, filled | {chain: ''})}"
            told += f" and {_listed(wanted)}"
            filled |= wanted
        asked = speech.system("request", before, "request_choice", options=offer)
        turns += [asked, speech.user("inform", values=told)]
        return {chain: speech.supplied} | filled
    filled = {chain: speech.supplied} | filled
    if missing:
        asked = speech.system("request", state_of(target, filled), names=_asked(target, filled))
        turns += [asked, speech.user("inform", values=_listed(wanted))]
        filled |= wanted
    return filled


def _call(speech: Speech, api: Api, filled: Mapping[str, str]) -> Turn:
    given = {name: value for name, value in filled.items() if value}
    rows = speech.world.call(api.name, given)
    return speech.system("call", state_of(api, filled), called=api.name, results=rows)
