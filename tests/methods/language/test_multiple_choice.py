import json
import math

import numpy as np
import pytest

from equipoise.core import Rng, TokenScores, UsageError
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.language import MultipleChoice

ROWS = tuple(
    {
        "question": f"What comes after {i}?",
        "options": [str(i - 1), str(i + 1), "nothing at all", "é"],
        "answer": 1,
        "topic": f"t{i % 2}",
    }
    for i in range(1, 9)
)


class Fixed:
    """Gives each continuation the log-probabilities that a table holds."""

    def __init__(self, table):
        self.table = table
        self.pairs = []

    def tokenize(self, text):
        return list(text.encode())

    def log_likelihood(self, pairs):
        self.pairs += pairs
        return [TokenScores(np.array(self.table[c.strip()], float)) for _, c in pairs]


def one(table, **parameters):
    row = {"question": "q?", "options": list(table), "answer": 0}
    task = MultipleChoice(rows=(row,), **parameters)
    return task.perform(Fixed(table), list(task.units(Rng(0))), Rng(0))[0]


def test_scores_by_hand():
    # Totals -1, -2: softmax gives 1 / (1 + e^-1) to the right option.
    outcome = one({"right": [-0.5, -0.5], "wrong": [-2.0]})
    right = 1 / (1 + math.exp(-1))
    assert outcome.scores == pytest.approx(
        {"correct": 1, "margin": 1, "probability": right, "brier": 2 * (1 - right) ** 2}
    )
    assert outcome.output["choice"] == 0
    assert outcome.output["log_likelihoods"] == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("normalise", "choice", "margin"),
    [
        ("none", 1, -3 - -2),
        ("tokens", 0, -1 - -2),  # -3/3 and -2/1
        ("bytes", 0, -3 / 6 - -2 / 2),
    ],
)
def test_normalisation_by_hand(normalise, choice, margin):
    outcome = one({"longer": [-1.0] * 3, "no": [-2.0]}, normalise=normalise)
    assert outcome.output["choice"] == choice
    assert outcome.scores["margin"] == pytest.approx(margin)


def test_bytes_are_those_of_utf8():
    assert one({"é": [-2.0], "abcd": [-3.0]}, normalise="bytes").scores["margin"] == -1 - -0.75


def test_the_first_of_equal_options_is_chosen():
    assert one({"a": [-1.0], "b": [-1.0]}).scores["correct"] == 1
    assert one({"a": [-1.0], "b": [-1.0]}).scores["margin"] == 0


def test_a_likelihood_that_is_not_finite_is_an_error_of_its_unit():
    outcome = one({"a": [-1.0], "b": [-np.inf]})
    assert (outcome.status, outcome.error_kind) == ("error", "garbage")


def test_options_share_their_prompt_and_letters_are_shown():
    task = MultipleChoice(rows=ROWS[:1], ask="letter")
    subject = Fixed({"A": [-1], "B": [0], "C": [-1], "D": [-1]})
    outcome = task.perform(subject, list(task.units(Rng(0))), Rng(0))[0]
    prompts = [prompt for prompt, _ in subject.pairs]
    assert all(prompt is prompts[0] for prompt in prompts)
    assert prompts[0] == (
        "Question: What comes after 1?\nA. 0\nB. 2\nC. nothing at all\nD. é\nAnswer:"
    )
    assert [c for _, c in subject.pairs] == [" A", " B", " C", " D"]
    assert outcome.scores["correct"] == 1
    chat = MultipleChoice(rows=ROWS[:1], chat=True)
    prompt, continuations = chat._pairs(next(chat.units(Rng(0))))
    assert prompt == [{"role": "user", "content": "What comes after 1?"}]
    assert continuations[1] == "2", "no blank after a chat template"


@pytest.mark.parametrize("parameters", [{}, {"chat": True}, {"ask": "letter"}])
@pytest.mark.parametrize("normalise", ["none", "tokens", "bytes"])
def test_agrees_with_plain_forward_passes(parameters, normalise):
    import torch

    task = MultipleChoice(rows=ROWS, normalise=normalise, **parameters)
    subject = tiny_model(seed=3)
    units = list(task.units(Rng(0)))
    outcomes = task.perform(subject, units, Rng(0))
    for unit, outcome in zip(units, outcomes, strict=True):
        prompt, continuations = task._pairs(unit)
        if not isinstance(prompt, str):
            prompt = subject.tokenizer.apply_chat_template(
                prompt, tokenize=False, add_generation_prompt=True
            )
        values = []
        for text in continuations:
            context, rest = subject.tokenize(prompt), subject.tokenize(text)
            with torch.no_grad():
                logits = subject.module(torch.tensor([context + rest])).logits[0]
            logs = torch.log_softmax(logits.double(), -1)
            total = sum(logs[len(context) - 1 + i, t].item() for i, t in enumerate(rest))
            size = {"none": 1, "tokens": len(rest), "bytes": len(text.strip().encode())}[normalise]
            values.append(total / size)
        given = np.exp(values) / np.exp(values).sum()
        assert outcome.output["choice"] == int(np.argmax(values))
        assert outcome.scores["probability"] == pytest.approx(given[1], abs=1e-4)
        others = [v for i, v in enumerate(values) if i != 1]
        assert outcome.scores["margin"] == pytest.approx(values[1] - max(others), abs=1e-4)


