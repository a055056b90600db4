"""The task: generated customers, agents that err with known chances, and whose fault it was."""

import json
from collections import Counter

import numpy as np
import pytest

from equipoise.core import Generation, Request, Rng, Unit, UsageError
from equipoise.kit.language.canned import Canned
from equipoise.kit.language.talk import converse
from equipoise.methods.interactive._tau.checking import checked_call, checking_text
from equipoise.methods.interactive._tau.customer import Customer
from equipoise.methods.interactive._tau.errands import Errand
from equipoise.methods.interactive._tau.retail import Retail
from equipoise.methods.interactive._tau.units import shop
from equipoise.methods.interactive.tau_bench import (
    ConfirmWrites,
    ScriptedClerk,
    ToolAgentUser,
    expected_pass_hat_k,
)
from equipoise.methods.language.scripted import Scripted

TASK = ToolAgentUser(tasks=150, customers=150)
UNITS = list(TASK.units(Rng(4)))
KINDS = Counter(each["kind"] for unit in UNITS for each in unit.content["errands"])


def rewards(subject, task=TASK, units=UNITS, repeats=1, seed=1):
    found = []
    for repeat in range(repeats):
        outcomes = converse(task, subject, units, Rng(seed).child(repeat))
        assert [o.error for o in outcomes if o.status == "error"] == []
        found.append([o.scores["reward"] for o in outcomes])
    return np.array(found).T


def clerk(**given):
    return ScriptedClerk(**given).load(Rng(2))


def test_a_clerk_without_slips_is_always_right():
    outcomes = converse(TASK, clerk(slip=0.0), UNITS, Rng(0))
    assert all(o.scores["reward"] == 1 and o.status == "ok" for o in outcomes)
    assert all(o.scores["tool_faults"] == 0 for o in outcomes)
    assert max(o.scores["steps"] for o in outcomes) < 25
    assert len(KINDS) == 11, "every kind of errand is there"


def test_a_slip_is_always_fatal():
    assert rewards(clerk(slip=1.0)).sum() == 0


def test_do_nothing_gets_right_what_asks_for_no_change():
    idle = Canned(lambda request: "I am sorry, I cannot do that.")
    outcomes = converse(TASK, idle, UNITS, Rng(0))
    for unit, outcome in zip(UNITS, outcomes, strict=True):
        unchanged = unit.stratum == "unchanged"
        assert outcome.scores["database"] == unchanged
        assert outcome.scores["reward"] == (unchanged and not unit.target["outputs"])
    assert 0.05 < np.mean([unit.stratum == "unchanged" for unit in UNITS]) < 0.4


def test_gold_actions_are_not_refused_and_traps_are_open():
    for unit in UNITS:
        desk = Retail(shop(unit.content["shop"], TASK.customers))
        said = desk.replay([tuple(each) for each in unit.target["actions"]])
        assert not any(text.startswith("Error") for text in said)
        for each in map(Errand.from_json, unit.content["errands"]):
            if not each.right and each.wanted is not None:
                fresh = Retail(shop(unit.content["shop"], TASK.customers))
                (told,) = fresh.replay([each.wanted])
                assert not told.startswith("Error"), "the tool would do it: it is a trap"


@pytest.mark.parametrize("concentration", [None, 1.0])
def test_success_is_as_frequent_as_known(concentration):
    repeats = 12
    table = rewards(clerk(slip=0.15, concentration=concentration), repeats=repeats)
    errands = [len(unit.content["errands"]) for unit in UNITS]
    expected = expected_pass_hat_k(errands, 1, 0.15, concentration)
    spread = table.mean(axis=1).std() / np.sqrt(len(UNITS))
    assert table.mean() == pytest.approx(expected, abs=3.5 * spread)
    # Successes of a task with one chance p in n attempts: the variance is n p (1 - p), no more.
    if concentration is None:
        p = 0.85 ** np.array(errands)
        z = (table.sum(axis=1) - repeats * p) / np.sqrt(repeats * p * (1 - p))
        assert (z**2).mean() == pytest.approx(1, abs=4 * np.sqrt(2 / len(UNITS)))


def known(errand, slip, attention):
    """Return how often an errand goes wrong for a clerk who shows every write."""
    if errand["kind"] == "second_thoughts":
        return 0.0  # the customer says no until the clerk leaves it
    if errand["kind"] in ("total", "bad_reason", "stranger"):
        return slip  # nothing is written, or the customer wants what they may not have
    return slip * (1 - attention) / (1 - slip * attention)


@pytest.mark.parametrize("attention", [0.0, 0.9])
def test_confirmed_writes_fail_as_often_as_known(attention):
    task = ToolAgentUser(tasks=150, customers=150, attention=attention)
    units = list(task.units(Rng(4)))
    agent = ConfirmWrites().apply(clerk(slip=0.15), Rng(0))
    table = rewards(agent, task, units, repeats=8)
    p = np.array(
        [np.prod([1 - known(e, 0.15, attention) for e in u.content["errands"]]) for u in units]
    )
    spread = np.sqrt((p * (1 - p)).sum() / 8) / len(p)
    assert table.mean() == pytest.approx(p.mean(), abs=3.5 * spread)


