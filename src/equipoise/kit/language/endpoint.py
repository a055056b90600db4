"""A language model behind an OpenAI-compatible address."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import numpy as np

from equipoise.core import Generation, Request, UnitError, Usage, UsageError
from equipoise.kit.language.limiter import Limiter

_OPENAI = "https://api.openai.com/v1"
_LONGEST_WAIT = 120.0  # seconds; what a server may ask everyone to wait


@dataclass(frozen=True)
class Prices:
    """Dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the dollars that so many tokens cost."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


class Endpoint:
    """A live subject with `GeneratesAsync`: chat completions, and completions of plain text.

    Failed attempts are repeated by the ``openai`` client, with growing random
    pauses or after the time the server names; how many calls run at once
    follows how the server copes (`Limiter`). A call that fails for good raises
    `UnitError` with kind ``connection``, ``timeout``, ``garbage``,
    ``rate_limit``, ``server``, ``authentication``, ``request`` or
    ``unsupported``.

    Parameters
    ----------
    model
        The name the server knows it by.
    base_url
        Address up to and with ``/v1``; by default that in ``OPENAI_BASE_URL``,
        else OpenAI's.
    api_key_env
        Environment variable that holds the key. It is read when a connection
        is made and kept nowhere else. A server on this machine needs none.
    max_connections
        Most calls at once.
    timeout
        Seconds that one attempt may take.
    max_retries
        Attempts after the first.
    requests_per_minute
        Most attempts a minute, or None.
    prices
        What tokens cost.

    Raises
    ------
    UsageError
        If there is no key, or the address is not one.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        max_connections: int = 64,
        timeout: float = 120.0,
        max_retries: int = 6,
        requests_per_minute: float | None = None,
        prices: Prices | None = None,
    ) -> None:
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        self.api_key_env = api_key_env
        self.max_connections = max_connections
        self.timeout = timeout
        self.max_retries = max_retries
        self.requests_per_minute = requests_per_minute
        self.prices = prices or Prices()
        self.host = host_of(self.base_url)
        self._key()
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lines"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lines=WeakKeyDictionary())

    def __repr__(self) -> str:
        return f"Endpoint({self.model!r}, base_url={self.base_url!r})"

    async def generate_one(self, request: Request) -> Generation:
        """Return the answer to one request."""
        line = self._line()
        generation = await self._ask(line, request)
        # A server may give fewer samples than were asked for; the rest are asked for again.
        while len(generation.texts) < request.n:
            had = len(generation.texts)
            seed = None if request.seed is None else request.seed + had
            more = await self._ask(line, replace(request, n=request.n - had, seed=seed))
            generation = _joined(generation, more)
        return generation

    async def _ask(self, line: _Line, request: Request) -> Generation:
        chat = not isinstance(request.prompt, str)
        body = self._body(request)
        for last in (False, True):
            async with line.limiter:
                raw = await self._send(line, chat, body)
            try:
                generation = self._read(raw, request, chat)
            except UnitError as error:
                if last or error.kind != "garbage":
                    raise
            else:
                line.limiter.succeeded()
                return generation
        raise AssertionError("unreachable")

    async def _send(self, line: _Line, chat: bool, body: dict[str, Any]) -> bytes:
        import openai

        attempt = _Attempt()
        _attempt.set(attempt)
        route = line.client.chat.completions if chat else line.client.completions
        try:
            # The client's own limit is a read's: a server that drips would never reach it.
            async with asyncio.timeout(self.timeout * (self.max_retries + 1)):
                # Raw, because the client lets anything that is JSON pass for an answer.
                return bytes((await route.with_raw_response.create(**body)).content)
        except (openai.APITimeoutError, TimeoutError) as error:
            attempt.failed(line.limiter)
            raise UnitError(
                f"{self.host} did not answer within {self.timeout:g} s"
                f" in {self.max_retries + 1} attempts.",
                "timeout",
            ) from error
        except openai.APIStatusError as error:
            raise self._status_error(error) from None
        except openai.APIConnectionError as error:
            attempt.failed(line.limiter)
            why = error.__cause__
            detail = f" ({type(why).__name__}: {why})" if why is not None and str(why) else ""
            raise UnitError(
                f"{self.host} could not be reached or broke off{self._clean(detail)}.",
                "connection",
            ) from error

    def _status_error(self, error: Any) -> UnitError:
        status = error.status_code
        said = self._clean(_message_of(error.body) or str(error))
        if status == 429:
            return UnitError(f"{self.host} limits the rate of requests: {said}", "rate_limit")
        if status >= 500:
            return UnitError(f"{self.host} failed with status {status}: {said}", "server")
        if status in (401, 403):
            return UnitError(
                f"{self.host} refuses the key in {self.api_key_env} (status {status}): {said}",
                "authentication",
            )
        return UnitError(f"{self.host} refuses the request (status {status}): {said}", "request")

    def _body(self, request: Request) -> dict[str, Any]:
        chat = not isinstance(request.prompt, str)
        # OpenAI's newer models take only the newer name, other servers only the older.
        newer = chat and self.host == "api.openai.com"
        body: dict[str, Any] = {
            "model": self.model,
            "messages" if chat else "prompt": list(request.prompt) if chat else request.prompt,
            "max_completion_tokens" if newer else "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }
        if request.n != 1:
            body["n"] = request.n
        if request.top_p != 1.0:
            body["top_p"] = request.top_p
        if request.stop:
            body["stop"] = list(request.stop)
        if request.tools:
            body["tools"] = list(request.tools)
        if request.seed is not None:
            body["seed"] = request.seed
        if request.log_probs:
            body["logprobs"] = True if chat else 1
        return body

    def _read(self, raw: bytes, request: Request, chat: bool) -> Generation:
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            begin = raw[:40].decode("utf-8", "replace")
            raise UnitError(f"{self.host} did not answer in JSON: {begin!r}.", "garbage")
        if found.get("error") and not found.get("choices"):
            said = self._clean(_message_of(found) or "no reason given")
            raise UnitError(f"{self.host} answered with an error: {said}", "server")
        choices = found.get("choices")
        if not isinstance(choices, list) or not choices:
            raise UnitError(f"{self.host} answered without choices.", "garbage")
        texts, finish, calls, scores, tokens = [], [], [], [], []
        for choice in choices[: request.n]:
            made = choice if isinstance(choice, dict) else {}
            message = made.get("message") if chat else made
            if not isinstance(message, dict):
                raise UnitError(f"{self.host} answered without a message.", "garbage")
            texts.append(self._text(message.get("content" if chat else "text")))
            finish.append(str(made.get("finish_reason") or "stop"))
            called = message.get("tool_calls") or ()
            if not all(isinstance(call, dict) for call in called):
                raise UnitError(f"{self.host} answered with malformed tool calls.", "garbage")
            calls.append(tuple(called))
            if request.log_probs:
                scores.append(self._log_probs(made.get("logprobs"), chat))
                tokens.append(_tokens(made["logprobs"], chat))
        return Generation(
            tuple(texts),
            tuple(finish),
            tuple(calls) if any(calls) else (),
            tuple(scores),
            self._usage(found.get("usage")),
            tuple(tokens),
        )

    def _text(self, content: Any) -> str:
        if content is None:
            return ""
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(part for part in parts if isinstance(part, str))
        if not isinstance(content, str):
            raise UnitError(f"{self.host} answered with content that is not text.", "garbage")
        # A lone surrogate is legal in JSON and can be stored nowhere.
        return content.encode("utf-8", "replace").decode("utf-8")

    def _log_probs(self, found: Any, chat: bool) -> np.ndarray:
        try:
            if chat:
                return np.array([token["logprob"] for token in found["content"]], float)
            return np.array([np.nan if p is None else p for p in found["token_logprobs"]], float)
        except (TypeError, KeyError, ValueError):
            raise UnitError(
                f"{self.host} gives no log-probabilities for {self.model}.", "unsupported"
            ) from None

    def _usage(self, found: Any) -> Usage:
        known = found if isinstance(found, Mapping) else {}
        counts = [known.get(name) for name in ("prompt_tokens", "completion_tokens")]
        given, made = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
        return Usage(given, made, self.prices.of(given, made))

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = self._connect()
        return line

    def _connect(self) -> _Line:
        import openai

        limiter = Limiter(self.max_connections, per_minute=self.requests_per_minute)

        async def before(request: Any) -> None:
            attempt = _attempt.get()
            # The client counts its attempts in a header: a second one means the first failed,
            # and one that no answer came to did so in silence.
            if request.headers.get("x-stainless-retry-count", "0") != "0":
                attempt.failed(limiter)
            await limiter.pace()
            attempt.sent()

        async def after(response: Any) -> None:
            if response.status_code == 429 or response.status_code >= 500:
                _attempt.get().failed(limiter, _seconds(response.headers.get("retry-after")))

        client = openai.AsyncOpenAI(
            api_key=self._key(),
            base_url=self.base_url,
            max_retries=self.max_retries,
            timeout=self.timeout,
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=self.timeout,
                event_hooks={"request": [before], "response": [after]},
                trust_env=not is_loopback(self.base_url),
            ),
        )
        return _Line(client, limiter)

    def _key(self) -> str:
        key = os.environ.get(self.api_key_env, "")
        if not key and not is_loopback(self.base_url):
            raise UsageError(
                f"openai: the environment variable {self.api_key_env} holds no key for "
                f"{self.host}: set it, or name another variable in api_key_env."
            )
        return key or "none"

    def _clean(self, text: str) -> str:
        key = os.environ.get(self.api_key_env, "")
        text = " ".join(text.replace(key, "***").split() if key else text.split())
        return text if len(text) <= 300 else text[:297] + "..."


class _Attempt:
    """The attempt that a call is at: when it was sent, and whether its failure is known."""

    def __init__(self) -> None:
        self.sent()

    def sent(self) -> None:
        self.began = asyncio.get_running_loop().time()
        self.known = False

    def failed(self, limiter: Limiter, wait: float = 0.0) -> None:
        if not self.known:
            limiter.pressed(self.began, asyncio.get_running_loop().time(), wait=wait)
        self.known = True


_attempt: ContextVar[_Attempt] = ContextVar("equipoise_attempt")


@dataclass(frozen=True)
class _Line:
    """What calls of one event loop share."""

    client: Any
    limiter: Limiter


def host_of(base_url: str) -> str:
    """Return the host of an address, or raise `UsageError` with what is wrong with it."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"openai: base_url must be an address such as http://localhost:8000/v1, "
            f"got {base_url!r}."
        )
    if parts.username or parts.password:
        raise UsageError(
            "openai: base_url must not hold a name or password, for it is kept with the results: "
            "put the key into the environment."
        )
    return parts.hostname


