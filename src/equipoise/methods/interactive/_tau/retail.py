"""The tools of a shop's service desk."""

from __future__ import annotations

import copy
from typing import Annotated, Any

from pydantic import WithJsonSchema

from equipoise.kit.language.tools import ToolError
from equipoise.methods.interactive._tau.orders import (
    address,
    covers,
    credit,
    first_item,
    payment,
)
from equipoise.methods.interactive._tau.records import Record, reads, writes
from equipoise.methods.interactive._tau.service import Service

REASONS = ("no longer needed", "ordered by mistake")

# The tool itself refuses another reason, with a message of its own.
Reason = Annotated[str, WithJsonSchema({"type": "string", "enum": list(REASONS)})]


class Retail(Service):
    """One episode at a shop's service desk: users, orders and products."""

    @reads
    def find_user_id_by_email(self, email: str) -> str:
        """Find a user's id by email.

        Parameters
        ----------
        email
            Such as 'someone@example.com'.
        """
        for user_id, user in self.database.rows("users"):
            if user["email"].lower() == email.lower():
                return user_id
        raise ToolError("user not found")

    @reads
    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """Find a user's id by name and zip code, where there is no email to go by.

        Parameters
        ----------
        first_name
            Such as 'Ada'.
        last_name
            Such as 'Byron'.
        zip
            Such as '12345'.
        """
        for user_id, user in self.database.rows("users"):
            name = user["name"]
            if (
                name["first_name"].lower() == first_name.lower()
                and name["last_name"].lower() == last_name.lower()
                and user["address"]["zip"] == zip
            ):
                return user_id
        raise ToolError("user not found")

    @reads
    def get_user_details(self, user_id: str) -> Record:
        """Show a user: address, email, payment methods, orders.

        Parameters
        ----------
        user_id
            Such as 'ada_byron_1815'.
        """
        return self._known("users", user_id)

    @reads
    def get_order_details(self, order_id: str) -> Record:
        """Show an order: its status, items, address and payments.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        """
        return self._known("orders", order_id)

    @reads
    def get_product_details(self, product_id: str) -> Record:
        """Show a product with all its variants: options, price, and whether it is available.

        Parameters
        ----------
        product_id
            Such as '1234567890'; not the id of an item.
        """
        return self._known("products", product_id)

    @reads
    def list_all_product_types(self) -> dict[str, str]:
        """List the names and ids of all products."""
        products = {each["name"]: each["product_id"] for _, each in self.database.rows("products")}
        return dict(sorted(products.items()))

    @writes
    def cancel_pending_order(self, order_id: str, reason: Reason) -> Record:
        """Cancel a pending order, once the user has said yes to the details. It is paid back.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        reason
            The user's: 'no longer needed' or 'ordered by mistake'.
        """
        self._order(order_id, "pending", "non-pending order cannot be cancelled")
        if reason not in REASONS:
            raise ToolError("invalid reason")
        order = self.database.edit("orders", order_id)
        refunds = []
        for paid in order["payment_history"]:
            method_id, amount = paid["payment_method_id"], paid["amount"]
            refunds.append(payment("refund", amount, method_id))
            if "gift_card" in method_id:
                credit(self._methods(order)[method_id], amount)
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        order["payment_history"].extend(refunds)
        return order

    @writes
    def modify_pending_order_address(
        self,
        order_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,
    ) -> Record:
        """Send a pending order elsewhere, once the user has said yes to the details.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        address1
            Street and number.
        address2
            Second line, such as 'Suite 1' or ''.
        city
            Such as 'Denver'.
        state
            Such as 'CO'.
        country
            Such as 'USA'.
        zip
            Such as '12345'.
        """
        self._order(order_id, "pending", "non-pending order cannot be modified")
        order = self.database.edit("orders", order_id)
        order["address"] = address(address1, address2, city, state, country, zip)
        return order

    @writes
    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Record:
        """Have a pending order paid in another way, once the user has said yes to the details.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        payment_method_id
            Such as 'gift_card_0000000'; one of the user's.
        """
        order = self._order(order_id, "pending", "non-pending order cannot be modified")
        if payment_method_id not in self._profile(order):
            raise ToolError("payment method not found")
        history = order["payment_history"]
        if len(history) > 1 or history[0]["transaction_type"] != "payment":
            raise ToolError("there should be exactly one payment for a pending order")
        old, amount = history[0]["payment_method_id"], history[0]["amount"]
        if old == payment_method_id:
            raise ToolError("the new payment method should be different from the current one")
        covers(
            self._profile(order)[payment_method_id], amount,
            "insufficient gift card balance to pay for the order",
        )  # fmt: skip
        order = self.database.edit("orders", order_id)
        order["payment_history"].append(payment("payment", amount, payment_method_id))
        order["payment_history"].append(payment("refund", amount, old))
        method = self._methods(order)[payment_method_id]
        if method["source"] == "gift_card":
            credit(method, -amount)
        if "gift_card" in old:
            credit(self._methods(order)[old], amount)
        return order

    @writes
    def modify_pending_order_items(
        self,
        order_id: str,
        item_ids: list[str],
        new_item_ids: list[str],
        payment_method_id: str,
    ) -> Record:
        """Change items of a pending order; once only, and the user has said yes to the details.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        item_ids
            Items to change, each such as '1234567890'; an item may stand there twice.
        new_item_ids
            What each becomes, in the same order: an available item of the same product.
        payment_method_id
            Pays the difference or gets it back.
        """
        order = self._order(order_id, "pending", "non-pending order cannot be modified")
        difference = self._difference(order, item_ids, new_item_ids)
        if payment_method_id not in self._profile(order):
            raise ToolError("payment method not found")
        covers(
            self._profile(order)[payment_method_id], difference,
            "insufficient gift card balance to pay for the new item",
        )  # fmt: skip
        order = self.database.edit("orders", order_id)
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(payment(kind, abs(difference), payment_method_id))
        method = self._profile(order)[payment_method_id]
        if method["source"] == "gift_card":
            credit(self._methods(order)[payment_method_id], -difference)
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = first_item(order, old)
            variant = self._variants(item)[new]
            item["item_id"], item["price"] = new, variant["price"]
            item["options"] = copy.deepcopy(variant["options"])
        order["status"] = "pending (item modified)"
        return order

    @writes
    def exchange_delivered_order_items(
        self,
        order_id: str,
        item_ids: list[str],
        new_item_ids: list[str],
        payment_method_id: str,
    ) -> Record:
        """Exchange items of a delivered order; once only, and the user has said yes to the details.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        item_ids
            Items to give back, each such as '1234567890'; an item may stand there twice.
        new_item_ids
            What is had for each, in the same order: an available item of the same product.
        payment_method_id
            Pays the difference or gets it back.
        """
        order = self._order(order_id, "delivered", "non-delivered order cannot be exchanged")
        difference = round(self._difference(order, item_ids, new_item_ids), 2)
        if payment_method_id not in self._profile(order):
            raise ToolError("payment method not found")
        covers(
            self._profile(order)[payment_method_id], difference,
            "insufficient gift card balance to pay for the price difference",
        )  # fmt: skip
        order = self.database.edit("orders", order_id)
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = payment_method_id
        order["exchange_price_difference"] = difference
        return order

    @writes
    def return_delivered_order_items(
        self, order_id: str, item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Take items of a delivered order back; once only, after the user has said yes to it.

        Parameters
        ----------
        order_id
            Such as '#W0000000', with the # in front.
        item_ids
            Items to give back, each such as '1234567890'; an item may stand there twice.
        payment_method_id
            Gets the money: what the order was paid with, or a gift card.
        """
        order = self._order(order_id, "delivered", "non-delivered order cannot be returned")
        if payment_method_id not in self._profile(order):
            raise ToolError("payment method not found")
        paid = order["payment_history"][0]["payment_method_id"]
        if "gift_card" not in payment_method_id and payment_method_id != paid:
            raise ToolError(
                "payment method should be either the original payment method or a gift card"
            )
        there = [item["item_id"] for item in order["items"]]
        if any(item_ids.count(each) > there.count(each) for each in item_ids):
            raise ToolError("some item not found")
        order = self.database.edit("orders", order_id)
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = payment_method_id
        return order

    @writes
    def modify_user_address(
        self,
        user_id: str,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,
    ) -> Record:
        """Change a user's default address, once the user has said yes to the details.

        Parameters
        ----------
        user_id
            Such as 'ada_byron_1815'.
        address1
            Street and number.
        address2
            Second line, such as 'Suite 1' or ''.
        city
            Such as 'Denver'.
        state
            Such as 'CO'.
        country
            Such as 'USA'.
        zip
            Such as '12345'.
        """
        self._known("users", user_id)
        user = self.database.edit("users", user_id)
        user["address"] = address(address1, address2, city, state, country, zip)
        return user

    def _known(self, table: str, key: str) -> Record:
        found = self.database.find(table, key)
        if found is None:
            raise ToolError(f"{table.removesuffix('s')} not found")
        return found

    def _order(self, order_id: str, status: str, otherwise: str) -> Record:
        order = self._known("orders", order_id)
        if order["status"] != status:
            raise ToolError(otherwise)
        return order

    def _profile(self, order: Record) -> Record:
        """Return the payment methods of an order's user, to read."""
        user = self.database.find("users", order["user_id"])
        if user is None:
            raise KeyError(order["user_id"])
        found: Record = user["payment_methods"]
        return found

    def _methods(self, order: Record) -> Record:
        """Return the payment methods of an order's user, to write."""
        found: Record = self.database.edit("users", order["user_id"])["payment_methods"]
        return found

    def _variants(self, item: Record) -> Record:
        product = self.database.find("products", item["product_id"])
        if product is None:
            raise KeyError(item["product_id"])
        found: Record = product["variants"]
        return found

    def _difference(self, order: Record, old: list[str], new: list[str]) -> Any:
        """Return what the new items cost more than the old, or refuse the change."""
        there = [item["item_id"] for item in order["items"]]
        for each in old:
            if old.count(each) > there.count(each):
                raise ToolError(f"{each} not found")
        if len(old) != len(new):
            raise ToolError("the number of items to be exchanged should match")
        difference: float = 0
        for each, other in zip(old, new, strict=True):
            item = first_item(order, each)
            variant = self._variants(item).get(other)
            if not (variant and variant["available"]):
                raise ToolError(f"new item {other} not found or available")
            difference += variant["price"] - item["price"]
        return difference
