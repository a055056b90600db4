import pickle

import pytest

from equipoise.core import Generates, Request, Rng, ScoresText, UsageError
from equipoise.kit.language.canned import Canned, CannedScores
from equipoise.kit.language.talk import converse
from equipoise.methods.language import (
    FewShot,
    FreeResponse,
    MultipleChoice,
    Sampling,
    SystemPrompt,
)


def echo(request):
    return repr((request.prompt, request.temperature, request.top_p, request.max_tokens))


SUBJECT = Canned(echo)
QUESTION = Request([{"role": "user", "content": "q1"}])
CHAT = [{"role": "system", "content": "Old."}, {"role": "user", "content": "Why?"}]


def seen(treatment, request, seed=0):
    return eval(treatment.apply(SUBJECT, Rng(seed)).generate([request])[0].text)


def test_system_prompt_goes_before_what_is_there(tmp_path):
    treatment = SystemPrompt("New.")
    assert seen(treatment, Request("Why?"))[0] == "New.\n\nWhy?"
    assert seen(treatment, Request(CHAT))[0] == [
        {"role": "system", "content": "New.\n\nOld."},
        CHAT[1],
    ]
    assert seen(treatment, Request(CHAT[1:]))[0] == [
        {"role": "system", "content": "New."},
        CHAT[1],
    ]
    assert CHAT[0]["content"] == "Old."
    file = tmp_path / "prompt.txt"
    file.write_text("New.\n")
    from_file = SystemPrompt(file=str(file))
    assert seen(from_file, Request("Why?"))[0] == "New.\n\nWhy?"
    before = from_file.content()
    file.write_text("Newer.")
    assert from_file.content() != before, "the identity follows the content"


@pytest.mark.parametrize("null", [SystemPrompt(), FewShot(count=0), Sampling()])
def test_a_null_setting_is_the_identity(null):
    assert null.apply(SUBJECT, Rng(0)) is SUBJECT


def test_examples_come_after_the_system_message():
    treatment = FewShot(examples=(("1+1?", "2"), ("2+2?", "4")))
    assert [m["content"] for m in seen(treatment, Request(CHAT))[0]] == [
        "Old.", "1+1?", "2", "2+2?", "4", "Why?",
    ]  # fmt: skip
    assert seen(treatment, Request("Why?"))[0] == "1+1? 2\n\n2+2? 4\n\nWhy?"
    assert seen(treatment, Request("2+2?"))[0] == "1+1? 2\n\n2+2?", "never its own example"
    assert seen(FewShot(count=1, examples=treatment.examples), Request("Why?"))[0].count("?") == 2


def rows(n=12):
    split = ["train", "test"]
    return tuple({"question": f"q{i}", "answer": f"a{i}", "part": split[i % 2]} for i in range(n))


def test_examples_are_drawn_from_train_units_alone():
    task = FreeResponse(rows=rows(), split="part")
    treatment = FewShot(count=5, data=task)
    drawn = treatment.drawn(Rng(0))
    assert len(set(drawn)) == 5
    assert all(int(q[1:]) % 2 == 0 and a == f"a{q[1:]}" for q, a in drawn)
    assert drawn == treatment.drawn(Rng(0))
    assert len({treatment.drawn(Rng(seed)) for seed in range(20)}) > 10
    poisoned = tuple(r | {"answer": "x"} if r["part"] == "test" else r for r in rows())
    other = FewShot(count=5, data=FreeResponse(rows=poisoned, split="part"))
    assert other.drawn(Rng(0)) == drawn, "test units leave no trace"
    assert len(FewShot(data=task).drawn(Rng(0))) == 4


def test_examples_of_multiple_choice_look_like_its_questions():
    row = {"question": "Capital?", "options": ["Lyon", "Paris"], "answer": 1}
    train = MultipleChoice(rows=(row,), ask="letter", split="train")
    (pair,) = FewShot(count=1, data=train).drawn(Rng(0))
    assert pair == ("Question: Capital?\nA. Lyon\nB. Paris\nAnswer:", "B")


def test_treated_subjects_answer_tasks_as_before_where_nothing_asks_otherwise():
    task = FreeResponse(rows=rows(), split="part")
    oracle = task.oracle()
    units = [u for u in task.units(Rng(0)) if u.split == "test"]
    for treatment in (SystemPrompt("x"), FewShot(count=2, data=task), Sampling(temperature=1.0)):
        treated = treatment.apply(oracle, Rng(0))
        assert isinstance(treated, Generates)
        assert {o.scores["correct"] for o in converse(task, treated, units, Rng(0))} == {1.0}
        assert pickle.loads(pickle.dumps(treated)).generate([QUESTION])[0].text == "a1"


def test_sampling_changes_what_it_is_given():
    request = Request("Why?", temperature=0.0, top_p=1.0, max_tokens=9)
    assert seen(Sampling(temperature=0.7), request)[1:] == (0.7, 1.0, 9)
    assert seen(Sampling(top_p=0.5, max_tokens=99), request)[1:] == (0.0, 0.5, 99)
    assert isinstance(Sampling(temperature=1.0).apply(CannedScores(), Rng(0)), ScoresText)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SystemPrompt("x", file="y"), "give either text or file"),
        (lambda: SystemPrompt(file="/no/such").content(), "/no/such cannot be read: No such file"),
        (lambda: FewShot(), "give either data"),
        (lambda: FewShot(count=3, examples=(("a", "b"),)), "at most the 1 examples given, got 3"),
        (
            lambda: FewShot(count=9, data=FreeResponse(rows=rows(), split="part")).drawn(Rng(0)),
            "FreeResponse has 6 train units, too few for 9",
        ),
        (lambda: Sampling(top_p=0), "top_p must be above 0"),
        (lambda: Sampling(temperature=-1), "temperature must be a number .*from 0 to 10, got -1"),
        (lambda: SystemPrompt("x").apply(object(), Rng(0)), "neither generates nor scores text"),
    ],
)
def test_wrong_use_is_one_sentence(make, says):
    with pytest.raises(UsageError, match=says):
        make()
