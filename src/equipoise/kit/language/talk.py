"""Conversations: many at once, their requests batched for a local model or sent together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar, cast

from equipoise.core import (
    Generates,
    GeneratesAsync,
    Generation,
    Message,
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
from equipoise.kit.language.loop import run

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_log = logging.getLogger("equipoise")

_CONCURRENCY = 64
_PATIENCE = 4  # idle turns of the event loop before a batch goes without the conversations that do
# something else; a step from one await to the next takes one or two turns


async def hold(
    task: Task,
    subject: Any,
    units: Sequence[Unit],
    rng_of_unit: Callable[[Unit], Rng],
    *,
    concurrency: int | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Hold the conversations of a task, many at once, and return their outcomes in order.

    From synchronous code call it through `run`, so that an interrupt ends it
    at once. Requests that wait at the same moment become one batch for a
    subject with `Generates` and concurrent calls for one with
    `GeneratesAsync`. An exception in one conversation becomes its error
    outcome and leaves the others alone; only `RunError`, an exception of
    ``on_outcome`` and an interrupt end all of them. What is generated does not
    depend on how conversations interleave: a request without a seed gets one
    from its unit's stream and its number.

    Parameters
    ----------
    task
        A task with `attempt`.
    subject
        A live subject with `Generates` or `GeneratesAsync`.
    units
        What to ask.
    rng_of_unit
        Gives a unit's own stream.
    concurrency
        Most conversations under way at once; by default what the subject
        names as ``max_connections``, else 64.
    on_outcome
        Called with each outcome as its conversation ends.

    Raises
    ------
    UsageError
        If the subject cannot generate.
    """
    answer, hub = None, None
    if isinstance(subject, GeneratesAsync):
        answer = subject.generate_one
    elif isinstance(subject, Generates):
        hub = _Hub(subject)
    else:
        raise UsageError(
            f"{type(task).__name__} holds conversations, and {type(subject).__name__} "
            "does not generate text: choose a subject with Generates or GeneratesAsync."
        )
    most = concurrency or getattr(subject, "max_connections", None) or _CONCURRENCY
    outcomes: list[Outcome | None] = [None] * len(units)
    waiting = iter(enumerate(units))

    async def work() -> None:
        try:
            for index, unit in waiting:
                talk = Conversation(rng_of_unit(unit), answer, hub, subject)
                outcome = outcomes[index] = await _attempt(task, talk, unit)
                if on_outcome is not None:
                    on_outcome(outcome)
        finally:
            if hub is not None:
                hub.leave()

    workers = [asyncio.ensure_future(work()) for _ in range(min(most, len(units)))]
    if hub is not None:
        hub.live = len(workers)
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return cast("list[Outcome]", outcomes)


