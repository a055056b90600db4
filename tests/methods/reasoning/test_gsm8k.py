import json

import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.language.canned import Canned, Constant
from equipoise.kit.language.talk import converse
from equipoise.methods.reasoning.gsm8k import GSM8K, final_number

ROWS = (
    {"question": "Ann has 3 pens and buys 4. How many?", "answer": "<<3+4=7>>7 pens\n#### 7"},
    {"question": "Bob had 2,400 stamps and sold half.", "answer": "2400/2=1200\n#### 1,200"},
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 12", 12),
        ("12 #### 3\nor rather #### 4", 4),
        ("The answer is 9. Also = 3 and 8.", 9),
        ("the answer is: $1,050.75!", 1050.75),
        ("5 + 4 = 9, and then 3", 9),
        ("x=-3", -3),
        ("first 10, then 20", 20),
        ("it is 7.", 7),
        ("10-3", 3),
        ("half: .5", 0.5),
        ("km2", None),
        ("none", None),
        ("#### none, = 4", 4),
        ("####5", 5),
        ("#### $64", 64),
        ("1, 2, then 1,000,000", 1_000_000),
    ],
)
def test_the_number_an_answer_ends_on(text, number):
    assert final_number(text) == number


def test_the_official_file_is_read(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    units = list(GSM8K(data=str(path)).units(Rng(0)))
    assert [unit.target for unit in units] == [7, 1200]
    assert GSM8K(data=str(path)).content() is not None
    path.write_text(json.dumps({"question": "q", "answer": "none"}) + "\n")
    with pytest.raises(UsageError, match="row 1: answer must end on a number"):
        list(GSM8K(data=str(path)).units(Rng(0)))


@pytest.mark.parametrize("make", [GSM8K, lambda: list(GSM8K(data="no.jsonl").units(Rng(0)))])
def test_without_a_file_it_says_where_to_get_it(make):
    with pytest.raises(
        UsageError, match=r"get it from https://github.com/openai/grade-school-math"
    ):
        make()


def test_answers_are_right_within_a_millionth():
    task = GSM8K(rows=ROWS)
    units = list(task.units(Rng(0)))
    for said, right in (("#### 7.0000001", [1, 0]), ("so = 1200.0", [0, 1]), ("no idea", [0, 0])):
        found = converse(task, Canned(Constant(said)), units, Rng(0))
        assert [o.scores["correct"] for o in found] == right


def test_it_is_asked_for_worked_steps_and_shows_them():
    task = GSM8K(rows=ROWS, chat=False)
    (unit, _) = task.units(Rng(0))
    asked, worked = task.example(unit)
    assert asked.endswith("Ann has 3 pens and buys 4. How many?")
    assert "#### X" in asked
    assert worked.endswith("#### 7")
    assert task.max_tokens == 512


def test_an_answer_that_was_cut_off_is_marked():
    task = GSM8K(rows=ROWS, max_tokens=2)
    units = list(task.units(Rng(0)))[:1]
    (found,) = converse(task, Canned(Constant("one two three #### 7")), units, Rng(0))
    assert (found.status, found.scores["correct"]) == ("limit", 0)
