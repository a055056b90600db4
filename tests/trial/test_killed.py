"""Killed at random moments a hundred times, a trial ends as if nothing had happened."""

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass

import pytest

from equipoise.core import Outcome, ScoreSpec, Task, Unit, UsageError
from equipoise.kit.worlds.coins import Coin
from equipoise.store import Store
from equipoise.trial import engine
from equipoise.trial.trial import Arm, Claim, Trial

KILLS = 100


@dataclass(frozen=True)
class Slow(Task):
    """A task that takes a little time a unit, in small shards."""

    size: int = 400
    scores = (ScoreSpec("correct", low=0, high=1),)
    batch = 4

    def units(self, rng):
        for index in range(self.size):
            yield Unit(f"u{index}", index)

    def perform(self, subject, units, rng):
        time.sleep(0.0005 * len(units))
        return [
            Outcome(u.id, {"correct": float(rng.child(u.id).numpy().random() < subject.heads)})
            for u in units
        ]


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_and_double_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "FLUSH_EVERY", 0.0)
    monkeypatch.setattr(engine, "SHARD_SECONDS", 0.002)
    trial = Trial(
        "killed",
        {"a": Arm(Coin(0.4)), "b": Arm(Coin(0.6))},
        {"slow": Slow()},
        [Claim("b", "beats", "a", "slow")],
        repeats=2,
    )
    place = tmp_path / "store.sqlite"
    dice = random.Random(7)
    kills = seen = 0
    while kills < KILLS:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                engine.run(trial, store=place)
                os._exit(0)
            os._exit(1)
        time.sleep(dice.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        done = count(place, trial)
        assert done >= seen  # what was there is there
        seen = done
    result = engine.run(trial, store=place)
    whole = engine.run(trial, store=tmp_path / "whole.sqlite")
    assert result.units == whole.units == 1600
    assert [c.as_json() for c in result.claims] == [c.as_json() for c in whole.claims]
    assert rows(place) == rows(tmp_path / "whole.sqlite")
    with Store.open(place) as store:
        assert store.check() == []
    assert seen > 0


def count(place, trial):
    if not place.exists():
        return 0
    with contextlib.suppress(UsageError), Store.open(place, readonly=True) as store:
        found = 0
        for arm, task in trial.cells():
            numbers = store.find(trial.arm_identities[arm], trial.task_identities[task])
            if None not in numbers:
                found += store.costs(*numbers)["outcomes"]
        return found
    return 0  # the store was not made yet


def rows(place):
    with Store.open(place, readonly=True) as store:
        found = store.rows(store.runs()[0]["id"], limit=None)
    keys = [(r["arm"], r["unit"], r["repeat"], r["scores"]["correct"]) for r in found]
    assert len(keys) == len(set(keys))
    return sorted(keys)


def test_two_runs_on_one_store_at_once_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "FLUSH_EVERY", 0.0)
    trial = Trial(
        "both",
        {"a": Arm(Coin(0.4)), "b": Arm(Coin(0.6))},
        {"slow": Slow(200)},
        [Claim("b", "beats", "a", "slow")],
    )
    place = tmp_path / "store.sqlite"
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os._exit(0 if engine.run(trial, store=place).units == 400 else 2)
            os._exit(1)
        children.append(child)
    codes = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0]
    alone = tmp_path / "alone.sqlite"
    engine.run(trial, store=alone)
    assert rows(place) == rows(alone)
