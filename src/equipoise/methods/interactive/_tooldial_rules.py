"""Next actions without learning: by rules over the right states, and by words and scores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from equipoise.methods.interactive._tooldial_text import read_state

_LINE = re.compile(
    r"^(User|- Dialogue state|- Thought|- Action|- Retriever status|- API documentation"
    r"|- Call result|- Message): ?(.*)$"
)
_BYE = ("bye", "thanks", "perfect", "all i needed")
_UNKNOWN = ("do not know", "no idea", "cannot find")
_NO = ("no,", "not really", "does not help")
_YES = ("yes", "right,", "that would be great")
_ASKED = ("i need", "please tell me", "may i ask", "which one", "choose one")


def lines(text: str) -> list[tuple[str, str]]:
    """Return the lines of a dialogue that are shown, as kind and content."""
    found = (_LINE.match(line) for line in text.splitlines())
    return [(each.group(1).removeprefix("- "), each.group(2)) for each in found if each]


def rule_action(text: str) -> str:
    """Return the action that the rules demand, where states and actions are shown.

    The best retriever score, which required parameters lack a value and what was called last
    decide it. Where no state is shown it is `keyword_action`.

    Parameters
    ----------
    text
        A dialogue as `ToolDial` shows it.

    Examples
    --------
    >>> rule_action("User: Hello, about hotels.\\n- Dialogue state: {'api_confirmed': 'false', "
    ...             "'api_status': 'none'}")
    'retriever_call'
    """
    shown = lines(text)
    latest = dict(shown)  # the last line of each kind
    if "Dialogue state" not in latest:
        return keyword_action(text)
    state = read_state(latest["Dialogue state"])
    status = state.get("api_status") if isinstance(state, Mapping) else None
    fill = "call" if isinstance(status, Mapping) and not _lacking(status) else "request"
    confirmed = isinstance(status, Mapping)
    last = latest.get("Action", "").strip()
    if last in ("", "clarify"):
        return "retriever_call"
    if last == "retriever_call":
        if confirmed:
            return fill
        return "suggest" if _best(latest.get("Retriever status", "")) >= 0.5 else "clarify"
    if last == "suggest":
        return fill if confirmed else "response_fail"
    if last == "request":
        return fill if fill == "call" else "retriever_call"
    if last == "call" and isinstance(status, Mapping):
        result = latest.get("Call result", "")
        called = re.match(r"\{'api_name': '([^']*)'", result)
        done = called is not None and called.group(1) == status.get("api_name")
        return "response" if done else fill
    return "system_bye"


def _lacking(status: Mapping[str, Any]) -> bool:
    needed = status.get("required_parameters")
    return isinstance(needed, Mapping) and any(value == "" for value in needed.values())


def _best(status: str) -> float:
    scores = re.findall(r": (\d\.\d+|1)(?=[,}])", status)
    return max(map(float, scores), default=0.0)


def keyword_action(text: str) -> str:
    """Return the action that the last line suggests, by a few words and the retriever's scores.

    States, thoughts and actions are not looked at.

    Examples
    --------
    >>> keyword_action("- Message: May I ask for the city?\\nUser: The city is Oslo.")
    'call'
    """
    shown = [line for line in lines(text) if line[0] in _SEEN]
    if not shown:
        return "call"
    kind, said = shown[-1]
    if kind in ("Retriever status", "API documentation"):
        best = _best(next(said for kind, said in reversed(shown) if kind == "Retriever status"))
        return "request" if best >= 0.6 else "suggest" if best >= 0.5 else "clarify"
    if kind != "User":
        return "response"
    said = said.lower()
    before = next((said for kind, said in reversed(shown) if kind == "Message"), "").lower()
    for words, action in ((_UNKNOWN, "retriever_call"), (_NO, "response_fail"),
                          (_BYE, "system_bye"), (_YES, "request")):  # fmt: skip
        if any(word in said for word in words):
            return action
    return "call" if any(word in before for word in _ASKED) else "retriever_call"


_SEEN = ("User", "Retriever status", "API documentation", "Call result", "Message")
