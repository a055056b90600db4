from collections import Counter

import pytest

from equipoise.core import Rng
from equipoise.kit.worlds.small_shop import small_shop


@pytest.fixture(scope="module")
def shop():
    return small_shop(Rng(3), customers=200)


def test_tables_hang_together(shop):
    users, orders, products = shop["users"], shop["orders"], shop["products"]
    assert len(users) == 200
    assert len(products) == 50
    assert sorted(orders) == sorted(o for user in users.values() for o in user["orders"])
    for order_id, order in orders.items():
        assert order["order_id"] == order_id
        user = users[order["user_id"]]
        assert order_id in user["orders"]
        (paid, *refunds) = order["payment_history"]
        assert paid["payment_method_id"] in user["payment_methods"]
        assert paid["amount"] == pytest.approx(sum(i["price"] for i in order["items"]))
        assert len(refunds) == (order["status"] == "cancelled")
        assert len({i["product_id"] for i in order["items"]}) == len(order["items"])
        for item in order["items"]:
            variant = products[item["product_id"]]["variants"][item["item_id"]]
            assert (item["price"], item["options"]) == (variant["price"], variant["options"])


def test_names_emails_and_ids_are_unique(shop):
    users = shop["users"].values()
    names = Counter(tuple(user["name"].values()) for user in users)
    assert max(names.values()) == 1
    assert len({user["email"] for user in users}) == 200
    methods = [each for user in users for each in user["payment_methods"]]
    assert len(set(methods)) == len(methods)
    items = [item for p in shop["products"].values() for item in p["variants"]]
    assert len(set(items)) == len(items)


def test_variants_of_a_product_differ_and_some_are_sold_out(shop):
    for product in shop["products"].values():
        options = [tuple(v["options"].values()) for v in product["variants"].values()]
        assert len(set(options)) == len(options) >= 6
    available = [v["available"] for p in shop["products"].values() for v in p["variants"].values()]
    assert 0.6 < sum(available) / len(available) < 0.8


def test_many_customers_still_have_names_of_their_own():
    users = small_shop(Rng(0), customers=1200)["users"].values()
    assert len({tuple(user["name"].values()) for user in users}) == 1200


def test_the_stream_decides():
    assert small_shop(Rng(1), 10) == small_shop(Rng(1), 10)
    assert small_shop(Rng(1), 10) != small_shop(Rng(2), 10)
