"""The airline's tools, by hand."""

import copy
import json

import pytest

from equipoise.kit.language.tools import Toolbox
from equipoise.methods.interactive._tau.airline import Airline
from equipoise.methods.interactive._tau.records import Records


def day(status="available", seats=3, economy=100):
    if status != "available":
        return {"status": status}
    cabins = ("basic_economy", "economy", "business")
    prices = dict(zip(cabins, (economy - 50, economy, economy * 3), strict=True))
    return {"status": status, "available_seats": dict.fromkeys(cabins, seats), "prices": prices}


def flight(number, origin, destination, leaves, lands, dates):
    return {"flight_number": number, "origin": origin, "destination": destination,
            "scheduled_departure_time_est": leaves, "scheduled_arrival_time_est": lands,
            "dates": dates}  # fmt: skip


ADA = {"first_name": "Ada", "last_name": "Byron", "dob": "1990-01-01"}
TABLES = {
    "flights": {
        "HAT001": flight("HAT001", "SFO", "JFK", "06:00:00", "14:00:00",
                         {"2024-05-20": day(), "2024-05-21": day(economy=140),
                          "2024-05-22": day("cancelled")}),
        "HAT002": flight("HAT002", "SFO", "DEN", "06:00:00", "08:00:00",
                         {"2024-05-20": day(seats=1), "2024-05-21": day()}),
        "HAT003": flight("HAT003", "DEN", "JFK", "09:00:00", "13:00:00",
                         {"2024-05-20": day(economy=60), "2024-05-21": day(economy=80)}),
        "HAT004": flight("HAT004", "SFO", "DEN", "22:00:00", "00:30:00+1",
                         {"2024-05-20": day(), "2024-05-31": day()}),
        "HAT005": flight("HAT005", "DEN", "JFK", "07:00:00", "11:00:00",
                         {"2024-05-19": day()}),
    },
    "reservations": {
        "R1": {"reservation_id": "R1", "user_id": "ada", "origin": "SFO", "destination": "JFK",
               "flight_type": "one_way", "cabin": "economy",
               "flights": [{"origin": "SFO", "destination": "JFK", "flight_number": "HAT001",
                            "date": "2024-05-20", "price": 90}],
               "passengers": [ADA, ADA | {"first_name": "Eve"}],
               "payment_history": [{"payment_id": "credit_card_1", "amount": 180}],
               "created_at": "2024-05-01T00:00:00", "total_baggages": 1, "nonfree_baggages": 0,
               "insurance": "no"},
    },
    "users": {
        "ada": {"name": {"first_name": "Ada", "last_name": "Byron"}, "membership": "gold",
                "payment_methods": {
                    "credit_card_1": {"source": "credit_card", "id": "credit_card_1"},
                    "gift_card_1": {"source": "gift_card", "amount": 120, "id": "gift_card_1"},
                    "certificate_1": {"source": "certificate", "amount": 50, "id": "certificate_1"},
                },
                "reservations": ["R1"]},
    },
}  # fmt: skip
RECORDS = Records(copy.deepcopy(TABLES))
BOOK = {
    "user_id": "ada", "origin": "SFO", "destination": "JFK", "flight_type": "one_way",
    "cabin": "economy", "flights": [{"flight_number": "HAT001", "date": "2024-05-20"}],
    "passengers": [ADA], "payment_methods": [{"payment_id": "credit_card_1", "amount": 180}],
    "total_baggages": 2, "nonfree_baggages": 1, "insurance": "yes",
}  # fmt: skip


@pytest.fixture
def desk():
    made = Airline(RECORDS)
    yield made
    assert RECORDS.tables == TABLES, "an episode wrote to the records that all share"


def use(desk, name, **arguments):
    return Toolbox(tuple(desk.tools())).use(name, arguments).content


def refused(desk, name, **arguments):
    before = desk.database.digest()
    said = use(desk, name, **arguments)
    assert desk.database.digest() == before
    assert said.startswith("Error: ")
    return said.removeprefix("Error: ")


def methods(desk):
    return desk.database.find("users", "ada")["payment_methods"]


