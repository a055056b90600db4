"""Runs coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

_Found = TypeVar("_Found")


class _Loop:
    """The event loop of one thread of one process, kept so that connections stay open."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.loop.close()


_local = threading.local()


def run(coroutine: Coroutine[Any, Any, _Found]) -> _Found:
    """Run a coroutine to its end from synchronous code, in a notebook as well.

    An interrupt is raised at once, wherever it strikes, and cancels what runs.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_here(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _run_here(coroutine: Coroutine[Any, Any, _Found]) -> _Found:
    kept: _Loop | None = getattr(_local, "kept", None)
    if kept is None or kept.process != os.getpid() or kept.loop.is_closed():
        kept = _local.kept = _Loop()
    loop = kept.loop
    main = loop.create_task(coroutine)
    try:
        # Not asyncio.run: it turns an interrupt into a cancellation that waits
        # until a batch of a local model has ended.
        return loop.run_until_complete(main)
    finally:
        if not main.done() or asyncio.all_tasks(loop):
            del _local.kept
            _cancel_all(loop)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    while any(not task.done() for task in tasks):
        # A task that waits for the interrupted one hears of the interrupt too, and raises it.
        with suppress(KeyboardInterrupt, SystemExit):
            loop.run_until_complete(asyncio.wait(tasks))
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it
