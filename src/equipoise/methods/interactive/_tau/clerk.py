"""An agent that works by rules, reads only what an agent may read, and errs as often as it is told.

What it does next follows from the conversation alone. Where a mistake would matter, in a write, in
a refusal or in what it tells, it knows the right step and a wrong one: a `Decision`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.core import Message, Prompt
from equipoise.kit.language.canned import message_text
from equipoise.methods.interactive._tau.errands import REASONS, item_words

Call = tuple[str, dict[str, Any]]
Step = str | Call

HELP = "What can I do for you?"
ASK_EMAIL = "May I have your email address?"
ASK_NAME = "Then may I have your name and zip code?"
ASK_REASON = "What is the reason: is it no longer needed, or was it ordered by mistake?"
ASK_PAYMENT = "Which payment method shall I use?"
ASK_ADDRESS = "What is the new address?"
DONE = "That is done. Is there anything else?"
DECLINED = "I am sorry, I cannot do that. Is there anything else?"
LEFT = "I leave it as it is. Is there anything else?"

_ASKS = {
    "cancel": r"I want to cancel order (?P<order>#W\d+)\.",
    "ship": r"Order (?P<order>#W\d+) should go to another address",
    "move": r"Please change the address in my profile",
    "pay": r"I want to pay for order (?P<order>#W\d+) in another way",
    "swap": r"I want to swap (?P<old>the .+?\)) for (?P<new>the .+?\)) in order (?P<order>#W\d+)",
    "return": r"I want to return (?P<items>the .+\)) of order (?P<order>#W\d+)",
    "total": r"How much did I pay for order (?P<order>#W\d+)",
}
_FINDS = ("find_user_id_by_email", "find_user_id_by_name_zip")
_ADDRESS = ("address1", "address2", "city", "state", "country", "zip")


@dataclass(frozen=True, slots=True)
class Decision:
    """A step that can go wrong.

    Parameters
    ----------
    right, wrong
        What a careful and a careless agent does.
    """

    right: Step
    wrong: Step


class _Said:
    """A conversation as the clerk reads it."""

    def __init__(self, prompt: Prompt) -> None:
        messages = [] if isinstance(prompt, str) else [m for m in prompt if isinstance(m, Mapping)]
        self.messages: Sequence[Message] = messages
        self.results: list[tuple[int, str, str]] = [
            (place, str(each.get("name")), message_text(each))
            for place, each in enumerate(messages)
            if each.get("role") == "tool"
        ]
        self.kind, self.since, self.found = "", 0, dict[str, str]()
        for place, each in enumerate(messages):
            text = message_text(each) if each.get("role") == "user" else ""
            if not text or text.startswith("No"):
                continue
            for kind, pattern in _ASKS.items():
                match = re.search(pattern, text)
                if match:
                    self.kind, self.since, self.found = kind, place, match.groupdict()
                    self.ask = text

    def answer(self, question: str, since: int = 0) -> str | None:
        """Return what the user said when asked this, None if not asked."""
        for place in range(since, len(self.messages) - 1):
            said = self.messages[place]
            if said.get("role") == "assistant" and question in message_text(said):
                return message_text(self.messages[place + 1])
        return None

    def result(self, names: Sequence[str], since: int = 0) -> str | None:
        """Return what the last call of these tools said, None if there was none."""
        told = [text for place, name, text in self.results if place >= since and name in names]
        return told[-1] if told else None


def next_step(prompt: Prompt) -> Step | Decision:
    """Return what to do next in a conversation."""
    said = _Said(prompt)
    if not said.kind:
        return HELP
    user_id = _user(said)
    if not isinstance(user_id, str):
        return user_id[0]
    if any(place > said.since and name in _WRITES for place, name, _ in said.results):
        return DONE
    if said.kind == "move":
        return _move(said, user_id)
    shown = said.result(["get_order_details"], said.since)
    if shown is None:
        return "get_order_details", {"order_id": said.found["order"]}
    order = _json(shown)
    return _STEPS[said.kind](said, order, user_id) if order else DECLINED


def about(prompt: Prompt) -> tuple[str, str]:
    """Return what names a task, whatever came of it: the first words, and whose they are."""
    said = _Said(prompt)
    first = next((message_text(m) for m in said.messages if m.get("role") == "user"), "")
    return first, said.result(_FINDS) or ""


def _user(said: _Said) -> str | tuple[Step]:
    """Return the user's id, or what to do to find it."""
    told = said.result(_FINDS)
    if told is not None and not told.startswith("Error"):
        return told
    email = said.answer(ASK_EMAIL)
    if email is None:
        return (ASK_EMAIL,)
    given = re.search(r"\S+@\S+\w", email)
    if given and told is None:
        return (("find_user_id_by_email", {"email": given[0]}),)
    named = re.search(r"I am (\S+) (\S+), zip code (\S+)\.", said.answer(ASK_NAME) or "")
    if named is None:
        return (ASK_NAME if said.answer(ASK_NAME) is None else DECLINED,)
    if said.result(["find_user_id_by_name_zip"]) is not None:
        return (DECLINED,)
    first, last, code = named.groups()
    return (("find_user_id_by_name_zip", {"first_name": first, "last_name": last, "zip": code}),)


def _agreed(said: _Said, summary: str, call: Step, wrong: Step) -> Step | Decision:
    """Ask before a write; do it after a yes, leave it after a no."""
    question = f"I am about to {summary}. Shall I go ahead (yes or no)?"
    answer = said.answer(question, said.since)
    if answer is None:
        return question
    return Decision(call, wrong) if answer.startswith("Yes") else Decision(LEFT, call)


