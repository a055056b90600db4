"""How an agent lays a tool call before the customer, word for word, and reads what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BEFORE, _AFTER = "Before I do this, please check: ", "\nIs that right (yes or no)?"


def checking_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the question whether a call is right.

    Examples
    --------
    >>> checked_call(checking_text("cancel", {"order_id": "W1"}))
    ('cancel', {'order_id': 'W1'})
    """
    return f"{_BEFORE}{name} {json.dumps(arguments)}{_AFTER}"


def checked_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Return the call that a question is about, None if it is another text."""
    if not (text.startswith(_BEFORE) and text.endswith(_AFTER)):
        return None
    name, _, arguments = text.removeprefix(_BEFORE).removesuffix(_AFTER).partition(" ")
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return (name, found) if isinstance(found, dict) else None


def is_yes(text: str) -> bool:
    """Say whether a customer agrees.

    Examples
    --------
    >>> is_yes("Yes, please."), is_yes("No, yesterday was wrong.")
    (True, False)
    """
    return (
        re.match(r"\W*(yes|yep|yeah|sure|ok|okay|correct|right|go ahead)\b", text.lower())
        is not None
    )


def same_call(one: tuple[str, Mapping[str, Any]], other: tuple[str, Mapping[str, Any]]) -> bool:
    """Say whether two calls do the same, whatever the order of items.

    Examples
    --------
    >>> same_call(("f", {"item_ids": ["1", "2"]}), ("f", {"item_ids": ["2", "1"]}))
    True
    """
    return one[0] == other[0] and _plain(one[1]) == _plain(other[1])


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(arguments)
    lists = [name for name, value in found.items() if isinstance(value, list)]
    rows = [json.dumps(row) for row in zip(*(found.pop(name) for name in lists), strict=False)]
    return found | {"lists": sorted(lists), "rows": sorted(rows)}
