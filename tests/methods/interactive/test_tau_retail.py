"""The shop's tools, by hand, and the database below them."""

import copy
import json

import pytest

from equipoise.kit.language.environment import Dialogue
from equipoise.kit.language.tools import Toolbox
from equipoise.methods.interactive._tau.records import Database, Records, canonical
from equipoise.methods.interactive._tau.retail import Retail
from equipoise.methods.interactive._tau.service import Case, leaves_unchanged, said_all

HOME = {"address1": "1 Oak", "address2": "", "city": "Denver",
        "country": "USA", "state": "CO", "zip": "80201"}  # fmt: skip


def item(item_id, price, product="P1", name="Cap"):
    options = {"colour": item_id}
    return {"name": name, "product_id": product, "item_id": item_id, "price": price,
            "options": options}  # fmt: skip


def variant(item_id, price, available=True):
    return {"item_id": item_id, "options": {"colour": item_id}, "available": available,
            "price": price}  # fmt: skip


def order(order_id, status, method="credit_card_1", user="ada", items=None):
    items = items or [item("10", 20.0), item("20", 5.5, "P2", "Pen"), item("20", 5.5, "P2", "Pen")]
    paid = {"transaction_type": "payment", "amount": sum(i["price"] for i in items),
            "payment_method_id": method}  # fmt: skip
    return {"order_id": order_id, "user_id": user, "address": dict(HOME), "items": items,
            "fulfillments": [], "status": status, "payment_history": [paid]}  # fmt: skip


TABLES = {
    "orders": {
        "#W1": order("#W1", "pending"),
        "#W2": order("#W2", "delivered"),
        "#W3": order("#W3", "pending", "gift_card_1"),
        "#W4": order("#W4", "processed"),
        "#W5": order("#W5", "pending", "gift_card_lost"),
    },
    "products": {
        "P1": {"name": "Cap", "product_id": "P1", "variants": {
            "10": variant("10", 20.0), "11": variant("11", 30.25), "12": variant("12", 1.0, False),
            "13": variant("13", 12.0)}},
        "P2": {"name": "Pen", "product_id": "P2",
               "variants": {"20": variant("20", 5.5), "21": variant("21", 7.0)}},
    },
    "users": {
        "ada": {
            "name": {"first_name": "Ada", "last_name": "Byron"},
            "address": dict(HOME), "email": "ada@x.org", "orders": ["#W1", "#W2", "#W3"],
            "payment_methods": {
                "credit_card_1": {"source": "credit_card", "id": "credit_card_1"},
                "paypal_1": {"source": "paypal", "id": "paypal_1"},
                "gift_card_1": {"source": "gift_card", "balance": 31.0, "id": "gift_card_1"},
                "gift_card_2": {"source": "gift_card", "balance": 1.0, "id": "gift_card_2"},
            },
        },
    },
}  # fmt: skip
RECORDS = Records(copy.deepcopy(TABLES))


@pytest.fixture
def desk():
    made = Retail(RECORDS)
    yield made
    assert RECORDS.tables == TABLES, "an episode wrote to the records that all share"


def use(desk, name, **arguments):
    return Toolbox(tuple(desk.tools())).use(name, arguments).content


def refused(desk, name, **arguments):
    """Say how a call is refused, having seen that nothing changed."""
    before = desk.database.digest()
    said = use(desk, name, **arguments)
    assert desk.database.digest() == before
    assert said.startswith("Error: ")
    return said.removeprefix("Error: ")


def test_there_are_sixteen_tools_in_order(desk):
    names = [tool.name for tool in desk.tools()]
    assert len(names) == 16
    assert names == sorted(names)
    (cancel,) = (t.schema["function"] for t in desk.tools() if t.name == "cancel_pending_order")
    assert cancel["parameters"]["properties"]["reason"]["enum"] == [
        "no longer needed", "ordered by mistake",
    ]  # fmt: skip
    assert cancel["parameters"]["required"] == ["order_id", "reason"]


