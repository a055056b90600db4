import numpy as np
import pytest

from equipoise.core import Outcome, ScoreSpec, Unit, Usage
from equipoise.store import Store


class Filled:
    """A store with one run, and short ways to add to it."""

    def __init__(self, path, n=10, **unit):
        self.path = path
        self.store = Store.open(path)
        self.run = self.store.begin_run("trial", "trial: trial", {"python": "3"}, paper="rrs")
        self.arm = self.store.arm("arm-a", "a", {"subject": {}})
        self.other = self.store.arm("arm-b", "b", {})
        spec = ScoreSpec("correct", low=0, high=1)
        self.task = self.store.task("task", "sums", {"sums": {}}, [spec])
        self.units = [
            Unit(
                f"u{i}", f"{i} + {i}", str(2 * i), **{key: value(i) for key, value in unit.items()}
            )
            for i in range(n)
        ]
        self.numbers = self.store.add_units(self.task, self.units)

    def outcome(self, i, value=1.0, **more):
        more = {"output": f"answer {i}", "usage": Usage(3, 2, 0.5), "seconds": 0.25} | more
        return Outcome(f"u{i}", {} if value is None else {"correct": value}, **more)

    def add(self, which, value=1.0, *, arm=None, build=0, repeat=0, **more):
        rows = [(int(self.numbers[i]), self.outcome(i, value, **more)) for i in which]
        return self.store.add(self.run, arm or self.arm, self.task, build, rows, repeat)

    def scores(self, arm=None, **size):
        return self.store.outcomes(arm or self.arm, self.task, **size).score("correct")


@pytest.fixture
def filled(tmp_path):
    made = []

    def make(n=10, name="store.sqlite", **unit):
        made.append(Filled(tmp_path / name, n, **unit))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


@pytest.fixture(autouse=True)
def _quiet_numpy():
    with np.errstate(all="raise"):
        yield