def is_loopback(base_url: str) -> bool:
    """Say whether an address is on this machine."""
    name = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _joined(one: Generation, more: Generation) -> Generation:
    samples = len(one.texts)
    none: tuple[tuple[Mapping[str, Any], ...], ...] = ((),)
    calls = none[:0]
    if one.tool_calls or more.tool_calls:
        calls = (one.tool_calls or none * samples) + (more.tool_calls or none * len(more.texts))
    return Generation(
        one.texts + more.texts,
        one.finish + more.finish,
        calls,
        one.log_probs + more.log_probs,
        one.usage + more.usage,
        one.tokens + more.tokens,
    )


def _tokens(found: Mapping[str, Any], chat: bool) -> tuple[str, ...]:
    """Return the text of each token that a log-probability is of."""
    if chat:
        return tuple(str(token.get("token", "")) for token in found["content"])
    return tuple(map(str, found.get("tokens") or ()))


def _message_of(body: Any) -> str:
    found = body.get("error", body) if isinstance(body, Mapping) else body
    found = found.get("message", "") if isinstance(found, Mapping) else found
    return found if isinstance(found, str) else ""


def _seconds(text: str | None) -> float:
    try:
        wait = float(text or 0)
    except ValueError:  # a date; the client reads those for the request itself
        return 0.0
    return min(max(wait, 0.0), _LONGEST_WAIT)
