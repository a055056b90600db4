import json

import pytest

from equipoise.catalog import identity
from equipoise.core import Rng, UsageError
from equipoise.kit.language.canned import Canned, Constant
from equipoise.kit.language.talk import converse
from equipoise.methods.language import FreeResponse


def score(answer, right, **parameters):
    return FreeResponse(rows=({"question": "q", "answer": right},), **parameters).score(
        answer, right if isinstance(right, list) else str(right)
    )


@pytest.mark.parametrize(
    ("match", "answer", "right", "correct"),
    [
        ("exact", "The Paris!", "paris", 1),
        ("exact", "It is Paris", "paris", 0),
        ("exact", "Roma", ["Rome", "Roma"], 1),
        ("contains", "It is Paris.", "paris", 1),
        ("contains", "It is Parisian.", "paris", 0),
        ("contains", "new york city hall", "York City", 1),
        ("numeric", "3 times 14 is 42.", 42, 1),
        ("numeric", "42 or 43", 42, 0),
        ("numeric", "1,000.0", "1000", 1),
        ("numeric", "no idea", 42, 0),
        ("numeric", "0.1", 0.1, 1),
        ("regex", "the colour is grey", r"\bgr[ae]y\b", 1),
        ("regex", "the colour is greyish", r"\bgr[ae]y\b", 0),
        ("f1", "the cat sat", "a cat sat down", 1),
        ("f1", "dog", "a cat sat down", 0),
    ],
)
def test_matches_by_hand(match, answer, right, correct):
    assert score(answer, right, match=match)["correct"] == correct


def test_tolerance_threshold_and_normalisation():
    assert score("41.6", 42, match="numeric", tolerance=0.5)["correct"] == 1
    assert score("41.4", 42, match="numeric", tolerance=0.5)["correct"] == 0
    assert score("the cat sat", "a cat sat down", match="f1", threshold=0.9)["correct"] == 0
    assert score("paris ", "Paris", normalise="none")["correct"] == 0
    assert score(" Paris ", "Paris", normalise="none")["correct"] == 1
    assert score("Parisian", "Paris", match="contains", normalise="none")["correct"] == 1


def test_f1_is_the_best_over_right_answers():
    assert score("the cat sat", ["dog", "cat sat down"])["f1"] == pytest.approx(0.8)


def test_extract_takes_the_last_match():
    task = {"extract": r"Answer: (\w+)"}
    assert score("Answer: Rome. No: Answer: Paris", "Paris", **task) == {"correct": 1, "f1": 1}
    assert score("Paris", "Paris", **task) == {"correct": 0, "f1": 0}
    assert score("x Paris x", "Paris", extract="Paris|Rome")["correct"] == 1


def test_very_long_answers_are_cut_before_they_are_compared():
    assert score("x" * 50_000 + " 42", 42, match="numeric")["correct"] == 0


def rows():
    return tuple(
        {
            "question": f"q{i}",
            "answer": f"a{i}",
            "who": i % 3,
            "part": "test" if i else "validation",
        }
        for i in range(7)
    )


def test_units_carry_cluster_stratum_split_and_what_is_asked():
    task = FreeResponse(
        rows=rows(), cluster="who", stratum="who", split="part", template="{who}: {question}{x y}"
    )
    units = list(task.units(Rng(0)))
    assert [u.id for u in units[:2]] == ["000000", "000001"]
    assert (units[1].cluster, units[1].stratum, units[1].target) == ("1", "1", "a1")
    assert [u.split for u in units[:2]] == ["calibration", "test"]
    assert units[1].content == {"question": "q1", "who": 1}
    assert task.prompt(units[1].content) == [{"role": "user", "content": "1: q1{x y}"}]


def test_prompts():
    row = ({"q": "Why?", "answer": "b", "passage": "P {question}", "question": "no"},)
    given = {"rows": row, "question": "q", "context": "passage"}
    content = {"question": "Why?", "context": "P {question}"}
    assert next(FreeResponse(**given).units(Rng(0))).content == content
    chat = FreeResponse(**given, system="S").prompt(content)
    assert [m["content"] for m in chat] == ["S", "P {question}\n\nWhy?"]
    plain = FreeResponse(**given, system="S", chat=False).prompt(content)
    assert plain == "S\n\nP {question}\nQuestion: Why?\nAnswer:"