def test_reading(desk):
    assert use(desk, "find_user_id_by_email", email="ADA@x.org") == "ada"
    who = {"first_name": "ADA", "last_name": "byron"}
    assert use(desk, "find_user_id_by_name_zip", **who, zip="80201") == "ada"
    assert refused(desk, "find_user_id_by_name_zip", **who, zip="80202") == "user not found"
    assert refused(desk, "find_user_id_by_email", email="x") == "user not found"
    assert json.loads(use(desk, "get_order_details", order_id="#W1")) == TABLES["orders"]["#W1"]
    assert refused(desk, "get_order_details", order_id="W1") == "order not found"
    assert refused(desk, "get_product_details", product_id="10") == "product not found"
    assert json.loads(use(desk, "list_all_product_types")) == {"Cap": "P1", "Pen": "P2"}
    assert use(desk, "think", thought="hm") == ""
    assert not desk.over
    assert use(desk, "transfer_to_human_agents", summary="x") == "Transfer successful"
    assert desk.over


def test_cancelling_pays_back_and_gift_cards_at_once(desk):
    found = json.loads(
        use(desk, "cancel_pending_order", order_id="#W3", reason="ordered by mistake")
    )
    assert (found["status"], found["cancel_reason"]) == ("cancelled", "ordered by mistake")
    refund = {"transaction_type": "refund", "amount": 31.0, "payment_method_id": "gift_card_1"}
    assert found["payment_history"][1:] == [refund]
    methods = desk.database.find("users", "ada")["payment_methods"]
    assert methods["gift_card_1"]["balance"] == 62.0


@pytest.mark.parametrize(
    ("order_id", "reason", "said"),
    [
        ("#W2", "no longer needed", "non-pending order cannot be cancelled"),
        ("#W9", "no longer needed", "order not found"),
        ("#W1", "too dear", "invalid reason"),
        ("#W5", "no longer needed", "'gift_card_lost'"),  # fails half-way: nothing is kept
    ],
)
def test_cancelling_is_refused(desk, order_id, reason, said):
    assert refused(desk, "cancel_pending_order", order_id=order_id, reason=reason) == said


def test_changing_items_of_a_pending_order(desk):
    given = {"order_id": "#W1", "item_ids": ["10", "20"], "new_item_ids": ["11", "21"]}
    said = use(desk, "modify_pending_order_items", **given, payment_method_id="gift_card_1")
    found = json.loads(said)
    assert [i["item_id"] for i in found["items"]] == ["11", "21", "20"]
    assert found["items"][0] == item("11", 30.25)
    assert found["status"] == "pending (item modified)"
    assert found["payment_history"][1] == {
        "transaction_type": "payment", "amount": 11.75, "payment_method_id": "gift_card_1",
    }  # fmt: skip
    methods = desk.database.find("users", "ada")["payment_methods"]
    assert methods["gift_card_1"]["balance"] == 19.25
    # It can be done once, and blocks all else.
    assert "non-pending" in refused(
        desk, "modify_pending_order_items", **given, payment_method_id="gift_card_1"
    )
    assert "non-pending" in refused(
        desk, "cancel_pending_order", order_id="#W1", reason="no longer needed"
    )


def test_a_cheaper_item_is_a_refund(desk):
    given = {"order_id": "#W1", "item_ids": ["10"], "new_item_ids": ["13"]}
    found = json.loads(
        use(desk, "modify_pending_order_items", **given, payment_method_id="gift_card_2")
    )
    assert found["payment_history"][1]["transaction_type"] == "refund"
    assert found["payment_history"][1]["amount"] == 8.0
    methods = desk.database.find("users", "ada")["payment_methods"]
    assert methods["gift_card_2"]["balance"] == 9.0


@pytest.mark.parametrize("tool", ["modify_pending_order_items", "exchange_delivered_order_items"])
@pytest.mark.parametrize(
    ("old", "new", "method", "said"),
    [
        (["99"], ["11"], "paypal_1", "99 not found"),
        (["10", "10"], ["11", "13"], "paypal_1", "10 not found"),
        (["10"], [], "paypal_1", "the number of items to be exchanged should match"),
        (["10"], ["12"], "paypal_1", "new item 12 not found or available"),
        (["10"], ["21"], "paypal_1", "new item 21 not found or available"),
        (["10"], ["11"], "paypal_2", "payment method not found"),
        (["10"], ["11"], "gift_card_2", "insufficient gift card balance"),
    ],
)
def test_changes_of_items_are_refused(desk, tool, old, new, method, said):
    order_id = "#W1" if tool.startswith("modify") else "#W2"
    given = {"order_id": order_id, "item_ids": old, "new_item_ids": new}
    assert refused(desk, tool, **given, payment_method_id=method).startswith(said)


