"""Wall seconds of `equipoise compare` as a command, as JSON lines.

Two files of 100,000 units in 57 tasks and 5,700 clusters: read as CSV, Parquet and JSONL, and as
two runs of a store. Beside them a plain script in a process of its own that reads the CSV files
with polars, joins them and asks SciPy for an exact binomial test a task: no clusters, no intervals,
no overall effect. Median of some rounds taken in turns, so that a busy machine slows all alike.

    OMP_NUM_THREADS=1 python benchmarks/comparing.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

UNITS, TASKS, CLUSTERS, ROUNDS = 100_000, 57, 100, 5

PLAIN = """
import polars as pl
from scipy.stats import binomtest
a, b = (pl.read_csv(f"{name}.csv") for name in ("base", "tuned"))
both = a.join(b, on=("task", "unit"), suffix="_b")
p = []
for _, part in both.group_by("task", maintain_order=True):
    d = (part["correct_b"] - part["correct"]).to_numpy()
    p.append(binomtest(int((d > 0).sum()), int((d != 0).sum())).pvalue)
"""


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    task, cluster = rng.integers(0, TASKS, UNITS), rng.integers(0, CLUSTERS, UNITS)
    base = rng.normal(0.7, 1, UNITS) + 0.4 * rng.normal(size=(TASKS, CLUSTERS))[task, cluster]
    for name, shift in (("base", 0.0), ("tuned", 0.06)):
        own = 0.2 * rng.normal(size=(TASKS, CLUSTERS))[task, cluster] + rng.normal(0, 0.7, UNITS)
        frame = pl.DataFrame(
            {
                "task": [f"task-{t:02d}" for t in task],
                "unit": [f"u{i:06d}" for i in range(UNITS)],
                "cluster": [f"{t}-{c}" for t, c in zip(task, cluster, strict=True)],
                "correct": (base + own + shift > 0).astype(int),
            }
        )
        frame.write_csv(folder / f"{name}.csv")
        frame.write_parquet(folder / f"{name}.parquet")
        frame.write_ndjson(folder / f"{name}.jsonl")


def main() -> None:
    equipoise = str(Path(sys.executable).with_name("equipoise"))
    works = {
        "plain script": [sys.executable, "-c", PLAIN],
        **{
            kind: [equipoise, "compare", f"base.{kind}", f"tuned.{kind}"]
            for kind in ("csv", "parquet", "jsonl")
        },
        "runs": [equipoise, "compare", "base", "tuned"],
    }
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        world = {**os.environ, "EQUIPOISE_STORE": f"{place}/store.sqlite"}

        def call(words: list[str]) -> None:
            subprocess.run(words, cwd=place, env=world, check=True, capture_output=True)

        for name in ("base", "tuned"):
            started = time.perf_counter()
            call([equipoise, "import", f"{name}.csv"])
            imported = time.perf_counter() - started
        print(json.dumps({"what": "import of one file", "wall": round(imported, 2)}), flush=True)
        spent: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, words in works.items():
                started = time.perf_counter()
                call(words)
                spent[name].append(time.perf_counter() - started)
    plain = statistics.median(spent["plain script"])
    for name, walls in spent.items():
        wall = statistics.median(walls)
        row = {"what": name, "units": UNITS, "tasks": TASKS, "clusters": TASKS * CLUSTERS,
               "wall": round(wall, 2), "over_plain": round(wall / plain, 2)}  # fmt: skip
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
