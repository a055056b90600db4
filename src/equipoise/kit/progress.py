"""Telling how long work goes, from deep inside a method to whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("equipoise_progress", default=None)


def report(what: str, done: int, total: int) -> None:
    """Say that ``done`` of ``total`` steps are done; nothing happens when no one listens.

    Parameters
    ----------
    what
        What is going on, in a few words: ``"fine-tuning, loss 2.31"``.
    done, total
        Steps; 0 of 0 is a remark that should stay.

    Examples
    --------
    >>> report("training", 1, 10)
    """
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Hear what is reported inside the block.

    Examples
    --------
    >>> with listening(print):
    ...     report("training", 1, 10)
    training 1 10
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
