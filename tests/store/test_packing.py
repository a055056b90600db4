import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core import UsageError
from equipoise.store import _packing as packing

# Text as models write it: lone surrogates and NUL included.
wild = st.text(st.characters(exclude_categories=()), max_size=400)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | wild,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(wild, inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_json_comes_back_as_it_was(value):
    packed = packing.pack(value)
    assert packing.unpack(packed) == value


@given(values)
def test_what_is_kept_is_valid_text_without_nul(value):
    kept = packing.dumps(value)
    kept.encode("utf-8")
    assert "\0" not in kept


@given(wild)
def test_safe_text_fits_any_database_and_plain_text_is_untouched(value):
    safe = packing.text(value)
    safe.encode("utf-8")
    assert "\0" not in safe
    if "\0" not in value and not any(0xD800 <= ord(c) < 0xE000 for c in value):
        assert safe == value


@given(st.dictionaries(wild.map(packing.text), st.floats(allow_nan=True), max_size=4))
def test_scores_are_exact_and_nan_is_left_out(scores):
    kept = json.loads(packing.scores_text(scores, {}))
    assert kept == {name: value for name, value in scores.items() if value == value}


def test_infinite_scores_survive_in_valid_json():
    text = packing.scores_text({"a": -math.inf, "b": math.inf}, {})
    assert text == '{"a":-1e999,"b":1e999}'
    assert json.loads(text) == {"a": -math.inf, "b": math.inf}


def test_what_is_not_json_is_made_so():
    value = {
        ("a", 1): np.float32(0.5),
        "array": np.arange(3),
        "nan": [math.nan, -math.inf],
        "set": {2, 1},
        "bytes": b"\xff",
        "object": pytest,
    }
    plain = packing.unpack(packing.pack(value))
    assert plain["('a', 1)"] == 0.5
    assert plain["array"] == [0, 1, 2]
    assert plain["nan"] == [None, None]
    assert plain["set"] == [1, 2]
    assert plain["bytes"] == "\ufffd"
    assert "pytest" in plain["object"]


def test_a_value_too_deep_to_keep_is_named_so():
    value = []
    for _ in range(100_000):
        value = [value]
    assert "too deeply" in packing.unpack(packing.pack(value))


def test_long_json_is_deflated_and_short_is_readable():
    assert packing.pack("short") == b'"short"'
    long = "word " * 1000
    assert len(packing.pack(long)) < 200
    assert packing.unpack(packing.pack(long)) == long
    edge = "ab" * 3000  # more than the small window
    assert packing.unpack(packing.pack(edge)) == edge


def test_long_messages_are_shared_and_short_ones_are_not():
    system = {"role": "system", "content": "Be brief. " * 60}
    blobs = {}
    one = packing.transcript([system, {"role": "user", "content": "a"}], blobs)
    other = packing.transcript([system, {"role": "user", "content": "b"}], blobs)
    assert len(blobs) == 1
    assert one != other
    assert len(one) < 150


def test_artifacts_are_bytes_or_arrays():
    blobs = {}
    named = json.loads(packing.artifacts({"a": np.eye(2), "b": b"png"}, blobs, "u"))
    assert packing.artifact(blobs[named["b"]["digest"]], "bytes") == b"png"
    assert (packing.artifact(blobs[named["a"]["digest"]], "array") == np.eye(2)).all()
    with pytest.raises(UsageError, match='Artifact "x" of unit "u"'):
        packing.artifacts({"x": np.array([object()])}, {}, "u")
    with pytest.raises(UsageError, match="must be bytes or an array, got str"):
        packing.artifacts({"x": "text"}, {}, "u")
