"""The task: what it asks, how it scores, and what bad subjects and judges come to."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from equipoise.core import Generates as CanGenerate
from equipoise.core import Generation, Rng, Subject, UnitError, UsageError
from equipoise.kit.language.canned import Canned, CannedScores, Constant, Lookup, asked
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS
from equipoise.methods.interactive import ActionPolicy, ToolDial
from equipoise.methods.interactive._tooldial_text import ERRORS
from equipoise.methods.language.scripted import Scripted

SUB_TASKS = ("action_prediction", "dialogue_state_tracking", "faithful_response", "overall")


def scored(task, subject, rng=Rng(0)):  # noqa: B008 - a stream is a value
    units = list(task.units(Rng(0)))
    return units, task.perform(subject, units, rng)


def mean(outcomes, name="correct"):
    return float(np.mean([each.scores[name] for each in outcomes]))


@pytest.mark.parametrize("sub_task", SUB_TASKS)
@pytest.mark.parametrize("history", ["with_gt", "without_gt", "both"])
def test_a_subject_that_knows_the_answers_gets_all_right(sub_task, history):
    task = ToolDial(dialogues=12, train=0, sub_task=sub_task, history=history)
    units, outcomes = scored(task, task.oracle())
    assert mean(outcomes) == 1.0
    assert {o.scores["error"] for o in outcomes} == {0.0}
    shown = {"with_gt": {1.0}, "without_gt": {0.0}, "both": {0.0, 1.0}}[history]
    assert {o.scores["with_gt"] for o in outcomes} == shown
    assert {name for o in outcomes for name in o.scores} == {s.name for s in task.scores}
    clusters = {unit.cluster for unit in units}
    assert len(clusters) == 12 or sub_task == "faithful_response"


def test_rules_over_states_get_every_action_right_whatever_the_stream():
    for seed in range(5):
        task = ToolDial(dialogues=60, train=0)
        units = list(task.units(Rng(seed)))
        outcomes = task.perform(ActionPolicy("rule").load(Rng(0)), units, Rng(0))
        assert mean(outcomes) == 1.0


def test_always_calling_is_right_as_often_as_a_call_is():
    task = ToolDial(dialogues=50, train=0)
    units, outcomes = scored(task, Canned(Constant("call")))
    rate = np.mean([unit.target["action"] == "call" for unit in units])
    assert mean(outcomes) == pytest.approx(rate)
    assert 0.1 < rate < 0.3
    errors = {ERRORS[int(o.scores["error"])] for o in outcomes}
    assert errors == {"right", "acts_too_early", "other_action"}


def test_choosing_takes_the_most_likely_action():
    task = ToolDial(dialogues=6, train=0, answer="choose")
    _, outcomes = scored(task, task.oracle())
    assert mean(outcomes) == 1.0
    _, outcomes = scored(task, CannedScores(lambda prompt: "suggest", wrong=-1.0))
    assert {each.output for each in outcomes} == {"suggest"}
    # Without a right one a longer name has less, unless each token counts the same.
    _, whole = scored(task, CannedScores(lambda prompt: "", wrong=-1.0))
    assert {each.output for each in whole} == {"call"}
    even = ToolDial(dialogues=6, train=0, answer="choose", normalise="tokens")
    _, outcomes = scored(even, CannedScores(lambda prompt: "", wrong=-1.0))
    assert {each.output for each in outcomes} == {SYSTEM_ACTIONS[0]}


def test_scores_that_are_no_numbers_are_errors_of_their_units():
    task = ToolDial(dialogues=2, train=0, answer="choose")
    _, outcomes = scored(task, CannedScores(lambda prompt: "", wrong=float("nan")))
    assert {(each.status, each.error_kind) for each in outcomes} == {("error", "garbage")}


@pytest.mark.parametrize("sub_task", SUB_TASKS)
@pytest.mark.parametrize("text", ["", "\x00\ud800", "{" * 50_000, "Action: fly", "[1, 2]"])
def test_rubbish_is_wrong_and_counted(sub_task, text):
    task = ToolDial(dialogues=2, train=0, sub_task=sub_task)
    _, outcomes = scored(task, Canned(Constant(text)))
    assert all(each.status == "ok" for each in outcomes)
    assert mean(outcomes) == 0.0


@pytest.mark.parametrize("sub_task", SUB_TASKS)
def test_a_subject_that_fails_on_some_fails_on_those_alone(sub_task):
    task = ToolDial(dialogues=6, train=0, sub_task=sub_task)
    right = task.oracle()

    def answer(request):
        if "Okay" in asked(request.prompt) or "know" in asked(request.prompt):
            raise UnitError("Too warm.", "heat")
        return right.answer(request)

    _, outcomes = scored(task, Canned(answer))
    kinds = {(each.status, each.error_kind) for each in outcomes}
    assert kinds == {("ok", None), ("error", "heat")}
    assert all(each.scores["correct"] == 1 for each in outcomes if each.status == "ok")


def test_a_state_with_one_wrong_value_loses_its_parameters_and_is_classed():
    task = ToolDial(dialogues=20, train=0, sub_task="dialogue_state_tracking")
    units = [u for u in task.units(Rng(0)) if u.target["state"]["api_status"] != "none"]

    def spoiled(request):
        state = json.loads(json.dumps(table[asked(request.prompt)]))
        slots = state["api_status"]["required_parameters"]
        slots[next(iter(slots))] = "nonsense"
        return f"State: {json.dumps(state)}"

    table = {task.example(unit)[0]: unit.target["state"] for unit in units}
    outcomes = task.perform(Canned(spoiled), units, Rng(0))
    assert mean(outcomes) == mean(outcomes, "parameters") == 0.0
    assert {ERRORS[int(o.scores["error"])] for o in outcomes} == {"value_error"}

    def elsewhere(request):
        return repr(table[asked(request.prompt)]).replace("'api_name': '", "'api_name': 'Not")

    outcomes = task.perform(Canned(elsewhere), units, Rng(0))
    assert mean(outcomes) == 0.0
    assert mean(outcomes, "parameters") == 1.0
    assert {ERRORS[int(o.scores["error"])] for o in outcomes} == {"api_error"}


def test_a_reply_must_tell_what_was_found_and_invent_no_figure():
    task = ToolDial(dialogues=15, train=0, sub_task="faithful_response")
    units = list(task.units(Rng(0)))

    def perform(change):
        table = {task.example(u)[0]: change(u.target) for u in units}
        return task.perform(Canned(Lookup(table)), units, Rng(0))

    one_of_two = perform(lambda target: f"It is {target['slots'][0]}.")
    assert mean(one_of_two) == 1.0
    shares = {each.scores["parameters"] for each in one_of_two}
    assert shares == {1 / len(unit.target["slots"]) for unit in units}
    silent = perform(lambda target: "Here is what you asked for.")
    assert {ERRORS[int(o.scores["error"])] for o in silent} == {"nothing_told"}
    lying = perform(lambda target: target["message"] + " It was built in 987654.")
    assert {ERRORS[int(o.scores["error"])] for o in lying} == {"unsupported_value"}
    assert mean(lying) == 0.0


def test_a_judge_decides_where_there_is_one():
    task = ToolDial(dialogues=4, train=0, sub_task="faithful_response")
    for verdict, value in (("True.", 1.0), ("false", 0.0)):
        judged = ToolDial(dialogues=4, train=0, sub_task="faithful_response",
                          judge=Scripted(constant=verdict))  # fmt: skip
        _, outcomes = scored(judged, task.oracle())
        assert mean(outcomes) == value
    unsure = ToolDial(dialogues=4, train=0, sub_task="faithful_response",
                      judge=Scripted(constant="Perhaps"))  # fmt: skip
    _, outcomes = scored(unsure, task.oracle())
    assert {(each.status, each.error_kind) for each in outcomes} == {("error", "judge")}


def test_a_judge_that_raises_is_an_error_of_its_kind():
    task = ToolDial(dialogues=3, train=0, sub_task="faithful_response", judge=_Raises())
    _, outcomes = scored(
        task, ToolDial(dialogues=3, train=0, sub_task="faithful_response").oracle()
    )
    assert {each.error_kind for each in outcomes} == {"judge"}
    assert all("The judge failed" in each.error for each in outcomes)


@dataclass(frozen=True)
class _Raises(Subject):
    provides = frozenset({CanGenerate})

    def load(self, rng):
        def fail(request):
            raise ValueError("no judgement today")

        return Canned(fail)


def test_a_turn_ends_at_its_first_wrong_step_and_results_are_injected_on_the_way():
    task = ToolDial(dialogues=10, train=0, sub_task="overall")
    units = list(task.units(Rng(0)))
    right, seen = task.oracle(), []

    class Watched:
        def generate(self, requests):
            seen.append(len(requests))
            return right.generate(requests)

    outcomes = task.perform(Watched(), units, Rng(0))
    assert mean(outcomes) == 1.0
    steps = [len(unit.target["steps"]) for unit in units]
    # Each round asks the turns that still have a step to make, together.
    assert seen == [sum(size > n for size in steps) for n in range(max(steps))]
    assert sum(o.usage.output_tokens for o in outcomes) > 0

    def no_calls(request):
        answer = right.answer(request)
        return answer.replace("Action: call", "Action: request")

    outcomes = task.perform(Canned(no_calls), units, Rng(0))
    for unit, outcome in zip(units, outcomes, strict=True):
        calls = any(step["action"] == "call" for step in unit.target["steps"])
        assert outcome.scores["correct"] == float(not calls)


def test_splits_are_about_different_things_and_train_comes_last():
    task = ToolDial(dialogues=5, train=5, calibration=5, apis=60)
    units = list(task.units(Rng(1)))
    assert [u.split for u in units] == sorted(
        (u.split for u in units), key=["test", "calibration", "train"].index
    )
    first = {s: {u.content["history"] for u in units if u.split == s} for s in ("train", "test")}
    assert not first["train"] & first["test"]


def test_each_stream_has_ids_of_its_own():
    task = ToolDial(dialogues=2, train=0)
    one, two = ({u.id for u in task.units(Rng(seed))} for seed in (0, 1))
    assert not one & two


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"answer": "choose", "sub_task": "overall"}, "answer: choose is for action_prediction"),
        ({"judge": Scripted(constant="True")}, "judge is for sub_task: faithful_response"),
        ({"sub_task": "guess"}, "sub_task must be one of"),
        ({"apis": 5}, "apis must be an integer from 24 to 400"),
        ({"dialogues": 0}, "dialogues must be"),
        ({"sub_task": "faithful_response", "judge": "GPT-4"}, "judge must be"),
    ],
)
def test_bad_settings_get_a_sentence(given, fault):
    with pytest.raises(UsageError, match=fault):
        ToolDial(**given)


def test_a_judge_must_generate():
    @dataclass(frozen=True)
    class Mute(Subject):
        def load(self, rng):
            return object()

    with pytest.raises(UsageError, match="judge must generate text, and Mute does not"):
        ToolDial(sub_task="faithful_response", judge=Mute())


def test_an_endpoint_is_asked_too():
    task = ToolDial(dialogues=2, train=0)

    class Endpoint:
        async def generate_one(self, request):
            return Generation((task.oracle().answer(request),))

    _, outcomes = scored(task, Endpoint())
    assert mean(outcomes) == 1.0
