"""What is shown of a dialogue, how answers are read, and when a dialogue state is right."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS, Turn

NONE = len(SYSTEM_ACTIONS)
"""Code of an answer in which none of the eight actions is recognised."""

ERRORS = (
    "right",
    "generation_error",
    "predict_false_label_true",
    "label_false_predict_true",
    "format",
    "api_error",
    "input_parameter_slot_error",
    "value_error",
    "acts_too_early",
    "asks_needlessly",
    "other_action",
    "unsupported_value",
    "nothing_told",
)
"""Classes of error; an outcome's score ``error`` is a place in this list."""

_LONGEST = 20_000  # characters of an answer that are looked at
_ASKING = ("request", "clarify", "suggest")
_ACTING = ("call", "response", "retriever_call")
_DESCRIPTIONS = {
    "request": "the interface is known; ask the user for its missing parameters.",
    "response": "answer the user from the result of a call.",
    "clarify": "no interface retrieved last scores 0.5 or more; ask the user to be specific.",
    "suggest": "the best retrieved last scores from 0.5 to below 0.6; ask if it is what is meant.",
    "response_fail": "tell the user that the request cannot be met.",
    "system_bye": "say goodbye.",
    "call": "call the interface whose required parameters are all known.",
    "retriever_call": "look for an interface that serves the request, or that supplies a"
    " parameter which the user does not know.",
}
_TASK = "You assist a user by calling interfaces (APIs). This is part of a dialogue."
_STATE_RULES = (
    "An API is confirmed when its retriever score is at least 0.6 and the highest, or when it was"
    " suggested and the user affirms. Before that the state is {'api_confirmed': 'false',"
    " 'api_status': 'none'}. After that it is {'api_confirmed': 'true', 'api_status': {'api_name':"
    " NAME, 'required_parameters': {PARAMETER: VALUE}, 'optional_parameters': {PARAMETER: VALUE}}}"
    " with all parameters of its documentation and '' for values that are not known yet."
)
_ACTION_RULES = "Actions of the system:\n" + "\n".join(
    f"- {name}: {_DESCRIPTIONS[name]}" for name in SYSTEM_ACTIONS
)
INSTRUCTIONS = {
    "action_prediction": f"{_TASK} Say which action the system takes next.\n\n{_ACTION_RULES}\n\n"
    "Answer with the name of one action.",
    "dialogue_state_tracking": f"{_TASK} Give the dialogue state now.\n\n{_STATE_RULES}\n\n"
    "Answer with the state alone.",
    "faithful_response": f"{_TASK} Answer the user's request from the results of the calls; say"
    " nothing that is not in them.",
    "overall": f"{_TASK} Go on with the next step.\n\n{_STATE_RULES}\n\n{_ACTION_RULES}\n\n"
    "Answer with the lines\n- Dialogue state: (in the first step after the user spoke, and again"
    " in a step that ends with a message)\n- Thought: (why)\n- Action: (one of the eight)\n"
    "- Message: (what is said to the user; not for call and retriever_call, whose result is given"
    " to you before the next step)",
}
JUDGE = (
    "Is every fact in the system's last reply found in the results of the calls? Answer with one"
    " word, True or False.\n\n"
)


def lines_of(turn: Turn, *, gold: bool) -> list[str]:
    """Return a turn as lines; states, thoughts and actions only where ``gold`` shows them."""
    if turn.speaker == "user":
        return [f"User: {turn.message}"]
    found = []
    if gold:
        found += [f"- Dialogue state: {turn.state}", f"- Thought: {turn.thought}"]
        found += [f"- Action: {turn.action}"]
    found += observed(turn)
    if turn.message:
        found.append(f"- Message: {turn.message}")
    return found


def observed(turn: Turn) -> list[str]:
    """Return what a tool gave back in this turn."""
    found = []
    if turn.retrieved is not None:
        found.append(f"- Retriever status: {dict(turn.retrieved)}")
    if turn.documents is not None:
        found.append(f"- API documentation: {dict(turn.documents)}")
    if turn.results is not None:
        found.append(f"- Call result: {{'api_name': {turn.called!r}, 'results': {turn.results}}}")
    return found


def history(turns: Sequence[Turn], place: int, *, gold: bool, state: bool = False) -> str:
    """Return the turns before ``place`` as text, with the state at ``place`` where asked for."""
    lines = [line for turn in turns[:place] for line in lines_of(turn, gold=gold)]
    if gold and state:
        lines.append(f"- Dialogue state: {turns[place].state}")
    return "\n".join(lines)


def normal_action(text: str) -> str:
    """Return an action's name as the released evaluation compares it.

    Letters alone, in lower case, without "action" and "api".

    Examples
    --------
    >>> normal_action(" Retriever_call. ")
    'retrievercall'
    """
    letters = re.sub(r"[^a-z]", "", text.lower())
    return letters.replace("action", "").replace("api", "")


_CODES = {normal_action(name): code for code, name in enumerate(SYSTEM_ACTIONS)}


