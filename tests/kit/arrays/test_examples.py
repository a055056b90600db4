"""Examples: units as arrays, and what is refused."""

import numpy as np
import pytest

from equipoise.core import Unit, UsageError
from equipoise.kit.arrays import Examples, examples
from equipoise.kit.arrays.examples import learns_from, row_digest


def units(targets, **given):
    return [Unit(str(n), [float(n)], target, **given) for n, target in enumerate(targets)]


def test_units_become_arrays():
    found = examples(
        [
            Unit("a", [1.0, 2.0], 0.5, split="train", cluster="x"),
            Unit("b", [3.0, 4.0], 1.5, split="calibration", cluster="y"),
        ]
    )
    assert found.inputs.tolist() == [[1, 2], [3, 4]]
    assert found.targets.tolist() == [0.5, 1.5]
    assert found.group.tolist() == ["x", "y"]
    kept = found.of("calibration")
    assert len(kept) == 1
    assert kept.ids == (row_digest(Unit("b", [3.0, 4.0], 1.5)),)
    assert examples(found) is found


def test_targets_may_be_lists_of_numbers():
    assert examples(units([[1.0, 1], [2.0, 0]])).targets.shape == (2, 2)


@pytest.mark.parametrize("targets", [[None, 1], [{"a": 1}], [[1, 2], [1]], [["a", "b"]]])
def test_other_targets_are_refused(targets):
    with pytest.raises(UsageError, match="one label or number as target"):
        examples(units(targets))


def test_shapes_are_checked():
    with pytest.raises(UsageError, match=r"got inputs of shape \(3,\)"):
        Examples(np.zeros(3), np.zeros(3))
    with pytest.raises(UsageError, match="2 targets"):
        Examples(np.zeros((3, 1)), np.zeros(2))
    with pytest.raises(UsageError, match="one entry for each of 3 rows"):
        Examples(np.zeros((3, 1)), np.zeros(3), group=np.zeros(2))
    with pytest.raises(UsageError, match="no units to learn from"):
        examples([])


def test_learners_read_train_unless_they_say_more():
    class Calibrates:
        learns_from = ("train", "calibration")

    assert learns_from(object()) == ("train",)
    assert learns_from(Calibrates()) == ("train", "calibration")
