"""The task, the file task and the context strategies."""

import csv
import json
import re
import time

import numpy as np
import pytest

from equipoise.catalog import catalog, identity, part
from equipoise.core import Generation, Request, Rng, Usage, UsageError, learnable
from equipoise.kit.language.canned import Canned, Constant
from equipoise.methods.reasoning import generate
from equipoise.methods.reasoning._mathgap.forms import agents_of
from equipoise.methods.reasoning.mathgap import InContext, MathGap, MathGapFile

ZERO = Rng(0)
TASKS = [
    MathGap(problems=50),
    MathGap(depth=(1, 3), problems=30),
    MathGap(shape=("linear_comparison", "nonlinear"), depth=(1, 2, 3), problems=10),
    MathGap(shape="part_whole", width=(2, 6), problems=20),
    MathGap(shape="linear_mixed", depth=6, problems=20),
    MathGap(depth=5, movement=(0, 2, 5), problems=20),
    MathGap(comparisons=("times", "fraction"), problems=20),
    MathGapFile.tiny(),
]


def asked(task, rng=ZERO):
    return [unit for unit in task.units(rng) if unit.split == "test"]


def scored(task, subject, rng=ZERO):
    outcomes = task.perform(subject, asked(task, rng), rng)
    return np.array([outcome.scores["correct"] for outcome in outcomes])


@pytest.mark.parametrize("task", TASKS, ids=range(len(TASKS)))
def test_solver_is_always_right_and_a_constant_hardly_ever(task):
    assert scored(task, task.oracle()).all()
    if isinstance(task, MathGap):
        assert scored(task, Canned(Constant("The answer is 17."))).mean() <= 0.2
    assert not scored(task, Canned(Constant("I cannot say."))).any()


def test_the_demo_line_works():
    task = part("mathgap", depth=2, problems=200)
    units = asked(task)
    assert len(units) == 200
    assert len({unit.id for unit in units}) == 200
    assert {unit.stratum for unit in units} == {"depth 2"}
    assert json.loads(json.dumps([u.content for u in units])) == [u.content for u in units]


def test_units_are_the_same_for_a_stream_and_others_for_another():
    task = MathGap(problems=20)
    assert list(task.units(Rng(1))) == list(task.units(Rng(1)))
    assert not {u.id for u in task.units(Rng(1))} & {u.id for u in task.units(Rng(2))}


def test_more_problems_keep_those_there_were():
    few, many = asked(MathGap(problems=5)), asked(MathGap(problems=9))
    assert many[:5] == few


def test_train_problems_are_never_test_problems_whatever_the_seed():
    task = MathGap(depth=1, problems=400, train=400)
    train = {u.content["problem"] for seed in range(3) for u in learnable(task, Rng(seed))}
    test = {u.content["problem"] for seed in range(3) for u in asked(task, Rng(seed))}
    assert len(train) > 1_000
    assert not train & test


def test_movements_of_one_problem_are_a_cluster():
    task = MathGap(depth=3, movement=(0, 1, 3), problems=4, train=2)
    units = asked(task)
    assert len(units) == 12
    for start in range(0, 12, 3):
        group = units[start : start + 3]
        assert len({u.cluster for u in group}) == 1
        assert len({u.target["answer"] for u in group}) == 1
        first = [u.content["problem"].split(". ")[0].rstrip(".") for u in group]
        sentences = re.split(r"(?<=\.) ", group[0].content["problem"])
        assert [f"{each}." for each in first] == [sentences[at] for at in (0, 1, 3)]
    assert {u.stratum for u in units} == {f"depth 3, front {at}" for at in (0, 1, 3)}
    assert all(u.cluster is None for u in learnable(MathGap(), Rng(0)))


def test_scores_say_what_was_asked():
    task = MathGap(shape=("linear_comparison", "nonlinear"), depth=3, problems=1)
    linear, nonlinear = task.perform(task.oracle(), asked(task), Rng(0))
    assert (linear.scores["depth"], linear.scores["width"], linear.scores["nonlinear"]) == (3, 4, 0)
    assert (nonlinear.scores["width"], nonlinear.scores["nonlinear"]) == (10, 1)
    assert nonlinear.scores["tokens"] > linear.scores["tokens"] > 0
    assert linear.transcript[-1]["content"] == linear.output
    names = {spec.name for spec in MathGap.scores}
    assert set(linear.scores) <= names


