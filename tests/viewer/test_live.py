"""How far a run is: speed and time left from a made clock, and streams that come and go."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.viewer.made import outcome, serving, write

from equipoise.core import RunError, UsageError
from equipoise.store import Store
from equipoise.viewer import live
from equipoise.viewer.library import Library
from equipoise.viewer.live import Channel, Watch


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(live, "time", found)
    return found


FILE = """
trial: running
arms: {arm 0: [], arm 1: []}
subject: smollm2
tasks: {sums: {perplexity: {}}}
claims:
  - {arm: arm 1, beats: arm 0, on: sums}
  - {arm: arm 0, above: 0.2, on: sums}
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Store, Library]]:
    place = tmp_path / "x.sqlite"
    with Store.open(place) as store:
        from equipoise.core import ScoreSpec, Unit

        task = store.task("t", "sums", {}, [ScoreSpec("correct", low=0, high=1)])
        store.add_units(task, [Unit(f"u{i}") for i in range(100)])
        run = store.begin_run("running", FILE, {})
        for k in range(2):
            arm = store.arm(f"a{k}", f"arm {k}", {})
            store.cover(run, arm, task, arm_label=f"arm {k}", task_label="sums", units=100,
                        builds=1, repeats=1)  # fmt: skip
        library = Library(place)
        yield store, library
        library.close()


def add(store: Store, arm: int, units: range) -> None:
    store.add(1, arm, 1, 0, [(i, outcome(float(i % 4 < arm + 1))) for i in units])


def fact(text: str, name: str) -> str | None:
    found = re.search(rf"<dt>{name}</dt><dd>([^<]*)</dd>", text)
    return found[1] if found else None


def test_speed_and_time_left(running: tuple[Store, Library], clock: Clock) -> None:
    store, library = running
    watch = Watch(library, 1)
    shown, going = watch.look()
    assert going
    assert shown is not None
    assert fact(shown, "Outcomes") == "0 of 200"
    assert fact(shown, "Speed") is None
    add(store, 1, range(30))
    clock.now += 10
    shown, _ = watch.look()
    assert shown is not None
    assert fact(shown, "Outcomes") == "30 of 200"
    assert fact(shown, "Speed") == "3.0 a second"
    assert "57 s" in (fact(shown, "Time left") or "")  # 170 at 3 a second
    clock.now += 10
    assert watch.look() == (None, True)  # nothing new, nothing sent
    assert watch.speed() == pytest.approx(30 / 20)
    clock.now += 60
    shown, _ = watch.look()
    assert shown is not None
    assert "Nothing was written for 70 s" in shown or "1 min" in shown
    store.end_run(1, "interrupted")
    assert watch.look()[1] is False


def test_speed_is_that_of_the_last_looks(running: tuple[Store, Library], clock: Clock) -> None:
    store, library = running
    watch = Watch(library, 1)
    for step in range(60):
        if step < 20:
            add(store, 1, range(step, step + 1))
        watch.look()
        clock.now += 2
    assert watch.speed() is None  # nothing within the last 30 looks


def test_where_claims_stand(running: tuple[Store, Library]) -> None:
    store, library = running
    assert live.running_claims(library, library.run(1)) == []
    add(store, 1, range(80))
    add(store, 2, range(60))
    found = live.running_claims(library, library.run(1))
    assert [each["text"] for each in found] == [
        "arm 1 beats arm 0 on sums",
        "arm 0 is above 0.2 on sums",
    ]
    # arm 0 has a quarter right and arm 1 a half, of the 60 units that both did
    assert "0.250" in found[0]["evidence"]
    assert "n = 60" in found[0]["evidence"] or "60" in found[0]["evidence"]


def test_a_claim_about_a_measure_of_the_task_is_not_told_by_its_score(
    running: tuple[Store, Library],
) -> None:
    store, library = running
    for k in (1, 2):
        add(store, k, range(80))
    judged = "{judged_answers: {rows: [{question: q}], judge: {erring_judge: {}}, human: x.csv}}"
    run = library.run(1)
    run["file"] = FILE.replace("{perplexity: {}}", judged)
    assert live.running_claims(library, run) == []
    run["file"] = run["file"].replace("on: sums}", "on: sums, score: correct}")
    assert len(live.running_claims(library, run)) == 2
    run["file"] = FILE.replace("{perplexity: {}}", judged.replace(", human: x.csv", ""))
    assert len(live.running_claims(library, run)) == 2


