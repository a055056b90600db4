"""Parts of an order: items, payments, addresses."""

from __future__ import annotations

from typing import Any

from equipoise.kit.language.tools import ToolError
from equipoise.methods.interactive._tau.records import Record


def first_item(order: Record, item_id: str) -> Record:
    """Return the first item of an order with this id."""
    found: Record = next(item for item in order["items"] if item["item_id"] == item_id)
    return found


def payment(kind: str, amount: Any, method_id: str) -> Record:
    """Return an entry of a payment history."""
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method_id}


def credit(method: Record, amount: Any) -> None:
    """Add to a gift card; it holds cents."""
    method["balance"] = round(method["balance"] + amount, 2)


def covers(method: Record, amount: Any, otherwise: str) -> None:
    """Refuse what a gift card cannot pay."""
    if method["source"] == "gift_card" and method["balance"] < amount:
        raise ToolError(otherwise)


def address(
    address1: str, address2: str, city: str, state: str, country: str, zip: str
) -> dict[str, str]:
    """Return an address as the database holds it."""
    return {
        "address1": address1, "address2": address2, "city": city,
        "state": state, "country": country, "zip": zip,
    }  # fmt: skip
