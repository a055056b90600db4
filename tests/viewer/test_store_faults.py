"""Stores that are locked, read-only, cut short or replaced; large and odd contents."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.viewer.made import outcome, serving, write

from equipoise.core import Outcome, ScoreSpec, Unit, UsageError
from equipoise.store import Store
from equipoise.store import _dialect as dialect
from equipoise.viewer import library as libraries
from equipoise.viewer.app import create_app
from equipoise.viewer.grid import Grid

PAGES = ("/", "/runs/1", "/runs/1/samples", "/runs/1/units", "/runs/1/units?q=said",
         "/runs/1/units?show=disagree&sort=spread&order=up", "/runs/1/unit?id=u0003",
         "/compare?runs=1", "/runs/1/download/csv", "/runs/1/download/parquet")  # fmt: skip


def client_of(place: Path) -> TestClient:
    found = TestClient(create_app(place, "t"), base_url="http://127.0.0.1:8642",
                       raise_server_exceptions=False)  # fmt: skip
    found.get("/?token=t")
    return found


def alert(answer: Any) -> str:
    found = re.search(r'role="alert"[^>]*>([^<]*)<', answer.text)
    return found[1] if found else ""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    result = {"trial": "made", "status": "finished", "arms": {}, "tasks": {}, "units": 120}
    return write(tmp_path / "x.sqlite", lambda i, k: outcome(float((i + k) % 2), f"said {i} {k}"),
                 result=result)  # fmt: skip


def settled(client: TestClient, address: str) -> Any:
    """Return a page when the answers are indexed."""
    for _ in range(100):
        answer = client.get(address)
        if "Reading the answers" not in answer.text:
            return answer
        time.sleep(0.05)
    raise AssertionError("never indexed")


def test_no_page_writes_to_the_store(place: Path) -> None:
    before = hashlib.sha256(place.read_bytes()).hexdigest(), place.stat().st_mtime_ns
    client = client_of(place)
    for address in PAGES:
        assert settled(client, address).status_code == 200, address
    library = client.app.state.library  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="may not be written"), library._connected() as connection:
        connection.exec_driver_sql("DELETE FROM outcomes")
    client.app.state.library.close()  # type: ignore[attr-defined]
    assert (hashlib.sha256(place.read_bytes()).hexdigest(), place.stat().st_mtime_ns) == before
    left = {each.name for each in place.parent.iterdir()} - {f"{place.name}-search"}
    assert left == {place.name}


def test_a_store_that_nobody_may_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o444)
    place.parent.chmod(0o555)
    monkeypatch.setattr(dialect.os, "access", lambda path, mode: mode != os.W_OK)
    try:
        client = client_of(place)
        for address in PAGES:
            assert settled(client, address).status_code == 200, address
        assert "1 of 60 units" not in settled(client, "/runs/1/units?q=said").text
        folder = client.app.state.library.search.path.parent  # type: ignore[attr-defined]
        assert folder != place.parent
        client.app.state.library.close()  # type: ignore[attr-defined]
        assert not folder.exists()
        assert [each.name for each in place.parent.iterdir()] == [place.name]
    finally:
        place.parent.chmod(0o755)


def test_a_locked_store_is_one_sentence_and_then_a_page(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "PATIENCE", 0.2)
    holder = sqlite3.connect(place, isolation_level=None)
    holder.execute("PRAGMA journal_mode=DELETE")  # readers of a log would not be kept out
    client = client_of(place)
    holder.execute("BEGIN EXCLUSIVE")
    for address in PAGES:
        answer = client.get(address)
        assert answer.status_code == 503, (address, answer.text[:200])
        assert "another process holds the store; try again" in alert(answer)
    holder.execute("ROLLBACK")
    holder.close()
    assert client.get("/runs/1").status_code == 200


def test_a_store_cut_short_under_a_running_server(place: Path, tmp_path: Path) -> None:
    big = write(tmp_path / "big.sqlite", lambda i, k: outcome(1.0, os.urandom(2_000).hex()),
                units=300)  # fmt: skip
    size = big.stat().st_size
    with serving(big) as (address, process):
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        connection.request("GET", f"/?{parts.query}")
        answer = connection.getresponse()
        answer.read()
        cookie = {"cookie": (answer.getheader("set-cookie") or "").partition(";")[0]}

        def get(path: str) -> tuple[int, str]:
            connection.request("GET", path, headers=cookie)
            found = connection.getresponse()
            return found.status, found.read().decode("utf-8", "replace")

        assert get("/runs/1/units")[0] == 200
        for share in (0.6, 0.3, 0.01, 0.0):
            os.truncate(big, int(share * size))
            for path in ("/", "/runs/1", "/runs/1/units?sort=spread", "/runs/1/unit?id=u0250"):
                status, text = get(path)
                assert status in (200, 404, 503), (share, path, status, text[:300])
                assert "Traceback" not in text
                if status != 200:
                    assert 'role="alert"' in text
        process.terminate()
        _, said = process.communicate(timeout=20)
    assert "Traceback" not in said, said
    assert status != 200  # what is all gone is no page


def test_a_store_replaced_while_it_is_shown(place: Path, tmp_path: Path) -> None:
    client = client_of(place)
    assert "60 of 60 units" in client.get("/runs/1/units?id=u").text
    other = write(tmp_path / "y.sqlite", lambda i, k: outcome(1.0, "different"), units=9)
    os.replace(other, place)
    assert "9 of 9 units" in client.get("/runs/1/units").text
    assert "9 of 9 units" in settled(client, "/runs/1/units?q=different").text
    place.unlink()
    answer = client.get("/")
    assert answer.status_code == 404
    assert "No store at" in alert(answer)


def test_fifty_requests_at_once_read_a_cold_grid_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int | None] = []
    whole = Grid.read

    def counted(*given: Any, below: int | None = None) -> Grid:
        reads.append(below)
        time.sleep(0.1)
        return whole(*given, below=below)

    monkeypatch.setattr(Grid, "read", counted)
    with client_of(place) as client:
        client.get("/?token=t")
        with ThreadPoolExecutor(50) as pool:
            kinds = ("show=disagree", "sort=spread", "low=0.5", "page=2", "id=u001")
            asked = [f"/runs/1/units?{kinds[i % 5]}" for i in range(50)]
            answers = list(pool.map(client.get, asked))
    assert {each.status_code for each in answers} == {200}
    assert reads.count(None) == 1


def test_the_first_page_does_not_wait_for_the_grid(tmp_path: Path) -> None:
    def answer(i: int, k: int) -> Outcome:
        return outcome(None, kind="refused") if i == 340 else outcome(1.0)

    client = client_of(write(tmp_path / "x.sqlite", answer, units=400))
    first = client.get("/runs/1/units")
    assert first.text.count("<bdi>u0") >= 50
    assert "being counted" in first.text
    assert "refused" not in first.text
    counted = client.get(
        "/runs/1/units", headers={"hx-request": "true", "hx-trigger": "counting"}
    ).text
    assert "400 of 400 units" in counted
    assert re.search(r'id="kinds" hx-swap-oob="true".*refused', counted)
    assert "400 of 400 units" in client.get("/runs/1/units").text
    client.app.state.library.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "address",
    [
        f"/runs/{10**30}", "/runs/-1", f"/runs/{10**30}/units", f"/runs/{10**30}/live",
        f"/compare?runs={10**60}", f"/runs/1/units?page={10**30}", "/runs/1/units?page=-1",
        "/runs/1/units?low=1.2.3", "/runs/1/units?low=nan", "/runs/1/units?q=--",
        f"/runs/1/units?q={'a' * 10_000}", f"/runs/1/unit?id={'a' * 5_000}",
        "/runs/1/unit?id=u0001&repeat=99999999999999999999", "/runs/1/unit?id=u0001&build=7",
        "/runs/1/unit?id=%00", "/runs/1/unit?id=%ff%fe", "/runs/1/units?task=%00",
        f"/runs/1/figures/{10**30}", "/compare?runs=1&level=1", "/compare?runs=1&level=nan",
        "/compare?runs=x", "/?verdict=maybe", f"/?page={10**9}", f"/catalogue/{'x' * 5_000}",
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_one_sentence(place: Path, address: str) -> None:
    answer = client_of(place).get(address)
    assert answer.status_code in (400, 404), (answer.status_code, answer.text[:300])
    assert len(alert(answer)) > 10
    assert len(answer.text) < 20_000


@pytest.mark.parametrize(
    "address",
    ["/runs/1/units?low=1e999", "/runs/1/units?low=-1e-9&high=+.5E1", "/runs/1/units?page=999999",
     "/?page=1000000", "/runs/1/units?id=%25%5F%5C%27", "/?q=%00%25", "/runs/1/units?kind=none",
     "/runs/1/units?stratum=%00", "/runs/1/units?q=%22%00(%22"],
)  # fmt: skip
def test_what_is_odd_but_may_be_asked(place: Path, address: str) -> None:
    answer = settled(client_of(place), address)
    assert answer.status_code == 200 or "word to look for" in alert(answer)


ODD = ("a b", "a+b", "a%20b", "a&b=c", "a#b", "a?b", "a/b/../c", "\\", '"', "'", "<b>", "a;b", "é",
       "日本", "😀", "a\tb", "a\nb", " ", ".", "..", "%", "_", "%_%", "{{x}}", "a\u200db",
       "null")  # fmt: skip


def test_ids_with_every_odd_character(tmp_path: Path) -> None:
    client = client_of(
        write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0, artifacts={ODD[i]: b"x"}),
              units=len(ODD), ids=lambda i: ODD[i])
    )  # fmt: skip
    listed = client.get("/runs/1/units").text
    links = re.findall(r'href="(/runs/1/unit\?[^"]*)"', listed)
    assert len(links) == len(ODD)
    for name, link in zip(ODD, links, strict=True):
        page = client.get(link.replace("&amp;", "&"))
        assert page.status_code == 200, name
        saved = re.findall(r'href="(/runs/1/artifact\?[^"]*)"', page.text)
        assert client.get(saved[0].replace("&amp;", "&")).content == b"x", name
    for name in ("%", "_", "\\", "%_%"):  # signs of LIKE stand for themselves
        found = client.get(f"/runs/1/units?id={quote(name)}", headers={"hx-request": "true"}).text
        n = sum(name in each for each in ODD)
        assert f"{n} of {len(ODD)} units" in found, name


def big_unit(tmp_path: Path, make: Callable[[int], Outcome], arms: int = 2) -> TestClient:
    return client_of(write(tmp_path / "x.sqlite", lambda i, k: make(k), arms=arms, units=1))


def test_an_artifact_of_fifty_megabytes(tmp_path: Path) -> None:
    noise = os.urandom(1 << 20) * 50
    picture = b"\x89PNG\r\n\x1a\n" + noise
    things = {"noise": noise, "shot": picture, "zeros": b"\0" * (50 << 20),
              "curve": np.frombuffer(noise, np.uint8)}  # fmt: skip
    client = big_unit(tmp_path, lambda k: outcome(1.0, artifacts=things if k else {}))
    page = client.get("/runs/1/unit?id=u0000")
    assert page.status_code == 200
    assert len(page.text) < 100_000
    assert page.text.count("as it is kept") >= 3
    where = "/runs/1/artifact?arm=arm+1&task=sums&id=u0000&name="
    assert client.get(where + "noise").content == noise
    shot = client.get(where + "shot")
    assert shot.headers["content-type"] == "image/png"
    assert "content-encoding" not in shot.headers or shot.headers["content-encoding"] == "identity"
    assert len(client.get(where + "zeros").content) == 50 << 20


def test_an_output_of_five_megabytes(tmp_path: Path) -> None:
    client = big_unit(
        tmp_path,
        lambda k: Outcome(
            "u", {"correct": 1.0}, output="word " * 1_000_000 + str(k),
            transcript=[{"role": "user", "content": "x" * 50_000} for _ in range(200)]
            + [{"role": "assistant", "content": "y" * 5_000_000,
                "tool_calls": [{"function": {"name": "n" * 9_999, "arguments": "z" * 9_999_999}}]}],
        ),
    )  # fmt: skip
    page = client.get("/runs/1/unit?id=u0000")
    assert page.status_code == 200
    assert len(page.text) < 1_500_000
    assert "characters more" in page.text
    assert "more messages are in the store" in page.text
    assert len(client.get("/runs/1/units").text) < 50_000
    failed = Outcome("u", status="error", error_kind="k", error="e" * 5_000_000)
    again = big_unit(tmp_path / "b", lambda k: failed)
    assert len(again.get("/runs/1/unit?id=u0000").text) < 100_000


def test_two_hundred_arms(tmp_path: Path) -> None:
    words = " ".join(f"word{i}" for i in range(600))
    client = client_of(
        write(tmp_path / "x.sqlite", lambda i, k: outcome(k / 200, f"{words} {k} {i}"), arms=200,
              units=5)
    )  # fmt: skip
    began = time.perf_counter()
    page = client.get("/runs/1/unit?id=u0003")
    took = time.perf_counter() - began
    assert page.status_code == 200
    assert page.text.count("<article") == 200
    assert len(page.text) < 5_000_000
    assert took < 15, took
    units = client.get("/runs/1/units?sort=arm+199&order=down")
    assert units.text.count("data-label") >= 1_000 or units.text.count('class="count') >= 1_000


def test_a_run_with_no_outcome(tmp_path: Path) -> None:
    client = client_of(write(tmp_path / "x.sqlite", lambda i, k: None, end=False))
    for address in ("/", "/runs/1", "/runs/1/units", "/runs/1/units?show=failed&sort=arm+1",
                    "/runs/1/units?sort=spread", "/compare?runs=1"):  # fmt: skip
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text[:300])
    assert settled(client, "/runs/1/units?q=word").status_code == 200
    assert "no outcome" in alert(client.get("/runs/1/unit?id=u0001"))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_arms_with_different_scores_and_scores_that_are_no_numbers(tmp_path: Path) -> None:
    specs = [ScoreSpec("correct")]

    def answer(i: int, k: int) -> Outcome:
        value = [float("nan"), float("inf"), -float("inf"), 1e308][i % 4]
        return Outcome("u", {"correct": value} if not k else {"other": 0.5 * i}, output="x")

    client = client_of(write(tmp_path / "x.sqlite", answer, specs=specs, units=8))
    for query in ("", "score=other&sort=arm+1&order=down", "score=correct&sort=arm+0", "low=0",
                  "score=other&show=disagree", "show=better", "sort=spread"):  # fmt: skip
        page = client.get(f"/runs/1/units?{query}", headers={"hx-request": "true"})
        assert page.status_code == 200, query
    assert "3.500" in client.get("/runs/1/units?score=other").text
    assert "∞" in client.get("/runs/1/units").text
    for i in range(4):
        assert client.get(f"/runs/1/unit?id=u000{i}").status_code == 200


def test_imported_runs_and_builds_and_repeats(tmp_path: Path) -> None:
    place = tmp_path / "x.sqlite"
    with Store.open(place) as store:
        task = store.task("t", "sums", {}, [ScoreSpec("correct", low=0, high=1)])
        numbers = store.add_units(task, [Unit(f"u{i}", f"What is {i}?") for i in range(5)])
        run = store.begin_run("imported", "", {"imported": "x.jsonl"})
        arm = store.arm("a", "a", {})
        store.cover(run, arm, task, arm_label="a", task_label="sums")  # of no known size
        for build in range(2):
            for repeat in range(3):
                rows = [
                    (int(n), outcome(float(repeat > 0), f"b{build} r{repeat}")) for n in numbers
                ]
                store.add(run, arm, task, build, rows, repeat)
        store.end_run(run, "finished")
    client = client_of(place)
    assert client.get("/runs/1").status_code == 200
    assert client.get("/runs/1/units").text.count("0.667") == 5
    page = client.get("/runs/1/unit?id=u3&build=1&repeat=2").text
    assert "b1 r2" in page
    assert client.get("/runs/1/unit?id=u3&build=2").status_code == 404
    assert "5 of 5 units" in settled(client, "/runs/1/units?q=r2").text


def test_neighbours_stay_within_the_run(tmp_path: Path) -> None:
    place = write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0), units=10)
    with Store.open(place) as store:
        run = store.begin_run("smaller", "", {})
        store.cover(run, 1, 1, arm_label="arm 0", task_label="sums", units=4, builds=1, repeats=1)
        store.end_run(run, "finished")
    client = client_of(place)
    assert "u0004" in client.get("/runs/1/unit?id=u0003").text
    assert "u0004" not in client.get("/runs/2/unit?id=u0003").text
    assert "u0002" in client.get("/runs/2/unit?id=u0003").text
