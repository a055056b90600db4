"""Runs a trial: what the store lacks is done, written as it ends, and weighed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.catalog import recipe
from equipoise.core import EquipoiseError, Outcome, Outcomes, Unit, UsageError
from equipoise.kit.progress import listening
from equipoise.store import Store, default_store
from equipoise.trial.executors import Executor, Local
from equipoise.trial.provenance import provenance
from equipoise.trial.result import Result, Status
from equipoise.trial.trial import Trial
from equipoise.trial.units import number_units
from equipoise.trial.watch import Silent, Watcher
from equipoise.trial.weigh import weigh
from equipoise.trial.work import Shard

if TYPE_CHECKING:
    from equipoise.trial.allocated import Allocated

SHARD_SECONDS = 4.0
SHARD_MOST = 2_000
FLUSH_EVERY = 1.0


class Interrupted(EquipoiseError):
    """The run was stopped by hand; what had finished is kept."""

    exit_code = 4


def run(
    trial: Trial,
    *,
    store: Store | str | Path | None = None,
    executor: Executor | None = None,
    watcher: Watcher | None = None,
    command: str = "",
) -> Result:
    """Run a trial and return its result.

    Units that the store already has are not run again, so a run that was
    stopped goes on, and a finished one returns at once.

    Parameters
    ----------
    trial
        From `load`, or made of parts.
    store
        A store, or the path of one; the default is ``.equipoise/store.sqlite``.
    executor
        Where shards run; this process by default.
    watcher
        Hears how the run goes.
    command
        The command line, for provenance.

    Raises
    ------
    UsageError
        If the trial cannot work; nothing has run.
    RunError
        If the run could not go on; everything finished is kept.
    """
    faults = trial.faults()
    if faults:
        raise UsageError(" ".join(message for _, message in faults))
    if isinstance(store, Store):
        return Runner(trial, store, executor or Local(), watcher or Silent(), command).go()
    with Store.open(store or default_store()) as opened:
        return Runner(trial, opened, executor or Local(), watcher or Silent(), command).go()


@dataclass
class Spent:
    """What a run has used so far."""

    units: int = 0
    errors: int = 0
    tokens: int = 0
    dollars: float = 0.0


@dataclass
class _Pace:
    """How large the next shard of a cell should be to take a few seconds."""

    least: int
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.least

    def learn(self, units: int, seconds: float) -> None:
        """Follow the speed that was seen."""
        wanted = int(units / max(seconds, 1e-4) * SHARD_SECONDS)
        self.size = int(np.clip(wanted, self.least, min(SHARD_MOST, 8 * self.size)))


class Runner:
    """One run under way: what `weigh` and early stopping work on."""

    def __init__(
        self, trial: Trial, store: Store, executor: Executor, watcher: Watcher, command: str
    ) -> None:
        self.trial, self.store, self.executor = trial, store, executor
        self.watcher, self.command = watcher, command
        self.arms = {
            label: store.arm(trial.arm_identities[label], label, arm.as_json())
            for label, arm in trial.arms.items()
        }
        self.tasks = {
            label: store.task(trial.task_identities[label], label, recipe(task), task.scores)
            for label, task in trial.tasks.items()
        }
        self.allocated: Allocated | None = None
        self.spent = Spent()
        self.began = time.monotonic()
        self.buffer = _Buffer(self)

    def go(self) -> Result:
        about = provenance(self.command)
        self.number = self.store.begin_run(
            self.trial.name, self.trial.text, about, self.trial.paper
        )
        try:
            self.units = {
                label: number_units(self.trial, label, self.store, number)
                for label, number in self.tasks.items()
            }
            for arm, task in self.trial.cells():
                self.store.cover(
                    self.number,
                    self.arms[arm],
                    self.tasks[task],
                    arm_label=arm,
                    task_label=task,
                    **self._size(arm, task),
                )
            with listening(self.watcher.making):
                status, sequences = self._work()
            self.buffer.flush()
            result = weigh(self.trial, self, status, sequences, about)
        except KeyboardInterrupt:
            with contextlib.suppress(EquipoiseError):
                self.buffer.flush()
                self.store.end_run(self.number, "interrupted", None)
            raise Interrupted(
                f"Stopped; {self.spent.units} units of this run are kept, and the same command "
                "goes on from here."
            ) from None
        except BaseException:
            with contextlib.suppress(Exception):
                self.buffer.flush()
                self.store.end_run(self.number, "failed", None)
            raise
        self.store.end_run(self.number, "finished", result.as_json())
        return result

    def _work(self) -> tuple[Status, list[dict[str, object]]]:
        # A run that looks as it goes calls its executor often: its processes are kept.
        kept = getattr(self.executor, "kept", contextlib.nullcontext)
        if self.trial.allocate is not None:
            from equipoise.trial.allocate import allocate

            with kept():
                self.allocated = allocate(self)
            return self.allocated.status, self.allocated.sequences
        self.watcher.start(*self._count())
        if self.trial.stop == "early":
            from equipoise.trial.early import run_early

            with kept():
                return run_early(self)
        return ("finished" if self.do(self._all_shards()) else "budget"), []

    def _count(self) -> tuple[int, int]:
        """Return how many units are to do and how many are done already."""
        total = done = 0
        for arm, task in self.trial.cells():
            for build in range(self.trial.builds_of(arm)):
                total += len(self.units[task]) * self.trial.repeats
                for numbers in np.array_split(self.units[task].numbers, 1 + total // SHARD_MOST):
                    done += int(self.done(arm, task, build, numbers).sum())
        return total - done, done

    def do(self, shards: Iterator[Shard]) -> bool:
        """Run shards and write what comes; False when the budget ended it."""
        with contextlib.closing(self.stream(shards)) as stream:
            for _ in stream:
                if self.over_budget(self.spent.units):
                    break
            else:
                self.buffer.flush()
                return True
        self.buffer.flush()
        return False

    def stream(self, shards: Iterable[Shard]) -> Generator[tuple[Shard, list[Outcome]], None, None]:
        """Run shards and yield each with its outcomes, which are kept within a second or so."""
        stream = self.executor.run(shards, self.buffer.add)
        try:
            for shard, outcomes in stream:
                self.buffer.finish(shard, outcomes)
                yield shard, outcomes
        finally:
            stream.close()  # type: ignore[attr-defined]

    def over_budget(self, units: int) -> bool:
        """Say whether something ran out, of which so many units were used."""
        budget, spent = self.trial.budget, self.spent
        limits = (
            (budget.units, units),
            (budget.tokens, spent.tokens),
            (budget.dollars, spent.dollars),
            (budget.seconds, time.monotonic() - self.began),
        )
        return any(limit is not None and used >= limit for limit, used in limits)

    def _all_shards(self) -> Iterator[Shard]:
        for arm in self.trial.arms:
            for build in range(self.trial.builds_of(arm)):
                for task in (t for a, t in self.trial.cells() if a == arm):
                    yield from self._cell(arm, task, build)

    def _cell(self, arm: str, task: str, build: int) -> Iterator[Shard]:
        self.watcher.doing(arm, task)
        pace = self.buffer.pace(arm, task)
        for numbers, units in self.units[task].chunks():
            for repeat, todo in self.todo(arm, task, build, numbers):
                start = 0
                while start < len(todo):
                    picked = todo[start : start + pace.size]
                    start += len(picked)
                    yield self.shard(
                        arm, task, build, repeat, [units[i] for i in picked], numbers[picked]
                    )

    def todo(
        self, arm: str, task: str, build: int, numbers: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each repeat with the positions in ``numbers`` that are yet to do."""
        done = self.done(arm, task, build, numbers)
        for repeat in range(self.trial.repeats):
            todo = np.flatnonzero(~done[:, repeat])
            if len(todo):
                yield repeat, todo

    def done(self, arm: str, task: str, build: int, numbers: np.ndarray) -> np.ndarray:
        """Return which units are done, a column a repeat."""
        return self.store.done_mask(
            self.arms[arm], self.tasks[task], build, numbers, self.trial.repeats
        )

    def outcomes(self, arm: str, task: str) -> Outcomes:
        """Return what the store has of a cell, cut to this trial's size.

        Of a trial that allocates, only the units that it chose: the store may have more.
        """
        found = self.store.outcomes(self.arms[arm], self.tasks[task], **self._size(arm, task))
        if self.allocated is None:
            return found
        return found.take(np.isin(found.unit, self.allocated.numbers(arm, task)))

    def costs(self, arm: str, task: str) -> dict[str, Any]:
        """Return what a cell cost, cut as `outcomes` is."""
        chosen = None if self.allocated is None else self.allocated.numbers(arm, task)
        return self.store.costs(
            self.arms[arm], self.tasks[task], numbers=chosen, **self._size(arm, task)
        )

    def _size(self, arm: str, task: str) -> dict[str, Any]:
        return {
            "units": int(self.units[task].numbers.max()) + 1,
            "builds": self.trial.builds_of(arm),
            "repeats": self.trial.repeats,
        }

    def shard(
        self, arm: str, task: str, build: int, repeat: int, units: list[Unit], numbers: np.ndarray
    ) -> Shard:
        """Return a shard of these units."""
        return Shard(
            arm_label=arm,
            arm=self.trial.arms[arm],
            arm_identity=self.trial.arm_identities[arm],
            build=build,
            task_label=task,
            task=self.trial.tasks[task],
            task_identity=self.trial.task_identities[task],
            repeat=repeat,
            units=tuple(units),
            numbers=tuple(int(number) for number in numbers),
            seed=self.trial.seed,
            keep=len(self.trial.arms) if self.trial.stop or self.trial.allocate else 1,
        )