class Told:
    """A watch that says what it was told to."""

    def __init__(self, looks: list[Any]) -> None:
        self.looks = looks
        self.n = 0

    def look(self) -> tuple[str | None, bool]:
        self.n += 1
        each = self.looks[min(self.n, len(self.looks)) - 1]
        if isinstance(each, Exception):
            raise each
        return each


async def _heard(channel: Channel) -> list[str]:
    return [each async for each in channel.listen()]


def test_all_who_listen_share_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)
    monkeypatch.setattr(live, "SHARE", 1.0)
    watch = Told([("a\nb", True), (None, True), RunError("locked"), ("c", True), ("d", False)])
    channel = Channel(watch)  # type: ignore[arg-type]

    async def many() -> list[list[str]]:
        return await asyncio.gather(*(_heard(channel) for _ in range(30)))

    heard = asyncio.run(many())
    assert watch.n == 5
    assert channel.listeners == 0
    for each in heard:
        assert each[0].startswith("retry")
        assert each[1] == "event: progress\ndata: a\ndata: b\n\n"
        assert each[-2:] == ["event: progress\ndata: d\n\n", "event: ended\ndata: \n\n"]


def test_a_run_that_vanishes_ends_the_stream() -> None:
    heard = asyncio.run(_heard(Channel(Told([UsageError("gone")]))))  # type: ignore[arg-type]
    assert heard[-1] == "event: ended\ndata: \n\n"


def test_a_server_that_ends_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)
    channel = Channel(Told([("a", True), (None, True)]))  # type: ignore[arg-type]

    async def closed() -> list[str]:
        heard = asyncio.create_task(_heard(channel))
        await asyncio.sleep(0.1)
        channel.close()
        return await asyncio.wait_for(heard, 5)

    assert asyncio.run(closed())[-1] == "event: progress\ndata: a\n\n"


def test_nobody_looks_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)
    watch = Told([("a", True), (None, True)])
    channel = Channel(watch)  # type: ignore[arg-type]

    async def left() -> int:
        async for each in channel.listen():
            if each.startswith("event"):
                break
        await asyncio.sleep(0.05)
        before = watch.n
        await asyncio.sleep(0.1)
        assert watch.n == before
        async for each in channel.listen():  # and looks again for the next one
            if each.startswith("event"):
                break
        return watch.n - before

    assert asyncio.run(left()) >= 0


def held(process: int) -> tuple[int, int]:
    """Return how many threads and open files a process has."""
    threads = len(os.listdir(f"/proc/{process}/task"))
    return threads, len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_streams_that_are_dropped_leave_nothing(tmp_path: Path) -> None:
    place = write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0) if i < 20 else None, end=False)
    with serving(place) as (address, process):
        parts = urlsplit(address)

        def cookie() -> str:
            connection = http.client.HTTPConnection(parts.netloc, timeout=20)
            connection.request("GET", f"/?{parts.query}")
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return (answer.getheader("set-cookie") or "").partition(";")[0]

        headers = {"cookie": cookie()}

        def listen(n: int) -> list[Any]:
            found = []
            for _ in range(n):
                connection = http.client.HTTPConnection(parts.netloc, timeout=20)
                connection.request("GET", "/runs/1/live", headers=headers)
                answer = connection.getresponse()
                assert answer.status == 200
                assert answer.getheader("content-type", "").startswith("text/event-stream")
                while answer.readline() != b"event: progress\n":
                    pass
                found.append((connection, answer))
            return found

        def drop(streams: list[Any]) -> None:
            for connection, answer in streams:
                answer.close()
                connection.close()
            time.sleep(1.0)

        drop(listen(5))
        before = held(process.pid)
        for _ in range(3):
            streams = listen(60)
            connection = http.client.HTTPConnection(parts.netloc, timeout=5)
            began = time.monotonic()
            connection.request("GET", "/runs/1/units", headers=headers)  # pages answer meanwhile
            assert connection.getresponse().status == 200
            assert time.monotonic() - began < 3
            connection.close()
            drop(streams)
        after = held(process.pid)
        assert after[0] <= max(before[0], 45), (before, after)
        assert after[1] <= before[1] + 5, (before, after)
        # An open stream does not keep the server from ending, and nothing is written about it.
        streams = listen(3)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(streams[0][1].read()))
        reader.start()
        process.send_signal(2)
        _, said = process.communicate(timeout=10)
        reader.join(5)
        assert b"ended" not in b"".join(got)
        assert said == "", said
