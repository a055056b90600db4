"""Environments that answer back: a state, tools, a policy, a simulated user, a goal.

An `Environment` is one episode. Write its tools as methods marked with `tool`; `hold_dialogue` lets
an agent work in it: the agent's tool calls are done, what it says otherwise goes to the user, until
the user is satisfied, a tool ends the episode, or a limit does.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from equipoise.core import Message, Request, Rng, Talk, UnitError, UsageError
from equipoise.kit.language.talk import answer_message
from equipoise.kit.language.tools import Called, Tool, Toolbox

Ended = Literal["user", "tool", "steps", "tokens", "time"]
_Method = TypeVar("_Method", bound=Callable[..., Any])


def tool(method: _Method) -> _Method:
    """Mark a method of an `Environment` as one of its tools."""
    method.equipoise_tool = True  # type: ignore[attr-defined]
    return method


class User(Protocol):
    """Who the agent talks to."""

    async def reply(self, said: str) -> str | None:
        """Return the answer to what the agent said, None when there is nothing left to say.

        It is asked with the agent's greeting first. A user that cannot go on raises
        `UnitError`, of kind ``user`` unless it says otherwise.
        """


class Environment(ABC):
    """One episode: make it with a fresh state, let an agent work, ask for its scores.

    ``policy`` is the agent's system message. Tools are the methods marked with `tool`, in the
    order they are written; one that sets ``over`` ends the episode. Raise `ToolError` in a tool
    to refuse a call; the model reads the text.
    """

    policy: str = ""
    over: bool = False

    def tools(self) -> Iterable[Callable[..., Any] | Tool]:
        """Return the tools of this episode."""
        described = _described(type(self)).items()
        return [each.of(getattr(self, name)) for name, each in described]

    @abstractmethod
    def scores(self, dialogue: Dialogue) -> Mapping[str, float]:
        """Return the scores of the episode, given all that was said and done."""


@functools.cache
def _described(environment: type) -> dict[str, Tool]:
    """Return the tools of a class by attribute, described once for all its episodes."""
    found: dict[str, Any] = {}
    for cls in reversed(environment.__mro__):
        found |= {n: m for n, m in vars(cls).items() if hasattr(m, "equipoise_tool")}
    nobody: Any = object.__new__(environment)  # its methods are described, never called
    return {name: Tool(getattr(nobody, name)) for name in found}


@dataclass(frozen=True, slots=True)
class DialogueLimits:
    """When a dialogue is broken off.

    Parameters
    ----------
    steps
        Answers of the agent, tool calls and messages alike.
    turns
        Messages of the user.
    max_tokens
        New tokens in one answer of the agent.
    tokens
        New tokens of the agent in all; None for no limit.
    seconds
        On the clock; None for no limit.
    """

    steps: int = 30
    turns: int = 30
    max_tokens: int = 512
    tokens: int | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Dialogue:
    """What was said and done.

    Parameters
    ----------
    messages
        In OpenAI's shape, from the policy on.
    calls
        Tool calls, in order, with what came of each.
    said
        What the agent told the user, in order.
    ended
        By the ``user``, by a ``tool``, or by a limit: ``steps``, ``tokens`` or ``time``.
    steps
        Answers of the agent.
    """

    messages: list[Message] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ended: Ended = "steps"
    steps: int = 0

    @property
    def faults(self) -> dict[str, int]:
        """How many calls went wrong, by kind."""
        found: dict[str, int] = {}
        for call in self.calls:
            if call.fault:
                found[call.fault] = found.get(call.fault, 0) + 1
        return found


async def hold_dialogue(
    talk: Talk,
    environment: Environment,
    user: User,
    *,
    greeting: str = "Hi! How can I help you today?",
    limits: DialogueLimits | None = None,
    parallel: bool = False,
    temperature: float = 0.0,
    pace: Callable[[Called], None] | None = None,
) -> Dialogue:
    """Let an agent work in an environment and return what was said and done.

    Parameters
    ----------
    talk
        The agent, as `Task.attempt` is handed it.
    environment
        A fresh episode.
    user
        Who the agent talks to.
    greeting
        What the user is asked with first; the agent does not see it.
    limits
        When to break off.
    parallel
        Do all tool calls of an answer; otherwise the first alone.
    temperature
        Of the agent.
    pace
        Called after every tool call.

    Raises
    ------
    UnitError
        Of kind ``user`` where the simulated user failed, so that it is not held against the agent.
    """
    limits = limits or DialogueLimits()
    box = Toolbox(tuple(environment.tools()))
    found = Dialogue()
    if environment.policy:
        found.messages.append({"role": "system", "content": environment.policy})
    began = time.monotonic()
    turns, first = 1, await _reply(user, greeting)
    if first is None:
        raise UnitError("The simulated user said nothing.", "user")
    found.messages.append({"role": "user", "content": first})
    while found.steps < limits.steps:
        if limits.seconds is not None and time.monotonic() - began > limits.seconds:
            found.ended = "time"
            return found
        if limits.tokens is not None and talk.usage.output_tokens >= limits.tokens:
            found.ended = "tokens"
            return found
        generation = await talk.generate(
            Request(
                tuple(found.messages),
                max_tokens=limits.max_tokens,
                temperature=temperature,
                tools=box.schemas,
            )
        )
        found.steps += 1
        answer = answer_message(generation)
        calls: Sequence[Mapping[str, Any]] = answer.get("tool_calls") or ()
        if calls:
            calls = calls if parallel else calls[:1]
            found.messages.append(answer | {"tool_calls": list(calls)})
            for call in calls:
                done = box.call(call)
                found.calls.append(done)
                found.messages.append(_result(call, done))
                if pace is not None:
                    pace(done)
                if environment.over:
                    found.ended = "tool"
                    return found
            continue
        text = str(answer.get("content") or "")
        found.messages.append({"role": "assistant", "content": text})
        found.said.append(text)
        reply = await _reply(user, text)
        turns += 1
        if reply is None:
            found.ended = "user"
            return found
        if turns > limits.turns:
            break
        found.messages.append({"role": "user", "content": reply})
    found.ended = "steps"
    return found


def _result(call: Mapping[str, Any], done: Called) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "tool", "name": done.name, "content": done.content}
    if isinstance(call, Mapping) and call.get("id"):
        found["tool_call_id"] = call["id"]
    return found


async def _reply(user: User, said: str) -> str | None:
    try:
        return await user.reply(said)
    except UnitError as error:
        raise UnitError(str(error), "user" if error.kind == "error" else error.kind) from error
    except UsageError:
        raise
    except Exception as error:  # whatever a simulation raises is not the agent's fault
        text = " ".join(str(error).split())[:200]
        raise UnitError(
            f"The simulated user failed ({type(error).__name__}: {text}).", "user"
        ) from error


class ScriptedUser:
    """Says what a script says, line by line, and is then satisfied.

    Parameters
    ----------
    lines
        What to say, or a function of what the agent said and of the number of the turn, from 0,
        that returns it; None ends the dialogue.

    Examples
    --------
    >>> import asyncio
    >>> user = ScriptedUser(["Cancel W1.", "Yes."])
    >>> [asyncio.run(user.reply("...")) for _ in range(3)]
    ['Cancel W1.', 'Yes.', None]
    """

    def __init__(self, lines: Sequence[str] | Callable[[str, int], str | None]) -> None:
        self._lines, self._turn = lines, 0

    async def reply(self, said: str) -> str | None:
        turn, self._turn = self._turn, self._turn + 1
        if callable(self._lines):
            return self._lines(said, turn)
        return self._lines[turn] if turn < len(self._lines) else None


STOP = "###STOP###"
"""What a simulated user that is a model writes when it is satisfied."""


class ModelUser:
    """A language model that plays the user.

    Parameters
    ----------
    ask
        Generates the model's answers: a coroutine function of a `Request`, such as ``generate``
        of `equipoise.kit.language.talk.shared`.
    instruction
        Who the user is and what they want; the agent never sees it.
    rng
        Seeds its answers.
    temperature
        Of its answers.
    max_tokens
        In one answer.
    """

    def __init__(
        self,
        ask: Callable[[Request], Any],
        instruction: str,
        rng: Rng,
        *,
        temperature: float = 1.0,
        max_tokens: int = 256,
    ) -> None:
        self._ask, self._rng, self._instruction = ask, rng, instruction
        self._temperature, self._max_tokens = temperature, max_tokens
        self.messages: list[Message] = [{"role": "system", "content": _RULES + instruction}]

    async def reply(self, said: str) -> str | None:
        self.messages.append({"role": "user", "content": said})
        stream = self._rng.child("user", len(self.messages))
        generation = await self._ask(
            Request(
                tuple(self.messages),
                max_tokens=self._max_tokens,
                temperature=self._temperature,
                seed=stream.seed_for_request(),
            )
        )
        text: str = generation.text.strip()
        if not text:
            raise UnitError("The simulated user said nothing.", "user")
        if STOP in text:
            return None
        if leaks(text, self._instruction):
            raise UnitError("The simulated user read out its instruction.", "user")
        self.messages.append({"role": "assistant", "content": text})
        return text


_RULES = f"""You are a customer who writes to a service agent. Stay in this role.
- Write one short message at a time.
- Tell only what is needed for the next step; do not tell everything at once.
- Invent nothing: what your instruction does not say, you do not know.
- Do not repeat the instruction; put it in your own words.
- When you have said yes to something, wait until you are told that it is done.
- When your goal is reached, write {STOP} and nothing else.

Your instruction: """

_LEAK_WORDS = 25


def leaks(text: str, instruction: str, words: int = _LEAK_WORDS) -> bool:
    """Say whether a text repeats many words of an instruction in a row.

    Examples
    --------
    >>> leaks("I want my money back", "You want your money back.")
    False
    """
    parts = text.lower().split()
    told = " ".join(instruction.lower().split())
    return any(
        " ".join(parts[start : start + words]) in told for start in range(len(parts) - words + 1)
    )
