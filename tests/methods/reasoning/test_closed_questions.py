"""bAbI 15, indirect objects, and how both are asked."""

import re

import numpy as np
import pytest
import torch

from equipoise.core import Generates, Request, Rng, ScoresText, UsageError
from equipoise.kit.language.canned import Canned, Constant
from equipoise.kit.language.families import random_model
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.language.prompting import FewShot
from equipoise.methods.reasoning._closed import first_tokens
from equipoise.methods.reasoning.babi_deduction import (
    ANIMALS,
    BabiDeduction,
    read_stories,
    solve,
    story,
)
from equipoise.methods.reasoning.ioi import NAMES, IndirectObject, sentence
from equipoise.methods.reasoning.ioi import solve as receiver

OFFICIAL = """1 Mice are afraid of wolves.
2 Gertrude is a mouse.
3 Cats are afraid of sheep.
4 Winona is a cat.
5 Sheep are afraid of cats.
6 Wolves are afraid of mice.
7 Emily is a sheep.
8 Jessica is a wolf.
9 What is gertrude afraid of?\twolf\t2 1
10 What is jessica afraid of?\tmouse\t8 6
1 Sheep are afraid of mice.
2 Emily is a sheep.
3 What is emily afraid of?\tmouse\t2 1
"""
FOUR = ("Ann", "Bob", "Cid", "Dora")


# bAbI.


def test_generated_answers_follow_from_two_facts():
    for seed in range(200):
        made = story(np.random.default_rng(seed))
        name = made.question.split()[2]
        kind = next(fact for fact in made.facts if fact.startswith(name)).split()[-1].rstrip(".")
        fear = next(f for f in made.facts if f.startswith(ANIMALS[kind].capitalize())).split()[-1]
        assert ANIMALS[made.answer] == fear.rstrip(".")
        assert made.answer != kind
        assert solve(made.prompt()) == made.answer


def test_all_answers_are_about_as_frequent():
    counts = dict.fromkeys(ANIMALS, 0)
    for unit in BabiDeduction(problems=2000, train=0).units(Rng(0)):
        counts[unit.target] += 1
    assert all(420 < count < 580 for count in counts.values())  # 500, four standard errors


def test_no_passage_comes_twice():
    units = list(BabiDeduction(problems=900, train=900, calibration=200, shots=1).units(Rng(3)))
    asked = [u.content["prompt"].rpartition("Passage:")[2] for u in units]
    facts = [frozenset(re.findall(r"[A-Z][^.?:]+[.]", text)) for text in asked]
    assert {len(each) for each in facts} == {8}
    assert len(set(facts)) == 2000
    assert len({unit.id for unit in units}) == 2000
    assert {unit.split for unit in units} == {"test", "train", "calibration"}


def test_too_many_problems_are_refused():
    with pytest.raises(UsageError, match="at most 10,000 together, got 12,000"):
        BabiDeduction(problems=6000, train=6000)


def test_the_official_format_is_read():
    stories = read_stories(OFFICIAL)
    assert [len(questions) for questions in stories] == [2, 1]
    assert [len(each.facts) for each in stories[0]] == [8, 8]
    assert [each.answer for questions in stories for each in questions] == [
        "wolf",
        "mouse",
        "mouse",
    ]
    assert all(solve(each.prompt()) == each.answer for s in stories for each in s)


def test_official_files_cluster_by_story_and_take_shots_from_other_stories(tmp_path):
    (tmp_path / "qa15.txt").write_text(OFFICIAL)
    task = BabiDeduction(data=str(tmp_path / "qa15.txt"), shots=1, split="train")
    units = list(task.units(Rng(0)))
    assert [unit.cluster for unit in units] == ["story-0", "story-0", "story-1"]
    assert {unit.split for unit in units} == {"train"}
    shown, asked = units[0].content["prompt"].split("\n\n")
    assert shown.endswith("Answer: mouse")
    assert "Sheep are afraid of mice. Emily is a sheep." in shown
    assert asked.endswith("What is gertrude afraid of?\nAnswer:")
    with pytest.raises(UsageError, match="2 stories, too few for 2 shots"):
        list(BabiDeduction(data=str(tmp_path / "qa15.txt"), shots=2).units(Rng(0)))


def test_the_releases_columns_are_read(tmp_path):
    made = story(np.random.default_rng(0))
    prompt = made.prompt().replace("\n", " ")
    path = tmp_path / "task_15_train_0_shot.csv"
    path.write_text(f'question,answer,rand\n"{prompt}",{made.answer},k4f9\n')
    (unit,) = BabiDeduction(data=str(path)).units(Rng(0))
    assert (unit.content["prompt"], unit.target) == (prompt, made.answer)
    with pytest.raises(UsageError, match="shots must be 0"):
        list(BabiDeduction(data=str(path), shots=1).units(Rng(0)))
    path.write_text("question,answer\nWhat?,dragon\n")
    with pytest.raises(UsageError, match=r'row 1: answer must be one of .* got "dragon"'):
        list(BabiDeduction(data=str(path)).units(Rng(0)))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Mice are afraid of cats.", "line 1: must begin with a number"),
        ("2 Mice are afraid of cats.", "line 1: a story must begin with the number 1"),
        ("1 A fact.\n2 Who?\tdragon\t1", "line 2: the answer must be one of"),
    ],
)
def test_lines_of_another_format_are_named(text, fault):
    with pytest.raises(UsageError, match=fault):
        read_stories(text)


def test_a_missing_file_says_where_to_get_it():
    with pytest.raises(UsageError, match=r"no file none.txt.*huggingface.co"):
        list(BabiDeduction(data="none.txt").units(Rng(0)))


# Indirect objects.


