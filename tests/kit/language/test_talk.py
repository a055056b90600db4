import asyncio
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from equipoise.core import (
    Generation,
    Outcome,
    Request,
    Rng,
    RunError,
    Task,
    Unit,
    UnitError,
    Usage,
    UsageError,
)
from equipoise.kit.language.canned import Canned, Constant
from equipoise.kit.language.loop import run
from equipoise.kit.language.talk import (
    answer_message,
    as_batch,
    converse,
    each,
    generate_each,
    hold,
    unit_error,
)


@dataclass(frozen=True)
class Dialogue(Task):
    """Asks twice; what happens in between is up to ``between``."""

    turns: int = 2
    between: Any = None

    def units(self, rng):
        return [Unit(f"u{i:03d}", content=f"q{i}") for i in range(100)]

    async def attempt(self, talk, unit, rng):
        said = [{"role": "user", "content": unit.content}]
        for turn in range(self.turns):
            answer = await talk.generate(Request(list(said)))
            said += [answer_message(answer), {"role": "user", "content": f"more {turn}"}]
            if self.between is not None:
                await self.between(unit)
        return Outcome(unit.id, {"length": float(len(answer.text))}, output=answer.text)


@dataclass
class Recording:
    """Echoes the last message and the seed, and keeps the size of each batch."""

    sizes: list[int] = field(default_factory=list)

    def generate(self, requests):
        self.sizes.append(len(requests))
        return [
            Generation((f"{r.prompt[-1]['content']}/{r.seed}",), usage=Usage(2, 1, 0.5))
            for r in requests
        ]


class Endpoint:
    max_connections = 7

    def __init__(self):
        self.live = self.most = 0

    async def generate_one(self, request):
        self.live += 1
        self.most = max(self.most, self.live)
        await asyncio.sleep(random.random() / 500)
        self.live -= 1
        if "q13" in request.prompt[-1]["content"]:
            raise UnitError("no luck", "garbage")
        return Generation((f"{request.prompt[-1]['content']}/{request.seed}",))


def outputs(outcomes):
    return [(o.unit, o.output, o.transcript, o.usage, o.status) for o in outcomes]


def test_waiting_requests_become_one_batch():
    subject = Recording()
    task = Dialogue()
    outcomes = converse(task, subject, task.units(None)[:10], Rng(0))
    assert subject.sizes == [10, 10]
    assert [o.unit for o in outcomes] == [f"u{i:03d}" for i in range(10)]
    assert outcomes[3].usage == Usage(4, 2, 1.0)
    assert [m["role"] for m in outcomes[3].transcript] == ["user", "assistant"] * 2
    assert outcomes[3].transcript[0] == {"role": "user", "content": "q3"}
    assert outcomes[3].transcript[2] == {"role": "user", "content": "more 0"}
    assert outcomes[3].seconds is not None


def test_results_do_not_depend_on_how_many_run_at_once_or_on_order():
    task = Dialogue()
    units = task.units(None)
    one = converse(task, Recording(), units, Rng(5))
    alone = run(hold(task, Recording(), units, lambda u: Rng(5).child(u.id), concurrency=1))
    turned = converse(task, Recording(), units[::-1], Rng(5))[::-1]
    assert outputs(one) == outputs(alone) == outputs(turned)
    assert len({o.output for o in one}) == 100, "every unit has its own seed"


def test_parallel_requests_of_one_conversation_share_a_batch_and_keep_their_order():
    class Fans(Task):
        def units(self, rng):
            return [Unit("a"), Unit("b")]

        async def attempt(self, talk, unit, rng):
            asks = [talk.generate(Request([{"role": "user", "content": str(i)}])) for i in range(3)]
            answers = await asyncio.gather(*asks)
            return Outcome(unit.id, output=[a.text.split("/")[0] for a in answers])

    subject = Recording()
    outcomes = converse(Fans(), subject, [Unit("a"), Unit("b")], Rng(0))
    assert subject.sizes == [6]
    assert outcomes[0].output == ["0", "1", "2"]
    said = [m["content"].split("/")[0] for m in outcomes[0].transcript]
    assert said == ["0", "0", "1", "1", "2", "2"]


def test_a_conversation_that_waits_for_something_else_holds_nobody_up():
    async def nap(unit):
        if unit.id == "u000":
            await asyncio.sleep(0.6)

    subject = Recording()
    ends: dict[str, float] = {}
    task = Dialogue(between=nap)
    began = time.perf_counter()

    def ended(outcome):
        ends[outcome.unit] = time.perf_counter() - began

    units = task.units(None)[:20]
    run(hold(task, subject, units, lambda u: Rng(0), on_outcome=ended))
    assert max(v for k, v in ends.items() if k != "u000") < 0.6 < ends["u000"]
    assert subject.sizes[:2] == [20, 19]


def test_one_conversation_that_fails_leaves_the_others_alone():
    async def trip(unit):
        if unit.id == "u001":
            raise ValueError("bad\nthing")
        if unit.id == "u002":
            raise UnitError("The tool is gone.", "tool")
        if unit.id == "u003":
            raise TimeoutError
        if unit.id == "u004":
            raise UsageError("No such column.")

    task = Dialogue(between=trip)
    outcomes = converse(task, Recording(), task.units(None)[:8], Rng(0))
    assert [o.status for o in outcomes] == ["ok", *["error"] * 4, *["ok"] * 3]
    kinds = [(o.error_kind, o.error) for o in outcomes[1:5]]
    assert kinds == [
        ("ValueError", "ValueError: bad thing"),
        ("tool", "The tool is gone."),
        ("timeout", "TimeoutError"),
        ("usage", "No such column."),
    ]
    assert [m["role"] for m in outcomes[1].transcript] == ["user", "assistant"]
    assert outcomes[1].usage == Usage(2, 1, 0.5), "what failed was paid for as well"


