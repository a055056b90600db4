"""The tools of an airline's service desk; it is 2024-05-15, 15:00 EST there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import date as Date
from datetime import timedelta
from typing import Any, Literal

from equipoise.kit.language.tools import ToolError
from equipoise.methods.interactive._tau.flying import AIRPORTS, Amount, Cabin, Leg, Paid, Passenger
from equipoise.methods.interactive._tau.records import Record, Records, reads, writes
from equipoise.methods.interactive._tau.service import Service

NOW = "2024-05-15T15:00:00"
BOOKED = ("HATHAT", "HATHAU", "HATHAV")
CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")


class Airline(Service):
    """One episode at an airline's service desk: users, flights and reservations.

    Parameters
    ----------
    records, policy
        As for `Service`.
    released_search
        Search one-stop flights as the released tool does: seats and prices of the second leg are
        those of the first day even where it leaves a day later.
    """

    def __init__(self, records: Records, policy: str = "", released_search: bool = True) -> None:
        super().__init__(records, policy)
        self.released_search = released_search

    def fresh(self) -> Airline:
        """Return an episode in which nothing has happened."""
        return Airline(self.database.records, released_search=self.released_search)

    @reads
    def get_user_details(self, user_id: str) -> Record:
        """Show a user: membership, payment methods, saved passengers, reservations.

        Parameters
        ----------
        user_id
            Such as 'ada_byron_1815'.
        """
        return self._known("users", user_id, "user not found")

    @reads
    def get_reservation_details(self, reservation_id: str) -> Record:
        """Show a reservation.

        Parameters
        ----------
        reservation_id
            Such as '8JX2WO'.
        """
        # The released tool says "user" here too.
        return self._known("reservations", reservation_id, "user not found")

    @reads
    def list_all_airports(self) -> dict[str, str]:
        """List all airports and their cities."""
        return AIRPORTS

    @reads
    def search_direct_flight(self, origin: str, destination: str, date: str) -> list[Record]:
        """Search direct flights between two airports on a day.

        Parameters
        ----------
        origin, destination
            Airport, such as 'JFK'.
        date
            Such as '2024-05-01'.
        """
        return [
            _without_dates(flight) | flight["dates"][date]
            for flight in self.database.records.flights_from.get(origin, ())
            if flight["destination"] == destination and _open(flight, date)
        ]

    @reads
    def search_onestop_flight(self, origin: str, destination: str, date: str) -> list[list[Record]]:
        """Search flights with one stop between two airports on a day.

        Parameters
        ----------
        origin, destination
            Airport, such as 'JFK'.
        date
            Such as '2024-05-01'.
        """
        flights_from = self.database.records.flights_from
        found = []
        for first in flights_from.get(origin, ()):
            arrives = first["scheduled_arrival_time_est"]
            for second in flights_from.get(first["destination"], ()):
                if second["destination"] != destination:
                    continue
                next_day = self._second_day(date) if "+1" in arrives else date
                if arrives > second["scheduled_departure_time_est"]:
                    continue
                if _open(first, date) and _open(second, next_day):
                    shown = date if self.released_search else next_day
                    found.append(
                        [
                            _without_dates(first) | first["dates"][date] | {"date": date},
                            _without_dates(second) | second["dates"][shown] | {"date": next_day},
                        ]
                    )
        return found

    @writes
    def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: Literal["one_way", "round_trip"],
        cabin: Cabin,
        flights: list[Leg],
        passengers: list[Passenger],
        payment_methods: list[Paid],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Literal["yes", "no"],
    ) -> Record:
        """Book a reservation. What is paid must be the price exactly.

        Parameters
        ----------
        user_id
            Who books, such as 'ada_byron_1815'.
        origin, destination
            Airport, such as 'JFK'.
        flights
            Every flight of the trip.
        passengers
            Everyone who flies.
        payment_methods
            Who pays what; methods of the user.
        total_baggages
            Bags in all.
        nonfree_baggages
            Bags that cost money.
        """
        user = self._known("users", user_id, "user not found")
        taken = [each for each in BOOKED[:2] if self.database.has("reservations", each)]
        # As released: a third free id is not looked for, the last one is used again.
        reservation_id = BOOKED[0] if BOOKED[0] not in taken else BOOKED[1]
        if len(taken) == 2:
            reservation_id = BOOKED[2]
        legs, price = self._priced(flights, cabin, len(passengers), {})
        if insurance == "yes":
            price += 30 * len(passengers)
        price += 50 * nonfree_baggages
        methods = user["payment_methods"]
        for paid in payment_methods:
            method = methods.get(paid["payment_id"])
            if method is None:
                raise ToolError(f"payment method {paid['payment_id']} not found")
            stored = method["source"] in ("gift_card", "certificate")
            if stored and method["amount"] < paid["amount"]:
                raise ToolError(f"not enough balance in payment method {paid['payment_id']}")
        given = sum(paid["amount"] for paid in payment_methods)
        if given != price:
            raise ToolError(
                f"payment amount does not add up, total price is {price}, but paid {given}"
            )
        user = self.database.edit("users", user_id)
        for paid in payment_methods:
            source = user["payment_methods"][paid["payment_id"]]["source"]
            if source == "gift_card":
                user["payment_methods"][paid["payment_id"]]["amount"] -= paid["amount"]
            elif source == "certificate":
                del user["payment_methods"][paid["payment_id"]]
        reservation = {
            "reservation_id": reservation_id,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": legs,
            "passengers": passengers,
            "payment_history": payment_methods,
            "created_at": NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
        }
        self.database.add("reservations", reservation_id, reservation)
        user["reservations"].append(reservation_id)
        return reservation

    @writes
    def cancel_reservation(self, reservation_id: str) -> Record:
        """Cancel a whole reservation. It is paid back; no rule is checked here.

        Parameters
        ----------
        reservation_id
            Such as '8JX2WO'.
        """
        self._reservation(reservation_id)
        found = self.database.edit("reservations", reservation_id)
        found["payment_history"].extend(
            [
                {"payment_id": paid["payment_id"], "amount": -paid["amount"]}
                for paid in found["payment_history"]
            ]
        )
        found["status"] = "cancelled"
        return found

    @writes
    def update_reservation_flights(
        self, reservation_id: str, cabin: Cabin, flights: list[Leg], payment_id: str
    ) -> Record:
        """Change flights or cabin of a reservation. The difference is paid or paid back.

        Parameters
        ----------
        reservation_id
            Such as '8JX2WO'.
        cabin
            Of all flights.
        flights
            Every flight of the new reservation, those that stay too.
        payment_id
            Method of the user, such as 'gift_card_0000000'; no certificate.
        """
        found = self._reservation(reservation_id)
        people = len(found["passengers"])
        kept = {}
        if cabin == found["cabin"]:
            for leg in reversed(found["flights"]):
                kept[leg["flight_number"], leg["date"]] = leg
        legs, price = self._priced(flights, cabin, people, kept)
        price -= sum(leg["price"] for leg in found["flights"]) * people
        self._charge(found, payment_id, price)
        found = self.database.edit("reservations", reservation_id)
        found["flights"] = legs
        if price != 0:
            found["payment_history"].append({"payment_id": payment_id, "amount": price})
        return found

    @writes
    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Record:
        """Change the bags of a reservation; each further one that is not free costs $50.

        Parameters
        ----------
        reservation_id
            Such as '8JX2WO'.
        total_baggages
            Bags in all, afterwards.
        nonfree_baggages
            Bags that cost money, afterwards.
        payment_id
            Method of the user, such as 'gift_card_0000000'; no certificate.
        """
        found = self._reservation(reservation_id)
        price = 50 * max(0, nonfree_baggages - found["nonfree_baggages"])
        self._charge(found, payment_id, price)
        found = self.database.edit("reservations", reservation_id)
        found["total_baggages"], found["nonfree_baggages"] = total_baggages, nonfree_baggages
        if price != 0:
            found["payment_history"].append({"payment_id": payment_id, "amount": price})
        return found

    @writes
    def update_reservation_passengers(
        self, reservation_id: str, passengers: list[Passenger]
    ) -> Record:
        """Change who flies; as many people as before.

        Parameters
        ----------
        reservation_id
            Such as '8JX2WO'.
        passengers
            Everyone who flies.
        """
        found = self._reservation(reservation_id)
        if len(passengers) != len(found["passengers"]):
            raise ToolError("number of passengers does not match")
        found = self.database.edit("reservations", reservation_id)
        found["passengers"] = passengers
        return found

    @writes
    def send_certificate(self, user_id: str, amount: Amount) -> str:
        """Send a certificate to a user.

        Parameters
        ----------
        user_id
            Such as 'ada_byron_1815'.
        amount
            Dollars.
        """
        self._known("users", user_id, "user not found")
        methods = self.database.edit("users", user_id)["payment_methods"]
        for name in CERTIFICATES:
            if name not in methods:
                methods[name] = {"source": "certificate", "amount": amount, "id": name}
                return f"Certificate {name} added to user {user_id} with amount {amount}."
        raise ToolError("no more certificates can be sent to this user")

    def _known(self, table: str, key: str, otherwise: str) -> Record:
        found = self.database.find(table, key)
        if found is None:
            raise ToolError(otherwise)
        return found

    def _reservation(self, reservation_id: str) -> Record:
        return self._known("reservations", reservation_id, "reservation not found")

    def _priced(
        self, flights: list[Any], cabin: str, people: int, kept: Mapping[tuple[str, str], Record]
    ) -> tuple[list[Record], Any]:
        """Return flights with their prices, and the price of all seats; kept ones keep theirs."""
        legs, price = [], 0
        for asked in flights:
            leg = copy.deepcopy(asked)
            number, day = leg["flight_number"], leg["date"]
            old = kept.get((number, day))
            if old is None:
                flight = self._seats(number, day, cabin, people)
                told = flight | {"price": flight["dates"][day]["prices"][cabin]}
            else:
                told = old
            for name in ("price", "origin", "destination"):
                leg[name] = told[name]
            legs.append(leg)
            price += leg["price"] * people
        return legs, price

    def _seats(self, number: str, day: str, cabin: str, people: int) -> Record:
        flight = self._known("flights", number, f"flight {number} not found")
        if day not in flight["dates"]:
            raise ToolError(f"flight {number} not found on date {day}")
        told = flight["dates"][day]
        if told["status"] != "available":
            raise ToolError(f"flight {number} not available on date {day}")
        if told["available_seats"][cabin] < people:
            raise ToolError(f"not enough seats on flight {number}")
        return flight

    def _charge(self, reservation: Record, payment_id: str, price: Any) -> None:
        user_id = reservation["user_id"]
        user = self.database.find("users", user_id)
        if user is None:
            raise KeyError(user_id)
        method = user["payment_methods"].get(payment_id)
        if method is None:
            raise ToolError("payment method not found")
        if method["source"] == "certificate":
            raise ToolError("certificate cannot be used to update reservation")
        if method["source"] == "gift_card":
            if method["amount"] < price:
                raise ToolError("gift card balance is not enough")
            self.database.edit("users", user_id)["payment_methods"][payment_id]["amount"] -= price

    def _second_day(self, date: str) -> str:
        if self.released_search:
            return f"2024-05-{int(date[-2:]) + 1}"
        return str(Date.fromisoformat(date) + timedelta(days=1))


def _open(flight: Record, date: str) -> bool:
    return date in flight["dates"] and flight["dates"][date]["status"] == "available"


def _without_dates(flight: Record) -> Record:
    return {key: value for key, value in flight.items() if key != "dates"}
