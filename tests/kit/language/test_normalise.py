import pytest

from equipoise.kit.language.normalise import last_number, squad, token_f1


@pytest.mark.parametrize(
    ("answer", "right", "f1"),
    [
        # By hand: words after normalisation, common c, F1 = 2c / (found + wanted).
        ("Denver Broncos", "Denver Broncos", 1.0),
        ("the Denver Broncos!", "Denver Broncos", 1.0),
        ("Broncos", "Denver Broncos", 2 / 3),
        ("Santa Clara, California", "Levi's Stadium in Santa Clara", 4 / 8),
        ("gold gold gold", "gold", 2 / 4),
        ("gold gold", "gold gold silver", 4 / 5),
        ("blue", "red", 0.0),
        ("", "", 1.0),
        ("the", "a", 1.0),
        ("", "red", 0.0),
        ("...", "red", 0.0),
    ],
)
def test_f1_by_hand(answer, right, f1):
    assert token_f1(answer, right) == pytest.approx(f1)
    assert token_f1(right, answer) == pytest.approx(f1)


def test_squad_keeps_words_that_contain_an_article():
    assert squad("The theatre, an Android & a mathematician") == "theatre android mathematician"
    assert squad("A.B.C.  \n x") == "abc x"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("The answer is 42.", 42),
        ("3 + 4 = 7", 7),
        ("so -5", -5),
        ("x=-5", -5),
        ("x − y = −5.25", -5.25),
        ("10-3", 3),
        ("10 - 3", 3),
        ("(5)-3", 3),
        ("$1,234.50 in all", 1234.5),
        ("-$12", -12),
        ("1,2,3", 3),
        ("1,234,567", 1234567),
        ("1234,567", 567),
        (".5", 0.5),
        ("...5", 5),
        ("1.5e3 m", 1500),
        ("2e", 2),
        ("50%", 50),
        ("**18**", 18),
        ("\\boxed{7}", 7),
        ("7 km2", 7),
        ("7 apples and H2O", 7),
        ("no number", None),
        ("", None),
        ("007", 7),
    ],
)
def test_last_number_by_hand(text, number):
    assert last_number(text) == number


def test_a_very_long_number_is_read_without_complaint_or_delay():
    assert last_number("9" * 20_000) == float("inf")
    assert last_number("1," * 10_000 + "x") == 1.0
