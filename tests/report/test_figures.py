"""Figures: points where their numbers are, in the page and in a notebook."""

from xml.etree import ElementTree as ET

import pytest

from equipoise.core import Figure, Series, UsageError
from equipoise.report.figures import chart, draw, panels

LINES = Figure(
    "Coverage",
    "1 − α",
    "coverage",
    (
        Series("split", (0.0, 0.5, 1.0), (0.0, 0.5, 1.0), (0.0, 0.4, 0.9), (0.1, 0.6, 1.0)),
        Series("nominal", (0.0, 1.0), (0.0, 1.0), look="guide"),
        Series("seen", (0.5,), (0.25,), (0.2,), (0.3,), look="points"),
    ),
    "A caption.",
)


def parts(svg, cls):
    return [each for each in ET.fromstring(str(svg)).iter() if each.get("class") == cls]


def heights(path):
    return [float(pair.split()[1]) for pair in path.get("d").lstrip("M").rstrip("Z").split("L")]


def test_a_line_a_band_and_a_guide():
    svg = draw(LINES)
    (line,), (band,), (guide,) = (parts(svg, c) for c in ("path s0", "band s0", "path guide"))
    bottom, middle, top = heights(line)
    assert middle == pytest.approx((bottom + top) / 2)
    assert heights(guide) == [bottom, top]
    high = heights(band)[:3]
    assert all(a <= b for a, b in zip(high, heights(line), strict=True)), "up is smaller"
    (point,) = parts(svg, "point s1")
    assert float(point.get("cy")) == pytest.approx(bottom + (top - bottom) / 4, abs=0.01)


def test_a_step_is_constant_to_the_right():
    svg = draw(Figure("t", "x", "y", (Series("a", (0, 1, 2), (1.0, 0.5, 0.5), look="step"),)))
    first, held, dropped, *rest = heights(parts(svg, "path s0")[0])
    assert first == held
    assert dropped == rest[0] == rest[1]


def test_bars_of_two_arms_stand_side_by_side_on_zero():
    pair = [Series(name, (1, 2), (0.25, 0.75), look="bars") for name in ("a", "b")]
    svg = draw(Figure("t", "x", "y", tuple(pair)))
    a, b = parts(svg, "column s0"), parts(svg, "column s1")
    assert [len(a), len(b)] == [2, 2]

    def ends(rect):
        left, width = (float(rect.get(name).rstrip("%")) for name in ("x", "width"))
        return left, left + width

    assert ends(a[0])[1] <= ends(b[0])[0]
    assert ends(b[0])[1] < ends(a[1])[0]
    tall = [float(each.get("height")) for each in a]
    assert tall[1] == pytest.approx(3 * tall[0], rel=1e-3)
    feet = {round(float(each.get("y")) + float(each.get("height")), 1) for each in (*a, *b)}
    assert len(feet) == 1


def test_names_of_models_are_text_and_no_more():
    nasty = '<script>alert("x")</script>'
    svg = draw(Figure(nasty, nasty, nasty, (Series(nasty, (0, 1), (0, 1)),), nasty))
    assert "<script>" not in svg
    ET.fromstring(str(svg))


def test_nothing_to_draw_and_one_point():
    assert draw(Figure("t", "x", "y", (Series("a", (), ()),))) == ""
    assert parts(draw(Figure("t", "x", "y", (Series("a", (1,), (2,)),))), "point s0")


def test_a_panel_has_a_legend_entry_a_name():
    twice = (Series("a", (0, 1), (0, 1)), Series("a", (0.5,), (0.5,), look="points"))
    figure = Figure("t", "x", "y", (*twice, Series("b", (0,), (1,))))
    row = {"figures": [{"task": "x", "measure": "m", "figure": figure.as_json()}]}
    (panel,) = panels(row)
    assert [entry["name"] for entry in panel["legend"]] == ["a", "b"]
    assert parts(panel["chart"], "point s0"), "one name, one hue"


def test_altair_draws_every_look():
    bars = Figure("t", "x", "y", (Series("a", (1, 2), (1, 2), (0, 1), (2, 3), look="bars"),))
    steps = Figure("t", "x", "y", (Series("a", (0, 1), (1, 0.5), (1, 0.4), (1, 0.6), "step"),))
    for figure in (LINES, bars, steps):
        made = chart(figure).to_dict(validate=True)
        assert made["layer"]
    assert chart({"figure": LINES.as_json()}).to_dict()["title"]["subtitle"] == ["A caption."]


def test_series_are_checked():
    with pytest.raises(UsageError, match="one length"):
        Series("a", (1, 2), (1,))
    with pytest.raises(UsageError, match="finite"):
        Series("a", (1,), (float("nan"),))
