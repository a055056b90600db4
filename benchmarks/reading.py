"""The store: rate of writing, size on disk, and the time to read a run back.

    python benchmarks/reading.py [--rows 5000] [--peer PYTHON]

Baseline of writing: a plain `sqlite3` loop of `executemany` over rows that are
ready made, with the same durability (write-ahead log, a sync at every commit)
and the same size of batch. Peer of reading: `samples_df` of inspect_ai over a
log of the same samples, where PYTHON (or this interpreter) has it. Times of
reading are the best of five, in a process that has its imports done.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 1_000


def best(call: Callable[[], Any], times: int = 5) -> float:
    """Return the least wall time of some calls, in seconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def question(i: int) -> str:
    return f"What is {i} plus {i + 7}?"


def answer(i: int) -> str:
    return f"The answer is {2 * i + 7}."


def messages(i: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": question(i)},
        {"role": "assistant", "content": answer(i)},
    ]


class Clock:
    """Sums wall and processor time."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._began[0]
        self.cpu += time.process_time() - self._began[1]

    def rates(self, n: int) -> dict[str, float]:
        return {"rows a second": n / self.wall, "rows a CPU second": n / self.cpu}


def write_store(folder: Path, n: int) -> dict[str, Any]:
    from equipoise.core import Outcome, ScoreSpec, Unit, Usage
    from equipoise.store import Store

    units, outcomes = Clock(), Clock()
    with Store.open(folder / "store.sqlite") as store:
        run, arm = store.begin_run("bench", "", {}), store.arm("a", "a", {})
        task = store.task("t", "t", {}, [ScoreSpec("correct", low=0, high=1)])
        for start in range(0, n, BATCH):
            part = range(start, min(n, start + BATCH))
            given = [Unit(f"q{i}", question(i), str(2 * i + 7)) for i in part]
            with units:
                numbers = store.add_units(task, given).tolist()
            rows = [
                (
                    number,
                    Outcome(
                        f"q{i}",
                        {"correct": 1.0},
                        output=answer(i),
                        transcript=messages(i),
                        usage=Usage(12, 6),
                        seconds=0.01,
                        seed=123_456_789,
                    ),
                )
                for i, number in zip(part, numbers, strict=True)
            ]
            with outcomes:
                store.add(run, arm, task, 0, rows)
        store.end_run(run, "finished")
    size = sum(each.stat().st_size for each in folder.iterdir())
    return {
        "units": units.rates(n),
        "outcomes": outcomes.rates(n),
        "bytes a unit": size / n,
    }


def write_plain(folder: Path, n: int) -> dict[str, Any]:
    """Write the same content by hand: one table, text as it is."""
    connection = sqlite3.connect(folder / "plain.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE outcomes (arm INTEGER, task INTEGER, unit TEXT, build INTEGER,"
        " repeat INTEGER, attempt INTEGER, run INTEGER, status TEXT, score REAL,"
        " input_tokens INTEGER, output_tokens INTEGER, dollars REAL, seconds REAL, seed INTEGER,"
        " output TEXT, transcript TEXT, PRIMARY KEY (arm, task, unit, build, repeat, attempt))"
    )
    clock = Clock()
    insert = f"INSERT INTO outcomes VALUES ({','.join('?' * 16)})"
    for start in range(0, n, BATCH):
        rows = [
            (1, 1, f"q{i}", 0, 0, 0, 1, "ok", 1.0, 12, 6, 0.0, 0.01, 123_456_789,
             json.dumps(answer(i)), json.dumps(messages(i)))
            for i in range(start, min(n, start + BATCH))
        ]  # fmt: skip
        with clock:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(insert, rows)
            connection.execute("COMMIT")
    connection.close()
    size = sum(each.stat().st_size for each in folder.iterdir())
    return {"outcomes": clock.rates(n), "bytes a unit": size / n}


def read_store(folder: Path, n: int) -> dict[str, float]:
    from equipoise.store import Store

    path = folder / "store.sqlite"

    def cold() -> None:
        with Store.open(path, readonly=True) as store:
            store.summary("last")

    with Store.open(path, readonly=True) as store:
        assert store.summary("last")[0]["scores"]["correct"] == {"mean": 1.0, "n": n}
        return {
            "open and summary": best(cold),
            "summary": best(lambda: store.summary("last")),
            "columns": best(lambda: store.outcomes(1, 1)),
            "one unit with transcript": best(lambda: store.unit(1, 1, f"q{n // 2}"), 50),
        }


PEER = """
import json, sys, time
from datetime import datetime, timezone
from inspect_ai.analysis import samples_df
from inspect_ai.log import (EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSample, EvalSpec,
    EvalStats, read_eval_log_sample, write_eval_log)
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score

folder, n = sys.argv[1], int(sys.argv[2])
now = datetime.now(timezone.utc).isoformat()
samples = []
for i in range(n):
    question, answer = f"What is {i} plus {i + 7}?", f"The answer is {2 * i + 7}."
    samples.append(EvalSample(id=f"q{i}", epoch=1, input=question, target=str(2 * i + 7),
        messages=[ChatMessageUser(content=question), ChatMessageAssistant(content=answer)],
        output=ModelOutput.from_content("mock", answer), scores={"match": Score(value="C")}))
log = EvalLog(status="success", samples=samples, results=EvalResults(), stats=EvalStats(),
    eval=EvalSpec(created=now, task="bench", model="mock", dataset=EvalDataset(samples=n),
        config=EvalConfig()))
path = f"{folder}/bench.eval"
write_eval_log(log, path)
def best(call, times):
    found = []
    for _ in range(times):
        began = time.perf_counter(); call(); found.append(time.perf_counter() - began)
    return min(found)
import os
print("RESULT" + json.dumps({
    "samples_df": best(lambda: samples_df(path, quiet=True), 3),
    "one sample": best(lambda: read_eval_log_sample(path, id=f"q{n // 2}", epoch=1), 10),
    "bytes a unit": os.path.getsize(path) / n,
}))
"""


def read_peer(folder: Path, n: int, python: str) -> dict[str, float] | None:
    done = subprocess.run(
        [python, "-c", PEER, str(folder), str(n)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "INSPECT_LOG_DIR": str(folder)},
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            found: dict[str, float] = json.loads(line.removeprefix("RESULT"))
            return found
    if "No module named 'inspect_ai'" not in done.stderr:
        print(done.stderr[-2000:], file=sys.stderr)
    return None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=5_000)
    arguments.add_argument("--peer", default=sys.executable)
    asked = arguments.parse_args()
    n = asked.rows
    found: dict[str, Any] = {"rows": n}
    with tempfile.TemporaryDirectory() as name:
        places = {part: Path(name) / part for part in ("store", "plain", "peer")}
        for place in places.values():
            place.mkdir()
        found["write, plain sqlite3 loop"] = write_plain(places["plain"], n)
        found["write, store"] = write_store(places["store"], n)
        found["read, store (s)"] = read_store(places["store"], n)
        peer = read_peer(places["peer"], n, asked.peer)
    found["read, inspect_ai (s)"] = peer or "not installed"
    if peer:
        ours = found["read, store (s)"]
        found["ratios"] = {
            "summary": peer["samples_df"] / ours["open and summary"],
            "one unit": peer["one sample"] / ours["one unit with transcript"],
            "size": peer["bytes a unit"] / found["write, store"]["bytes a unit"],
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