def test_there_are_fourteen_tools_in_order(desk):
    tools = {tool.name: tool.schema["function"]["parameters"] for tool in desk.tools()}
    assert len(tools) == 14
    assert list(tools) == sorted(tools)
    flights = tools["book_reservation"]["properties"]["flights"]
    assert flights["items"]["required"] == ["flight_number", "date"]
    assert "$defs" not in tools["book_reservation"]
    assert tools["send_certificate"]["properties"]["amount"]["type"] == "number"


def test_booking(desk):
    found = json.loads(use(desk, "book_reservation", **BOOK))
    assert (found["reservation_id"], found["created_at"]) == ("HATHAT", "2024-05-15T15:00:00")
    assert found["flights"] == [
        {"flight_number": "HAT001", "date": "2024-05-20", "price": 100,
         "origin": "SFO", "destination": "JFK"}
    ]  # fmt: skip
    # A hundred for the seat, 30 for the insurance, 50 for the bag; no seat is taken away.
    assert found["payment_history"] == BOOK["payment_methods"]
    assert desk.database.find("users", "ada")["reservations"] == ["R1", "HATHAT"]
    ids = [json.loads(use(desk, "book_reservation", **BOOK))["reservation_id"] for _ in range(3)]
    assert ids == ["HATHAU", "HATHAV", "HATHAV"]


def test_booking_with_a_certificate_and_a_gift_card(desk):
    paid = [{"payment_id": "certificate_1", "amount": 50}, {"payment_id": "gift_card_1",
            "amount": 120}, {"payment_id": "credit_card_1", "amount": 10}]  # fmt: skip
    use(desk, "book_reservation", **BOOK | {"payment_methods": paid})
    assert methods(desk)["gift_card_1"]["amount"] == 0
    assert "certificate_1" not in methods(desk)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"user_id": "bob"}, "user not found"),
        ({"flights": [{"flight_number": "HAT9", "date": "2024-05-20"}]}, "flight HAT9 not found"),
        ({"flights": [{"flight_number": "HAT001", "date": "2024-06-20"}]},
         "flight HAT001 not found on date 2024-06-20"),
        ({"flights": [{"flight_number": "HAT001", "date": "2024-05-22"}]},
         "flight HAT001 not available on date 2024-05-22"),
        ({"flights": [{"flight_number": "HAT002", "date": "2024-05-20"}], "passengers": [ADA, ADA]},
         "not enough seats on flight HAT002"),
        ({"payment_methods": [{"payment_id": "x", "amount": 180}]}, "payment method x not found"),
        ({"payment_methods": [{"payment_id": "gift_card_1", "amount": 180}]},
         "not enough balance in payment method gift_card_1"),
        ({"payment_methods": [{"payment_id": "credit_card_1", "amount": 1}]},
         "payment amount does not add up, total price is 180, but paid 1"),
        # The second use of the certificate fails half-way; nothing is kept of the first.
        ({"payment_methods": [{"payment_id": "certificate_1", "amount": 50},
                              {"payment_id": "certificate_1", "amount": 50},
                              {"payment_id": "credit_card_1", "amount": 80}]}, "'certificate_1'"),
        ({"flights": [{"flight_number": "HAT001"}]},
         "book_reservation: flights.0: Value error, date must be a string"),
        ({"cabin": "first"}, "book_reservation: cabin: Input should be"),
    ],
)  # fmt: skip
def test_booking_is_refused(desk, changed, said):
    assert refused(desk, "book_reservation", **BOOK | changed).startswith(said)


def test_cancelling_appends_what_goes_back(desk):
    found = json.loads(use(desk, "cancel_reservation", reservation_id="R1"))
    assert found["status"] == "cancelled"
    assert [p["amount"] for p in found["payment_history"]] == [180, -180]
    assert refused(desk, "cancel_reservation", reservation_id="R2") == "reservation not found"


def test_kept_flights_keep_their_price(desk):
    change = "update_reservation_flights"
    same = {"reservation_id": "R1", "payment_id": "gift_card_1",
            "flights": [{"flight_number": "HAT001", "date": "2024-05-20"}]}  # fmt: skip
    found = json.loads(use(desk, change, cabin="economy", **same))
    assert found["flights"][0]["price"] == 90
    assert len(found["payment_history"]) == 1
    # The same flight in another cabin has today's price: 2 x (50 - 90).
    found = json.loads(use(desk, change, cabin="basic_economy", **same))
    assert found["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": -80}
    assert methods(desk)["gift_card_1"]["amount"] == 200
    assert found["cabin"] == "economy", "as released, the cabin is not written down"


