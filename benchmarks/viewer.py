"""What the page costs on a store of a million outcomes, through HTTP and a browser.

Prints JSON lines: milliseconds to the first byte as a client on the same machine sees
them, warm and as the first reader gets them; the index and its searches; the memory of
the server process at its highest; the weight of pages over the wire and the first
contentful paint in Chromium, where there is one; and how much slower a trial gets when
a page listens to it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from _million import ARMS, UNITS, build

UNIT_QUERIES = [
    dict(pairs)
    for pairs in itertools.product(
        (("show", "all"), ("show", "disagree"), ("show", "better"), ("show", "wrong"),
         ("show", "failed")),
        (("sort", "spread"), ("sort", "arm 3"), ("sort", "unit")),
        (("stratum", "s3"), ("low", "0.5"), ("id", "12"), ("arm", "arm 4"), ("page", "40")),
        (("order", "down"), ("order", "up")),
    )
]  # fmt: skip
SEARCHES = (
    "token777", "apples", "the", "to", "a", "apples pears plums", '"carry one over"', "tok",
    "12345", "answer because few bi", "timeout", "nowhere",
)  # fmt: skip
SHOWN = (
    ("/", False),
    ("/runs/1", True),
    ("/runs/1/units", False),
    ("/runs/1/unit?id=q000007", False),
    ("/compare?runs=1", True),
)
VIEW = "from equipoise.cli import main; main()"
TOSS = """
import json, sys, time
from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.trial.engine import run
from equipoise.trial.trial import Arm, Claim, Trial
trial = Trial("many", {"coin": Arm(Coin(0.5))}, {"toss": Tosses(int(sys.argv[1]))},
              [Claim("coin", "above", 0.4, "toss")])
sys.stdin.readline()
began, spent = time.perf_counter(), time.process_time()
result = run(trial, store=sys.argv[2])
print(json.dumps({"wall": time.perf_counter() - began, "cpu": time.process_time() - spent}))
"""


class Client:
    """One connection that stays open, as a browser's does."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=120)
        self.connection.request("GET", f"/?{parts.query}")
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]

    def get(self, path: str, htmx: bool = False) -> tuple[float, float, bytes]:
        """Return milliseconds to the first byte and to the last, and the body."""
        headers = {"cookie": self.cookie, "accept-encoding": "gzip"}
        headers |= {"hx-request": "true"} if htmx else {}
        began = time.perf_counter()
        self.connection.request("GET", path, headers=headers)
        answer = self.connection.getresponse()
        first = 1e3 * (time.perf_counter() - began)
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return first, 1e3 * (time.perf_counter() - began), body


@contextlib.contextmanager
def server(store: Path) -> Iterator[tuple[str, int]]:
    """Yield the address and the process number of a viewer of its own."""
    command = [sys.executable, "-c", VIEW, "view", "--no-browser", "--store", str(store)]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://\S+", line):
                yield found[0], process.pid
                break
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)


def peak_mib(process: int) -> float:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def say(what: str, **said: object) -> None:
    """Print one line."""
    rounded = {
        k: round(v, 3 if v < 10 else 1) if isinstance(v, float) else v for k, v in said.items()
    }
    print(json.dumps({"what": what, **rounded}), flush=True)


def spread(times: list[float]) -> dict[str, object]:
    """Return the middle, the 95th per cent and the worst of some times."""
    high = sorted(times)[min(len(times) - 1, int(0.95 * len(times)))]
    return {"n": len(times), "median_ms": statistics.median(times), "p95_ms": high,
            "worst_ms": max(times)}  # fmt: skip


