"""What a decision of ``allocate: bandit`` adds to a run, as JSON lines.

100 arms x 1,000 units of coins, of which the budget takes 20,000 cells. The baseline runs the
very same cells in the same process, arm after arm in the shards of a plain run; both write to a
store of their own and weigh what they have. Wall seconds, in turns, the median of some rounds.
A second line does the same with conversations, a third with the low-rank model.

    OMP_NUM_THREADS=1 python benchmarks/bandit_engine.py
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from equipoise.core import Generates, Outcome, Rng, ScoreSpec, Subject, Task, Unit
from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.store import Store
from equipoise.trial.engine import Runner
from equipoise.trial.executors import Local
from equipoise.trial.trial import Arm, Budget, Trial
from equipoise.trial.watch import Silent
from equipoise.trial.work import Shard

ARMS, UNITS, CELLS, ROUNDS = 100, 1_000, 20_000, 5


@dataclass(frozen=True)
class Spoken(Subject):
    """A coin that talks."""

    heads: float = 0.5
    provides = frozenset({Generates})

    def load(self, rng: Rng) -> Spoken:
        return self

    def generate(self, requests: list) -> list:
        raise NotImplementedError


@dataclass(frozen=True)
class Talks(Task):
    """A toss as a conversation of no turns: the way of a conversation, without its content."""

    tosses: int = UNITS
    needs = frozenset({Generates})
    scores = (ScoreSpec("correct", low=0, high=1),)

    def units(self, rng: Rng) -> Iterator[Unit]:
        for index in range(self.tosses):
            yield Unit(f"toss-{index}")

    async def attempt(self, talk: object, unit: Unit, rng: Rng) -> Outcome:
        return Outcome(unit.id, {"correct": float(rng.numpy().random() < 0.5)})


class Plain(Runner):
    """Runs given cells without a choice: of each arm so many units."""

    shares: dict[str, np.ndarray]

    def _work(self) -> tuple[str, list]:
        self.watcher.start(CELLS, 0)
        return ("finished" if self.do(self._chosen()) else "budget"), []

    def _chosen(self) -> Iterator[Shard]:
        (task,) = self.trial.tasks
        held = self.units[task].held
        for arm, positions in self.shares.items():
            chosen = [held[place] for place in positions]
            yield self.shard(arm, task, 0, 0, chosen, self.units[task].numbers[positions])


def once(kind: type[Runner], trial: Trial, shares: dict | None = None) -> tuple[Runner, float]:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "s.sqlite") as store:
        runner = kind(trial, store, Local(), Silent(), "")
        if shares is not None:
            runner.shares = shares
        began = time.perf_counter()
        runner.go()
        return runner, time.perf_counter() - began


def measure(name: str, allocate: str, subject: type, task: Task) -> None:
    heads = np.linspace(0.3, 0.8, ARMS)
    arms = {f"arm {i}": Arm(subject(float(p))) for i, p in enumerate(heads)}
    trial = Trial(name, arms, {"toss": task}, budget=Budget(units=CELLS), allocate=allocate)
    plain = replace(trial, allocate=None, budget=Budget())
    chosen, bare = [], []
    for _ in range(ROUNDS):
        runner, seconds = once(Runner, trial)
        chosen.append(seconds)
        grid, (walk,) = runner.allocated.grid, runner.allocated.grid.walks.values()
        shares = {arm: walk.stretch(np.flatnonzero(grid.asked[i]))[0] for i, arm in enumerate(arms)}
        bare.append(once(Plain, plain, shares)[1])
    decisions = runner.allocated.decisions
    added = (statistics.median(chosen) - statistics.median(bare)) / decisions
    print(
        json.dumps(
            {
                "what": name,
                "arms": ARMS,
                "units": UNITS,
                "cells": int(grid.asked.sum()),
                "decisions": decisions,
                "allocated_s": round(statistics.median(chosen), 3),
                "plain_s": round(statistics.median(bare), 3),
                "added_ms_a_decision": round(1_000 * added, 3),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    measure("bandit, batches", "bandit", Coin, Tosses(UNITS))
    measure("bandit, conversations", "bandit", Spoken, Talks())
    measure("low_rank, batches", "low_rank", Coin, Tosses(UNITS))
