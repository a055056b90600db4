"""The released format, on small files made up here."""

import json

import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods.interactive import ToolDial
from equipoise.methods.interactive._tooldial_data import read_dialogues

UNCONFIRMED = {"api_confirmed": "false", "api_status": "none"}
QUIET = {"retriever_call": "false", "retrieved_api": "none"}


def confirmed(value, name="Weather"):
    return {
        "api_confirmed": "true",
        "api_status": {
            "api_name": name,
            "required_parameters": {"city": value},
            "optional_parameters": {},
            "system_action": "request",
        },
    }


def system(action, state, message="", retriever=QUIET, response=None):
    said = {
        "message": message,
        "thought": "Because.",
        "action": action,
        "retriever_status": retriever,
        "dialogue_state": state,
        "api_response": response or {},
    }
    return {"System": said}


def user(action, message):
    return {"User": {"message": message, "action": action}}


def dialogue():
    found = {"retriever_call": "true", "retrieved_api": {"Weather": 0.71, "Tides": 0.4}}
    answer = {"api_name": "Weather", "result": {"degrees": 12}}
    return {
        "source": "Places",
        "target": "Weather",
        "dialogue": [
            user("inform_intent_clear", "How warm is it?"),
            system("retriever_call", UNCONFIRMED, retriever=found),
            system("request", confirmed(""), "Which city?"),
            user("inform", "In Oslo."),
            system("call", confirmed("Oslo")),
            system("response", confirmed("Oslo"), "It is 12 degrees.", response=answer),
            user("user_bye", "Thanks, bye."),
            system("system_bye", confirmed("Oslo"), "Goodbye."),
        ],
    }


def written(tmp_path, content):
    path = tmp_path / "test.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_file_becomes_dialogues(tmp_path):
    (found,) = read_dialogues(written(tmp_path, [dialogue()]))
    turns = found.turns
    assert [turn.speaker for turn in turns].count("system") == 5
    assert turns[1].retrieved == {"Weather": 0.71, "Tides": 0.4}
    assert turns[1].documents["required_parameters"] == ["city"]
    assert "system_action" not in turns[2].state["api_status"]
    # The result of a call may stand in the turn that follows.
    assert turns[4].called == "Weather"
    assert turns[4].results == {"degrees": 12}


def test_dictionaries_may_be_text_as_python_writes_it(tmp_path):
    given = dialogue()
    for turn in given["dialogue"]:
        for said in turn.values():
            for name in ("dialogue_state", "retriever_status", "api_response"):
                if name in said:
                    said[name] = str(said[name])
    one = read_dialogues(written(tmp_path, [given]))
    assert one == read_dialogues(written(tmp_path, [dialogue()]))


def test_text_is_read_as_a_literal_and_never_run(tmp_path):
    given = dialogue()
    given["dialogue"][1]["System"]["dialogue_state"] = "__import__('os').getcwd()"
    with pytest.raises(UsageError, match="dialogue 1: turn 2 has no dialogue_state"):
        read_dialogues(written(tmp_path, [given]))


def test_an_interface_that_supplies_a_parameter_comes_without_a_score(tmp_path):
    given = dialogue()
    found = {"retriever_call": "true", "retrieved_api": [["Weather", "Output to procure city"]]}
    given["dialogue"][1]["System"]["retriever_status"] = found
    (read,) = read_dialogues(written(tmp_path, [given]))
    assert read.turns[1].retrieved == {"Weather": 1.0}


@pytest.mark.parametrize("sub_task", ["action_prediction", "dialogue_state_tracking",
                                      "faithful_response", "overall"])  # fmt: skip
def test_every_sub_task_asks_about_a_file_and_its_oracle_is_right(tmp_path, sub_task):
    task = ToolDial(data=written(tmp_path, [dialogue()]), sub_task=sub_task, history="both")
    units = list(task.units(Rng(0)))
    assert {unit.cluster for unit in units} == {"0"}
    outcomes = task.perform(task.oracle(), units, Rng(0))
    assert [o.scores["correct"] for o in outcomes] == [1.0] * len(units)
    turns = {"action_prediction": 5, "dialogue_state_tracking": 4, "faithful_response": 1}
    assert len(units) == 2 * turns.get(sub_task, 3)


def test_results_follow_the_content_and_not_the_place(tmp_path):
    from equipoise.catalog import identity

    one = ToolDial(data=written(tmp_path, [dialogue()]))
    (tmp_path / "other").mkdir()
    two = ToolDial(data=written(tmp_path / "other", [dialogue()]))
    three = ToolDial(data=written(tmp_path, [dialogue(), dialogue()]))
    assert identity(two) != identity(three)
    one = ToolDial(data=written(tmp_path, [dialogue()]))
    assert identity(one) == identity(two)


def broken(change):
    given = dialogue()
    change(given["dialogue"])
    return [given]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("not json", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ({"a": 1}, "it is no list of dialogues"),
        ([], "it is no list of dialogues"),
        ([1, 2], "it is no list of dialogues"),
        ([{"dialogue": "User: Hi", "action_list": []}], "text that was prepared for training"),
        ([{"dialogue": 3}], "dialogue 1: it has no list of turns"),
        ([{"dialogue": [user("inform", "x")]}], "the system has no turn"),
        (broken(lambda turns: turns.append({"Other": {}})), "turn 9 is neither"),
        (broken(lambda turns: turns.append({})), "turn 9 is neither"),
        (broken(lambda turns: turns.append(user("shout", ""))), 'User has no action "shout"'),
        (broken(lambda turns: turns.append(system("sing", UNCONFIRMED))), 'no action "sing"'),
        (broken(lambda turns: turns.append(system("call", None))), "has no dialogue_state"),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path, content, fault):
    path = written(tmp_path, content)
    with pytest.raises(UsageError) as error:
        list(ToolDial(data=path).units(Rng(0)))
    assert fault in str(error.value)
    assert str(error.value).startswith("ToolDial: ")
    assert "train.json, val.json or test.json" in str(error.value)


def test_a_missing_file_says_where_there_is_one(tmp_path):
    with pytest.raises(UsageError, match=r"there is no file .*none.json; https://github.com"):
        ToolDial(data=str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match="cannot be read"):
        list(ToolDial(data=str(tmp_path)).units(Rng(0)))


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "test.json"
    path.write_bytes(b"\xff\xfe\x00" * 50)
    with pytest.raises(UsageError, match="it is not JSON"):
        list(ToolDial(data=str(path)).units(Rng(0)))
