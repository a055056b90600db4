"""Baselines for tool dialogues: rules, words, habit, and what is learned."""

import numpy as np
import pytest

from equipoise.core import Request, Rng, UsageError
from equipoise.core.kinds import units_stream
from equipoise.methods.interactive import ActionPolicy, ToolDial, keyword_action, rule_action
from equipoise.methods.interactive._tooldial_learners import matrix, words
from equipoise.methods.language.scripted import Scripted

DATA = ToolDial(dialogues=20, train=60, history="both")


@pytest.fixture(scope="module")
def units():
    return [unit for unit in DATA.units(units_stream(Rng(1))) if unit.split == "test"]


@pytest.fixture(scope="module")
def trained():
    return ActionPolicy("logistic", DATA).load(Rng(1))


def accuracy(live, units, setting=None):
    live = live.load(Rng(1)) if isinstance(live, ActionPolicy) else live
    some = [u for u in units if setting in (None, u.content["setting"])]
    outcomes = DATA.perform(live, some, Rng(0))
    return float(np.mean([each.scores["correct"] for each in outcomes]))


def shown(state, *lines):
    return "\n".join(["User: Hello.", *lines, f"- Dialogue state: {state}"])


def state(value):
    status = {"api_name": "B", "required_parameters": {"id": value}, "optional_parameters": {}}
    return {"api_confirmed": "true", "api_status": status}


OFF = {"api_confirmed": "false", "api_status": "none"}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (shown(OFF), "retriever_call"),
        (shown(OFF, "- Action: retriever_call", "- Retriever status: {'A': 0.49}"), "clarify"),
        (shown(OFF, "- Action: retriever_call", "- Retriever status: {'A': 0.5}"), "suggest"),
        (shown(OFF, "- Action: suggest"), "response_fail"),
        (shown(state(""), "- Action: suggest"), "request"),
        (shown(state(""), "- Action: retriever_call"), "request"),
        (shown(state("7"), "- Action: retriever_call"), "call"),
        (shown(state(""), "- Action: request"), "retriever_call"),
        (shown(state("7"), "- Action: request"), "call"),
        (shown(state("7"), "- Action: call", "- Call result: {'api_name': 'A'}"), "call"),
        (shown(state("7"), "- Action: call", "- Call result: {'api_name': 'B'}"), "response"),
        (shown(state("7"), "- Action: response"), "system_bye"),
        (shown("{'broken", "- Action: clarify"), "retriever_call"),
        ("nothing that looks like a dialogue", "call"),
    ],
)
def test_rules_by_hand(text, action):
    assert rule_action(text) == action


def test_words_by_hand():
    asked = "- Message: Could you please tell me the city?\n"
    assert keyword_action("User: I need a hotel.") == "retriever_call"
    assert keyword_action(asked + "User: Sure, the city is Oslo.") == "call"
    assert keyword_action(asked + "User: I have no idea.") == "retriever_call"
    assert keyword_action("User: Thanks, goodbye!") == "system_bye"
    assert keyword_action("- Retriever status: {'A': 0.3, 'B': 0.61}") == "request"
    assert keyword_action("- Call result: {}\n- Action: call") == "response"


def test_learning_beats_habit_and_generalises_to_things_it_never_saw(units, trained):
    majority = accuracy(ActionPolicy("majority", DATA), units)
    nearest = accuracy(ActionPolicy("neighbour", DATA, most=400), units)
    learned = accuracy(trained, units)
    assert majority < 0.35 < nearest < learned
    assert learned > 0.9


def test_the_right_history_helps_those_who_look_at_it(units, trained):
    for policy in (ActionPolicy("rule"), trained):
        assert accuracy(policy, units, "with_gt") > accuracy(policy, units, "without_gt")
    blind = ActionPolicy("keyword")
    assert accuracy(blind, units, "with_gt") == accuracy(blind, units, "without_gt")


def test_majority_is_the_most_frequent_action_of_train_units():
    found = [u.target["action"] for u in DATA.units(units_stream(Rng(1))) if u.split == "train"]
    live = ActionPolicy("majority", DATA).load(Rng(1))
    assert live.generate([Request("?")])[0].text == max(set(found), key=found.count)


def test_a_policy_answers_alike_in_text_and_by_likelihood(units):
    live = ActionPolicy("keyword").load(Rng(0))
    chosen = ToolDial(answer="choose").perform(live, units[:40], Rng(0))
    written = ToolDial().perform(live, units[:40], Rng(0))
    assert [o.output for o in chosen] == [o.output for o in written]


def test_an_embedder_of_ones_own_is_asked(units):
    from equipoise.methods.language.small_llama import SmallLlama

    policy = ActionPolicy("neighbour", DATA, most=8, embedder=SmallLlama.tiny())
    assert 0 <= accuracy(policy, units[:6]) <= 1


def test_words_know_their_line_and_numbers_keep_one_decimal():
    found = words("User: Hi\n- Retriever status: {'HotelSearch2': 0.57, 'B': 0.31}")
    assert {"0:0.5", "0:hotel", "1:hi", "Retriever status 0:0.5", "n User 1"} <= found
    table = matrix(["User: Hi", "", "User: Hi"])
    assert table.shape == (3, 65536)
    assert table[0].nnz > 0 == table[1].nnz
    assert (table[0] != table[2]).nnz == 0


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"kind": "logistic"}, "kind: logistic learns, so it needs data"),
        ({"kind": "rule", "embedder": Scripted(constant="x")}, "embedder is for kind: neighbour"),
        ({"kind": "neighbour", "data": DATA, "embedder": Scripted(constant="x")},
         "embedder must embed texts, and Scripted does not"),
        ({"kind": "best"}, "kind must be one of"),
    ],
)  # fmt: skip
def test_bad_settings_get_a_sentence(given, fault):
    with pytest.raises(UsageError, match=fault):
        ActionPolicy(**given)


@pytest.mark.parametrize("data", [
    ToolDial(dialogues=1, train=0), ToolDial(dialogues=1, train=2, sub_task="overall"),
])  # fmt: skip
def test_data_without_actions_to_learn_is_refused(data):
    with pytest.raises(UsageError, match="action prediction with train units"):
        ActionPolicy("majority", data).load(Rng(0))
