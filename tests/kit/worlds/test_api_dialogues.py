"""Generated interfaces and dialogues: what must hold of every one of them."""

import re
from collections import Counter

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.worlds.api_dialogues import (
    CATEGORIES,
    SYSTEM_ACTIONS,
    USER_ACTIONS,
    ApiError,
    make_dialogue,
    make_world,
)


@pytest.fixture(scope="module")
def world():
    return make_world(120, Rng(3))


@pytest.fixture(scope="module")
def dialogues(world):
    splits = ("train", "test", "calibration")
    return [make_dialogue(world, str(i), splits[i % 3], Rng(3).child(i)) for i in range(450)]


def slots(state):
    status = state["api_status"]
    if status == "none":
        return {}
    return {**status["required_parameters"], **status["optional_parameters"]}


def test_a_world_has_as_many_interfaces_as_asked_and_every_edge_joins_one_type():
    for apis in (24, 60, 200):
        world = make_world(apis, Rng(0))
        assert len(world.apis) == apis
        edges = list(world.edges())
        assert edges
        for source, output, target, needed in edges:
            out = next(e for e in world.apis[source].outputs if e.name == output)
            into = next(e for e in world.apis[target].required if e.name == needed)
            assert out.kind == into.kind


def test_too_few_or_too_many_interfaces_are_refused():
    for apis in (23, 401):
        with pytest.raises(UsageError, match="apis must be from 24 to 400"):
            make_world(apis, Rng(0))


def test_the_same_stream_gives_the_same_world_and_dialogue(world, dialogues):
    again = make_world(120, Rng(3))
    assert again == world
    assert make_dialogue(again, "7", "test", Rng(3).child(7)) == dialogues[7]


def test_the_back_end_refuses_what_it_cannot_answer(world):
    api = next(a for a in world.apis.values() if not a.searches and len(a.required) == 1)
    name = api.required[0].name
    good = world.values(api.thing)[0]
    assert world.call(api.name, {name: good}) == world.call(api.name, {name: good})
    assert set(world.call(api.name, {name: good})[0]) == {each.name for each in api.outputs}
    for given, why in (
        ({}, "needs"),
        ({name: ""}, "needs"),
        ({name: "nonsense"}, "knows no"),
        ({name: good, "colour_of_sky": "blue"}, "has no parameter"),
    ):
        with pytest.raises(ApiError, match=why):
            world.call(api.name, given)
    with pytest.raises(ApiError, match="no interface"):
        world.call("Nothing", {})


def test_identifiers_of_different_things_never_meet(world):
    tables = [set(world.values(thing)) for thing in world.splits]
    assert all(len(table) == 40 for table in tables)
    assert len(set().union(*tables)) == 40 * len(tables)


def test_a_split_has_things_of_its_own_and_a_word_stays_in_one(world, dialogues):
    words = {}
    for thing, split in world.splits.items():
        words.setdefault(thing.partition(":")[2], set()).add(split)
    assert all(len(splits) == 1 for splits in words.values())
    for number, dialogue in enumerate(dialogues):
        thing = world.apis[dialogue.target].thing
        assert world.splits[thing] == ("train", "test", "calibration")[number % 3]
        assert world.apis[dialogue.source].thing == thing


def test_the_smallest_worlds_have_dialogues_of_every_split():
    for seed in range(200):
        world = make_world(24, Rng(seed))
        assert set(world.splits.values()) == {"train", "calibration", "test"}
    for split in ("train", "calibration", "test"):
        assert len(make_dialogue(world, "d", split, Rng(0)).turns) > 4
    assert len(make_world(400, Rng(0)).apis) == 400


def test_all_actions_and_categories_come(dialogues):
    assert {each.category for each in dialogues} == set(CATEGORIES)
    actions = Counter((t.speaker, t.action) for d in dialogues for t in d.turns)
    assert set(actions) == {("user", a) for a in USER_ACTIONS} | {
        ("system", a) for a in SYSTEM_ACTIONS
    }
    assert 8 < np.mean([len(d.turns) for d in dialogues]) < 12


