"""Live agents: the scripted clerk, and one that shows every write before it makes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from equipoise.core import (
    Generates,
    GeneratesAsync,
    Generation,
    Request,
    Rng,
    Usage,
    UsageError,
)
from equipoise.kit.language.canned import message_text
from equipoise.methods.interactive._tau.checking import checked_call, checking_text, is_yes
from equipoise.methods.interactive._tau.clerk import Decision, Step, about, next_step


@dataclass(frozen=True)
class Clerk:
    """Answers by rules, and goes wrong at a decision with a chance of its own for each task."""

    slip: float
    concentration: float | None
    rng: Rng

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation:
        step = next_step(request.prompt)
        if not isinstance(step, Decision):
            return _generation([step] * request.n)
        chance = self.chance(request)
        steps = []
        for sample in range(request.n):
            draw = Rng(request.seed or 0).child("decision", sample).numpy().random()
            steps.append(step.wrong if draw < chance else step.right)
        return _generation(steps)

    def chance(self, request: Request) -> float:
        """Return the chance of a slip in the task that a conversation is about."""
        if self.concentration is None or self.slip in (0.0, 1.0):
            return self.slip
        draws = self.rng.child(*about(request.prompt)).numpy()
        a, b = self.concentration * self.slip, self.concentration * (1 - self.slip)
        return float(draws.beta(a, b))


def _generation(steps: Sequence[Step]) -> Generation:
    texts = tuple(step if isinstance(step, str) else "" for step in steps)
    calls = tuple(() if isinstance(step, str) else (_call(*step),) for step in steps)
    words = sum(len(text.split()) for text in texts) + sum(map(len, calls))
    finish = tuple("tool_calls" if each else "stop" for each in calls)
    return Generation(texts, finish, calls, usage=Usage(0, words))


def _call(name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": "call_0", "type": "function", "function": function}


def confirming(subject: Any, prefixes: tuple[str, ...]) -> Any:
    """Return a subject that shows a write to the customer before it makes it.

    Raises
    ------
    UsageError
        If the subject does not generate text.
    """
    if not prefixes:
        return subject
    if isinstance(subject, GeneratesAsync):
        return _ConfirmsAsync(subject, prefixes)
    if isinstance(subject, Generates):
        return _Confirms(subject, prefixes)
    raise UsageError(f"{type(subject).__name__} does not generate text, so it cannot be an agent.")


class _Confirming:
    def __init__(self, subject: Any, prefixes: tuple[str, ...]) -> None:
        self.subject, self.prefixes = subject, prefixes

    def agreed(self, request: Request) -> Generation | None:
        """Return the call that the customer has just said yes to."""
        prompt = request.prompt
        if isinstance(prompt, str) or len(prompt) < 2:
            return None
        shown, reply = prompt[-2], prompt[-1]
        if shown.get("role") != "assistant" or reply.get("role") != "user":
            return None
        call = checked_call(message_text(shown))
        if call is None or not is_yes(message_text(reply)):
            return None
        return _generation([call] * request.n)

    def shown(self, answer: Generation) -> Generation:
        """Return an answer with a question in place of each write."""
        calls = list(answer.tool_calls) or [()] * len(answer.texts)
        texts, finish = list(answer.texts), list(answer.finish)
        for place, each in enumerate(calls):
            question = self._question(each[0]) if each else None
            if question is not None:
                texts[place], calls[place] = question, ()
                finish[place : place + 1] = ["stop"] if finish else []
        return replace(answer, texts=tuple(texts), tool_calls=tuple(calls), finish=tuple(finish))

    def _question(self, call: Any) -> str | None:
        """Return the question about a call that writes; one that cannot be read is let through."""
        function = call.get("function", {}) if isinstance(call, dict) else {}
        name, given = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or not name.startswith(self.prefixes):
            return None
        try:
            arguments = json.loads(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            return None
        return checking_text(name, arguments) if isinstance(arguments, dict) else None


class _Confirms(_Confirming):
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        found = [self.agreed(request) for request in requests]
        open_ = [r for r, done in zip(requests, found, strict=True) if done is None]
        answers = iter(self.subject.generate(open_)) if open_ else iter(())
        return [self.shown(next(answers)) if done is None else done for done in found]


class _ConfirmsAsync(_Confirming):
    @property
    def max_connections(self) -> int | None:
        return getattr(self.subject, "max_connections", None)

    async def generate_one(self, request: Request) -> Generation:
        agreed = self.agreed(request)
        return agreed or self.shown(await self.subject.generate_one(request))
