"""How long commands take to start, as multiples of ``python -c pass`` in the same run.

Prints JSON lines: median processor and wall seconds of ``--runs`` runs, each
command in turn so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path


def once(words: list[str]) -> tuple[float, float]:
    """Return wall and processor seconds of one run."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--peer", help="a Python with inspect-ai and lm-eval")
    words = parser.parse_args()
    program = str(Path(sys.executable).parent / "equipoise")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "equipoise --help": [program, "--help"],
        "equipoise list": [program, "list"],
    }
    if words.peer:
        for name in ("inspect", "lm_eval"):
            path = Path(words.peer).parent / name
            if path.exists():
                commands[f"{name} --help"] = [str(path), "--help"]
    for command in commands.values():
        once(command)  # byte code and file cache
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(words.runs):
        for name, command in commands.items():
            found[name].append(once(command))
    base = [statistics.median(column) for column in zip(*found["python -c pass"], strict=True)]
    for name, rows in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        row = {"what": name, "wall": wall, "cpu": cpu, "times_wall": wall / base[0]}
        print(json.dumps(row | {"times_cpu": cpu / base[1], "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
