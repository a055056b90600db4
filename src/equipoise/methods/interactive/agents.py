r"""Agents that use tools by writing text: think and act (ReAct), or act alone.

A subject that knows tool calls needs no treatment. These make an agent of any subject that
generates text: tools are described in the system message, each answer is one action, and results
come back as observations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    Generation,
    Message,
    Request,
    Rng,
    Treatment,
    UsageError,
)

RESPOND = "respond"
"""The action that says something to the user."""

_ACTION = "Action:"
_FORMAT = f"""You act by writing one action at a time, in this form:
{{thought}}{_ACTION} {{{{"name": <tool>, "arguments": <object>}}}}
To say something to the user, use the tool {RESPOND} with the argument content.
After each action you are told what came of it. Write nothing after the action.

Tools:
{{tools}}"""
_THOUGHT = "Thought: <one line on what to do next, and why>\n"


@dataclass(frozen=True)
class ReactAgent(Treatment):
    """Let the subject think a line before each action, and act by writing JSON.

    Requests without tools are left as they are. An answer without an action that can be read is
    taken as words to the user.

    References
    ----------
    Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models", ICLR 2023.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned
    >>> written = 'Thought: look first.\\nAction: {"name": "look", "arguments": {"order": "W1"}}'
    >>> agent = ReactAgent().apply(Canned(lambda request: written), Rng(0))
    >>> tool = {"function": {"name": "look", "description": "Show an order.", "parameters": {}}}
    >>> ask = Request([{"role": "user", "content": "Where is W1?"}], tools=(tool,))
    >>> agent.generate([ask])[0].tool_calls[0][0]["function"]
    {'name': 'look', 'arguments': '{"order": "W1"}'}
    """

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})

    def apply(self, subject: Any, rng: Rng) -> Any:
        return text_agent(subject, thinks=True)


@dataclass(frozen=True)
class ActAgent(Treatment):
    """Let the subject act by writing JSON, without a thought before.

    Otherwise it is as `ReactAgent`.

    Examples
    --------
    >>> from equipoise.kit.language.canned import Canned
    >>> said = Canned(lambda request: 'Action: {"name": "respond", "arguments": {"content": "Hi"}}')
    >>> tool = {"function": {"name": "look", "description": "Show an order.", "parameters": {}}}
    >>> ask = Request([{"role": "user", "content": "Hello"}], tools=(tool,))
    >>> ActAgent().apply(said, Rng(0)).generate([ask])[0].text
    'Hi'
    """

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})

    def apply(self, subject: Any, rng: Rng) -> Any:
        return text_agent(subject, thinks=False)


def text_agent(subject: Any, *, thinks: bool) -> Any:
    """Return a subject that takes requests with tools and answers with tool calls.

    Parameters
    ----------
    subject
        Live, with `Generates` or `GeneratesAsync`; it need not know tools.
    thinks
        Whether it writes a thought before each action.

    Raises
    ------
    UsageError
        If the subject does not generate text.
    """
    if isinstance(subject, GeneratesAsync):
        return _AgentAsync(subject, thinks)
    if isinstance(subject, Generates):
        return _Agent(subject, thinks)
    raise UsageError(f"{type(subject).__name__} does not generate text, so it cannot be an agent.")


class _Protocol:
    def __init__(self, subject: Any, thinks: bool) -> None:
        self.subject, self.thinks = subject, thinks

    def written(self, request: Request) -> Request:
        """Return a request with tools as one of plain messages."""
        if not request.tools or isinstance(request.prompt, str):
            return request
        thought = _THOUGHT if self.thinks else ""
        told = _FORMAT.format(thought=thought, tools=_described(request.tools))
        messages = [_as_text(message) for message in request.prompt]
        if messages and messages[0]["role"] == "system":
            told = f"{messages.pop(0)['content']}\n\n{told}"
        prompt = ({"role": "system", "content": told}, *messages)
        return replace(request, prompt=prompt, tools=(), stop=(*request.stop, "Observation:"))

    def read(self, request: Request, answer: Generation) -> Generation:
        """Return an answer's actions as tool calls and words."""
        if not request.tools or isinstance(request.prompt, str):
            return answer
        actions = [action(text) for text in answer.texts]
        calls = tuple(() if name == RESPOND else (_call(name, given),) for name, given in actions)
        said = zip(answer.texts, actions, strict=True)
        return replace(
            answer,
            texts=tuple(
                str(given.get("content", "")) if name == RESPOND else _before(text)
                for text, (name, given) in said
            ),
            tool_calls=calls,
            finish=tuple("tool_calls" if call else "stop" for call in calls),
        )


class _Agent(_Protocol):
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        answers = self.subject.generate([self.written(request) for request in requests])
        return [self.read(*pair) for pair in zip(requests, answers, strict=True)]


class _AgentAsync(_Protocol):
    async def generate_one(self, request: Request) -> Generation:
        return self.read(request, await self.subject.generate_one(self.written(request)))


def action(text: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name and arguments of the last action in a text.

    A text without one that can be read is words to the user.

    Examples
    --------
    >>> action('Action: {"name": "look", "arguments": {"order": "W1"}} and so on')
    ('look', {'order': 'W1'})
    >>> action("I do not know.")
    ('respond', {'content': 'I do not know.'})
    """
    place = text.rfind(_ACTION)
    if place >= 0:
        rest = text[place + len(_ACTION) :].lstrip().removeprefix("```json").lstrip("`\n ")
        try:
            found, _ = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("name"), str):
            given = found.get("arguments", {})
            if isinstance(given, dict):
                return found["name"], given
    return RESPOND, {"content": text.strip()}


def _before(text: str) -> str:
    """Return what stands before the action: the thought."""
    return text[: text.rfind(_ACTION)].strip()


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": "call_0", "type": "function", "function": function}


def _described(tools: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(each["function"], ensure_ascii=False) for each in tools)


def _as_text(message: Message) -> dict[str, Any]:
    """Return a message of a conversation with tools as plain text of the user or the assistant."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        return {"role": "user", "content": f"Observation: {content}"}
    if message["role"] != "assistant":
        return dict(message)
    calls = message.get("tool_calls") or ()
    said: list[Any] = [
        {"name": call["function"]["name"], "arguments": _parsed(call["function"].get("arguments"))}
        for call in calls
    ]
    if not said:
        said, content = [{"name": RESPOND, "arguments": {"content": content}}], ""
    lines = [f"{_ACTION} {json.dumps(each, ensure_ascii=False)}" for each in said]
    return {"role": "assistant", "content": "\n".join([*([content] if content else []), *lines])}


def _parsed(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
