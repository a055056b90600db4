"""Tools: described by their types, and proof against whatever a model writes."""

import json
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from equipoise.core import UsageError
from equipoise.kit.language.tools import MOST_ARGUMENTS, Tool, Toolbox, ToolError


class Place(BaseModel):
    city: str
    zip: str = ""


def move(
    order: str,
    reason: Literal["lost", "late"],
    places: list[Place],
    days: Annotated[int, Field(ge=1, le=9)] = 3,
    note: str | None = None,
) -> dict:
    """Move an order.

    It goes elsewhere.

    Parameters
    ----------
    order, note
        Its number,
        as text.
    days
        How long.

    Returns
    -------
    dict
        Nothing of use.
    """
    if reason == "lost":
        raise ToolError("a lost order cannot be moved")
    return {"order": order, "first": places[0].city, "days": days, "note": note}


BOX = Toolbox([move])
GOOD = {"order": "W1", "reason": "late", "places": [{"city": "Bonn"}]}


def test_the_description_is_that_of_openai():
    (schema,) = BOX.schemas
    assert schema["type"] == "function"
    function = schema["function"]
    assert function["name"] == "move"
    assert function["description"] == "Move an order.\n\nIt goes elsewhere."
    given_ = function["parameters"]
    assert given_["type"] == "object"
    assert given_["required"] == ["order", "reason", "places"]
    properties = given_["properties"]
    assert properties["order"]["description"] == "Its number, as text."
    assert properties["reason"]["enum"] == ["lost", "late"]
    assert properties["days"] == {
        "default": 3, "description": "How long.", "maximum": 9, "minimum": 1, "type": "integer",
    }  # fmt: skip
    json.dumps(schema)


def test_a_call_is_done():
    done = BOX.use("move", GOOD)
    assert done.fault == ""
    assert json.loads(done.content) == {"order": "W1", "first": "Bonn", "days": 3, "note": None}
    assert done.arguments == GOOD


@pytest.mark.parametrize(
    ("name", "arguments", "fault", "said"),
    [
        ("move", "{", "malformed", "Invalid JSON"),
        ("move", "[1]", "arguments", "object"),
        ("move", "null", "arguments", "object"),
        ("move", {**GOOD, "days": "3"}, "arguments", "days: Input should be a valid integer"),
        ("move", {**GOOD, "days": 10}, "arguments", "less than or equal to 9"),
        ("move", {**GOOD, "days": True}, "arguments", "days"),
        ("move", {**GOOD, "reason": "late!"}, "arguments", "'lost' or 'late'"),
        ("move", {**GOOD, "places": "Bonn"}, "arguments", "places"),
        ("move", {**GOOD, "places": [{"town": "Bonn"}]}, "arguments", "places.0.city"),
        ("move", {**GOOD, "extra": 1}, "arguments", "extra"),
        ("move", None, "arguments", "order: Field required"),
        ("move", {**GOOD, "reason": "lost"}, "refused", "a lost order cannot be moved"),
        ("mvoe", GOOD, "unknown", "Nearest: move"),
        ("x" * 10_000, GOOD, "unknown", "xxx…"),
        ("move", {**GOOD, "note": "x" * MOST_ARGUMENTS}, "too_large", "too large"),
        ("move", {"order": {1, 2}}, "malformed", "not JSON"),
    ],
)
def test_what_cannot_be_done_is_told(name, arguments, fault, said):
    done = BOX.use(name, arguments)
    assert done.fault == fault
    assert done.content.startswith("Error: ")
    assert said in done.content
    assert len(done.content) < 1000


@pytest.mark.parametrize(
    "call", [{}, {"function": None}, {"function": {"name": 3}}, {"function": "move"}, [], None, 7]
)
def test_a_malformed_call_is_told(call):
    assert BOX.call(call).fault == "malformed"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.one_of(JSON, st.text(), st.binary()), st.text(max_size=8) | st.just("move"))
def test_nothing_that_a_model_writes_raises(arguments, name):
    done = BOX.call({"id": "1", "function": {"name": name, "arguments": arguments}})
    assert done.fault
    json.dumps(done.content)


def test_deep_nesting_is_no_harm():
    assert BOX.use("move", "[" * 30_000).fault == "malformed"


def test_tools_are_checked():
    with pytest.raises(UsageError, match="needs a type for its parameter b"):
        Tool(lambda b: b, "f")

    def many(*rest: int) -> None: ...

    with pytest.raises(UsageError, match="parameter rest"):
        Tool(many)
    with pytest.raises(UsageError, match="one name"):
        Toolbox([move, Tool(move)])
