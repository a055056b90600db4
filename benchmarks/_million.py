"""A store with a million outcomes: ten arms on one task of 100,000 units."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from equipoise.core import Outcome, ScoreSpec, Unit
from equipoise.store import Store

ARMS, UNITS, STEP = 10, 100_000, 5_000
_WORDS = (
    "the answer is because of a model that rounds every weight to few bits and still counts "
    "apples pears plums in baskets while trains leave stations at noon or later than planned "
    "so we add subtract divide the sum by seven and carry one over to the next column"
).split()


def build(path: Path, arms: int = ARMS, units: int = UNITS) -> None:
    """Write the store; each arm gets a share of the units right, answers are 40 words long."""
    generator = np.random.default_rng(0)
    hard = generator.random(units)
    specs = (ScoreSpec("correct", low=0, high=1), ScoreSpec("seconds_told", False))
    with Store.open(path) as store:
        task = store.task("bench", "sums", {"bench": {}}, specs)
        numbers = np.concatenate(
            [
                store.add_units(task, [_unit(i) for i in range(start, start + STEP)])
                for start in range(0, units, STEP)
            ]
        )
        run = store.begin_run("million", "trial: million\n", {"date": "2026-01-01"})
        labels = [f"arm {k}" for k in range(arms)]
        for k, label in enumerate(labels):
            arm = store.arm(f"bench {k}", label, {"subject": {"bench": {"k": k}}})
            store.cover(run, arm, task, arm_label=label, task_label="sums", units=units)
            right = generator.random(units) < 0.4 + 0.03 * k + 0.3 * (hard > 0.5)
            for start in range(0, units, STEP):
                rows = [
                    (int(numbers[i]), _outcome(i, bool(right[i]), generator))
                    for i in range(start, start + STEP)
                ]
                store.add(run, arm, task, 0, rows)
        store.end_run(run, "finished", _result(labels, run))


def _unit(i: int) -> Unit:
    return Unit(
        f"q{i:06d}", {"question": f"What is {i} plus {i % 97}?"}, i + i % 97, stratum=f"s{i % 7}"
    )


def _outcome(i: int, right: bool, generator: np.random.Generator) -> Outcome:
    words = [_WORDS[j] for j in generator.integers(0, len(_WORDS), 40)]
    said = f"{' '.join(words)} {i + i % 97 if right else i} token{i % 1000}"
    failed = i % 1009 == 7
    return Outcome(
        f"q{i:06d}",
        {} if failed else {"correct": float(right), "seconds_told": float(len(said))},
        "error" if failed else "ok",
        None if failed else said,
        error_kind="timeout" if failed else None,
        error="The endpoint did not answer." if failed else None,
    )


def _result(labels: list[str], run: int) -> dict:
    estimates = [
        {"arm": label, "task": "sums", "name": "correct", "higher_is_better": True,
         "value": 0.55 + 0.03 * k, "low": 0.54 + 0.03 * k, "high": 0.56 + 0.03 * k,
         "level": 0.95, "n": UNITS, "method": "wilson"}
        for k, label in enumerate(labels)
    ]  # fmt: skip
    return {
        "trial": "million", "status": "finished", "units": ARMS * UNITS, "errors": 1000,
        "seconds": 60.0, "level": 0.95, "policy": "worst", "control": labels[0], "claims": [],
        "estimates": estimates, "effects": [],
        "arms": {label: {"subject": {"bench": {}}, "treatments": []} for label in labels},
        "tasks": {"sums": {"bench": {}}}, "costs": [], "notices": [],
        "provenance": {"date": "2026-01-01"}, "run": run,
    }  # fmt: skip


if __name__ == "__main__":
    import sys

    began = time.perf_counter()
    build(Path(sys.argv[1]))
    print(json.dumps({"built_s": time.perf_counter() - began}))
