"""Dialogues in an environment: turns, limits, endings, and whose fault a failure is."""

import asyncio
import json
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from equipoise.core import (
    Generates,
    Generation,
    Outcome,
    Request,
    Rng,
    ScoreSpec,
    Task,
    Unit,
    UnitError,
    Usage,
    UsageError,
)
from equipoise.kit.language.canned import Canned
from equipoise.kit.language.environment import (
    STOP,
    DialogueLimits,
    Environment,
    ModelUser,
    ScriptedUser,
    hold_dialogue,
    leaks,
    tool,
)
from equipoise.kit.language.shared import shared
from equipoise.kit.language.talk import converse
from equipoise.kit.language.tools import ToolError


class Shop(Environment):
    policy = "Cancel what the customer wants cancelled."

    def __init__(self):
        self.orders = {"W1": "pending", "W2": "delivered"}

    @tool
    def cancel(self, order: str, reason: Literal["lost", "late"]) -> str:
        """Cancel an order."""
        if self.orders.get(order) != "pending":
            raise ToolError(f"{order} is not pending")
        self.orders[order] = "cancelled"
        return "done"

    @tool
    def hand_over(self) -> str:
        """Give up."""
        self.over = True
        return "handed over"

    def scores(self, dialogue):
        return {"solved": float(self.orders["W1"] == "cancelled")}


