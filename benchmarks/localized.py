"""Speed and memory of localised conformal tests, as JSON lines.

Each row runs in a process of its own, on one thread; ``peak_mib`` is what the process held at most
beyond what the imports take. Two rows are peers: the same p-values from whole matrices, and the
auxiliary step of the outlier test (without its p-values) by sorting once for every test row.

    OMP_NUM_THREADS=1 python benchmarks/localized.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

START = """
import json, resource, sys, time
import numpy as np
from equipoise.core import Rng
from equipoise.methods.conformal import (
    label_screen, localized_p_values, outlier_test, two_sample_conditional_test)
from equipoise.methods.conformal._localized_weights import Localised, xi
import scipy.stats, sklearn.linear_model
from equipoise.kit.arrays import learners
n, m = int(sys.argv[1]), int(sys.argv[2])
g = np.random.default_rng(0)
v, x, tv, tx = g.random(n), g.random((n, 1)), g.random(m), g.random((m, 1))
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, began = peak(), time.process_time()
"""

END = """
print(json.dumps({"cpu_seconds": time.process_time() - began, "peak_mib": peak() - before}))
"""

WORK = {
    "localized_p_values": "localized_p_values(v, x, tv, tx, rng=Rng(0))",
    "outlier_test": "outlier_test(v, x, tv, tx, alpha=0.1, rng=Rng(0))",
    "label_screen, 2 labels": (
        "label_screen(g.random((n, 2)), g.random((n, 2)) < 0.3, x, g.random((m, 2)), tx,"
        " alpha=0.1, rng=Rng(0))"
    ),
    "two_sample_conditional_test": (
        "two_sample_conditional_test((g.normal(size=(2 * n, 5)), g.normal(size=2 * n)),"
        " (g.normal(size=(2 * m, 5)), g.normal(size=2 * m)), rng=Rng(0))"
    ),
    "p-values, whole matrices": """
world = Localised.of(v, x, tv, tx, None, Rng(0))
w = np.exp(-((world.anchors[:, None, :] - x[None]) ** 2).sum(axis=2) / (2 * world.h**2))
own = np.exp(-((world.anchors - tx) ** 2).sum(axis=1) / (2 * world.h**2))
above = (w * (v > tv[:, None])).sum(axis=1)
ties = (w * (v == tv[:, None])).sum(axis=1)
p = (above + xi(m, Rng(0)) * (own + ties)) / (w.sum(axis=1) + own)
""",
    "outlier test, m sorts of m": """
low, high = Localised.of(v, x, tv, tx, None, Rng(0)).auxiliary()
line = 0.1 * np.arange(1, m + 1) / m
for j in range(m):
    p = np.where(tv <= tv[j], high, low)
    p[j] = 0.0
    np.flatnonzero(np.sort(p) <= line)[-1]
""",
}

SIZES = {
    "localized_p_values": ((5_000, 5_000), (20_000, 20_000)),
    "outlier_test": ((2_000, 2_000), (5_000, 5_000), (20_000, 20_000)),
    "label_screen, 2 labels": ((5_000, 5_000),),
    "two_sample_conditional_test": ((5_000, 5_000),),
    "p-values, whole matrices": ((5_000, 5_000),),
    "outlier test, m sorts of m": ((2_000, 2_000), (5_000, 5_000), (20_000, 20_000)),
}


def main() -> None:
    for what, sizes in SIZES.items():
        for n, m in sizes:
            script = START + WORK[what] + END
            command = [sys.executable, "-c", script, str(n), str(m)]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            line = {"what": what, "n": n, "m": m} | json.loads(found.stdout)
            rounded = {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in line.items()}
            print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