def test_only_the_last_number_counts():
    task = MathGap(depth=1, problems=1)
    (unit,) = asked(task)
    right = unit.target["answer"]
    for text, score in [
        (f"So it is {right}.", 1),
        (f"5 + 3 = 8, hence {right}", 1),
        (f"{right} apples, not {right + 1}", 0),
        (f"{right}.0", 1),
        (f"-{right}", 0),
        ("", 0),
    ]:
        assert task.perform(Canned(Constant(text)), [unit], Rng(0))[0].scores["correct"] == score


class Cut:
    def generate(self, requests):
        return [Generation(("So",), ("length",), usage=Usage(7, r.max_tokens)) for r in requests]


def test_answers_that_hit_the_limit_are_counted_and_the_limit_grows_with_the_proof():
    task = MathGap(depth=(1, 4), problems=1)
    short, long = task.perform(Cut(), asked(task), Rng(0))
    assert short.scores["cut"] == 1
    assert long.usage.output_tokens > short.usage.output_tokens >= 128
    fixed = MathGap(depth=(1, 4), problems=1, max_tokens=50)
    assert {o.usage.output_tokens for o in fixed.perform(Cut(), asked(fixed), Rng(0))} == {50}


def test_instruction_stands_before_the_problem():
    seen = []
    task = MathGap(problems=1, instruction="Think.")
    task.perform(Canned(lambda r: seen.append(r) or ""), asked(task), Rng(0))
    assert seen[0].prompt[0]["content"].startswith("Think.\n\n")
    assert seen[0].temperature == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shape": "linear"}, 'MathGap: no shape "linear". Nearest: '),
        ({"depth": (1, 0)}, "MathGap: depth of a linear_comparison proof is from 1 to 100, got 0."),
        ({"width": 4}, "MathGap: width is for part_whole problems; set depth for the others."),
        ({"shape": "part_whole", "depth": 3}, "MathGap: part_whole proofs have depth 1, got 3"),
        ({"depth": 2, "movement": 3}, "MathGap: movement must be from 0 to 2"),
        ({"shape": "linear_transfer", "movement": 1}, "would break the order of transfers"),
        ({"shape": ()}, "MathGap: give at least one shape, depth and width."),
        ({"leaf": (2, 3), "inner": (90, 99)}, "no numbers from 2 to 3 fit"),
        ({"problems": 0}, "MathGap: problems must be an integer from 1"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence):
    with pytest.raises(UsageError) as error:
        MathGap(**arguments)
    assert sentence in str(error.value)


def written(path, problems):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["problem", "reasoning_trace", "answer", "answer_nl", "depth", "width"])
        for p in problems:
            rows.writerow([p.text, p.trace, p.answer, p.answer_text, p.depth, p.width])
    return path


def test_a_file_in_the_official_columns(tmp_path):
    problems = [generate("nonlinear", d, rng=Rng(d)) for d in (1, 2, 3)]
    task = MathGapFile(str(written(tmp_path / "official.csv", problems)))
    units = asked(task)
    assert [u.target["answer"] for u in units] == [p.answer for p in problems]
    assert [u.content["problem"] for u in units] == [p.body for p in problems]
    assert [u.content["question"] for u in units] == [p.question for p in problems]
    assert units[2].stratum == "depth 3, width 10"
    assert scored(task, MathGap().oracle()).all()
    assert [o.scores["nonlinear"] for o in task.perform(task.oracle(), units, Rng(0))] == [0, 1, 1]


def test_a_file_is_known_by_its_content_and_not_its_place(tmp_path):
    problems = [generate(depth=1, rng=Rng(1))]
    (tmp_path / "far").mkdir()
    here = MathGapFile(str(written(tmp_path / "a.csv", problems)))
    there = MathGapFile(str(written(tmp_path / "far" / "b.csv", problems)))
    other = MathGapFile(str(written(tmp_path / "c.csv", problems * 2)))
    assert identity(here) == identity(there) != identity(other)