def test_expected_pass_hat_k_by_numbers():
    draws = np.random.default_rng(0)
    s = draws.beta(0.3, 1.7, (200_000, 1))
    errands = np.array([1, 2, 3])
    for k in (1, 3):
        drawn = ((1 - s) ** (errands * k)).mean()
        assert expected_pass_hat_k(errands, k, 0.15, 2.0) == pytest.approx(drawn, abs=0.003)
    assert expected_pass_hat_k([2], 8, 0.1) == pytest.approx(0.9**16)
    assert expected_pass_hat_k([2], 8, 0.1, 1e6) == pytest.approx(0.9**16, rel=1e-3)
    for decisions, k, slip in (([], 1, 0.1), ([0], 1, 0.1), ([1], 0, 0.1), ([1], 1, 1.5)):
        with pytest.raises(UsageError, match="expected_pass_hat_k: decisions must be"):
            expected_pass_hat_k(decisions, k, slip)


def test_a_task_s_chance_is_its_own_and_the_same_in_every_attempt():
    table = rewards(clerk(slip=0.3, concentration=0.05), repeats=6)
    sure = np.isin(table.sum(axis=1), (0, 6))
    assert sure.mean() > 0.85
    assert 0.5 < table.mean() < 0.85


class Plays:
    """Makes one answer after the other, text or tool calls as they come."""

    def __init__(self, answers):
        self.answers = answers

    def generate(self, requests):
        found = []
        for request in requests:
            done = sum(m["role"] == "assistant" for m in request.prompt)
            answer = self.answers[min(done, len(self.answers) - 1)]
            text, calls = (answer, ()) if isinstance(answer, str) else ("", (answer,))
            found.append(Generation((text,), tool_calls=(calls,)))
        return found


def function(name, arguments):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": text}}


def test_calls_that_cannot_be_made_are_told_and_counted():
    agent = Plays(
        [
            function("get_order_detail", {"order_id": "#W1"}),
            function("get_order_details", {"order_id": 1}),
            function("get_order_details", "{"),
            function("think", {"thought": "x" * 100_000}),
            {"what": 1},
            function("get_order_details", {"order_id": "#W0"}),
            "Sorry, I cannot help.",
        ]
    )
    (outcome,) = converse(TASK, agent, UNITS[:1], Rng(0))
    assert outcome.status == "ok"
    assert outcome.scores["tool_faults"] == 6
    assert outcome.output["faults"] == {
        "unknown": 1, "arguments": 1, "malformed": 2, "too_large": 1, "refused": 1,
    }  # fmt: skip


def test_handing_over_ends_it_and_a_limit_is_no_success():
    unit = next(u for u in UNITS if u.stratum == "unchanged" and not u.target["outputs"])
    over = Plays([function("transfer_to_human_agents", {"summary": "x"})])
    (outcome,) = converse(TASK, over, [unit], Rng(0))
    assert (outcome.scores["reward"], outcome.output["ended"]) == (1, "tool")
    for_ever = Plays([function("think", {"thought": "x"})])
    (outcome,) = converse(TASK, for_ever, [unit], Rng(0))
    assert (outcome.status, outcome.scores["steps"]) == ("limit", 30)
    assert (outcome.scores["reward"], outcome.scores["database"]) == (0, 1)


def test_a_silly_agent_does_not_keep_the_customer_for_ever():
    outcomes = converse(TASK, Canned(lambda request: "La la la."), UNITS, Rng(0))
    assert all(o.status == "ok" and o.scores["steps"] <= 3 for o in outcomes)


def with_user(answers, agent=None, **given):
    task = ToolAgentUser(tasks=2, customers=20, user=answers, **given)
    agent = agent or Canned(lambda request: "I cannot do that.")
    return converse(task, agent, list(task.units(Rng(0))), Rng(0))


def test_a_model_can_play_the_customer():
    seen = []

    def customer(request):
        seen.append(request)
        return "Cancel it." if len(request.prompt) < 4 else "###STOP###"

    task = ToolAgentUser(tasks=2, customers=20, user=Scripted(constant="x"))
    units = list(task.units(Rng(0)))
    from equipoise.methods.interactive import tau_bench

    tau_bench._live[repr(task.user), 0] = Canned(customer)
    outcomes = converse(task, Canned(lambda request: "Hm."), units, Rng(0))
    assert [(o.status, o.output["ended"]) for o in outcomes] == [("ok", "user")] * 2
    assert seen[0].temperature == 1.0
    told = seen[0].prompt[0]["content"]
    assert any(told.endswith(unit.content["instruction"]) for unit in units)
    assert "errands" not in told
    tau_bench._live.clear()


