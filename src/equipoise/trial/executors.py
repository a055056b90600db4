"""Where shards run: in this process, or in several."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Protocol

from equipoise.core import Outcome, RunError
from equipoise.trial.work import Shard, run_shard

OnOutcome = Callable[[Shard, Outcome], None]


class Executor(Protocol):
    """Runs shards and yields each with its outcomes, in any order.

    ``on_outcome``, where the executor can call it, hears of single outcomes
    before their shard is whole.
    """

    def run(
        self, shards: Iterable[Shard], on_outcome: OnOutcome | None = None
    ) -> Iterator[tuple[Shard, list[Outcome]]]: ...


class Local:
    """Runs shards one after another in this process."""

    def run(
        self, shards: Iterable[Shard], on_outcome: OnOutcome | None = None
    ) -> Iterator[tuple[Shard, list[Outcome]]]:
        """Yield each shard with its outcomes, in order."""
        for shard in shards:
            if on_outcome is None:
                yield shard, run_shard(shard)
            else:
                yield shard, run_shard(shard, lambda o, s=shard: on_outcome(s, o))  # type: ignore[misc]


class Processes:
    """Runs shards in worker processes that share nothing but the work.

    Parameters
    ----------
    workers
        How many processes.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._kept: ProcessPoolExecutor | None = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the processes, and the subjects they have made, from one `run` to the next."""
        self._kept = self._pool()
        try:
            yield
        finally:
            _end(self._kept)
            self._kept = None

    def _pool(self) -> ProcessPoolExecutor:
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        return ProcessPoolExecutor(
            self.workers, get_context("spawn"), initializer=_quiet_worker, initargs=(threads,)
        )

    def run(
        self, shards: Iterable[Shard], on_outcome: OnOutcome | None = None
    ) -> Iterator[tuple[Shard, list[Outcome]]]:
        """Yield shards as they end; twice as many as workers wait at most."""
        pool = self._kept or self._pool()
        waiting: dict[Future[list[Outcome]], Shard] = {}
        source = iter(shards)
        more = True
        try:
            while more or waiting:
                while more and len(waiting) < 2 * self.workers:
                    shard = next(source, None)
                    if shard is None:
                        more = False
                    else:
                        waiting[pool.submit(run_shard, shard)] = shard
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield waiting.pop(future), _result(future)
        finally:
            if pool is not self._kept:
                _end(pool)


def _result(future: Future[list[Outcome]]) -> list[Outcome]:
    from concurrent.futures.process import BrokenProcessPool

    try:
        return future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "A worker process died, perhaps for lack of memory; run again to go on from here, "
            "with fewer workers."
        ) from error


def _end(pool: ProcessPoolExecutor) -> None:
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        # Idle workers end by themselves; one in the middle of a shard would not for long.
        with contextlib.suppress(OSError, ValueError):
            worker.terminate()


def _quiet_worker(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to stop
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