def pages(store: Path) -> None:
    """Measure pages, filters and search, and the server's memory over it all."""
    units = "/runs/1/units"
    with server(store) as (address, process):  # straight to the units, nothing read yet
        client = Client(address)
        say("units, the first page, nothing read before", first_byte_ms=client.get(units)[0])
    with server(store) as (address, process):  # the same with a filter, which waits for the grid
        client = Client(address)
        cold = client.get(f"{units}?show=disagree&sort=spread")[0]
        say("units, filtered and sorted, nothing read before", first_byte_ms=cold)
    with server(store) as (address, process):
        client = Client(address)
        say("server, started", peak_mib=peak_mib(process))
        say("trial page, the first time", first_byte_ms=client.get("/runs/1")[0])
        time.sleep(2)  # somebody reads it
        cold = client.get(f"{units}?show=disagree&sort=spread")[0]
        say("units, filtered and sorted, 2 s after the trial page", first_byte_ms=cold)
        say("trial page", **spread([client.get("/runs/1")[0] for _ in range(20)]))
        say("list of trials", **spread([client.get("/")[0] for _ in range(20)]))
        times = [client.get(f"{units}?{urlencode(each)}", htmx=True)[0] for each in UNIT_QUERIES]
        say("units, filtered and sorted", **spread(times))
        unit = [client.get(f"/runs/1/unit?id=q{i:06d}")[0] for i in range(0, UNITS, UNITS // 40)]
        say("a unit, ten arms", **spread(unit))
        say("samples, the first time", ms=client.get("/runs/1/samples")[1])
        say("samples", ms=client.get("/runs/1/samples")[1])
        before = peak_mib(process)
        began = time.perf_counter()
        beside: list[float] = []
        while b"Reading the answers" in _read(client, f"{units}?q=token777"):
            beside.append(client.get(f"{units}?show=disagree&sort=spread")[0])
            time.sleep(0.2)
        index = [each.stat().st_size for each in store.parent.glob(f"{store.name}-search*")]
        say("index made", seconds=time.perf_counter() - began, mib=sum(index) / 2**20,
            of_store=sum(index) / store.stat().st_size)  # fmt: skip
        say("units, while it is made", **spread(beside))
        found = [(client.get(f"{units}?q={quote(q)}", htmx=True)[0], q) for q in SEARCHES * 3]
        say("search", **spread([ms for ms, _ in found]), slowest=max(found)[1])
        say("server, memory", before_index_peak_mib=before, peak_mib=peak_mib(process))
        say("compare, ten arms of 100,000, the first time", ms=client.get("/compare?runs=1")[1])
        say("compare, ten arms of 100,000", ms=client.get("/compare?runs=1")[1])
        say("server, memory after comparing", peak_mib=peak_mib(process))


def _read(client: Client, path: str) -> bytes:
    import gzip

    body = client.get(path, htmx=True)[2]
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


def browser(store: Path) -> None:
    """Measure what crosses the wire, and the first contentful paint, in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        say("browser: there is no Chromium, or no Playwright")
        return
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
    with server(store) as (address, _), sync_playwright() as playwright:
        base = address.partition("/?")[0]
        shown = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for path, scroll in SHOWN:
            paints = []
            for _ in range(3):  # each time with an empty cache
                context = shown.new_context()
                page = context.new_page()
                page.goto(address)
                context.clear_cookies(name="none")
                session = context.new_cdp_session(page)
                session.send("Network.enable")
                session.send("Network.setCacheDisabled", {"cacheDisabled": True})
                sizes: list[float] = []
                session.on("Network.loadingFinished", lambda e, s=sizes: s.append(
                    e["encodedDataLength"]))  # fmt: skip
                page.goto(base + path)
                page.wait_for_load_state("networkidle")
                if scroll:
                    for each in page.query_selector_all("details"):
                        each.evaluate("each => { each.open = true }")
                    page.evaluate("scrollTo(0, document.body.scrollHeight)")
                    for chart in page.query_selector_all("[data-chart]"):
                        chart.scroll_into_view_if_needed()
                    page.wait_for_timeout(1_500)
                    page.wait_for_load_state("networkidle")
                paints.append(page.evaluate(paint))
                vega = bool(page.query_selector(".pointable canvas, [data-chart] canvas"))
                context.close()
            say(f"in Chromium: {path}", wire_kib=sum(sizes) / 1024, requests=len(sizes),
                vega_lite=vega, first_contentful_paint_ms=statistics.median(paints),
                worst_ms=max(paints))  # fmt: skip
        shown.close()


def slowed(folder: Path, n: int, pairs: int) -> None:
    """Measure a trial of trivial units with a page that listens to it, and without."""
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    for pair in range(pairs):
        found = {}
        for listened in (False, True) if pair % 2 else (True, False):
            store = folder / f"slow-{pair}-{listened}.sqlite"
            found[listened] = _toss(store, n, listened)
        for kind in ratios:
            ratios[kind].append(found[True][kind] / found[False][kind])
    for kind, each in ratios.items():
        say(f"a trial of {n:,} units beside an open page, {kind} time",
            ratio=statistics.median(each), pairs=[round(r, 3) for r in each])  # fmt: skip


def _toss(store: Path, n: int, listened: bool) -> dict[str, float]:
    """Run the trial; the server is there both times, a page listens in one."""
    _first(store)
    with server(store) as (address, _):
        command = [sys.executable, "-c", TOSS, str(n), str(store)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, cwd=store.parent)  # fmt: skip
        over = threading.Event()
        heard: list[bytes] = []
        time.sleep(2)  # imports
        if listened:
            threading.Thread(target=_listen, args=(address, over, heard), daemon=True).start()
        said, _ = process.communicate("go\n")
        over.set()
    if listened and b"event: progress\n" not in heard:
        raise RuntimeError("the page heard nothing")
    return json.loads(said)


def _first(store: Path) -> None:
    """Make the store with a run, for the viewer to open."""
    subprocess.run([sys.executable, "-c", TOSS, "10", str(store)], input="\n", text=True,
                   check=True, stdout=subprocess.DEVNULL, cwd=store.parent)  # fmt: skip


def _listen(address: str, over: threading.Event, heard: list[bytes]) -> None:
    """Do as a page does: wait for the run, open it, listen until it ends."""
    client = Client(address)
    while not over.is_set():
        with contextlib.suppress(RuntimeError):
            client.get("/runs/2")
            break
        time.sleep(0.05)
    client.connection.request("GET", "/runs/2/live", headers={"cookie": client.cookie})
    answer = client.connection.getresponse()
    while not over.is_set() and (line := answer.readline()):
        heard.append(line)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="a store that `_million.py` made")
    parser.add_argument("--units", type=int, default=60_000, help="of the trial that is slowed")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=("pages", "browser", "slowed"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "million.sqlite"
        if given.only in (None, "pages", "browser"):
            if given.store is None:
                began = time.perf_counter()
                build(store)
                say("store made", outcomes=ARMS * UNITS, seconds=time.perf_counter() - began,
                    mib=store.stat().st_size / 2**20, cores=os.cpu_count())  # fmt: skip
            else:
                shutil.copy(given.store, store)
        if given.only in (None, "pages"):
            pages(store)
        if given.only in (None, "browser"):
            browser(store)
        if given.only in (None, "slowed"):
            slowed(Path(folder), given.units, given.pairs)


if __name__ == "__main__":
    main()