# The order in which actions may come, as the paper's action sequences have it.
_OPENING = (
    r"((inform_intent_vague retriever_call clarify )?inform_intent_clear(?P<add>_add)? "
    r"retriever_call |inform_intent_vague retriever_call suggest affirm )"
)
_REST = (
    r"((request inform )?call |request fail_inform retriever_call (request inform )?call "
    r"(request inform )?call )response user_bye system_bye"
)
_NEGATED = "inform_intent_vague retriever_call suggest negate response_fail"


def test_actions_come_in_an_order_that_the_paper_has(world, dialogues):
    seen = set()
    for dialogue in dialogues:
        line = " ".join(turn.action for turn in dialogue.turns)
        assert line == _NEGATED or re.fullmatch(_OPENING + _REST, line), line
        seen.add(line)
        asks = len(world.apis[dialogue.target].required) > 1
        assert dialogue.category.endswith("yes" if asks else "zero")
        assert dialogue.category.startswith(
            "yes" if world.apis[dialogue.source].required else "zero"
        )
    assert len(seen) > 15


def test_scores_of_the_retriever_decide_what_follows(dialogues):
    for dialogue in dialogues:
        for turn, after in zip(dialogue.turns, dialogue.turns[1:], strict=False):
            if turn.action != "retriever_call":
                continue
            best = max(turn.retrieved, key=turn.retrieved.get)
            score = turn.retrieved[best]
            assert next(iter(turn.retrieved)) == best
            if after.action == "clarify":
                assert score < 0.5
            elif after.action == "suggest":
                assert 0.5 <= score < 0.6
            else:
                assert score >= 0.6
                assert after.state["api_status"]["api_name"] == best
                assert turn.documents["api_name"] == best


def test_an_interface_is_confirmed_by_its_score_or_by_the_user(dialogues):
    for dialogue in dialogues:
        confirmed = {}
        for place, turn in enumerate(dialogue.turns):
            if turn.action == "affirm":
                found = dialogue.turns[place - 2].retrieved
                confirmed[max(found, key=found.get)] = True
            if turn.state is not None and turn.state["api_confirmed"] == "true":
                assert turn.state["api_status"]["api_name"] in confirmed
            if turn.retrieved:
                best = max(turn.retrieved, key=turn.retrieved.get)
                if turn.retrieved[best] >= 0.6:
                    confirmed[best] = True


def test_every_filled_value_was_said_or_returned_before(dialogues):
    for dialogue in dialogues:
        heard = ""
        for turn in dialogue.turns:
            if turn.speaker == "user":
                heard += turn.message
                continue
            for value in slots(turn.state).values():
                assert value in heard
            heard += str(turn.results)


def test_a_call_has_what_it_requires_and_returns_what_the_table_holds(world, dialogues):
    for dialogue in dialogues:
        calls = [turn for turn in dialogue.turns if turn.action == "call"]
        for turn in calls:
            status = turn.state["api_status"]
            assert status["api_name"] == turn.called
            assert all(status["required_parameters"].values())
            given = {name: value for name, value in slots(turn.state).items() if value}
            assert turn.results == world.call(turn.called, given)
        assert not calls or calls[-1].called == dialogue.target
        assert len(calls) < 2 or calls[0].called == dialogue.source


def test_a_reply_tells_all_that_the_last_call_returned(dialogues):
    for dialogue in dialogues:
        for place, turn in enumerate(dialogue.turns):
            if turn.action == "response":
                (row,) = dialogue.turns[place - 1].results
                assert all(value in turn.message for value in row.values())


def test_a_request_is_made_exactly_where_something_required_lacks(dialogues):
    for dialogue in dialogues:
        for turn in dialogue.turns:
            if turn.action == "request":
                assert "" in turn.state["api_status"]["required_parameters"].values()
