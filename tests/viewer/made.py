"""Small stores to look at, and a server of its own process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.core import Outcome, ScoreSpec, Unit
from equipoise.store import Store

SPECS = (ScoreSpec("correct", low=0, high=1), ScoreSpec("length", None))
Answer = Callable[[int, int], Outcome | None]


def outcome(score: float | None, said: Any = "said", **more: Any) -> Outcome:
    """Return an outcome with one score, failed where it is None."""
    if score is None:
        kind = more.pop("kind", "timeout")
        return Outcome("u", status="error", error_kind=kind, error="no answer", **more)
    return Outcome("u", {"correct": score}, output=said, **more)


def write(
    path: Path,
    answer: Answer,
    *,
    arms: int = 2,
    units: int = 60,
    specs: Sequence[ScoreSpec] = SPECS,
    result: Mapping[str, Any] | None = None,
    ids: Callable[[int], str] = lambda i: f"u{i:04d}",
    end: bool = True,
) -> Path:
    """Write a run whose arm k said ``answer(i, k)`` to unit i, None for what was not asked."""
    with Store.open(path) as store:
        task = store.task("t", "sums", {}, list(specs))
        numbers = store.add_units(
            task, [Unit(ids(i), f"What is {i}?", str(i), stratum=f"s{i % 3}") for i in range(units)]
        )
        run = store.begin_run("made", "", {})
        for k in range(arms):
            arm = store.arm(f"a{k}", f"arm {k}", {"subject": {"s": {"k": k}}})
            store.cover(run, arm, task, arm_label=f"arm {k}", task_label="sums", units=units,
                        builds=1, repeats=1)  # fmt: skip
            rows = [(int(n), answer(i, k)) for i, n in enumerate(numbers)]
            store.add(run, arm, task, 0, [(n, each) for n, each in rows if each is not None])
        if end:
            store.end_run(run, "finished", None if result is None else dict(result))
    return path


@contextlib.contextmanager
def serving(place: str | Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address and the process of `equipoise view` on a store."""
    command = [sys.executable, "-c", "from equipoise.cli import main; main()", "view"]
    command += ["--no-browser", "--store", str(place), *(more or ("--port", "0"))]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        address = ""
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://\S+", line):
                address = found[0]
                break
        yield address, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(10)
