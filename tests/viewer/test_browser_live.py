"""A trial that really runs, watched; a server that goes away and comes back; a tab that closes."""

from __future__ import annotations

import functools
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.browser import Server, Visitor, visiting

TRIAL = """
trial: slow sums
question: Does the second one add better?
arms:
  first: {subject: {scripted: {function: "slow:first"}}}
  second: {subject: {scripted: {function: "slow:second"}}}
tasks:
  sums: {mathgap: {depth: 1, problems: 120}}
claims:
  - {arm: second, beats: first, on: sums}
"""
SUBJECTS = """
import pathlib, random, time

def first(request):
    return _slow(request, "a")

def second(request):
    return _slow(request, "b")

def _slow(request, who):
    if not pathlib.Path("go").exists():  # until the test has seen enough
        time.sleep(0.1)
    return str(random.Random(who + str(request.prompt)).randint(1, 30))
"""
RUN = "import sys; from equipoise.cli import main; sys.argv[0] = 'equipoise'; main()"


@pytest.fixture
def running(chromium: Any, tmp_path: Path) -> Iterator[Path]:
    """A store to which a trial in another process writes."""
    (tmp_path / "slow.yaml").write_text(TRIAL)
    (tmp_path / "slow.py").write_text(SUBJECTS)
    command = [sys.executable, "-c", RUN, "run", "slow.yaml", "--store", "store.sqlite"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    store = tmp_path / "store.sqlite"
    try:
        for _ in range(600):
            if _written(store) > 0:
                break
            assert process.poll() is None, process.stdout.read()  # type: ignore[union-attr]
            time.sleep(0.05)
        yield store
        (tmp_path / "go").touch()
        assert process.wait(60) == 3, "inconclusive, as guesses are"
    finally:
        process.kill()
        process.communicate()


def _written(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as opened:
            return int(opened.execute("SELECT count(*) FROM outcomes").fetchone()[0])
    except sqlite3.OperationalError:  # not there yet
        return 0


def _done(page: Any) -> int:
    said = page.locator("#live .facts dd").first.inner_text()
    return int(re.match(r"[\d,]+", said)[0].replace(",", ""))  # type: ignore[index]


def _beyond(page: Any, number: int) -> bool:
    return _done(page) > number


def _until(page: Any, true: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, page.locator("main").inner_text()
        page.wait_for_timeout(100)


def test_progress_of_a_running_trial(chromium: Any, running: Path) -> None:
    server = Server(running).start()
    try:
        with visiting(chromium, server) as visitor:
            page = visitor.page
            visitor.go("/runs/1")
            for _ in range(2):  # the second change has a speed
                before = _done(page)
                _until(page, functools.partial(_beyond, page, before))
            facts = page.locator("#live .facts").inner_text()
            assert re.search(r"Speed\s+[\d.,]+ a second", facts), facts
            assert re.search(r"Time left\s+about ", facts), facts
            claim = page.locator("#live .claim").first
            assert "second beats first on sums" in claim.inner_text()
            assert claim.locator("svg").count(), "the interval so far is drawn"
            assert page.locator("#live progress").first.get_attribute("value") != "0"
            (running.parent / "go").touch()
            page.locator("#verdicts").wait_for(timeout=60_000)
            assert re.search(r"240\b", page.locator(".facts").inner_text())
    finally:
        server.stop()


def test_the_page_recovers_when_the_server_comes_back(chromium: Any, running: Path) -> None:
    server = Server(running).start()
    try:
        with visiting(chromium, server) as visitor:
            page = visitor.page
            visitor.go("/runs/1")
            _until(page, functools.partial(_beyond, page, 0))
            server.stop(signal.SIGKILL)
            lost = page.locator("[data-lost]")
            lost.wait_for()
            assert "does not answer" in lost.inner_text()
            before = _done(page)
            server.start()
            lost.wait_for(state="hidden")
            _until(page, functools.partial(_beyond, page, before))
            visitor.faults.clear()  # the browser tells of every connection that failed
    finally:
        server.stop()


def test_tabs_that_close_leave_nothing_behind(chromium: Any, place: Path) -> None:
    server = Server(place).start()
    try:
        status = Path(f"/proc/{server.process.pid}/status")  # type: ignore[union-attr]
        if not status.exists():
            pytest.skip("threads and sockets of a process are counted in /proc")
        counts = []
        with visiting(chromium, server) as visitor:
            for _ in range(2):
                for _ in range(6):
                    tab = visitor.page.context.new_page()
                    tab.goto(f"{server.base}/runs/2")
                    tab.wait_for_timeout(50)
                    tab.close()
                counts.append(_held(visitor, status))
            assert counts[-1] <= counts[0], counts
            visitor.go("/runs/2")
    finally:
        server.stop()


def _held(visitor: Visitor, status: Path) -> tuple[int, int]:
    """Return threads and open sockets once streams have had the time to end."""
    visitor.page.wait_for_timeout(1_500)
    threads = int(re.search(r"Threads:\s+(\d+)", status.read_text())[1])  # type: ignore[index]
    links = [each for each in (status.parent / "fd").iterdir() if each.is_symlink()]
    sockets = sum(str(each.readlink()).startswith("socket:") for each in links)
    return threads, sockets
