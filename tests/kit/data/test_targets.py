import pytest

from equipoise.core import UsageError
from equipoise.kit.data.rows import load
from equipoise.kit.data.targets import classes, numbers


def source(tmp_path, *values):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["y,z", *(f"{value},1" for value in values)]))
    return load(str(path), columns=["y"])


def test_numbers_are_floats_and_classes_keep_their_kind(tmp_path):
    found = source(tmp_path, 1, 2)
    assert numbers(found, "y") == (1.0, 2.0)
    assert classes(found, "y") == (1, 2)
    assert classes(source(tmp_path, "a", "b"), "y") == ("a", "b")


@pytest.mark.parametrize(
    ("read", "values", "said"),
    [
        (numbers, ("1", "many"), "must be a number"),
        (numbers, ("1", "inf"), "not finite"),
        (classes, ("1", "0.5"), "not a whole number"),
        (classes, ("a", "a"), "one class only"),
    ],
)
def test_other_targets_are_refused_with_their_row(tmp_path, read, values, said):
    with pytest.raises(UsageError, match=said) as refused:
        read(source(tmp_path, *values), "y")
    assert "rows.csv" in str(refused.value)