def test_an_exchange_moves_no_money(desk):
    found = json.loads(
        use(
            desk, "exchange_delivered_order_items", order_id="#W2",
            item_ids=["20", "10"], new_item_ids=["21", "11"], payment_method_id="gift_card_1",
        )
    )  # fmt: skip
    assert found["status"] == "exchange requested"
    assert (found["exchange_items"], found["exchange_new_items"]) == (["10", "20"], ["11", "21"])
    assert found["exchange_price_difference"] == 11.75
    assert found["payment_history"] == TABLES["orders"]["#W2"]["payment_history"]
    assert [i["item_id"] for i in found["items"]] == ["10", "20", "20"]
    assert desk.database.find("users", "ada") == TABLES["users"]["ada"]


def test_returns_go_to_what_was_paid_with_or_a_gift_card(desk):
    given = {"order_id": "#W2", "item_ids": ["20", "10", "20"]}
    said = refused(desk, "return_delivered_order_items", **given, payment_method_id="paypal_1")
    assert said == "payment method should be either the original payment method or a gift card"
    wrong = given | {"item_ids": ["20", "20", "20"]}
    assert refused(
        desk, "return_delivered_order_items", **wrong, payment_method_id="gift_card_2"
    ) == ("some item not found")
    found = json.loads(
        use(desk, "return_delivered_order_items", **given, payment_method_id="gift_card_2")
    )
    assert found["return_items"] == ["10", "20", "20"]
    assert (found["status"], found["return_payment_method_id"]) == (
        "return requested", "gift_card_2",
    )  # fmt: skip


def test_paying_in_another_way(desk):
    change = "modify_pending_order_payment"
    for order_id, method, said in (
        ("#W1", "credit_card_1", "the new payment method should be different from the current one"),
        ("#W1", "gift_card_2", "insufficient gift card balance to pay for the order"),
        ("#W1", "none", "payment method not found"),
        ("#W4", "paypal_1", "non-pending order cannot be modified"),
    ):
        assert refused(desk, change, order_id=order_id, payment_method_id=method) == said
    found = json.loads(use(desk, change, order_id="#W3", payment_method_id="paypal_1"))
    kinds = [(p["transaction_type"], p["payment_method_id"]) for p in found["payment_history"]]
    assert kinds == [("payment", "gift_card_1"), ("payment", "paypal_1"), ("refund", "gift_card_1")]
    balance = desk.database.find("users", "ada")["payment_methods"]["gift_card_1"]["balance"]
    assert balance == 62.0
    again = refused(desk, change, order_id="#W3", payment_method_id="credit_card_1")
    assert again == "there should be exactly one payment for a pending order"
    use(desk, change, order_id="#W1", payment_method_id="gift_card_1")
    balance = desk.database.find("users", "ada")["payment_methods"]["gift_card_1"]["balance"]
    assert balance == 31.0


def test_addresses(desk):
    new = HOME | {"zip": "80202"}
    use(desk, "modify_pending_order_address", order_id="#W1", **new)
    assert desk.database.find("orders", "#W1")["address"] == new
    assert desk.database.find("users", "ada")["address"] == HOME
    use(desk, "modify_user_address", user_id="ada", **new)
    assert use(desk, "find_user_id_by_name_zip", first_name="Ada", last_name="Byron", zip="80202")
    assert refused(desk, "modify_user_address", user_id="bob", **new) == "user not found"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("2 + 2 * 3", "8.0"),
        ("  (1 + 0.255) * 100", "125.5"),
        ("7 // 2 - -1", "4.0"),
        ("1/0", "Error: division by zero"),
        ("__import__('os')", "Error: invalid characters in expression"),
        ("9**9**9**9", "Error: the power is too large"),
        ("2(3)", "Error: the expression cannot be worked out"),
        ("(" * 300 + "1" + ")" * 300, None),
        ("1+" * 600 + "1", "Error: the expression is too long"),
    ],
)
def test_calculating(desk, expression, said):
    found = use(desk, "calculate", expression=expression)
    assert found == said if said is not None else found.startswith("Error: ")


