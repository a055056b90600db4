"""What pages ask of a store, against plain loops over what was written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from equipoise.core import Outcome, ScoreSpec, Unit, UsageError
from equipoise.store import Store
from equipoise.store._blobs import Large

N = 120
NAMES = ("alpha", "Beta_1", "50%", "back\\slash", "alpha two")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    place = tmp_path_factory.mktemp("browse") / "x.sqlite"
    with Store.open(place) as made:
        task = made.task("t", "sums", {}, [ScoreSpec("correct", low=0, high=1)])
        units = [
            Unit(f"u{i}%{i % 7}_", {"n": i}, i, cluster=f"c{i % 5}" if i % 2 else None,
                 stratum=f"s{i % 3}" if i % 4 else None)
            for i in range(N)
        ]  # fmt: skip
        made.add_units(task, units)
        arm = made.arm("a", "a", {})
        for k, name in enumerate(NAMES):
            run = made.begin_run(name, "", {}, paper="a-paper" if k == 1 else None)
            if k == 0:
                rows = [(i, Outcome("u", {"correct": i / N}, output=f"said {i}")) for i in range(N)]
                made.add(run, arm, task, 0, rows)
            if k == 2:
                continue  # it is still running
            result = {"question": f"Is {name} BETTER?", "verdict": "supported" if k % 2 else None,
                      "units": k, "errors": 0, "seconds": 1.5,
                      "claims": [{"verdict": "supported"}] * k + [{"verdict": "refuted"}],
                      "costs": [{"input_tokens": 5, "dollars": 0.25}, {"output_tokens": 7}],
                      }  # fmt: skip
            made.end_run(run, "finished" if k < 4 else "failed", result if k != 3 else None)
    with Store.open(place, readonly=True) as opened:
        yield opened


def named(store: Store, **asked: object) -> list[str]:
    total, rows = store.browse(**asked)
    assert total >= len(rows)
    return [row["trial"] for row in rows]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, [*reversed(NAMES)]),
        ({"sort": "oldest"}, [*NAMES]),
        ({"sort": "name"}, ["50%", "alpha", "alpha two", "back\\slash", "Beta_1"]),
        ({"search": "ALPHA"}, ["alpha two", "alpha"]),
        ({"search": "%"}, ["50%"]),
        ({"search": "_"}, ["Beta_1"]),
        ({"search": "\\"}, ["back\\slash"]),
        ({"search": "a-paper"}, ["Beta_1"]),
        ({"search": "better"}, ["alpha two", "Beta_1", "alpha"]),  # of the question
        ({"search": "' OR 1=1 --"}, []),
        ({"verdict": "supported"}, ["Beta_1"]),
        ({"verdict": "none"}, ["alpha two", "back\\slash", "50%", "alpha"]),
        ({"status": "running"}, ["50%"]),
        ({"status": "failed"}, ["alpha two"]),
        ({"limit": 2, "offset": 1}, ["back\\slash", "50%"]),
        ({"offset": 99}, []),
    ],
)
def test_runs(store: Store, asked: dict[str, object], names: list[str]) -> None:
    assert named(store, **asked) == names


def test_a_row_sums_its_costs_and_counts_its_claims(store: Store) -> None:
    _, rows = store.browse(search="alpha two")
    assert rows[0]["claims"] == {"supported": 4, "refuted": 1}
    assert rows[0]["costs"] == {"input_tokens": 5, "output_tokens": 7, "dollars": 0.25}
    assert rows[0]["units"] == 4.0
    with pytest.raises(UsageError, match='No order "best"'):
        store.browse(sort="best")


@pytest.mark.parametrize("part", ["u1", "%", "_", "%3_", "U1", "none", "\\"])
def test_units_by_a_part_of_their_id(store: Store, part: str) -> None:
    expected = [i for i in range(N) if part.lower() in f"u{i}%{i % 7}_"]
    assert store.units_like(1, name=part).tolist() == expected


def test_units_by_stratum_and_cluster(store: Store) -> None:
    assert store.units_like(1, stratum="s1").tolist() == [
        i for i in range(N) if i % 4 and i % 3 == 1
    ]
    assert store.units_like(1, stratum="s1", cluster="c2").tolist() == [
        i for i in range(N) if i % 4 and i % 3 == 1 and i % 2 and i % 5 == 2
    ]
    assert store.strata(1) == ["s0", "s1", "s2"]
    assert store.units_like(7).tolist() == []


def test_units_by_number_come_in_the_order_asked(store: Store) -> None:
    found = store.units_named(1, [50, 3, -1, 99_999, 7])
    assert [(each["number"], each["content"]) for each in found] == [
        (50, {"n": 50}), (3, {"n": 3}), (7, {"n": 7})
    ]  # fmt: skip
    assert store.number_of(1, "u50%1_") == 50
    assert store.number_of(1, "u50") == -1


def test_texts_and_keys(store: Store) -> None:
    rows = [row for part in store.texts(1, 1, 7) for row in part]
    assert [(row[2], row[4]) for row in rows] == [(i, f"said {i}") for i in range(N)]
    some = np.array([3, 60, 118])
    rows = [row for part in store.texts(1, 1, 7, units=some) for row in part]
    assert [row[4] for row in rows] == ["said 3", "said 60", "said 118"]
    assert not [row for part in store.texts(1, 1, units=np.empty(0, int)) for row in part]
    assert store.keys(1, 1)[:, 2].tolist() == list(range(N))
    assert store.keys(9, 1).shape == (0, 4)
    assert store.count(1, 1) == N
    assert store.written() == N


def test_scores_of_the_first_units_are_those_of_all(store: Store) -> None:
    whole, first = store.unit_scores(1, 1, "correct"), store.unit_scores(1, 1, "correct", below=9)
    assert first.unit.tolist() == list(range(9))
    assert first.value.tolist() == whole.value[:9].tolist() == [i / N for i in range(9)]
    assert not len(store.unit_scores(1, 1, "correct", units=0).unit)
    assert np.isnan(store.unit_scores(1, 1, 'no "such" score').value).all()


def test_scores_of_a_unit_over_builds_repeats_and_attempts(tmp_path: Path) -> None:
    draw = random.Random(5)
    truth: dict[int, dict[tuple[int, int], float | None]] = {}
    with Store.open(tmp_path / "x.sqlite") as made:
        task = made.task("t", "sums", {}, [ScoreSpec("correct")])
        made.add_units(task, [Unit(f"u{i}") for i in range(30)])
        run, arm = made.begin_run("x", "", {}), made.arm("a", "a", {})
        for _ in range(300):
            i, build, repeat = draw.randrange(30), draw.randrange(2), draw.randrange(2)
            if truth.get(i, {}).get((build, repeat)) is not None:
                continue  # it is done
            value = draw.choice([None, 0.25, 1.0])
            outcome = (
                Outcome("u", status="error", error_kind="x")
                if value is None
                else Outcome("u", {"correct": value})
            )
            made.add(run, arm, task, build, [(i, outcome)], repeat)
            truth.setdefault(i, {})[build, repeat] = value
        for builds, repeats in ((None, None), (1, None), (1, 1), (2, 2)):
            found = made.unit_scores(arm, task, "correct", builds=builds, repeats=repeats)
            seen = []
            for i, cells in sorted(truth.items()):
                kept = [v for (b, r), v in cells.items()
                        if b < (builds or 2) and r < (repeats or 2)]  # fmt: skip
                if not kept:
                    continue
                place = len(seen)
                seen.append(i)
                right = [v for v in kept if v is not None]
                if right:
                    assert found.value[place] == pytest.approx(sum(right) / len(right))
                else:
                    assert np.isnan(found.value[place])
                assert found.failed[place] == len(kept) - len(right)
                assert (found.kind[place] == "x") == (len(kept) > len(right))
            assert found.unit.tolist() == seen


def test_large_artifacts_are_left(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(10_000)
    things = {"small": b"x", "noise": noise, "zeros": b"\0" * 10_000_000, "curve": np.arange(9.0)}
    with Store.open(tmp_path / "x.sqlite") as made:
        task = made.task("t", "sums", {}, [])
        made.add_units(task, [Unit("u")])
        run, arm = made.begin_run("x", "", {}), made.arm("a", "a", {})
        made.add(run, arm, task, 0, [(0, Outcome("u", artifacts=things))])
        whole = made.unit(arm, task, "u")["artifacts"]
        assert whole["noise"] == noise
        assert whole["zeros"] == things["zeros"]
        left = made.unit(arm, task, "u", largest=5_000)["artifacts"]
    assert left["small"] == b"x"
    assert left["curve"].tolist() == list(range(9))
    assert left["noise"] == Large(noise[:1_024], 10_000)
    assert isinstance(left["zeros"], Large)
    assert left["zeros"].head == b"\0" * 64