def test_changes_of_flights_are_paid_for(desk):
    other = {"reservation_id": "R1", "cabin": "economy",
             "flights": [{"flight_number": "HAT001", "date": "2024-05-21"}]}  # fmt: skip
    change = "update_reservation_flights"
    assert refused(desk, change, payment_id="certificate_1", **other) == (
        "certificate cannot be used to update reservation"
    )
    assert refused(desk, change, payment_id="x", **other) == "payment method not found"
    found = json.loads(use(desk, change, payment_id="gift_card_1", **other))
    assert found["payment_history"][-1]["amount"] == 100  # 2 x (140 - 90)
    assert methods(desk)["gift_card_1"]["amount"] == 20
    dear = other | {"cabin": "business"}
    said = refused(desk, change, payment_id="gift_card_1", **dear)
    assert said == "gift card balance is not enough"


def test_bags_and_passengers(desk):
    bags = {"reservation_id": "R1", "total_baggages": 4, "payment_id": "gift_card_1"}
    said = refused(desk, "update_reservation_baggages", nonfree_baggages=3, **bags)
    assert said == "gift card balance is not enough"
    found = json.loads(use(desk, "update_reservation_baggages", nonfree_baggages=2, **bags))
    assert (found["total_baggages"], found["payment_history"][-1]["amount"]) == (4, 100)
    found = json.loads(use(desk, "update_reservation_baggages", nonfree_baggages=1, **bags))
    assert len(found["payment_history"]) == 2, "fewer bags cost nothing"
    people = {"reservation_id": "R1", "passengers": [ADA]}
    assert refused(desk, "update_reservation_passengers", **people) == (
        "number of passengers does not match"
    )
    people["passengers"] = [ADA | {"seat": "1A"}, ADA]
    found = json.loads(use(desk, "update_reservation_passengers", **people))
    assert found["passengers"][0]["seat"] == "1A", "further fields are kept as they come"


def test_certificates(desk):
    said = use(desk, "send_certificate", user_id="ada", amount=100)
    assert said == "Certificate certificate_3221322 added to user ada with amount 100."
    for _ in range(2):
        use(desk, "send_certificate", user_id="ada", amount=50.5)
    assert methods(desk)["certificate_3221324"]["amount"] == 50.5
    assert "no more" in refused(desk, "send_certificate", user_id="ada", amount=1)
    assert refused(desk, "send_certificate", user_id="bob", amount=1) == "user not found"


def test_direct_flights(desk):
    given = {"origin": "SFO", "destination": "JFK"}
    (found,) = json.loads(use(desk, "search_direct_flight", date="2024-05-21", **given))
    assert (found["flight_number"], found["prices"]["economy"]) == ("HAT001", 140)
    assert "dates" not in found
    assert use(desk, "search_direct_flight", date="2024-05-22", **given) == "[]"
    assert len(json.loads(use(desk, "list_all_airports"))) == 20


def search(desk, date):
    said = use(desk, "search_onestop_flight", origin="SFO", destination="JFK", date=date)
    return said if said.startswith("Error") else [
        [(leg["flight_number"], leg["date"], leg["prices"]["economy"]) for leg in trip]
        for trip in json.loads(said)
    ]  # fmt: skip


def test_onestop_flights_and_the_fault_of_the_released_search():
    same_day = [("HAT002", "2024-05-20", 100), ("HAT003", "2024-05-20", 60)]
    released = search(Airline(RECORDS), "2024-05-20")
    mended = search(Airline(RECORDS, released_search=False), "2024-05-20")
    # HAT004 lands on the 21st; the released search shows the second leg's price of the 20th.
    assert released == [
        same_day, [("HAT004", "2024-05-20", 100), ("HAT003", "2024-05-21", 60)],
    ]  # fmt: skip
    assert mended == [same_day, [("HAT004", "2024-05-20", 100), ("HAT003", "2024-05-21", 80)]]
    assert search(Airline(RECORDS), "2024-05-31") == []