def test_failures_of_the_customer_are_kept_apart():
    for user in (Scripted(constant=""), Scripted(answers={"never": "asked"})):
        for outcome in with_user(user):
            assert (outcome.status, outcome.error_kind != "bug") == ("error", True)
            assert outcome.error_kind in ("user", "unknown_prompt")
    (outcome, _) = with_user(Scripted(constant="And then?"))
    assert (outcome.status, outcome.scores["reward"]) == ("limit", 0)


def test_a_customer_who_reads_out_the_instruction_fails():
    task = ToolAgentUser(tasks=1, customers=20, user=Scripted(constant="x"))
    from equipoise.methods.interactive import tau_bench

    (unit,) = task.units(Rng(0))
    tau_bench._live[repr(task.user), 0] = Canned(lambda request: unit.content["instruction"])
    (outcome,) = converse(task, Canned(lambda request: "Hm."), [unit], Rng(0))
    assert (outcome.error_kind, outcome.status) == ("user", "error")
    tau_bench._live.clear()


WANTED = ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
ERRAND = Errand("cancel", "I want to cancel order #W1.", {"reason": "I no longer need it."}, WANTED)


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("May I have your email address?", "My email is a@x.org."),
        ("Could you give me your full name and zip code?", "I am A B, zip code 1."),
        ("What is the reason?", "I no longer need it."),
        ("Which payment method shall I use?", "I want to cancel order #W1."),
        ("I will cancel it for you. Do you confirm (yes/no)?", "Yes."),
        ("Shall I go ahead and cancel order #W1?", "Yes."),
        (checking_text(*WANTED), "Yes, that is right."),
        (checking_text("cancel_pending_order", {"order_id": "#W2"}),
         "No, that is not right. I want to cancel order #W1. I no longer need it."),
        ("Your order has been cancelled.", None),
        ("Sorry, that is not possible. Is there anything else?", None),
        ("Let me see.", "I want to cancel order #W1."),
    ],
)  # fmt: skip
def test_what_the_customer_answers(said, reply):
    import asyncio

    async def talk():
        customer = Customer(
            "My email is a@x.org.", "I am A B, zip code 1.", [ERRAND], 1.0, Rng(0).python()
        )
        first = await customer.reply("Hi! How can I help you today?")
        return first, await customer.reply(said)

    assert asyncio.run(talk()) == ("Hello. I want to cancel order #W1.", reply)


def test_a_confirmed_write_is_made_word_for_word():
    inner = Plays([function(*WANTED)])
    agent = ConfirmWrites().apply(inner, Rng(0))
    said = [{"role": "user", "content": "Cancel it."}]
    question = agent.generate([Request(said)])[0].text
    assert checked_call(question) == WANTED
    said.append({"role": "assistant", "content": question})
    yes = agent.generate([Request([*said, {"role": "user", "content": "Yes."}])])[0]
    assert yes.tool_calls[0][0]["function"]["name"] == WANTED[0]
    assert json.loads(yes.tool_calls[0][0]["function"]["arguments"]) == WANTED[1]
    no = agent.generate([Request([*said, {"role": "user", "content": "No."}])])[0]
    assert checked_call(no.text) == WANTED


@pytest.mark.parametrize("call", [{"what": 1}, function("get_x", {}), function("cancel_x", "{")])
def test_other_calls_pass(call):
    agent = ConfirmWrites().apply(Plays([call]), Rng(0))
    (found,) = agent.generate([Request([{"role": "user", "content": "x"}])])
    assert found.tool_calls == ((call,),)


def test_confirming_keeps_an_endpoint_an_endpoint():
    import asyncio

    class Endpoint:
        max_connections = 3

        async def generate_one(self, request):
            return Generation(("",), tool_calls=((function(*WANTED),),))

    agent = ConfirmWrites().apply(Endpoint(), Rng(0))
    assert agent.max_connections == 3
    assert checked_call(asyncio.run(agent.generate_one(Request("x"))).text) == WANTED
    with pytest.raises(UsageError, match="does not generate text"):
        ConfirmWrites().apply(object(), Rng(0))


def test_units_hold_what_the_agent_must_not_see_apart():
    for unit in UNITS[:20]:
        assert isinstance(unit, Unit)
        assert unit.target["actions"] == json.loads(json.dumps(unit.target["actions"]))
    seen = []

    class Looks(Canned):
        def generate(self, requests):
            seen.extend(requests)
            return super().generate(requests)

    converse(TASK, Looks(lambda request: "I cannot."), UNITS[:10], Rng(0))
    told = json.dumps([list(request.prompt) for request in seen])
    assert not any(unit.content["instruction"] in told for unit in UNITS[:10])
    assert len(seen[0].tools) == 16