def test_calculating_is_python_s(desk):
    import random

    draws = random.Random(0)
    for _ in range(200):
        expression = str(draws.randint(1, 9))
        for _ in range(5):
            expression = f"({expression}) {draws.choice('+-*/')} {draws.randint(1, 99) / 4}"
        right = str(round(float(eval(expression)), 2))
        assert use(desk, "calculate", expression=expression) == right


def test_a_database_is_what_it_holds():
    one, two = Database(RECORDS), Database(RECORDS)
    with one.change():
        one.edit("orders", "#W1")["status"] = "x"
    assert one.digest() != two.digest()
    with one.change():
        one.edit("orders", "#W1")["status"] = "pending"
    assert one.digest() == two.digest(), "written back to what it was"

    def fails_half_way():
        with one.change():
            one.edit("orders", "#W1")["status"] = "y"
            one.add("orders", "#W8", {"status": "new"})
            raise KeyError("amount")

    with pytest.raises(KeyError):
        fails_half_way()
    assert one.digest() == two.digest()
    assert not one.has("orders", "#W8")
    with one.change():
        one.edit("orders", "#W1")["payment_history"][0]["amount"] = 31  # was 31.0
    assert one.digest() != two.digest(), "numbers of another kind are another record"


def test_digests_agree_with_those_of_whole_databases():
    import random

    draws = random.Random(1)
    seen = {}
    for _ in range(60):
        desk = Retail(RECORDS)
        for _ in range(3):
            order_id = draws.choice(["#W1", "#W2", "#W3"])
            reason = draws.choice(["no longer needed", "ordered by mistake"])
            call = draws.choice(
                [
                    ("cancel_pending_order", {"order_id": order_id, "reason": reason}),
                    ("modify_pending_order_address", {"order_id": order_id, **HOME}),
                    ("modify_user_address", {"user_id": "ada", **HOME, "zip": "1"}),
                    ("modify_user_address", {"user_id": "ada", **HOME}),
                ]
            )
            desk.replay([call])
        whole = str(canonical(desk.database.whole()))
        assert seen.setdefault(whole, desk.database.digest()) == desk.database.digest()
    assert len(set(seen.values())) == len(seen) > 5


def test_the_reward_is_database_times_output():
    case = Case(
        "ada", "...",
        [("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"}),
         ("cancel_pending_order", {"order_id": "#W2", "reason": "no longer needed"}),  # refused
         ("transfer_to_human_agents", {"summary": "x"})],
        ["1234.5"],
    )  # fmt: skip

    def scores(calls, said, ended="user"):
        desk = Retail(RECORDS)
        desk.case = case
        desk.replay(calls)
        found = desk.scores(Dialogue(said=said, ended=ended, steps=3))
        return found["reward"], found["database"], found["output"]

    done = case.actions[:1]
    assert scores(done, ["You get $1,234.50."]) == (1, 1, 1)
    assert scores(done, ["You get $1,234.50."], "tool") == (1, 1, 1)
    assert scores(done, ["You get $1,234.50."], "steps") == (0, 1, 1)
    assert scores(done, ["Done."]) == (0, 1, 0)
    assert scores([], ["1234.5"]) == (0, 0, 1)
    other = [("cancel_pending_order", {"order_id": "#W1", "reason": "ordered by mistake"})]
    assert scores(other, ["1234.5"]) == (0, 0, 1)
    assert not leaves_unchanged(Retail(RECORDS), case)
    assert leaves_unchanged(Retail(RECORDS), Case("ada", "", case.actions[1:], []))


def test_outputs_are_looked_for_as_released():
    assert said_all([], [])
    assert not said_all(["1,2"], ["1,2"]), "commas go from what was said alone"
    assert said_all(["It is RED.", "12"], ["red", "2"])
