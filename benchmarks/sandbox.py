"""Trivial Python programs a second in the sandbox and by plain `subprocess.run`, as JSON lines.

Both use every core, one program at a time on each, in turns so that a busy machine slows both.

    python benchmarks/sandbox.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _peers import say

from equipoise.kit.sandbox import Sandbox, isolation_level

CORES = len(os.sched_getaffinity(0))
PROGRAM = "print(6 * 7)"
ROUNDS, PROGRAMS, COLD = 5, 200, 15


def rate(run: Callable[[], bool]) -> float:
    """Return programs a second."""
    with ThreadPoolExecutor(CORES) as threads:
        began = time.perf_counter()
        right = list(threads.map(lambda _: run(), range(PROGRAMS)))
        seconds = time.perf_counter() - began
    assert all(right)
    return PROGRAMS / seconds


def seconds(run: Callable[[], bool]) -> float:
    began = time.perf_counter()
    assert run()
    return time.perf_counter() - began


def main() -> None:
    level = isolation_level()
    with tempfile.TemporaryDirectory() as folder, Sandbox(workers=CORES) as sandbox:
        file = Path(folder) / "program.py"
        file.write_text(PROGRAM)

        def plain() -> bool:
            found = subprocess.run([sys.executable, str(file)], capture_output=True, check=True)
            return found.stdout == b"42\n"

        def inside() -> bool:
            return sandbox.run_python(PROGRAM).stdout == b"42\n"

        def cold() -> bool:
            with Sandbox(workers=1) as fresh:
                return fresh.run_python(PROGRAM).stdout == b"42\n"

        rate(inside), rate(plain)
        pairs = [(rate(inside), rate(plain)) for _ in range(ROUNDS)]
        warm = statistics.median(a / b for a, b in pairs)
        say(what="warm programs a second", level=level, cores=CORES,
            ours=statistics.median(a for a, _ in pairs),
            plain=statistics.median(b for _, b in pairs), ratio=warm)  # fmt: skip
        over = [seconds(cold) - seconds(plain) for _ in range(COLD)]
        say(what="cold sandbox over plain subprocess", level=level,
            milliseconds=1000 * statistics.median(over))  # fmt: skip


if __name__ == "__main__":
    main()