class _Buffer:
    """Collects outcomes and writes them about once a second, in the driver only."""

    def __init__(self, run: Runner) -> None:
        self.run = run
        self.waiting: list[tuple[Shard, int, Outcome]] = []
        self.missing: dict[int, dict[str, int]] = {}
        self.flushed = self.timed = time.monotonic()
        self.paces: dict[tuple[str, str], _Pace] = {}

    def pace(self, arm: str, task: str) -> _Pace:
        kind = type(self.run.trial.tasks[task])
        least = max(kind.batch, 256) if kind.converses() else kind.batch
        return self.paces.setdefault((arm, task), _Pace(least))

    def add(self, shard: Shard, outcome: Outcome) -> None:
        """Take one outcome before its shard is whole."""
        if id(shard) not in self.missing:
            ids = (unit.id for unit in shard.units)
            self.missing[id(shard)] = dict(zip(ids, shard.numbers, strict=True))
        self._take(shard, self.missing[id(shard)].pop(outcome.unit), outcome)

    def finish(self, shard: Shard, outcomes: list[Outcome]) -> None:
        """Take a whole shard, less what came early."""
        missing = self.missing.pop(id(shard), None)
        for number, outcome in zip(shard.numbers, outcomes, strict=True):
            if missing is None or outcome.unit in missing:
                self._take(shard, number, outcome)
        now = time.monotonic()
        self.pace(shard.arm_label, shard.task_label).learn(len(outcomes), now - self.timed)
        self.timed = now
        if now - self.flushed > FLUSH_EVERY or len(self.waiting) >= SHARD_MOST:
            self.flush()

    def _take(self, shard: Shard, number: int, outcome: Outcome) -> None:
        self.waiting.append((shard, number, outcome))
        spent = self.run.spent
        spent.units += 1
        spent.errors += outcome.status == "error"
        spent.tokens += outcome.usage.input_tokens + outcome.usage.output_tokens
        spent.dollars += outcome.usage.dollars
        self.run.watcher.advance(1, int(outcome.status == "error"))
        if time.monotonic() - self.flushed > FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what waits; one transaction a (arm, task, build, repeat)."""
        groups: dict[tuple[str, str, int, int], list[tuple[int, Outcome]]] = {}
        for shard, number, outcome in self.waiting:
            key = (shard.arm_label, shard.task_label, shard.build, shard.repeat)
            groups.setdefault(key, []).append((number, outcome))
        for (arm, task, build, repeat), rows in groups.items():
            self.run.store.add(
                self.run.number, self.run.arms[arm], self.run.tasks[task], build, rows, repeat
            )
        self.waiting.clear()
        self.flushed = time.monotonic()