def _cancel(said: _Said, order: Any, user_id: str) -> Step | Decision:
    words = said.answer(ASK_REASON, said.since)
    if words is None and "by mistake" not in said.ask:
        return ASK_REASON
    given = next((reason for reason, told in REASONS if told in (words or "")), None)
    if words is None:
        given = REASONS[1][0]
    call = (
        "cancel_pending_order",
        {"order_id": order["order_id"], "reason": given or REASONS[0][0]},
    )
    if order["user_id"] != user_id or given is None:
        return Decision(DECLINED, call)
    other = next(reason for reason, _ in REASONS if reason != given)
    wrong = ("cancel_pending_order", {"order_id": order["order_id"], "reason": other})
    return _agreed(said, f"cancel order {order['order_id']}", call, wrong)


def _place(said: _Said) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the address that was given, and one with a slip of the pen."""
    words = said.answer(ASK_ADDRESS, said.since)
    if words is None:
        return None
    parts = words.removeprefix("The address is ").removesuffix(".").split(", ")
    right = dict(zip(_ADDRESS, parts, strict=False))
    code = right.get("zip", "0")
    return right, right | {"zip": code[:-1] + str((int(code[-1]) + 1) % 10)}


def _ship(said: _Said, order: Any, user_id: str) -> Step | Decision:
    places = _place(said)
    if places is None:
        return ASK_ADDRESS
    name, first = "modify_pending_order_address", {"order_id": order["order_id"]}
    right, wrong = ((name, first | place) for place in places)
    return _agreed(said, f"send order {order['order_id']} elsewhere", right, wrong)


def _move(said: _Said, user_id: str) -> Step | Decision:
    places = _place(said)
    if places is None:
        return ASK_ADDRESS
    right, wrong = (("modify_user_address", {"user_id": user_id} | place) for place in places)
    return _agreed(said, "change the address in your profile", right, wrong)


def _profile(said: _Said, user_id: str) -> Any:
    """Return the user's profile, None where it has yet to be looked up."""
    shown = said.result(["get_user_details"])
    return None if shown is None else _json(shown)


def _pay(said: _Said, order: Any, user_id: str) -> Step | Decision:
    user, method = _profile(said, user_id), _method(said)
    if user is None:
        return "get_user_details", {"user_id": user_id}
    if method is None:
        return ASK_PAYMENT
    other = next((each for each in user["payment_methods"] if each != method), method)
    right, wrong = (
        ("modify_pending_order_payment",
         {"order_id": order["order_id"], "payment_method_id": each})
        for each in (method, other)
    )  # fmt: skip
    return _agreed(said, f"change how order {order['order_id']} is paid", right, wrong)


def _swap(said: _Said, order: Any, user_id: str) -> Step | Decision:
    item = next((i for i in order["items"] if item_words(i) == said.found["old"]), None)
    if item is None:
        return DECLINED
    shown = said.result(["get_product_details"], said.since)
    if shown is None:
        return "get_product_details", {"product_id": item["product_id"]}
    product, method = _json(shown), _method(said)
    if method is None:
        return ASK_PAYMENT
    variants = [v for v in product["variants"].values() if v["available"]]
    new = [v for v in variants if item_words(v | {"name": item["name"]}) == said.found["new"]]
    if not new:
        return DECLINED
    others = [v for v in variants if v["item_id"] not in (new[0]["item_id"], item["item_id"])]
    pending = order["status"] == "pending"
    name = "modify_pending_order_items" if pending else "exchange_delivered_order_items"
    right, wrong = (
        (name, {
            "order_id": order["order_id"], "item_ids": [item["item_id"]],
            "new_item_ids": [each["item_id"]], "payment_method_id": method,
        })
        for each in (new[0], others[0] if others else item)
    )  # fmt: skip
    return _agreed(said, f"change an item of order {order['order_id']}", right, wrong)


def _return(said: _Said, order: Any, user_id: str) -> Step | Decision:
    method = _method(said)
    if method is None:
        return ASK_PAYMENT
    named = said.found["items"].split(" and ")
    picked = [i["item_id"] for i in order["items"] if item_words(i) in named]
    rest = [i["item_id"] for i in order["items"] if item_words(i) not in named]
    right, wrong = (
        ("return_delivered_order_items",
         {"order_id": order["order_id"], "item_ids": each, "payment_method_id": method})
        for each in (picked, rest[:1] + picked[1:])
    )  # fmt: skip
    return _agreed(said, f"take back items of order {order['order_id']}", right, wrong)


def _total(said: _Said, order: Any, user_id: str) -> Step | Decision:
    paid = order["payment_history"][0]["amount"]
    words = "You paid ${:,.2f}. Is there anything else?"
    return Decision(words.format(paid), words.format(paid + 10))


def _method(said: _Said) -> str | None:
    found = re.search(r"\w+_\d+", said.answer(ASK_PAYMENT, said.since) or "")
    return found[0] if found else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


_STEPS = {
    "cancel": _cancel, "ship": _ship, "pay": _pay,
    "swap": _swap, "return": _return, "total": _total,
}  # fmt: skip
_WRITES = frozenset(
    (
    "cancel_pending_order", "modify_pending_order_address", "modify_pending_order_payment",
    "modify_pending_order_items", "exchange_delivered_order_items",
    "return_delivered_order_items", "modify_user_address",
    )
)  # fmt: skip
