"""Tasks of episodes: fresh state, the user's own stream, limits as outcomes."""

from dataclasses import dataclass

from equipoise.core import Rng, ScoreSpec, Unit
from equipoise.kit.language.canned import Canned
from equipoise.kit.language.environment import Environment, ScriptedUser, tool
from equipoise.kit.language.episodes import EnvironmentTask
from equipoise.kit.language.talk import converse

COUNT = '<tool_call>{"name": "count"}</tool_call>'


class Counter(Environment):
    policy = "Count."

    def __init__(self, start):
        self.n = start

    @tool
    def count(self) -> int:
        """Count on."""
        self.n += 1
        return self.n

    def scores(self, dialogue):
        return {"n": float(self.n)}


@dataclass(frozen=True)
class Counting(EnvironmentTask):
    scores = (ScoreSpec("n"),)

    def units(self, rng):
        for n in (0, 10):
            yield Unit(str(n), n)

    def episode(self, unit):
        return Counter(unit.content)

    def simulated_user(self, unit, rng):
        return ScriptedUser([f"Count, {int(rng.numpy().integers(1000))}."])


def test_each_episode_has_a_state_and_a_user_of_its_own():
    agent = Canned(lambda r: "Done." if any(m["role"] == "tool" for m in r.prompt) else COUNT)
    task = Counting()
    units = list(task.units(Rng(0)))
    found = converse(task, agent, units, Rng(0))
    assert [outcome.scores["n"] for outcome in found] == [1.0, 11.0]
    assert {outcome.status for outcome in found} == {"ok"}
    said = [outcome.transcript[1]["content"] for outcome in found]
    assert said[0] != said[1]
    again = converse(task, agent, units[::-1], Rng(0))
    assert [outcome.transcript[1]["content"] for outcome in again] == said[::-1]
    assert found[0].output == {"ended": "user", "faults": {}, "said": ["Done."]}


def test_a_limit_keeps_the_scores():
    (outcome,) = converse(Counting(steps=3), Canned(lambda r: COUNT), [Unit("a", 0)], Rng(0))
    assert (outcome.status, outcome.scores, outcome.output["ended"]) == (
        "limit",
        {"n": 3.0},
        "steps",
    )