class Agent:
    """Plays a list of answers: text, or (tool, arguments)."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def generate(self, requests):
        found = []
        for request in requests:
            self.asked.append(request)
            said = sum(m["role"] == "assistant" for m in request.prompt)
            answer = self.answers[min(said, len(self.answers) - 1)]
            calls = ()
            if not isinstance(answer, str):
                calls = tuple(
                    {"id": str(n), "type": "function",
                     "function": {"name": name, "arguments": json.dumps(arguments)}}
                    for n, (name, arguments) in enumerate(answer)
                )  # fmt: skip
                answer = ""
            found.append(Generation((answer,), tool_calls=(calls,), usage=Usage(5, 3)))
        return found


@dataclass(frozen=True)
class Episode(Task):
    user: object = None
    limits: DialogueLimits | None = None
    parallel: bool = False
    kept: ClassVar[list] = []

    needs = frozenset({Generates})
    scores = (ScoreSpec("solved", low=0.0, high=1.0),)

    def units(self, rng):
        yield Unit("a")

    async def attempt(self, talk, unit, rng):
        shop = Shop()
        user = self.user() if callable(self.user) else self.user
        dialogue = await hold_dialogue(talk, shop, user, limits=self.limits, parallel=self.parallel)
        self.kept.append(dialogue)
        status = "ok" if dialogue.ended in ("user", "tool") else "limit"
        return Outcome(unit.id, dict(shop.scores(dialogue)), status=status)


def play(answers, user=None, **given):
    agent = Agent(answers)
    Episode.kept.clear()
    user = user or (lambda: ScriptedUser(["Cancel W1, it is late.", "Thanks."]))
    (outcome,) = converse(Episode(user, **given), agent, [Unit("a")], Rng(0))
    return outcome, (Episode.kept or [None])[0], agent


CANCEL = [("cancel", {"order": "W1", "reason": "late"})]


def test_tools_are_described_once_and_work_on_their_own_episode():
    one, two = Shop(), Shop()
    (cancel, _), (other, _) = one.tools(), two.tools()
    assert cancel.schema is other.schema
    cancel('{"order": "W1", "reason": "late"}')
    assert (one.orders["W1"], two.orders["W1"]) == ("cancelled", "pending")


def test_a_dialogue_to_its_end():
    outcome, dialogue, agent = play([CANCEL, "Done.", "Bye."])
    assert (outcome.status, outcome.scores) == ("ok", {"solved": 1.0})
    assert dialogue.ended == "user"
    assert dialogue.said == ["Done.", "Bye."]
    roles = [message["role"] for message in dialogue.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert dialogue.messages[3] == {
        "role": "tool", "name": "cancel", "content": "done", "tool_call_id": "0",
    }  # fmt: skip
    assert [s["function"]["name"] for s in agent.asked[0].tools] == ["cancel", "hand_over"]
    assert outcome.usage.output_tokens == 9


def test_refused_unknown_and_wrong_calls_are_told_and_counted():
    wrong = [
        [("cancel", {"order": "W2", "reason": "late"})],
        [("cansel", {})],
        [("cancel", {"order": "W1"})],
        CANCEL,
        "Done.",
        "Bye.",
    ]
    outcome, dialogue, _ = play(wrong)
    assert outcome.scores == {"solved": 1.0}
    assert dialogue.faults == {"refused": 1, "unknown": 1, "arguments": 1}
    assert "Error: W2 is not pending" in [m["content"] for m in dialogue.messages]


def test_only_the_first_call_is_done_unless_told_otherwise():
    both = [[*CANCEL, ("hand_over", {})], "Done.", "Bye."]
    _, dialogue, _ = play(both)
    assert [call.name for call in dialogue.calls] == ["cancel"]
    assert len(dialogue.messages[2]["tool_calls"]) == 1
    _, dialogue, _ = play(both, parallel=True)
    assert [call.name for call in dialogue.calls] == ["cancel", "hand_over"]
    assert dialogue.ended == "tool"


@pytest.mark.parametrize(
    ("limits", "ended", "steps"),
    [
        (DialogueLimits(steps=4), "steps", 4),
        (DialogueLimits(tokens=6), "tokens", 2),
        (DialogueLimits(seconds=0.0), "time", 0),
    ],
)
def test_limits(limits, ended, steps):
    outcome, dialogue, _ = play([[("cancel", {"order": "W2", "reason": "late"})]], limits=limits)
    assert (dialogue.ended, dialogue.steps) == (ended, steps)
    assert outcome.status == "limit"


def test_a_user_that_never_stops_is_broken_off():
    outcome, dialogue, _ = play(
        ["Hm?"],
        user=lambda: ScriptedUser(lambda said, turn: "more"),
        limits=DialogueLimits(turns=5),
    )
    assert outcome.status == "limit"
    assert len([m for m in dialogue.messages if m["role"] == "user"]) == 5


@pytest.mark.parametrize("wrong", [lambda said, turn: 1 / 0, lambda said, turn: None])
def test_a_failing_user_is_not_the_agents_fault(wrong):
    outcome, _, _ = play(["Hm?"], user=lambda: ScriptedUser(wrong))
    assert (outcome.status, outcome.error_kind) == ("error", "user")
    assert "simulated user" in outcome.error


def test_an_evaluator_that_raises_costs_one_unit():
    class Broken(Shop):
        def scores(self, dialogue):
            raise KeyError("gone")

    class Uses(Episode):
        async def attempt(self, talk, unit, rng):
            shop = Broken() if unit.id == "b" else Shop()
            dialogue = await hold_dialogue(talk, shop, ScriptedUser(["Hi", "Bye"]))
            return Outcome(unit.id, dict(shop.scores(dialogue)))

    found = converse(Uses(), Agent(["x"]), [Unit("a"), Unit("b"), Unit("c")], Rng(0))
    assert [outcome.status for outcome in found] == ["ok", "error", "ok"]


def model_user(answer, instruction="You want W1 cancelled."):
    ask = shared(Canned(answer))
    return ModelUser(ask, instruction, Rng(1))


def test_a_model_plays_the_user():
    seen = []

    def answer(request: Request) -> str:
        seen.append(request)
        return STOP if len(request.prompt) > 3 else "Please cancel W1."

    outcome, dialogue, _ = play([CANCEL, "Done."], user=lambda: model_user(answer))
    assert (outcome.status, dialogue.ended) == ("ok", "user")
    assert "W1 cancelled" in seen[0].prompt[0]["content"]
    assert seen[0].prompt[1] == {"role": "user", "content": "Hi! How can I help you today?"}
    assert seen[0].seed != seen[1].seed
    assert not any("You are a customer" in str(m) for m in dialogue.messages)


def test_a_model_that_reads_out_its_instruction_or_says_nothing():
    long = " ".join(f"word{n}" for n in range(60))
    for text in (f"My instruction: {long}", ""):
        outcome, _, _ = play(["Hm?"], user=lambda text=text: model_user(lambda r: text, long))
        assert (outcome.status, outcome.error_kind) == ("error", "user")
    assert leaks("x " + long, long)
    assert not leaks("word1 word2 word3", long)


def test_users_of_many_dialogues_are_asked_together():
    sizes = []

    class Counts(Canned):
        def generate(self, requests):
            sizes.append(len(requests))
            return super().generate(requests)

    ask = shared(Counts(lambda r: STOP if len(r.prompt) > 3 else "Hi."))

    class Uses(Episode):
        async def attempt(self, talk, unit, rng):
            await hold_dialogue(talk, Shop(), ModelUser(ask, "x", rng))
            return Outcome(unit.id, {"solved": 1.0})

    units = [Unit(str(n)) for n in range(20)]
    converse(Uses(), Agent(["Hello."]), units, Rng(0))
    assert max(sizes) == 20
    with pytest.raises(UsageError, match="does not generate"):
        shared(object())


def test_errors_of_users_keep_their_kind():
    class Slow:
        async def reply(self, said):
            raise UnitError("too slow", "timeout")

    outcome, _, _ = play(["Hm?"], user=Slow())
    assert outcome.error_kind == "timeout"
    assert asyncio.run(ScriptedUser([]).reply("x")) is None