def read_action(text: str) -> int:
    """Return the code of the action an answer names, `NONE` where it names none alone.

    Where there are several lines ``Action: ...``, the first counts: what follows is made up.

    Examples
    --------
    >>> SYSTEM_ACTIONS[read_action("Thought: it is vague.\\nAction: Clarify")]
    'clarify'
    >>> read_action("I would request or call") == NONE
    True
    """
    found = re.search(r"action\s*:([^\n]*)", text[:_LONGEST], re.IGNORECASE)
    return _CODES.get(normal_action(found.group(1) if found else text[:_LONGEST]), NONE)


def action_error(predicted: int, gold: int) -> str:
    """Return the class of error of an action."""
    if predicted == gold:
        return "right"
    if predicted == NONE:
        return "generation_error"
    said, right = SYSTEM_ACTIONS[predicted], SYSTEM_ACTIONS[gold]
    if right in _ASKING and said in _ACTING:
        return "acts_too_early"
    if right in _ACTING and said in _ASKING:
        return "asks_needlessly"
    return "other_action"


def read_state(text: str) -> Any:
    """Return the first dictionary in a text, as JSON or as Python writes it, or None.

    Examples
    --------
    >>> read_state("Here: {'api_confirmed': 'false', 'api_status': 'none'}.")
    {'api_confirmed': 'false', 'api_status': 'none'}
    """
    text = text[:_LONGEST]
    start = text.find("{")
    if start < 0:
        return None
    inside = _braced(text[start:])
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(inside)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _braced(text: str) -> str:
    """Return the text up to the brace that closes the first one, quotes respected."""
    depth, quote, skip = 0, "", False
    for place, letter in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip, quote = letter == "\\", "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if not depth:
                return text[: place + 1]
    return text


def normal_state(value: Any) -> Any:
    """Return a state as the released evaluation compares it.

    Keys and values in lower case, letters and digits only; lists and numbers as text.

    Examples
    --------
    >>> normal_state({"Zip": "90-210", "n": 1.5})
    {'zip': '90210', 'n': '15'}
    """
    if isinstance(value, Mapping):
        return {normal_state(key): normal_state(each) for key, each in value.items()}
    if isinstance(value, (str, int, float, list)):
        return re.sub(r"[^a-z0-9]", "", str(value).lower())
    return value


def same_state(predicted: Any, gold: Any) -> bool:
    """Say whether two dialogue states are the same after normalisation.

    Examples
    --------
    >>> same_state({"Zip": "90-210"}, {"zip": "90210"}), same_state({}, {"zip": ""})
    (True, False)
    """
    try:
        return bool(normal_state(predicted) == normal_state(gold))
    except RecursionError:
        return False


def same_parameters(predicted: Any, gold: Mapping[str, Any]) -> bool:
    """Say whether the parameters are right, names and values; a state without any has none."""
    return same_state(_parameters(predicted), _parameters(gold))


def _parameters(state: Any) -> dict[str, Any]:
    status = state.get("api_status") if isinstance(state, Mapping) else None
    found: dict[str, Any] = {}
    for name in ("required_parameters", "optional_parameters"):
        some = status.get(name) if isinstance(status, Mapping) else None
        found |= {name: some} if some else {}
    return found


def state_error(predicted: Any, gold: Mapping[str, Any]) -> str:
    """Return the class of error of a state, the first that fits in the released order.

    ``api_error`` is ours: parameters are right and the interface is another.
    """
    if not isinstance(predicted, Mapping):
        return "generation_error"
    if same_state(predicted, gold):
        return "right"
    wants, says = (str(s.get("api_confirmed", "")).lower() == "true" for s in (gold, predicted))
    if "api_confirmed" not in predicted or "api_status" not in predicted:
        return "format"
    if wants and not says:
        return "predict_false_label_true"
    if says and not wants:
        return "label_false_predict_true"
    status, right = predicted["api_status"], gold["api_status"]
    names = ("api_name", "required_parameters", "optional_parameters")
    if not wants or not isinstance(status, Mapping) or any(name not in status for name in names):
        return "format"
    slots = names[1:]
    if not all(isinstance(status[name], Mapping) for name in slots):
        return "format"
    if any(set(normal_state(status[n])) != set(normal_state(right[n])) for n in slots):
        return "input_parameter_slot_error"
    if any(not same_state(status[name], right[name]) for name in slots):
        return "value_error"
    return "api_error"


def leaves(value: Any) -> list[str]:
    """Return the values in nested lists and dictionaries, as text."""
    if isinstance(value, Mapping):
        return [leaf for each in value.values() for leaf in leaves(each)]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [str(value)]


def figures(text: str) -> set[str]:
    """Return the words of a text that hold a digit: numbers, dates, identifiers.

    Examples
    --------
    >>> sorted(figures("Order SOR-2147 costs 8,000.50 on 2025-03-14."))
    ['2025-03-14', '8,000.50', 'SOR-2147']
    """
    return {word.strip(".,:;-") for word in re.findall(r"[\w.,:/-]*\d[\w.,:/-]*", text)}
