"""What the airline's tools are given: airports, cabins, flights, passengers, payments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, WithJsonSchema

AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago",
    "DFW": "Dallas", "DEN": "Denver", "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami",
    "BOS": "Boston", "PHX": "Phoenix", "IAH": "Houston", "LAS": "Las Vegas", "MCO": "Orlando",
    "EWR": "Newark", "CLT": "Charlotte", "MSP": "Minneapolis", "DTW": "Detroit",
    "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip
Cabin = Literal["basic_economy", "economy", "business"]


def _row(texts: dict[str, str], numbers: dict[str, str] | None = None) -> tuple[Any, Any]:
    """Return how an object with these fields is checked and described; it may have others."""
    kinds: dict[str, Any] = dict.fromkeys(texts, ("string", str))
    kinds |= dict.fromkeys(numbers or {}, ("number", (int, float)))
    told = {
        name: {"type": kinds[name][0], "description": words}
        for name, words in (texts | (numbers or {})).items()
    }

    def check(row: dict[str, Any]) -> dict[str, Any]:
        for name, (kind, types) in kinds.items():
            if not isinstance(row.get(name), types) or isinstance(row[name], bool):
                raise ValueError(f"{name} must be a {kind}")
        return row

    schema = {"type": "object", "properties": told, "required": list(told)}
    return AfterValidator(check), WithJsonSchema(schema)


# Plain dictionaries, because the database keeps them as they come, further fields and all.
Leg = Annotated[
    dict[str, Any], *_row({"flight_number": "Such as 'HAT001'.", "date": "Such as '2024-05-01'."})
]
Passenger = Annotated[
    dict[str, Any],
    *_row({"first_name": "First name.", "last_name": "Last name.", "dob": "Such as '1990-01-01'."}),
]
Paid = Annotated[
    dict[str, Any],
    *_row({"payment_id": "Of the user, such as 'gift_card_0000000'."}, {"amount": "Dollars."}),
]
Amount = Annotated[int | float, WithJsonSchema({"type": "number"})]
