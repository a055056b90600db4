"""The leaderboard against means worked out by hand."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.made import outcome

from equipoise.core import Estimate, ScoreSpec, Unit
from equipoise.store import Store
from equipoise.viewer.standing import Standing, _ranked, leaderboard


def store_of(path: Path, specs: dict[str, ScoreSpec], asked: dict[tuple[str, int], range],
             score: Any) -> Store:  # fmt: skip
    """Write a run of each arm in ``asked``, whose keys are task and arm."""
    with Store.open(path) as store:
        tasks = {}
        for name, spec in specs.items():
            tasks[name] = store.task(name, name, {}, [spec])
            store.add_units(tasks[name], [Unit(f"{name}{i}") for i in range(50)])
        for k in sorted({k for _, k in asked}):
            run = store.begin_run(f"trial {k}", "", {})
            arm = store.arm(f"a{k}", f"arm {k}", {})
            for (name, which), units in asked.items():
                if which == k:
                    store.cover(run, arm, tasks[name], arm_label=f"arm {k}", task_label=name)
                    rows = [(i, outcome(score(name, k, i))) for i in units]
                    store.add(run, arm, tasks[name], 0, rows)
            store.end_run(run, "finished")
    return Store.open(path, readonly=True)


def board(store: Store, n: int) -> tuple[list[Standing], list[str]]:
    return leaderboard(store, [store.run(i + 1) for i in range(n)], 0.95)


def test_means_are_over_the_units_that_all_were_asked(tmp_path: Path) -> None:
    draw = random.Random(0)
    table = {(k, i): draw.choice([None, 0.0, 1.0, 1.0]) for k in range(3) for i in range(50)}
    asked = {("sums", 0): range(50), ("sums", 1): range(10, 50), ("sums", 2): range(40)}
    with store_of(
        tmp_path / "x.sqlite", {"sums": ScoreSpec("correct", low=0, high=1)}, asked,
        lambda name, k, i: table[k, i],
    ) as store:  # fmt: skip
        found, tasks = board(store, 3)
    assert tasks == ["sums"]
    means = {
        f"arm {k}": sum(table[k, i] or 0.0 for i in range(10, 40)) / 30 for k in range(3)
    }  # what failed counts as wrong
    assert {each.arm: pytest.approx(each.overall.value) for each in found} == means
    assert [each.arm for each in found] == sorted(means, key=lambda arm: -means[arm])
    assert {each.overall.n for each in found} == {30}


def test_tasks_count_alike_and_the_better_way_is_up(tmp_path: Path) -> None:
    specs = {"right": ScoreSpec("correct", low=0, high=1), "loss": ScoreSpec("correct", False)}
    truth = {("right", 0): 0.5, ("right", 1): 0.7, ("loss", 0): 0.1, ("loss", 1): 0.9}
    asked = {key: range(50 if key[0] == "right" else 20) for key in truth}

    def score(name: str, k: int, i: int) -> float:
        return truth[name, k] + 0.1 * (-1) ** i

    with store_of(tmp_path / "x.sqlite", specs, asked, score) as store:
        found, tasks = board(store, 2)
    assert sorted(tasks) == ["loss", "right"]
    overall = {f"arm {k}": (truth["right", k] - truth["loss", k]) / 2 for k in range(2)}
    assert {each.arm: pytest.approx(each.overall.value) for each in found} == overall
    assert found[0].arm == "arm 0"
    for each in found:
        halves = [(m.high - m.low) / 2 for m in each.tasks.values()]
        half = math.sqrt(sum(h * h for h in halves)) / 2
        assert each.overall.high - each.overall.value == pytest.approx(half)


def test_lower_is_better_turns_the_order(tmp_path: Path) -> None:
    asked = {("loss", k): range(50) for k in range(3)}
    with store_of(
        tmp_path / "x.sqlite", {"loss": ScoreSpec("correct", False)}, asked,
        lambda name, k, i: (1.5, 0.5, 1.0)[k] + 0.01 * (i % 2),
    ) as store:  # fmt: skip
        found, _ = board(store, 3)
    assert [each.arm for each in found] == ["arm 1", "arm 2", "arm 0"]
    assert [each.ranks for each in found] == [(1, 1), (2, 2), (3, 3)]


def test_only_tasks_that_most_did(tmp_path: Path) -> None:
    asked = {("a", 0): range(9), ("a", 1): range(9), ("a", 2): range(9), ("b", 0): range(9)}
    specs = {name: ScoreSpec("correct", low=0, high=1) for name in "ab"}
    with store_of(tmp_path / "x.sqlite", specs, asked, lambda name, k, i: float(i % 2)) as store:
        found, tasks = board(store, 3)
    assert tasks == ["a"]
    assert len(found) == 3


def test_no_unit_in_common_is_no_board(tmp_path: Path) -> None:
    asked = {("a", 0): range(5), ("a", 1): range(5, 10)}
    specs = {"a": ScoreSpec("correct", low=0, high=1)}
    with store_of(tmp_path / "x.sqlite", specs, asked, lambda name, k, i: 1.0) as store:
        assert board(store, 2) == ([], [])


def test_places_are_ranges_where_intervals_overlap() -> None:
    draw = random.Random(3)
    for lower in (False, True):
        spans = [
            (v := draw.random(), v - draw.random() / 4, v + draw.random() / 4) for _ in range(9)
        ]
        found = [
            Standing(1, "t", str(i), {}, Estimate(v, low, high, 0.95, 10))
            for i, (v, low, high) in enumerate(spans)
        ]
        for each in _ranked(found, lower):
            _, low, high = spans[int(each.arm)]
            surely_better = sum(h < low if lower else x > high for _, x, h in spans)
            surely_worse = sum(x > high if lower else h < low for _, x, h in spans)
            assert each.ranks == (1 + surely_better, 9 - surely_worse)
