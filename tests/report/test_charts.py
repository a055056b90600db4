"""Charts: scales that hold, counts that add up, marks where they belong."""

import math
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from equipoise.report.charts import (
    MARGIN,
    Scale,
    axis,
    bin_edges,
    count,
    histogram,
    interval,
    sequence,
    shares,
    tick_label,
)

FINITE = st.floats(-1e12, 1e12).filter(lambda v: v == 0 or abs(v) > 1e-9)


def marks(svg, cls, tag=None):
    root = ET.fromstring(str(svg))
    found = [each for each in root.iter() if each.get("class") == cls]
    return [each.attrib for each in found if tag is None or each.tag == tag]


@example([-451816813788.0, -449314987330.0])
@given(st.lists(FINITE, min_size=1, max_size=6))
def test_a_scale_holds_its_values_between_round_ticks(values):
    scale = Scale.over(values)
    size = max(map(abs, values))
    assert scale.low <= min(values) + 1e-6 * size
    assert scale.high >= max(values) - 1e-6 * size
    assert 2 <= len(scale.ticks) <= 9
    assert np.all(np.diff(scale.ticks) > 0)
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(MARGIN <= place <= 100 - MARGIN for place in places)
    labels = [tick_label(tick, scale) for tick in scale.ticks]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("values", [[], [None], [math.nan, math.inf], [0.0], [3.0, 3.0], [-1e-300]])
def test_a_scale_stands_anything(values):
    scale = Scale.over(values)
    assert scale.low < scale.high


def test_an_interval_is_where_its_numbers_are():
    scale = Scale(0.0, 1.0, (0.0, 0.5, 1.0))
    row = {"value": 0.5, "low": 0.25, "high": None}
    svg = interval(row, scale, zero=True, bounds=[0.75], region=(0.75, None), tone="good")
    assert marks(svg, "point")[0]["cx"] == "50%"
    (whisker,) = marks(svg, "whisker")
    assert (whisker["x1"], whisker["x2"]) == ("26.5%", "97%")
    assert [each["x1"] for each in marks(svg, "cap")] == ["26.5%"]  # no cap at an endless end
    assert [each["x1"] for each in marks(svg, "bound")] == ["73.5%"]
    (region,) = marks(svg, "region")
    assert (region["x"], region["width"]) == ("73.5%", "23.5%")
    assert [each["x1"] for each in marks(svg, "zero")] == ["3%"]


def test_a_chart_in_words_is_escaped_and_one_without_is_hidden():
    scale = Scale.over([0, 1])
    svg = str(interval({"value": 1}, scale, label='"<script>\u202e'))
    assert 'aria-label="&#34;&lt;script&gt;⟨U+202E⟩"' in svg
    assert 'aria-hidden="true"' in str(axis(scale))


@example([0.0, 6.7e-225, 2.2e-311], False)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.booleans())
def test_bins_count_every_score_once(values, bounded):
    column = np.array(values)
    low, high = (float(column.min()) - 1, float(column.max()) + 1) if bounded else (None, None)
    edges = bin_edges([column, column[:1]], low, high)
    bins = count(np.append(column, np.nan), edges)
    assert bins.counts.sum() + bins.below + bins.above == len(column)
    assert np.all(np.diff(edges) > 0)


def test_few_evenly_spaced_values_get_a_bar_each():
    edges = bin_edges([np.array([0.0, 0.5, 1.0, 0.5])], 0, 1)
    assert np.allclose(edges, [-0.25, 0.25, 0.75, 1.25])
    assert count(np.array([0.0, 0.5, 0.5, 1.0]), edges).counts.tolist() == [1, 2, 1]


def test_far_outliers_do_not_squeeze_the_rest():
    column = np.append(np.random.default_rng(0).normal(size=5000), [1e6, -1e6])
    edges = bin_edges([column], None, None)
    assert edges[-1] - edges[0] < 20
    bins = count(column, edges)
    assert bins.below + bins.above >= 2
    assert bins.counts.sum() > 4_900


def test_no_scores_at_all_make_an_empty_histogram():
    edges = bin_edges([np.array([np.nan])], None, None)
    bins = count(np.array([np.nan]), edges)
    svg = histogram(bins, 0, Scale.over(edges.tolist()), {"value": None, "low": None})
    assert not marks(svg, "bar")
    assert not marks(svg, "point")


def test_bars_are_as_tall_as_their_counts():
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    svg = histogram(count(np.array([0.5, 1.5, 1.5]), edges), 2, Scale.over([0, 3]))
    heights = [float(each["height"]) for each in marks(svg, "bar")]
    assert heights == [23.0, 46.0]


def test_shares_fill_the_bar():
    svg = shares([(3, "yes"), (0, "no"), (1, "failed")])
    assert marks(svg, "yes")[0]["width"] == "75%"
    assert marks(svg, "failed")[0]["x"] == "75%"
    assert not marks(svg, "no")
    assert not marks(shares([(0, "yes")]), "yes")


def test_a_sequence_draws_what_is_known():
    steps = [
        {"n": 0, "value": math.nan, "low": math.nan, "high": math.nan},
        {"n": 32, "value": 0.1, "low": -math.inf, "high": math.inf},
        {"n": 64, "value": 0.2, "low": None, "high": 0.5},
        {"n": 128, "value": 0.2, "low": 0.1, "high": 0.3},
    ]
    svg = sequence(steps, [0.0], (0.0, None))
    path = marks(svg, "path")[0]["d"]
    assert len(re.findall("[ML]", path)) == 3
    assert "nan" not in str(svg)
    assert "inf" not in str(svg)
    assert marks(svg, "bound")[0]["y1"] == marks(svg, "bound")[0]["y2"]
    assert sequence(steps[:1], [0.0]) == ""
    assert marks(sequence(steps[1:2], []), "point")
