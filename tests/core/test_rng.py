import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core import Rng


def test_a_stream_does_not_depend_on_what_was_drawn_before():
    first = Rng(3).child("unit", "a").numpy().random(5)
    root = Rng(3)
    root.child("unit", "b").numpy().random(100)
    assert np.array_equal(root.child("unit", "a").numpy().random(5), first)


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_paths_are_different_streams(one, two):
    same = Rng(1).child(*one).seed_for_request() == Rng(1).child(*two).seed_for_request()
    assert same == (one == two)


def test_streams_are_uniform_and_uncorrelated():
    draws = np.array([Rng(0).child("unit", i).numpy().random() for i in range(4000)])
    assert abs(draws.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 4000)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / np.sqrt(4000)


def test_the_three_libraries_start_from_one_stream():
    rng = Rng(9).child("x")
    assert rng.python().random() == rng.python().random()
    assert rng.torch().initial_seed() == rng.seed_for_request()
    assert 0 <= rng.seed_for_request() < 2**31
