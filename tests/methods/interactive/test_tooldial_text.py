"""What is shown and read: histories, actions, states, and the classes of their errors."""

import ast

import pytest

from equipoise.core import Rng
from equipoise.kit.worlds.api_dialogues import SYSTEM_ACTIONS, make_dialogue, make_world
from equipoise.methods.interactive._tooldial_text import (
    ERRORS,
    NONE,
    action_error,
    figures,
    history,
    leaves,
    normal_action,
    normal_state,
    read_action,
    read_state,
    same_parameters,
    same_state,
    state_error,
)

UNCONFIRMED = {"api_confirmed": "false", "api_status": "none"}


def confirmed(required=None, optional=None, name="Hotel"):
    status = {
        "api_name": name,
        "required_parameters": required or {},
        "optional_parameters": optional or {},
    }
    return {"api_confirmed": "true", "api_status": status}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"Zip": "90-210"}, {"zip": "90210"}, True),
        ({"zip": 90210}, {"zip": "90210"}, True),
        ({"list": ["A", "b"]}, {"list": "a, B"}, True),
        ({"a b": {"C": 1.5}}, {"ab": {"c": "15"}}, True),
        ({"on": True}, {"on": "true"}, True),
        ({"zip": "90210"}, {}, False),
        ({"zip": "90210", "city": ""}, {"zip": "90210"}, False),
        ({"zip": None}, {"zip": ""}, False),
        ("none", {"none": ""}, False),
    ],
)
def test_states_are_compared_without_case_and_marks(one, other, same):
    assert same_state(one, other) is same
    assert same_state(other, one) is same


def test_normal_forms_by_hand():
    assert normal_state({"A-b": ["X", 1], "c": {"D": -2}}) == {"ab": "x1", "c": {"d": "2"}}
    assert normal_action("System action: Retriever_call (API)") == "systemretrievercall"
    assert normal_action("Retriever call") == "retrievercall"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("call", "call"),
        (" Retriever call.", "retriever_call"),
        ("- Thought: because\n- Action: System bye\n- Message: bye", "system_bye"),
        ("Action: response_fail\nAction: call", "response_fail"),
        ("RESPONSE", "response"),
        ("request call", None),
        ("", None),
        ("request: please provide the city", None),
        ("\x00\xff{}", None),
        ("call " * 50_000, None),
    ],
)
def test_actions_are_read_as_the_release_compares_them(text, action):
    found = read_action(text)
    assert found == (NONE if action is None else SYSTEM_ACTIONS.index(action))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("{'a': {'b': ''}}", {"a": {"b": ""}}),
        ('```json\n{"a": true}\n```', {"a": True}),
        ("State: {'a': 'curly } inside'} and more {", {"a": "curly } inside"}),
        ("{'a': 'it\\'s'}", {"a": "it's"}),
        ("none", None),
        ("{1, 2}", None),
        ("{'a': __import__('os').getcwd()}", None),
        ("{'a': ", None),
        ("[" * 30_000, None),
        ("{" * 30_000, None),
        ("{'a': [" * 2_000 + "]}" * 2_000, None),
        ("{[]: 1}", None),
    ],
)
def test_states_are_read_as_literals_and_never_run(text, state):
    assert read_state(text) == state


def test_classes_of_state_errors_by_hand():
    gold = confirmed({"city": "Oslo"}, {"day": ""})
    cases = {
        "right": confirmed({"CITY": "oslo."}, {"day": ""}),
        "generation_error": None,
        "predict_false_label_true": UNCONFIRMED,
        "format": {"api_confirmed": "true", "api_status": {"api_name": "Hotel"}},
        "api_error": confirmed({"city": "Oslo"}, {"day": ""}, name="Flight"),
        "input_parameter_slot_error": confirmed({"town": "Oslo"}, {"day": ""}),
        "value_error": confirmed({"city": "Bergen"}, {"day": ""}),
    }
    for error, predicted in cases.items():
        assert state_error(predicted, gold) == error
    assert state_error(gold, UNCONFIRMED) == "label_false_predict_true"
    assert state_error({"city": "Oslo"}, gold) == "format"
    assert state_error({**gold, "api_status": "none"}, gold) == "format"
    broken = confirmed("Oslo", {"day": ""})
    assert state_error(broken, gold) == "format"
    assert set(cases) < set(ERRORS)


def test_parameters_may_be_right_where_the_interface_is_not():
    gold = confirmed({"city": "Oslo"})
    assert same_parameters(confirmed({"city": "OSLO"}, name="Flight"), gold)
    assert not same_parameters(UNCONFIRMED, gold)
    assert same_parameters(UNCONFIRMED, UNCONFIRMED)


def test_classes_of_action_errors():
    code = SYSTEM_ACTIONS.index
    assert action_error(code("call"), code("call")) == "right"
    assert action_error(NONE, code("call")) == "generation_error"
    assert action_error(code("call"), code("request")) == "acts_too_early"
    assert action_error(code("clarify"), code("retriever_call")) == "asks_needlessly"
    assert action_error(code("system_bye"), code("call")) == "other_action"


def test_without_ground_truth_no_state_thought_or_action_is_shown():
    world = make_world(40, Rng(0))
    for number in range(30):
        turns = make_dialogue(world, "d", "test", Rng(0).child(number)).turns
        for place, turn in enumerate(turns):
            if turn.speaker == "user":
                continue
            shown = history(turns, place, gold=False)
            for line in ("- Dialogue state:", "- Thought:", "- Action:"):
                assert line not in shown
            with_state = history(turns, place, gold=True, state=True)
            last = with_state.splitlines()[-1].removeprefix("- Dialogue state: ")
            assert ast.literal_eval(last) == turn.state
            # What is asked for is not given away by the lines of its own turn.
            assert with_state.count("- Action:") == sum(
                each.speaker == "system" for each in turns[:place]
            )


def test_values_are_found_in_results_and_words_with_digits_in_text():
    assert leaves([{"a": [1, {"b": "x"}], "c": None}]) == ["1", "x"]
    assert figures("Meet at 10:30, hall B2 (no figure)") == {"10:30", "B2"}
