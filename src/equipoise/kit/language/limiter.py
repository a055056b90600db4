"""How many calls to an endpoint may be under way at once, learned from how it copes."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class Limiter:
    """Lets in as many calls as the endpoint bears: one more a success, half after a failure.

    Growth is by one a success until the first failure, and by one a round
    after it (additive increase, multiplicative decrease). Used as an
    asynchronous context manager around a call, in one event loop.

    Parameters
    ----------
    most
        Never more calls at once than this.
    start
        Calls at once in the beginning.
    per_minute
        Most attempts a minute, evenly spaced, or None.

    Examples
    --------
    >>> limiter = Limiter(most=16)
    >>> limiter.pressed(began=0.0, now=0.5)
    >>> limiter.pressed(began=0.1, now=0.6)  # sent before the limit was lowered: the same news
    >>> limiter.limit
    4.0
    """

    def __init__(self, most: int, *, start: int = 8, per_minute: float | None = None) -> None:
        self.most = most
        self.limit = float(min(start, most))
        self.active = 0
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = self._resume = float("-inf")
        self._lowered: float | None = None
        self._queue: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        while self.active >= int(self.limit):
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            try:
                await place
            except asyncio.CancelledError:
                self._let_in()  # the turn may have been given to this call already
                raise
        self.active += 1

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.active -= 1
        self._let_in()

    async def pace(self) -> None:
        """Wait until the next attempt may be sent."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._resume)
        if self._gap:
            at = max(at, self._next)
            self._next = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)

    def succeeded(self) -> None:
        """Note that a call went well."""
        step = 1.0 if self._lowered is None else 1.0 / self.limit
        self.limit = min(float(self.most), self.limit + step)
        self._let_in()

    def pressed(self, began: float, now: float, *, wait: float = 0.0) -> None:
        """Note that an attempt failed in a way that fewer calls might mend.

        Parameters
        ----------
        began, now
            The loop's time when the attempt was sent, and now.
        wait
            Seconds the endpoint asks everyone to wait.
        """
        self._resume = max(self._resume, now + wait)
        if self._lowered is None or began >= self._lowered:
            self._lowered = now
            self.limit = max(1.0, self.limit / 2)

    def _let_in(self) -> None:
        free = int(self.limit) - self.active
        while free > 0 and self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1