def converse(task: Task, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
    """Hold the conversations of a task from synchronous code; a unit's stream is a child of rng."""
    return run(hold(task, subject, units, lambda unit: rng.child(unit.id)))


async def _attempt(task: Task, talk: Conversation, unit: Unit) -> Outcome:
    started = perf_counter()
    try:
        outcome = await task.attempt(talk, unit, talk.rng)
        if not isinstance(outcome, Outcome):
            raise UnitError(
                f"{type(task).__name__}: attempt must return an Outcome, "
                f"got {type(outcome).__name__}.",
                kind="bug",
            )
    except RunError:
        raise
    except Exception as error:
        _log.debug("%s: unit %s failed", type(task).__name__, unit.id, exc_info=True)
        outcome = error_outcome(unit, error)
    if not outcome.transcript:
        outcome.transcript = talk.transcript
    if outcome.usage == _NOTHING:
        outcome.usage = talk.usage
    if outcome.seconds is None:
        outcome.seconds = perf_counter() - started
    return outcome


_NOTHING = Usage()


class Conversation:
    """What `Task.attempt` is handed: asks the subject and keeps what was said.

    ``transcript`` holds the messages of every request and the answers to them,
    in the order of asking. A request that carries on from the transcript adds
    only what is new; any other is added whole. ``subject`` is the live subject, for tasks
    that go by how it was treated; they ask it through `generate` alone.
    """

    __slots__ = ("_answer", "_asked", "_hub", "_open", "rng", "subject", "transcript", "usage")

    def __init__(
        self,
        rng: Rng,
        answer: Callable[[Request], Coroutine[Any, Any, Generation]] | None,
        hub: _Hub | None,
        subject: Any = None,
    ) -> None:
        self.rng = rng
        self.subject = subject
        self.usage = Usage()
        self.transcript: list[Message] = []
        self._answer = answer
        self._hub = hub
        self._asked = 0
        self._open = 0  # requests that wait in the hub

    async def generate(self, request: Request) -> Generation:
        """Return the subject's answer."""
        if request.seed is None:
            stream = self.rng.child("request", self._asked)
            request = replace(request, seed=stream.seed_for_request())
        self._asked += 1
        places = self._note(request)
        try:
            if self._answer is not None:
                generation = await self._answer(request)
            else:
                assert self._hub is not None
                generation = await self._hub.ask(self, request)
        except BaseException:
            self.transcript = [m for m in self.transcript if not any(m is p for p in places)]
            raise
        self.usage = self.usage + generation.usage
        for sample, place in enumerate(places):
            place |= kept_message(generation, sample)
        return generation

    def _note(self, request: Request) -> list[dict[str, Any]]:
        said = as_messages(request.prompt)
        known = len(self.transcript)
        if known > len(said) or any(
            old is not new and _said(old) != _said(new)
            for old, new in zip(self.transcript, said, strict=False)
        ):
            known = 0
        self.transcript.extend(said[known:])
        # Places are kept now, so that the order is that of asking and not of answering.
        places: list[dict[str, Any]] = [{"role": "assistant"} for _ in range(request.n)]
        self.transcript.extend(places)
        return places


class _Hub:
    """Makes one batch of the requests that wait at the same moment."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.live = 0  # conversations under way
        self._waiting = 0  # those of them with a request here
        self._pending: list[tuple[Conversation, Request, asyncio.Future[Generation]]] = []
        self._events = self._seen = self._idle = 0
        self._scheduled = False

    def ask(self, talk: Conversation, request: Request) -> asyncio.Future[Generation]:
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._pending.append((talk, request, future))
        self._waiting += talk._open == 0
        talk._open += 1
        self._wake()
        return future

    def leave(self) -> None:
        self.live -= 1
        if self._pending:
            self._wake()

    def _wake(self) -> None:
        self._events += 1
        if not self._scheduled:
            self._scheduled = True
            self._idle = 0
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self._idle = self._idle + 1 if self._events == self._seen else 0
        self._seen = self._events
        if self._waiting < self.live and self._idle < _PATIENCE:
            asyncio.get_running_loop().call_soon(self._settle)
            return
        self._scheduled = False
        asked, self._pending, self._waiting = self._pending, [], 0
        for talk, _, _ in asked:
            talk._open = 0
        asked = [each for each in asked if not each[2].done()]
        if not asked:
            return
        try:
            answers = generate_each(self.subject, [request for _, request, _ in asked])
        except Exception as error:
            for _, _, future in asked:
                future.set_exception(error)
            return
        for (_, _, future), answer in zip(asked, answers, strict=True):
            if isinstance(answer, UnitError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def generate_each(subject: Any, requests: Sequence[Request]) -> list[Generation | UnitError]:
    """Return an answer or an error for each request, whatever happens to the others.

    A batch that fails is halved until the requests that cause it are alone,
    so that a bad request or too little memory costs those requests only. An
    endpoint's requests run concurrently.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned, Lookup
    >>> knows = Canned(Lookup({"2+2?": "4"}))
    >>> [type(a).__name__ for a in generate_each(knows, [Request("2+2?"), Request("3+3?")])]
    ['Generation', 'UnitError']
    """
    if isinstance(subject, GeneratesAsync):
        return run(_concurrently(subject, requests))
    return each(subject.generate, requests)


async def _concurrently(
    subject: GeneratesAsync, requests: Sequence[Request]
) -> list[Generation | UnitError]:
    async def one(request: Request) -> Generation | UnitError:
        try:
            return await subject.generate_one(request)
        except (RunError, UsageError):
            raise
        except Exception as error:
            return unit_error(error)

    tasks = [asyncio.ensure_future(one(request)) for request in requests]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def each(
    call: Callable[[Sequence[_Given]], Sequence[_Found]], items: Sequence[_Given]
) -> list[_Found | UnitError]:
    """Return ``call(items)`` with an error in place of each item that cannot be had.

    `UsageError` and `RunError` are about the whole and pass through.

    Examples
    --------
    >>> each(lambda numbers: [1 / number for number in numbers], [1, 0, 2])
    [1.0, UnitError('ZeroDivisionError: division by zero'), 0.5]
    """
    if not items:
        return []
    try:
        found = list(call(items))
        if len(found) != len(items):
            raise UnitError(f"{len(found)} answers came for {len(items)} requests.", "garbage")
        return cast("list[_Found | UnitError]", found)
    except (RunError, UsageError):
        raise
    except Exception as error:
        if len(items) == 1:
            return [unit_error(error)]
        _log.debug("a batch of %d failed and is halved", len(items), exc_info=True)
    middle = len(items) // 2
    return each(call, items[:middle]) + each(call, items[middle:])


class _Batched:
    """An endpoint seen as a subject with `Generates`."""

    def __init__(self, subject: GeneratesAsync) -> None:
        self.subject = subject

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        answers = generate_each(self.subject, requests)
        for answer in answers:
            if isinstance(answer, UnitError):
                raise answer
        return cast("list[Generation]", answers)

    async def generate_one(self, request: Request) -> Generation:
        return await self.subject.generate_one(request)


def as_batch(subject: Any) -> Generates:
    """Return a subject with `Generates`, whose ``generate`` calls an endpoint concurrently.

    One request that fails fails the call; `generate_each` tells them apart.
    """
    return subject if isinstance(subject, Generates) else _Batched(subject)


def unit_error(error: Exception) -> UnitError:
    """Return any exception as the error of one unit: a kind and one sentence."""
    if isinstance(error, UnitError):
        return error
    if isinstance(error, UsageError):
        return UnitError(str(error), kind="usage")
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = text[:297] + "..."
    name = type(error).__name__
    kind = "timeout" if isinstance(error, TimeoutError) else name
    return UnitError(f"{name}: {text}" if text else name, kind)


def error_outcome(unit: Unit, error: Exception) -> Outcome:
    """Return the outcome of a unit that failed."""
    found = unit_error(error)
    return Outcome(unit.id, status="error", error_kind=found.kind, error=str(found))


def as_messages(prompt: str | Sequence[Message]) -> Sequence[Message]:
    """Return a prompt as chat messages; plain text becomes one message of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def answer_message(generation: Generation, sample: int = 0) -> dict[str, Any]:
    """Return an answer as the assistant message that carries a conversation on."""
    message: dict[str, Any] = {"role": "assistant", "content": generation.texts[sample]}
    if len(generation.tool_calls) > sample and generation.tool_calls[sample]:
        message["tool_calls"] = list(generation.tool_calls[sample])
    return message


def kept_message(generation: Generation, sample: int = 0) -> dict[str, Any]:
    """Return an answer as a transcript keeps it: with its log-probabilities, if it has them."""
    return answer_message(generation, sample) | _log_probs(generation, sample)


def _log_probs(generation: Generation, sample: int) -> dict[str, Any]:
    """Return the log-probability of each token of an answer, as chat endpoints give them."""
    if len(generation.log_probs) <= sample or len(generation.tokens) <= sample:
        return {}
    pairs = zip(generation.tokens[sample], generation.log_probs[sample].tolist(), strict=False)
    found = [{"token": token, "logprob": round(value, 4)} for token, value in pairs]
    return {"logprobs": {"content": found}}


def _said(message: Message) -> Mapping[str, Any]:
    """Return a message without what is kept for people alone."""
    return {key: value for key, value in message.items() if key != "logprobs"}
