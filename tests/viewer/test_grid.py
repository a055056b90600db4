"""The grid against plain loops over the same outcomes."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.viewer.made import outcome, write

from equipoise.core import Outcome, ScoreSpec, Unit, UsageError
from equipoise.store import Store
from equipoise.viewer.grid import MOST_KINDS, SHOWS, Grid, cells_of

ARMS, UNITS = 3, 90


@pytest.fixture(scope="module")
def told() -> dict[tuple[int, int], Outcome | None]:
    draw = random.Random(0)
    found: dict[tuple[int, int], Outcome | None] = {}
    for i in range(UNITS):
        for k in range(ARMS):
            sort = draw.random()
            if sort < 0.1:
                found[i, k] = None
            elif sort < 0.25:
                found[i, k] = outcome(None, kind=draw.choice(["timeout", "refused"]))
            else:
                found[i, k] = outcome(draw.choice([0.0, 1.0, 0.1, 1 / 3]))
    return found


@pytest.fixture(scope="module")
def grid(told: Any, tmp_path_factory: pytest.TempPathFactory) -> Grid:
    path = tmp_path_factory.mktemp("grid") / "x.sqlite"
    write(path, lambda i, k: told[i, k], arms=ARMS, units=UNITS)
    with Store.open(path, readonly=True) as store:
        cells = cells_of(store.run(1), "sums")
        return Grid.read(store, cells, store.specs(1)[0])


def value(each: Outcome | None, worst: bool = True) -> float | None:
    if each is None or (each.status == "error" and not worst):
        return None
    return 0.0 if each.status == "error" else each.scores["correct"]


def wanted(told: Any, show: str, places: list[int]) -> list[int]:
    found = []
    for i in range(UNITS):
        rows = [told[i, k] for k in range(ARMS)]
        if all(each is None for each in rows):
            continue
        values = [value(each) for each in rows]
        there = [each for each in values if each is not None]
        others = [k for k in places if k] or [0]
        pairs = [(values[k], values[0]) for k in others if None not in (values[k], values[0])]
        holds = {
            "all": True,
            "disagree": max(there) > min(there),
            "better": any(a > b for a, b in pairs),
            "worse": any(a < b for a, b in pairs),
            "failed": any(rows[k] and rows[k].status == "error" for k in places),
            "wrong": not any(values[k] == 1 for k in places),
        }
        if holds[show]:
            found.append(i)
    return found


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize("arm", ["", "arm 0", "arm 2"])
def test_what_is_shown(grid: Grid, told: Any, show: str, arm: str) -> None:
    places = list(range(ARMS)) if not arm else [int(arm[-1])]
    mask = grid.choose(show=show, arm=arm)
    assert grid.numbers[mask].tolist() == wanted(told, show, places)


@pytest.mark.parametrize(("low", "high"), [(0.1, None), (None, 0.1), (0.1, 0.5), (1 / 3, 1 / 3)])
def test_bounds_are_inclusive_and_of_scores_that_there_are(
    grid: Grid, told: Any, low: float | None, high: float | None
) -> None:
    expected = [
        i
        for i in range(UNITS)
        if any(
            (v := value(told[i, k], worst=False)) is not None
            and (low is None or v >= low)
            and (high is None or v <= high)
            for k in range(ARMS)
        )
    ]
    assert grid.numbers[grid.choose(low=low, high=high)].tolist() == expected
    assert expected


def test_errors_are_chosen_by_their_kind(grid: Grid, told: Any) -> None:
    expected = [
        i for i in range(UNITS)
        if any(told[i, k] and told[i, k].error_kind == "refused" for k in range(ARMS))
    ]  # fmt: skip
    assert grid.numbers[grid.choose(kind="refused")].tolist() == expected
    assert not grid.choose(kind="never heard of").any()


def test_an_arm_of_any_name_sorts_by_its_score() -> None:
    arms = ("unit", "spread", "arm:unit", "plain", "")
    value = np.arange(3.0)[:, None] * np.array([-1.0, 0.5, -2.0, 1.0, 3.0])
    grid = Grid(arms, np.arange(3), value, np.zeros((3, 5), np.int16), ("",), ScoreSpec("s"))
    everyone = np.ones(3, bool)
    assert grid.sort_of("plain") == "plain"
    assert len({grid.sort_of(arm) for arm in arms} - {"", "unit", "spread"}) == len(arms)
    for place, arm in enumerate(arms):
        rows = grid.order(everyone, grid.sort_of(arm), descending=False)
        assert rows.tolist() == np.argsort(value[:, place]).tolist()


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("sort", ["unit", "spread", "arm 1"])
def test_order(grid: Grid, told: Any, sort: str, down: bool) -> None:
    rows = grid.order(np.ones(len(grid.numbers), bool), sort, down)
    numbers = grid.numbers[rows].tolist()
    plain = grid.numbers.tolist()
    if sort == "unit":
        assert numbers == (plain[::-1] if down else plain)
        return

    def key(i: int) -> tuple[bool, float]:
        values = [value(told[i, k]) for k in range(ARMS)]
        there = [each for each in values if each is not None]
        v = max(there) - min(there) if sort == "spread" else values[1]
        return (v is None, 0.0 if v is None else -v if down else v)

    assert numbers == sorted(plain, key=key)  # ties stay in the order of units


def test_builds_and_repeats_are_averaged_and_the_last_attempt_counts(tmp_path: Path) -> None:
    draw = random.Random(1)
    truth: dict[int, list[float]] = {}
    failed: set[int] = set()
    with Store.open(tmp_path / "x.sqlite") as store:
        task = store.task("t", "sums", {}, [ScoreSpec("correct", low=0, high=1)])
        numbers = store.add_units(task, [Unit(f"u{i}") for i in range(40)])
        run = store.begin_run("made", "", {})
        arm = store.arm("a", "a", {})
        store.cover(run, arm, task, arm_label="a", task_label="sums", units=40, builds=2, repeats=3)
        for build in range(2):
            for repeat in range(3):
                for i in draw.sample(range(40), 40):
                    if draw.random() < 0.3:  # a first attempt that failed
                        store.add(run, arm, task, build, [(int(numbers[i]), outcome(None))], repeat)
                        if draw.random() < 0.5:
                            failed.add(i)
                            continue
                    score = draw.random()
                    truth.setdefault(i, []).append(score)
                    row = [(int(numbers[i]), outcome(score))]
                    store.add(run, arm, task, build, row, repeat)
        grid = Grid.read(store, cells_of(store.run(run), "sums"), store.specs(task)[0])
    assert grid.numbers.tolist() == list(range(40))
    for i in range(40):
        if i in truth:
            assert grid.value[i, 0] == pytest.approx(sum(truth[i]) / len(truth[i]))
        assert bool(grid.failed[i, 0]) == (i in failed)


@pytest.mark.filterwarnings("error")
def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    scores = [math.nan, math.inf, -math.inf, 1e300, 0.5]
    specs = [ScoreSpec("correct")]
    write(tmp_path / "x.sqlite", lambda i, k: outcome(scores[(i + k) % 5]), units=5, specs=specs)
    with Store.open(tmp_path / "x.sqlite", readonly=True) as store:
        grid = Grid.read(store, cells_of(store.run(1), "sums"), store.specs(1)[0])
    both = np.ones(5, bool)
    shown = grid.value[grid.order(both, "arm 0", False), 0].tolist()
    assert shown[:4] == [-math.inf, 0.5, 1e300, math.inf]
    assert math.isnan(shown[4])
    down = grid.value[grid.order(both, "arm 0", True), 0].tolist()
    assert down[:4] == [math.inf, 1e300, 0.5, -math.inf]
    assert math.isnan(down[4])
    for show in SHOWS:
        grid.choose(show=show)


def test_what_a_judge_failed_is_not_held_against_an_arm() -> None:
    value = np.array([[1.0, np.nan], [1.0, np.nan], [np.nan, 0.0]])
    kind = np.array([[0, 1], [0, 2], [1, 0]], np.int16)
    spec = ScoreSpec("s", low=0, high=1)
    grid = Grid(("a", "b"), np.arange(3), value, kind, ("", "judge", "timeout"), spec)
    assert grid.choose(show="failed").all()
    for show in ("worse", "disagree"):
        assert grid.choose(show=show).tolist() == [False, True, False]
    assert not grid.choose(show="better").any()


def test_there_may_be_many_kinds_of_errors(tmp_path: Path) -> None:
    write(tmp_path / "x.sqlite", lambda i, k: outcome(None, kind=f"kind {i}"), units=400, arms=1)
    with Store.open(tmp_path / "x.sqlite", readonly=True) as store:
        grid = Grid.read(store, cells_of(store.run(1), "sums"), store.specs(1)[0])
    assert len(grid.kinds) == MOST_KINDS + 2
    assert grid.choose(kind="other errors").sum() == 400 - MOST_KINDS
    assert grid.failed.all()


def test_only_some_units(grid: Grid) -> None:
    only = np.array([3, 4, 80, 5_000])
    assert grid.numbers[grid.choose(only=only)].tolist() == [3, 4, 80]


def test_what_is_not_there(grid: Grid) -> None:
    with pytest.raises(UsageError, match="No choice"):
        grid.choose(show="al")
    with pytest.raises(UsageError, match='No arm "arm 9"'):
        grid.order(np.ones(len(grid.numbers), bool), "arm 9", False)
