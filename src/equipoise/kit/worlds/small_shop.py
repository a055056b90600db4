"""A shop made up on the spot: products with variants, customers, and their orders."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from equipoise.core import Rng

Tables = dict[str, dict[str, dict[str, Any]]]

FIRST = (
    "Ada", "Alan", "Barbara", "Claude", "Donald", "Edith", "Emmy", "Euclid", "Felix",
    "Grace", "Hedy", "Ida", "John", "Kurt", "Leonhard", "Lise", "Mary", "Niels", "Otto",
    "Paul", "Rosalind", "Sofia", "Tycho", "Vera",
)  # fmt: skip
LAST = (
    "Abel", "Bell", "Curie", "Dirac", "Euler", "Fermat", "Gauss", "Hilbert", "Ives",
    "Jordan", "Kepler", "Lovelace", "Markov", "Noether", "Ohm", "Pascal", "Quine",
    "Riemann", "Shannon", "Turing", "Ulam", "Venn", "Weyl", "Yates",
)  # fmt: skip
STREETS = ("Oak Street", "Mill Lane", "High Road", "Park Avenue", "Lake Drive", "Hill Road")
CITIES = {
    "Denver": ("CO", "802"), "Boston": ("MA", "021"), "Austin": ("TX", "787"),
    "Seattle": ("WA", "981"), "Chicago": ("IL", "606"), "Phoenix": ("AZ", "850"),
}  # fmt: skip
COLOURS = ("black", "blue", "green", "red", "white")
MATERIALS = ("cotton", "leather", "steel", "wood")
SIZES = ("small", "medium", "large")
GOODS = {
    ("colour", "size"): (
        "Apron Belt Cap Coat Glove Hat Jacket Jumper Rucksack Scarf Shirt Shoe Skirt Sock Trousers"
        " Umbrella Vest"
    ),
    ("colour", "material"): (
        "Armchair Bench Bookcase Box Chair Clock Desk Frame Lamp Mirror Shelf Sofa Stool Table Tray"
        " Vase Wardrobe"
    ),
    ("material", "size"): (
        "Ball Basket Bottle Bowl Brush Case Cup Fan Jar Kettle Knife Ladder Pan Pen Pot Spoon"
    ),
}
VALUES = {"colour": COLOURS, "material": MATERIALS, "size": SIZES}
STATUSES = ("pending", "delivered", "processed", "cancelled")


def small_shop(rng: Rng, customers: int = 40, orders: float = 2.0) -> Tables:
    """Make the tables ``users``, ``orders`` and ``products`` of a shop.

    Fifty products come in up to twelve variants, some of which are sold out. A customer has an
    address, an email and two or three ways to pay, one of them a gift card. An order has two to
    four different products and one payment; it is pending, delivered, processed or cancelled.

    Parameters
    ----------
    rng
        Stream that everything is drawn from.
    customers
        How many.
    orders
        Mean number of orders of a customer; each has one at least.

    Examples
    --------
    >>> shop = small_shop(Rng(0), customers=10)
    >>> len(shop["users"]), len(shop["products"])
    (10, 50)
    """
    draws = rng.numpy()
    products = _products(draws)
    ids = iter(map(str, draws.choice(9_000_000, customers * 17, replace=False) + 1_000_000))
    users: dict[str, dict[str, Any]] = {}
    made: dict[str, dict[str, Any]] = {}
    for number in range(customers):
        user_id, user = _user(draws, number, ids)
        users[user_id] = user
        for _ in range(1 + min(int(draws.poisson(orders - 1)), 5)):
            order_id = f"#W{next(ids)}"
            user["orders"].append(order_id)
            made[order_id] = _order(draws, order_id, user_id, user, products, ids)
    return {"orders": made, "products": products, "users": users}


def _products(draws: np.random.Generator) -> dict[str, dict[str, Any]]:
    numbers = iter(map(str, draws.choice(9 * 10**9, 1_000, replace=False) + 10**9))
    found = {}
    for options, names in GOODS.items():
        for name in names.split():
            product_id, price = next(numbers), draws.uniform(10, 400)
            chosen = list(itertools.product(*(VALUES[option] for option in options)))
            variants = {}
            for place in sorted(draws.permutation(len(chosen))[:12]):
                item_id = next(numbers)
                variants[item_id] = {
                    "item_id": item_id,
                    "options": dict(zip(options, chosen[place], strict=True)),
                    "available": bool(draws.random() < 0.7),
                    "price": round(float(price * draws.uniform(0.8, 1.25)), 2),
                }
            found[product_id] = {"name": name, "product_id": product_id, "variants": variants}
    return found


def _user(draws: np.random.Generator, number: int, ids: Any) -> tuple[str, dict[str, Any]]:
    # No two customers have one name: pairs of names, and a numeral when those are used up.
    place, again = number % (len(FIRST) * len(LAST)), number // (len(FIRST) * len(LAST))
    first, last = FIRST[place % len(FIRST)], LAST[(place // len(FIRST) + place) % len(LAST)]
    last += f"-{again}" if again else ""
    code = f"{first}_{last}_{next(ids)[:4]}".lower()
    methods: dict[str, Any] = {}
    card = f"credit_card_{next(ids)}"
    methods[card] = {
        "source": "credit_card", "brand": str(draws.choice(["visa", "mastercard"])),
        "last_four": card[-4:], "id": card,
    }  # fmt: skip
    gift = f"gift_card_{next(ids)}"
    balance = round(float(draws.uniform(0, 2000)), 2)
    methods[gift] = {"source": "gift_card", "balance": balance, "id": gift}
    if draws.random() < 0.5:
        paypal = f"paypal_{next(ids)}"
        methods[paypal] = {"source": "paypal", "id": paypal}
    return code, {
        "name": {"first_name": first, "last_name": last},
        "address": new_address(draws),
        "email": f"{first}.{last}{draws.integers(1000, 9999)}@example.com".lower(),
        "payment_methods": methods,
        "orders": [],
    }


def new_address(draws: np.random.Generator) -> dict[str, str]:
    """Draw an address.

    Examples
    --------
    >>> sorted(new_address(np.random.default_rng(0)))
    ['address1', 'address2', 'city', 'country', 'state', 'zip']
    """
    city = str(draws.choice(list(CITIES)))
    state, zone = CITIES[city]
    return {
        "address1": f"{draws.integers(1, 999)} {draws.choice(STREETS)}",
        "address2": f"Suite {draws.integers(1, 999)}",
        "city": city,
        "country": "USA",
        "state": state,
        "zip": f"{zone}{draws.integers(10, 99)}",
    }


def _order(
    draws: np.random.Generator,
    order_id: str,
    user_id: str,
    user: dict[str, Any],
    products: dict[str, dict[str, Any]],
    ids: Any,
) -> dict[str, Any]:
    chosen = draws.choice(len(products), int(draws.integers(2, 5)), replace=False)
    goods = list(products.values())
    items = []
    for place in chosen:
        product = goods[place]
        item_id = str(draws.choice(list(product["variants"])))
        variant = product["variants"][item_id]
        items.append(
            {
                "name": product["name"],
                "product_id": product["product_id"],
                "item_id": item_id,
                "price": variant["price"],
                "options": dict(variant["options"]),
            }
        )
    status = str(draws.choice(STATUSES, p=(0.45, 0.35, 0.1, 0.1)))
    total = round(sum(item["price"] for item in items), 2)
    method = str(draws.choice(list(user["payment_methods"])))
    history = [{"transaction_type": "payment", "amount": total, "payment_method_id": method}]
    if status == "cancelled":
        history.append(history[0] | {"transaction_type": "refund"})
    sent = [{"tracking_id": [next(ids)], "item_ids": [item["item_id"] for item in items]}]
    return {
        "order_id": order_id,
        "user_id": user_id,
        "address": dict(user["address"]),
        "items": items,
        "fulfillments": sent if status in ("delivered", "processed") else [],
        "status": status,
        "payment_history": history,
    }
