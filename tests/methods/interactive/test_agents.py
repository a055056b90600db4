"""Text agents: tools described, actions read, history as text, in a real dialogue."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core import Generation, Outcome, Request, Rng, ScoreSpec, Task, Unit, UsageError
from equipoise.kit.language.canned import Canned
from equipoise.kit.language.environment import Environment, ScriptedUser, hold_dialogue, tool
from equipoise.kit.language.talk import converse
from equipoise.kit.language.tools import Toolbox
from equipoise.methods.interactive import ActAgent, ReactAgent, text_agent
from equipoise.methods.interactive.agents import action


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TOOLS = Toolbox([add]).schemas
ASK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "2+3?"}]


def seen(agent, messages, answer="x", tools=TOOLS):
    kept = []

    def answers(request):
        kept.append(request)
        return answer

    found = agent.apply(Canned(answers), Rng(0)).generate([Request(messages, tools=tools)])[0]
    return kept[0], found


def test_tools_and_form_are_told_after_the_policy():
    request, _ = seen(ReactAgent(), ASK)
    system = request.prompt[0]["content"]
    assert system.startswith("Be kind.\n\n")
    assert 'Action: {"name": <tool>, "arguments": <object>}' in system
    assert json.dumps(TOOLS[0]["function"]) in system
    assert "Thought:" in system
    assert request.tools == ()
    assert "Observation:" in request.stop
    assert "Thought:" not in seen(ActAgent(), ASK)[0].prompt[0]["content"]
    assert seen(ActAgent(), ASK[1:])[0].prompt[0]["role"] == "system"


def test_history_becomes_text():
    call = {"id": "1", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    history = [
        *ASK,
        {"role": "assistant", "content": "Thought: add.", "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "5", "tool_call_id": "1"},
        {"role": "assistant", "content": "It is 5."},
        {"role": "user", "content": "Sure?"},
    ]
    request, _ = seen(ReactAgent(), history)
    assert [m["role"] for m in request.prompt] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    acted = 'Action: {"name": "add", "arguments": {"a": 2, "b": 3}}'
    assert request.prompt[2]["content"] == f"Thought: add.\n{acted}"
    assert request.prompt[3]["content"] == "Observation: 5"
    said = 'Action: {"name": "respond", "arguments": {"content": "It is 5."}}'
    assert request.prompt[4]["content"] == said


def test_requests_without_tools_pass():
    request, found = seen(ReactAgent(), ASK, "5", tools=())
    assert request.prompt == ASK
    assert found.text == "5"


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('Thought: x\nAction: {"name": "add", "arguments": {"a": 1}}', "add", {"a": 1}),
        ('Action: {"name": "a"}\nAction: {"name": "b"}', "b", {}),
        ('Action:\n```json\n{"name": "add", "arguments": {}}\n```', "add", {}),
        ('Action: {"name": "add", "arguments": "a=1"}', "respond", None),
        ('Action: {"name": 3}', "respond", None),
        ("Action: add(1, 2)", "respond", None),
        ("Action:", "respond", None),
        ("", "respond", None),
        ("Action: " + "[" * 100_000, "respond", None),
    ],
)
def test_actions_are_read(text, name, arguments):
    found, given_ = action(text)
    assert found == name
    assert given_ == ({"content": text.strip()} if arguments is None else arguments)


@given(st.text())
def test_any_text_is_an_action(text):
    name, arguments = action(f"Action: {text}")
    assert isinstance(name, str)
    assert isinstance(arguments, dict)


def test_answers_become_calls_and_words():
    written = 'Thought: add.\nAction: {"name": "add", "arguments": {"a": 2, "b": 3}}'
    _, found = seen(ReactAgent(), ASK, written)
    assert found.finish == ("tool_calls",)
    assert found.text == "Thought: add."
    assert Toolbox([add]).call(found.tool_calls[0][0]).content == "5"
    _, found = seen(ReactAgent(), ASK, "Just words")
    assert (found.text, found.tool_calls, found.finish) == ("Just words", ((),), ("stop",))


def test_endpoints_are_agents_too():
    class Endpoint:
        async def generate_one(self, request):
            assert not request.tools
            return Generation(('Action: {"name": "add", "arguments": {}}',), finish=("stop",))

    agent = text_agent(Endpoint(), thinks=False)
    found = asyncio.run(agent.generate_one(Request(ASK, tools=TOOLS)))
    assert found.tool_calls[0][0]["function"]["name"] == "add"
    with pytest.raises(UsageError, match="cannot be an agent"):
        text_agent(object(), thinks=True)


class Sum(Environment):
    policy = "Add what the user wants added."
    asked = 0

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.asked += 1
        return a + b

    def scores(self, dialogue):
        return {"right": float("5" in dialogue.said[-1])}


class Sums(Task):
    scores = (ScoreSpec("right", low=0.0, high=1.0),)

    def units(self, rng):
        yield Unit("a")

    async def attempt(self, talk, unit, rng):
        dialogue = await hold_dialogue(talk, Sum(), ScriptedUser(["What is 2+3?"]))
        return Outcome(unit.id, dict(Sum().scores(dialogue)), output=len(dialogue.calls))


def test_a_dialogue_by_text_alone():
    def model(request):
        last = request.prompt[-1]["content"]
        if last.startswith("Observation: "):
            said = json.dumps({"content": f"It is {last.removeprefix('Observation: ')}."})
            return f'Thought: tell.\nAction: {{"name": "respond", "arguments": {said}}}'
        return 'Thought: add.\nAction: {"name": "add", "arguments": {"a": 2, "b": 3}}'

    agent = ReactAgent().apply(Canned(model), Rng(0))
    (outcome,) = converse(Sums(), agent, [Unit("a")], Rng(0))
    assert (outcome.scores, outcome.output) == ({"right": 1.0}, 1)
