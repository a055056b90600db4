"""Charts with values to point at are well-formed and say what the data say."""

from __future__ import annotations

import json

import pytest

from equipoise.core import Estimate, Figure, Series
from equipoise.viewer import vega
from equipoise.viewer.standing import Standing

altair = pytest.importorskip("altair")


def checked(spec: dict) -> dict:
    """Return a chart that Vega-Lite's own schema accepts, as it goes over the wire."""
    whole = json.loads(json.dumps(vega.dressed(spec), allow_nan=False))
    for look in ("light", "dark"):
        altair.Chart.from_dict({**whole["spec"], "config": whole[look]}, validate=True)
    return whole["spec"]


def test_the_board() -> None:
    mean = Estimate(0.5, 0.4, 0.6, 0.95, 10)
    bare = Estimate(0.3, float("nan"), float("nan"), 0.95, 1)
    found = [
        Standing(1, "t", "a", {"x": mean, "y": bare}, mean),
        Standing(2, "t", "b", {"x": bare, "y": mean}, bare),
    ]
    spec = checked(vega.board(found, ["x", "y"]))
    rows = spec["data"]["values"]
    assert len(rows) == 6
    assert {row["task"] for row in rows} == {"all tasks", "x", "y"}
    assert {row["arm"] for row in rows} == {"a (run 1)", "b (run 2)"}
    for row in rows:
        assert ("low" in row) == (row["mean"] == 0.5)
    assert len(checked(vega.board(found, ["x"]))["data"]["values"]) == 4


@pytest.mark.parametrize("look", ["line", "step", "points", "bars", "guide"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_figure_of_every_look(look: str, ends: bool) -> None:
    span = {"low": [0.0, 0.1], "high": [1.0, 1.1]} if ends and look != "guide" else {}
    series = [Series("s", [0.0, 1.0], [0.5, 0.6], look=look, **span),
              Series("empty", [], [], look="line")]  # fmt: skip
    spec = checked(vega.figure(Figure("t", "x", "y", series)))
    assert len(spec["layer"]) == (2 if span else 1)
    drawn = [each for each in spec["layer"] if each["encoding"]["y"]["field"] == "y"]
    assert [(row["x"], row["y"]) for row in drawn[0]["data"]["values"]] == [(0.0, 0.5), (1.0, 0.6)]