def test_outcomes_are_readable_and_say_when_an_answer_was_cut():
    task = FreeResponse(rows=rows(), max_tokens=2, system="S")
    units = list(task.units(Rng(0)))
    whole = converse(task, task.oracle(), units, Rng(0))
    assert all(o.scores == {"correct": 1, "f1": 1} and o.status == "ok" for o in whole)
    cut = converse(task, Canned(Constant("a1 b c d")), units, Rng(0))
    assert {o.status for o in cut} == {"limit"}
    assert cut[1].output == "a1 b"
    assert [m["role"] for m in cut[1].transcript] == ["system", "user", "assistant"]
    assert cut[1].usage.output_tokens == 2


@pytest.mark.parametrize("match", ["exact", "contains", "numeric", "f1", "regex"])
def test_an_oracle_is_right_and_a_constant_is_not(match):
    data = tuple({"question": f"q{i}", "answer": str(i)} for i in range(5))
    task = FreeResponse(rows=data, match=match)
    units = list(task.units(Rng(0)))
    assert [o.scores["correct"] for o in converse(task, task.oracle(), units, Rng(0))] == [1] * 5
    assert (
        sum(o.scores["correct"] for o in converse(task, Canned(Constant("0")), units, Rng(0))) == 1
    )


def test_a_local_model_gives_the_same_answers_in_any_order():
    from equipoise.kit.language.tiny import tiny_model

    task = FreeResponse(rows=rows(), max_tokens=6)
    units = list(task.units(Rng(0)))
    subject = tiny_model()
    one = {o.unit: o.output for o in converse(task, subject, units, Rng(0))}
    two = {o.unit: o.output for o in converse(task, subject, units[::-1], Rng(0))}
    assert one == two
    assert len(set(one.values())) > 1


def test_reads_files_and_its_identity_follows_their_content(tmp_path):
    file = tmp_path / "data.jsonl"
    lines = [{"id": f"x{i}", "question": f"q{i}", "answer": ["a", "b"]} for i in range(3)]
    file.write_text("\n".join(map(json.dumps, lines)))
    task = FreeResponse(str(file))
    assert [(u.id, u.target) for u in task.units(Rng(0))][1] == ("x1", ["a", "b"])
    other = tmp_path / "other.jsonl"
    other.write_text(file.read_text())
    assert identity(task) == identity(FreeResponse(str(other)))
    other.write_text(file.read_text().replace("q2", "q9"))
    assert identity(task) != identity(FreeResponse(str(other)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FreeResponse(), "give either data"),
        (lambda: FreeResponse("x.jsonl", rows=rows()), "give either data"),
        (lambda: FreeResponse("/no/such.jsonl").content(), "no such|No such|not found|there is no"),
        (lambda: FreeResponse(rows=rows(), question="qestion"), "Nearest: question"),
        (lambda: FreeResponse(rows=rows(), template="{qestion}"), 'no column "qestion"'),
        (lambda: FreeResponse(rows=rows(), match="numeric", answer="part"), "must hold a number"),
        (lambda: FreeResponse(rows=rows(), split="who"), 'who must be one of train.*got "0"'),
        (lambda: FreeResponse(rows=rows(), id="who"), 'row 4: the id "0" is already'),
        (lambda: FreeResponse(rows=rows(), extract="("), "extract must be a regular expression"),
        (
            lambda: FreeResponse(rows=({"question": "q", "answer": "("},), match="regex"),
            "row 1: answer must be a regular expression",
        ),
        (lambda: FreeResponse(rows=({"question": "q", "answer": []},)), "answer is an empty list"),
        (lambda: FreeResponse(rows=rows(), match="fuzzy"), "match must be one of 'exact'"),
    ],
)
def test_wrong_use_is_one_sentence(make, says):
    with pytest.raises(UsageError, match=says) as caught:
        list(make().units(Rng(0)))
    assert "\n" not in str(caught.value)