def test_a_task_that_returns_no_outcome_is_named():
    class Silent(Dialogue):
        async def attempt(self, talk, unit, rng):
            return None

    (outcome,) = converse(Silent(), Recording(), [Unit("a")], Rng(0))
    assert outcome.error == "Silent: attempt must return an Outcome, got NoneType."


def test_a_request_that_breaks_its_batch_costs_its_own_conversation_only():
    class Fragile(Recording):
        def generate(self, requests):
            if any(r.prompt[-1]["content"] == "q5" for r in requests):
                raise MemoryError("too much")
            return super().generate(requests)

    task = Dialogue()
    outcomes = converse(task, Fragile(), task.units(None)[:16], Rng(0))
    assert [o.unit for o in outcomes if o.status == "error"] == ["u005"]
    assert outcomes[5].error_kind == "MemoryError"
    assert outcomes[5].transcript == [{"role": "user", "content": "q5"}]


@pytest.mark.parametrize("where", ["subject", "callback", "attempt"])
def test_an_error_of_the_run_ends_it(where):
    class Full(Recording):
        def generate(self, requests):
            if where == "subject":
                raise RunError("The budget is spent.")
            return super().generate(requests)

    async def between(unit):
        if where == "attempt":
            raise RunError("The budget is spent.")

    def full(outcome):
        if where == "callback":
            raise RunError("The budget is spent.")

    task = Dialogue(between=between)
    with pytest.raises(RunError, match="budget"):
        run(hold(task, Full(), task.units(None), lambda u: Rng(0), on_outcome=full))


def test_an_endpoint_is_called_concurrently_up_to_its_limit():
    subject = Endpoint()
    task = Dialogue()
    outcomes = converse(task, subject, task.units(None), Rng(1))
    assert subject.most == 7
    assert [o.unit for o in outcomes if o.status == "error"] == ["u013"]
    again = converse(task, Endpoint(), task.units(None), Rng(1))
    assert outputs(outcomes) == outputs(again)


def test_a_subject_without_text_is_refused():
    with pytest.raises(UsageError, match="Dialogue holds conversations, and object does not"):
        converse(Dialogue(), object(), [Unit("a")], Rng(0))


def test_no_units_is_no_work():
    assert converse(Dialogue(), Recording(), [], Rng(0)) == []


def test_works_inside_a_running_event_loop():
    async def notebook():
        return converse(Dialogue(), Recording(), [Unit("a", "q")], Rng(0))

    assert asyncio.run(notebook())[0].status == "ok"


def test_each_finds_the_items_at_fault_and_refuses_a_wrong_number_of_answers():
    def picky(numbers):
        if 3 in numbers:
            raise ValueError("three")
        return [n * n for n in numbers]

    found = each(picky, [1, 2, 3, 4])
    assert [found[0], found[1], found[3]] == [1, 4, 16]
    assert isinstance(found[2], UnitError)
    assert found[2].kind == "ValueError"
    short = each(lambda items: items[:-1], [1, 2])
    assert {e.kind for e in short} == {"garbage"}
    with pytest.raises(UsageError):
        each(lambda items: (_ for _ in ()).throw(UsageError("wrong")), [1])


def test_generate_each_of_an_endpoint_keeps_what_came():
    requests = [Request([{"role": "user", "content": f"q{i}"}], seed=i) for i in range(20)]
    found = generate_each(Endpoint(), requests)
    assert [i for i, f in enumerate(found) if isinstance(f, UnitError)] == [13]
    assert found[4].text == "q4/4"
    batch = as_batch(Endpoint())
    assert [g.text for g in batch.generate(requests[:3])] == ["q0/0", "q1/1", "q2/2"]
    with pytest.raises(UnitError, match="no luck"):
        batch.generate(requests)
    assert [isinstance(f, UnitError) for f in generate_each(batch, requests)].count(True) == 1
    assert as_batch(canned := Canned(Constant("x"))) is canned


def test_long_errors_are_cut():
    assert len(str(unit_error(ValueError("x" * 5000)))) < 330


@pytest.fixture
def heard():
    """Hear interrupts: a shell that starts the suite in the background has them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("busy", ["subject", "conversation", "endpoint"])
def test_an_interrupt_ends_at_once_and_nothing_lingers(busy):
    class Slow(Recording):
        def generate(self, requests):
            time.sleep(20 if busy == "subject" else 0)
            return super().generate(requests)

    class Hanging:
        async def generate_one(self, request):
            await asyncio.sleep(20)

    async def nap(unit):
        if busy == "conversation":
            await asyncio.sleep(20)

    task = Dialogue(between=nap)
    subject = Hanging() if busy == "endpoint" else Slow()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        converse(task, subject, task.units(None), Rng(0))
    assert time.perf_counter() - began < 5, "what it waits for takes 20"
    assert converse(Dialogue(), Recording(), [Unit("a", "q")], Rng(0))[0].status == "ok"


def test_five_thousand_conversations_take_well_under_a_second_of_cpu():
    units = [Unit(f"u{i}", content=f"q{i}") for i in range(5000)]
    began = time.process_time()
    outcomes = converse(Dialogue(turns=1), Canned(Constant("yes")), units, Rng(0))
    assert time.process_time() - began < 1.5, "0.2 s on an idle core"
    assert all(o.status == "ok" for o in outcomes)
