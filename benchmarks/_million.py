"""A store with a million outcomes: ten arms on one task of 100,000 units."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from equipoise.core import Outcome, ScoreSpec, Unit
from equipoise.store import Store

ARMS, UNITS, STEP = 10, 100_000, 5_000
_SAID = (
    "the answer is because of a model that rounds every weight to few bits and still counts "
    "apples pears plums in baskets while trains leave stations at noon or later than planned "
    "so we add subtract divide the sum by seven and carry one over to the next column"
)
_WORDS = _SAID.split(" ")


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
    """Return a result as a large trial has one: claims, effects, strata, figures, costs."""
    control, *others = labels
    better = {label: 0.03 * k for k, label in enumerate(labels)}

    def mean(value: float, half: float = 0.003, n: int = UNITS) -> dict:
        return {"value": value, "low": value - half, "high": value + half, "level": 0.95, "n": n,
                "method": "t", "details": {"se": half / 1.96, "df": n - 1.0}}  # fmt: skip

    def told(arm: str, name: str, each: dict, **more: object) -> dict:
        return {"arm": arm, "task": "sums", "name": name, "higher_is_better": True, **each, **more}

    claims = []
    for arm in others:
        each = mean(better[arm])
        each["estimate"] = each.pop("value")
        for relation, margin in (("beats", 0.0), ("matches", 0.02), ("beats", 0.1)):
            right = {"beats": better[arm] > margin + 0.003, "matches": abs(better[arm]) < 0.017}
            claims.append(
                {"claim": f"{arm} {relation} {control} on sums by {margin:g}", "arm": arm,
                 "verdict": "supported" if right[relation] else "refuted", "on": "sums",
                 "relation": relation, "other": control, "margin": margin, **each}
            )  # fmt: skip
    estimates = [told(arm, "correct", mean(0.55 + better[arm])) for arm in labels]
    estimates += [told(arm, "seconds_told", mean(250.0, 0.1)) for arm in labels]
    estimates += [
        told(arm, f"strata s{s}", mean(0.55 + better[arm] + 0.001 * s, 0.008, UNITS // 7))
        for arm in labels
        for s in range(7)
    ]
    effects = [
        told(arm, name, mean(better[arm]), versus=control, p_value=0.0001)
        for name in ("correct", "seconds_told")
        for arm in others
    ]
    x = [i / 50 for i in range(51)]
    series = [
        {"name": arm, "look": "line", "x": x, "y": [v ** (1 + better[arm]) for v in x],
         "low": [v ** (1.1 + better[arm]) for v in x],
         "high": [v ** (0.9 + better[arm]) for v in x]}
        for arm in labels
    ]  # fmt: skip
    sequences = [
        {"claim": each["claim"], "method": "confidence sequence", "level": 0.95,
         "steps": [{"n": 1_000 * i, "value": each["estimate"], "low": each["low"] - 0.3 / i,
                    "high": each["high"] + 0.3 / i} for i in range(1, 101)]}
        for each in claims[:6]
    ]  # fmt: skip
    costs = [
        {"arm": arm, "task": "sums", "units": UNITS, "outcomes": UNITS, "errors": 100,
         "attempts": UNITS, "input_tokens": 12 * UNITS, "output_tokens": 42 * UNITS,
         "dollars": 1.5, "seconds": 3_600.0}
        for arm in labels
    ]  # fmt: skip
    figure = {"title": "Curve", "x": "share", "y": "right", "caption": "Bands are intervals.",
              "series": series}  # fmt: skip
    return {
        "trial": "million", "question": "Which of ten arms adds best?", "status": "finished",
        "verdict": "refuted", "units": ARMS * UNITS, "errors": 1000, "reused": 0,
        "seconds": 60.0, "level": 0.95, "policy": "worst", "control": control, "claims": claims,
        "estimates": estimates, "effects": effects, "sequences": sequences,
        "figures": [{"task": "sums", "measure": name, "figure": figure} for name in ("one", "two")],
        "arms": {label: {"subject": {"bench": {}}, "treatments": []} for label in labels},
        "tasks": {"sums": {"bench": {}}}, "costs": costs, "notices": [],
        "provenance": {"date": "2026-01-01"}, "run": run,
    }  # fmt: skip


if __name__ == "__main__":
    import sys

    began = time.perf_counter()
    build(Path(sys.argv[1]))
    print(json.dumps({"built_s": time.perf_counter() - began}))