def test_a_missing_file_says_where_such_files_come_from(tmp_path):
    with pytest.raises(UsageError, match="the paper's generator writes such files: https://"):
        asked(MathGapFile(str(tmp_path / "none.csv")))


def test_a_file_without_a_column_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("problem,answer\nA has 1. How many?,1\n")
    with pytest.raises(UsageError, match='no column "depth"'):
        asked(MathGapFile(str(tmp_path / "x.csv")))


def shown(treatment, rng=ZERO, prompt=None):
    seen = []
    subject = treatment.apply(Canned(lambda r: seen.append(r) or "1"), rng)
    subject.generate([Request(prompt or [{"role": "user", "content": "Last?"}])])
    return seen[0].prompt


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("primitive", [1] * 6),
        ("one_instance", [4] * 6),
        ("in_distribution", [4] * 6),
        ("range", [1, 2, 3, 1, 2, 3]),
    ],
)
def test_context_strategies_show_the_complexities_they_promise(kind, steps):
    messages = shown(InContext(kind, examples=6, depth=4))
    assert [m["role"] for m in messages] == ["user", "assistant"] * 6 + ["user"]
    assert messages[-1]["content"] == "Last?"
    assert [m["content"].count(" = ") for m in messages[1::2]] == steps
    signs = {tuple(re.findall(r" ([-+]) ", m["content"])) for m in messages[1::2]}
    if kind == "one_instance":
        assert len(signs) == 1
    if kind == "in_distribution":
        assert len(signs) > 1


def test_part_whole_range_goes_by_width():
    messages = shown(InContext("range", examples=4, shape="part_whole", width=4))
    assert [m["content"].count(" + ") for m in messages[1::2]] == [1, 2, 1, 2]


def test_examples_are_never_test_problems_and_new_with_each_seed():
    texts = {
        m["content"].split("\n\n")[1]
        for seed in range(40)
        for m in shown(InContext("primitive", examples=12), Rng(seed))[:-1:2]
    }
    assert len(texts) > 470
    tests = {
        f"{u.content['problem']} {u.content['question']}"
        for u in asked(MathGap(depth=1, problems=1_000, train=0))
    }
    assert not texts & tests


def test_plain_prompts_get_plain_examples():
    prompt = shown(InContext("primitive", examples=1), prompt="Ann has 2 pears. How many?")
    assert prompt.endswith("\n\nAnn has 2 pears. How many?")


def test_examples_leave_the_solver_right():
    task = MathGap(problems=10)
    assert scored(task, InContext(depth=2).apply(task.oracle(), Rng(0))).all()


def test_nothing_is_simpler_than_one_step():
    with pytest.raises(UsageError, match="nothing is simpler than one step"):
        InContext("range", depth=1)


def test_few_shot_can_use_the_task():
    task = MathGap(train=5)
    unit = learnable(task, Rng(0))[0]
    question, answer = task.example(unit)
    assert question.startswith(task.instruction)
    assert answer == unit.target["trace"]


def test_names_in_problems_do_not_repeat():
    for seed in range(50):
        problem = generate("nonlinear", 4, rng=Rng(seed))
        people = {a for leaf in problem.leaves for a in agents_of(leaf.form)}
        kinds = [type(leaf.form).__name__ for leaf in problem.leaves]
        assert len(people) == 1 + kinds.count("Comp") + 3 * kinds.count("CompEq")


def test_a_thousand_problems_of_depth_five_take_about_a_second():
    began = time.process_time()
    for number in range(1_000):
        assert generate(depth=5, rng=Rng(0).child(number)).text
    assert time.process_time() - began < 2.0  # 0.2 s on one free core


def test_cards_know_every_part():
    for name in ("mathgap", "mathgap_file", "in_context", "accuracy_vs_complexity"):
        assert catalog().find(name).load().__name__
