"""A subject that is not on trial, such as a simulated user, asked by many conversations at once."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

from equipoise.core import Generates, GeneratesAsync, Generation, Request, UsageError
from equipoise.kit.language.talk import Conversation, _Hub

Ask = Callable[[Request], Awaitable[Generation]]


def shared(subject: Any) -> Ask:
    """Return a coroutine function that asks a subject, batched with all who wait at that moment.

    Parameters
    ----------
    subject
        Live, with `Generates` or `GeneratesAsync`. Give a request its seed: there is no
        conversation to take one from.

    Raises
    ------
    UsageError
        If the subject cannot generate.

    Examples
    --------
    >>> import asyncio
    >>> from equipoise.kit.language.canned import Canned
    >>> sizes = []
    >>> class Counts(Canned):
    ...     def generate(self, requests):
    ...         sizes.append(len(requests))
    ...         return super().generate(requests)
    >>> async def both():
    ...     ask = shared(Counts(lambda request: "yes"))
    ...     return await asyncio.gather(ask(Request("a")), ask(Request("b")))
    >>> [answer.text for answer in asyncio.run(both())], sizes
    (['yes', 'yes'], [2])
    """
    if isinstance(subject, GeneratesAsync):
        return subject.generate_one
    if not isinstance(subject, Generates):
        raise UsageError(f"{type(subject).__name__} does not generate text.")
    hub = _Hub(subject)
    hub.live = sys.maxsize  # nobody knows how many will ask: a pause sends the batch

    async def ask(request: Request) -> Generation:
        return await hub.ask(cast(Conversation, _Asker()), request)

    return ask


class _Asker:
    """Stands for one request in the hub."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = 0