def test_neither_order_nor_company_matters():
    task = MultipleChoice(rows=ROWS)
    subject = tiny_model()
    units = list(task.units(Rng(0)))
    together = task.perform(subject, units, Rng(0))
    turned = task.perform(subject, units[::-1], Rng(0))[::-1]
    alone = [task.perform(subject, [unit], Rng(0))[0] for unit in units]
    for a, b, c in zip(together, turned, alone, strict=True):
        assert a.scores == pytest.approx(b.scores, abs=1e-4)
        assert a.scores == pytest.approx(c.scores, abs=1e-4)


def test_a_unit_that_cannot_be_scored_costs_itself_only():
    long = {"question": "x" * 600, "options": ["a", "b"], "answer": 0}
    task = MultipleChoice(rows=(*ROWS[:2], long, *ROWS[2:]))
    outcomes = task.perform(tiny_model(), list(task.units(Rng(0))), Rng(0))
    assert [o.unit for o in outcomes if o.status == "error"] == ["000002"]
    assert outcomes[2].error_kind == "too_long"


@pytest.mark.parametrize(
    ("answer", "target"),
    [(2, 2), ("2", 2), ("C", 2), ("c", 2), ("nothing at all", 2), ("é", 3), ("0", 0)],
)
def test_ways_to_say_which_is_right(answer, target):
    row = {"question": "q", "options": ["x", "y", "nothing at all", "é"], "answer": answer}
    (unit,) = MultipleChoice(rows=(row,)).units(Rng(0))
    assert unit.target == target


def test_ways_to_list_the_options(tmp_path):
    labelled = {"text": ["x", "y"], "label": ["1", "2"]}
    rows = (
        {"question": "q", "options": labelled, "answer": "2"},
        {"question": "q", "options": '["x", "y"]', "answer": "B"},
        {"question": "q", "options": ["x", "y"], "answer": 1},
    )
    units = list(MultipleChoice(rows=rows).units(Rng(0)))
    assert [(u.content["options"], u.target) for u in units] == [(["x", "y"], 1)] * 3
    file = tmp_path / "table.csv"
    file.write_text("question,A,B,answer,topic\nq,x,y,B,t\nr,x,y,A,t\n")
    task = MultipleChoice(str(file), options=("A", "B"), stratum="topic", cluster="question")
    units = list(task.units(Rng(0)))
    assert [(u.content["options"], u.target, u.stratum) for u in units] == [
        (["x", "y"], 1, "t"),
        (["x", "y"], 0, "t"),
    ]
    lines = tmp_path / "table.jsonl"
    lines.write_text("\n".join(json.dumps(r) for r in ROWS))
    assert list(MultipleChoice(str(lines)).units(Rng(0))) == list(
        MultipleChoice(rows=ROWS).units(Rng(0))
    )


def test_an_oracle_is_right_and_a_constant_is_not():
    for parameters in ({}, {"chat": True}, {"ask": "letter"}, {"system": "Hm."}):
        task = MultipleChoice(rows=ROWS, **parameters)
        units = list(task.units(Rng(0)))
        found = task.perform(task.oracle(), units, Rng(0))
        assert {o.scores["correct"] for o in found} == {1.0}
        table = {c.strip(): [-1.0] for u in units for c in task._pairs(u)[1]}
        assert {o.scores["correct"] for o in task.perform(Fixed(table), units, Rng(0))} == {0.0}


@pytest.mark.parametrize(
    ("row", "parameters", "says"),
    [
        ({"options": ["x"], "answer": 0}, {}, "options must hold at least 2 options, got 1"),
        ({"options": "x, y", "answer": 0}, {}, "options must be a list of options"),
        ({"options": ["x", "y"], "answer": 2}, {}, "number from 0 to 1, a letter from A to B"),
        ({"options": ["x", "y"], "answer": "Z"}, {}, "got 'Z'"),
        ({"options": ["x", "y"], "answer": True}, {}, "got True"),
        ({"options": ["x"] * 30, "answer": 0}, {"ask": "letter"}, "from 2 to 26 options, got 30"),
        ({"choices": ["x", "y"], "answer": 0}, {}, 'no column "options"'),
    ],
)
def test_wrong_rows_are_one_sentence(row, parameters, says):
    with pytest.raises(UsageError, match=says):
        list(MultipleChoice(rows=({"question": "q"} | row,), **parameters).units(Rng(0)))