def test_the_receiver_is_the_name_that_stands_once():
    for seed in range(200):
        text, answer = sentence("ABAL"[seed % 2], np.random.default_rng(seed))
        people = [word.strip(",") for word in text.split() if word.strip(",") in NAMES]
        assert len(people) == 3
        assert [name for name in people if people.count(name) == 1] == [answer]
        assert receiver(text) == answer


def test_kinds_say_where_the_receiver_stands():
    for kind in ("A", "B", "AL", "BL"):
        text, answer = sentence(kind, np.random.default_rng(0))
        assert text.split()[1 if kind[0] == "A" else 3] == answer
        assert (len(text.split()) > 18) == kind.endswith("L")
    units = list(IndirectObject(kinds=("A", "BL"), problems=10, train=0).units(Rng(0)))
    assert [unit.stratum for unit in units] == ["A", "BL"] * 5


def test_sentences_do_not_repeat_and_splits_are_apart():
    units = list(IndirectObject(problems=500, train=500, calibration=100).units(Rng(1)))
    assert len({unit.content["prompt"] for unit in units}) == 1100


def test_the_negative_names_who_gives():
    task = IndirectObject(problems=3, train=0)
    for unit in task.units(Rng(0)):
        prompt, name = unit.content["prompt"], task.negative(unit).rpartition(" ")[2]
        assert prompt.count(name) == 2
        assert name != unit.target


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"kinds": ("C",)}, "kinds must be one or more of A, B, AL, BL, got 'C'"),
        ({"kinds": ()}, "kinds must be"),
        ({"names": ("Ann", "Ann")}, "all different"),
        ({"names": ("Ann Lee", "Bob")}, "must be one word"),
        ({"names": ("Ann", "Bob"), "problems": 500}, "too many for 2 names"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, fault):
    with pytest.raises(UsageError, match=fault):
        IndirectObject(**given)


# How both are asked.


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_logits_are_those_of_the_first_token_that_tells_names_apart(family):
    live = random_model(family)
    task = IndirectObject(problems=6, train=0, names=FOUR)
    units = list(task.units(Rng(0)))
    for unit, outcome in zip(units, task.perform(live, units, Rng(0)), strict=True):
        assert unit.content["candidates"] == sorted(FOUR)
        ids = torch.tensor([live.tokenize(unit.content["prompt"] + " ")])  # bytes: a blank is one
        with torch.no_grad():
            scores = live.module(ids).logits[0, -1].log_softmax(-1)
        among = scores[[ord(name[0]) for name in sorted(FOUR)]]
        right = sorted(FOUR).index(unit.target)
        assert outcome.output == sorted(FOUR)[int(among.argmax())]
        assert outcome.scores["correct"] == float(int(among.argmax()) == right)
        assert np.isclose(outcome.scores["probability"], among.softmax(0)[right], atol=1e-4)
        assert np.isclose(outcome.scores["mass"], among[right].exp(), atol=1e-4)
        others = torch.cat([among[:right], among[right + 1 :]])
        assert np.isclose(outcome.scores["margin"], among[right] - others.max(), atol=1e-3)
        unsure = float(-(scores.exp() * scores).sum())
        assert np.isclose(outcome.scores["entropy"], unsure, atol=1e-3)


def test_words_with_one_first_token_are_refused():
    task = IndirectObject(problems=2, train=0, names=("Mark", "Mary", "Ann"))
    units = list(task.units(Rng(0)))
    with pytest.raises(UsageError, match='"Mark" and "Mary" begin with the same token'):
        task.perform(tiny_model(), units, Rng(0))


def test_marks_at_the_beginning_stay_in_the_context():
    live = tiny_model()
    context, firsts = first_tokens(live, "a b", ["cat", "sheep"])
    assert (context, firsts) == ([97, 32, 98, 32], [ord("c"), ord("s")])
    shown = FewShot(examples=(("q", "cat"),)).apply(live, Rng(0))
    context, _ = first_tokens(shown, "a b", ["cat", "sheep"])
    assert live.tokenizer.decode(context) == "q cat\n\na b "


@pytest.mark.parametrize(
    "task",
    [
        BabiDeduction(problems=4, train=0, evaluation="exact_match"),
        IndirectObject(problems=4, train=0, evaluation="exact_match"),
    ],
)
def test_exact_match_looks_into_a_few_words_before_a_line_break(task):
    assert task.needs == {Generates}
    assert type(task)().needs == {ScoresText}
    units = list(task.units(Rng(0)))
    asked = []

    def answer(request: Request) -> str:
        asked.append(request)
        unit = next(u for u in units if u.content["prompt"] == request.prompt)
        return {0: f" It is {unit.target.upper()}.", 1: f" no\n{unit.target}"}[len(asked) % 2]

    found = task.perform(Canned(answer), units, Rng(0))
    assert [o.scores["correct"] for o in found] == [0, 1, 0, 1]
    assert all(r.max_tokens == 10 and r.stop == ("\n", "Passage:") for r in asked)


def test_a_subject_that_fails_fails_its_unit_alone():
    task = BabiDeduction(problems=3, train=0, evaluation="exact_match")
    units = list(task.units(Rng(0)))

    def answer(request: Request) -> str:
        if request.prompt == units[1].content["prompt"]:
            raise ValueError("broken")
        return "wolf"

    found = task.perform(Canned(answer), units, Rng(0))
    assert [o.status for o in found] == ["ok", "error", "ok"]
    assert Canned(Constant("x")).generate([Request("a")])[0].text == "x"


def test_problems_are_those_of_the_seed():
    for task in (BabiDeduction(problems=5, train=2), IndirectObject(problems=5, train=2)):
        one, two = (list(task.units(Rng(4))) for _ in range(2))
        assert one == two
        assert {u.id for u in one}.isdisjoint({u.id for u in task.units(Rng(5))})
